"""Rotary position embedding tables and their application."""

from __future__ import annotations

import math

import torch

from .config import RopeConfig


def inverse_frequencies(config: RopeConfig, head_dim: int) -> torch.Tensor:
    """``[head_dim / 2]`` float32, scaled as the model was trained to expect."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    plain = 1.0 / config.theta**exponents
    if config.kind == "linear":
        return plain / config.factor
    if config.kind == "llama3":
        return _llama3(plain, config)
    if config.kind == "yarn":
        return _yarn(plain, config, head_dim)
    return plain


def rotary_tables(
    config: RopeConfig, head_dim: int, positions: int, device: torch.device, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """``cos`` and ``sin``, each ``[positions, head_dim]``; the sine's first half is negated,
    so that rotation is ``x * cos + swap_halves(x) * sin``."""
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), inverse_frequencies(config, head_dim))
    cos, sin = angles.cos() * config.attention_factor, angles.sin() * config.attention_factor
    return (
        torch.cat((cos, cos), dim=-1).to(device, dtype),
        torch.cat((-sin, sin), dim=-1).to(device, dtype),
    )


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate ``x [tokens, heads, head_dim]`` by ``cos``, ``sin`` ``[tokens, 1, head_dim]``."""
    half = x.shape[-1] // 2
    return torch.addcmul(x * cos, x.roll(half, dims=-1), sin)


def _llama3(plain: torch.Tensor, config: RopeConfig) -> torch.Tensor:
    """Long wavelengths are stretched by ``factor``, short ones kept, those between blended."""
    wavelengths = 2 * math.pi / plain
    longest = config.original_max_position / config.low_freq_factor
    shortest = config.original_max_position / config.high_freq_factor
    blend = (config.original_max_position / wavelengths - config.low_freq_factor) / (
        config.high_freq_factor - config.low_freq_factor
    )
    blended = (1 - blend) * plain / config.factor + blend * plain
    stretched = torch.where(wavelengths > longest, plain / config.factor, plain)
    between = (wavelengths <= longest) & (wavelengths >= shortest)
    return torch.where(between, blended, stretched)


def _yarn(plain: torch.Tensor, config: RopeConfig, head_dim: int) -> torch.Tensor:
    """YaRN (arXiv 2309.00071): interpolate the dimensions that turn less than ``beta_slow`` times."""

    def dimension(rotations: float) -> float:
        return (head_dim * math.log(config.original_max_position / (rotations * 2 * math.pi))) / (
            2 * math.log(config.theta)
        )

    low, high = dimension(config.beta_fast), dimension(config.beta_slow)
    if config.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    ramp = ((torch.arange(head_dim // 2, dtype=torch.float32) - low) / max(high - low, 0.001)).clamp(0, 1)
    return plain / config.factor * ramp + plain * (1 - ramp)
