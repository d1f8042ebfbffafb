"""Settles one prompt of a request, once: its row of the ledger, and the release of what was reserved for it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from control_plane.billing.usage.actions import Ended
from control_plane.billing.usage.counters import Counts, Details
from control_plane.billing.usage.models import Outcome
from control_plane.fleet.transport import errors
from control_plane.fleet.transport.engine_client import RequestStream
from control_plane.fleet.transport.errors import HostError
from control_plane.fleet.transport.plausible import most_output_tokens, most_prompt_tokens
from control_plane.gateway.dispatch.admission import Admission
from control_plane.gateway.dispatch.answer_so_far import AnswerSoFar
from control_plane.gateway.dispatch.runtime import Runtime
from control_plane.gateway.recording.request_log import log_inference
from control_plane.gateway.recording.request_metrics import count_request
from control_plane.gateway.recording.spans import report_request
from control_plane.gateway.recording.usage import RequestContext, Settled
from lora_engine.wire import engine_pb2 as pb


@dataclass
class EngineAttempt:
    """A prompt on one host. The attempt is over when the engine has reported its end, or the host was lost."""

    stream: RequestStream
    sent_at: float
    report: pb.Finished | None = None
    is_lost: bool = False

    @property
    def failure(self) -> HostError | None:
        """The error of an attempt that ended without an answer, or None."""
        if self.is_lost:
            return errors.disconnected(self.stream.host)
        if self.report is None or self.report.usage.outcome == Outcome.FINISHED:
            return None
        if self.report.usage.outcome == Outcome.ABORTED:
            return errors.stopped(self.stream.host)
        return HostError.from_wire(self.report.error)


class Settlement:
    """The end of one prompt, and the times until then. ``done`` once the ledger has it, or must not record it."""

    def __init__(
        self, runtime: Runtime, admission: Admission, context: RequestContext, submit: pb.Submit, so_far: AnswerSoFar
    ) -> None:
        self._runtime, self._admission, self._context = runtime, admission, context
        self._submit, self._so_far = submit, so_far
        self.started_at = 0.0  # when it was sent to its first host
        self.first_output_at = 0.0
        self.received = 0  # tokens that the caller has received before the end
        self.usage: pb.UsageRecord | None = None
        self.done = False
        # The row of a finished answer waits until its schema was checked.
        self._pending: Settled | None = None
        self._violations: tuple[str, ...] | None = None if context.schemas else ()

    def as_reported(self, attempt: EngineAttempt) -> None:
        """Record the end that the engine has reported."""
        assert attempt.report is not None
        self.usage = attempt.report.usage
        if self.usage.outcome in (Outcome.FINISHED, Outcome.ABORTED):
            self._settle(attempt, self.usage.outcome, self._reported_counts(attempt), "")
        else:
            self.fail(attempt, HostError.from_wire(attempt.report.error))

    def fail(self, attempt: EngineAttempt, failure: HostError) -> None:
        """Record a failure, with the output that the caller received."""
        refused = attempt.report is not None and attempt.report.usage.outcome == Outcome.REFUSED
        counts = self._reported_counts(attempt).billed_for(self.received)
        self._settle(attempt, Outcome.REFUSED if refused else Outcome.FAILED, counts, failure.code)

    def _reported_counts(self, attempt: EngineAttempt) -> Counts:
        """Return the counts to bill: no more than was requested, whatever a host reports."""
        if attempt.report is None:
            return Counts()
        most_prompt, most_output = most_prompt_tokens(self._submit), most_output_tokens(self._submit)
        return Counts.of(attempt.report.usage).within(most_prompt, most_output)

    def _waited_ms(self, attempt: EngineAttempt) -> int:
        """Return the milliseconds in the queue and on earlier hosts."""
        return round((attempt.sent_at - self.started_at) * 1000)

    def _timed(self, attempt: EngineAttempt, counts: Counts) -> Counts:
        """Add the time in the queue and on earlier hosts, one of which may have sent the first token."""
        if self.first_output_at and self.first_output_at < attempt.sent_at:
            first_ms = round((self.first_output_at - self.started_at) * 1000)
            return counts.resumed(first_ms, round((time.monotonic() - self.first_output_at) * 1000))
        return counts.after(self._waited_ms(attempt))

    def _details(self, attempt: EngineAttempt) -> Details:
        known = replace(self._context.details, ignored=tuple(self._context.ignored))
        if attempt.report is None:
            return known
        details = Details.of(attempt.report.usage).after(self._waited_ms(attempt))
        if attempt.stream.request_id != self._submit.request_id:  # its choices may have ended on an earlier host
            details = details.ended_for(self._so_far.finish_reasons)
        return replace(details, auth_ms=known.auth_ms, quota_ms=known.quota_ms, ignored=known.ignored)

    def _settle(self, attempt: EngineAttempt, outcome: str, counts: Counts, error_code: str) -> None:
        if self.done:
            return
        self.done = True
        runtime, admission, context = self._runtime, self._admission, self._context
        principal, model, is_batch = admission.principal, admission.model, context.keep is not None
        host, engine_id = attempt.stream.host, attempt.stream.request_id
        ended = Ended(
            request_id=self._submit.request_id,
            tenant=principal.tenant,
            api_key=principal.api_key,
            user=principal.user,
            adapter=model.adapter,
            version=model.version,
            base_model_id=admission.base_model_id,
            model=model.recorded_name,
            endpoint=context.endpoint,
            streamed=context.streamed,
            batch=is_batch,
            host=host,
            outcome=outcome,
            error_code=error_code,
            created_at=context.created_at,
            counts=self._timed(attempt, counts),
            details=self._details(attempt),
        )
        report_request(ended, context.trace_parent)
        settled = Settled(host, engine_id, ended, attempt.report is not None)
        if outcome == Outcome.FINISHED and self._violations is None:
            self._pending = settled
        else:
            self._record(settled)
        prompt, completion = counts.prompt_tokens, counts.completion_tokens
        cost = admission.budgets.nanos(
            admission.base_model_id,
            prompt=prompt,
            cached=counts.cached_prompt_tokens,
            completion=completion,
            batch=is_batch,
        )
        prices = admission.budgets.prices
        count_request(ended, admission.base_model, cost, prices.currency if prices else None)
        log_inference(ended, admission.base_model, context.client_request_id)
        runtime.ended(engine_id, prompt + completion, cost)
        if outcome == Outcome.FINISHED:
            runtime.migrator.ended(self._submit, completion)

    def checked(self, violations: tuple[str, ...]) -> None:
        """Record an answer that waited for its check, with the keywords that it violates. Idempotent."""
        if self._violations is None:
            self._violations = violations
        if (settled := self._pending) is not None:
            self._pending = None
            self._record(settled)

    def _record(self, settled: Settled) -> None:
        if self._violations:
            details = replace(settled.ended.details, schema_violations=self._violations)
            settled = replace(settled, ended=replace(settled.ended, details=details))
        if self._context.keep is not None:
            self._context.keep(settled)
        else:
            self._runtime.usage.put(settled.host, settled.engine_id, settled.ended, reported=settled.reported)
