"""What the tests' interpreter computes directly is what Triton's rules of types make of it, bit for bit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from lorikeet_testing.interpreted import DIRECT, with_semantic
from triton.runtime import interpreter

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled for the GPU")
DTYPES = (tl.int1, tl.uint8, tl.int32, tl.uint32, tl.int64, tl.float16, tl.bfloat16, tl.float32)
NUMBERS = (0, 3, -2, 2**31, 1.5, -0.0, float("-inf"), tl.constexpr(5))
CHOICES = [member for member in DIRECT if member.__name__ in ("minimum", "maximum", "where")]
OPERATORS = [member for member in DIRECT if hasattr(tl.tensor, member.__name__) and member.__name__.startswith("__")]


@triton.jit
def _kernel() -> None:
    tl.program_id(0)


@pytest.fixture(autouse=True)
def _interpreting() -> Iterator[None]:
    scope = interpreter._patch_lang(_kernel.fn)
    yield
    scope.restore()


def operand(dtype: Any, shape: tuple[int, ...], factor: int) -> Any:
    """Return small numbers of a type, without zeros; a scalar if the shape is empty."""
    count = torch.Size(shape).numel()
    data = (torch.arange(1, count + 1) * factor % 5 + 1).reshape(shape or (1,)).numpy()
    if dtype is tl.bfloat16:
        data = torch.from_numpy(data).bfloat16().view(torch.int16).numpy().view("uint16")
    data = data.astype(interpreter._get_np_dtype(dtype))
    return tl.tensor(interpreter.TensorHandle(data, dtype), tl.block_type(dtype, list(shape)) if shape else dtype)


def outcome(function: Any, *operands: Any) -> tuple[Any, ...]:
    """Return the type, the shape and the bytes of a result, or the refusal."""
    try:
        result = function(*operands)
    except Exception as error:
        return (type(error),)
    data = result.handle.data
    return str(result.type), str(result.shape), result.numel.value, data.dtype, data.shape, data.tobytes()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # divisions by a number that is zero
@pytest.mark.parametrize("member", OPERATORS, ids=lambda member: member.__name__)
def test_an_operator(member: Any) -> None:
    if member.__name__ == "__getitem__":
        operands: Any = itertools.product(
            (operand(dtype, (4, 2), 3) for dtype in DTYPES),
            ((None, slice(None)), (slice(None), None, slice(None)), slice(None), 0, (slice(0, 2),)),
        )
    else:
        shapes = ((), ()), ((), (2, 4)), ((2, 1), (4,))
        pairs = itertools.product(DTYPES, DTYPES, shapes)
        operands = [
            (operand(left, of_left, 3), operand(right, of_right, 2)) for left, right, (of_left, of_right) in pairs
        ]
        operands += itertools.product((operand(dtype, s, 3) for dtype in DTYPES for s in ((), (4,))), NUMBERS)
        pointers = [
            operand(tl.pointer_type(dtype), s, 3) for dtype in (tl.int1, tl.float16, tl.int64) for s in ((), (4,))
        ]
        offsets = [operand(dtype, s, 2) for dtype in DTYPES for s in ((), (2, 4))]
        operands += itertools.product(pointers, [*offsets, *NUMBERS])
    general = with_semantic(member)
    for pair in operands:
        assert outcome(DIRECT[member], *pair) == outcome(general, *pair), (member.__name__, *map(str, pair))


@pytest.mark.filterwarnings("ignore::UserWarning")  # of a condition that is no int1
@pytest.mark.parametrize("member", CHOICES, ids=lambda member: member.__name__)
def test_a_choice(member: Any) -> None:
    shapes = ((4,), ()), ((2, 1), (1, 4))
    pairs = [(operand(x, a, 3), operand(y, b, 2)) for x, y, (a, b) in itertools.product(DTYPES, DTYPES, shapes)]
    pairs += itertools.product((operand(dtype, (4,), 3) for dtype in DTYPES), NUMBERS)
    conditions = [(operand(tl.int1, (), 1),), (operand(tl.int1, (2, 4), 1),), (operand(tl.int32, (4,), 1),)]
    general = with_semantic(member)
    for condition, pair in itertools.product(conditions if member.__name__ == "where" else [()], pairs):
        assert outcome(DIRECT[member], *condition, *pair) == outcome(general, *condition, *pair), list(map(str, pair))


@pytest.mark.parametrize("dtype", [tl.int1, tl.uint8, tl.int32, tl.float16, tl.bfloat16, tl.float32], ids=str)
def test_loads(dtype: Any) -> None:
    (member,) = (member for member in DIRECT if member.__name__ == "load")
    memory = torch.arange(1, 65, dtype=torch.uint8)
    masks = [None, *(operand(tl.int1, shape, 1) for shape in ((), (4,), (2, 1), (2, 4))), False]
    for mask in masks[1:-1]:
        mask.handle.data[..., ::2] = False
    general = with_semantic(member)
    for shape, mask, other in itertools.product(((), (4,), (1, 4), (2, 4)), masks, (None, 0, 0.0, 2, -1.5)):
        places = operand(tl.pointer_type(dtype), shape, 3)
        places.handle.data = places.handle.data * 2 + memory.data_ptr()
        arguments = {"mask": mask, "other": other, "cache_modifier": ".cg"}
        assert outcome(partial(DIRECT[member], **arguments), places) == outcome(partial(general, **arguments), places)
