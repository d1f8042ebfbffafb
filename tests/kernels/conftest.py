"""Without a GPU, kernels run in the interpreter, in float32 and float16: its bfloat16 dot is wrong."""

from __future__ import annotations

import pytest
import torch
from lorikeet_testing import interpreted  # noqa: F401


@pytest.fixture(autouse=True)
def _seeded(tensor_seed: int) -> None:
    torch.manual_seed(tensor_seed)
