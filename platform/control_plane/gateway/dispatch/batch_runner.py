"""Runs batches in the web processes, whose sessions to the engines and whose way of answering they share.

Each process takes batches that nobody runs, a line at a time per place: `LORIKEET_BATCH_CONCURRENCY` of them for each
batch. The engines run them when nobody else's request waits. A process that dies loses its claims, and another goes on
with the lines that have no result: result and usage of a line are stored together, once.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
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
from control_plane.gateway.openai.parameters import checked, read_parameters
from control_plane.gateway.openai.response_writers import whole
from control_plane.gateway.openai.serving import shape_of
from control_plane.gateway.recording.usage import Settled
from control_plane.identity.access.principal import Principal

logger = logging.getLogger(__name__)

LOOK_S = 2.0
"""How soon a batch is found, a cancelled one noticed, and one that failed for a reason of ours tried again."""
MOST_BATCHES = 4
"""In one process."""
LONGEST_PAUSE_S = 60.0
PASSING = (402, 429, 503, 507)
"""What a line that is answered so waits for: limits, and hosts or servers behind this one that are full or away."""
Line = ChatCompletionRequest | CompletionRequest | EmbeddingsRequest
READERS: Mapping[str, Callable[[Mapping[str, Any]], Line]] = {
    ApiEndpoint.CHAT: partial(read_parameters, ChatCompletionRequest),
    ApiEndpoint.COMPLETIONS: partial(read_parameters, CompletionRequest),
    ApiEndpoint.EMBEDDINGS: partial(checked, EmbeddingsRequest),
}
"""What may be in a batch, and what reads a body of it. Raises ``ApiError``."""


class BatchRunner:
    """Of one event loop."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._loop = asyncio.create_task(self._look(), name="batches")

    async def close(self) -> None:
        """Lines that run are aborted, and run again elsewhere."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.wait([self._loop])  # and every batch that it claimed has begun, so that it is released
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _look(self) -> None:
        while True:
            try:
                while not drain.is_draining() and len(self._running) < MOST_BATCHES:
                    batch = await to_completion(run_db(actions.claim_next), undo=_release)
                    if batch is None:
                        break
                    task = asyncio.create_task(_run(batch), name=str(batch))
                    self._running.add(task)
                    task.add_done_callback(self._running.discard)
            except Exception as error:
                logger.warning("Batches could not be looked for: %s", error)
            await asyncio.sleep(LOOK_S)


async def _run(batch: Batch) -> None:
    """One batch, as long as its claim holds."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    cancel = task.cancel
    with claims.keep(batch, lambda: loop.call_soon_threadsafe(cancel)):
        try:
            await _go_on(batch)
        except claims.ClaimLostError:
            logger.warning("%s is run by another process.", batch)
        except asyncio.CancelledError:
            await to_completion(run_db(actions.release, batch))
            raise
        except Exception:
            logger.exception("%s is tried again.", batch)
            try:
                await asyncio.sleep(LOOK_S)
            finally:
                await to_completion(run_db(actions.release, batch))


async def _release(batch: Batch | None) -> None:
    if batch is not None:
        await run_db(actions.release, batch)


async def _go_on(batch: Batch) -> None:
    while True:
        state = await run_db(actions.state_of, batch)
        if state == BatchState.VALIDATING:
            await run_db(actions.validate, batch, checker(batch.endpoint))
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


def checker(endpoint: str) -> actions.Check:
    """What says whether a body is a request of the endpoint. Raises LorikeetError."""

    def check(body: Mapping[str, Any]) -> None:
        try:
            READERS[endpoint](body)
        except ApiError as error:
            param = f"body.{error.param}" if error.param else "body"
            raise LorikeetError(error.code, error.message, error.fix, param=param) from None

    return check


async def _run_lines(batch: Batch) -> bool:
    """Whether all have run; False when the batch is to do something else."""
    running: set[asyncio.Task[None]] = set()
    after, looked = 0, asyncio.get_running_loop().time()
    try:
        while True:
            free = config.current().batch_concurrency - len(running)
            lines = await run_db(actions.lines_to_run, batch, after, free) if free else []
            for line in lines:
                running.add(asyncio.create_task(_run_line(batch, line)))
                after = line.number
            if not running:
                return True
            done, running = await asyncio.wait(running, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if (now := asyncio.get_running_loop().time()) > looked + LOOK_S:
                looked = now
                if await run_db(actions.state_of, batch) != BatchState.IN_PROGRESS:
                    return False
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _run_line(batch: Batch, line: BatchLine) -> None:
    """Until it has a result: what passes with time is waited for, as long as the batch may run."""
    while True:
        attempt: list[Settled] = []
        request_id = _request_id(batch)
        try:
            body = await _answer(batch, json.loads(line.body), request_id, attempt)
            status, failed = 200, False
        except Exception as error:
            told = errors.of(error)
            if told.status in PASSING:
                _acknowledge(attempt)  # it made nothing that anybody is billed for
                await asyncio.sleep(min(told.retry_after_s or LOOK_S, LONGEST_PAUSE_S))
                continue
            body, status, failed = told.openai_body(), told.status, True
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
    """As the endpoint would answer. Raises what it would tell."""
    asked = READERS[batch.endpoint](body)
    admission = await runtime().admission_cache.admission(Principal.of_key(batch.api_key), asked.model)
    async with await begin(
        runtime(), admission, asked, streamed=False, request_id=request_id, keep=settled.append
    ) as generation:
        if isinstance(asked, EmbeddingsRequest):
            found: dict[str, Any] = json.loads(await whole_embeddings(generation, asked))
            return found
        prompts = asked.prompt_parts()
        return await whole(generation, shape_of(asked, prompts), asked, prompts)


_runner: BatchRunner | None = None


async def start() -> None:
    """A start-up hook of the web process."""
    global _runner
    _runner = BatchRunner()
    _runner.start()


async def stop() -> None:
    """Its shut-down hook."""
    global _runner
    if _runner is not None:
        await _runner.close()
        _runner = None
