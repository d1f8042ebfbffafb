"""Without a GPU, kernels run in the interpreter, in float32 and float16: its bfloat16 dot is wrong."""

from __future__ import annotations

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is decorated, so before any import of one


@pytest.fixture(autouse=True)
def _seeded(tensor_seed: int) -> None:
    torch.manual_seed(tensor_seed)
