"""Every error code that the engine can send has a status at the API."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from control_plane.core.config import REPOSITORY
from control_plane.fleet.transport.errors import HostError
from control_plane.gateway.dispatch import errors

ENGINE = REPOSITORY / "inference_engine" / "lora_engine"
ERRORS = {"RequestError", "StageError"}
# The engine's or its model's own failures, which a client can do nothing about.
OWN_FAILURES = {"engine_error", "duplicate_request", "model_overflow"}


def raised_codes() -> Iterator[str]:
    """The literal codes of every `RequestError(…)`, and of `StageError(…)`, which becomes one, in the engine."""
    nodes = (node for path in ENGINE.rglob("*.py") for node in ast.walk(ast.parse(path.read_text())))
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS:
            yield from (str(part.value) for part in node.args[:1] if isinstance(part, ast.Constant))


def test_the_engine_raises_codes() -> None:
    assert {"context_length_exceeded", "adapter_not_found"} <= set(raised_codes())


def test_an_overflow_is_the_adapters_fault_or_the_models() -> None:
    assert {"adapter_overflow", "model_overflow"} <= set(raised_codes())
    codes = ("adapter_overflow", "model_overflow")
    of_adapter, of_model = (errors.from_failure(HostError(code, "What happened.", "What to do.")) for code in codes)
    assert (of_adapter.status, of_adapter.type, of_adapter.retry_after_s) == (422, "invalid_request_error", None)
    assert (of_model.status, of_model.retry_after_s) == (500, None)


@pytest.mark.parametrize("code", sorted(set(raised_codes()) - OWN_FAILURES))
def test_every_code_has_a_status(code: str) -> None:
    answer = errors.from_failure(HostError(code, "What happened.", "What to do."))
    assert answer.status != 500, f"{code} would reach clients as a server error"
