"""Statistics of the queue for operators: each tenant's share, and why a request waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

from .forecast import Accuracy
from .queue_policies.accounts import Account
from .queue_policies.fair import Fair
from .scheduler import Scheduler
from .sequence import Outcome, Sequence

# Seconds of one window of received service.
_WINDOW_S = 10.0
NOBODY = ""  # tenant name without requests in the engine


@dataclass(frozen=True, slots=True)
class TenantShare:
    """The figures of one tenant under the fair policy.

    ``owed`` is its weight's share among the tenants that have requests in the engine now, ``received`` its share of the
    service of the last 10 to 20 seconds. ``service`` is in priced tokens, ``counter`` in priced tokens per weight.
    """

    tenant: str
    weight: float
    waiting: int
    running: int
    input_tokens: int
    output_tokens: int
    service: float
    counter: float
    owed: float
    received: float
    reason: str  # why its next request waits; "" if none does
    first_token_s: float | None  # prediction for one more request; None if none waits or step times are unknown


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason why a request waits: a stable code, and a sentence for people."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """A waiting request; times are in seconds."""

    request_id: str
    tenant: str
    adapter_digest: str
    waited_s: float
    predicted_s: float | None  # from now to the first token
    reason: Reason


@dataclass(frozen=True, slots=True)
class ServiceGap:
    """The gap between the two tenants furthest apart, of those that wait and could run, in priced tokens per weight."""

    gap: float
    bound: float
    ahead: str  # tenants
    behind: str


@dataclass(frozen=True, slots=True)
class Newcomer:
    """The predicted first-token time of a request that arrives now.

    ``seconds`` is for one prompt token and no adapter, of a tenant without requests in the engine. Each further prompt
    token adds ``prompt_token_s``, and each further request before it ``place_s``, except the first ``free_places``.
    """

    seconds: float
    prompt_token_s: float
    place_s: float = 0.0
    free_places: int = 0


@dataclass(frozen=True, slots=True)
class QueueReport:
    """The figures of the queue."""

    tenants: tuple[TenantShare, ...]
    refused: int  # number refused by the admission policy since the start
    accuracy: Accuracy
    gap: ServiceGap | None = None  # None while fewer than two tenants wait
    newcomer: Newcomer | None = None  # None until step times are known


class SchedulerStats:
    """A reader of the scheduler between steps, which changes nothing there."""

    def __init__(self, scheduler: Scheduler, clock: Callable[[], float]) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._recent: tuple[float, dict[str, float]] = (clock(), {})  # time, and each tenant's service at it
        self._earlier = self._recent

    def report(self, refused: int, most: int) -> QueueReport:
        """Return the shares of at most ``most`` tenants, those with the longest queues first."""
        accounts = self._accounts()
        received = self._received(accounts)
        active = [a for a in accounts if a.waiting or a.running]
        weights = sum(a.weight for a in active)
        active.sort(key=lambda a: (-len(a.waiting), -a.running, a.number))
        shares = tuple(self._share(a, a.weight / weights, received.get(a.tenant, 0.0)) for a in active[:most])
        return QueueReport(shares, refused, self._scheduler.forecast.accuracy, self._gap(active), self._newcomer())

    def waiting(self, tenant: str, limit: int) -> list[WaitingRequest]:
        """Return waiting requests in order of arrival, of one tenant unless it is ``""``."""
        matches = (s for s in self._scheduler.forecast.waiting() if not tenant or s.request.tenant == tenant)
        return [self._waiting_request(sequence) for sequence in islice(matches, limit)]

    def reason(self, sequence: Sequence) -> Reason:
        """Return why the sequence did not run in the last step."""
        digest = sequence.request.adapter_digest
        if sequence.last_outcome is Outcome.LOADING and not self._scheduler.adapter_on_device(digest):
            return self._loading(sequence)
        if sequence.last_outcome is Outcome.NO_ROOM:
            return Reason("no_room", "running requests must end before it fits into memory")
        if sequence.request.slo.background and len(self._scheduler.queue.foreground):
            return Reason("background", "other requests wait, and background requests run after all of them")
        queue = self._scheduler.queue.of(sequence)
        if isinstance(queue, Fair):
            return _fair_reason(queue, sequence)
        ahead = round(queue.ahead_of(sequence).sequences)
        return Reason("queue", f"behind {ahead} requests" if ahead else "the batch is full")

    def _loading(self, sequence: Sequence) -> Reason:
        tier = "disk" if sequence.request_state.loads_from_disk else "host memory"
        seconds = self._scheduler.forecast.load_seconds(sequence)
        return Reason("adapter_loading", f"adapter loading from {tier}, {seconds:.2g} s")

    def _waiting_request(self, sequence: Sequence) -> WaitingRequest:
        request, forecast = sequence.request, self._scheduler.forecast
        return WaitingRequest(
            request.request_id,
            request.tenant,
            request.adapter_digest,
            self._clock() - sequence.request_state.submitted,
            forecast.seconds_to_first_token(sequence) if forecast.cost.calibrated else None,
            self.reason(sequence),
        )

    def _gap(self, accounts: Iterable[Account]) -> ServiceGap | None:
        """Return the gap by counters: between tenants that both wait they differ by service per weight alone."""
        queue = self._scheduler.queue.foreground
        could_run = [a for a in accounts if a.may_run and a.waiting.first().last_outcome is not Outcome.LOADING]
        if len(could_run) < 2 or not isinstance(queue, Fair):
            return None
        ahead, behind = max(could_run, key=_counter), min(could_run, key=_counter)
        return ServiceGap(ahead.counter - behind.counter, queue.gap_bound(ahead, behind), ahead.tenant, behind.tenant)

    def _accounts(self) -> list[Account]:
        queue = self._scheduler.queue.foreground
        return list(queue.accounts) if isinstance(queue, Fair) else []

    def _share(self, account: Account, owed: float, received: float) -> TenantShare:
        waits = bool(account.waiting)
        return TenantShare(
            account.tenant,
            account.weight,
            len(account.waiting),
            account.running,
            account.input_tokens,
            account.output_tokens,
            account.service,
            account.counter,
            owed,
            received,
            self.reason(account.waiting.first()).code if waits else "",
            self._first_token(account.tenant) if waits else None,
        )

    def _newcomer(self) -> Newcomer | None:
        forecast, seconds = self._scheduler.forecast, self._first_token(NOBODY)
        if seconds is None:
            return None
        return Newcomer(seconds, forecast.cost.prompt_token, forecast.place_seconds(), forecast.free_places(NOBODY))

    def _first_token(self, tenant: str) -> float | None:
        forecast = self._scheduler.forecast
        return forecast.seconds_for_newcomer(tenant) if forecast.cost.calibrated else None

    def _received(self, accounts: Iterable[Account]) -> dict[str, float]:
        """Return shares of the service since the earlier of two marks, which advance every ``_WINDOW_S`` seconds."""
        now, service = self._clock(), {a.tenant: a.service for a in accounts}
        if now - self._recent[0] >= _WINDOW_S:
            self._earlier, self._recent = self._recent, (now, service)
        before = self._earlier[1]
        gained = {tenant: total - before.get(tenant, 0.0) for tenant, total in service.items()}
        everything = sum(gained.values())
        return {tenant: gain / everything for tenant, gain in gained.items()} if everything else {}


def _counter(account: Account) -> float:
    return account.counter


def _fair_reason(queue: Fair, sequence: Sequence) -> Reason:
    account = queue.accounts[sequence.request.tenant]
    if not account.may_run:
        return Reason("tenant_cap", f"its tenant has {account.running} requests running, as many as it may")
    place = queue.place(sequence)
    if place:
        return Reason("own_queue", f"behind {place} requests of its own tenant")
    least = queue.accounts.least()
    if least is not None and least is not account:
        return Reason("own_quota", "behind its tenant's own quota: others have been served less")
    return Reason("batch_full", "next, when a running request ends")
