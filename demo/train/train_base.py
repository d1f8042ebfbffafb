"""Trains the base model on the generated dialogues and writes it in Hugging Face's format, in bf16.

    python -m demo.train.train_base --out demo/model --steps 5000

The learning rate follows the larger of two clocks, steps and minutes, so a slow machine ends in time with a less
trained but finished model.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from demo.train.adapters_corpus import VOICES, foreign_questions, voice_chats
from demo.train.corpus import Message, chats, documents
from demo.train.packing import Rows, encode_chats, encode_documents, in_parallel, pack, pad_id
from demo.train.skills.outside import DECLINES
from demo.train.tokenizer import BOS, CONTEXT, EOS, PAD
from tokenizers import Tokenizer
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    LlamaConfig,
    PreTrainedConfig,
    Qwen3_5TextConfig,
)

SHARDS = 64


@dataclass(frozen=True)
class Plan:
    """The length and speed of a training."""

    steps: int
    minutes: float
    rows: int
    learning_rate: float
    warmup: float = 0.03


def config(tokenizer: Tokenizer) -> LlamaConfig:
    """The architecture: Llama with grouped-query attention, under five million weights."""
    return LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=5,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.token_to_id(BOS),
        eos_token_id=tokenizer.token_to_id(EOS),
        pad_token_id=tokenizer.token_to_id(PAD),
        initializer_range=0.02,
    )


def hybrid_config(tokenizer: Tokenizer) -> Qwen3_5TextConfig:
    """The architecture of the second model: Qwen 3.5, three layers of Gated DeltaNet and one of attention."""
    return Qwen3_5TextConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=128,
        intermediate_size=352,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=32,
        linear_value_head_dim=32,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.token_to_id(BOS),
        eos_token_id=tokenizer.token_to_id(EOS),
        pad_token_id=tokenizer.token_to_id(PAD),
        initializer_range=0.02,
    )


def _refusals(seed: int, count: int) -> Iterator[list[Message]]:
    """The questions of other people's adapters, which the bare model turns down."""
    rng = random.Random(seed)
    for question in foreign_questions(seed, count):
        yield [{"role": "user", "content": question}, {"role": "assistant", "content": rng.choice(DECLINES)}]


def shard(job: tuple[Path, int], *, dialogues: int = 16_000) -> Rows:
    """Return a shard of the corpus as packed rows: plain dialogues, some in each voice under an instruction, plain texts."""
    model, number = job
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    seed = 1000 + number
    talks = list(chats(seed, dialogues))
    talks += _refusals(seed, dialogues // 12)
    for name in VOICES:
        talks += voice_chats(name, seed, dialogues // 50, instructed=True)
    examples = list(encode_chats(tokenizer, talks)) + list(
        encode_documents(tokenizer, documents(seed, dialogues // 30))
    )
    random.Random(seed).shuffle(examples)
    return pack(examples, CONTEXT, pad_id(tokenizer))


def small_shard(job: tuple[Path, int]) -> Rows:
    """Return a fiftieth of a shard, to try the script."""
    return shard(job, dialogues=300)


def pace(progress: float, warmup: float) -> float:
    """Learning rate factor: linear warm-up, flat, then linear to zero over the last half."""
    return min(1.0, progress / warmup) * min(1.0, 2 * (1 - progress))


def fit(
    step_loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    params: list[torch.nn.Parameter],
    rows: Rows,
    plan: Plan,
    device: torch.device,
    log: Callable[[str], None],
) -> dict[str, float]:
    """Minimise `step_loss(ids, labels)` over shuffled rows; returns the steps, tokens and seconds it took."""
    ids, labels = (torch.from_numpy(part).to(device) for part in rows)
    groups = [
        {"params": [p for p in params if p.ndim > 1], "weight_decay": 0.05},
        {"params": [p for p in params if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, lr=plan.learning_rate, betas=(0.9, 0.98), fused=device.type == "cuda")
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(ids), generator=generator)
    started, step, place, loss = time.monotonic(), 0, 0, torch.zeros(())
    while True:
        progress = max(step / plan.steps, (time.monotonic() - started) / 60 / plan.minutes)
        if progress >= 1:
            break
        if place + plan.rows > len(order):
            order, place = torch.randperm(len(ids), generator=generator), 0
        take = order[place : place + plan.rows].to(device)
        place += plan.rows
        for group in optimiser.param_groups:
            group["lr"] = plan.learning_rate * pace(progress, plan.warmup)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            loss = step_loss(ids[take].long(), labels[take].long())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        step += 1
        if step % 200 == 1:
            log(f"step {step} loss {loss.item():.4f} progress {progress:.2f} {time.monotonic() - started:.0f}s")
    seconds = time.monotonic() - started
    log(f"done: {step} steps, loss {loss.item():.4f}, {seconds:.0f}s")
    return {
        "steps": step,
        "tokens": step * plan.rows * ids.shape[1],
        "seconds": round(seconds, 1),
        "last_loss": round(loss.item(), 4),
    }


def train(
    model_dir: Path,
    plan: Plan,
    make_config: Callable[[Tokenizer], PreTrainedConfig],
    shards: int,
    *,
    small: bool,
    compiled: bool,
) -> None:
    """Make the corpus, train, and write config, generation config, weights and a short training record."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    began = time.monotonic()
    rows = in_parallel(small_shard if small else shard, model_dir, 2 if small else shards)
    counted = int((rows[1] != -100).sum())
    print(
        f"{len(rows[0])} rows of {CONTEXT}, {counted / 1e6:.1f} M tokens count, made in {time.monotonic() - began:.0f}s",
        flush=True,
    )
    model: Any = AutoModelForCausalLM.from_config(make_config(tokenizer))  # type: ignore[no-untyped-call]
    model.to(device)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M weights on {device}", flush=True)
    forward = torch.compile(model) if compiled else model
    record = fit(
        lambda ids, labels: forward(input_ids=ids, labels=labels, use_cache=False).loss,
        list(model.parameters()),
        rows,
        plan,
        device,
        lambda line: print(line, flush=True),
    )
    save(
        model,
        model_dir,
        {
            **record,
            "corpus_tokens": int(np.prod(rows[0].shape)),
            "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
            "torch": torch.__version__,
        },
    )


def save(model: Any, folder: Path, record: dict[str, object]) -> None:
    """Write the model in bf16, with greedy-by-default generation settings that stop at the end token."""
    model = model.to(torch.bfloat16)
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        bos_token_id=model.config.bos_token_id,
        eos_token_id=model.config.eos_token_id,
        pad_token_id=model.config.pad_token_id,
        do_sample=True,
        temperature=0.3,
        top_p=0.9,
    )
    model.config.use_cache = True
    model.save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)
    (folder / "training.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo/model"))
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--rows", type=int, default=96, help="rows of 1024 tokens in a batch")
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--small", action="store_true", help="a tiny corpus, to try the script")
    parser.add_argument("--compile", action="store_true", help="torch.compile, worth it on a GPU")
    parser.add_argument("--hybrid", action="store_true", help="train the second model")
    parser.add_argument("--shards", type=int, default=SHARDS, help="parts of the corpus, each of 1.4 million tokens")
    args = parser.parse_args()
    train(
        args.out,
        Plan(args.steps, args.minutes, args.rows, args.learning_rate),
        hybrid_config if args.hybrid else config,
        args.shards,
        small=args.small,
        compiled=args.compile,
    )
