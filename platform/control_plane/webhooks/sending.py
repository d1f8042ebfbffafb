"""One HTTP request to a stranger's server: to the checked address, bounded in time and size, no redirects."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from control_plane.webhooks.addresses import resolve

STEP_TIMEOUT_S = 10.0
WHOLE_TIMEOUT_S = 20.0


class _Connection(http.client.HTTPConnection):
    """To one address, whatever its name means by now."""

    def __init__(self, host: str, port: int, address: str) -> None:
        super().__init__(host, port, timeout=STEP_TIMEOUT_S)
        self._address = address

    def connect(self) -> None:
        self.sock = socket.create_connection((self._address, self.port), STEP_TIMEOUT_S)


class _TlsConnection(_Connection):
    default_port = http.client.HTTPS_PORT

    def connect(self) -> None:
        super().connect()
        # The certificate must be that of the name, not of the address.
        self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=self.host)


def post(url: str, body: bytes, headers: Mapping[str, str]) -> int:
    """The status of the answer; its body is not read. Raises OSError, HTTPException or AddressRefusedError."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    secure = parts.scheme == "https"
    port = parts.port or (http.client.HTTPS_PORT if secure else http.client.HTTP_PORT)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection = (_TlsConnection if secure else _Connection)(host, port, resolve(host, port)[0])
    with contextlib.closing(connection), _cut_off(connection):
        connection.request("POST", path, body, {**headers, "Connection": "close"})
        return connection.getresponse().status


@contextlib.contextmanager
def _cut_off(connection: http.client.HTTPConnection) -> Iterator[None]:
    """A server that sends a byte now and then passes every timeout of a single read; it does not pass this."""

    def shut() -> None:
        with contextlib.suppress(OSError, AttributeError):
            connection.sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(WHOLE_TIMEOUT_S, shut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
