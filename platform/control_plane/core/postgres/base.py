"""Django's database backend, in the module that Django expects."""

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

# Seconds that a request waits for a connection when all of the pool are in use.
POOL_WAIT_S = 5.0
PROBE_ANSWER_S = 3.0  # for an answer to the breaker's probe


def _probe() -> None:
    """Raise if no new connection can be made, or if the server accepts no writes."""
    params = connections["default"].get_connection_params()
    with BoundedConnection.connect(**{**params, "autocommit": True}) as connection:
        connection.answer_within_s = PROBE_ANSWER_S
        connection.execute("SELECT 1")


breaker = Breaker("PostgreSQL", _probe)


class _Connection(BoundedConnection):
    """A connection that trips the breaker when connecting times out: the server is away, even if others remain."""

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
    """The psycopg module with this backend's connection class."""

    connect = _Connection.connect

    def __getattr__(self, name: str) -> Any:
        return getattr(psycopg, name)


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's wrapper with three differences: it fails at once while the server is away, never returns a connection
    that the server has closed, and drops all pooled connections when one of them broke."""

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
                kwargs={
                    **self.get_connection_params(),
                    "autocommit": True,
                },  # Django sets autocommit per connection later
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
            except PoolClosed:  # another thread discarded it as broken
                if last_try:
                    raise
            except psycopg.OperationalError as error:
                if self.pool is None:
                    breaker.trip(error)
                raise
        raise psycopg.OperationalError("The server closes every new connection; see its log.")

    def _is_alive(self, connection: psycopg.Connection[Any]) -> bool:
        """Check an idle connection. If the server has closed one of the pool, it has closed the others too."""
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
        """Trip the breaker after a failed connect, unless others of the pool are alive: then there may be too few."""
        if pool.get_stats()["pool_size"] == 0:
            breaker.trip(psycopg.OperationalError("no connection could be made"))
        if breaker.is_open:
            self._discard(pool)

    def _discard(self, pool: ConnectionPool[Any]) -> None:
        """Close the pool: idle connections now, the others on their return. The next caller makes a new pool."""
        pools = self._connection_pools
        if pools.get(self.alias) is pool:
            pools.pop(self.alias, None)
            # On a thread, because the pool's threads call this and cannot wait for themselves. With a short timeout, so
            # that callers that wait for a connection of it resume at once.
            threading.Thread(target=pool.close, kwargs={"timeout": 0}, name="close-pool", daemon=True).start()
