"""Threads that tenants use in turn."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from lora_engine.server.tenant_threads import TenantThreads


def run(wanted: object) -> None:
    asyncio.run(asyncio.wait_for(wanted, 20))  # type: ignore[arg-type]


def test_results_and_errors() -> None:
    async def body() -> None:
        threads = TenantThreads(2, "t")
        assert await threads.submit("a", divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await threads.submit("a", divmod, 7, 0)
        assert await asyncio.gather(*(threads.submit(str(n % 7), pow, n, 2) for n in range(100))) == [
            n * n for n in range(100)
        ]
        threads.close()

    run(body())


def test_a_tenant_with_much_to_do_holds_up_nobody_else() -> None:
    async def body() -> None:
        threads, begun, go = TenantThreads(2, "t"), list[str](), threading.Event()

        def work(name: str) -> None:
            begun.append(name)
            go.wait(10)

        def note(name: str) -> None:
            begun.append(name)

        much = [threads.submit("much", work, f"much {n}") for n in range(5)]
        # It has one of the two threads; others have the other one, though they came later.
        await asyncio.gather(*(threads.submit(f"few {n}", note, f"few {n}") for n in range(3)))
        assert begun == ["much 0", "few 0", "few 1", "few 2"]
        go.set()
        await asyncio.gather(*much)
        assert begun[4:] == ["much 1", "much 2", "much 3", "much 4"]
        threads.close()

    run(body())


def test_turns() -> None:
    async def body() -> None:
        threads, order, go = TenantThreads(1, "t"), list[str](), threading.Event()
        first = threads.submit("first", go.wait, 10)
        rest = [threads.submit(name[0], order.append, name) for name in ("a1", "a2", "a3", "b1", "b2", "c1")]
        go.set()
        await asyncio.gather(first, *rest)
        assert order == ["a1", "b1", "c1", "a2", "b2", "a3"]
        threads.close()

    run(body())


def test_what_nobody_waits_for_any_more_is_not_begun() -> None:
    async def body() -> None:
        threads, begun, go = TenantThreads(1, "t"), list[str](), threading.Event()
        first = threads.submit("a", go.wait, 10)
        waits = threads.submit("a", begun.append, "cancelled")
        last = threads.submit("a", begun.append, "last")
        first.cancel()
        waits.cancel()
        go.set()
        await last
        assert begun == ["last"]
        threads.close()

    run(body())


def test_closing_waits_for_what_runs_and_begins_nothing() -> None:
    async def body() -> None:
        threads, done = TenantThreads(1, "t"), list[str]()

        def work() -> None:
            time.sleep(0.1)
            done.append("ran")

        runs, waits = threads.submit("a", work), threads.submit("a", done.append, "waited")
        await asyncio.sleep(0.01)
        threads.close()
        assert done == ["ran"]
        assert waits.cancelled()
        await runs

    run(body())
