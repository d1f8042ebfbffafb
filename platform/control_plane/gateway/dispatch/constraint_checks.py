"""Checks constraints before a request is sent to a host: one that cannot be enforced is refused with its location.

Compiling takes milliseconds, and up to a second for the largest schemas. It runs on separate threads, one constraint of
a tenant at a time, so that no tenant waits for another's large ones.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from weakref import WeakValueDictionary

from control_plane.core.cancellation import to_completion
from control_plane.gateway.dispatch.errors import ApiError, invalid
from lora_engine.constraints import (
    Constraint,
    ConstraintError,
    Kind,
    LibraryMissingError,
    Violation,
    compile_constraint,
    door_tokenizer,
    violations,
)
from lora_engine.wire import engine_pb2 as pb

# Compiled constraints whose result is cached.
KNOWN = 1024
THREADS = 2
# Checks of one tenant that may run or wait; more are refused with 429.
WAITING = 32


@dataclass(frozen=True, slots=True)
class RequestedConstraint:
    """A constraint and the request parameter that contains it."""

    constraint: Constraint
    param: str
    # The function whose arguments it constrains; "" for the text of an answer.
    function: str = ""

    def wire(self) -> pb.Constraint:
        constraint = self.constraint
        return pb.Constraint(kind=constraint.kind.name, text=constraint.text, best_effort=constraint.best_effort)


def tool_schemas(submits: Iterable[pb.Submit]) -> Iterator[RequestedConstraint]:
    """Yield the schemas of tools whose calls must match them: tools that must be called, and strict ones."""
    for submit in submits:
        must = submit.chat.tool_choice.mode in (pb.ToolChoice.REQUIRED, pb.ToolChoice.NAMED)
        for index, tool in enumerate(submit.chat.tools):
            if tool.parameters and (must or tool.strict):
                constraint = Constraint(Kind.JSON_SCHEMA, tool.parameters, best_effort=not tool.strict)
                yield RequestedConstraint(constraint, f"tools[{index}].function.parameters", tool.name)


@dataclass(frozen=True, slots=True)
class ConstraintVerdict:
    """The result of a constraint's check: why it is refused, or what a grammar cannot enforce of it."""

    error: ConstraintError | None = None
    # Paths of keywords that are checked when an answer is finished.
    checked_at_end: tuple[str, ...] = ()
    # Keywords and formats that are left out.
    ignored: tuple[str, ...] = ()


class ConstraintChecks:
    """A cache of compiled constraints, for one event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "constraints")
        self._verdicts: OrderedDict[Constraint, ConstraintVerdict] = OrderedDict()
        self._locks: WeakValueDictionary[str, _TenantLock] = WeakValueDictionary()

    async def check(self, requested: RequestedConstraint, tenant: str) -> ConstraintVerdict:
        """Check a constraint. Raises ``ApiError``: 400 if it cannot be enforced, 429 if too many checks of the tenant
        wait.
        """
        constraint = requested.constraint
        verdict = self._verdicts.get(constraint)
        if verdict is None:
            lock = self._locks.setdefault(tenant, _TenantLock())
            if lock.waiting >= WAITING:
                raise _too_many()
            async with lock:
                verdict = self._verdicts.get(constraint)
                if verdict is None:
                    # The lock is held until the thread ends, even when the caller leaves earlier.
                    loop = asyncio.get_running_loop()
                    check = loop.run_in_executor(self._threads, _verdict, constraint)
                    verdict = await to_completion(check)
                    self._keep(constraint, verdict)
        if (error := verdict.error) is not None:
            param = f"{requested.param}.{error.path}" if error.path else requested.param
            raise invalid(f"Invalid value for '{param}': {error.message}", error.fix, param, "invalid_constraint")
        return verdict

    async def violations(self, schema: str, answer: str, tenant: str) -> list[Violation]:
        """Return the places of a finished answer that its schema forbids."""
        async with self._locks.setdefault(tenant, _TenantLock()):
            loop = asyncio.get_running_loop()
            check = loop.run_in_executor(self._threads, lambda: violations(json.loads(schema), answer))
            return await to_completion(check)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _keep(self, constraint: Constraint, verdict: ConstraintVerdict) -> None:
        self._verdicts[constraint] = verdict
        while len(self._verdicts) > KNOWN:
            self._verdicts.popitem(last=False)


class _TenantLock:
    """A lock that runs a tenant's checks one at a time, and counts them."""

    def __init__(self) -> None:
        self.waiting = 0
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> None:
        self.waiting += 1
        try:
            await self._lock.acquire()
        except BaseException:
            self.waiting -= 1
            raise

    async def __aexit__(self, *_exc: object) -> None:
        self.waiting -= 1
        self._lock.release()


def _verdict(constraint: Constraint) -> ConstraintVerdict:
    try:
        compiled = compile_constraint(constraint, door_tokenizer())
    except ConstraintError as error:
        # The special tokens of a model are known to its hosts only.
        return ConstraintVerdict(None if "unknown special token" in error.message else error)
    except LibraryMissingError:
        raise ApiError(
            503,
            "structured_outputs_unavailable",
            "This server cannot constrain answers to a schema or grammar: llguidance is not installed on it.",
            'Ask the operator to install it (pip install ".[platform]").',
        ) from None
    return ConstraintVerdict(None, tuple(check.path for check in compiled.checks), compiled.ignored)


def _too_many() -> ApiError:
    return ApiError(
        429,
        "too_many_schemas",
        f"{WAITING} new schemas or grammars of this tenant are being checked.",
        "Send fewer new ones at the same time; those that were used before need no check.",
        retry_after_s=1.0,
    )
