"""Accounts count each tenant's service: weighted virtual token counters (VTC: Sheng et al., OSDI 2024, algorithm 2)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lora_engine.scheduling.sequence import Chunk, Sequence

from .tenant_queue import TenantQueue

_SWEEP = 4096  # accounts beyond twice those in use at which idle ones are dropped


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of tokens. With an adapter, a token costs ``1 + adapter * priced_rank`` times as much."""

    input: float
    output: float
    adapter: float

    def of(self, sequence: Sequence) -> tuple[float, float]:
        """Return the price of an input and of an output token of a running sequence."""
        factor = 1.0 + self.adapter * sequence.slot.priced_rank if sequence.slot is not None else 1.0
        return self.input * factor, self.output * factor


@dataclass(slots=True)
class Steps:
    """The number of steps that the engine has planned."""

    count: int = 0


@dataclass(slots=True, eq=False)
class Account:
    """A tenant's account of the service it has received.

    The charge for its decoding sequences is the same in every step, so it is accrued when the account is read.
    """

    tenant: str
    number: int
    waiting: TenantQueue
    steps: Steps
    weight: float = 1.0
    max_running: int = 0  # 0 = no cap
    running: int = 0
    listed: bool = False  # in the heap of tenants that may be served
    input_tokens: int = 0
    departed: int = 0  # sequences that left the queue, to compute positions in it
    changed_at: int = -1_000_000  # the step in which one of its sequences last began or stopped running
    _counter: float = 0.0
    _service: float = 0.0
    _output_tokens: int = 0
    _decoding: int = 0  # number of decoding sequences, and their price per step
    _step_price: float = 0.0
    _accrued_at: int = 0  # the step up to which charges are accrued

    @property
    def may_run(self) -> bool:
        return bool(self.waiting) and not (self.max_running and self.running >= self.max_running)

    @property
    def counter(self) -> float:
        """Priced service received per unit of weight, lifted when the tenant returns."""
        self._accrue()
        return self._counter

    @property
    def service(self) -> float:
        """Priced tokens, regardless of the weight."""
        self._accrue()
        return self._service

    @property
    def output_tokens(self) -> int:
        self._accrue()
        return self._output_tokens

    def charge(self, service: float, output_tokens: int) -> None:
        self._service += service
        self._counter += service / self.weight
        self._output_tokens += output_tokens

    def decode(self, sequences: int, step_price: float) -> None:
        """Let ``sequences`` more (or fewer) decode from here on, at ``step_price`` more per step."""
        self._accrue()
        self._decoding += sequences
        self._step_price = self._step_price + step_price if self._decoding else 0.0

    def reweigh(self, weight: float) -> None:
        self._accrue()
        self.weight = weight

    def lift(self, counter: float) -> None:
        self._counter = max(self.counter, counter)

    def _accrue(self) -> None:
        since, self._accrued_at = self.steps.count - self._accrued_at, self.steps.count
        if since and self._decoding:
            self.charge(since * self._step_price, since * self._decoding)


@dataclass(slots=True)
class Bill:
    """The prices that a running sequence's tokens cost its tenant."""

    account: Account
    num_prompt: int
    input_price: float
    output_price: float
    decoding: bool = False

    def decodes(self, decoding: bool) -> None:
        """Start or stop charging an output token in every step, without ``charge``."""
        if decoding != self.decoding:
            self.decoding = decoding
            sign = 1 if decoding else -1
            self.account.decode(sign, sign * self.output_price)

    def charge(self, chunk: Chunk) -> None:
        """Charge the new tokens of a chunk: prompt tokens not seen before, and the token that it yields.

        Tokens that are computed again after pre-emption, or come from the prefix cache, cost nothing.
        """
        sequence, account = chunk.sequence, self.account
        end = sequence.num_computed + chunk.known
        yields = end == len(sequence.token_ids)
        service = self.output_price if yields else 0.0
        if sequence.charged < self.num_prompt:
            fresh = min(end, self.num_prompt) - max(sequence.num_computed, sequence.charged)
            if fresh > 0:
                account.input_tokens += fresh
                service += fresh * self.input_price
        if end > sequence.charged:
            sequence.charged = end
        account.charge(service, int(yields))

    def charge_accepted(self, tokens: int) -> None:
        """Charge output tokens that a step yielded beyond the first."""
        self.account.charge(tokens * self.output_price, tokens)


class Accounts:
    """The accounts of all tenants, and the one with the lowest counter among those that may be served.

    The heap may have stale keys: counters only grow, so an entry is updated when it reaches the top.
    """

    def __init__(self, open_queue: Callable[[], TenantQueue]) -> None:
        self.steps = Steps()
        self._open_queue = open_queue
        self._accounts: dict[str, Account] = {}
        self._heap: list[tuple[float, int, Account]] = []
        self._opened = 0
        self._sweep_at = _SWEEP
        self._last_left = 0.0  # counter of the tenant whose sequence left the queue last

    def __iter__(self) -> Iterator[Account]:
        return iter(self._accounts.values())

    def __getitem__(self, tenant: str) -> Account:
        return self._accounts[tenant]

    def open(self, tenant: str) -> Account:
        """Return the tenant's account, a new one with a counter of 0 if it has none."""
        account = self._accounts.get(tenant)
        if account is None:
            if len(self._accounts) >= self._sweep_at:
                self._forget_idle()
            self._opened += 1
            account = self._accounts[tenant] = Account(
                tenant, self._opened, self._open_queue(), self.steps, _accrued_at=self.steps.count
            )
        return account

    def lift(self, account: Account) -> None:
        """Lift a tenant that returns to the queue: service that it did not use while away is not owed to it."""
        least = self.least()
        account.lift(self._last_left if least is None else least.counter)

    def enlist(self, account: Account) -> None:
        """Add an account that may run to the candidates of ``least``."""
        if account.may_run and not account.listed:
            account.listed = True
            heapq.heappush(self._heap, (account.counter, account.number, account))

    def least(self) -> Account | None:
        """Return the least served account of those that may run, or None."""
        heap = self._heap
        while heap:
            counter, number, account = heap[0]
            if not account.may_run:
                heapq.heappop(heap)
                account.listed = False
            elif counter < account.counter:
                heapq.heapreplace(heap, (account.counter, number, account))
            else:
                return account
        return None

    def set_aside(self, account: Account) -> None:
        """Take the account that ``least`` returned out of the candidates, until it is enlisted again."""
        heapq.heappop(self._heap)
        account.listed = False

    def dequeued(self, account: Account) -> None:
        """Record that one of the account's sequences left the queue."""
        account.departed += 1
        self.left_queue(account)

    def left_queue(self, account: Account) -> None:
        """Record the counter to which a tenant is lifted that arrives while the queue is empty."""
        self._last_left = account.counter

    def near_the_top(self, count: int) -> list[Account]:
        """Return about the ``count`` least served accounts, in no particular order."""
        return [account for _, _, account in self._heap[:count] if account.waiting]

    def _forget_idle(self) -> None:
        """Drop accounts that are not in use and that a lift would overtake."""
        least = self.least()
        floor = self._last_left if least is None else least.counter
        for account in list(self._accounts.values()):
            if not account.waiting and not account.running and account.counter <= floor:
                del self._accounts[account.tenant]
        self._sweep_at = 2 * len(self._accounts) + _SWEEP
