"""AdaLoRA's and block-diagonal LoRA's matrices multiply out to plain LoRA's.

AdaLoRA adds ``B (E A)`` with a number for each row of A (arXiv 2303.10512 §3.1), over the rank that its training began
with: that is LoRA with the rows of A multiplied. Block-diagonal LoRA (BD-LoRA) stores only the blocks of A or B: the
same matrix with its zeros is LoRA's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .adapter_config import is_kind, load_raw_config, number_of, write_config
from .geometry import AdapterLimits
from .identity import WEIGHTS_FILE
from .problems import FormatError, printable
from .safetensors_file import SafetensorsFile, TensorEntry
from .safetensors_writer import NewTensor, replace_weights
from .tensor_names import PEFT_PREFIX

_A, _B, _E = ".lora_A", ".lora_B", ".lora_E"
_WEIGHT = ".weight"
_SAVE_AGAIN = "Save the adapter again with PEFT's save_pretrained, and upload both files unedited."
# Fields of AdaLoRA's schedule, which is over, and of its final ranks, which the tensors show.
_OF_ADALORA = frozenset(
    {"target_r", "init_r", "tinit", "tfinal", "deltaT", "beta1", "beta2", "orth_reg_weight", "total_step"}
)
# PEFT divides by the rank plus this.
_DIVISOR = 1e-5


def multiply_out(folder: Path, limits: AdapterLimits) -> str | None:
    """Rewrite ``folder``'s two files as plain LoRA if they are AdaLoRA or BD-LoRA. Returns a note, or None.

    Raises ``FormatError``.
    """
    try:
        raw = load_raw_config(folder)
    except FormatError:
        return None  # the inspection reports what is wrong with it, together with other faults
    if is_kind(raw, "ADALORA"):
        file = SafetensorsFile.open(folder / WEIGHTS_FILE, limits)
        config, tensors = _of_adalora(raw, file)
        note = "AdaLoRA was multiplied out to LoRA: rows of lora_A by their lora_E, with the scale of its initial rank"
    elif isinstance(raw.get("use_bdlora"), dict) and is_kind(raw, "LORA"):
        file = SafetensorsFile.open(folder / WEIGHTS_FILE, limits)
        config, tensors = {**raw, "use_bdlora": None}, list(_filled(raw["use_bdlora"], file))
        note = "the blocks of block-diagonal LoRA were filled with their zeros: it is plain LoRA"
    else:
        return None
    replace_weights(folder, tensors, limits, "As plain LoRA")
    write_config(folder, config)
    return note


def _of_adalora(raw: dict[str, Any], file: SafetensorsFile) -> tuple[dict[str, Any], list[NewTensor]]:
    first, alpha = number_of(raw.get("init_r")), number_of(raw.get("lora_alpha"))
    if first is None or first < 1 or first != int(first) or alpha is None:
        raise _bad("invalid_config", "AdaLoRA's init_r is a whole number from 1 on, and its lora_alpha a number.")
    tensors, ranks = [], dict[str, int]()
    for name, entry in file.entries.items():
        module, side = _place(name)
        if side == _E:
            continue
        if not side:
            tensors.append(NewTensor(name, entry.dtype, entry.shape, lambda name=name: file.blocks(name)))  # type: ignore[misc]
            continue
        ranks[module] = rank = _rank(module, file)
        if rank == 0:  # the schedule pruned the whole module
            continue
        values = _scaled if side == _A else _whole
        tensors.append(NewTensor(name + _WEIGHT, entry.dtype, entry.shape, _later(values, file, module, name)))
    kept = {_in_patterns(module): rank for module, rank in ranks.items() if rank}
    config: dict[str, Any] = {name: value for name, value in raw.items() if name not in _OF_ADALORA}
    config |= {"peft_type": "LORA", "use_rslora": False, "init_lora_weights": True, "r": int(first)}
    config["lora_alpha"] = (alpha if alpha > 0 else first) * first / (first + _DIVISOR)
    config["rank_pattern"] = {key: rank for key, rank in kept.items() if rank != first}
    config["alpha_pattern"] = {
        key: (alpha if alpha > 0 else rank) * rank / (first + _DIVISOR) for key, rank in kept.items() if rank != first
    }
    if len(kept) < len(ranks):
        config |= {"target_modules": sorted(kept), "layers_to_transform": None, "layers_pattern": None}
    return config, tensors


def _place(name: str) -> tuple[str, str]:
    """Split a tensor's name into its module and which of its three matrices it is; "" for a tensor of another kind."""
    module, dot, side = name.rpartition(".lora_")
    return (module, dot + side) if dot + side in (_A, _B, _E) else (name, "")


def _rank(module: str, file: SafetensorsFile) -> int:
    """Return the rank that a module's three matrices have in common."""
    sides = {side: file.entries.get(module + side) for side in (_A, _B, _E)}
    shapes = {side: entry.shape for side, entry in sides.items() if entry is not None and len(entry.shape) == 2}
    if len(shapes) == len(sides):
        rank = shapes[_A][0]
        if shapes[_B][1] == rank and shapes[_E] == (rank, 1):
            return rank
    listed = ", ".join(f"{side[1:]} {list(entry.shape) if entry else 'missing'}" for side, entry in sides.items())
    raise _bad("shape_mismatch", f"The matrices of {printable(module)} do not belong together: {listed}.")


def _in_patterns(module: str) -> str:
    """Return the module's name as patterns of a config use it, whatever the name of the base's ``model``."""
    inner = module.removeprefix(PEFT_PREFIX)
    return inner[inner.index("layers.") :] if "layers." in inner else inner


def _later(make: Any, file: SafetensorsFile, module: str, name: str) -> Any:
    return lambda: [np.ascontiguousarray(values) for values in (make(file, module, name),) if values.size]


def _whole(file: SafetensorsFile, _module: str, name: str) -> npt.NDArray[Any]:
    return file.tensor(name)


def _scaled(file: SafetensorsFile, module: str, name: str) -> npt.NDArray[Any]:
    """Return ``E A`` in A's type, rounded as PEFT's product of the two in that type."""
    factors = _float32(file.tensor(module + _E), file.entries[module + _E])
    entry = file.entries[name]
    values = file.tensor(name)
    with np.errstate(over="ignore", invalid="ignore"):  # the inspection reports values that are not finite
        product = _float32(values, entry) * factors
        return _bfloat16(product) if entry.dtype == "BF16" else product.astype(values.dtype)


def _float32(values: npt.NDArray[Any], entry: TensorEntry) -> npt.NDArray[np.float32]:
    if entry.dtype == "BF16":
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)


def _bfloat16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Round to the nearest bfloat16, ties to even, and return its bits."""
    bits = values.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)


def _filled(settings: dict[str, Any], file: SafetensorsFile) -> Iterator[NewTensor]:
    """Yield every tensor, with block-diagonal matrices in full."""
    count = settings.get("nblocks", 1)
    if type(count) is not int or count < 1:
        raise _bad("invalid_config", "adapter_config.json: nblocks of use_bdlora is a whole number from 1 on.")
    sides = {side: _names(settings, f"target_modules_bd_{side[-1].lower()}") for side in (_A, _B)}
    for name, entry in file.entries.items():
        module, dot, side = name.removesuffix(_WEIGHT).rpartition(".lora_")
        patterns = sides.get(dot + side, ()) if name.endswith(_WEIGHT) else ()
        if not any(pattern in module.removeprefix(PEFT_PREFIX) for pattern in patterns):
            yield NewTensor(name, entry.dtype, entry.shape, lambda name=name: file.blocks(name))  # type: ignore[misc]
            continue
        if len(entry.shape) != 2 or entry.shape[0] % count:
            raise _bad("shape_mismatch", f"{printable(name)} is {list(entry.shape)}, not {count} blocks.")
        shape = (entry.shape[0], entry.shape[1] * count)
        yield NewTensor(name, entry.dtype, shape, lambda name=name: _on_diagonal(file.tensor(name), count))  # type: ignore[misc]


def _on_diagonal(blocks: npt.NDArray[Any], count: int) -> Iterable[npt.NDArray[Any]]:
    """Yield the matrix's rows a block at a time from ``blocks`` stacked as ``[count * rows, columns]``."""
    columns = blocks.shape[1]
    if not math.prod(blocks.shape):
        return
    for number, block in enumerate(np.split(blocks, count)):
        rows = np.zeros((len(block), columns * count), blocks.dtype)
        rows[:, number * columns : (number + 1) * columns] = block
        yield rows


def _names(settings: dict[str, Any], field: str) -> tuple[str, ...]:
    value = settings.get(field) or []
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise _bad("invalid_config", f"adapter_config.json: {field} of use_bdlora is a list of names.")
    return tuple(value)


def _bad(code: str, message: str) -> FormatError:
    return FormatError(code, message, _SAVE_AGAIN)
