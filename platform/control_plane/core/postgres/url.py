"""Database URLs with several servers, as libpq reads them: `postgres://user:password@one:5432,two:5432/name`.

New connections try the servers in this order and use the one that takes writes, so that a failover needs no new
setting.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import dj_database_url

ENGINE = "control_plane.core.postgres"
DEFAULT_PORT = 5432


def parse_database_url(url: str) -> dict[str, Any]:
    """Return Django's settings of a database. Raises ValueError if the URL is not valid."""
    addresses = urlsplit(url).netloc.rpartition("@")[2]
    first, *others = addresses.split(",")
    database: dict[str, Any] = dict(dj_database_url.parse(url.replace(addresses, first, 1), engine=ENGINE))
    if others:
        servers = [urlsplit(f"//{address}") for address in (first, *others)]
        database["HOST"] = ",".join(server.hostname or "" for server in servers)
        database["PORT"] = ",".join(str(server.port or DEFAULT_PORT) for server in servers)
    return database
