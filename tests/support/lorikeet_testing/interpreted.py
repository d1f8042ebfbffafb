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


if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported, and when a kernel is decorated
    _patch_builtins_by_name()
