"""Programmatic dependent launch: a kernel starts while the one before it is still running.

A program that starts early may read what no kernel of this step writes (weights, tables, its tile), and must wait
before anything else, writes included.

A kernel all of whose programs wait before they launch dependents, or end, starts the next one when everything before
itself is complete. The next one may then read all of that at once, and waits for that one kernel's output alone:
experts are multiplied while the adapters' first products are computed (``expert_lora.py``). They read the step's
routing past the L1 cache.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from . import launches


@triton.jit
def grid_dependency_wait(PDL: tl.constexpr):
    """Wait until the preceding kernels have ended (PTX ``griddepcontrol.wait``); their output may be read afterwards.

    Every program must call this, also one without work: otherwise the launch could end before the kernels that it
    depends on. A loop around the call must have one stage: a pipeline would prefetch the first input before the wait.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()


@triton.jit
def launch_dependents(PDL: tl.constexpr):
    """Allow the next kernel's programs to start on free resources (PTX ``griddepcontrol.launch_dependents``)."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()


def pdl_options(x: torch.Tensor) -> dict[str, bool]:
    """Return launch arguments that enable programmatic dependent launch from compute capability 9.0 on."""
    return {"PDL": True, "launch_pdl": True} if has_sm90(x.device) else {"PDL": False}


def has_sm90(device: torch.device) -> bool:
    """Return whether a device is a GPU of compute capability 9.0 or later."""
    return launches.capability_of(device) >= (9, 0)


def is_hopper(device: torch.device) -> bool:
    """Return whether a device is a GPU of compute capability 9.0, whose instructions later ones do not have."""
    return launches.capability_of(device) == (9, 0)
