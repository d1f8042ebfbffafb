"""Dispatches one prompt of a client's request to a host, and to another host if that one fails.

When a host drains, breaks or hangs, the next one continues after the tokens received so far: the caller sees a pause.
If there is no other host, the request waits for a lost one, which may be restarted, or for one of a base model that
sleeps. Whatever the number of attempts, the request is one row of the ledger and settles its reservation once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Hashable
from contextlib import suppress
from dataclasses import replace
from typing import Self

from django.db import Error as StorageError
from prometheus_client import Counter

from control_plane.adapters.registry.resolve import ResolvedModel
from control_plane.billing.quotas.reservations import RequestReservations
from control_plane.billing.usage import request_ids
from control_plane.billing.usage.models import Outcome
from control_plane.core import config
from control_plane.core.errors import LorikeetError
from control_plane.fleet.routing.migration import MAX_MOVES, Lengths, OpenRequest, open_request
from control_plane.fleet.transport import errors
from control_plane.fleet.transport.coalescing import WHOLE, Chunk
from control_plane.fleet.transport.errors import CLIENT_TOO_SLOW, HostError
from control_plane.gateway.dispatch.admission import Admission
from control_plane.gateway.dispatch.answer_checks import AnswerChecks
from control_plane.gateway.dispatch.answer_so_far import AnswerSoFar
from control_plane.gateway.dispatch.errors import ApiError
from control_plane.gateway.dispatch.retry_policy import RetryPolicy
from control_plane.gateway.dispatch.runtime import Runtime
from control_plane.gateway.dispatch.settlement import EngineAttempt, Settlement
from control_plane.gateway.recording.transcripts import TranscriptBuffer
from control_plane.gateway.recording.usage import RequestContext
from lora_engine.wire import engine_pb2 as pb

logger = logging.getLogger(__name__)

# Probes of a request's host within the time after which a host counts as hung.
HANG_PROBES = 4
# Seconds between checks for another host while the request's host is silent.
SILENCE_PROBE_S = 0.5
# Seconds between checks for a host after the request's host was lost or went to sleep.
RETURN_PROBE_S = 0.5
# HTTP status of a model name that stands for nothing.
NOT_FOUND = 404
RETRIES = Counter("lorikeet_request_retries", "Requests that were sent to another host, by why.", ["code"])


class Dispatch:
    """A prompt that is being answered. Iterate over it for lists of chunks; ``usage`` is set at the end.

    Leaving the iteration early aborts the request.
    """

    # The attempt whose output is read; set by `send`.
    _attempt: EngineAttempt

    def __init__(
        self,
        runtime: Runtime,
        admission: Admission,
        context: RequestContext,
        submit: pb.Submit,
        reserved: RequestReservations,
    ) -> None:
        self._runtime, self._admission, self._context = runtime, admission, context
        self._submit, self._reserved = submit, reserved
        self._so_far = AnswerSoFar(submit)
        self._retries = RetryPolicy(may_sleep=admission.sleeper is not None)
        self._settlement = Settlement(runtime, admission, context, submit, self._so_far)
        schemas = context.schemas
        self._checks: AnswerChecks | None = None
        if schemas is not None:
            self._checks = AnswerChecks(schemas, runtime.constraint_checks, str(admission.principal.tenant.pk))
        self.transcript: TranscriptBuffer | None = None  # receives the text, for tenants that record it
        self._tried: list[str] = []  # the host of each attempt
        self._moves = 0
        self._moves_to = ""  # the host that is to continue the request
        self._refusal: HostError | None = None  # why a wait for a host ended before one was there
        self._gathered: list[Chunk] = []  # chunks that are not handed out yet
        self._began = False  # some output was handed out
        self._stopping = False  # the caller stopped or disconnected

    @property
    def usage(self) -> pb.UsageRecord | None:
        return self._settlement.usage

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Chunk]:
        """Return the next chunks of the host, or of another one if it fails.

        A stream starts with a token: data about the prompt that comes before it is kept back, because each host sends
        it again.
        """
        while True:
            try:
                chunks = await self._attempt.stream.take(self._patience_s())
                if chunks is not None and not chunks:
                    self._require_answer()
            except HostError as failure:
                if await self._send_without(failure) or await self._fail_over(failure):
                    continue
                raise self._failed(self._refusal or failure) from None
            if chunks is None:
                await self._check_host()
                continue
            if chunks:
                self._settlement.first_output_at = self._settlement.first_output_at or time.monotonic()
                self._runtime.fleet.charge(self._submit, self._so_far.add(chunks))
                self._retries.on_output(self._so_far.tokens)
                self._gathered += chunks
                if not (self._context.streamed and (self._began or self._so_far.has_begun)):
                    continue
            if not self._gathered:
                self._record_checks()
                raise StopAsyncIteration
            self._began = True
            ready, self._gathered = self._gathered, []
            if self._checks is not None:
                await self._checks.add(ready)
            if self._context.streamed:
                self._settlement.received += sum(chunk.tokens for chunk in ready)
            if self.transcript is not None:
                self.transcript.add(ready)
            return ready

    def abort(self) -> None:
        """Ask for an early end; the tokens made until then, and their usage, still arrive."""
        self._stopping = True
        self._attempt.stream.abort()

    def close(self) -> None:
        """Abort the request, as the caller has left. Idempotent; does not await."""
        if not self._stopping and (failure := self._attempt.failure) is not None:
            self._settlement.fail(self._attempt, failure)  # it failed before the caller left: that is no abort
        self._stopping = True
        self._attempt.stream.close()
        self._record_checks()
        if self.transcript is not None:
            self._runtime.transcripts.put(self.transcript)

    def give_up(self, failure: HostError) -> None:
        """Fail this prompt, because another prompt of the same request failed."""
        self._settlement.fail(self._attempt, failure)
        self.close()

    def _record_checks(self) -> None:
        self._settlement.checked(tuple(self._checks.violated) if self._checks is not None else ())

    def retract(self) -> None:
        """Drop the request without recording usage: it was refused after admission."""
        if not self._settlement.done:
            self._settlement.done = self._stopping = True
            self._abandon(self._attempt)

    # -- the host of the request ---------------------------------------------------

    def _patience_s(self) -> float:
        """Return the seconds to wait for output before the host is checked."""
        if self._moves_to:
            return 0
        if self._runtime.fleet.is_silent(self._attempt.stream.host):
            return SILENCE_PROBE_S
        return config.current().engine_hang_s / HANG_PROBES

    async def _check_host(self) -> None:
        """Continue on another host if a move is planned, or this one is silent or hangs."""
        fleet, host = self._runtime.fleet, self._attempt.stream.host
        if self._moves_to:
            await self._move()
        elif fleet.is_silent(host):
            await self._fail_over(errors.silent(host))
        elif fleet.hangs(host):
            await self._fail_over(errors.hung(host, config.current().engine_hang_s))

    def _require_answer(self) -> None:
        """Raise the attempt's failure, if any: a stopping engine ends its requests early without an abort by the
        caller.
        """
        if not self._stopping and (failure := self._attempt.failure) is not None:
            raise failure

    def _failed(self, failure: HostError) -> HostError:
        """Record a failure after which no host continues, and return it for the caller."""
        if failure.code == CLIENT_TOO_SLOW:  # the caller caused the end: its report, now or later, is an abort
            self._stopping = True
            if self._attempt.report is not None and not self._settlement.done:
                self._settlement.as_reported(self._attempt)
        else:
            self._settlement.fail(self._attempt, failure)
        model = self._admission.model
        return naming_parts(failure, model) if model.parts else failure

    # -- moving --------------------------------------------------------------------

    @property
    def model_key(self) -> Hashable:
        return self._admission.principal.tenant.pk, self._admission.model.display_name

    async def refresh_hosts(self) -> None:
        await self._hosts_now(())

    def open_request(self, engine_id: str, lengths: Lengths) -> OpenRequest | None:
        """Describe the remaining work for a migration plan; None if the request must stay where it is."""
        submit, stream = self._submit, self._attempt.stream
        if engine_id != stream.request_id or self._moves == MAX_MOVES or not self._can_go_on:
            return None
        if submit.slo.background or submit.prompt_only or submit.HasField("prompt_logprobs"):
            return None
        admission = self._admission
        cached = self._runtime.admission_cache.remembered(admission.principal, admission.model.display_name)
        fresh = self._same(cached) if cached is not None else None
        hosts = admission.hosts if fresh is None else fresh
        so_far = self._so_far.tokens + stream.tokens
        return replace(open_request(submit, stream.host, hosts, so_far, lengths), name=engine_id)

    def move(self, engine_id: str, host: str) -> None:
        """Let another host continue the request, after the caller received the output so far."""
        if engine_id == self._attempt.stream.request_id and self._can_go_on:
            self._moves_to = host
            self._attempt.stream.interrupt()

    async def _move(self) -> None:
        fleet, hosts = self._runtime.fleet, await self._hosts_now(())  # queried anew: the host may be cordoned by now
        if self._attempt.stream.hand_out():
            return  # the reader takes this output first
        host, self._moves_to = self._moves_to, ""
        if host not in hosts or not (fleet.accepts(host, self._admission.base_digest) and fleet.has_room(host)):
            return  # beyond a host's capacity, fair shares over all hosts would be unbounded
        if self._so_far.tokens and not (self._so_far.may_go_on and fleet.resumes(host)):
            return
        # The host is connected, so submitting does not wait: the old host's output is not held up.
        if await self._hand_over(errors.moved(self._attempt.stream.host), (host,)):
            self._moves += 1

    # -- sending -------------------------------------------------------------------

    async def send(self, hosts: tuple[str, ...], *, goes_on: bool = False, waits: bool = False) -> None:
        """Send the request to one of the hosts, with ``waits`` through its tenant's queue, with ``goes_on`` to continue
        the answer so far. Raises ``HostError`` if no host accepts it.
        """
        engine_id = request_ids.of_attempt(self._submit.request_id, len(self._tried) + 1)
        submit = pb.Submit()  # a copy: the previous attempt may still be in an outbox
        submit.CopyFrom(self._submit)
        submit.request_id = engine_id
        submit.echo_token_ids = True  # another host may have to continue after them
        if goes_on:
            self._so_far.continue_in(submit)
        began, coalescing = time.monotonic(), None if self._context.streamed else WHOLE
        self._settlement.started_at = self._settlement.started_at or began
        self._runtime.expect(engine_id, self, self._reserved)
        try:
            stream = await self._runtime.fleet.submit(
                submit,
                hosts,
                self._admission.model.display_name,
                coalescing,
                waits=waits,
                after_wait=self._check_again,
            )
        except BaseException:
            self._runtime.unsent(engine_id)
            raise
        self._attempt = EngineAttempt(stream, began + stream.queued_s)
        self._tried.append(stream.host)
        self._moves_to = ""  # it named the previous attempt's destination

    async def begin(self, *, waits: bool) -> None:
        """Send the request to its first host; wait for a host if the base model fell asleep after the admission.

        Raises ``HostError`` if no host accepts it.
        """
        try:
            await self.send(self._admission.hosts, waits=waits)
        except HostError as failure:
            retry = self._retries.retry(failure, 0)
            if retry is None or not retry.waits:
                raise
            async for hosts in self._returned_hosts():
                with suppress(HostError):
                    await self.send(hosts, waits=waits)
                    return
            raise self._refusal or failure from None

    async def _send_without(self, failure: HostError) -> bool:
        """Send the request again without the parameter at fault, if it is one that the model's chat template may lack.

        Only the engine knows the template. Returns whether a host accepted the request.
        """
        sent_as = self._context.optional.get(failure.param or "")
        if sent_as is None or self._so_far.tokens or not _left_out(self._submit.chat, failure.param):
            return False
        if not await self._hand_over(failure, self._admission.hosts):
            return False
        self._context.ignored.append(sent_as)
        return True

    async def _fail_over(self, failure: HostError) -> bool:
        """Send the request to another host. Returns whether one accepted it."""
        retry = self._retries.retry(failure, self._so_far.tokens)
        if retry is None:
            return False
        hosts = await self._hosts_now(self._admission.hosts)
        others = self._others(hosts, must_accept=retry.must_accept, repeats=retry.repeats)
        if await self._hand_over(failure, others) or (retry.waits and await self._wait(failure)):
            self._retries.on_accepted(retry)
            return True
        return False

    async def _wait(self, failure: HostError) -> bool:
        """Wait for a restarted or a new host. Returns whether one accepted the request."""
        fleet, lost = self._runtime.fleet, self._attempt
        # Abandon it now: the journal of the returning host must not be recorded as the whole usage.
        self._runtime.usage.abandon(lost.stream.host, lost.stream.request_id, reported=lost.report is not None)
        async for hosts in self._returned_hosts():
            if await self._hand_over(failure, hosts):
                return True
            if self._began and not any(map(fleet.resumes, hosts)):
                return False  # an older version of the engine, which cannot continue an answer
        return False

    async def _returned_hosts(self) -> AsyncIterator[tuple[str, ...]]:
        """Yield the hosts that accept the request, whenever there are some, as long as they may return or wake."""
        fleet, base = self._runtime.fleet, self._admission.base_digest
        while self._retries.may_wait() and self._can_go_on:
            await asyncio.sleep(RETURN_PROBE_S)
            try:
                # The query also records the demand for a base model that sleeps.
                hosts = tuple(host for host in await self._check_again() if fleet.accepts(host, base))
            except HostError as refusal:
                self._refusal = refusal
                return
            if hosts:
                yield hosts

    async def _check_again(self) -> tuple[str, ...]:
        """Return the hosts that have the content after a wait.

        Raises ``HostError`` if the content was deleted meanwhile, or if the caller lost its access and no output has
        arrived: requests that run are finished. A batch follows its key and tenant by its own state.
        """
        cache, principal = self._runtime.admission_cache, self._admission.principal
        try:
            if not self._so_far.tokens and self._context.keep is None:
                await cache.check_again(principal)
            return await self._hosts_now((), raises_gone=True)
        except LorikeetError as error:
            raise HostError(error.code, error.message, error.fix, error.param or "") from None

    @property
    def _can_go_on(self) -> bool:
        is_over = self._stopping or self._settlement.done or self._runtime.closing
        return not is_over and (not self._began or self._so_far.may_go_on)

    async def _hand_over(self, failure: HostError, hosts: tuple[str, ...]) -> bool:
        """Submit the request to one of the hosts. Returns whether one accepted it."""
        previous = self._attempt
        resuming = tuple(host for host in hosts if self._runtime.fleet.resumes(host))
        goes_on = self._so_far.may_go_on and bool(resuming)
        if not hosts or not self._can_go_on or (self._began and not goes_on):
            return False
        try:
            await self.send(resuming if goes_on else hosts, goes_on=goes_on)
        except HostError:
            return False
        RETRIES.labels(failure.code).inc()
        old, new = previous.stream, self._attempt.stream
        logger.info("%s goes from %s to %s: %s", old.request_id, old.host, new.host, failure)
        if not goes_on:
            self._gathered, self._settlement.first_output_at = [], 0.0
            self._so_far.forget()
        self._abandon(previous)
        if self._stopping:  # set during the await above
            new.close()
        return True

    async def _hosts_now(self, otherwise: tuple[str, ...], *, raises_gone: bool = False) -> tuple[str, ...]:
        """Return the hosts that have the content now; `otherwise` if the query fails.

        With ``raises_gone`` raises LorikeetError (404) if the content was deleted.
        """
        principal, model = self._admission.principal, self._admission.model
        gone: LorikeetError | None = None
        for name in dict.fromkeys((model.display_name, model.pinned_name)):  # an alias may have moved meanwhile
            try:
                fresh = await self._runtime.admission_cache.admission(principal, name, wakes=False, checks_again=False)
            except LorikeetError as error:
                gone = error if error.status == NOT_FOUND else None
                continue
            except (ApiError, StorageError):
                gone = None
                continue
            if (hosts := self._same(fresh)) is not None:
                return hosts
        if gone is not None and raises_gone:
            raise gone
        return otherwise

    def _same(self, fresh: Admission) -> tuple[str, ...] | None:
        """Return the hosts of a fresh admission; None if it is for other content than this request."""
        fresh, admission = fresh.for_request(self._submit.request_id), self._admission
        same = fresh.model.digest == admission.model.digest and fresh.base_digest == admission.base_digest
        return fresh.hosts if same else None

    def _others(self, hosts: tuple[str, ...], *, must_accept: bool, repeats: bool) -> tuple[str, ...]:
        """Return untried hosts; if there are none, with ``repeats`` any but the last, which may have been restarted."""
        fleet, base = self._runtime.fleet, self._admission.base_digest
        others = [host for host in hosts if host != self._tried[-1]]
        if must_accept:
            others = [host for host in others if fleet.accepts(host, base)]
        untried = [host for host in others if host not in self._tried]
        return tuple(untried or (others if repeats else ()))

    def _abandon(self, attempt: EngineAttempt) -> None:
        attempt.stream.close()
        engine_id = attempt.stream.request_id
        self._runtime.usage.abandon(attempt.stream.host, engine_id, reported=attempt.report is not None)
        self._runtime.ended(engine_id, 0, 0)

    # -- the end of an attempt -----------------------------------------------------

    def finished(self, host: str, report: pb.Finished) -> None:
        """Take the engine's report of an attempt's end. If it failed, the reader decides what follows."""
        attempt = self._attempt
        if report.request_id == attempt.stream.request_id:
            attempt.report = report
        if self._settlement.done or attempt.report is not report:
            self._runtime.usage.acknowledge(host, report.request_id)
            self._runtime.ended(report.request_id, 0, 0)
        elif self._stopping or report.usage.outcome == Outcome.FINISHED:
            self._settlement.as_reported(attempt)

    def lost(self, engine_id: str) -> None:
        """Take the loss of an attempt's host."""
        attempt, is_current = self._attempt, engine_id == self._attempt.stream.request_id
        attempt.is_lost = attempt.is_lost or is_current
        if self._settlement.done or not is_current:
            self._runtime.ended(engine_id, 0, 0)
        elif self._stopping and self._runtime.closing:
            self._settlement.done = True  # the host aborts it when this session ends; its journal reaches the ledger
            self._runtime.ended(engine_id, None, None)
        elif self._stopping or self._runtime.closing:
            self._settlement.fail(attempt, errors.disconnected(attempt.stream.host))


def _left_out(chat: pb.Chat, param: str) -> bool:
    """Remove an optional parameter of a chat; returns False if it was not set."""
    if param == "reasoning_effort":
        was_set = bool(chat.reasoning_effort)
        chat.reasoning_effort = ""
        return was_set
    kwargs = json.loads(chat.template_kwargs or "{}")
    was_set = kwargs.pop(param.partition(".")[2], None) is not None
    chat.template_kwargs = json.dumps(kwargs) if kwargs else ""
    return was_set


def naming_parts(failure: HostError, model: ResolvedModel) -> HostError:
    """Replace digests in an engine's error by adapter names: an engine knows combined adapters by digest only."""
    message = failure.message
    for version in model.versions:
        message = message.replace(version.digest[:19], f'"{version.adapter.name}@v{version.number}"')
    return replace(failure, message=message)
