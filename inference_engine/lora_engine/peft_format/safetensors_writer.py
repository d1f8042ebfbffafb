"""Safetensors files are written with the layout of the safetensors library: equal tensors give equal bytes."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from .safetensors_file import ITEM_BYTES


@dataclass(frozen=True, slots=True)
class NewTensor:
    """A tensor to write. ``blocks`` returns its elements in row-major order when they are written."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    blocks: Callable[[], Iterable[npt.NDArray[Any]]]

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


def write_safetensors(path: Path, tensors: Iterable[NewTensor]) -> None:
    """Write a new file. Wider types come first, each sorted by name."""
    ordered = sorted(tensors, key=lambda tensor: (-ITEM_BYTES[tensor.dtype], tensor.name))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in ordered:
        start, end = end, end + tensor.num_bytes
        header[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with path.open("xb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in ordered:
            for block in tensor.blocks():
                file.write(block.data)
