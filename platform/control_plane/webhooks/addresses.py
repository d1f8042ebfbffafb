"""Which addresses a message may go to: only public ones, checked on what is really connected to.

A tenant chooses the URL. Without this, it could be one of our own machines, a cloud's metadata service, or a name that
answers with a public address when it is checked and with a private one when it is used.
"""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import SplitResult, urlsplit

from control_plane import config
from control_plane.errors import LorikeetError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class UrlRefusedError(LorikeetError):
    def __init__(self, message: str, fix: str) -> None:
        super().__init__("webhook_url_refused", message, fix, param="url")


class AddressRefusedError(Exception):
    """The name leads to an address that is not public, or to none."""


def check_url(url: str) -> SplitResult:
    """What can be said of a URL without looking its name up. Raises UrlRefusedError (400)."""
    private = config.current().webhook_allow_private
    try:
        parts = urlsplit(url)
        _port = parts.port
    except ValueError:
        raise UrlRefusedError("That is no URL.", "Write it like https://example.org/hooks/lorikeet.") from None
    if parts.scheme != "https" and not (private and parts.scheme == "http"):
        raise UrlRefusedError("A webhook's URL must begin with https://.", "Serve the endpoint with TLS.")
    if not parts.hostname or parts.username is not None or parts.fragment or not url.isprintable() or " " in url:
        raise UrlRefusedError(
            "The URL lacks a host name, or has a user name, a fragment or spaces.",
            "Write it like https://example.org/hooks/lorikeet; the signature replaces passwords.",
        )
    literal = _literal(parts.hostname)
    if literal is not None and not private and not is_public(literal):
        raise UrlRefusedError(f"{parts.hostname} is not a public address.", "Use an address of the internet.")
    return parts


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_public(address: Address) -> bool:
    """Also for the IPv4 address inside an IPv6 one: translators on the way would connect to that."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(inner)
    return address.is_global and not address.is_multicast and not address.is_reserved


def resolve(host: str, port: int) -> list[str]:
    """The addresses of `host`, every one of them public. Raises AddressRefusedError."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise AddressRefusedError(f"{host} could not be looked up: {error}") from error
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not config.current().webhook_allow_private:
        for address in addresses:
            if not is_public(ipaddress.ip_address(address.partition("%")[0])):
                raise AddressRefusedError(f"{host} leads to {address}, which is not a public address.")
    return addresses
