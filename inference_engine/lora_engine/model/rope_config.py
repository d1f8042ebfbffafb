"""The configuration of rotary embeddings in ``config.json``, in each form that ``transformers`` reads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lora_engine.errors import UnsupportedModel

from .families import Family, Settings

_WITH_ORIGINAL_LENGTH = ("llama3", "yarn", "longrope")
_LAYER_TYPES = ("full_attention", "sliding_attention")
# Largest number that a setting may have: the engine computes with it in float32.
LARGEST_NUMBER = 3e38
_AGAIN = "copy config.json from the model's source again."


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """The parameters of rotary embeddings; ``kind`` is "default", "linear", "dynamic", "llama3", "yarn" or "longrope".

    The first ``rotary_dim`` dimensions of a head rotate. "dynamic" equals "default" up to the length that the model was
    trained for, which is the longest that is served.
    """

    rotary_dim: int
    theta: float = 10_000.0
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position: int = 0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float = 1.0  # multiplies the rotary tables
    truncate: bool = True
    short_factor: tuple[float, ...] = ()
    long_factor: tuple[float, ...] = ()
    query_growth: float = 0.0  # multiply queries by 1 + this * log(1 + position // original_max_position)


def read_ropes(
    settings: Settings, family: Family, windows: tuple[int, ...], head_dim: int, max_position: int
) -> tuple[tuple[RopeConfig | None, ...], int]:
    """Return each layer's parameters (None: it does not rotate) and the maximum context.

    Raises ``UnsupportedModel``.
    """
    full, sliding = _parameters(settings, family)
    truncate = bool(full.get("truncate", True)) if not family.rope.by_layer_type else True
    rotates = family.rotates or (lambda settings, layer, slides: True)
    try:  # by layer: None if it does not rotate, else whether it slides
        kinds = [window > 0 if rotates(settings, layer, window > 0) else None for layer, window in enumerate(windows)]
    except (AttributeError, KeyError, TypeError, IndexError, ZeroDivisionError) as error:
        raise UnsupportedModel(f"config.json: which layers rotate cannot be read ({error!r}); {_AGAIN}") from None
    read = {
        slides: _rope(parameters, settings, family, head_dim, max_position, truncate)
        for slides, parameters in ((False, full), (True, sliding))
        if slides in kinds
    }
    ropes = tuple(None if slides is None else read[slides] for slides in kinds)
    # transformers keeps the original length of a YaRN model; the served length is that times the factor.
    stretched = [round(r.original_max_position * r.factor) for r in read.values() if r.kind == "yarn"]
    return ropes, max([max_position, *stretched])


def _parameters(settings: Settings, family: Family) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the rope parameters of full layers and of sliding layers."""
    rope, scaling = family.rope, settings.get("rope_scaling") or None
    parameters = settings.get("rope_parameters")
    if parameters is None and rope.parameters is not None:
        parameters = rope.parameters(settings)
    for value in (scaling, parameters):
        if value is not None and not isinstance(value, Mapping):
            raise UnsupportedModel(f"config.json: rope parameters are {value!r}, not an object; {_AGAIN}")
    theta = settings.get("rope_theta", rope.theta)
    if rope.by_layer_type:
        # In transformers the older name of the kind, "type", does not override this default.
        full, sliding = ((parameters or {}).get(kind) or {"rope_type": "default"} for kind in _LAYER_TYPES)
        full = {**full, **(scaling or {})}
        setting, local = rope.local_theta or ("", theta)
        share = {"partial_rotary_factor": settings.get("partial_rotary_factor", rope.partial_default)}
        return {"rope_theta": theta, **share, **full}, {"rope_theta": settings.get(setting, local), **share, **sliding}
    # In transformers rope_scaling, if present, replaces all of rope_parameters.
    whole = dict(scaling or parameters or {})
    nested = [whole.get(name) for name in _LAYER_TYPES]
    if any(isinstance(value, Mapping) for value in nested):
        raise UnsupportedModel(
            f"config.json: rope parameters of {family.model_type} cannot differ by layer type; {_AGAIN}"
        )
    whole.setdefault("rope_theta", theta)
    whole.setdefault("partial_rotary_factor", settings.get("partial_rotary_factor", rope.partial_default))
    return whole, whole


def _rope(
    parameters: Mapping[str, Any],
    settings: Settings,
    family: Family,
    head_dim: int,
    max_position: int,
    truncate: bool,
) -> RopeConfig:
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    kind = family.rope.aliases.get(kind, kind) if isinstance(kind, str) else kind
    if kind not in family.rope.kinds:
        raise UnsupportedModel(
            f"rope type {kind!r} is not supported for {family.model_type}; supported are "
            f"{', '.join(family.rope.kinds)}."
        )
    read = _Reader(parameters, kind)
    share = read.number("partial_rotary_factor", 1.0)
    if share != 1.0 and not family.rope.partial:
        raise UnsupportedModel(
            f"config.json: partial_rotary_factor is {share}, but heads of {family.model_type} rotate whole; remove it."
        )
    rotary_dim = int(head_dim * share)
    if rotary_dim % 2 or not 0 < rotary_dim <= head_dim:
        raise UnsupportedModel(f"config.json: {rotary_dim} of a head's {head_dim} dimensions cannot rotate; {_AGAIN}")
    original = _original_length(parameters, settings, family, kind, max_position)
    growth = parameters.get("llama_4_scaling_beta") if family.query_growth else None
    if growth and not original:
        original = read.whole("original_max_position_embeddings")
    rope = RopeConfig(
        rotary_dim,
        read.number("rope_theta"),
        str(kind),
        original_max_position=original,
        query_growth=read.number("llama_4_scaling_beta") if growth else 0.0,
    )
    if kind in ("default", "dynamic"):
        return rope
    if kind == "linear":
        return replace(rope, factor=read.number("factor"))
    if kind == "llama3":
        low, high = read.number("low_freq_factor"), read.number("high_freq_factor")
        if low >= high:
            raise UnsupportedModel(f"config.json: low_freq_factor {low} is not below high_freq_factor {high}; {_AGAIN}")
        return replace(rope, factor=read.number("factor"), low_freq_factor=low, high_freq_factor=high)
    if kind == "longrope":
        return _longrope(read, rope, max_position / original)
    if rope.theta == 1.0:
        raise UnsupportedModel(f"config.json: rope_theta is 1, by whose logarithm type 'yarn' divides; {_AGAIN}")
    factor = read.number("factor", max_position / original)
    return replace(
        rope,
        factor=factor,
        beta_fast=read.number("beta_fast", 0.0) or 32.0,
        beta_slow=read.number("beta_slow", 0.0) or 1.0,
        attention_factor=read.number("attention_factor", _yarn_attention(read, factor)),
        truncate=truncate,
    )


def _original_length(
    parameters: Mapping[str, Any], settings: Settings, family: Family, kind: str, max_position: int
) -> int:
    """Return the context that the model was trained with, 0 for kinds that do not use it.

    A value beside the rope parameters takes precedence over one inside them.
    """
    if kind not in _WITH_ORIGINAL_LENGTH:
        return 0
    value = parameters.get("original_max_position_embeddings", max_position)
    if not family.rope.by_layer_type:
        value = settings.get("original_max_position_embeddings", value)
    if type(value) is not int or value < 2:
        raise UnsupportedModel(f"config.json: original_max_position_embeddings is {value!r}; {_AGAIN}")
    return value


def _yarn_attention(read: _Reader, factor: float) -> float:
    """Return YaRN's temperature on the rotary tables (arXiv 2309.00071, section 3.4)."""

    def mscale(weight: float = 1.0) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    weight, of_all = read.number("mscale", 0.0), read.number("mscale_all_dim", 0.0)
    return mscale(weight) / mscale(of_all) if weight and of_all else mscale()


def _longrope(read: _Reader, rope: RopeConfig, stretched: float) -> RopeConfig:
    """Add LongRoPE's factors (arXiv 2402.13753), one for each pair, in a set for short and a set for long contexts."""
    factor = read.number("factor", stretched)
    attention = math.sqrt(1 + math.log(factor) / math.log(rope.original_max_position)) if factor > 1 else 1.0
    half = rope.rotary_dim // 2
    return replace(
        rope,
        factor=factor,
        attention_factor=read.number("attention_factor", attention),
        short_factor=read.numbers("short_factor", half),
        long_factor=read.numbers("long_factor", half),
    )


class _Reader:
    """A reader of rope parameters that checks their values."""

    def __init__(self, parameters: Mapping[str, Any], kind: str) -> None:
        self._parameters, self._kind = parameters, kind

    def number(self, name: str, default: float | None = None) -> float:
        """Return a parameter, ``default`` if it is missing or null; only one whose default is 0 may be 0."""
        value = self._parameters.get(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LARGEST_NUMBER:
            raise UnsupportedModel(
                f"config.json: rope parameter {name} of type {self._kind!r} must be a number, but is {value!r}; "
                f"{_AGAIN}"
            )
        if not value and default != 0.0:
            raise UnsupportedModel(f"config.json: rope parameter {name} must not be 0; {_AGAIN}")
        return float(value)

    def whole(self, name: str) -> int:
        return int(self.number(name))

    def numbers(self, name: str, count: int) -> tuple[float, ...]:
        value = self._parameters.get(name)
        plain = isinstance(value, list) and all(isinstance(v, int | float) and 0 < v <= LARGEST_NUMBER for v in value)
        if not isinstance(value, list) or not plain or len(value) != count:
            raise UnsupportedModel(f"config.json: rope parameter {name} must be a list of {count} numbers; {_AGAIN}")
        return tuple(float(v) for v in value)
