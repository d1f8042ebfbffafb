"""Matrix products in Triton's interpreter that add up as tensor cores do: one input after another, onto the last sum.

The interpreter's own are numpy's, whose order depends on the size of the tile and on the place in it. What kernels
promise of a row beside others can only be seen with products in which rows do not depend on each other. Whether a
GPU's are such products is for tests on one (`tests/engine/test_deterministic.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


def add_in_order(patch: pytest.MonkeyPatch) -> None:
    import triton.language as tl
    from triton.runtime import interpreter

    def create_dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
        left, right = (wide(operand).astype(d.data.dtype) for operand in (a, b))
        total = d.data.copy()
        used = np.flatnonzero(left.any(axis=tuple(range(left.ndim - 1))))  # masked columns add nothing
        for k in used:
            total += left[..., :, k, None] * right[..., None, k, :]
        return interpreter.TensorHandle(total, d.dtype.scalar)

    def wide(operand: Any) -> Any:
        if operand.dtype.primitive_bitwidth == 8 and operand.dtype.is_floating():
            return interpreter._convert_float(operand.data, operand.dtype, tl.float32, None).view(np.float32)
        return operand.data

    patch.setattr(interpreter.InterpreterBuilder, "create_dot", create_dot)
