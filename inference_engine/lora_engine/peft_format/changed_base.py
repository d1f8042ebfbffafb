"""Adapters whose training moved a part of the base into A and B (PiSSA, OLoRA, CorDA, LoRA-GA) become plain LoRA.

They add ``B A - B0 A0`` to the original base, with the matrices A0 and B0 that the training began with. If these are in
the upload, that is LoRA of twice the rank, ``[B, -B0] [A; A0]``, as PEFT's ``save_pretrained`` writes it with
``path_initial_model_for_weight_conversion``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .adapter_config import load_raw_config, number_of, write_config
from .geometry import AdapterLimits
from .identity import CONFIG_FILE, WEIGHTS_FILE
from .problems import FormatError, printable
from .safetensors_file import SafetensorsFile, TensorEntry
from .safetensors_writer import NewTensor, replace_weights

# Names of the folder that the initial adapter is saved in.
INITIAL = re.compile(r"(.*[._-])?(init|initial)", re.ASCII | re.IGNORECASE)
# Values of ``init_lora_weights`` that subtract just ``B0 A0`` from the base. LoftQ's also includes a quantisation
# error.
TAKEN_OUT = ("pissa", "olora", "corda", "lora_ga", "loraga")
_A, _B = ".lora_A.weight", ".lora_B.weight"
_SAME = ("peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "fan_in_fan_out")
_FIX = "Upload the adapter with the folder that its initial adapter was saved in before the training, both unedited."


def subtract_initial(folder: Path, initial: Path, limits: AdapterLimits) -> str:
    """Subtract ``initial`` from ``folder``'s adapter, both in PEFT's form. Returns a note. Raises ``FormatError``."""
    raw, before = load_raw_config(folder), load_raw_config(initial)
    init = raw.get("init_lora_weights")
    if not isinstance(init, str) or not init.lower().startswith(TAKEN_OUT):
        return f"{printable(initial.name)} was ignored: the adapter needs no initial one"
    if raw.get("use_dora") or (raw.get("use_rslora") and (raw.get("rank_pattern") or raw.get("alpha_pattern"))):
        return f"{printable(initial.name)} was ignored: DoRA, or rsLoRA with patterns, is not converted"
    if differing := next((name for name in _SAME if (raw.get(name) or None) != (before.get(name) or None)), None):
        raise _different(f"their {CONFIG_FILE} differ in {differing}")
    trained, first = (SafetensorsFile.open(each / WEIGHTS_FILE, limits) for each in (folder, initial))
    tensors = [_joined(name, trained, first) for name in trained.entries]
    if extra := sorted(set(first.entries) - set(trained.entries)):
        raise _different(f"only the initial one has {printable(extra[0])}")
    config = _doubled(raw)
    replace_weights(folder, tensors, limits, "Without its initial part")
    write_config(folder, config)
    return f"what {printable(init)} took out of the base was taken out of the adapter: it is LoRA of twice the rank"


def _joined(name: str, trained: SafetensorsFile, first: SafetensorsFile) -> NewTensor:
    """Return A with A0 below it, or B with -B0 beside it."""
    entry, other = trained.entries[name], first.entries.get(name)
    axis = 0 if name.endswith(_A) else 1
    if not name.endswith((_A, _B)) or len(entry.shape) != 2:
        raise _different(f"{printable(name)} is no matrix of LoRA, and what it was before is not known")
    if other is None or (other.shape, other.dtype) != (entry.shape, entry.dtype):
        raise _different(f"the initial one has no {printable(name)} of the same shape and type")
    shape = (2 * entry.shape[0], entry.shape[1]) if axis == 0 else (entry.shape[0], 2 * entry.shape[1])

    def blocks() -> Iterable[npt.NDArray[Any]]:
        before = first.tensor(name)
        parts = [trained.tensor(name), before if axis == 0 else _negated(before, entry)]
        return [np.ascontiguousarray(np.concatenate(parts, axis=axis))] if math.prod(shape) else []

    return NewTensor(name, entry.dtype, shape, blocks)


def _negated(values: npt.NDArray[Any], entry: TensorEntry) -> npt.NDArray[Any]:
    """Negate values. NumPy has no bfloat16, so its sign bit is flipped."""
    return values ^ np.uint16(0x8000) if entry.dtype == "BF16" else -values


def _doubled(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the config of twice the rank, with the same scales."""
    alpha_factor = math.sqrt(2) if raw.get("use_rslora") else 2
    config = {**raw, "init_lora_weights": True, "r": _times(raw.get("r"), 2)}
    config["lora_alpha"] = _times(raw.get("lora_alpha"), alpha_factor)
    for name in ("rank_pattern", "alpha_pattern"):
        if isinstance(pattern := raw.get(name), dict):
            config[name] = {key: _times(value, 2) for key, value in pattern.items()}
    for name in ("corda_config", "lora_ga_config"):
        config.pop(name, None)
    return config


def _times(value: Any, factor: float) -> Any:
    """Multiply a number; leave another value for the inspection to report."""
    number = number_of(value)
    return value if number is None else value * factor


def _different(why: str) -> FormatError:
    return FormatError(
        "initial_adapter_differs", f"The initial adapter is not the one that this training began with: {why}.", _FIX
    )
