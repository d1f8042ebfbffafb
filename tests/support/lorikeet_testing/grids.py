"""Grids of kernels' cases: all on a GPU and by `make test-long`; in the interpreter one of each form and edge."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

GPU = torch.cuda.is_available()


def grid(*axes: Iterable[Any], ordinary: Callable[..., bool]) -> list[Any]:
    """Every combination of the axes, for `pytest.mark.parametrize`; `ordinary` says which an ordinary run has too."""
    return [
        pytest.param(*case, marks=() if GPU or ordinary(*case) else pytest.mark.long)
        for case in itertools.product(*axes)
    ]
