"""The quantisation of a checkpoint's matrices: ``quantization_config`` of config.json, read strictly.

Supported are FP8 weights (E4M3) with FP8 activations in the formats of ``fp8`` checkpoints and ``compressed-tensors``:
a scale for each tensor, output channel or block of 128 × 128, and dynamic or static scales of activations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lora_engine.errors import UnsupportedModel
from lora_kernels.fp8_tensors import BLOCK

Raw = Mapping[str, Any]


class _NotSupportedError(Exception):
    """The error for a setting of ``quantization_config`` that is not supported."""


@dataclass(frozen=True, slots=True)
class Quantization:
    """The FP8 quantisation of a checkpoint's layers.

    It covers all modules but ``ignored`` ones (names, their last parts, or patterns after ``re:``).
    """

    in_blocks: bool
    static: bool  # the checkpoint has scales of activations
    ignored: tuple[str, ...] = ()

    def covers(self, module: str) -> bool:
        """Return whether the named module of a layer is quantised."""
        return not any(_names(entry, module) for entry in self.ignored)

    def scale_shapes(self, rows: int, columns: int) -> tuple[tuple[int, ...], ...]:
        """Return the possible shapes of a matrix's scale."""
        if self.in_blocks:
            return ((-(-rows // BLOCK), -(-columns // BLOCK)),)
        return ((), (1,), (rows,), (rows, 1))


def read_quantization(raw: Raw) -> Quantization | None:
    """Read the quantisation, None for plain weights. Raises ``UnsupportedModel`` if it is not supported."""
    config = raw.get("quantization_config") or raw.get("compression_config")
    if not config:
        return None
    method = config.get("quant_method") if isinstance(config, Mapping) else None
    readers = {"fp8": _fp8, "compressed-tensors": _compressed_tensors}
    if not isinstance(method, str) or method not in readers:
        raise UnsupportedModel(
            f"the weights are quantised ({method or 'quantization_config'}), which is not supported; "
            "use the float16 or bfloat16 checkpoint of this model, or one in FP8."
        )
    try:
        return readers[method](config)
    except (_NotSupportedError, TypeError, AttributeError, re.error) as error:
        raise UnsupportedModel(
            f"quantization_config ({method}): {error}; use a checkpoint in FP8 with scales by channel and activations "
            "quantised dynamically, or the float16 or bfloat16 one."
        ) from None


def is_mxfp4(raw: Raw) -> bool:
    """Return whether the checkpoint's experts are in MXFP4 (E2M1 with a scale of E8M0 for 32 of them), as GPT-OSS's.

    Such a checkpoint has no settings; what ``modules_to_not_convert`` names beside experts is never in MXFP4.
    """
    config = raw.get("quantization_config")
    return isinstance(config, Mapping) and config.get("quant_method") == "mxfp4" and not config.get("dequantize")


def _fp8(config: Raw) -> Quantization:
    """Read the format that transformers, AutoFP8 and DeepSeek write."""
    _only(
        config,
        {
            "activation_scheme": ("dynamic", "static"),
            "fmt": (None, "e4m3", "float8_e4m3fn"),
            "scale_fmt": (None, "float"),
            "weight_block_size": (None, [BLOCK, BLOCK]),
            "kv_cache_scheme": (None,),
            "dequantize": (None, False),
            "is_checkpoint_fp8_serialized": (None, True),
        },
        ("quant_method", "ignored_layers", "modules_to_not_convert"),
    )
    ignored = (*_patterns(config.get("ignored_layers")), *_patterns(config.get("modules_to_not_convert")))
    blocks = config.get("weight_block_size") is not None
    return Quantization(blocks, config.get("activation_scheme") == "static", ignored)


def _compressed_tensors(config: Raw) -> Quantization:
    _only(
        config,
        {
            "format": ("float-quantized",),
            "quantization_status": (None, "compressed", "frozen"),
            "kv_cache_scheme": (None,),
            "sparsity_config": (None, {}, {"format": "dense"}),
            "transform_config": (None, {}),
        },
        ("quant_method", "ignore", "config_groups", "global_compression_ratio", "version"),
    )
    groups = list((config.get("config_groups") or {}).values())
    if not all(isinstance(group, Mapping) for group in groups):
        raise TypeError(f"config_groups is {config['config_groups']!r}")
    if len(groups) != 1:
        raise _NotSupportedError(f"config_groups has {len(groups)} groups, but only one is supported")
    _only(
        groups[0],
        {"targets": (["Linear"],), "output_activations": (None,), "format": (None, "float-quantized")},
        ("weights", "input_activations"),
    )
    weights, activations = groups[0].get("weights"), groups[0].get("input_activations")
    if not isinstance(weights, Mapping) or not isinstance(activations, Mapping):
        raise _NotSupportedError("only quantisation of both weights and activations is supported")
    kind = {"num_bits": (8,), "type": ("float",), "symmetric": (None, True), "actorder": (None,)}
    free = ("observer", "observer_kwargs", "scale_dtype", "zp_dtype")
    _only(
        weights,
        {
            **kind,
            "strategy": ("tensor", "channel", "block"),
            "block_structure": (None, [BLOCK, BLOCK]),
            "group_size": (None,),
            "dynamic": (None, False),
        },
        free,
    )
    blocks, dynamic = weights.get("strategy") == "block", activations.get("dynamic")
    _only(
        activations,
        {
            **kind,
            "strategy": ("group",) if blocks else ("token",) if dynamic else ("tensor",),
            "block_structure": (None,),
            "group_size": (BLOCK,) if blocks else (None,),
            "dynamic": (True,) if blocks else (True, False),
        },
        free,
    )
    if blocks and not weights.get("block_structure"):
        raise _NotSupportedError("block_structure is missing")
    return Quantization(blocks, not dynamic, _patterns(config.get("ignore")))


def _only(config: Raw, allowed: Mapping[str, tuple[Any, ...]], any_value: tuple[str, ...]) -> None:
    """Raise unless every key is known and has a supported value."""
    for name in config:
        if name not in allowed and name not in any_value:
            raise _NotSupportedError(f"{name} is not a known setting")
    for name, values in allowed.items():
        if not any(_same(config.get(name), value) for value in values):
            some = " or ".join(repr(value) for value in values if value is not None) or "leaving it out"
            raise _NotSupportedError(f"{name} is {config.get(name)!r}, but only {some} is supported")


def _same(setting: Any, value: Any) -> bool:
    return bool(setting == value) and isinstance(setting, bool) == isinstance(value, bool)


def _patterns(entries: Any) -> tuple[str, ...]:
    if entries is None:
        return ()
    if not isinstance(entries, list):
        raise TypeError(f"{entries!r} is not a list of modules")
    for entry in entries:
        if not isinstance(entry, str):
            raise TypeError(f"{entry!r} does not name a module")
        if entry.startswith("re:"):
            re.compile(entry[3:])
    return tuple(entry.replace("model.language_model.", "model.") for entry in entries)


def _names(entry: str, module: str) -> bool:
    if entry.startswith("re:"):
        return re.match(entry[3:], module) is not None
    return module == entry or module.startswith(f"{entry}.") or module.endswith(f".{entry}") or f".{entry}." in module
