"""Schemas and grammars made to keep a server busy: the door's event loop, its threads, others' requests."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from control_plane.gateway.dispatch import constraint_checks
from control_plane.gateway.dispatch.constraint_checks import ConstraintChecks, RequestedConstraint
from control_plane.gateway.dispatch.errors import ApiError
from lora_engine.constraints import Constraint, Kind
from lora_engine.constraints.constraint import MAX_BYTES
from lora_engine.structured.masks import MaskWorkers


def large(variant: int, properties: int = 1500) -> RequestedConstraint:
    """Takes a tenth of a second to compile."""
    schema = {
        "type": "object",
        "properties": {f"p{variant}_{index}": {"type": "string"} for index in range(properties)},
    }
    return asked(Kind.JSON_SCHEMA, json.dumps(schema))


def small(variant: int) -> RequestedConstraint:
    return asked(Kind.JSON_SCHEMA, json.dumps({"const": variant}))


def asked(kind: Kind, text: str) -> RequestedConstraint:
    return RequestedConstraint(Constraint(kind, text), "guided")


@pytest.fixture
def checks() -> Iterator[ConstraintChecks]:
    checks = ConstraintChecks()
    yield checks
    checks.close()


async def test_the_event_loop_goes_on_while_a_schema_is_compiled(checks: ConstraintChecks) -> None:
    await checks.check(small(0), "a")  # the library is loaded
    beats = 0
    checking = asyncio.ensure_future(checks.check(large(0, 2500), "a"))
    while not checking.done():
        await asyncio.sleep(0.005)
        beats += 1
    await checking
    assert beats > 5


async def test_a_tenants_flood_delays_its_own_checks_only(checks: ConstraintChecks) -> None:
    flood = [asyncio.ensure_future(checks.check(large(index), "a")) for index in range(6)]
    await asyncio.sleep(0)
    await checks.check(small(1), "b")
    assert sum(not task.done() for task in flood) >= 3
    await asyncio.gather(*flood)


async def test_a_tenant_has_so_many_checks_waiting(checks: ConstraintChecks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constraint_checks, "WAITING", 3)
    flood = [asyncio.ensure_future(checks.check(small(index), "a")) for index in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(ApiError) as refused:
        await checks.check(small(9), "a")
    assert (refused.value.status, refused.value.code) == (429, "too_many_schemas")
    await checks.check(small(9), "b")
    await asyncio.gather(*flood)
    await checks.check(small(8), "a")
    del refused, flood  # tracebacks hold frames
    assert not checks._locks


async def test_who_goes_away_while_waiting_takes_nobodys_turn(checks: ConstraintChecks) -> None:
    first = asyncio.ensure_future(checks.check(large(0), "a"))
    waiting = asyncio.ensure_future(checks.check(large(1), "a"))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(first, waiting, return_exceptions=True)
    await checks.check(small(1), "a")


async def test_verdicts_are_kept_and_bounded(checks: ConstraintChecks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constraint_checks, "KNOWN", 4)
    for index in range(8):
        await checks.check(small(index), "a")
    assert len(checks._verdicts) == 4
    monkeypatch.setattr(constraint_checks, "_verdict", lambda _: pytest.fail("it was known"))
    await checks.check(small(7), "b")


def nested(depth: int) -> str:
    return '{"items":' * depth + "{}" + "}" * depth


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Kind.JSON_SCHEMA, json.dumps({"description": "x" * MAX_BYTES})),
        (Kind.JSON_SCHEMA, nested(400)),
        (Kind.JSON_SCHEMA, nested(10_000)),
        (Kind.JSON_SCHEMA, json.dumps({"allOf": [
            {"anyOf": [{"properties": {f"a{i}": {}}}, {"properties": {f"b{i}": {}}}]} for i in range(40)]})),
        (Kind.JSON_SCHEMA, json.dumps({"$ref": "http://127.0.0.1/internal.json"})),
        (Kind.JSON_SCHEMA, json.dumps({"$ref": "file:///etc/passwd"})),
        (Kind.JSON_SCHEMA, json.dumps({"type": "string", "pattern": "(a{1,1000}){1,1000}(" * 50})),
        (Kind.REGEX, "(" * 3000 + "a" + ")" * 3000),
        (Kind.GRAMMAR, "start: " + "(" * 3000 + '"a"' + ")" * 3000),
        (Kind.CHOICE, json.dumps([f"choice {index}" for index in range(10_001)])),
    ],
    ids=["too long", "nested", "nested deeply", "exploding", "another host", "a file", "bad pattern", "regex", "lark",
         "choices"],
)  # fmt: skip
async def test_what_would_take_for_ever_is_refused(checks: ConstraintChecks, kind: Kind, text: str) -> None:
    with pytest.raises(ApiError) as refused:
        await checks.check(asked(kind, text), "a")
    assert (refused.value.status, refused.value.code) == (400, "invalid_constraint")
    assert len(refused.value.message) < 1000


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Kind.REGEX, "(x+x+)+y"),
        (Kind.REGEX, "(.*a){40}"),
        (Kind.REGEX, "((a{1,100}){1,100}){1,100}"),
        (Kind.GRAMMAR, 'start: x\nx: x x | ""'),
        (Kind.JSON_SCHEMA, json.dumps({"type": "array", "items": {"$ref": "#"}, "maxItems": 100_000})),
        (Kind.JSON_SCHEMA, json.dumps({"x-guidance": {"lenient": True}, "type": "string", "maxLength": 10**6})),
    ],
)
async def test_what_looks_dangerous_and_is_not_is_served(checks: ConstraintChecks, kind: Kind, text: str) -> None:
    await checks.check(asked(kind, text), "a")


async def test_a_schema_cannot_make_itself_lenient(checks: ConstraintChecks) -> None:
    schema: Any = {"x-guidance": {"lenient": True}, "$dynamicRef": "#x"}
    with pytest.raises(ApiError):
        await checks.check(asked(Kind.JSON_SCHEMA, json.dumps(schema)), "a")


def test_grammars_that_are_hard_have_threads_of_their_own() -> None:
    """However many of their masks are being computed, one of another grammar is computed at once."""
    workers, gate, done = MaskWorkers(), threading.Event(), threading.Event()
    for _ in range(64):
        workers.slow.submit(lambda: gate.wait(30) and None)
    try:
        workers.usual.submit(done.set)
        assert done.wait(20) and not gate.is_set()
    finally:
        gate.set()
        workers.close()


def test_a_task_that_fails_takes_no_thread_with_it() -> None:
    workers, done = MaskWorkers(), threading.Event()
    for _ in range(64):
        workers.usual.submit(lambda: [][0])
    workers.usual.submit(done.set)
    assert done.wait(20)
    workers.close()
