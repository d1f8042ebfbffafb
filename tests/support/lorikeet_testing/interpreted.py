"""Importing this makes Triton interpret its kernels where there is no GPU: import it before anything that has some."""

from __future__ import annotations

import inspect
import os
from functools import cache
from typing import Any

import torch


def _patch_builtins_by_name() -> None:
    """Before each launch, and each call of a function from a kernel, the interpreter looks through all of
    `triton.language` for what it has to replace. That took a third of the tests' time; the names never change."""
    from triton.runtime import interpreter

    @cache
    def names(package: Any) -> list[str]:
        return [name for name, member in inspect.getmembers(package) if interpreter.tl.core.is_builtin(member)]

    def patch_builtin(package: Any, builder: Any, scope: Any) -> None:
        for name in names(package):  # first asked when nothing is replaced
            member = getattr(package, name)
            if interpreter.tl.core.is_builtin(member):
                interpreter._patch_attr(package, name, member, builder, scope)

    assert callable(interpreter._patch_builtin), "this version of Triton has another interpreter: see what it does now"
    interpreter._patch_builtin = patch_builtin


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


if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported, and when a kernel is decorated
    _patch_builtins_by_name()
    _convert_fp8_as_gpus_do()
