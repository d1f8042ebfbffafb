"""The threads that compute masks. One mask never waits for a slow one of another request.

A grammar whose mask once took long has its masks computed on threads of their own, so that a few grammars that are
hard, by chance or by intent, cannot hold up those that are not.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor


class MaskWorkers:
    """Threads are started when they are first needed."""

    def __init__(self) -> None:
        cores = os.cpu_count() or 1
        self.usual = ThreadPoolExecutor(max(1, min(8, cores - 1)), "masks")
        self.slow = ThreadPoolExecutor(max(1, min(4, cores // 2)), "slow-masks")

    def close(self) -> None:
        self.usual.shutdown(cancel_futures=True)
        self.slow.shutdown(cancel_futures=True)
