"""What the compiler makes of the LoRA kernels for a GPU: read in PTX, since a race there shows only now and then."""

from __future__ import annotations

import json

import pytest
from lorikeet_testing.compiled import compiler_process

from lora_kernels.forms import SHRINK, Form


def ptx_of(form: Form, dtype: str) -> dict[str, str]:
    kernels: dict[str, str] = json.loads(compiler_process("compiled_lora", form.name, dtype))
    return kernels


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("form", Form, ids=lambda f: f.name)
def test_nothing_is_read_ahead_of_the_kernel_before(form: Form, dtype: str) -> None:
    """The loop's pipeline must not fetch, before the wait, what the kernel before is still writing."""
    for name, ptx in ptx_of(form, dtype).items():
        ahead, found, _ = ptx.partition("cp.async")
        if form is Form.MANY:
            assert "griddepcontrol.wait" in ahead or not found, name
        else:
            assert not found, f"{name} has a pipeline, whose first loads come before the wait"
        assert "griddepcontrol.wait" in ptx, name


@pytest.mark.parametrize("form", [Form.ONE, Form.TWO], ids=lambda f: f.name)
def test_a_shrink_keeps_to_its_registers(form: Form) -> None:
    assert f".maxnreg {SHRINK[form].registers}" in ptx_of(form, "bfloat16")["_shrink_one_kernel"]


@pytest.mark.parametrize("form", [Form.ONE, Form.SOME], ids=lambda f: f.name)
def test_weights_are_read_sixteen_bytes_at_a_time(form: Form) -> None:
    for name, ptx in ptx_of(form, "bfloat16").items():
        assert "ld.global.v4" in ptx, name
        scalar = ptx.count("ld.global.b16") + ptx.count("ld.global.u16")
        assert scalar <= 4, f"{name} reads {scalar} elements one by one"  # a few shrunk activations are
