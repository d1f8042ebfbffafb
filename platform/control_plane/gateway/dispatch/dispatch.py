"""Dispatches one prompt of a client's request to a host, and to another host if that one fails.

When a host drains, breaks or hangs, the next one continues after the tokens received so far: the caller sees a pause.
If there is no other host, the request waits for a lost one, which may be restarted. Whatever the number of attempts,
the request is one row of the ledger and settles its reservation once.
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

# Attempts in a row that delivered no token before the request fails.
MAX_ATTEMPTS = 3
# Hosts that broke while they ran a request before it fails: the request itself may be the cause.
MAX_BROKEN_HOSTS = 2
# Probes of a request's host within the time after which a host counts as hung.
HANG_PROBES = 4
# Seconds between checks for another host while the request's host is silent.
SILENCE_PROBE_S = 0.5
# Seconds between checks for a host after the request's host was lost.
RETURN_PROBE_S = 0.5
RETRIES = Counter("lorikeet_request_retries", "Requests that were sent to another host, by why.", ["code"])


class HostAttempt:
    """The request on one host. The attempt is over when the engine reported its end, or the host was lost."""

    def __init__(self, dispatch: Dispatch, engine_id: str) -> None:
        self._dispatch = dispatch
        self.engine_id, self.host = engine_id, ""
        self.started_at = self.sent_at = time.monotonic()
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
        """The error of an attempt that ended without an answer, or None."""
        if self.is_lost:
            return errors.disconnected(self.host)
        if self.report is None or self.report.usage.outcome == Outcome.FINISHED:
            return None
        if self.report.usage.outcome == Outcome.ABORTED:
            return errors.stopped(self.host)
        return HostError.from_wire(self.report.error)

    @property
    def model_key(self) -> Hashable:
        return self._dispatch.model_key

    async def refresh_hosts(self) -> None:
        await self._dispatch.refresh_hosts()

    def open_request(self, lengths: Lengths) -> OpenRequest | None:
        return self._dispatch.open_request(self, lengths)

    def move(self, host: str) -> None:
        self._dispatch.move(self, host)

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()


class Dispatch:
    """A prompt that is being answered. Iterate over it for lists of chunks; ``usage`` is set at the end.

    Leaving the iteration early aborts the request.
    """

    def __init__(
        self,
        runtime: Runtime,
        admission: Admission,
        context: RequestContext,
        submit: pb.Submit,
        reserved: Held,
    ) -> None:
        self.usage: pb.UsageRecord | None = None
        self._runtime, self._admission, self._context = runtime, admission, context
        self._submit, self._reserved = submit, reserved
        self._attempts: list[HostAttempt] = []
        self._so_far = AnswerSoFar(submit)
        self._first_output_at = 0.0
        self._fruitless = 0  # attempts since the last output
        self._returns_until = 0.0  # monotonic time until which a lost host is waited for; reset by output
        self._broken = 0
        self._moves = 0
        self._moves_to = ""  # the host that is to continue the request
        self._hangs_after = config.current().engine_hang_s
        self._gathered: list[Chunk] = []  # of an answer that is returned as a whole
        self._handed_out = 0  # tokens
        self._began = False  # some output was handed out
        self._stopping = False  # the caller stopped or disconnected
        self._settled = False  # the ledger has the request, or must not record it

    async def begin(self, *, waits: bool = True) -> None:
        """Send the request to a first host, with ``waits`` through its tenant's queue. Raises ``HostError`` if no host
        accepts it.
        """
        await self._send(self._admission.hosts, waits=waits)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Chunk]:
        while True:
            try:
                chunks = await self._read()
            except HostError as failure:
                if await self._fail_over(failure):
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
        """Ask for an early end; the tokens made until then, and their usage, still arrive."""
        self._stopping = True
        if (stream := self._now.stream) is not None:
            stream.abort()

    def close(self) -> None:
        """Abort the request, as the caller has left. Idempotent; does not await."""
        if not self._stopping and (failure := self._now.failure) is not None:
            self._fail(failure)  # the attempt failed before the caller left; record that, not an abort
        self._stopping = True
        self._now.close()

    def give_up(self, failure: HostError) -> None:
        """Fail this prompt, because another prompt of the same request failed."""
        self._fail(failure)
        self.close()

    def retract(self) -> None:
        """Drop the request without recording usage: it was refused after admission."""
        if not self._settled:
            self._settled = self._stopping = True
            self._abandon(self._now)

    # -- reading -------------------------------------------------------------------

    @property
    def _now(self) -> HostAttempt:
        return self._attempts[-1]

    async def _read(self) -> list[Chunk]:
        """Return the next chunks for the caller; empty at the end. A stream starts with a token: data about the prompt
        that comes before it is held back, because each host sends it again.
        """
        while more := await self._output():
            self._gathered += more
            if self._context.streamed and (self._began or self._so_far.has_begun):
                break
        else:
            self._require_answer()
        chunks, self._gathered = self._gathered, []
        return chunks

    def _require_answer(self) -> None:
        """Raise the attempt's failure, if any: a stopping engine ends its requests early without an abort by the
        caller.
        """
        if not self._stopping and (failure := self._now.failure) is not None:
            raise failure

    async def _output(self) -> list[Chunk]:
        """Return the host's next chunks, or those of another host if this one hangs."""
        while True:
            chunks = await self._stream.next(self._patience_s())
            if chunks is None:
                if self._moves_to:
                    await self._move()
                elif (failure := self._stall()) is not None:
                    await self._fail_over(failure)
                continue
            if chunks:
                self._first_output_at = self._first_output_at or time.monotonic()
                self._runtime.fleet.charge(self._submit, self._so_far.add(chunks))
                self._fruitless, self._returns_until = 0, 0.0
            return chunks

    def _patience_s(self) -> float:
        """Return the seconds to wait for output before the host is checked."""
        if self._moves_to:
            return 0
        return SILENCE_PROBE_S if self._runtime.fleet.is_silent(self._now.host) else self._hangs_after / HANG_PROBES

    def _stall(self) -> HostError | None:
        """Return the error if the host is silent or hangs, else None."""
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
    def model_key(self) -> Hashable:
        return self._admission.principal.tenant.pk, self._context.model.display_name

    async def refresh_hosts(self) -> None:
        await self._hosts(())

    def open_request(self, attempt: HostAttempt, lengths: Lengths) -> OpenRequest | None:
        """Describe the remaining work for a migration plan; None if the request must stay where it is."""
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
        """Let another host continue the request, after the caller received the output so far."""
        if attempt is self._now and self._can_go_on:
            self._moves_to = host
            self._stream.interrupt()

    async def _move(self) -> None:
        fleet, hosts = self._runtime.fleet, await self._hosts(())  # queried anew: the host may be cordoned by now
        if self._stream.hand_out():
            return  # the reader takes this output first
        host, self._moves_to = self._moves_to, ""
        if host not in hosts or not (fleet.accepts(host, self._admission.base_digest) and fleet.has_room(host)):
            return  # beyond a host's capacity, fair shares over all hosts would be unbounded
        if self._so_far.tokens and not (self._so_far.may_go_on and fleet.resumes(host)):
            return
        # The host is connected, so submitting does not wait: the old host's output is not held up.
        if await self._hand_over(errors.moved(self._now.host), (host,)):
            self._moves += 1

    # -- sending -------------------------------------------------------------------

    async def _send(self, hosts: tuple[str, ...], *, goes_on: bool = False, waits: bool = False) -> None:
        engine_id = request_ids.of_attempt(self._submit.request_id, len(self._attempts) + 1)
        attempt = HostAttempt(self, engine_id)
        submit = pb.Submit()  # a copy: the previous attempt may still be in an outbox
        submit.CopyFrom(self._submit)
        submit.request_id = engine_id
        submit.echo_token_ids = True  # another host may have to continue after them
        if goes_on:
            self._so_far.continue_in(submit)
        self._runtime.expect(engine_id, attempt, self._reserved)
        coalescing = None if self._context.streamed else WHOLE
        name = self._admission.model.display_name
        fleet = self._runtime.fleet
        try:
            host, stream = await fleet.submit(submit, hosts, name, coalescing, waits=waits)
        except BaseException:
            self._runtime.unsent(engine_id)
            raise
        attempt.host, attempt.stream = host, stream
        attempt.sent_at += stream.held_s  # the time in its tenant's queue
        self._attempts.append(attempt)
        self._moves_to = ""  # it named the previous attempt's destination

    async def _fail_over(self, failure: HostError) -> bool:
        """Send the request to another host. Returns whether one accepted it."""
        if failure.code not in ELSEWHERE:
            return False
        returns = self._may_return(failure)
        # While a lost host may return, others that drain do not count as failed attempts of the request.
        uncounted = returns and failure.code in NOT_BACK
        broken, fruitless = self._broken + (failure.code in BROKEN), self._fruitless + (not uncounted)
        if fruitless == MAX_ATTEMPTS or broken == MAX_BROKEN_HOSTS:
            return False
        hosts = await self._hosts(self._admission.hosts)
        others = self._others(hosts, must_accept=returns or failure.code in STANDS_STILL, tried_too=not uncounted)
        if await self._hand_over(failure, others) or (returns and await self._wait(failure)):
            self._broken, self._fruitless = broken, fruitless
            return True
        return False

    def _may_return(self, failure: HostError) -> bool:
        """Return whether to wait for a host that accepts the request."""
        now, returns_s = time.monotonic(), config.current().host_return_s
        if returns_s and (failure.code in LOST or (failure.code in NOT_BACK and self._so_far.tokens > 0)):
            self._returns_until = self._returns_until or now + returns_s
        return now < self._returns_until and failure.code in LOST | NOT_BACK

    async def _wait(self, failure: HostError) -> bool:
        """Wait for a restarted or a new host. Returns whether one accepted the request."""
        fleet, base, lost = self._runtime.fleet, self._admission.base_digest, self._now
        # Abandon it now: the journal of the returning host must not be recorded as the whole usage.
        self._runtime.usage.abandon(lost.host, lost.engine_id, reported=lost.report is not None)
        while time.monotonic() < self._returns_until and self._can_go_on:
            await asyncio.sleep(RETURN_PROBE_S)
            hosts = tuple(host for host in await self._hosts(()) if fleet.accepts(host, base))
            if await self._hand_over(failure, hosts):
                return True
            if self._began and hosts and not any(map(fleet.resumes, hosts)):
                return False  # an older version of the engine, which cannot continue an answer
        return False

    @property
    def _can_go_on(self) -> bool:
        is_over = self._stopping or self._settled or self._runtime.closing
        return not is_over and (not self._began or self._so_far.may_go_on)

    async def _hand_over(self, failure: HostError, hosts: tuple[str, ...]) -> bool:
        """Submit the request to one of the hosts. Returns whether one accepted it."""
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
        if self._stopping:  # set during the await above
            self._now.close()
        return True

    async def _hosts(self, otherwise: tuple[str, ...]) -> tuple[str, ...]:
        """Return the hosts that have the content now; `otherwise` if the query fails."""
        admission, model = self._admission, self._context.model
        try:
            cache = self._runtime.admission_cache
            fresh = await cache.admission(admission.principal, model.display_name, wakes=False)
        except (ApiError, LorikeetError, StorageError):
            return otherwise
        return self._same(fresh, otherwise)

    def _same(self, fresh: Admission | None, otherwise: tuple[str, ...]) -> tuple[str, ...]:
        """Return the hosts of a fresh admission, if it is for the same content as this request."""
        if fresh is None:
            return otherwise
        fresh = fresh.for_request(self._submit.request_id)
        same = fresh.model.digest == self._context.model.digest and fresh.base_digest == self._admission.base_digest
        return fresh.hosts if same else otherwise

    def _others(self, hosts: tuple[str, ...], *, must_accept: bool, tried_too: bool) -> tuple[str, ...]:
        """Return untried hosts; if there are none, any but the last, which may have been restarted."""
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

    # -- settlement -----------------------------------------------------------------

    def ended(self, attempt: HostAttempt) -> None:
        """Handle the end of an attempt. If it failed while it is being read, the reader decides what follows."""
        report = attempt.report
        if self._settled or attempt is not self._now:
            if report is not None:
                self._runtime.usage.acknowledge(attempt.host, attempt.engine_id)
            self._runtime.ended(attempt.engine_id, 0, 0)
        elif report is not None:
            if self._stopping or report.usage.outcome == Outcome.FINISHED:
                self._settle_as_reported(report)
        elif self._stopping and self._runtime.closing:
            self._settled = True  # the host aborts it when this session ends; its journal reaches the ledger
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
        """Return the counts to bill: no more than was requested, whatever a host reports."""
        return Counts.of(usage).within(most_prompt_tokens(self._submit), most_output_tokens(self._submit))

    def _leave(self) -> None:
        """Record an abort rather than a failure: the caller caused the end, and the engine has reported or will report
        it.
        """
        self._stopping = True
        if self._now.report is not None and not self._settled:
            self._settle_as_reported(self._now.report)

    def _fail(self, failure: HostError) -> None:
        """Record the failure in the ledger, with the output that the caller received."""
        report = self._now.report
        received = self._handed_out if self._context.streamed else 0
        counts = self._counts(report.usage) if report is not None else Counts()
        refused = report is not None and report.usage.outcome == Outcome.REFUSED
        self._settle(Outcome.REFUSED if refused else Outcome.FAILED, counts.billed_for(received), failure.code)

    def _timed(self, counts: Counts) -> Counts:
        """Add the time in the queue and on earlier hosts, one of which may have sent the first token."""
        if self._first_output_at and self._first_output_at < self._now.sent_at:
            first_ms = round((self._first_output_at - self._attempts[0].started_at) * 1000)
            return counts.resumed(first_ms, round((time.monotonic() - self._first_output_at) * 1000))
        return counts.after(round((self._now.sent_at - self._attempts[0].started_at) * 1000))

    def _details(self) -> Details:
        known = self._context.details
        if (report := self._now.report) is not None:
            waited_ms = round((self._now.sent_at - self._attempts[0].started_at) * 1000)
            reported_details = Details.of(report.usage).after(waited_ms)
            if len(self._attempts) > 1:  # choices that ended on an earlier host are not in the last one's report
                reported_details = reported_details.ended_for(self._so_far.finish_reasons)
            return replace(reported_details, auth_ms=known.auth_ms, quota_ms=known.quota_ms)
        return known

    def _settle(self, outcome: str, counts: Counts, error_code: str) -> None:
        """Record the request in the ledger and release its reservation, once."""
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
        is_reported = current.report is not None
        if context.keep is not None:
            context.keep(Settled(current.host, current.engine_id, ended, is_reported))
        else:
            self._runtime.usage.put(current.host, current.engine_id, ended, reported=is_reported)
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
    """Replace digests in an engine's error by adapter names: an engine knows combined adapters by digest only."""
    message = failure.message
    for version in model.versions:
        message = message.replace(version.digest[:19], f'"{version.adapter.name}@v{version.number}"')
    return replace(failure, message=message)
