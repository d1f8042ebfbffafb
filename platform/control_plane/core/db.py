"""Database work from async code.

Django's ORM is synchronous. Django's adapters run it on one shared thread, so every stream would wait for the queries
of every other. Here a small pool of threads runs it, and each call returns its connection.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from django.db import IntegrityError, close_old_connections, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.db.models import Model, QuerySet

from control_plane.core.breaker import Breaker
from control_plane.core.config import current
from control_plane.core.postgres.connection import abort_all, limit_answers

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound=Model)

# Threads for database work: the most queries that one process runs at once from async code.
THREADS = 8
# Seconds that a thread keeps a SQLite file open: opening and closing it costs as much as two or three queries.
# PostgreSQL has a pool of connections instead.
FILE_KEPT_S = 60.0
_NAME = "lorikeet-db"
_reached = False
_pool = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix=_NAME)


async def run_db(fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call the synchronous `fn` on a database thread and await its result.

    Context variables are copied to the thread.
    """
    context = contextvars.copy_context()
    call = partial(context.run, _with_connection, partial(fn, *args, **kwargs))
    return await asyncio.get_running_loop().run_in_executor(_pool, call)


def _with_connection(fn: Callable[[], R]) -> R:
    _give_back()
    try:
        return fn()
    finally:
        _give_back()


def _give_back() -> None:
    connection = connections["default"]
    if connection.vendor != "sqlite":
        close_old_connections()
    elif connection.errors_occurred or time.monotonic() >= (connection.close_at or 0.0):
        connection.close()


def database_breaker() -> Breaker | None:
    """Return the breaker of the PostgreSQL server; None on SQLite, which is a file and needs none."""
    if connections.settings["default"]["ENGINE"] != "control_plane.core.postgres":
        return None
    from control_plane.core.postgres.base import breaker

    return breaker


def was_reached() -> bool:
    """Return True if this process has connected to the database at least once."""
    return _reached


def _note_connection(connection: BaseDatabaseWrapper, **_: object) -> None:
    global _reached
    _reached = True
    if connection.vendor == "sqlite" and threading.current_thread().name.startswith(_NAME):
        connection.close_at = time.monotonic() + FILE_KEPT_S


connection_created.connect(_note_connection)


def outage_s() -> float:
    """Return the seconds since the database stopped answering; 0 while it answers."""
    breaker = database_breaker()
    return breaker.open_for_s if breaker is not None else 0.0


async def start() -> None:
    """Start-up hook: bound every wait for PostgreSQL by LORIKEET_DATABASE_ANSWER_S."""
    if database_breaker() is not None:
        limit_answers(current().database_answer_s)


async def stop() -> None:
    """Last shut-down hook: abort threads that still wait for the database, so that the process can end."""
    if database_breaker() is not None:
        await asyncio.to_thread(_abandon)


def _abandon() -> None:
    abort_all()
    connections["default"].close_pool()  # type: ignore[attr-defined]


def close_thread_connections() -> None:
    """Close this thread's connections before the thread ends."""
    connections.close_all()


def release_connections() -> None:
    """Return this thread's connections to the pool before a long wait for something else.

    Connections inside a transaction stay: the transaction needs them until its end.
    """
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()


def referable(rows: QuerySet[M]) -> list[M]:
    """Return rows that new rows may refer to: no other transaction can delete them until this one ends.

    Foreign keys are checked at the end of a transaction, which would fail if a row had been deleted meanwhile. On
    PostgreSQL the lock is that of a foreign key's check: it waits for deletions only, and only they wait for it.
    """
    if connections[rows.db].vendor != "postgresql":
        return list(rows)
    sql, params = rows.query.sql_with_params()
    return list(rows.model._default_manager.using(rows.db).raw(f"{sql} FOR KEY SHARE", params))


def is_duplicate(error: IntegrityError) -> bool:
    """Return True if the error is a violated unique constraint, and not another rule of the tables."""
    cause = error.__cause__
    names = (getattr(cause, "sqlstate", None), getattr(cause, "sqlite_errorname", None))
    return any(name in ("23505", "SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY") for name in names)
