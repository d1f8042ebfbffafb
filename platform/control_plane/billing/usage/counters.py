"""The figures of a usage record, named once: what the ledger keeps, what is summed by hour and day, what is reported.

One more figure is a field in `engine.proto`, a line in one of these classes, and its columns in `models.py`.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, fields, replace
from typing import Self

from lora_engine.wire import engine_pb2 as pb


@dataclass(frozen=True, kw_only=True)
class ReportedCounts:
    """In every page, statement and report. `device_us` is the share of the device's time, in microseconds."""

    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    completion_tokens: int = 0
    device_us: int = 0


@dataclass(frozen=True, kw_only=True)
class SummedCounts(ReportedCounts):
    """By hour and day, and in exports. Times are milliseconds."""

    queue_ms: int = 0
    adapter_load_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class Counts(SummedCounts):
    """What the engine counted of one request: a row of the ledger."""

    first_token_ms: int = 0
    prefill_ms: int = 0
    decode_ms: int = 0
    preemptions: int = 0
    preempted_ms: int = 0

    @classmethod
    def of(cls, record: pb.UsageRecord) -> Self:
        counts = cls(**{name: getattr(record, name) for name in COUNTERS})
        # Engines up to 0.1 counted what was cached of a resumed answer too; the ledger takes no such row.
        return replace(counts, cached_prompt_tokens=min(counts.cached_prompt_tokens, counts.prompt_tokens))

    def within(self, prompt: int, completion: int) -> Counts:
        """At most so many tokens."""
        return replace(
            self,
            prompt_tokens=min(self.prompt_tokens, prompt),
            cached_prompt_tokens=min(self.cached_prompt_tokens, prompt),
            completion_tokens=min(self.completion_tokens, completion),
        )

    def billed_for(self, received: int) -> Counts:
        """Of a request that failed or was refused: the output that its caller received, and nothing else."""
        return replace(self, prompt_tokens=0, cached_prompt_tokens=0, completion_tokens=received)

    def after(self, waited_ms: int) -> Counts:
        """Of a request that had waited on other hosts before."""
        first = self.first_token_ms + waited_ms if self.first_token_ms else 0
        return replace(self, queue_ms=self.queue_ms + waited_ms, first_token_ms=first)

    def resumed(self, first_token_ms: int, decode_ms: int) -> Counts:
        """Of a request whose first token another host had brought, with the caller's times: the pause is among them.

        How long it waited and was prefilled is the last host's.
        """
        return replace(self, first_token_ms=first_token_ms, decode_ms=decode_ms)


def _names(counts: type[ReportedCounts]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(counts))


REPORTED = _names(ReportedCounts)
SUMMED = _names(SummedCounts)
COUNTERS = _names(Counts)
TIMES = tuple(name for name in COUNTERS if name.endswith("_ms"))
BEFORE_ENGINE = ("auth_ms", "quota_ms")
"""What the gateway measures of a request, before an engine has it."""
PHASES = (*BEFORE_ENGINE, "queue_ms", "adapter_load_ms", "prefill_ms", "decode_ms")
"""Of a request, one after another."""
LONGEST_REASON = 32
SHOWN = (*(name for name in COUNTERS if name.endswith("_tokens")), *BEFORE_ENGINE, *TIMES, "preemptions")
"""Of a single request, in lists and live events."""


@dataclass(frozen=True, kw_only=True)
class Details:
    """What is shown of a single request, and never summed.

    The time that finding its key, adapter and host took, and its limits and budgets; the tier that it waited for; when
    each pre-emption began, since the engine had it, and how long it was.
    """

    auth_ms: int = 0
    quota_ms: int = 0
    finish_reason: str = ""
    adapter_loaded_from: str = ""
    preemption_spans: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, record: pb.UsageRecord) -> Self:
        """As far as the engine knows them."""
        spans = tuple((span.at_ms, span.ms) for span in record.preemption_spans)
        return cls(
            finish_reason=record.finish_reason[:LONGEST_REASON],
            adapter_loaded_from=record.adapter_loaded_from,
            preemption_spans=spans,
        )

    def after(self, waited_ms: int) -> Details:
        """Of a request that had been on other hosts before."""
        return replace(self, preemption_spans=tuple((at_ms + waited_ms, ms) for at_ms, ms in self.preemption_spans))

    def ended_for(self, reasons: Set[str]) -> Details:
        """With why other choices of it ended, on hosts before."""
        found = {*self.finish_reason.split(","), *reasons} - {""}
        return replace(self, finish_reason=",".join(sorted(found))[:LONGEST_REASON])


NO_DETAILS = Details()
