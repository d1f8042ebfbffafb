"""A safetensors file is accepted only after every number in its header has been checked.

Layout: 8 bytes little-endian header length, a JSON header ``name -> {dtype, shape,
data_offsets}``, then the data. The checks are those of the format's specification, plus
caps; the safetensors library is not used, because it maps the file.
"""

from __future__ import annotations

import io
import math
import os
import stat
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from .geometry import AdapterLimits
from .problems import FormatError, printable
from .recognised import instead_of_a_file
from .strict_json import StrictJsonError, load_strict

ITEM_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
NUMPY_TYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
_OTHER_DTYPES = frozenset(
    {"BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F4", "I16", "U16", "I32", "U32", "F64", "I64", "U64", "C64"}
)
_SAVE_AGAIN = "Save the adapter again with model.save_pretrained(folder) and upload the new file."


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor of the file; ``start`` and ``end`` are byte offsets from the start of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def num_elements(self) -> int:
        return math.prod(self.shape)


class SafetensorsFile:
    """A file with a checked header, and access to its tensors."""

    def __init__(self, path: Path, entries: Mapping[str, TensorEntry], metadata: Mapping[str, str]) -> None:
        self.path = path
        self.entries = entries
        self.metadata = metadata

    @classmethod
    def open(cls, path: Path, limits: AdapterLimits | None = None) -> SafetensorsFile:
        """Parse and check the header. Raises ``FormatError`` that says which rule is broken."""
        limits = limits or AdapterLimits()
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > limits.max_bytes:
                raise FormatError(
                    "file_too_large",
                    f"{path.name} has {size} bytes; the limit is {limits.max_bytes}.",
                    "Train with a lower rank or fewer target modules, or ask the operator to raise the limit.",
                )
            header, data_start = _read_header(file, path.name, size, limits)
        entries, metadata = _parse_header(header, data_start, size, limits)
        return cls(path, entries, metadata)

    def tensor(self, name: str) -> npt.NDArray[Any]:
        """Return a copy of the tensor; bfloat16 comes as uint16, which no other dtype does.

        It is read, not mapped: a failing disk under a map would kill the process. Raises ``KeyError`` for a name that
        is not in ``entries``, ``FormatError`` if the file became shorter than its header says, ``OSError``.
        """
        entry = self.entries[name]
        data = np.empty(entry.shape, NUMPY_TYPES[entry.dtype])
        with open_regular(self.path) as file:
            file.seek(entry.start)
            if data.nbytes and file.readinto(data.reshape(-1).view(np.uint8).data) != data.nbytes:
                raise _broken(f"it ends inside the tensor {printable(name)}")
        return data

    def blocks(self, name: str, max_bytes: int = 8 << 20) -> Iterator[npt.NDArray[Any]]:
        """Yield the tensor's elements in order, flat, in blocks of at most ``max_bytes``.

        Raises ``FormatError`` if the file became shorter than its header says.
        """
        entry = self.entries[name]
        with open_regular(self.path) as file:
            file.seek(entry.start)
            left = entry.end - entry.start
            while left:
                block = file.read(min(left, max_bytes))
                if not block or len(block) % ITEM_BYTES[entry.dtype]:
                    raise _broken(f"it ends inside the tensor {printable(name)}")
                left -= len(block)
                yield np.frombuffer(block, NUMPY_TYPES[entry.dtype])


def open_regular(path: Path) -> io.BufferedReader:
    """Open an ordinary file for reading, never through a link. Raises ``FormatError``."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise FormatError(
            "missing_file",
            f"{path.name} is missing.",
            "Upload both files that PEFT's save_pretrained writes: adapter_config.json and adapter_model.safetensors.",
        ) from None
    except OSError as error:
        raise FormatError("unreadable_file", f"{path.name} cannot be read: {error.strerror}.", _SAVE_AGAIN) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FormatError("unreadable_file", f"{path.name} is not an ordinary file.", _SAVE_AGAIN)
    return os.fdopen(descriptor, "rb")


def _read_header(file: BinaryIO, name: str, size: int, limits: AdapterLimits) -> tuple[bytes, int]:
    prefix = file.read(8)
    if len(prefix) < 8:
        raise _broken(f"it has {size} bytes, less than a header")
    (length,) = struct.unpack("<Q", prefix)
    # A true header length may begin with the same two bytes, but then it lies inside the file.
    if length > size - 8 and prefix[:2] in (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
        raise FormatError(
            "pickle_refused",
            f"{name} is a PyTorch pickle file, not safetensors; unpickling can run any code.",
            "Save with model.save_pretrained(folder, safe_serialization=True).",
        )
    if length > size - 8 and (problem := instead_of_a_file(name, prefix + file.read(64))):
        raise problem
    if length > size - 8:
        raise _broken(f"its header claims {length} bytes, but only {size - 8} follow: the file is truncated")
    if length > limits.max_header_bytes:
        raise _broken(f"its header has {length} bytes; the limit is {limits.max_header_bytes}")
    header = file.read(length)
    if len(header) != length:
        raise _broken("it became shorter while it was read")
    return header, 8 + length


def _parse_header(
    header: bytes, data_start: int, size: int, limits: AdapterLimits
) -> tuple[dict[str, TensorEntry], dict[str, str]]:
    if not header.startswith(b"{"):
        raise _broken("its header is not a JSON object")
    # Bounds what the JSON parser may build, before it builds it.
    most = limits.max_tensors + limits.max_expert_tensors
    if header.count(b"{") > most + 2 or header.count(b",") > 16 * (most + 2):
        raise _broken(f"its header lists more than {most} tensors")
    try:
        parsed = load_strict(header)
    except StrictJsonError as error:
        raise _broken(f"its header is not valid JSON: {error}") from None
    metadata = _metadata(parsed.pop("__metadata__", {}))
    entries = [_entry(name, value, data_start) for name, value in parsed.items()]
    _check_offsets(entries, data_start, size)
    return {entry.name: entry for entry in entries}, metadata


def _metadata(value: Any) -> dict[str, str]:
    if value is None:  # mlx writes null for none
        return {}
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise _broken("its __metadata__ is not a map of strings")
    return value


def _entry(name: str, value: Any, data_start: int) -> TensorEntry:
    label = printable(name)
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise _broken(f"the entry of {label} must hold exactly dtype, shape and data_offsets")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise _bad_dtype(label, dtype)
    if not _is_sizes(shape) or len(shape) > 8:
        raise _broken(f"the shape of {label} is not a list of at most 8 sizes")
    if not _is_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _broken(f"the data_offsets of {label} are not [start, end]")
    needed = math.prod(shape) * ITEM_BYTES[dtype]
    if needed != offsets[1] - offsets[0]:
        raise _broken(
            f"{label} is {dtype} {shape}, which takes {needed} bytes, but its offsets span {offsets[1] - offsets[0]}"
        )
    return TensorEntry(name, dtype, tuple(shape), data_start + offsets[0], data_start + offsets[1])


def _check_offsets(entries: list[TensorEntry], data_start: int, size: int) -> None:
    cursor = data_start
    for entry in sorted(entries, key=lambda e: (e.start, e.end)):
        if entry.start != cursor:
            what = "overlaps the tensor before it" if entry.start < cursor else "leaves a hole before it"
            raise _broken(f"the data of {printable(entry.name)} {what}")
        cursor = entry.end
    if cursor > size:
        raise _broken(f"its tensors need {cursor} bytes but the file has {size}: the file is truncated")
    if cursor < size:
        raise _broken(f"{size - cursor} bytes follow the last tensor")


def _is_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 48 for item in value)


def _bad_dtype(label: str, dtype: Any) -> FormatError:
    known = isinstance(dtype, str) and dtype in _OTHER_DTYPES
    return FormatError(
        "unsupported_dtype",
        f"{label} is stored as {printable(dtype)}, {'which adapters may not use' if known else 'an unknown type'}.",
        "Save the adapter in float32, float16 or bfloat16, e.g. model.to(torch.bfloat16).save_pretrained(folder).",
        label,
    )


def _broken(what: str) -> FormatError:
    return FormatError("invalid_safetensors", f"adapter_model.safetensors is damaged: {what}.", _SAVE_AGAIN)
