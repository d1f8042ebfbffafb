"""Engine tests run on one thread: test processes share the machine, and torch's threads spin while they wait.

Free pages of every pool are full of NaN (`poisoned_pool.py`).
"""

from __future__ import annotations

import pytest
import torch
from lorikeet_testing import interpreted  # noqa: F401
from lorikeet_testing.poisoned_pool import poisoned_pools  # noqa: F401

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded(tensor_seed: int) -> None:
    torch.manual_seed(tensor_seed)


@pytest.fixture(autouse=True)
def _poisoned(poisoned_pools: None) -> None:  # noqa: F811
    pass
