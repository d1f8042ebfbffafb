"""W1 with transformers + peft: a batch per adapter, `set_adapter` between batches.

    python benchmarks/peft_baseline.py --out benchmarks/results/w1.jsonl

The same shapes as offline_throughput.py (Llama-3.1-8B, 256 tokens in, 128 out, bf16, q,k,v,o adapters), batches of
at most 64 requests of one adapter, adapters all on the GPU. Fewer batches than W1, each as large as there: the rate of
a batch does not depend on how many follow. Of 64 adapters, 16 are served, with 16 of W1's 1000 requests each.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from offline_throughput import LLAMA_3_1_8B, MIXED, MIXERS
from peft import LoraConfig, get_peft_model
from rows import Rows, parser_of
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

BATCH = 64
LOADED = 64
CASES = {"1 adapter": (1, 128), "8 mixed": (8, 512), "64 mixed": (16, 256)}  # adapters served, requests


def build(adapters: int) -> Any:
    config = CONFIG_MAPPING["llama"](**{k: v for k, v in LLAMA_3_1_8B.items() if k != "model_type"})
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
        for index in range(adapters):
            lora = LoraConfig(r=MIXED[index % len(MIXED)], target_modules=list(MIXERS), init_lora_weights=False)
            if index:
                model.add_adapter(f"a{index}", lora)
            else:
                model = get_peft_model(model, lora, adapter_name="a0")
    return model.to(torch.bfloat16)


@torch.inference_mode()
def serve(model: Any, adapters: int, requests: int) -> float:
    """Return the requests per second."""
    per_adapter = requests // adapters
    began = time.perf_counter()
    for index in range(adapters):
        model.set_adapter(f"a{index}")
        for start in range(0, per_adapter, BATCH):
            ids = torch.randint(0, LLAMA_3_1_8B["vocab_size"], (min(BATCH, per_adapter - start), 256), device="cuda")
            model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=128,
                min_new_tokens=128,
                do_sample=False,
                pad_token_id=0,
            )
    torch.cuda.synchronize()
    return requests / (time.perf_counter() - began)


def main() -> None:
    parser = parser_of(__doc__, out=True)
    arguments = parser.parse_args()
    rows = Rows(arguments.out, "W1", "llama-3.1-8b", batch=BATCH)
    model = build(LOADED)
    serve(model, 1, 8)
    for case, (adapters, requests) in CASES.items():
        rate = serve(model, adapters, requests)
        settings = {"requests": requests, "served": adapters}
        rows.add(case, "requests_per_s", rate, "1/s", system="PEFT", settings=settings)


if __name__ == "__main__":
    main()
