"""PTX and stacks of the gated delta kernels for a Hopper GPU, as JSON: `python -m lorikeet_testing.compiled_delta`."""

from __future__ import annotations

import json

import torch

from lora_kernels.gated_delta import (
    CHUNK,
    DeltaInputs,
    DeltaShape,
    DeltaWeights,
    delta_spans,
    delta_tokens,
    norm_and_gate,
)
from lora_kernels.short_convolution import convolve_spans, convolve_tokens
from lora_kernels.state_pages import DecodeRuns, StateRows, segment

from .compiled import Launch, compiling, stack_bytes
from .compiled_shapes import elements


def main() -> None:
    """Compile every kernel for the layers of Qwen3.5-9B, in bfloat16."""
    shape, bf16, i32 = DeltaShape(32, 16, 128, 128, 1e-6), torch.bfloat16, torch.int32
    tokens, channels = 256, shape.channels
    states = StateRows(128, 32 * 128, 16384)
    length = segment(channels)
    taps = StateRows(length, 3 * channels // length, 32768, first_page=states.end_page)
    mixed, gates = elements(tokens, channels + 4096 + 64, dtype=bf16), elements(tokens, 64, dtype=bf16)
    x = DeltaInputs(mixed[:, :channels], gates[:, :32], gates[:, 32:], mixed[:, channels : channels + 4096])
    heads = elements(32, dtype=torch.float32)
    weights = DeltaWeights(heads, elements(32, dtype=bf16), elements(128, dtype=bf16))
    pool, table = elements(64, 32768, dtype=bf16), elements(tokens, taps.end_page, dtype=i32)
    lengths, spans, chunks = elements(tokens, dtype=i32), elements(1, 3, dtype=i32), elements(4, 5, dtype=i32)
    states_pool, weight = elements(64, 16384, dtype=torch.float32), elements(channels, 4, dtype=bf16)
    out, convolved = elements(tokens, 4096, dtype=bf16), elements(tokens, channels, dtype=bf16)
    launches: dict[str, Launch] = {}
    kept = elements(32, 4, shape.kept_columns[-1], dtype=bf16)
    runs = DecodeRuns(elements(4, tokens, dtype=i32), kept)

    def take(launch: Launch) -> None:
        name = f"{launch.kernel.__module__.rpartition('.')[2]}.{launch.name}"
        launches[f"{name} over several rows" if name in launches else name] = launch

    with compiling(take):
        convolve_tokens(x.qkv, weight, None, pool, table, lengths, taps, convolved, silu=True)
        convolve_spans(x.qkv, weight, None, pool, table, spans, chunks, CHUNK, taps, convolved, silu=True)
        delta_tokens(x, weights, states_pool, table, lengths, states, shape, out)
        delta_spans(x, weights, states_pool, table, spans, chunks, elements(1, dtype=i32), states, shape, out)
        convolve_tokens(x.qkv, weight, None, pool, table, lengths, taps, convolved, silu=True, runs=runs)
        delta_tokens(x, weights, states_pool, table, lengths, states, shape, out, runs)
        norm_and_gate(out, x.z, weights.norm, spans, shape)
    kernels = {name: launch.compile() for name, launch in launches.items()}
    print(json.dumps({name: (kernel.asm["ptx"], stack_bytes(kernel)) for name, kernel in kernels.items()}))


if __name__ == "__main__":
    main()
