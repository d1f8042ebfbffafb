"""PTX of products of few tokens and in FP8 for a Hopper GPU, as JSON: `python -m lorikeet_testing.compiled_fp8`."""

from __future__ import annotations

import json

import torch

from lora_kernels.fp8 import fp8_linear, quantise_rows
from lora_kernels.fp8_tensors import FP8, Fp8Matrix
from lora_kernels.skinny_linear import skinny_linear

from .compiled import Launch, compiling
from .compiled_shapes import elements


def main() -> None:
    launches: dict[str, Launch] = {}
    for tokens, outputs, blocks in ((16, 4096, False), (64, 4096, True), (192, 8192, False)):
        scale = elements(32, 32, dtype=torch.float32) if blocks else elements(outputs, dtype=torch.float32)
        matrix = Fp8Matrix(elements(outputs, 4096, dtype=FP8), scale)

        def take(launch: Launch, key: str = f"{tokens}") -> None:
            launches[f"{launch.name} {key}"] = launch

        with compiling(take):
            x = quantise_rows(elements(tokens, 4096, dtype=torch.bfloat16), matrix)
            fp8_linear(x, matrix, torch.bfloat16, elements(tokens, outputs, dtype=torch.bfloat16))
    with compiling(lambda launch: launches.__setitem__(launch.name, launch)):
        x = elements(16, 4096, dtype=torch.bfloat16)
        skinny_linear(x, elements(4096, 4096, dtype=torch.bfloat16), x)
    print(json.dumps({name: launch.compile().asm["ptx"] for name, launch in launches.items()}))


if __name__ == "__main__":
    main()
