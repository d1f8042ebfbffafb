"""The safetensors files of a model's folder, checked before their tensors are read."""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from safetensors import SafetensorError, safe_open

from lora_engine.errors import UnsupportedModel
from lora_kernels.fp8_tensors import Fp8Matrix, Fp8Stack

from .config import read_json_object

Shape = tuple[int, ...]

_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"
_PLAIN = ("F32", "F16", "BF16", "F64")
_FP8, _BYTES = "F8_E4M3", "U8"
# Bytes of an element by dtype; the sizes of tensors of other dtypes are not checked.
_ITEM_BYTES = {
    "F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2, "F8_E4M3": 1,
    "F8_E5M2": 1, "F8_E8M0": 1, "I8": 1, "U8": 1, "BOOL": 1,
}  # fmt: skip
# Names of the scales of a module in FP8.
_SCALES = ("weight_scale_inv", "weight_scale", "activation_scale", "input_scale")
AGAIN = "Download the whole model folder again."
# Prefix of the language model's tensors in a multimodal checkpoint, and prefixes of its vision tower and of layers that
# predict several tokens.
LANGUAGE_MODEL = "model.language_model."
_OTHER_PARTS = ("model.visual.", "mtp.")
_LFS = b"version https://git-lfs"
# Suffixes of tensors beside a quantised matrix: bitsandbytes, GPTQ and AWQ, compressed-tensors, fp8 checkpoints.
_QUANTIZED = (
    ".qweight", ".qzeros", ".scales", ".weight_scale", ".weight_scale_inv", ".weight_packed", ".weight.absmax",
    ".weight.quant_map", ".SCB",
)  # fmt: skip


class Tensors(Protocol):
    """A source of weights by name."""

    def tensor(self, name: str) -> torch.Tensor: ...

    def rows(self, name: str, start: int, stop: int) -> torch.Tensor:
        """Return rows ``start`` to ``stop`` of a tensor."""

    def placed(self, name: str, tensor: torch.Tensor | Fp8Matrix | Fp8Stack) -> None:
        """Register the matrix made of one or several tensors, the first of them ``name``, to check its values later."""


class ScaleNames(NamedTuple):
    """The names of an FP8 module's scales; ``input`` names the scale of all its activations."""

    weight: str
    input: str | None


class Checkpoint:
    """The tensors of one or several safetensors files, by name. All methods raise ``UnsupportedModel``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.files: dict[str, Path] = {}
        self._others: dict[str, Path] = {}  # tensors that are not the language model's
        self._headers: dict[Path, dict[str, Any]] = {}
        self._starts: dict[Path, int] = {}
        self._names: dict[str, str] = {}  # stored name of each renamed tensor
        self._parts: dict[str, tuple[str, ...]] = {}  # names of the parts of each joined tensor
        self._slices: dict[str, tuple[str, int, int, int]] = {}  # stored name, index, and rows of each slice
        self._open: dict[Path, Any] = {}
        self._extremes: dict[str, torch.Tensor] = {}
        if (folder / _INDEX).is_file():
            self._read_index(folder / _INDEX)
        elif (folder / _SINGLE).is_file():
            self.files = dict.fromkeys(self._header(folder / _SINGLE), folder / _SINGLE)
        else:
            others = sorted(path.name for path in folder.glob("*.bin")) + sorted(p.name for p in folder.glob("*.gguf"))
            has = f" but {others[0]}" if others else ""
            raise UnsupportedModel(
                f"{folder} holds no safetensors weights{has}; save the model there with "
                "model.save_pretrained(folder, safe_serialization=True)."
            )
        self._keep_language_model()

    def _keep_language_model(self) -> None:
        """Name the tensors of a multimodal checkpoint as those of its language model alone, and drop all others."""
        self._others = {name: path for name, path in self.files.items() if name.startswith(_OTHER_PARTS)}
        self.files = {name: path for name, path in self.files.items() if name not in self._others}
        for name in [name for name in self.files if name.startswith(LANGUAGE_MODEL)]:
            self.rename(name, f"model.{name.removeprefix(LANGUAGE_MODEL)}")
            del self.files[name]

    def scales_of(self, module: str, static: bool) -> ScaleNames:
        """Return the names of an FP8 module's scales; its weights' scales are factors under either name."""
        weight, other_weight, static_input, other_input = (f"{module}.{name}" for name in _SCALES)
        return ScaleNames(self._first(weight, other_weight), self._first(static_input, other_input) if static else None)

    def drop_layers(self, first: int) -> None:
        """Drop the tensors of layers from ``first`` on, which predict several tokens."""
        prefix = "model.layers."
        for name in [name for name in self.files if name.startswith(prefix)]:
            number = name.removeprefix(prefix).partition(".")[0]
            if number.isdecimal() and int(number) >= first:
                del self.files[name]

    def keep_renamed(self, names: Mapping[str, str]) -> None:
        """Keep only tensors whose names begin with a key of ``names``, which its value replaces; "" drops them too.

        The first key counts.
        """
        files, self.files = {**self.files, **self._others}, {}
        for name, path in files.items():
            start = next((start for start in names if name.startswith(start)), "")
            if begins := names.get(start):
                renamed = begins + name.removeprefix(start)
                self.files[renamed], self._names[renamed] = path, self.stored_name(name)

    def stored_name(self, name: str) -> str:
        """Return the name that a tensor has in its file; of a slice, that of the whole tensor."""
        name = self._slices[name][0] if name in self._slices else name
        return self._names.get(name, name)

    def in_fp8(self, name: str) -> bool:
        """Return whether a tensor is present and stored in E4M3."""
        return name in self.files and self.entry(name).get("dtype") == _FP8

    def _first(self, name: str, otherwise: str) -> str:
        return name if name in self.files else otherwise

    def rename(self, name: str, as_name: str) -> None:
        """Make a tensor available under a second name."""
        self.files[as_name], self._names[as_name] = self.files[name], self._names.get(name, name)

    def rename_module(self, stored: str, module: str) -> None:
        """Make a module's weight available under a second name, and its scales under the new name only."""
        if f"{stored}.weight" in self.files and f"{module}.weight" not in self.files:
            self.rename(f"{stored}.weight", f"{module}.weight")
            for scale in [f".{name}" for name in _SCALES if f"{stored}.{name}" in self.files]:
                self.rename(stored + scale, module + scale)
                del self.files[stored + scale]

    def join(self, names: tuple[str, ...], as_name: str) -> None:
        """Make the rows of several tensors available as one tensor."""
        self.files[as_name], self._parts[as_name] = self.files[names[0]], names

    def slice(self, name: str, index: int, start: int, stop: int, as_name: str) -> None:
        """Make rows ``start`` to ``stop`` of ``tensor[index]``, of a tensor of three dimensions, available as one."""
        self.files[as_name], self._slices[as_name] = self.files[name], (name, index, start, stop)

    def check(
        self,
        wanted: Mapping[str, Shape],
        in_fp8: Collection[str] = (),
        scales: Mapping[str, Collection[Shape]] | None = None,
        packed: Mapping[str, Shape] | None = None,
    ) -> None:
        """Check that every wanted tensor is present with its shape, in FP8 or in a type that is not quantised.

        Each of ``scales`` must be present with one of its shapes, each of ``packed`` in bytes.
        """
        scales = scales or {}
        quantized = next((name for name in self.files if name.endswith(_QUANTIZED) and name not in scales), None)
        if quantized:
            raise _quantized(f"the checkpoint holds {quantized}")
        self.check_entries(wanted, in_fp8, scales, packed)

    def check_entries(
        self,
        wanted: Mapping[str, Shape],
        in_fp8: Collection[str],
        scales: Mapping[str, Collection[Shape]],
        packed: Mapping[str, Shape] | None = None,
    ) -> None:
        """Check as ``check`` does, but allow others that are quantised."""
        packed = packed or {}
        self._check_there([*wanted, *scales, *packed])
        for name, shapes in scales.items():
            self._check_scale(name, shapes)
        for name, shape in {**wanted, **packed}.items():
            entry = self.entry(name)
            dtype, stored_shape = entry.get("dtype"), tuple(entry.get("shape", ()))
            if name in packed:
                if dtype != _BYTES:
                    raise UnsupportedModel(
                        f"by config.json {name} is in MXFP4, but it is stored as {dtype}: config.json is another "
                        f"model's. {AGAIN}"
                    )
            elif name in in_fp8:
                if dtype != _FP8:
                    raise UnsupportedModel(
                        f"by config.json {name} is in FP8, but it is stored as {dtype}: config.json is another "
                        f"model's, or its list of ignored modules is incomplete. {AGAIN}"
                    )
            elif dtype not in _PLAIN:
                raise _quantized(f"{name} is stored as {dtype}")
            if stored_shape != shape:
                raise UnsupportedModel(
                    f"{name} is {list(stored_shape)}, but by config.json it must be {list(shape)}: config.json is "
                    f"another model's. {AGAIN}"
                )

    def _check_there(self, wanted: Collection[str]) -> None:
        missing = [name for name in wanted if name not in self.files]
        if missing:
            more = f" and {len(missing) - 1} more tensors" if len(missing) > 1 else ""
            raise UnsupportedModel(
                f"the checkpoint lacks {missing[0]}{more}, which config.json requires: config.json is another model's, "
                f"or files are missing. {AGAIN}"
            )

    def _check_scale(self, name: str, shapes: Collection[Shape]) -> None:
        entry = self.entry(name)
        dtype, stored_shape = entry.get("dtype"), tuple(entry.get("shape", ()))
        if dtype not in _PLAIN or stored_shape not in shapes:
            raise UnsupportedModel(
                f"{name} is {list(stored_shape)} of {dtype}, but by config.json it must be "
                f"{' or '.join(str(list(shape)) for shape in shapes)}: config.json is another model's. {AGAIN}"
            )

    def tensor(self, name: str) -> torch.Tensor:
        parts = self._parts.get(name)
        return self._stored(name) if parts is None else torch.cat([self._stored(part) for part in parts])

    def rows(self, name: str, start: int, stop: int) -> torch.Tensor:
        return self.tensor(name)[start:stop]

    def _stored(self, name: str) -> torch.Tensor:
        path = self.files[name]
        try:
            if path not in self._open:
                self._open[path] = safe_open(path, framework="pt")
            if part := self._slices.get(name):
                whole, index, start, stop = part
                rows: torch.Tensor = self._open[path].get_slice(self._names.get(whole, whole))[index, start:stop]
                return rows
            tensor: torch.Tensor = self._open[path].get_tensor(self._names.get(name, name))
        except (SafetensorError, OSError) as error:
            raise UnsupportedModel(f"{path} cannot be read ({error}). {AGAIN}") from None
        return tensor

    def placed(self, name: str, tensor: torch.Tensor | Fp8Matrix | Fp8Stack) -> None:
        if isinstance(tensor, torch.Tensor):
            # Minimum and maximum propagate NaN; on a GPU this does not wait for the device.
            self._extremes[name] = torch.stack(torch.aminmax(tensor))
            return
        self.placed(name, tensor.scale)
        parts = [tensor.data] if isinstance(tensor, Fp8Matrix) else tensor.data.unbind()  # less memory at a time
        largest = torch.stack([(part.view(torch.uint8) & 0x7F).amax() for part in parts]).amax()
        nan = torch.where(largest == 0x7F, torch.nan, 0.0)  # E4M3 has no infinity
        self._extremes[name] = self._extremes[name] + nan

    def raise_for_values(self, dtype: torch.dtype) -> None:
        """Raise if a registered matrix has a value that is NaN or infinite."""
        if not self._extremes:
            return
        finite = torch.stack([extremes.float() for extremes in self._extremes.values()]).isfinite().all(dim=1).tolist()
        bad = next((name for name, good in zip(self._extremes, finite, strict=True) if not good), None)
        if bad is None:
            return
        if dtype is torch.float16 and self.tensor(bad).float().isfinite().all():
            raise UnsupportedModel(f"values of {bad} do not fit into float16; start with --dtype bfloat16.")
        raise UnsupportedModel(f"{bad}, or a tensor merged with it, holds NaN or infinite values. {AGAIN}")

    def _read_index(self, index: Path) -> None:
        files = read_json_object(index).get("weight_map")
        if not isinstance(files, dict) or not all(isinstance(file, str) for file in files.values()):
            raise UnsupportedModel(f"{index} has no weight_map. {AGAIN}")
        names = sorted(set(files.values()))
        missing = [name for name in names if Path(name).name != name or not (self._folder / name).is_file()]
        if missing:
            raise UnsupportedModel(
                f"{len(missing)} of the {len(names)} files that {index.name} lists are missing, such as {missing[0]}. "
                f"{AGAIN}"
            )
        self.files = {name: self._folder / file for name, file in files.items()}

    def entry(self, name: str) -> dict[str, Any]:
        """Return a tensor's entry in its file's header; a joined tensor's has the shape of all its rows, a slice's has
        its bytes.
        """
        if part := self._slices.get(name):
            stacked, index, start, stop = part
            entry = self.entry(stacked)
            count, rows, columns = entry["shape"]
            size = (entry["data_offsets"][1] - entry["data_offsets"][0]) // max(1, count * rows)
            first = entry["data_offsets"][0] + (index * rows + start) * size
            offsets = [first, first + (stop - start) * size]
            return {"dtype": entry["dtype"], "shape": [stop - start, columns], "data_offsets": offsets}
        if parts := self._parts.get(name):
            entries = [self.entry(part) for part in parts]
            first = entries[0]
            rows = sum(entry["shape"][0] for entry in entries)
            whole = all(entry["dtype"] == first["dtype"] for entry in entries)
            dtype = first["dtype"] if whole else "several types"
            return {"dtype": dtype, "shape": [rows, *first["shape"][1:]]}
        header, stored = self._header(self.files[name]), self._names.get(name, name)
        if stored not in header:
            raise UnsupportedModel(f"{self.files[name].name} lacks {stored}, which the index lists for it. {AGAIN}")
        stored_entry: dict[str, Any] = header[stored]
        return stored_entry

    def data_start(self, path: Path) -> int:
        """Return the offset in bytes at which a file's tensors begin."""
        return self._starts[path]

    def _header(self, path: Path) -> dict[str, Any]:
        if path not in self._headers:
            self._headers[path], self._starts[path] = _read_header(path)
        return self._headers[path]


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """Read the entries of a safetensors file and the offset of its tensors; the file's length must match them."""
    with path.open("rb") as file:
        start = file.read(8)
        if start and _LFS.startswith(start):
            raise UnsupportedModel(f"{path} is a Git LFS pointer, not the file; run git lfs pull in {path.parent}.")
        size = path.stat().st_size
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
        if length > size - 8:
            raise UnsupportedModel(f"{path} is truncated or not a safetensors file. {AGAIN}")
        try:
            header = json.loads(file.read(length))
            entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
            end = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
            adjoin = _adjoin(entries.values())
        except (ValueError, TypeError, KeyError, AttributeError, IndexError):
            raise UnsupportedModel(f"{path} is not a safetensors file. {AGAIN}") from None
    if end != size - 8 - length:
        raise UnsupportedModel(f"{path} has {size} bytes and should have {8 + length + end}: it is truncated. {AGAIN}")
    if not adjoin:
        raise UnsupportedModel(f"{path} is damaged: shapes and places of its tensors do not fit together. {AGAIN}")
    return entries, 8 + length


def _adjoin(entries: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether the tensors of a file's header have the sizes of their shapes, and lie one behind another."""
    end = 0
    for entry in sorted(entries, key=lambda entry: tuple(entry["data_offsets"])):
        shape, (start, stop) = entry["shape"], entry["data_offsets"]
        if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in (*shape, start, stop)):
            return False
        size = prod(shape) * _ITEM_BYTES.get(entry["dtype"], 0)
        if start != end or stop < start or (size != stop - start and entry["dtype"] in _ITEM_BYTES):
            return False
        end = stop
    return True


def _quantized(what: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"{what}: the weights are quantised, which is not supported; use the float16 or bfloat16 checkpoint."
    )
