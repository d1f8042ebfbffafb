"""Two transactions at once, in threads: for tests on PostgreSQL that commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.db import connection, transaction


def while_another_commits(
    first: Callable[[], Any], second: Callable[[], Any], last: Callable[[], Any] = lambda: None
) -> Any:
    """Return the result of `second`, started between `first` and `last` of one transaction; fail unless it waits."""
    begun, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                first()
                begun.set()
                assert go_on.wait(20)
                last()
        finally:
            begun.set()
            connection.close()

    def follow() -> Any:
        try:
            return second()
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as threads:
        holding = threads.submit(hold)
        assert begun.wait(20)
        following = threads.submit(follow)
        time.sleep(0.5)
        waits = not following.done()
        go_on.set()
        holding.result(20)
        result = following.result(20)
    assert waits, "it must have to wait"
    return result
