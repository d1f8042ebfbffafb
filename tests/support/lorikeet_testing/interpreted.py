"""Importing this makes Triton interpret its kernels where there is no GPU: import it before anything that has some."""

from __future__ import annotations

import dataclasses
import inspect
import math
import os
from functools import cache
from typing import Any

import pytest
import torch


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
                scope.set_attr(package, name, with_semantic(member))

    @cache
    def with_semantic(member: Any) -> Any:
        """Return the function below Triton's decorator, which only checks that the argument is there."""
        function, semantic = getattr(member, "__wrapped__", member), interpreter.interpreter_semantic

        def call(*args: Any, **kwargs: Any) -> Any:
            kwargs["_semantic"] = semantic
            return function(*args, **kwargs)

        return call

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


def _compute_with_alike_numbers_at_once() -> None:
    """Skip the rules of promotion for operands of one type, for 32-bit integers beside a number of that size, and for a
    pointer and an offset: the rules leave them as they are, and took a third of the tests' time.
    """
    from triton.language import core
    from triton.language.semantic import TritonSemantic

    check, constexpr, tensor = TritonSemantic.binary_op_type_checking_impl, core.constexpr, core.tensor
    unwrap, int32 = core._unwrap_if_constexpr, core.int32
    unchanged = (int32, core.float32, core.int1)

    @cache
    def constant(semantic: Any, value: int) -> Any:
        return semantic.scalar_constant(value, dtype=int32)

    def spread(semantic: Any, scalar: Any, block: Any) -> Any:
        """Return a block of the same shape that holds the scalar everywhere."""
        of_scalar = block if block.scalar is scalar.dtype else block.with_element_ty(scalar.dtype)
        return tensor(semantic.builder.create_splat(of_scalar, scalar.handle), of_scalar)

    def check_unless_alike(
        self: Any, lhs: Any, rhs: Any, allow_lhs_ptr: bool = False, allow_rhs_ptr: bool = False,
        arithmetic_check: bool = True, div_or_mod: bool = False,
    ) -> Any:  # fmt: skip
        if isinstance(lhs, tensor):
            dtype = lhs.dtype
            offset = allow_lhs_ptr and isinstance(dtype, core.pointer_type)
            if type(rhs) is int and (offset or dtype is int32) and -(2**31) <= rhs < 2**31:
                rhs = constant(self, rhs)
            if isinstance(rhs, tensor) and (
                rhs.dtype is int32 if offset else rhs.dtype is dtype and any(dtype is each for each in unchanged)
            ):
                if lhs.shape is rhs.shape:
                    return lhs, rhs
                if not rhs.type.is_block():
                    return lhs, spread(self, rhs, lhs.type)
                if not lhs.type.is_block():
                    return spread(self, lhs, rhs.type), rhs
                return self.broadcast_impl_value(lhs, rhs)
        return check(self, lhs, rhs, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod)

    def unwrap_if_constexpr(value: Any) -> Any:
        if isinstance(value, constexpr):
            return value.value
        return value if isinstance(value, (tensor, int, str)) else unwrap(value)

    TritonSemantic.binary_op_type_checking_impl = check_unless_alike  # type: ignore[method-assign]
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
    _compute_with_alike_numbers_at_once()
