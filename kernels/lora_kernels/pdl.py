"""Programmatic dependent launch: a kernel starts while the one before it is still running.

A program that starts early may read what no kernel of this step writes (weights, tables, its tile), and must wait
before anything else, writes included.
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl

from . import launches


@triton.jit
def grid_dependency_wait(PDL: tl.constexpr):
    """Wait until the kernels before have ended (PTX ``griddepcontrol.wait``): what they wrote may be read from here on.

    Every program must call this, also one without work: else the launch would seem to end before those it came
    after. A loop around it must have one stage: a pipeline would fetch the first round's input before it.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()


@triton.jit
def launch_dependents(PDL: tl.constexpr):
    """Let the next kernel's programs start where resources are free (PTX ``griddepcontrol.launch_dependents``)."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()


def pdl_options(x: torch.Tensor) -> dict[str, bool]:
    """Launch arguments: programmatic dependent launch where the GPU has it (compute capability 9.0)."""
    return {"PDL": True, "launch_pdl": True} if _has_pdl(x.device) else {"PDL": False}


@cache
def _has_pdl(device: torch.device) -> bool:
    if device.type == "meta":  # kernels that are compiled ahead, for this device
        return launches.capability >= (9, 0)
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
