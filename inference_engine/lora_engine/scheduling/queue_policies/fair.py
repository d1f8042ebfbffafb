"""The fair policy shares service between tenants by virtual token counters; inside a tenant, deadlines and adapter
locality decide.

The least served tenant goes first: Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024, with weights,
charged as tokens are processed. Two things differ from the paper. A request whose adapter is being loaded may be passed
by all others. One that does not fit may be passed by its tenant and by tenants within ``fair_slack`` of its counter,
for at most ``starvation_s``; then all wait until it fits. So between two tenants that always have something to run, the
gap in service per weight stays below ``2 * (U + slack)``, where U is the remaining cost of one tenant's requests in the
batch.

VTC never pre-empts for fairness. Here a tenant that has far less than its share of the batch (``shares.py``) does not
wait for another tenant's sequence to end: one of the most served tenant is pre-empted, and its prompt gets the step's
tokens first. It may be ahead of the least served waiting tenant by ``fair_slack`` at most, like a request that passes
one that does not fit, so the bound on the gap holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lora_engine.scheduling.sequence import Chunk, Outcome, Sequence

from .accounts import Account, Accounts, Bill, Prices
from .backlogs import Backlogs
from .base import LOOK_AHEAD, Attempt, Backlog, PolicyContext, queue_policies
from .shares import Shares, by_account, page_usage
from .tenant_queue import TenantQueue

# Sequences of one tenant that are tried in one step before the next tenant's.
_TRIES = 8


@queue_policies.register("fair")
class Fair:
    """A policy with weighted virtual token counters between tenants."""

    def __init__(self, context: PolicyContext) -> None:
        config = context.config
        self.prices = Prices(config.input_price, config.output_price, config.adapter_price)
        self.accounts = Accounts(lambda: TenantQueue(context.on_device, context.clock, config.starvation_s))
        self._slack = config.fair_slack * config.output_price * context.pool_tokens
        self._default_cap = config.tenant_max_running
        self._step_tokens = config.max_step_tokens
        longest = min(config.max_context or context.pool_tokens, context.pool_tokens)
        dearest = 1.0 + config.adapter_price * context.highest_rank
        most = max(config.input_price * longest, config.output_price * context.pool_tokens) * dearest
        self._gap_bound = 2 * (most + self._slack)
        self._shares = Shares(
            min(config.max_running, config.max_step_tokens), context.pool_pages, config.guaranteed_share
        )
        self._running: dict[Sequence, Bill] = {}
        self._backlogs = Backlogs(self.prices)
        # departures from its tenant's queue, counted from the start, after which it is first
        self._waiting: dict[Sequence, int] = {}

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
        """Offer the least served tenant's best choice repeatedly."""
        aside: list[Account] = []
        limit = float("inf")  # on the counter: tenants beyond it may not pass a sequence that did not fit
        while len(aside) < LOOK_AHEAD:
            account = self.accounts.least()
            if account is None or account.counter > limit:
                break
            outcome = self._offer(account, attempt)
            if outcome is Outcome.FULL:
                break
            if outcome is not Outcome.STARTED:
                self.accounts.set_aside(account)
                aside.append(account)
            if outcome is Outcome.NO_ROOM:
                limit = min(limit, self._passing_limit(account))
        for account in aside:
            self.accounts.enlist(account)

    def fill_underserved(self, attempt: Attempt, *, beside_background: bool = False) -> None:
        """Offer a sequence of each tenant below its guaranteed places.

        Tenants without running sequences come first, then the least served ones: what another tenant's sequence loads
        or evicts must not cost an idle tenant its adapter.
        """
        if not self._shares.contested and not (beside_background and self._shares.guarantees):
            return
        least = self.accounts.least()
        below = [a for a in self._shares.below_guarantee() if a.may_run and self._may_go_before(a, least)]
        for account in sorted(below, key=lambda account: (account.running > 0, account.counter)):
            if self._offer(account, attempt) is Outcome.FULL:
                break

    def prefill_order(self, sequences: list[Sequence]) -> list[Sequence]:
        """Order tenants by running sequences, then by service. Tenants ahead of another by more than the slack come
        last.

        A waiting prompt that fills a step counts as one more running sequence: such prompts run one by one, and a flood
        of them would share the steps equally with a tenant whose only prompt runs.
        """
        if len(sequences) < 2 or not self._shares.contested:
            return sequences
        accounts = {sequence: self.accounts[sequence.request.tenant] for sequence in sequences}
        least = min({*accounts.values(), *filter(None, [self.accounts.least()])}, key=_counter)

        def rank(sequence: Sequence) -> tuple[bool, int, float]:
            account = accounts[sequence]
            sequences = account.running + self._waits_for_a_whole_step(account)
            return not self._may_go_before(account, least), sequences, account.counter

        return sorted(sequences, key=rank)

    def place_victim(self, sequence: Sequence, running: Iterable[Sequence]) -> Sequence | None:
        """Return the newest sequence of the most served tenant among those with more places than their share."""
        account = self.accounts[sequence.request.tenant]
        above = [a for a in self._shares.above_share(account) if self._may_go_before(account, a)]
        if not above:
            return None
        most = max(above, key=_counter)
        return by_account((s for s in running if s.request.tenant == most.tenant), self.accounts)[most][0]

    def page_victims(self, sequence: Sequence, running: Iterable[Sequence]) -> Iterator[Sequence]:
        """Yield the newest sequences of tenants above their share of pages, down to it. A tenant's last one stays."""
        account = self.accounts[sequence.request.tenant]
        groups = by_account(running, self.accounts)
        for other in sorted(groups, key=_counter, reverse=True):
            if other is account or not self._may_go_before(account, other):
                continue
            used, share = sum(map(page_usage, groups[other])), self._shares.page_share(other)
            for victim in groups[other][:-1]:
                if used <= share:
                    break
                used -= page_usage(victim)
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

    def accepted(self, sequence: Sequence, tokens: int) -> None:
        self._running[sequence].charge_accepted(tokens)

    def _open_bill(self, sequence: Sequence) -> Bill:
        """Open the bill of a sequence that begins to run."""
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
        """Return the bound of the gap in service per weight between two tenants while both wait and could run.

        It is the paper's ``2 max(input price x longest prompt, output price x pool)``, plus the slack.
        """
        return self._gap_bound / min(one.weight, other.weight)

    def place(self, sequence: Sequence) -> int:
        """Return about how many of its tenant's waiting sequences go before this one."""
        return max(0, self._waiting[sequence] - self.accounts[sequence.request.tenant].departed)

    def victim(self, running: Iterable[Sequence]) -> Sequence:
        """Return the most served tenant's newest sequence; where the pool is contested, only tenants above their share
        count.
        """
        groups = by_account(running, self.accounts)
        if self._shares.contested:
            above = [a for a in groups if sum(map(page_usage, groups[a])) > self._shares.page_share(a)]
            groups = {a: groups[a] for a in above} or groups
        return groups[max(groups, key=_counter)][0]

    def _offer(self, account: Account, attempt: Attempt) -> Outcome:
        """Try the tenant's sequences until one runs; NO_ROOM if one of them did not fit."""
        worst = Outcome.LOADING
        for tried, sequence in enumerate(account.waiting.candidates()):
            if tried == _TRIES:
                break
            outcome = attempt(sequence)
            if outcome is Outcome.STARTED:
                self.remove(sequence)
                if sequence not in self._running:  # its first tokens may come later in the step
                    self._open_bill(sequence)
            if outcome in (Outcome.STARTED, Outcome.FULL):
                return outcome
            if outcome is Outcome.NO_ROOM:
                worst = outcome
                if not account.waiting.may_be_passed(sequence):
                    break
        return worst

    def _may_go_before(self, account: Account, other: Account | None) -> bool:
        """Return whether a tenant may be preferred to another: its service is no more, apart from the slack."""
        return other is None or account.counter <= other.counter + self._slack / account.weight

    def _gets_a_place_at_once(self, account: Account, place: int) -> bool:
        """Return whether another tenant would be pre-empted for the sequence at ``place`` of the tenant's queue."""
        if account.running + place >= self._shares.guaranteed_places(account):
            return False
        return any(self._may_go_before(account, other) for other in self._shares.above_share(account))

    def _waits_for_a_whole_step(self, account: Account) -> bool:
        """Return whether the tenant's first waiting prompt is at least as long as a step."""
        return bool(account.waiting) and account.waiting.first().num_prompt >= self._step_tokens

    def _passing_limit(self, account: Account) -> float:
        """Return the counter up to which others may pass a tenant whose first sequence does not fit."""
        if not account.waiting.may_be_passed(account.waiting.first()):
            return account.counter
        return account.counter + self._slack / account.weight


def _counter(account: Account) -> float:
    return account.counter
