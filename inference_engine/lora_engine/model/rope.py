"""Tables of rotary position embeddings, and their application."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from .rope_config import RopeConfig


@dataclass(frozen=True, slots=True, eq=False)
class RotaryTable:
    """A rotary table: ``cos`` and ``sin``, each ``[positions, head_dim]``, by dimension of a head.

    The sine of a pair's first dimension is negated: rotation is ``x * cos + partner(x) * sin``. Dimensions that do not
    rotate have 1 and 0. ``query_scale [positions]`` multiplies queries, for models that scale them by position.
    """

    cos: torch.Tensor
    sin: torch.Tensor
    query_scale: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class RotaryPairs:
    """The pairing of a head's first ``rotary_dim`` dimensions: i and i + half, or 2i and 2i + 1 if ``interleaved``."""

    head_dim: int
    rotary_dim: int
    interleaved: bool = False


def inverse_frequencies(config: RopeConfig, positions: int) -> torch.Tensor:
    """Return the frequencies ``[rotary_dim / 2]`` float32, scaled as the model was trained for so many positions."""
    exponents = torch.arange(0, config.rotary_dim, 2, dtype=torch.float32) / config.rotary_dim
    unscaled = 1.0 / config.theta**exponents
    if config.kind == "linear":
        return unscaled / config.factor
    if config.kind == "llama3":
        return _llama3(unscaled, config)
    if config.kind == "yarn":
        return _yarn(unscaled, config)
    if config.kind == "longrope":
        # One set for all requests: keys in the cache, and shared prefixes, must not depend on a request's length.
        factors = config.long_factor if positions > config.original_max_position else config.short_factor
        return unscaled / torch.tensor(factors)
    return unscaled


def rotary_table(
    config: RopeConfig | None, pairs: RotaryPairs, positions: int, device: torch.device, dtype: torch.dtype
) -> RotaryTable:
    """Compute the table of ``positions`` positions; without a configuration, the table of the identity."""
    if config is None:
        one = torch.ones(1, pairs.head_dim, device=device, dtype=dtype)
        return RotaryTable(one.expand(positions, -1), torch.zeros_like(one).expand(positions, -1))
    places = torch.arange(positions, dtype=torch.float32)
    angles = torch.outer(places, inverse_frequencies(config, positions))
    cos, sin = angles.cos() * config.attention_factor, angles.sin() * config.attention_factor
    if pairs.interleaved:
        cos, sin = torch.stack((cos, cos), -1).flatten(-2), torch.stack((-sin, sin), -1).flatten(-2)
    else:
        cos, sin = torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)
    still = pairs.head_dim - pairs.rotary_dim
    cos = torch.nn.functional.pad(cos, (0, still), value=1.0)
    sin = torch.nn.functional.pad(sin, (0, still))
    growth = None
    if config.query_growth:
        growth = 1 + config.query_growth * torch.log(1 + torch.floor(places / config.original_max_position))
        growth = growth.to(device, dtype)
    return RotaryTable(cos.to(device, dtype), sin.to(device, dtype), growth)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, pairs: RotaryPairs) -> torch.Tensor:
    """Rotate ``x [tokens, heads, head_dim]`` by ``cos``, ``sin`` ``[tokens, 1, head_dim]``."""
    return torch.addcmul(x * cos, _partner(x, pairs), sin)


def _partner(x: torch.Tensor, pairs: RotaryPairs) -> torch.Tensor:
    """Swap the dimensions of each pair; dimensions without a pair stay."""
    if pairs.interleaved:
        return x.reshape(*x.shape[:-1], -1, 2).flip(-1).reshape(x.shape)
    if pairs.rotary_dim == pairs.head_dim:
        return x.roll(pairs.head_dim // 2, dims=-1)
    turning, still = x.split((pairs.rotary_dim, pairs.head_dim - pairs.rotary_dim), dim=-1)
    return torch.cat((turning.roll(pairs.rotary_dim // 2, dims=-1), still), dim=-1)


def _llama3(unscaled: torch.Tensor, config: RopeConfig) -> torch.Tensor:
    """Apply Llama 3's scaling: stretch long wavelengths by ``factor``, keep short ones, interpolate between them."""
    wavelengths = 2 * math.pi / unscaled
    longest = config.original_max_position / config.low_freq_factor
    shortest = config.original_max_position / config.high_freq_factor
    blend = (config.original_max_position / wavelengths - config.low_freq_factor) / (
        config.high_freq_factor - config.low_freq_factor
    )
    blended = (1 - blend) * unscaled / config.factor + blend * unscaled
    stretched = torch.where(wavelengths > longest, unscaled / config.factor, unscaled)
    between = (wavelengths <= longest) & (wavelengths >= shortest)
    return torch.where(between, blended, stretched)


def _yarn(unscaled: torch.Tensor, config: RopeConfig) -> torch.Tensor:
    """Apply YaRN's scaling (arXiv 2309.00071): interpolate dimensions that rotate less than ``beta_slow`` times."""
    dim = config.rotary_dim

    def dimension(rotations: float) -> float:
        return (dim * math.log(config.original_max_position / (rotations * 2 * math.pi))) / (2 * math.log(config.theta))

    low, high = dimension(config.beta_fast), dimension(config.beta_slow)
    if config.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = ((torch.arange(dim // 2, dtype=torch.float32) - low) / (high - low or 0.001)).clamp(0, 1)
    return unscaled / config.factor * ramp + unscaled * (1 - ramp)
