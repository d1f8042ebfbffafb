"""A psycopg connection that does not wait for ever, and is not used again once its server takes no writes."""

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
    """The server took a query and did not answer in time."""


def limit_answers(seconds: float | None) -> None:
    """How long one answer of the server may take in this process; None: as long as it likes."""
    global _answer_within_s
    _answer_within_s = seconds


def abort_all() -> None:
    """Break every connection of this process, so that threads that wait for an answer end. For its last moment."""
    for connection in list(_open):
        with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as twin:
            twin.shutdown(socket.SHUT_RDWR)


class BoundedConnection(psycopg.Connection[Any]):
    """Closes itself when an answer took too long, and when its server is a primary no more (after a failover)."""

    answer_within_s: float | None = None
    """Of this connection; by default the process's."""

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

    On an idle connection a server sends notices, changed parameters, and that it ends it: nothing else.
    """
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    while poll.poll(0):
        connection.pgconn.consume_input()
