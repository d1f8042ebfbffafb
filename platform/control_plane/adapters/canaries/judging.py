"""Judges canaries by error rate and latency, compared with the alias's regular version in the same window.

Only requests of the same window are compared, so that a slow hour of the whole fleet does not end a canary. Times
exclude adapter loading, since a new version is cold at first, and lines of batches, which run when the fleet has little
else to do; evaluations request both versions by name, or later the alias's regular one alone.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any

from control_plane.adapters.registry.aliases import fail_canary, find_alias
from control_plane.adapters.registry.models import AdapterVersion, Alias
from control_plane.adapters.registry.queries import get_adapter
from control_plane.billing.usage.models import Outcome, UsageEvent
from control_plane.identity.tenants.models import Tenant

logger = logging.getLogger(__name__)

LEAST = 20  # requests of a version before it is judged
# Maximum number of requests that are compared, the newest.
MOST = 2000
ERROR_MARGIN = 0.02  # difference in error rates that is tolerated
SLOWER = 1.5  # ratio of medians that is tolerated
FIRST_TOKEN_SLACK_MS = 100.0  # tolerated beyond the ratio
INTER_TOKEN_SLACK_MS = 5.0  # tolerated beyond the ratio
_Z = 1.96  # 95 %


@dataclass(frozen=True)
class VersionStats:
    """A version's requests since the canary began.

    Times are medians of its `timed` requests in ms, None without any.
    """

    requests: int
    failed: int
    first_token_ms: float | None
    inter_token_ms: float | None
    timed: int

    @property
    def error_rate(self) -> float:
        return self.failed / self.requests if self.requests else 0.0

    @property
    def surely_fails(self) -> float:
        """Lower end of the error rate's 95 % interval (Wilson's score interval)."""
        if not self.requests:
            return 0.0
        n, p = self.requests, self.error_rate
        centre = p + _Z**2 / (2 * n)
        spread = _Z * math.sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2))
        return max(0.0, (centre - spread) / (1 + _Z**2 / n))


def stats_of(version: AdapterVersion, since: datetime) -> VersionStats:
    """Return the statistics of a version's finished and failed requests, without cancelled and refused ones."""
    events = UsageEvent.objects.filter(
        tenant=version.tenant_id,
        version=version,
        created_at__gte=since,
        outcome__in=[Outcome.FINISHED, Outcome.FAILED],
    ).order_by("-created_at")
    fields = ("outcome", "batch", "first_token_ms", "adapter_load_ms", "decode_ms", "completion_tokens")
    rows = list(events.values_list(*fields)[:MOST])
    timed = [times for outcome, batch, *times in rows if outcome == Outcome.FINISHED and not batch]
    first = [max(0, first - load) for first, load, _, _ in timed if first]
    between = [decode / (tokens - 1) for _, _, decode, tokens in timed if tokens > 1]
    return VersionStats(
        requests=len(rows),
        failed=sum(row[0] == Outcome.FAILED for row in rows),
        first_token_ms=median(first) if first else None,
        inter_token_ms=median(between) if between else None,
        timed=len(timed),
    )


def verdict(canary: VersionStats, regular: VersionStats) -> dict[str, Any] | None:
    """Return `{code, message}` of the reason to end the canary, or None while there is none."""
    if canary.requests < LEAST:
        return None
    if canary.surely_fails > regular.error_rate + ERROR_MARGIN:
        message = f"{canary.failed} of {canary.requests} requests failed"
        others = f"of the version beside it {regular.failed} of {regular.requests}"
        return {"code": "error_rate", "message": f"{message}, {others}."}
    if min(canary.timed, regular.timed) < LEAST:
        return None
    for code, mine, other, slack in (
        ("first_token", canary.first_token_ms, regular.first_token_ms, FIRST_TOKEN_SLACK_MS),
        ("inter_token", canary.inter_token_ms, regular.inter_token_ms, INTER_TOKEN_SLACK_MS),
    ):
        if mine is not None and other is not None and mine > SLOWER * other + slack:
            return {"code": code, "message": f"Its median is {mine:.0f} ms, of the version beside it {other:.0f} ms."}
    return None


def compare(tenant: Tenant, adapter_name: str, name: str) -> dict[str, Any]:
    """Return the figures of an alias's two versions, None without a canary.

    Raises AdapterNotFoundError or AliasNotFoundError.
    """
    alias = find_alias(tenant, get_adapter(tenant, adapter_name).adapter, name)
    if alias.canary is None or alias.canary_since is None:
        return {"canary": None, "own": None, "least_requests": LEAST}
    canary, regular = (stats_of(version, alias.canary_since) for version in (alias.canary, alias.version))
    return {"canary": canary, "own": regular, "least_requests": LEAST}


def judge_canaries() -> int:
    """End every canary that performs worse than the alias's regular version. Returns how many."""
    running = Alias.objects.filter(canary__isnull=False, adapter__archived_at__isnull=True)
    return sum(_judge(alias) for alias in running.select_related("tenant", "adapter", "version", "canary"))


def _judge(alias: Alias) -> bool:
    if alias.canary is None or alias.canary_since is None:
        return False
    since = alias.canary_since
    reason = verdict(stats_of(alias.canary, since), stats_of(alias.version, since))
    if reason is None or not fail_canary(alias, reason):
        return False
    logger.warning("Canary ended", extra={"alias": str(alias.pk), "reason": reason["code"]})
    return True
