"""Safetensors files are written with the layout of the safetensors library: equal tensors give equal bytes."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from .geometry import AdapterLimits
from .identity import WEIGHTS_FILE
from .problems import FormatError
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


def replace_weights(folder: Path, tensors: Sequence[NewTensor], limits: AdapterLimits, form: str) -> None:
    """Replace an adapter's weights by converted ones. `form` begins the error's sentence, such as "As plain LoRA".

    Raises FormatError if the converted adapter is too large.
    """
    if sum(tensor.num_bytes for tensor in tensors) + limits.max_header_bytes > limits.max_bytes:
        raise FormatError(
            "file_too_large", f"{form} the adapter takes more than {limits.max_bytes} bytes.",
            "Train with a lower rank or fewer target modules, or ask the operator to raise the limit.",
        )  # fmt: skip
    temporary = folder / f"{WEIGHTS_FILE}.converted"
    write_safetensors(temporary, tensors)
    temporary.replace(folder / WEIGHTS_FILE)
