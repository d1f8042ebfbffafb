"""Runs batches in the web processes, which have the sessions to the engines and the code that answers requests.

Each process claims batches that no process runs, and runs `LORIKEET_BATCH_CONCURRENCY` lines of each at the same time.
The engines schedule them when no other request waits. If a process dies, its claims expire and another process
continues with the lines that have no result: a line's result and usage are stored together, once.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any

from control_plane.billing.usage import request_ids
from control_plane.billing.usage.models import ApiEndpoint
from control_plane.core import config, drain
from control_plane.core.cancellation import to_completion
from control_plane.core.db import run_db
from control_plane.core.errors import LorikeetError
from control_plane.core.jobs import claims
from control_plane.gateway.batches import actions
from control_plane.gateway.batches.models import Batch, BatchLine, BatchState
from control_plane.gateway.dispatch import errors
from control_plane.gateway.dispatch.errors import ApiError
from control_plane.gateway.dispatch.generation import begin
from control_plane.gateway.dispatch.runtime import runtime
from control_plane.gateway.openai.chat_request import ChatCompletionRequest
from control_plane.gateway.openai.completion_request import CompletionRequest
from control_plane.gateway.openai.embeddings import EmbeddingsRequest, whole_embeddings
from control_plane.gateway.openai.parameters import read_parameters
from control_plane.gateway.openai.response_writers import whole
from control_plane.gateway.openai.serving import shape_of
from control_plane.gateway.recording.usage import Settled
from control_plane.identity.access.principal import Principal

logger = logging.getLogger(__name__)

# Seconds between two polls: for a batch to claim, for a cancellation, and before a retry after an internal error.
POLL_S = 2.0
# Maximum number of batches that one process runs at the same time.
MAX_BATCHES = 4
# Seconds: upper bound of the pause before a line is retried, whatever Retry-After says.
LONGEST_PAUSE_S = 60.0
# Statuses after which a line is retried: a limit was reached, or hosts or services are full or unavailable.
PASSING = (402, 429, 503, 507)
Line = ChatCompletionRequest | CompletionRequest | EmbeddingsRequest
# The endpoints that a batch may call, each with the form of its request bodies.
BODIES: Mapping[str, type[Line]] = {
    ApiEndpoint.CHAT: ChatCompletionRequest,
    ApiEndpoint.COMPLETIONS: CompletionRequest,
    ApiEndpoint.EMBEDDINGS: EmbeddingsRequest,
}


class BatchRunner:
    """A runner that claims batches and runs their requests on one event loop."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._loop = asyncio.create_task(self._poll(), name="batches")

    async def close(self) -> None:
        """Stop every batch; lines that run are aborted, and run again in another process."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.wait([self._loop])  # every claimed batch has its task now, which releases the claim
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _poll(self) -> None:
        while True:
            try:
                while not drain.is_draining() and len(self._running) < MAX_BATCHES:
                    batch = await to_completion(run_db(actions.claim_next), undo=_release)
                    if batch is None:
                        break
                    task = asyncio.create_task(_run(batch), name=str(batch))
                    self._running.add(task)
                    task.add_done_callback(self._running.discard)
            except Exception as error:
                logger.warning("Batches could not be queried: %s", error)
            await asyncio.sleep(POLL_S)


async def _run(batch: Batch) -> None:
    """Run one batch for as long as its claim holds."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    cancel = task.cancel
    with claims.keep(batch, lambda: loop.call_soon_threadsafe(cancel)):
        try:
            await _continue(batch)
        except claims.ClaimLostError:
            logger.warning("%s is run by another process.", batch)
        except asyncio.CancelledError:
            await to_completion(run_db(actions.release, batch))
            raise
        except Exception:
            logger.exception("%s failed and is tried again.", batch)
            try:
                await asyncio.sleep(POLL_S)
            finally:
                await to_completion(run_db(actions.release, batch))


async def _release(batch: Batch | None) -> None:
    if batch is not None:
        await run_db(actions.release, batch)


async def _continue(batch: Batch) -> None:
    while True:
        state = await run_db(actions.state_of, batch)
        if state == BatchState.VALIDATING:
            refuse_unknown = await _refuses_unknown(batch)
            await run_db(actions.validate, batch, checker(batch.endpoint, refuse_unknown=refuse_unknown))
        elif state == BatchState.IN_PROGRESS:
            if await _run_lines(batch):
                await run_db(actions.finish, batch, BatchState.COMPLETED)
                return
        elif state == BatchState.FINALIZING:
            await run_db(actions.finish, batch, BatchState.COMPLETED)
            return
        elif state == BatchState.CANCELLING:
            await run_db(actions.finish, batch, BatchState.CANCELLED)
            return
        elif state == BatchState.EXPIRED and await run_db(actions.is_open, batch):
            await run_db(actions.finish, batch, BatchState.EXPIRED)
            return
        else:
            await run_db(actions.release, batch)
            return


def checker(endpoint: str, *, refuse_unknown: bool) -> actions.Check:
    """Return a function that checks whether a body is a valid request of the endpoint. It raises LorikeetError."""

    def check(body: Mapping[str, Any]) -> None:
        try:
            read_parameters(BODIES[endpoint], body, refuse_unknown=refuse_unknown)
        except ApiError as error:
            param = f"body.{error.param}" if error.param else "body"
            raise LorikeetError(error.code, error.message, error.fix, param=param) from None

    return check


async def _refuses_unknown(batch: Batch) -> bool:
    tenant = Principal.of_key(batch.api_key).tenant
    return (await runtime().admission_cache.api_settings(tenant)).refuse_unknown_fields


async def _run_lines(batch: Batch) -> bool:
    """Run the lines. Returns True when all have run, False when the batch left the state IN_PROGRESS."""
    running: set[asyncio.Task[None]] = set()
    after, polled_at = 0, asyncio.get_running_loop().time()
    try:
        while True:
            free = config.current().batch_concurrency - len(running)
            lines = await run_db(actions.lines_to_run, batch, after, free) if free else []
            for line in lines:
                running.add(asyncio.create_task(_run_line(batch, line)))
                after = line.number
            if not running:
                return True
            done, running = await asyncio.wait(running, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if (now := asyncio.get_running_loop().time()) > polled_at + POLL_S:
                polled_at = now
                if await run_db(actions.state_of, batch) != BatchState.IN_PROGRESS:
                    return False
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _run_line(batch: Batch, line: BatchLine) -> None:
    """Run one line until it has a result. Failures that pass with time are retried for as long as the batch may run."""
    while True:
        attempt: list[Settled] = []
        request_id = _request_id(batch)
        try:
            body = await _answer(batch, json.loads(line.body), request_id, attempt)
            status, failed = 200, False
        except Exception as error:
            refusal = errors.of(error)
            if refusal.status in PASSING:
                _acknowledge(attempt)  # the attempt produced nothing that is billed
                await asyncio.sleep(min(refusal.retry_after_s or POLL_S, LONGEST_PAUSE_S))
                continue
            body, status, failed = refusal.openai_body(), refusal.status, True
        break
    result = {"response": {"status_code": status, "request_id": request_id, "body": body}, "error": None}
    ended = [one.ended for one in attempt]
    await to_completion(run_db(_keep, batch, line, result, ended, failed))  # before the batch is released
    _acknowledge(attempt)


def _acknowledge(attempt: list[Settled]) -> None:
    for one in attempt:
        if one.reported:
            runtime().usage.acknowledge(one.host, one.engine_id)


def _keep(batch: Batch, line: BatchLine, result: Mapping[str, Any], ended: list[Any], failed: bool) -> bool:
    return actions.keep_result(batch, line, result, ended, failed=failed)


def _request_id(batch: Batch) -> str:
    endpoint = ApiEndpoint(batch.endpoint)
    return request_ids.make(Principal.of_key(batch.api_key), endpoint, streamed=False, batch=True)


async def _answer(batch: Batch, body: Mapping[str, Any], request_id: str, settled: list[Settled]) -> dict[str, Any]:
    """Answer a body as its endpoint would. Raises the errors that the endpoint would answer with."""
    refuse_unknown = await _refuses_unknown(batch)
    request = read_parameters(BODIES[batch.endpoint], body, refuse_unknown=refuse_unknown)
    # The batch's state follows its key and tenant: it ends or pauses, and a line gets no result of that.
    admission = await runtime().admission_cache.admission(
        Principal.of_key(batch.api_key), request.model, checks_again=False
    )
    async with await begin(
        runtime(), admission, request, streamed=False, request_id=request_id, keep=settled.append
    ) as generation:
        if isinstance(request, EmbeddingsRequest):
            embeddings: dict[str, Any] = json.loads(await whole_embeddings(generation, request))
            return embeddings
        prompts = request.prompt_parts()
        return await whole(generation, shape_of(request, prompts), request, prompts)


_runner: BatchRunner | None = None


async def start() -> None:
    """Start the runner: a start-up hook of the web process."""
    global _runner
    _runner = BatchRunner()
    _runner.start()


async def stop() -> None:
    """Stop the runner: a shut-down hook of the web process."""
    global _runner
    if _runner is not None:
        await _runner.close()
        _runner = None
