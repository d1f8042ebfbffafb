"""Copies from the host to the device that do not block the host."""

from __future__ import annotations

import torch


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy from the host through pinned memory: a copy from pageable memory would wait for the running step."""
    return pinned(tensor, device).to(device, non_blocking=True)


def pinned(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return the tensor in page-locked memory if ``device`` is a GPU."""
    return tensor.pin_memory() if device.type == "cuda" else tensor
