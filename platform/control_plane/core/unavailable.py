"""Errors of an unavailable database or Redis, as callers see them: 503, or 507 where the database's disk is full."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import DatabaseError, InterfaceError, OperationalError
from kombu.exceptions import OperationalError as QueueError
from psycopg.errors import DiskFull, ReadOnlySqlTransaction
from psycopg_pool import PoolTimeout
from redis.exceptions import RedisError

from control_plane.core.errors import LorikeetError

logger = logging.getLogger(__name__)

RETRY_AFTER_S = 2.0  # sent to the client in Retry-After
FULL_RETRY_AFTER_S = 60.0  # while the database's disk is full
# SQLite raises OperationalError for mistakes in SQL too; these are errors that pass or that an operator must fix.
_SQLITE = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY")


class UnavailableError(LorikeetError):
    """A server that the request needs is unavailable. The same request may succeed in a moment."""

    retry_after_s = RETRY_AFTER_S

    def __init__(self, code: str, message: str) -> None:
        fix = "Send it again in a few seconds. If it persists, the operator should check /readyz."
        super().__init__(code, message, fix, status=503)


class DatabaseFullError(UnavailableError):
    """The database can be read, but accepts no writes until the operator frees space."""

    retry_after_s = FULL_RETRY_AFTER_S

    def __init__(self) -> None:
        super().__init__("database_full", "The database has no room for this now.")
        self.fix = "Send it again later. The operator must free space on the database's disk."
        self.status = 507


def database_unavailable() -> UnavailableError:
    return UnavailableError("database_unavailable", "The database cannot be reached at the moment.")


def redis_unavailable() -> UnavailableError:
    return UnavailableError("redis_unavailable", "Redis, which this request needs, cannot be reached at the moment.")


def as_unavailable(error: BaseException) -> UnavailableError | None:
    """Return the error for the caller; None if the error is of another kind."""
    if isinstance(error, UnavailableError):
        return error
    if isinstance(error, RedisError | QueueError):
        return redis_unavailable()
    if isinstance(error.__cause__, PoolTimeout):
        return UnavailableError("database_busy", "All connections to the database are in use.")
    if not is_database_away(error):
        return None
    return DatabaseFullError() if _is_full(error.__cause__) else database_unavailable()


@contextmanager
def telling_unavailable() -> Iterator[None]:
    """Raise errors of an unavailable server within the block as UnavailableError."""
    try:
        yield
    except Exception as error:
        away = as_unavailable(error)
        if away is None or away is error:
            raise
        logger.warning("Refused: %s", error)
        raise away from error


def is_database_away(error: BaseException) -> bool:
    """Return True if the error comes from the server's state, and not from the query."""
    cause = error.__cause__
    if isinstance(error, OperationalError):
        sqlite = getattr(cause, "sqlite_errorname", None)
        return sqlite is None or sqlite.startswith(_SQLITE)
    return isinstance(error, InterfaceError) or (
        isinstance(error, DatabaseError) and isinstance(cause, ReadOnlySqlTransaction)
    )


def _is_full(cause: BaseException | None) -> bool:
    return isinstance(cause, DiskFull) or getattr(cause, "sqlite_errorname", None) == "SQLITE_FULL"
