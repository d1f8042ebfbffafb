"""The backlog ahead of a request under fair shares is computed without walking the queue.

A tenant's next request starts when its counter has reached the others': the part of each tenant's queue that is priced
below that point runs first. This is one array operation over the tenants, after changes since the last one are written.
"""

from __future__ import annotations

import numpy as np

from .accounts import Account, Prices
from .base import Backlog

# Queries between two updates of the counters.
_COUNTERS_EVERY = 16


class Backlogs:
    """A table of each tenant's waiting work."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self._rows: dict[Account, int] = {}
        self._table = np.zeros((5, 64))  # rows: counter, weight, sequences, prompt tokens, price of all waiting work
        self._free: list[int] = []
        self.changed: dict[Account, None] = {}  # accounts to write into the table; callers add to it
        self._queries = 0

    def ahead(self, account: Account, place: int) -> Backlog:
        """Return what runs before the sequence at ``place`` of the tenant's queue (the queue's length: after all)."""
        self._queries += 1
        if self._queries % _COUNTERS_EVERY == 0:
            self._write_counters()
        self._write_changes()
        counter, weight, sequences, prompt, cost = self._table
        waiting = len(account.waiting)
        fraction = place / waiting if waiting else 0.0
        start = account.counter + fraction * self._cost(account) / account.weight
        before = (start - counter) * weight / np.maximum(cost, 1e-9)
        np.minimum(np.maximum(before, 0.0, out=before), 1.0, out=before)
        row = self._rows.get(account)
        if row is not None:
            before[row] = fraction
        return Backlog(float(before @ sequences), float(before @ prompt))

    def _cost(self, account: Account) -> float:
        waiting = account.waiting
        return waiting.prompt_tokens * self._prices.input + waiting.output_tokens * self._prices.output

    def _write_counters(self) -> None:
        """Write the counters. They change with every token, but little, so they are written less often than queues."""
        counters: memoryview[float] = memoryview(self._table[0])
        for account, row in self._rows.items():
            if account.running:
                counters[row] = account.counter

    def _write_changes(self) -> None:
        for account in self.changed:
            waiting = account.waiting
            if not waiting:
                if (row := self._rows.pop(account, None)) is not None:
                    self._table[:, row] = 0.0
                    self._free.append(row)
                continue
            row = self._rows.get(account)
            if row is None:
                row = self._rows[account] = self._take_row()
            self._table[:, row] = (
                account.counter, account.weight, len(waiting), waiting.prompt_tokens, self._cost(account)
            )  # fmt: skip
        self.changed.clear()

    def _take_row(self) -> int:
        if self._free:
            return self._free.pop()
        used = len(self._rows)
        if used == self._table.shape[1]:
            self._table = np.concatenate([self._table, np.zeros_like(self._table)], axis=1)
        return used
