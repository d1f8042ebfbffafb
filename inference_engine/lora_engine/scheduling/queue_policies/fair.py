"""Fair shares between tenants by virtual token counters; inside a tenant, deadlines and adapter locality.

The least served tenant goes first: Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024, with weights,
charged as tokens are processed. Two things differ from the paper. A request whose adapter is being loaded may be
passed by all others. One that does not fit may be passed by its own tenant and by tenants within ``fair_slack`` of its
counter, for at most ``starvation_s``; then all wait until it fits. So between two tenants that always have something to
run, the gap in service per weight stays below ``2 * (U + slack)``, where U is what one tenant's requests in the batch
may still cost.
"""

from __future__ import annotations

from collections.abc import Iterable

from lora_engine.scheduling.sequence import Chunk, Outcome, Sequence

from .accounts import Account, Accounts, Bill, Prices
from .backlogs import Backlogs
from .base import LOOK_AHEAD, Attempt, Backlog, PolicyContext, queue_policies
from .tenant_queue import TenantQueue

# Of one tenant, sequences that are tried in one step before the next tenant's turn.
_TRIES = 8


@queue_policies.register("fair")
class Fair:
    """Weighted virtual token counters between tenants."""

    def __init__(self, context: PolicyContext) -> None:
        config = context.config
        self.prices = Prices(config.input_price, config.output_price, config.adapter_price)
        self.accounts = Accounts(lambda: TenantQueue(context.on_device, context.clock, config.starvation_s))
        self._slack = config.fair_slack * config.output_price * context.pool_tokens
        self._default_cap = config.tenant_max_running
        longest = min(config.max_context or context.pool_tokens, context.pool_tokens)
        dearest = 1.0 + config.adapter_price * config.max_lora_rank
        most = max(config.input_price * longest, config.output_price * context.pool_tokens) * dearest
        self._gap_bound = 2 * (most + self._slack)
        self._running: dict[Sequence, Bill] = {}
        self._backlogs = Backlogs(self.prices)
        self._waiting: dict[Sequence, int] = {}  # how many must leave its tenant's queue before it, on arrival

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self._waiting

    def push(self, sequence: Sequence) -> None:
        slo = sequence.request.slo
        account = self.accounts.open(sequence.request.tenant)
        account.reweigh(slo.weight)
        account.max_running = slo.max_running or self._default_cap
        if not account.waiting:
            self.accounts.lift(account)
        self._waiting[sequence] = account.departed + len(account.waiting)
        account.waiting.push(sequence)
        self.accounts.enlist(account)
        self._backlogs.changed[account] = None

    def remove(self, sequence: Sequence) -> None:
        account = self.accounts[sequence.request.tenant]
        del self._waiting[sequence]
        account.waiting.remove(sequence)
        self.accounts.dequeued(account)
        self._backlogs.changed[account] = None

    def fill(self, attempt: Attempt) -> None:
        """Offer the least served tenant's best choice, again and again."""
        aside: list[Account] = []
        limit = float("inf")  # of the counter: tenants beyond it may not pass a sequence that did not fit
        while len(aside) < LOOK_AHEAD:
            account = self.accounts.least()
            if account is None or account.counter > limit:
                break
            outcome = self._offer(account, attempt)
            if outcome is Outcome.FULL:
                break
            if outcome is not Outcome.ADMITTED:
                self.accounts.set_aside(account)
                aside.append(account)
            if outcome is Outcome.NO_ROOM:
                limit = min(limit, self._passing_limit(account))
        for account in aside:
            self.accounts.enlist(account)

    def served(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            bill = self._running.get(chunk.sequence) or self._open_bill(chunk.sequence)
            bill.charge(chunk)

    def decodes(self, sequence: Sequence) -> None:
        self._running[sequence].decodes(True)

    def pauses(self, sequence: Sequence) -> None:
        self._running[sequence].decodes(False)

    def stepped(self) -> None:
        self.accounts.steps.count += 1

    def _open_bill(self, sequence: Sequence) -> Bill:
        """A sequence begins to run."""
        account = self.accounts[sequence.request.tenant]
        account.running += 1
        bill = self._running[sequence] = Bill(account, sequence.num_prompt, *self.prices.of(sequence))
        return bill

    def left(self, sequence: Sequence) -> None:
        bill = self._running.pop(sequence)
        bill.decodes(False)
        account = bill.account
        account.running -= 1
        self._backlogs.changed[account] = None
        self.accounts.enlist(account)

    def upcoming(self, count: int) -> list[Sequence]:
        accounts = self.accounts.near_the_top(count)
        each = count // max(1, len(accounts)) + 1
        return [sequence for account in accounts for sequence in account.waiting.heads(each)][:count]

    def ahead_of(self, sequence: Sequence) -> Backlog:
        account = self.accounts.open(sequence.request.tenant)
        return self._backlogs.ahead(account, self.place(sequence) if sequence in self else len(account.waiting))

    def gap_bound(self, one: Account, other: Account) -> float:
        """What the gap in service per weight of two tenants stays below while both wait and could run.

        The paper's ``2 max(input price x longest prompt, output price x pool)``, and the slack.
        """
        return self._gap_bound / min(one.weight, other.weight)

    def place(self, sequence: Sequence) -> int:
        """About how many of its tenant's waiting sequences go before this one."""
        return max(0, self._waiting[sequence] - self.accounts[sequence.request.tenant].departed)

    def victim(self, running: Iterable[Sequence]) -> Sequence:
        """The newest of the most served tenant."""
        accounts = self.accounts
        return max(running, key=lambda s: (accounts[s.request.tenant].counter, -s.request.slo.priority, s.arrival))

    def _offer(self, account: Account, attempt: Attempt) -> Outcome:
        """Try the tenant's sequences until one runs; NO_ROOM if one of them did not fit."""
        worst = Outcome.LOADING
        for tried, sequence in enumerate(account.waiting.choices()):
            if tried == _TRIES:
                break
            outcome = attempt(sequence)
            if outcome is Outcome.ADMITTED:
                self.remove(sequence)
            if outcome in (Outcome.ADMITTED, Outcome.FULL):
                return outcome
            if outcome is Outcome.NO_ROOM:
                worst = outcome
                if not account.waiting.may_be_passed(sequence):
                    break
        return worst

    def _passing_limit(self, account: Account) -> float:
        """Up to which counter others may pass a tenant whose first sequence does not fit."""
        if not account.waiting.may_be_passed(account.waiting.first()):
            return account.counter
        return account.counter + self._slack / account.weight
