"""Importing this makes Triton interpret its kernels where there is no GPU: import it before anything that has some."""

from __future__ import annotations

import dataclasses
import inspect
import math
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

# Functions that the interpreter calls instead of members of `triton.language`, by member.
DIRECT: dict[Any, Callable[..., Any]] = {}


@cache
def with_semantic(member: Any) -> Any:
    """Return the function below Triton's decorator, which only checks that the argument is there."""
    from triton.runtime import interpreter

    function, semantic = getattr(member, "__wrapped__", member), interpreter.interpreter_semantic

    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs["_semantic"] = semantic
        return function(*args, **kwargs)

    return call


def _patch_builtins_by_name() -> None:
    """Cache the names that Triton's interpreter patches in `triton.language`, and what it puts there. It looked them up
    before each launch and call, which took a third of the tests' time; they never change.
    """
    from triton.runtime import interpreter

    @cache
    def names(package: Any) -> list[str]:
        return [name for name, member in inspect.getmembers(package) if interpreter.tl.core.is_builtin(member)]

    def patch_builtin(package: Any, builder: Any, scope: Any) -> None:
        for name in names(package):  # the first call comes before any replacement
            member = getattr(package, name)
            if interpreter.tl.core.is_builtin(member):
                scope.set_attr(package, name, DIRECT.get(member) or with_semantic(member))

    assert callable(interpreter._patch_builtin), "this version of Triton has another interpreter: see what it does now"
    interpreter._patch_builtin = patch_builtin


def _patch_the_language_once_a_launch() -> None:
    """The interpreter does it anew for each call of a function from a kernel, though the launch has done it."""
    from triton.runtime import interpreter

    patch_lang, language = interpreter._patch_lang, (interpreter.tl, interpreter.tl.core)
    patched: set[Any] = set()

    @cache
    def seen_by(function: Any) -> frozenset[Any]:
        return frozenset(module for module in function.__globals__.values() if any(module is each for each in language))

    def patch_unless_patched(function: Any) -> Any:
        modules = seen_by(function)
        if modules <= patched:
            return interpreter._LangPatchScope()
        scope = patch_lang(function)
        patched.update(modules)
        restore = scope.restore

        def restored() -> None:
            restore()
            patched.difference_update(modules)

        scope.restore = restored
        return scope

    interpreter._patch_lang = patch_unless_patched


def _remember_the_types_of_numpy() -> None:
    """The interpreter makes a table of them for each answer."""
    from triton.runtime import interpreter

    of_type, known = interpreter._get_np_dtype, {}

    def np_dtype(tl_dtype: Any) -> Any:
        if tl_dtype.name not in known:
            known[tl_dtype.name] = of_type(tl_dtype)
        return known[tl_dtype.name]

    interpreter._get_np_dtype = np_dtype


def _convert_fp8_as_gpus_do() -> None:
    """The interpreter rounds 126.5 to 64 when it converts to E4M3: it forgets to carry into the exponent."""
    from triton.runtime import interpreter

    convert = interpreter._convert_float

    def convert_float(values: Any, source: Any, target: Any, rounding: Any) -> Any:
        if (source.name, target.name) == ("fp32", "fp8e4nv"):
            wide = torch.from_numpy(values.copy()).nan_to_num(nan=torch.nan, posinf=448.0, neginf=-448.0)
            return wide.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
        if (source.name, target.name) == ("fp8e4nv", "fp32"):
            narrow = torch.from_numpy(values.copy()).view(torch.float8_e4m3fn)
            return narrow.float().view(torch.int32).numpy().view("uint32")
        return convert(values, source, target, rounding)

    interpreter._convert_float = convert_float


def _skip_unread_checks_for_overflows() -> None:
    """The interpreter computes each sum and product of integers again in 64 bits and compares it with the limits of
    its type. Without its option `debug` nothing reads the result, and it took 40% of the tests' time.
    """
    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder
    assert not builder.options.debug, "this version of Triton has another interpreter: see what it checks now"
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)


def _share_the_shapes_of_tensors() -> None:
    """Compute the attributes of a shape once. The interpreter makes a tensor of each number that a kernel computes, and
    computing its shape's took a fifth of the tests' time; they never change.
    """
    from triton.language import core

    original = core.block_type.__init__
    shapes: dict[Any, tuple[Any, Any]] = {(): (core.tuple([]), core.constexpr(1))}
    blocks: dict[Any, dict[str, Any]] = {}

    def tensor_init(self: Any, handle: Any, type: Any) -> None:
        shape = tuple(type.shape) if type.is_block() else ()
        if shape not in shapes:
            shapes[shape] = core.tuple([core.constexpr(size) for size in shape]), core.constexpr(math.prod(shape))
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = shapes[shape]

    def block_init(self: Any, element_ty: Any, shape: Any) -> None:
        key = (element_ty.name, tuple(core._unwrap_if_constexpr(size) for size in shape))
        if key not in blocks:
            original(self, element_ty, shape)
            blocks[key] = {name: value for name, value in vars(self).items() if name != "element_ty"}
        self.__dict__.update(blocks[key])
        self.element_ty = element_ty

    core.tensor.__init__ = tensor_init
    core.block_type.__init__ = block_init


def _make_results(core: Any, interpreter: Any) -> Callable[[Any, Any, bool], Any]:
    """Return a function that makes a tensor of NumPy's result, with the types and shapes of earlier ones."""
    tensor, handle = core.tensor, interpreter.TensorHandle
    make_tensor, make_handle = tensor.__new__, handle.__new__
    blocks: dict[Any, tuple[Any, Any, Any]] = {}
    of_number = core.tuple([]), core.constexpr(1)

    def result(data: Any, dtype: Any, is_block: bool) -> Any:
        made = make_tensor(tensor)
        made.handle = kept = make_handle(handle)
        kept.data, kept.dtype, kept.attr = data, dtype, {}
        made.dtype = dtype
        if not is_block:
            made.type = dtype
            made.shape, made.numel = of_number
            return made
        key = dtype.name, data.shape
        if key not in blocks:
            full = tensor(kept, core.block_type(dtype, list(data.shape)))
            blocks[key] = full.type, full.shape, full.numel
        made.type, made.shape, made.numel = blocks[key]
        return made

    return result


def _compute_without_rules_of_types() -> None:
    """Let NumPy compute with numbers of a type, alike ones beside them, constants, and pointers with offsets.

    The interpreter applies rules of promotion that leave these as they are, and makes full blocks of both operands,
    which NumPy does not need. That took two thirds of the tests' time. Everything else takes the interpreter's way.
    """
    from triton.language import core
    from triton.runtime import interpreter

    tensor, pointer, constexpr = core.tensor, core.pointer_type, core.constexpr
    result = _make_results(core, interpreter)
    dtype_of = {t.name: interpreter._get_np_dtype(t) for t in (core.int32, core.int64, core.float16, core.float32)}
    floats, integers = frozenset({"fp16", "fp32"}), frozenset({"int32", "int64"})
    wider = {floats: core.float32, integers: core.int64}
    arithmetic, bits, compared = floats | integers, integers | {"int1"}, integers | {"fp32"}

    @cache
    def number(value: float, kind: type, name: str) -> Any:
        """Return an array of a number of Python as one of a type, or None where the type has no such number."""
        if name in floats or (kind is int and (name == "int64" or -(2**31) <= value < 2**31)):
            return np.array([value or 0], dtype=dtype_of[name])
        return None

    def operand(other: Any, dtype: Any, names: frozenset[str]) -> Any:
        """Return the data and the dtype to compute with beside a tensor of `dtype`. No data: the rules must decide."""
        kind, name = type(other), dtype.name
        if name not in names:
            return None, None
        if kind is tensor:
            if other.dtype is dtype:
                return other.handle.data, dtype
            for alike, wide in wider.items():
                if name in alike and other.dtype.name in alike and other.dtype.name in names:
                    return other.handle.data, wide
            return None, None
        if kind is constexpr:
            other = other.value
            kind = type(other)
        if (kind is int or kind is float) and name in dtype_of:
            return number(other, kind, name), dtype
        return None, None

    def is_block(value: Any) -> bool:
        return type(value) is tensor and value.type is not value.dtype

    def direct(name: str, compute: Any, names: frozenset[str], answer: Any = None, *, reverse: bool = False) -> None:
        """Compute an operator of tensors for these types. The answer has the operands' type by default."""
        member = getattr(tensor, name)
        general = with_semantic(member)

        def operator(self: Any, other: Any) -> Any:
            data, dtype = operand(other, self.dtype, names)
            if data is None:
                return general(self, other)
            here = self.handle.data
            return result(
                compute(data, here) if reverse else compute(here, data), answer or dtype,
                self.type is not self.dtype or is_block(other),
            )  # fmt: skip

        DIRECT[member] = operator

    @cache
    def bytes_of(pointed: str, dtype: Any) -> int:
        return max(1, dtype.primitive_bitwidth // 8)

    def direct_sum() -> None:
        """Add numbers, or an offset to a pointer."""
        direct("__add__", np.add, arithmetic)
        of_numbers, general = DIRECT[tensor.__add__], with_semantic(tensor.__add__)

        def add(self: Any, other: Any) -> Any:
            dtype = self.dtype
            if type(dtype) is not pointer:
                return of_numbers(self, other)
            if type(other) is tensor:
                offset = other.handle.data if other.dtype.name in integers else None
            else:
                offset = operand(other, core.int32, integers)[0]
            if offset is None:
                return general(self, other)
            data = self.handle.data + bytes_of(dtype.name, dtype.element_ty) * offset.astype(np.uint64)
            return result(data, dtype, self.type is not dtype or is_block(other))

        DIRECT[tensor.__add__] = add

    def idiv(left: Any, right: Any) -> Any:
        return (left - np.fmod(left, right)) // right

    direct_sum()
    direct("__radd__", np.add, arithmetic, reverse=True)
    for name, compute, names in (
        ("sub", np.subtract, arithmetic), ("mul", np.multiply, arithmetic), ("truediv", np.divide, frozenset({"fp32"})),
        ("floordiv", idiv, integers), ("mod", np.fmod, integers), ("and", np.bitwise_and, bits),
        ("or", np.bitwise_or, bits), ("xor", np.bitwise_xor, bits),
    ):  # fmt: skip
        direct(f"__{name}__", compute, names)
        direct(f"__r{name}__", compute, names, reverse=True)
    for name, compute in (
        ("gt", np.greater), ("ge", np.greater_equal), ("lt", np.less), ("le", np.less_equal), ("eq", np.equal),
        ("ne", np.not_equal),
    ):  # fmt: skip
        direct(f"__{name}__", compute, compared, core.int1)  # numbers beside half precision are compared in single

    def direct_choice(member: Any, compute: Any) -> None:
        general = with_semantic(member)

        def choose(x: Any, y: Any, *args: Any, **kwargs: Any) -> Any:
            data, dtype = operand(y, x.dtype, compared) if type(x) is tensor and not (args or kwargs) else (None, None)
            if data is None:
                return general(x, y, *args, **kwargs)
            return result(compute(x.handle.data, data), dtype, is_block(x) or is_block(y))

        DIRECT[member] = choose

    direct_choice(core.minimum, np.minimum)
    direct_choice(core.maximum, np.maximum)
    general_where = with_semantic(core.where)

    def where(condition: Any, x: Any, y: Any) -> Any:
        typed = x if type(x) is tensor else y
        if type(condition) is tensor and condition.dtype is core.int1 and type(typed) is tensor:
            left, dtype = operand(x, typed.dtype, arithmetic | bits)
            right, other = operand(y, typed.dtype, arithmetic | bits)
            if left is not None and right is not None and dtype is other:
                full = is_block(condition) or is_block(x) or is_block(y)
                return result(np.where(condition.handle.data, left, right), dtype, full)
        return general_where(condition, x, y)

    DIRECT[core.where] = where
    _load_without_copies(core, interpreter, result, is_block)
    _prepare_operands_once(core, interpreter, result)


def _load_without_copies(
    core: Any, interpreter: Any, result: Callable[..., Any], is_block: Callable[..., bool]
) -> None:
    """Index and load with NumPy's broadcasting, and keep ranges and what masked elements are by default."""
    tensor, load, arange = core.tensor, with_semantic(core.load), with_semantic(core.arange)
    get_item = with_semantic(tensor.__getitem__)
    hints: set[Any] = set()

    def getitem(self: Any, slices: Any) -> Any:
        kind = type(slices)
        if self.type is self.dtype or not (slices is None or kind is tuple or kind is slice):
            return get_item(self, slices)
        for each in slices if kind is tuple else (slices,):
            if each is not None and not (type(each) is slice and each.start is each.stop is each.step is None):
                return get_item(self, slices)
        return result(self.handle.data[slices], self.dtype, True)

    @cache
    def constant(shape: tuple[int, ...], value: float, dtype: Any) -> Any:
        return np.full(shape, value, dtype=dtype)

    @cache
    def joined(*shapes: tuple[int, ...]) -> tuple[int, ...]:
        return np.broadcast_shapes(*shapes)

    def load_directly(ptr: Any, mask: Any = None, other: Any = None, **hint: Any) -> Any:
        pointed = getattr(ptr.dtype, "element_ty", core.int1)
        key = tuple(hint.items())
        if (
            pointed is core.int1 or type(pointed) is not core.dtype or key not in hints
            or not (mask is None or (type(mask) is tensor and mask.dtype is core.int1))
            or not (other is None or (mask is not None and type(other) in (int, float) and other == 0))
            or (is_block(mask) and not is_block(ptr))
        ):  # fmt: skip
            loaded = load(ptr, mask, other, **hint)
            if set(hint) <= {"cache_modifier", "eviction_policy"}:
                hints.add(key)  # which the interpreter checks, and ignores
            return loaded
        data, full = ptr.handle.data, is_block(ptr)
        shape, dtype = data.shape, interpreter._get_np_dtype(pointed)
        if mask is None:
            wanted = constant(shape, 1, np.dtype(bool))
        else:
            wanted = mask.handle.data
            if wanted.shape != shape:
                shape = joined(shape, wanted.shape) if full else shape
                data, wanted = np.broadcast_to(data, shape), np.broadcast_to(wanted, shape)
        values = interpreter._interpreter.load(data, wanted, constant(shape, 0, dtype), dtype)
        return result(values, pointed, full)

    @cache
    def kept_range(start: int, end: int) -> Any:
        return arange(start, end)

    def range_of(start: Any, end: Any) -> Any:
        return kept_range(start, end) if type(start) is type(end) is int else arange(start, end)

    DIRECT.update({tensor.__getitem__: getitem, core.load: load_directly, core.arange: range_of})


def _prepare_operands_once(core: Any, interpreter: Any, result: Callable[..., Any]) -> None:
    """Keep the tensors of constants, convert between numbers of a type that NumPy has, and broadcast without a copy."""
    from triton.language.semantic import TritonSemantic

    tensor, unwrap, constexpr = core.tensor, core._unwrap_if_constexpr, core.constexpr
    make_constant, cast, make_tensor = TritonSemantic.scalar_constant, TritonSemantic.cast, TritonSemantic.to_tensor
    plain = {
        t.name: interpreter._get_np_dtype(t)
        for t in (core.int8, core.uint8, core.int16, core.int32, core.int64, core.float16, core.float32, core.float64)
    }
    constants: dict[Any, Any] = {}

    def scalar_constant(self: Any, value: Any, dtype: Any) -> Any:
        if type(value) not in (int, float, bool) or value != value:
            return make_constant(self, value, dtype)
        key = value, dtype.name
        if key not in constants:
            constants[key] = make_constant(self, value, dtype)
        return constants[key]

    def to_tensor(self: Any, x: Any, check_type: bool = True) -> Any:
        return x if type(x) is tensor else make_tensor(self, x, check_type)

    def to_type(self: Any, input: Any, dst_ty: Any, fp_downcast_rounding: Any = None) -> Any:
        source, target = input.dtype, dst_ty.scalar
        if source is target:
            return input
        if fp_downcast_rounding is None and target.name in plain and (source.name in plain or source is core.int1):
            return result(input.handle.data.astype(plain[target.name]), target, input.type is not source)
        return cast(self, input, dst_ty, fp_downcast_rounding)

    @cache
    def joined(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
        return np.broadcast_shapes(left, right)

    def broadcast(self: Any, lhs: Any, rhs: Any) -> Any:
        is_left, is_right = lhs.type is not lhs.dtype, rhs.type is not rhs.dtype
        if not (is_left or is_right):
            return lhs, rhs
        left, right = lhs.handle.data, rhs.handle.data
        shape = joined(left.shape if is_left else (), right.shape if is_right else ())
        if not is_left or left.shape != shape:
            lhs = result(np.broadcast_to(left, shape), lhs.dtype, True)
        if not is_right or right.shape != shape:
            rhs = result(np.broadcast_to(right, shape), rhs.dtype, True)
        return lhs, rhs

    def unwrap_if_constexpr(value: Any) -> Any:
        kind = type(value)
        if kind is constexpr:
            return value.value
        return value if kind is tensor or kind is int or kind is str or value is None else unwrap(value)

    TritonSemantic.scalar_constant = scalar_constant  # type: ignore[method-assign]
    TritonSemantic.to_tensor = to_tensor  # type: ignore[method-assign]
    TritonSemantic.cast = to_type  # type: ignore[method-assign]
    TritonSemantic.broadcast_impl_value = broadcast  # type: ignore[method-assign]
    core._unwrap_if_constexpr = unwrap_if_constexpr


@pytest.fixture
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Split attention as on a GPU with two multiprocessors for decodes and eight for prompts, not 132. In the
    interpreter each program takes as long as another, whether it has keys or not, and a graph has all of them.
    """
    if not torch.cuda.is_available():
        monkeypatch.setattr("lora_kernels.attention.FEW", 8)
        monkeypatch.setattr("lora_kernels.attention.PREFILL_PROGRAMS", 16)


if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported, and when a kernel is decorated
    _patch_builtins_by_name()
    _patch_the_language_once_a_launch()
    _remember_the_types_of_numpy()
    _convert_fp8_as_gpus_do()
    _skip_unread_checks_for_overflows()
    _share_the_shapes_of_tensors()
    _compute_without_rules_of_types()
