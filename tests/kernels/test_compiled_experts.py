"""What the compiler makes of the experts' kernels for a GPU, read in PTX."""

from __future__ import annotations

import json
import re
from functools import cache

import pytest
from lorikeet_testing.compiled import compiler_process

# Most bytes that products of many pairs with experts in FP8 or MXFP4 keep on the stack while they add adapters.
STACK = 300


@cache
def kernels_and_stacks(*which: str) -> dict[str, tuple[str, int]]:
    kernels: dict[str, tuple[str, int]] = json.loads(compiler_process("compiled_experts", *which))
    return kernels


def compiled(*which: str) -> dict[str, str]:
    return {name: ptx for name, (ptx, _) in kernels_and_stacks(*which).items()}


@pytest.mark.parametrize(
    ("which", "count"), [((), 49), pytest.param(("every",), 67, marks=pytest.mark.long)], ids=["largest", "every"]
)
def test_products_use_matrix_instructions_and_nothing_spills(which: tuple[str, ...], count: int) -> None:
    kernels = compiled(*which)
    assert len(kernels) == count
    for name, (_, stack) in kernels_and_stacks(*which).items():
        most = STACK if name.endswith(("of FP8", "of MXFP4")) else 16 if name.startswith("_shrink_blocks") else 0
        assert stack <= most, f"{name} keeps {stack} bytes on its stack"
    for name, ptx in kernels.items():
        assert ".local" not in ptx, f"{name} keeps registers in memory"
        if "in part" not in name:
            assert "atom.global" not in ptx, name
        if name.startswith(("_gate_up", "_down", "_shrink_blocks")):
            assert "mma" in ptx, name
        if name.startswith(("_gate_up", "_down")):
            assert "cp.async" in ptx, name
        if name.endswith("of FP8"):
            assert "wgmma.mma_async.sync.aligned.m64n" in ptx and ".f32.e4m3.e4m3" in ptx, name
        if name.endswith("of MXFP4"):  # whose smallest value is none that is normal before it is multiplied
            assert "mul.bf16x2" in ptx, "two values at a time"
            assert "mul.ftz" not in ptx and "wgmma.mma_async.sync.aligned.m64n" in ptx, name
    counting = [name for name, ptx in kernels.items() if "atom.global.gpu.relaxed.add" in ptx]
    assert len(counting) == 3 and all(name.startswith("_shrink") for name in counting)
    for kind in ("_gate_up_kernel", "_down_kernel", "_shrink_blocks_kernel"):  # rows of host memory as the pool's
        copies = [{name.endswith("in part"): ptx.count("cp.async.c")} for name, ptx in kernels.items() if kind in name]
        assert {each[True] for each in copies if True in each} <= {each[False] for each in copies if False in each}


def before_the_wait(ptx: str) -> str:
    """Return the instructions that some path from a kernel's entry reaches without waiting."""
    lines = ptx[ptx.index("{") :].splitlines()
    labels = {label[1]: index for index, line in enumerate(lines) if (label := re.match(r"\s*(\$\w+):", line))}
    reached: set[int] = set()
    starts = [0]
    while starts:
        for index in range(starts.pop(), len(lines)):
            if index in reached or "griddepcontrol.wait" in lines[index]:
                break
            reached.add(index)
            if branch := re.match(r"\s*(@\S+\s+)?bra(?:\.uni)?\s+(\$\w+)", lines[index]):
                starts.append(labels[branch[2]])
            if re.match(r"\s*(bra|ret)\b", lines[index]):
                break
    return "\n".join(lines[index] for index in sorted(reached))


def test_nothing_is_written_and_no_kernel_ends_before_the_wait() -> None:
    """The kernel behind a shrink counts on all before the shrink being complete when it starts."""
    checked = set()
    for name, ptx in compiled().items():
        if "griddepcontrol" not in ptx:
            continue
        early, kind = before_the_wait(ptx), name.split()[0] + (" adapted" if "adapted" in name else "")
        checked.add(kind)
        for written in ("st.global", "atom.global", "ret;"):
            assert written not in early, name
        if kind.startswith("_shrink"):
            assert "griddepcontrol.launch_dependents" not in early, name
        elif kind in ("_gate_up_kernel adapted", "_down_kernel adapted"):
            assert "mma" in early, f"{name} waits before its products"
        elif kind == "_down_kernel":
            assert set(re.findall(r"ld\.global\S*", early)) == {"ld.global.cg.b32"}, (
                f"{name} reads more than the routing"
            )
        else:
            assert "ld.global" not in early and "cp.async" not in early, name
        if kind == "_gate_up_kernel":
            assert "griddepcontrol.launch_dependents" not in early, name
    assert checked >= {
        "_route_kernel", "_count_kernel", "_sort_kernel", "_shrink_pairs_kernel adapted",
        "_shrink_blocks_kernel adapted", "_gate_up_kernel", "_gate_up_kernel adapted", "_down_kernel",
        "_down_kernel adapted", "_combine_kernel",
    }  # fmt: skip
