"""Engine tests run on one thread: test processes share the machine, and torch's threads spin while they wait."""

from __future__ import annotations

import os

import pytest
import torch

torch.set_num_threads(1)

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is decorated


@pytest.fixture(autouse=True)
def _seeded(tensor_seed: int) -> None:
    torch.manual_seed(tensor_seed)
