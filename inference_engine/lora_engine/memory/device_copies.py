"""Copies from the host that do not wait for the device."""

from __future__ import annotations

import torch


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """From the host, pinned: from pageable memory the copy would wait for the step that is running."""
    return pinned(tensor, device).to(device, non_blocking=True)


def pinned(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The tensor in memory from which ``device`` can copy by itself."""
    return tensor.pin_memory() if device.type == "cuda" else tensor
