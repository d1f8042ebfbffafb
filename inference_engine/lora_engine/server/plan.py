"""``python -m lora_engine --plan``: what a model needs of a card, and what fits, without a GPU and without weights."""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections.abc import Sequence
from dataclasses import replace

import torch

from lora_engine.errors import UnsupportedModel
from lora_engine.model.planning import Plan, plan_for

from . import arguments

FLAG = "--plan"
_UNITS = {"B": 1, "MB": 10**6, "GB": 10**9, "MIB": 1 << 20, "GIB": 1 << 30}
# Numbers of adapters in the pool for which the plan says how many sequences fit beside them.
_ADAPTERS = (0, 16, 64, 256, 1000)


def main(argv: Sequence[str]) -> int:
    """Print the sum; return 0, or 2 if the model is not served or not even one sequence fits."""
    parser = parser_of_plan()
    options, others = parser.parse_known_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    config = replace(arguments.parse(others), device="cuda")
    card = options.gpu_memory or _installed()
    if not card:
        parser.error("--gpu-memory is missing, and there is no GPU to ask")
    if options.adapter_rank < 1 or options.sequence_tokens < 1:
        parser.error("--adapter-rank and --sequence-tokens must be above 0")
    try:
        made = plan_for(config, card)
        named = [name.strip() for name in options.adapter_targets.split(",") if name.strip()]
        print(describe(made, options.adapter_rank, named or attention_targets(made), options.sequence_tokens))
        made.memory.require(made.max_context)
    except (UnsupportedModel, ValueError, OSError) as error:
        sys.stdout.flush()
        print(f"lora_engine: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2
    return 0


def parser_of_plan() -> argparse.ArgumentParser:
    """Return the parser of the options beside the engine's."""
    parser = argparse.ArgumentParser(
        prog=f"lora_engine {FLAG}",
        allow_abbrev=False,
        description="Print what a model needs of a GPU and how much fits, from its config.json. All options of the "
        "engine are taken, such as --tensor-parallel, --quantization, --kv-cache-dtype, --adapter-dtype and "
        "--max-context.",
    )
    parser.add_argument(
        "--gpu-memory", type=size, help="memory of each GPU, such as 80GB, 79.1GiB or 81559MiB; default: GPU 0's"
    )
    parser.add_argument("--adapter-rank", type=int, default=16)
    parser.add_argument("--adapter-targets", default="", help="with commas; default: the projections of attention")
    parser.add_argument("--sequence-tokens", type=int, default=2048, help="tokens of a sequence, prompt and output")
    return parser


def size(text: str) -> int:
    """Return the number of bytes that a size such as ``80GB`` or ``79.1 GiB`` names."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) *([KMG]?I?B)", text.strip().upper())
    if match is None or match[2] not in _UNITS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no size; write a number with B, MB, GB, MiB or GiB, such as 80GB"
        )
    return int(float(match[1]) * _UNITS[match[2]])


def attention_targets(made: Plan) -> list[str]:
    """Return the projections of attention, and of the gated delta rule."""
    mlp = ("gate_proj", "up_proj", "gate_up_proj", "down_proj", "gate", "shared_expert_gate")
    return [target for target in made.shape.targets if target not in mlp]


def describe(made: Plan, rank: int, targets: Sequence[str], tokens: int) -> str:
    """Return the sum, and what fits into the pool."""
    memory, geometry = made.memory, made.memory.geometry
    pages = made.adapter_pages(rank, targets)
    cards = f"each of {made.ranks} cards" if made.ranks > 1 else "a card"
    tokens = min(tokens, made.max_context)
    whole = min(memory.longest, made.max_context)
    of_state = (
        f", and {_mib(geometry.state_pages * memory.page_bytes)} of state a sequence" if geometry.state_pages else ""
    )
    lines = [
        f"On {cards} of {memory.card / 2**30:.2f} GiB, {str(memory.dtype).removeprefix('torch.')}:",
        memory.table(),
    ]
    if not memory.longest:
        return "\n".join(lines)
    of_longest = _mib(geometry.pages_for_sequence(made.max_context) * memory.page_bytes)
    lines += [
        "",
        f"The pool has {memory.pages:,} pages of {geometry.page_tokens} tokens, {memory.page_bytes / 1024:.0f} KiB "
        "each.",
        f"A token takes {memory.token_bytes / 1024:.1f} KiB{of_state}. The longest sequence that fits has {whole:,} "
        f"tokens (--max-context {made.max_context:,}: {of_longest}).",
        f"An adapter of rank {rank} on {', '.join(targets)} takes {pages:,} pages, {_mib(pages * memory.page_bytes)}.",
        "",
        f"Sequences of {tokens:,} tokens that fit at once; --max-running {made.config.max_running} is the most that "
        "run:",
    ]
    for count in _ADAPTERS:
        lines.append(f"  {memory.sequences(tokens, count * pages):>8,}  beside {count:,} adapters in use")
    return "\n".join(lines)


def _mib(number: float) -> str:
    return f"{number / 2**20:,.1f} MiB"


def _installed() -> int:
    if not torch.cuda.is_available():
        return 0
    return int(torch.cuda.get_device_properties(0).total_memory)
