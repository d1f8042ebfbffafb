"""Fair shares between tenants by virtual token counters; inside a tenant, deadlines and adapter locality.

The least served tenant goes first: Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024, with weights,
charged as tokens are processed. Two things differ from the paper. A request whose adapter is being loaded may be
passed by all others. One that does not fit may be passed by its own tenant and by tenants within ``fair_slack`` of its
counter, for at most ``starvation_s``; then all wait until it fits. So between two tenants that always have something to
run, the gap in service per weight stays below ``2 * (U + slack)``, where U is what one tenant's requests in the batch
may still cost.

VTC takes nothing back from those that run. Here a tenant that has far less than its share of the batch (``shares.py``)
does not wait for a sequence of others to end: one of the most served tenant is pre-empted, and its prompt gets the
step's tokens first. It may be ahead of the least served tenant that waits by ``fair_slack`` at most, as one that passes
a sequence which does not fit, so that the bound on the gap stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lora_engine.scheduling.sequence import Chunk, Outcome, Sequence

from .accounts import Account, Accounts, Bill, Prices
from .backlogs import Backlogs
from .base import LOOK_AHEAD, Attempt, Backlog, PolicyContext, queue_policies
from .shares import Shares, by_account, pages_held
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
        self._shares = Shares(
            min(config.max_running, config.max_step_tokens), context.pool_pages, config.guaranteed_share
        )
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
        self._shares.update(account)
        self.accounts.enlist(account)
        self._backlogs.changed[account] = None

    def remove(self, sequence: Sequence) -> None:
        account = self.accounts[sequence.request.tenant]
        del self._waiting[sequence]
        account.waiting.remove(sequence)
        self._shares.update(account)
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

    def fill_underserved(self, attempt: Attempt) -> None:
        """Offer a sequence of each tenant that has less than its guaranteed places, the least served tenant's first."""
        if not self._shares.contested:
            return
        least = self.accounts.least()
        below = [a for a in self._shares.below_guarantee() if a.may_run and self._may_go_before(a, least)]
        for account in sorted(below, key=_counter):
            if self._offer(account, attempt) is Outcome.FULL:
                break

    def prefill_order(self, sequences: list[Sequence]) -> list[Sequence]:
        """Tenants with the fewest running sequences first, the least served of them first; last, those that were served
        more than another by more than the slack."""
        if len(sequences) < 2 or not self._shares.contested:
            return sequences
        accounts = {sequence: self.accounts[sequence.request.tenant] for sequence in sequences}
        least = min({*accounts.values(), *filter(None, [self.accounts.least()])}, key=_counter)

        def rank(sequence: Sequence) -> tuple[bool, int, float]:
            account = accounts[sequence]
            return not self._may_go_before(account, least), account.running, account.counter

        return sorted(sequences, key=rank)

    def place_victim(self, sequence: Sequence, running: Iterable[Sequence]) -> Sequence | None:
        """The newest sequence of the most served of those tenants that have more places than their share."""
        account = self.accounts[sequence.request.tenant]
        above = [a for a in self._shares.above_share(account) if self._may_go_before(account, a)]
        if not above:
            return None
        most = max(above, key=_counter)
        return by_account((s for s in running if s.request.tenant == most.tenant), self.accounts)[most][0]

    def page_victims(self, sequence: Sequence, running: Iterable[Sequence]) -> Iterator[Sequence]:
        """The newest of tenants that have more pages than their share, down to that; a tenant's last one stays."""
        account = self.accounts[sequence.request.tenant]
        groups = by_account(running, self.accounts)
        for other in sorted(groups, key=_counter, reverse=True):
            if other is account or not self._may_go_before(account, other):
                continue
            held, share = sum(map(pages_held, groups[other])), self._shares.page_share(other)
            for victim in groups[other][:-1]:
                if held <= share:
                    break
                held -= pages_held(victim)
                yield victim

    def served(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            bill = self._running.get(chunk.sequence) or self._open_bill(chunk.sequence)
            begins = not chunk.sequence.charged
            bill.charge(chunk)
            if begins:
                self.accounts.left_queue(bill.account)

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
        account.changed_at = self.accounts.steps.count
        self._shares.update(account)
        bill = self._running[sequence] = Bill(account, sequence.num_prompt, *self.prices.of(sequence))
        return bill

    def left(self, sequence: Sequence) -> None:
        bill = self._running.pop(sequence)
        bill.decodes(False)
        account = bill.account
        account.running -= 1
        account.changed_at = self.accounts.steps.count
        self._shares.update(account)
        self._backlogs.changed[account] = None
        self.accounts.enlist(account)

    def upcoming(self, count: int) -> list[Sequence]:
        accounts = self.accounts.near_the_top(count)
        each = count // max(1, len(accounts)) + 1
        return [sequence for account in accounts for sequence in account.waiting.heads(each)][:count]

    def ahead_of(self, sequence: Sequence) -> Backlog:
        account = self.accounts.open(sequence.request.tenant)
        place = self.place(sequence) if sequence in self else len(account.waiting)
        if self._gets_a_place_at_once(account, place):
            return Backlog(preempts=True)
        return self._backlogs.ahead(account, place)

    def gap_bound(self, one: Account, other: Account) -> float:
        """What the gap in service per weight of two tenants stays below while both wait and could run.

        The paper's ``2 max(input price x longest prompt, output price x pool)``, and the slack.
        """
        return self._gap_bound / min(one.weight, other.weight)

    def place(self, sequence: Sequence) -> int:
        """About how many of its tenant's waiting sequences go before this one."""
        return max(0, self._waiting[sequence] - self.accounts[sequence.request.tenant].departed)

    def victim(self, running: Iterable[Sequence]) -> Sequence:
        """The newest of the most served tenant; where tenants share the pool, of those with more than their share."""
        groups = by_account(running, self.accounts)
        if self._shares.contested:
            above = [a for a in groups if sum(map(pages_held, groups[a])) > self._shares.page_share(a)]
            groups = {a: groups[a] for a in above} or groups
        return groups[max(groups, key=_counter)][0]

    def _offer(self, account: Account, attempt: Attempt) -> Outcome:
        """Try the tenant's sequences until one runs; NO_ROOM if one of them did not fit."""
        worst = Outcome.LOADING
        for tried, sequence in enumerate(account.waiting.choices()):
            if tried == _TRIES:
                break
            outcome = attempt(sequence)
            if outcome is Outcome.ADMITTED:
                self.remove(sequence)
                if sequence not in self._running:  # its first tokens may come later in the step
                    self._open_bill(sequence)
            if outcome in (Outcome.ADMITTED, Outcome.FULL):
                return outcome
            if outcome is Outcome.NO_ROOM:
                worst = outcome
                if not account.waiting.may_be_passed(sequence):
                    break
        return worst

    def _may_go_before(self, account: Account, other: Account | None) -> bool:
        """Whether a tenant may be preferred to another: it was served no more, but for the slack."""
        return other is None or account.counter <= other.counter + self._slack / account.weight

    def _gets_a_place_at_once(self, account: Account, place: int) -> bool:
        """Whether others would give way to the tenant's sequence at ``place`` of its queue."""
        if account.running + place >= self._shares.guaranteed_places(account):
            return False
        return any(self._may_go_before(account, other) for other in self._shares.above_share(account))

    def _passing_limit(self, account: Account) -> float:
        """Up to which counter others may pass a tenant whose first sequence does not fit."""
        if not account.waiting.may_be_passed(account.waiting.first()):
            return account.counter
        return account.counter + self._slack / account.weight


def _counter(account: Account) -> float:
    return account.counter
