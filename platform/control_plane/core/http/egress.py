"""Requests to servers that a tenant names: only to public addresses, bounded in time and size.

The identity provider of the settings is called through it too, for the bounds; its address may be private.

A tenant chooses the URL. Without these checks it could be one of our own machines, a cloud's metadata service, or a
name that resolves to a public address at the check and to a private one at its use (DNS rebinding). So the name is
resolved here, every address is checked, and the connection is made to a checked address.
Error texts for the caller reveal nothing about our network: a name that does not exist and one that leads to a
private address have the same text. The log has the details.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import Any, NamedTuple, Self

import httpx

from control_plane.core.errors import LorikeetError

logger = logging.getLogger(__name__)

TOTAL_S = 5.0
CONNECT_S = 2.0
LOOKUP_S = 2.0
READ_S = 20.0
# Seconds until a GET's answer begins, redirects included: a server may send its head one byte at a time.
HEAD_S = 30.0
DOCUMENT_S = 30.0
# Maximum number of redirects that one request follows.
MAX_REDIRECTS = 5
CUT_OFF = "The server closed the connection before the answer was complete."
# Maximum number of names that one process resolves at once.
MAX_LOOKUPS = 100
# Maximum number of addresses that are tried for one name.
MAX_ADDRESSES = 3

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# All of https://www.iana.org/assignments/iana-ipv4-special-registry, multicast and class E. Python's own `is_global`
# differs between its versions.
_NOT_PUBLIC_V4 = tuple(
    map(
        ipaddress.IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "168.63.129.16/32",  # not in the registry: Azure's platform service, reachable from each of its machines
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.31.196.0/24",
            "192.52.193.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "192.175.48.0/24",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",
            "240.0.0.0/4",
        ),
    )
)
# Registries allocate addresses to servers from this range only, except for the special ranges within it below. That
# leaves out ::/8 with its embedded IPv4 addresses, fc00::/7, fe80::/10, fec0::/10, ff00::/8 and 5f00::/16.
_UNICAST_V6 = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC_V6 = tuple(
    map(
        ipaddress.IPv6Network,
        (
            "2001::/23",  # protocol assignments: Teredo, benchmarking, ORCHID, anycast services
            "2001:db8::/32",
            "2002::/16",  # 6to4
            "2620:4f:8000::/48",
            "3fff::/20",
        ),
    )
)
# A translator on the way connects to the IPv4 address in the last 32 bits.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_NAME = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]{0,62})\.)*[a-z0-9_][a-z0-9_-]{0,62}\.?")
_HOST = re.compile(r"[/?#]")
# Resolvers take 2130706433 and 0x7f.1 for IPv4 addresses.
_NUMBER = re.compile(r"(?:^|\.)(?:\d+|0x[0-9a-f]*)\.?$")


class UrlRefusedError(LorikeetError):
    """A URL that is refused before any request."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__("url_refused", message, fix, param="url")


class EgressError(Exception):
    """A request without an answer. The message may be shown to the tenant."""


class NotPublicError(EgressError):
    def __init__(self) -> None:
        super().__init__("The host name does not resolve to a public address.")


def is_public(address: Address) -> bool:
    """Return True if the address can be a server on the public internet."""
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_V4)
    if address.scope_id is not None:
        return False
    if address in _NAT64:
        return is_public(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
    return address in _UNICAST_V6 and not any(address in network for network in _NOT_PUBLIC_V6)


def check_url(url: str, *, allow_private: bool = False) -> httpx.URL:
    """Check everything about a URL that needs no look-up of its name. `allow_private` also allows http.

    Raises UrlRefusedError (400).
    """
    try:
        parts = httpx.URL(url)
    except (httpx.InvalidURL, UnicodeError):
        raise UrlRefusedError("The URL is not valid.", "Write it like https://example.org/path.") from None
    if parts.scheme != "https" and not (allow_private and parts.scheme == "http"):
        raise UrlRefusedError("The URL must begin with https://.", "Serve the endpoint with TLS.")
    if parts.userinfo or parts.fragment or "#" in url or not url.isprintable() or " " in url:
        raise UrlRefusedError(
            "The URL has a user name, a fragment or spaces.", "Write it like https://example.org/path."
        )
    if parts.port is not None and not 0 < parts.port < 65536:
        raise UrlRefusedError(f"Port {parts.port} does not exist.", "Use a port from 1 to 65535, or none.")
    _check_host(parts.raw_host.decode(), allow_private)
    return parts


def _check_host(host: str, allow_private: bool) -> None:
    literal = _literal(host)
    if literal is not None:
        if not (allow_private or is_public(literal)):
            raise UrlRefusedError(f"{host} is not a public address.", "Use a public internet address.")
        return
    if not _NAME.fullmatch(host) or len(host) > 253 or _NUMBER.search(host):
        raise UrlRefusedError("The URL has no valid host name.", "Write it like https://example.org/path.")
    if "." not in host.rstrip(".") and not allow_private:
        raise UrlRefusedError(f"{host} is not a public host name.", "Write the full name, with its domain.")


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def resolve(host: str, port: int, *, allow_private: bool = False) -> list[str]:
    """Return the addresses of `host`, every one of them public. Raises NotPublicError."""
    try:
        addresses = list(dict.fromkeys(_lookup_host(host, port)))
    except (OSError, UnicodeError) as error:
        logger.info("%s could not be looked up: %r", host, error)
        raise NotPublicError from error
    private = [address for address in addresses if not is_public(ipaddress.ip_address(address))]
    if not addresses or (private and not allow_private):
        logger.warning("%s resolves to %s, which is not public: nothing was sent.", host, private)
        raise NotPublicError
    return addresses


_lookups = threading.BoundedSemaphore(MAX_LOOKUPS)


def _lookup_host(host: str, port: int) -> list[str]:
    """Resolve a name on a thread that may be left behind: a slow name server must not block the caller."""
    answer: Future[list[str]] = Future()
    if not _lookups.acquire(blocking=False):
        raise OSError(f"{MAX_LOOKUPS} names are being resolved already")

    def query() -> None:
        try:
            rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            answer.set_result([str(entry[4][0]) for entry in rows])
        except Exception as error:
            answer.set_exception(error)
        finally:
            _lookups.release()

    threading.Thread(target=query, name="look-up", daemon=True).start()
    return answer.result(LOOKUP_S)


def post(url: str, body: bytes, headers: Mapping[str, str], *, allow_private: bool = False) -> int:
    """Return the status of the answer, whose body is not read; redirects are not followed. Takes at most TOTAL_S.

    Raises UrlRefusedError for a URL that may not be called, EgressError if there was no answer.
    """
    return exchange("POST", url, body, headers, most_bytes=0, seconds=TOTAL_S, allow_private=allow_private).status


class Document(NamedTuple):
    """A short answer; `body` is None if it was longer than allowed."""

    status: int
    headers: Mapping[str, str]
    body: bytes | None


def exchange(
    method: str,
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    most_bytes: int,
    seconds: float,
    allow_private: bool = False,
) -> Document:
    """Send one request and return its answer, a redirect too. With `most_bytes` 0 the answer's body is not read.

    Looking the name up, connecting, sending and reading take at most `seconds` together. Raises UrlRefusedError for a
    URL that may not be called, EgressError if there was no complete answer.
    """
    deadline = time.monotonic() + seconds
    target = check_url(url, allow_private=allow_private)
    host, port = target.raw_host.decode(), target.port or (443 if target.scheme == "https" else 80)
    addresses = resolve(host, port, allow_private=allow_private)[:MAX_ADDRESSES]
    request = _Request(method, target, body, headers)
    try:
        return asyncio.run(_send(request, addresses, most_bytes, deadline - time.monotonic()))
    except (TimeoutError, httpx.TimeoutException) as error:
        raise EgressError(f"There was no answer within {seconds:.0f} s.") from error
    # Bytes after the handshake that are not TLS raise SSLError, which httpx passes on.
    except (httpx.ConnectError, httpx.NetworkError, ssl.SSLError) as error:
        logger.info("%s could not be reached: %r", host, error)
        raise EgressError(_connection_problem(error)) from error
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        logger.info("%s sent an invalid answer: %r", host, error)
        raise EgressError("The answer was not valid HTTP.") from error


class _Request(NamedTuple):
    method: str
    target: httpx.URL
    body: bytes
    headers: Mapping[str, str]


async def _send(request: _Request, addresses: Sequence[str], most_bytes: int, seconds: float) -> Document:
    """Send to the first address that accepts a connection. After that no other is tried: nothing is sent twice."""
    # No proxies, netrc or certificates from the environment.
    timeout = httpx.Timeout(seconds, connect=CONNECT_S)
    options: dict[str, Any] = {"trust_env": False, "follow_redirects": False, "timeout": timeout, "verify": _tls()}
    target = request.target
    async with asyncio.timeout(seconds), httpx.AsyncClient(**options) as client:
        for address in addresses:
            # The certificate must be valid for the name, not for the address.
            built = client.build_request(
                request.method,
                target.copy_with(host=address),
                content=request.body,
                headers={**request.headers, "Host": target.netloc.decode(), "Connection": "close"},
                extensions={"sni_hostname": target.raw_host.decode()},
            )
            try:
                answer = await client.send(built, stream=True)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                if address == addresses[-1]:
                    raise
                logger.info("%s refused a connection at %s: %r", target.host, address, error)
            else:
                try:
                    body = await _body(answer, most_bytes) if most_bytes else None
                finally:
                    await answer.aclose()
                return Document(answer.status_code, answer.headers, body)
    raise AssertionError("there is at least one address")


async def _body(answer: httpx.Response, most_bytes: int) -> bytes | None:
    """Return the body as it was sent, None if it is longer than `most_bytes`."""
    body = bytearray()
    async for piece in answer.aiter_raw():
        body += piece
        if len(body) > most_bytes:
            return None
    return bytes(body)


@contextmanager
def get(url: str, headers: Mapping[str, str], *, allow_private: bool = False) -> Iterator[httpx.Response]:
    """Send a GET and yield its answer, whose body is still to be read with `iter_raw`. Each redirect is checked.

    `headers` go to the first host only, except Range and If-Range: another host must not get a token. The answer begins
    within HEAD_S; the caller bounds the time of the body. Raises UrlRefusedError and EgressError, also from within the
    block.
    """
    with _telling_failures(url), ExitStack() as opened:
        timeout = httpx.Timeout(READ_S, connect=CONNECT_S)
        client = opened.enter_context(httpx.Client(trust_env=False, timeout=timeout, verify=_tls()))
        with _Deadline(HEAD_S) as deadline:
            answer = _follow(client, url, headers, deadline, allow_private=allow_private)
        opened.callback(answer.close)
        yield answer


def get_document(url: str, headers: Mapping[str, str], most_bytes: int, *, allow_private: bool = False) -> Document:
    """Send a GET and return its answer, complete within DOCUMENT_S. Raises UrlRefusedError and EgressError."""
    with get(url, headers, allow_private=allow_private) as answer:
        body, until = bytearray(), time.monotonic() + DOCUMENT_S
        for piece in answer.iter_raw():  # check after each piece: a server may send one byte at a time
            body += piece
            if len(body) > most_bytes:
                return Document(answer.status_code, answer.headers, None)
            if time.monotonic() > until:
                raise EgressError(f"The answer was not complete within {DOCUMENT_S:.0f} s.")
    return Document(answer.status_code, answer.headers, bytes(body))


class _Deadline:
    """A time limit that shuts down the connection made within the block. Between two bytes a server has READ_S."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._lock = seconds, threading.Lock()
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True
        self._socket: socket.socket | None = None
        self._is_over = False

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """End the time limit. Raises EgressError in place of the error that the shut-down caused."""
        self._timer.cancel()
        with self._lock:
            self._socket = None
        if self._is_over and isinstance(error, httpx.HTTPError):
            raise EgressError(f"There was no answer within {self._seconds:.0f} s.") from error

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Remember the socket that httpx connected (httpx's trace hook)."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            with self._lock:
                self._socket = info["return_value"].get_extra_info("socket")
            if self._is_over:
                self._cut()

    def _cut(self) -> None:
        with self._lock:
            self._is_over = True
            if self._socket is not None:
                with suppress(OSError):
                    socket.socket.shutdown(
                        self._socket, socket.SHUT_RDWR
                    )  # below TLS, which another thread may be reading


def _follow(
    client: httpx.Client, url: str, headers: Mapping[str, str], deadline: _Deadline, *, allow_private: bool
) -> httpx.Response:
    target, first = check_url(url, allow_private=allow_private), ""
    for _ in range(MAX_REDIRECTS + 1):
        host, port = target.raw_host.decode(), target.port or (443 if target.scheme == "https" else 80)
        origin = f"{target.scheme}://{target.netloc.decode()}"
        first = first or origin
        forwarded = {name: text for name, text in headers.items() if origin == first or name in ("Range", "If-Range")}
        addresses = resolve(host, port, allow_private=allow_private)[:MAX_ADDRESSES]
        answer = _get_at(client, target, addresses, forwarded, deadline)
        if not answer.has_redirect_location:
            return answer
        answer.close()
        target = check_url(str(target.join(answer.headers["location"])), allow_private=allow_private)
    raise EgressError(f"There were more than {MAX_REDIRECTS} redirects.")


def _get_at(
    client: httpx.Client, target: httpx.URL, addresses: Sequence[str], headers: Mapping[str, str], deadline: _Deadline
) -> httpx.Response:
    for address in addresses:
        request = client.build_request(
            "GET",
            target.copy_with(host=address),
            headers={"User-Agent": "Lorikeet-Import/1", "Accept-Encoding": "identity", **headers}
            | {"Host": target.netloc.decode(), "Connection": "close"},
            extensions={"sni_hostname": target.raw_host.decode(), "trace": deadline.trace},
        )
        try:
            return client.send(request, stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            if address == addresses[-1]:
                raise
    raise AssertionError("there is at least one address")


@contextmanager
def _telling_failures(url: str) -> Iterator[None]:
    host = _HOST.split(url.partition("://")[2])[0]  # the rest of the URL may hold a signature
    try:
        yield
    except httpx.TimeoutException as error:
        raise EgressError(f"The server sent nothing for {READ_S:.0f} s.") from error
    except httpx.RemoteProtocolError as error:
        logger.info("%s sent an invalid answer: %r", host, error)
        cut = "closed connection" in str(error)
        raise EgressError(CUT_OFF if cut else "The answer was not valid HTTP.") from error
    except (httpx.ConnectError, httpx.NetworkError) as error:
        logger.info("%s could not be reached: %r", host, error)
        raise EgressError(_connection_problem(error)) from error
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
        logger.info("%s sent an invalid answer: %r", host, error)
        raise EgressError("The answer was not valid HTTP.") from error


def prepare() -> None:
    """Load the certificates ahead of the first request, which would wait for them."""
    _tls()


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _connection_problem(error: BaseException) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"The server's certificate was refused: {cause.verify_message}."
        if isinstance(cause, ssl.SSLError):
            return "The TLS connection failed."
        cause = cause.__cause__ or cause.__context__
    return "The server refused the connection, or closed it without an answer."
