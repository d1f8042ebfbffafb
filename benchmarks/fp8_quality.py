"""The effect of FP8 on answers, with and without adapters: the demo model's, and of a tiny model of each family.

    python benchmarks/fp8_quality.py --out benchmarks/results/fp8_quality.jsonl

Runs on a CPU. The demo model is small (4 million parameters) but trained, and so are its adapters. Each adapter's
prompts are answered greedily in float32; tiny models have random weights and prompts, and one adapter on every
module. Over every token of those answers: how often the likeliest next token is still the same, the mean relative
error of the logits, and the mean divergence (KL, in nats) of the distributions. Weights and activations in FP8 are
rounded as the GPU's kernels round them. bfloat16 stands beside it for comparison.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import torch  # noqa: E402
from lorikeet_testing.quantising_ops import QuantisingOps  # noqa: E402
from lorikeet_testing.tiny_models import (  # noqa: E402
    ENGINE_SETTINGS,
    FAMILIES,
    VOCAB,
    adapter_at,
    pack_for,
    save_adapter,
    save_model,
)
from rows import commit, parser_of  # noqa: E402

from lora_engine.adapters.source import LoadedAdapters  # noqa: E402
from lora_engine.config import EngineConfig  # noqa: E402
from lora_engine.engine import Engine  # noqa: E402
from lora_engine.model.batch import LoraSpan, PrefillSpan  # noqa: E402
from lora_engine.model.loading import prefill_batch  # noqa: E402
from lora_engine.model.parallel import Parallel  # noqa: E402
from lora_engine.model.weight_loading import load_weights  # noqa: E402
from lora_engine.request import GenerationRequest, SamplingParams  # noqa: E402
from lora_engine.text import ChatTemplate  # noqa: E402

DEMO = ROOT / "demo"
BASE = "lorikeet-demo"


@dataclass
class Variant:
    """An engine and its adapters by name."""

    engine: Engine
    digests: dict[str, str]

    @classmethod
    def of(cls, folder: Path, adapters: Sequence[Path], weights: bool = False, **settings: Any) -> Variant:
        """Build the engine. ``weights``: in FP8, with activations rounded too."""
        source = LoadedAdapters()
        settings = {"pool_mb": 64, "prefix_cache": False, **settings}
        engine = Engine(EngineConfig(model=folder, **settings), source)
        if weights:
            model = engine.loaded.model
            quantised = load_weights(folder, model.config, model.device, model.dtype, Parallel(), True)
            model.weights.layers, model.ops = quantised.layers, QuantisingOps(model.shape)
        digests = {}
        for path in adapters:
            adapter = adapter_at(path.name, path)
            source.add(pack_for(engine, adapter))
            digests[path.name] = adapter.digest
        return cls(engine, digests)

    def answer(self, name: str, prompt: list[int]) -> list[int]:
        params = SamplingParams(max_tokens=64)
        self.engine.add_request(GenerationRequest("a", prompt, params, self.digests.get(name, "")))
        tokens: list[int] = []
        while self.engine.has_work():
            tokens += [token for delta in self.engine.step().deltas for token in delta.token_ids]
        return tokens

    @torch.inference_mode()
    def logits(self, name: str, tokens: list[int]) -> torch.Tensor:
        """Return the logits after each of the tokens."""
        engine, geometry = self.engine, self.engine.pool.geometry
        batch = prefill_batch(len(tokens), geometry, engine.loaded.model.device)
        batch.token_ids, batch.logit_rows = torch.tensor(tokens), torch.arange(len(tokens))
        pages = engine.core.allocator.allocate(geometry.pages_for_tokens(len(tokens)))
        table, places = torch.tensor(pages), batch.positions
        first = table[places // geometry.page_tokens] * geometry.kv_rows_per_page
        batch.slot_mapping = first + places % geometry.page_tokens
        batch.prefill = [PrefillSpan(0, len(tokens), 0, table)]
        slot = None
        if name in self.digests:
            packed = engine.source.get(self.digests[name])
            assert packed is not None
            slot = engine.core.device_tier.load(packed)
            batch.lora = [LoraSpan(slot, 0, len(tokens))]
        logits = engine.loaded.model.forward(batch, engine.pool).float()
        if slot is not None:
            engine.core.device_tier.drop(slot)
        engine.core.allocator.release(pages)
        return logits


def compare(want: torch.Tensor, got: torch.Tensor) -> dict[str, float]:
    log_want, log_got = want.log_softmax(-1), got.log_softmax(-1)
    return {
        "same": float((want.argmax(-1) == got.argmax(-1)).float().mean()),
        "error": float(((got - want).norm(dim=-1) / want.norm(dim=-1)).mean()),
        "divergence": float((log_want.exp() * (log_want - log_got)).sum(-1).mean()),
    }


class Model:
    """A model, unquantised and in every variant."""

    def __init__(self, name: str, folder: Path, adapters: Sequence[Path], **settings: Any) -> None:
        self.name = name
        self.plain = Variant.of(folder, adapters, **settings)
        self._variants = {
            "bfloat16": Variant.of(folder, adapters, dtype="bfloat16", **settings),
            "fp8": Variant.of(folder, adapters, weights=True, **settings),
            "fp8 keys and values": Variant.of(folder, adapters, kv_cache_dtype="fp8", **settings),
            "fp8, keys and values too": Variant.of(folder, adapters, weights=True, kv_cache_dtype="fp8", **settings),
            "fp8 adapters": Variant.of(folder, adapters, adapter_dtype="fp8", **settings),
            "fp8, adapters too": Variant.of(folder, adapters, weights=True, adapter_dtype="fp8", **settings),
        }

    def measure(self, case: str, prompts: Sequence[list[int]]) -> list[dict[str, object]]:
        """Measure one case: an adapter's name, or any other string for the base."""
        logits: dict[str, list[tuple[torch.Tensor, torch.Tensor]]] = {key: [] for key in self._variants}
        for prompt in prompts:
            whole = [*prompt, *self.plain.answer(case, prompt)]
            rows = slice(len(prompt) - 1, len(whole) - 1)
            want = self.plain.logits(case, whole)[rows]
            for key, variant in self._variants.items():
                logits[key].append((want, variant.logits(case, whole)[rows]))
        lines: list[dict[str, object]] = []
        for key, pairs in logits.items():
            want, got = (torch.cat([pair[side] for pair in pairs]) for side in (0, 1))
            figures = {name: round(value, 6) for name, value in compare(want, got).items()}
            print(f"{self.name:30} {case:14} {key:26} tokens {len(want)} {figures}", flush=True)
            lines.append({"model": self.name, "case": case, "system": key, "tokens": len(want), **figures})
        return lines


def demo() -> list[dict[str, object]]:
    model = Model("demo", DEMO / "model", sorted((DEMO / "adapters").iterdir()))
    template, tokenizer = ChatTemplate.load(DEMO / "model"), model.plain.engine.tokenizer
    prompts: dict[str, list[str]] = json.loads((DEMO / "prompts.json").read_text())
    rows = []
    for name in (BASE, *model.plain.digests):
        texts = [template.render([{"role": "user", "content": text}]) for text in prompts.get(name) or prompts[BASE]]
        rows += model.measure(name, [tokenizer.encode(text, add_special_tokens=False) for text in texts])
    return rows


def families() -> list[dict[str, object]]:
    rows, rnd = [], random.Random(1)
    for name in FAMILIES:
        with tempfile.TemporaryDirectory() as place:
            folder, adapter = Path(place) / "model", Path(place) / "all modules"
            saved = save_model(name, folder, intermediate_size=160)
            save_adapter("all-linear-r16-rslora", saved, adapter)
            model = Model(name, folder, [adapter], **ENGINE_SETTINGS.get(name, {}))
            prompts = [[rnd.randrange(VOCAB) for _ in range(24)] for _ in range(4)]
            for case in ("base", adapter.name):
                rows += model.measure(case, prompts)
    return rows


def main() -> None:
    parser = parser_of(__doc__, out=True)
    arguments = parser.parse_args()
    rows = [*demo(), *families()]
    if arguments.out:
        arguments.out.write_text("".join(f"{json.dumps(line)}\n" for row in rows for line in figures_of(row)))


def figures_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a result, one per figure, as README.md describes them."""
    common = {
        "workload": "fp8 quality", "model": row["model"], "system": f"lorikeet, {row['system']}", "case": row["case"],
    }  # fmt: skip
    rest = {
        "unit": "", "floor": None, "gpu": None, "gpus": 0, "commit": commit(), "date": date.today().isoformat(),
        "settings": {"tokens": row["tokens"]},
    }  # fmt: skip
    return [{**common, "metric": name, "value": row[name], **rest} for name in ("same", "error", "divergence")]


if __name__ == "__main__":
    main()
