"""Dispatches one prompt of a client's request to a host, and to another host if that one fails.

A host that drains, breaks or hangs is replaced by the next one, which goes on after the tokens that have come so far:
the caller sees a pause. Where there is no other, one that was lost is waited for, as it may be started again. Whatever
the number of attempts, the request is one row of the ledger and settles its reservation once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from django.db import Error as StorageError
from prometheus_client import Counter

from control_plane.adapters.registry.resolve import ResolvedModel
from control_plane.billing.quotas.reservations import Held
from control_plane.billing.usage import request_ids
from control_plane.billing.usage.actions import Ended
from control_plane.billing.usage.counters import Counts, Details
from control_plane.billing.usage.models import Outcome
from control_plane.core import config
from control_plane.core.errors import LorikeetError
from control_plane.fleet.routing.migration import MOST_MOVES, Lengths, OpenRequest, open_request
from control_plane.fleet.transport import errors
from control_plane.fleet.transport.coalescing import WHOLE, Chunk
from control_plane.fleet.transport.errors import (
    BROKEN,
    CLIENT_TOO_SLOW,
    ELSEWHERE,
    LOST,
    NOT_BACK,
    STANDS_STILL,
    HostError,
)
from control_plane.fleet.transport.plausible import most_output_tokens, most_prompt_tokens
from control_plane.gateway.dispatch.admission import Admission
from control_plane.gateway.dispatch.answer_so_far import AnswerSoFar
from control_plane.gateway.dispatch.errors import ApiError
from control_plane.gateway.dispatch.runtime import Runtime
from control_plane.gateway.recording.spans import report_request
from control_plane.gateway.recording.usage import RequestContext, Settled
from lora_engine.wire import engine_pb2 as pb

if TYPE_CHECKING:
    from control_plane.fleet.transport.engine_client import RequestStream

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 3
"""In a row that brought nothing."""
# A request after which two hosts broke may be the cause.
MAX_BROKEN_HOSTS = 2
# How often a request probes its host within the time after which a host counts as hung.
HANG_PROBES = 4
# How often a request whose host is silent looks whether another takes it.
SILENCE_PROBE_S = 0.5
# How often a request whose host was lost looks whether there is one again.
RETURN_PROBE_S = 0.5
RETRIES = Counter("lorikeet_request_retries", "Requests that were sent to another host, by why.", ["code"])


class HostAttempt:
    """The request on one host. It is over when the engine reported its end, or the host was lost."""

    def __init__(self, dispatch: Dispatch, engine_id: str) -> None:
        self._dispatch = dispatch
        self.engine_id, self.host = engine_id, ""
        self.asked_at = self.sent_at = time.monotonic()
        self.stream: RequestStream | None = None
        self.report: pb.Finished | None = None
        self.is_lost = False

    def finished(self, host: str, finished: pb.Finished) -> None:
        self.host, self.report = host, finished
        self._dispatch.ended(self)

    def lost(self) -> None:
        self.is_lost = True
        self._dispatch.ended(self)

    @property
    def failure(self) -> HostError | None:
        """Why it brought no answer, if it is over and did not."""
        if self.is_lost:
            return errors.disconnected(self.host)
        if self.report is None or self.report.usage.outcome == Outcome.FINISHED:
            return None
        if self.report.usage.outcome == Outcome.ABORTED:
            return errors.stopped(self.host)
        return HostError.from_wire(self.report.error)

    @property
    def asked_for(self) -> Hashable:
        return self._dispatch.asked_for

    async def look_again(self) -> None:
        await self._dispatch.look_again()

    def open_request(self, lengths: Lengths) -> OpenRequest | None:
        return self._dispatch.open_request(self, lengths)

    def move(self, host: str) -> None:
        self._dispatch.move(self, host)

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()


class Dispatch:
    """Iterate for lists of chunks; ``usage`` is set at the end. Leaving it early aborts the request."""

    def __init__(
        self,
        runtime: Runtime,
        admission: Admission,
        context: RequestContext,
        submit: pb.Submit,
        held: Held,
    ) -> None:
        self.usage: pb.UsageRecord | None = None
        self._runtime, self._admission, self._context = runtime, admission, context
        self._submit, self._held = submit, held
        self._attempts: list[HostAttempt] = []
        self._so_far = AnswerSoFar(submit)
        self._first_output_at = 0.0
        self._fruitless = 0  # attempts since the last output
        self._returns_until = 0.0  # how long a host that was lost since the last output is waited for
        self._broken = 0
        self._moves = 0
        self._moves_to = ""  # the host that is to go on with it
        self._hangs_after = config.current().engine_hang_s
        self._gathered: list[Chunk] = []  # of an answer that is handed out as a whole
        self._handed_out = 0  # tokens
        self._began = False  # something was handed out
        self._stopping = False  # the caller stopped or disconnected
        self._settled = False  # the ledger has it, or must not get it

    async def begin(self, *, waits: bool = True) -> None:
        """Send it to a first host, with ``waits`` in its tenant's turn. Raises ``HostError`` if none takes it."""
        await self._send(self._admission.hosts, waits=waits)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Chunk]:
        while True:
            try:
                chunks = await self._read()
            except HostError as failure:
                if await self._go_elsewhere(failure):
                    continue
                if failure.code == CLIENT_TOO_SLOW:
                    self._leave()
                else:
                    self._fail(failure)
                if self._context.model.parts:
                    raise naming_parts(failure, self._context.model) from None
                raise
            if not chunks:
                raise StopAsyncIteration
            self._began = True
            self._handed_out += sum(chunk.tokens for chunk in chunks)
            return chunks

    def abort(self) -> None:
        """Ask for an early end; what was made until then, and its usage, still come."""
        self._stopping = True
        if (stream := self._now.stream) is not None:
            stream.abort()

    def close(self) -> None:
        """The caller is gone. Idempotent; needs no await."""
        if not self._stopping and (failure := self._now.failure) is not None:
            self._fail(failure)  # it had failed, which was not read yet
        self._stopping = True
        self._now.close()

    def give_up(self, failure: HostError) -> None:
        """Another prompt of the same request failed, and the caller is told so."""
        self._fail(failure)
        self.close()

    def retract(self) -> None:
        """The request was refused after all: this is no usage of anybody."""
        if not self._settled:
            self._settled = self._stopping = True
            self._abandon(self._now)

    # -- reading -------------------------------------------------------------------

    @property
    def _now(self) -> HostAttempt:
        return self._attempts[-1]

    async def _read(self) -> list[Chunk]:
        """What is to be handed out next; empty at the end. A stream begins with a token: what comes of a prompt
        before that is told by each host anew."""
        while more := await self._output():
            self._gathered += more
            if self._context.streamed and (self._began or self._so_far.has_begun):
                break
        else:
            self._require_answer()
        chunks, self._gathered = self._gathered, []
        return chunks

    def _require_answer(self) -> None:
        """An engine that stops ends its requests early, unasked."""
        if not self._stopping and (failure := self._now.failure) is not None:
            raise failure

    async def _output(self) -> list[Chunk]:
        """The host's next chunks; of another host if this one hangs."""
        while True:
            chunks = await self._stream.next(self._patience_s())
            if chunks is None:
                if self._moves_to:
                    await self._move()
                elif (failure := self._stands_still()) is not None:
                    await self._go_elsewhere(failure)
                continue
            if chunks:
                self._first_output_at = self._first_output_at or time.monotonic()
                self._runtime.fleet.charge(self._submit, self._so_far.add(chunks))
                self._fruitless, self._returns_until = 0, 0.0
            return chunks

    def _patience_s(self) -> float:
        """How long to wait for output before its host is looked at."""
        if self._moves_to:
            return 0
        return SILENCE_PROBE_S if self._runtime.fleet.is_silent(self._now.host) else self._hangs_after / HANG_PROBES

    def _stands_still(self) -> HostError | None:
        """What keeps its host from going on with it, as it seems from here."""
        fleet, host = self._runtime.fleet, self._now.host
        if fleet.is_silent(host):
            return errors.silent(host)
        return errors.hung(host, self._hangs_after) if fleet.hangs(host) else None

    @property
    def _stream(self) -> RequestStream:
        stream = self._now.stream
        assert stream is not None
        return stream

    # -- moving --------------------------------------------------------------------

    @property
    def asked_for(self) -> Hashable:
        return self._admission.principal.tenant.pk, self._context.model.display_name

    async def look_again(self) -> None:
        await self._hosts(())

    def open_request(self, attempt: HostAttempt, lengths: Lengths) -> OpenRequest | None:
        """What is left of it, for a plan of what moves; None if it stays where it is."""
        submit, stream = self._submit, attempt.stream
        if attempt is not self._now or stream is None or self._moves == MOST_MOVES or not self._can_go_on:
            return None
        if submit.slo.background or submit.prompt_only or submit.HasField("prompt_logprobs"):
            return None
        admission, name = self._admission, self._context.model.display_name
        hosts = self._same(self._runtime.admission_cache.remembered(admission.principal, name), admission.hosts)
        so_far = self._so_far.tokens + stream.tokens_waiting
        return replace(open_request(submit, attempt.host, hosts, so_far, lengths), name=attempt.engine_id)

    def move(self, attempt: HostAttempt, host: str) -> None:
        """Let another host go on with it, once its reader has what came so far."""
        if attempt is self._now and self._can_go_on:
            self._moves_to = host
            self._stream.interrupt()

    async def _move(self) -> None:
        fleet, hosts = self._runtime.fleet, await self._hosts(())  # it may be cordoned since
        if self._stream.hand_out():
            return  # its reader takes that first
        host, self._moves_to = self._moves_to, ""
        if host not in hosts or not (fleet.accepts(host, self._admission.base_digest) and fleet.has_room(host)):
            return  # beyond its room, fair shares over all hosts would have no bound
        if self._so_far.tokens and not (self._so_far.may_go_on and fleet.resumes(host)):
            return
        # The host is connected, so it is asked without a wait: nothing comes of the old one meanwhile.
        if await self._hand_over(errors.moved(self._now.host), (host,)):
            self._moves += 1

    # -- sending -------------------------------------------------------------------

    async def _send(self, hosts: tuple[str, ...], *, goes_on: bool = False, waits: bool = False) -> None:
        engine_id = request_ids.of_attempt(self._submit.request_id, len(self._attempts) + 1)
        attempt = HostAttempt(self, engine_id)
        submit = pb.Submit()  # a copy: the previous attempt may still be in an outbox
        submit.CopyFrom(self._submit)
        submit.request_id = engine_id
        submit.echo_token_ids = True  # another host may have to go on after them
        if goes_on:
            self._so_far.continue_in(submit)
        self._runtime.expect(engine_id, attempt, self._held)
        coalescing = None if self._context.streamed else WHOLE
        name = self._admission.model.display_name
        fleet = self._runtime.fleet
        try:
            host, stream = await fleet.submit(submit, hosts, name, coalescing, waits=waits)
        except BaseException:
            self._runtime.unsent(engine_id)
            raise
        attempt.host, attempt.stream = host, stream
        attempt.sent_at += stream.held_s  # for its tenant's turn
        self._attempts.append(attempt)
        self._moves_to = ""  # which was for the one before

    async def _go_elsewhere(self, failure: HostError) -> bool:
        """Whether another host has it now."""
        if failure.code not in ELSEWHERE:
            return False
        returns = self._may_return(failure)
        # Beside a lost host, others that drain say nothing of the request.
        says_nothing = returns and failure.code in NOT_BACK
        broken, fruitless = self._broken + (failure.code in BROKEN), self._fruitless + (not says_nothing)
        if fruitless == MAX_ATTEMPTS or broken == MAX_BROKEN_HOSTS:
            return False
        hosts = await self._hosts(self._admission.hosts)
        others = self._others(hosts, must_accept=returns or failure.code in STANDS_STILL, tried_too=not says_nothing)
        if await self._hand_over(failure, others) or (returns and await self._wait(failure)):
            self._broken, self._fruitless = broken, fruitless
            return True
        return False

    def _may_return(self, failure: HostError) -> bool:
        """Whether it is worth waiting for a host that takes it."""
        now, returns_s = time.monotonic(), config.current().host_return_s
        if returns_s and (failure.code in LOST or (failure.code in NOT_BACK and self._so_far.tokens > 0)):
            self._returns_until = self._returns_until or now + returns_s
        return now < self._returns_until and failure.code in LOST | NOT_BACK

    async def _wait(self, failure: HostError) -> bool:
        """Whether a host that was started again, or a new one, has it now."""
        fleet, base, lost = self._runtime.fleet, self._admission.base_digest, self._now
        # Now: what its journal says of it when it is back must not be taken for all that there was.
        self._runtime.usage.abandon(lost.host, lost.engine_id, reported=lost.report is not None)
        while time.monotonic() < self._returns_until and self._can_go_on:
            await asyncio.sleep(RETURN_PROBE_S)
            hosts = tuple(host for host in await self._hosts(()) if fleet.accepts(host, base))
            if await self._hand_over(failure, hosts):
                return True
            if self._began and hosts and not any(map(fleet.resumes, hosts)):
                return False  # they are of an older version
        return False

    @property
    def _can_go_on(self) -> bool:
        is_over = self._stopping or self._settled or self._runtime.closing
        return not is_over and (not self._began or self._so_far.may_go_on)

    async def _hand_over(self, failure: HostError, hosts: tuple[str, ...]) -> bool:
        """Whether one of the hosts has it now."""
        previous = self._now
        resuming = tuple(host for host in hosts if self._runtime.fleet.resumes(host))
        goes_on = self._so_far.may_go_on and bool(resuming)
        if not hosts or not self._can_go_on or (self._began and not goes_on):
            return False
        try:
            await self._send(resuming if goes_on else hosts, goes_on=goes_on)
        except HostError:
            return False
        RETRIES.labels(failure.code).inc()
        logger.info("%s goes from %s to %s: %s", previous.engine_id, previous.host, self._now.host, failure)
        if not goes_on:
            self._gathered, self._first_output_at = [], 0.0
            self._so_far.forget()
        self._abandon(previous)
        if self._stopping:  # meanwhile
            self._now.close()
        return True

    async def _hosts(self, otherwise: tuple[str, ...]) -> tuple[str, ...]:
        """That have the content now; `otherwise` if that cannot be looked up."""
        admission, model = self._admission, self._context.model
        try:
            cache = self._runtime.admission_cache
            fresh = await cache.admission(admission.principal, model.display_name, wakes=False)
        except (ApiError, LorikeetError, StorageError):
            return otherwise
        return self._same(fresh, otherwise)

    def _same(self, fresh: Admission | None, otherwise: tuple[str, ...]) -> tuple[str, ...]:
        """Its hosts, if it is about the content of this request."""
        if fresh is None:
            return otherwise
        fresh = fresh.for_request(self._submit.request_id)
        same = fresh.model.digest == self._context.model.digest and fresh.base_digest == self._admission.base_digest
        return fresh.hosts if same else otherwise

    def _others(self, hosts: tuple[str, ...], *, must_accept: bool, tried_too: bool) -> tuple[str, ...]:
        """Untried ones; else any but the last, which may have been started again."""
        fleet, base = self._runtime.fleet, self._admission.base_digest
        others = [host for host in hosts if host != self._now.host]
        if must_accept:
            others = [host for host in others if fleet.accepts(host, base)]
        tried = {attempt.host for attempt in self._attempts}
        untried = [host for host in others if host not in tried]
        return tuple(untried or (others if tried_too else ()))

    def _abandon(self, attempt: HostAttempt) -> None:
        attempt.close()
        self._runtime.usage.abandon(attempt.host, attempt.engine_id, reported=attempt.report is not None)
        self._runtime.ended(attempt.engine_id, 0, 0)

    # -- what becomes of it ----------------------------------------------------------

    def ended(self, attempt: HostAttempt) -> None:
        """An attempt ended. If it failed while its output is being read, the reader decides what follows."""
        report = attempt.report
        if self._settled or attempt is not self._now:
            if report is not None:
                self._runtime.usage.acknowledge(attempt.host, attempt.engine_id)
            self._runtime.ended(attempt.engine_id, 0, 0)
        elif report is not None:
            if self._stopping or report.usage.outcome == Outcome.FINISHED:
                self._settle_as_reported(report)
        elif self._stopping and self._runtime.closing:
            self._settled = True  # the host aborts it when this session ends; its journal tells the ledger
            self._runtime.ended(attempt.engine_id, None, None)
        elif self._stopping or self._runtime.closing:
            self._fail(errors.disconnected(attempt.host))

    def _settle_as_reported(self, report: pb.Finished) -> None:
        self.usage = report.usage
        if report.usage.outcome in (Outcome.FINISHED, Outcome.ABORTED):
            self._settle(report.usage.outcome, self._counts(report.usage), "")
        else:
            self._fail(HostError.from_wire(report.error))

    def _counts(self, usage: pb.UsageRecord) -> Counts:
        """Nobody pays for more than was asked for, whatever a host says."""
        return Counts.of(usage).within(most_prompt_tokens(self._submit), most_output_tokens(self._submit))

    def _leave(self) -> None:
        """The caller's own doing: no failure but an abort, which the engine has reported or will report."""
        self._stopping = True
        if self._now.report is not None and not self._settled:
            self._settle_as_reported(self._now.report)

    def _fail(self, failure: HostError) -> None:
        """The caller is told of a failure: the ledger has it, with the output that the caller received."""
        report = self._now.report
        received = self._handed_out if self._context.streamed else 0
        counts = self._counts(report.usage) if report is not None else Counts()
        refused = report is not None and report.usage.outcome == Outcome.REFUSED
        self._settle(Outcome.REFUSED if refused else Outcome.FAILED, counts.billed_for(received), failure.code)

    def _timed(self, counts: Counts) -> Counts:
        """With the time that it waited for its turn, and was on others: one may have brought the first token."""
        if self._first_output_at and self._first_output_at < self._now.sent_at:
            first_ms = round((self._first_output_at - self._attempts[0].asked_at) * 1000)
            return counts.resumed(first_ms, round((time.monotonic() - self._first_output_at) * 1000))
        return counts.after(round((self._now.sent_at - self._attempts[0].asked_at) * 1000))

    def _details(self) -> Details:
        known = self._context.details
        if (report := self._now.report) is not None:
            waited_ms = round((self._now.sent_at - self._attempts[0].asked_at) * 1000)
            told = Details.of(report.usage).after(waited_ms)
            if len(self._attempts) > 1:  # choices that ended on an earlier host are not in the last one's report
                told = told.ended_for(self._so_far.finish_reasons)
            return replace(told, auth_ms=known.auth_ms, quota_ms=known.quota_ms)
        return known

    def _settle(self, outcome: str, counts: Counts, error_code: str) -> None:
        """Once: into the ledger, and the reservation."""
        if self._settled:
            return
        self._settled = True
        current, context, principal = self._now, self._context, self._context.principal
        ended = Ended(
            request_id=self._submit.request_id,
            tenant=principal.tenant,
            api_key=principal.api_key,
            user=principal.user,
            adapter=context.model.adapter,
            version=context.model.version,
            base_model_id=self._admission.base_model_id,
            model=context.model.recorded_name,
            endpoint=context.endpoint,
            streamed=context.streamed,
            batch=context.keep is not None,
            host=current.host,
            outcome=outcome,
            error_code=error_code,
            created_at=context.created_at,
            counts=self._timed(counts),
            details=self._details(),
        )
        report_request(ended, context.trace_parent)
        reported = current.report is not None
        if context.keep is not None:
            context.keep(Settled(current.host, current.engine_id, ended, reported))
        else:
            self._runtime.usage.put(current.host, current.engine_id, ended, reported=reported)
        prompt, cached, completion = counts.prompt_tokens, counts.cached_prompt_tokens, counts.completion_tokens
        cost = self._admission.budgets.nanos(
            self._admission.base_model_id,
            prompt=prompt,
            cached=cached,
            completion=completion,
            batch=context.keep is not None,
        )
        self._runtime.ended(current.engine_id, prompt + completion, cost)
        if outcome == Outcome.FINISHED:
            self._runtime.migrator.ended(self._submit, completion)


def naming_parts(failure: HostError, model: ResolvedModel) -> HostError:
    """An engine knows the adapters that a request combines by their digests only."""
    message = failure.message
    for version in model.versions:
        message = message.replace(version.digest[:19], f'"{version.adapter.name}@v{version.number}"')
    return replace(failure, message=message)
