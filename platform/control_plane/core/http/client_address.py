"""Client addresses: the peer of a connection, or the address that a trusted proxy names."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

FORWARDED_FOR = b"x-forwarded-for"


def forwarded_client(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the address that the nearest proxy added to `X-Forwarded-For`: the last one. None without a usable one.

    The values before it come from the client, who may write anything there.
    """
    values = [value for name, value in headers if name == FORWARDED_FOR]
    if not values:
        return None
    last = values[-1].decode("latin-1").rpartition(",")[2].strip()
    try:
        return str(ipaddress.ip_address(last))
    except ValueError:
        return None


def network_of(address: str) -> str:
    """Return the unit that limits count by: an IPv4 address, or the /64 of an IPv6 address, which one customer has."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)
