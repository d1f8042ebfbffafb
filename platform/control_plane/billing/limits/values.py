"""Limits as plain values; None means no limit."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum


class Counted(StrEnum):
    """The limits that every request is counted against, in the order of the limiter's scripts."""

    REQUESTS_PER_MINUTE = "requests_per_minute"
    TOKENS_PER_MINUTE = "tokens_per_minute"
    TOKENS_PER_DAY = "tokens_per_day"
    TOKENS_PER_MONTH = "tokens_per_month"
    CONCURRENCY = "concurrency"


@dataclass(frozen=True)
class Limits:
    """The limits of a tenant or of a key. The last four are a tenant's only: keys own no adapters."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    tokens_per_day: int | None = None
    tokens_per_month: int | None = None
    concurrency: int | None = None
    max_output_tokens: int | None = None
    adapters: int | None = None
    storage_bytes: int | None = None
    max_rank: int | None = None
    pinned_bytes: int | None = None  # None = nothing may be pinned

    def of(self, limit: Counted) -> int | None:
        value: int | None = getattr(self, limit.value)
        return value

    @property
    def counted(self) -> bool:
        """True if the limiter has a limit to check."""
        return any(self.of(limit) is not None for limit in Counted)


NAMES = tuple(field.name for field in fields(Limits))
UNLIMITED = Limits()
