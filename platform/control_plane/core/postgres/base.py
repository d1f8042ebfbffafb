"""The backend itself, under the name that Django looks for."""

from __future__ import annotations

import threading
from typing import Any, Self

import psycopg
from django.db import connections
from django.db.backends.postgresql import base
from psycopg.errors import ConnectionTimeout
from psycopg_pool import ConnectionPool, PoolClosed

from control_plane.core.breaker import Breaker
from control_plane.core.postgres.connection import BoundedConnection, check_idle

# A request waits this long for another's connection when all are in use.
POOL_WAIT_S = 5.0
PROBE_ANSWER_S = 3.0


def _probe() -> None:
    """Raises if no new connection can be made, or if it leads to a server that takes no writes."""
    params = connections["default"].get_connection_params()
    with BoundedConnection.connect(**{**params, "autocommit": True}) as connection:
        connection.answer_within_s = PROBE_ANSWER_S
        connection.execute("SELECT 1")


breaker = Breaker("PostgreSQL", _probe)


class _Connection(BoundedConnection):
    """A server that does not even refuse is away, whatever connections there still are."""

    @classmethod
    def connect(cls, *args: Any, **kwargs: Any) -> Self:
        if breaker.is_open:
            raise _away()
        try:
            return super().connect(*args, **kwargs)
        except ConnectionTimeout as error:
            breaker.trip(error)
            raise


def _away() -> psycopg.OperationalError:
    return psycopg.OperationalError(f"PostgreSQL is away: {breaker.reason}")


class _Psycopg:
    """psycopg with our connections."""

    connect = _Connection.connect

    def __getattr__(self, name: str) -> Any:
        return getattr(psycopg, name)


class DatabaseWrapper(base.DatabaseWrapper):
    """As Django's, but: fails at once while the server is away; never hands out a connection that the server has
    closed; forgets all pooled connections when one of them broke."""

    Database = _Psycopg()  # type: ignore[assignment]
    _connection_pools: dict[str, ConnectionPool[Any]]

    @property
    def pool(self) -> ConnectionPool[Any] | None:
        size = self.settings_dict["OPTIONS"].get("pool")
        if not size:
            return None
        pools = self._connection_pools
        if self.alias not in pools:
            made: ConnectionPool[Any] = ConnectionPool(
                kwargs={**self.get_connection_params(), "autocommit": True},  # Django sets it properly later on
                connection_class=_Connection,
                open=False,
                configure=self._configure_connection,  # type: ignore[attr-defined]
                timeout=POOL_WAIT_S,
                reconnect_timeout=0,  # the breaker waits for the server, not the pool
                reconnect_failed=self._no_connection,
                **size,
            )
            pools.setdefault(self.alias, made)
        return pools[self.alias]

    def get_new_connection(self, conn_params: dict[str, Any]) -> psycopg.Connection[Any]:
        for last_try in (False, True):
            if breaker.is_open:
                raise _away()
            try:
                made: psycopg.Connection[Any] = super().get_new_connection(conn_params)
                if self._is_alive(made):
                    return made
            except PoolClosed:  # another thread found it broken
                if last_try:
                    raise
            except psycopg.OperationalError as error:
                if self.pool is None:
                    breaker.trip(error)
                raise
        raise psycopg.OperationalError("the server closes every connection")

    def _is_alive(self, connection: psycopg.Connection[Any]) -> bool:
        """If the server has closed one of the pool while it was idle, it has closed the others too."""
        try:
            check_idle(connection)
        except psycopg.OperationalError:
            connection.close()
            if isinstance(pool := connection._pool, ConnectionPool):
                pool.putconn(connection)
                self._discard(pool)
            return False
        return True

    def close(self) -> None:
        pool = getattr(self.connection, "_pool", None)
        broken = self.connection is not None and self.connection.closed
        super().close()
        if broken and pool is not None:
            self._discard(pool)

    def _no_connection(self, pool: ConnectionPool[Any]) -> None:
        """The pool could not make a connection. If others of it are alive, the server may only be short of them."""
        if pool.get_stats()["pool_size"] == 0:
            breaker.trip(psycopg.OperationalError("no connection could be made"))
        if breaker.is_open:
            self._discard(pool)

    def _discard(self, pool: ConnectionPool[Any]) -> None:
        """What is idle in it is closed now, what is in use when it comes back; the next caller makes a new one."""
        pools = self._connection_pools
        if pools.get(self.alias) is pool:
            pools.pop(self.alias, None)
            # On a thread of its own, because the pool's threads come here and cannot wait for themselves. At once, so
            # that whoever waits for a connection of it goes on.
            threading.Thread(target=pool.close, kwargs={"timeout": 0}, name="close-pool", daemon=True).start()
