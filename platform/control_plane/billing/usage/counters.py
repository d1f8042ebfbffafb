"""Figures of a usage record, each named once: those of the ledger, those summed by hour and day, those reported.

A new figure is a field in `engine.proto`, a line in one of these classes, and its columns in `models.py`.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, fields, replace
from typing import Self

from lora_engine.wire import engine_pb2 as pb


@dataclass(frozen=True, kw_only=True)
class ReportedCounts:
    """The counts in every page, statement and report. `device_us` is the device time in microseconds."""

    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    completion_tokens: int = 0
    device_us: int = 0


@dataclass(frozen=True, kw_only=True)
class SummedCounts(ReportedCounts):
    """The counts by hour and day, and in exports. Times are milliseconds.

    `drafted_tokens` are drafts of speculation, `accepted_tokens` those of them that became completion tokens. Both are
    counted whatever the outcome, and never priced.
    """

    queue_ms: int = 0
    adapter_load_ms: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class Counts(SummedCounts):
    """The engine's counts of one request: a row of the ledger."""

    first_token_ms: int = 0
    prefill_ms: int = 0
    decode_ms: int = 0
    preemptions: int = 0
    preempted_ms: int = 0

    @classmethod
    def of(cls, record: pb.UsageRecord) -> Self:
        counts = cls(**{name: getattr(record, name) for name in COUNTERS})
        # Engines up to 0.1 counted the cached tokens of a resumed answer too; the ledger rejects such a row.
        return replace(counts, cached_prompt_tokens=min(counts.cached_prompt_tokens, counts.prompt_tokens))

    def within(self, prompt: int, completion: int) -> Counts:
        """Return the counts with at most so many tokens."""
        return replace(
            self,
            prompt_tokens=min(self.prompt_tokens, prompt),
            cached_prompt_tokens=min(self.cached_prompt_tokens, prompt),
            completion_tokens=min(self.completion_tokens, completion),
            accepted_tokens=min(self.accepted_tokens, completion),
        )

    def billed_for(self, received: int) -> Counts:
        """Return the billed counts of a failed or refused request: the output that its caller received."""
        return replace(self, prompt_tokens=0, cached_prompt_tokens=0, completion_tokens=received)

    def after(self, waited_ms: int) -> Counts:
        """Return the counts of a request that had waited on other hosts for `waited_ms` before."""
        first = self.first_token_ms + waited_ms if self.first_token_ms else 0
        return replace(self, queue_ms=self.queue_ms + waited_ms, first_token_ms=first)

    def resumed(self, first_token_ms: int, decode_ms: int) -> Counts:
        """Return the counts of a request whose first token came from another host, with the times that its caller saw.

        The pause is among them. Queueing and prefill are the last host's.
        """
        return replace(self, first_token_ms=first_token_ms, decode_ms=decode_ms)


def _names(counts: type[ReportedCounts]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(counts))


REPORTED = _names(ReportedCounts)
SUMMED = _names(SummedCounts)
COUNTERS = _names(Counts)
TIMES = tuple(name for name in COUNTERS if name.endswith("_ms"))
# Times that the gateway measures of a request, before an engine has it.
BEFORE_ENGINE = ("auth_ms", "quota_ms")
# Phases of a request, one after another.
PHASES = (*BEFORE_ENGINE, "queue_ms", "adapter_load_ms", "prefill_ms", "decode_ms")
# Maximum number of characters of a finish reason, as long as its column.
LONGEST_REASON = 32
# Figures of a single request in lists and live events.
SHOWN = (*(name for name in COUNTERS if name.endswith("_tokens")), *BEFORE_ENGINE, *TIMES, "preemptions")


@dataclass(frozen=True, kw_only=True)
class Details:
    """The details of a single request, which are shown and never summed.

    `auth_ms` is the time to authenticate and to resolve adapter and host, `quota_ms` that of limits and budgets.
    `preemption_spans` has the beginning of each pre-emption since the engine's submit, and its length, in milliseconds.
    `ignored` names the fields of the request that were left out, `schema_violations` the keywords of its schema that
    the answer violates.
    """

    auth_ms: int = 0
    quota_ms: int = 0
    finish_reason: str = ""
    adapter_loaded_from: str = ""
    preemption_spans: tuple[tuple[int, int], ...] = ()
    ignored: tuple[str, ...] = ()
    schema_violations: tuple[str, ...] = ()

    @classmethod
    def of(cls, record: pb.UsageRecord) -> Self:
        """Return the details that the engine's record has."""
        spans = tuple((span.at_ms, span.ms) for span in record.preemption_spans)
        return cls(
            finish_reason=record.finish_reason[:LONGEST_REASON],
            adapter_loaded_from=record.adapter_loaded_from,
            preemption_spans=spans,
        )

    def after(self, waited_ms: int) -> Details:
        """Return the details of a request that had been on other hosts for `waited_ms` before."""
        return replace(self, preemption_spans=tuple((at_ms + waited_ms, ms) for at_ms, ms in self.preemption_spans))

    def ended_for(self, reasons: Set[str]) -> Details:
        """Return the details with the finish reasons of choices that ended on hosts before."""
        all_reasons = {*self.finish_reason.split(","), *reasons} - {""}
        return replace(self, finish_reason=",".join(sorted(all_reasons))[:LONGEST_REASON])


NO_DETAILS = Details()
