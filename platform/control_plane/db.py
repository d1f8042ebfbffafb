"""The database from async code.

Django's ORM is synchronous. Its own adapters run it on one shared thread, which would make every stream wait for
every other's query; here a small pool of threads runs it, and each call gives its connection back.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from django.db import IntegrityError, close_old_connections, connections

P = ParamSpec("P")
R = TypeVar("R")

THREADS = 8
_pool = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="lorikeet-db")


async def run_db(fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call the synchronous `fn` on a database thread and await its result. Context variables travel along."""
    context = contextvars.copy_context()
    call = partial(context.run, _with_connection, partial(fn, *args, **kwargs))
    return await asyncio.get_running_loop().run_in_executor(_pool, call)


def _with_connection(fn: Callable[[], R]) -> R:
    close_old_connections()
    try:
        return fn()
    finally:
        close_old_connections()


def close_thread_connections() -> None:
    """Close what this thread holds: for threads that end."""
    connections.close_all()


def release_connections() -> None:
    """Give this thread's connections back before a long wait for something else, so that the pool has them for others.

    Not inside a transaction, whose connection is needed until its end.
    """
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()


def is_duplicate(error: IntegrityError) -> bool:
    """Whether a row like it is there already, and not another rule of the tables broken."""
    cause = error.__cause__
    names = (getattr(cause, "sqlstate", None), getattr(cause, "sqlite_errorname", None))
    return any(name in ("23505", "SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY") for name in names)
