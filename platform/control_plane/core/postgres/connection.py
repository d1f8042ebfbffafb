"""A psycopg connection with bounded waits, which is dropped once its server accepts no writes."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from typing import Any, Self
from weakref import WeakSet

import psycopg
from psycopg.errors import ReadOnlySqlTransaction
from psycopg.pq import TransactionStatus

_answer_within_s: float | None = None
_open: WeakSet[BoundedConnection] = WeakSet()


class AnswerTimeoutError(psycopg.OperationalError):
    """The server received a query and did not answer in time."""


def limit_answers(seconds: float | None) -> None:
    """Bound the time of one answer of the server in this process; None for no bound."""
    global _answer_within_s
    _answer_within_s = seconds


def abort_all() -> None:
    """Break every connection of this process, so that threads that wait for an answer end. For its last moment."""
    for connection in list(_open):
        with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as twin:
            twin.shutdown(socket.SHUT_RDWR)


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that closes itself after too long a wait, and when its server stops being the primary (failover)."""

    # Seconds for an answer on this connection; None for the process's limit.
    answer_within_s: float | None = None

    @classmethod
    def connect(cls, *args: Any, **kwargs: Any) -> Self:
        connection = super().connect(*args, **kwargs)
        _open.add(connection)
        return connection

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        limit = timeout or self.answer_within_s or _answer_within_s
        try:
            return super().wait(gen, interval, limit)
        except ReadOnlySqlTransaction:
            self.close()
            raise
        except psycopg.OperationalError as error:
            if timeout is not None or self.closed or self.pgconn.transaction_status != TransactionStatus.ACTIVE:
                raise
            self.close()
            raise AnswerTimeoutError(f"no answer within {limit:.0f} s") from error


def check_idle(connection: psycopg.Connection[Any]) -> None:
    """Raise OperationalError if the server has closed this idle connection. Costs no round trip.

    On an idle connection a server only sends notices, changed parameters, and the message that it ends the connection.
    """
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    while poll.poll(0):
        connection.pgconn.consume_input()
