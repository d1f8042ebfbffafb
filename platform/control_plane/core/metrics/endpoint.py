"""The metrics port of workers, beat and the watcher, which have no web server of their own."""

from __future__ import annotations

import ipaddress
import logging
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from control_plane.core.config import current
from control_plane.core.metrics import heartbeat
from control_plane.core.metrics.registry import CONTENT_TYPE, process_text
from control_plane.core.secrets.keys import accepted, is_one_of

logger = logging.getLogger(__name__)

_REFUSED = b"Send Authorization: Bearer and the value of LORIKEET_METRICS_TOKEN, which callers from elsewhere need.\n"


class ProcessMetricsServer(ThreadingHTTPServer):
    """A web server with the pages `/metrics` and `/livez`, on a thread."""

    daemon_threads = True

    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, name="metrics", daemon=True).start()

    def may_read(self, address: str, authorization: str) -> bool:
        """Return True for a caller with the token; without one, for callers on this machine."""
        if tokens := accepted("metrics-token"):
            scheme, _, sent = authorization.partition(" ")
            return scheme.lower() == "bearer" and is_one_of(sent.strip(), tokens)
        parsed = ipaddress.ip_address(address.partition("%")[0])
        mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
        return (mapped or parsed).is_loopback


class _Handler(BaseHTTPRequestHandler):
    server: ProcessMetricsServer
    timeout = 10.0  # seconds until a silent connection releases its thread

    def do_GET(self) -> None:  # the library's name
        path = self.path.partition("?")[0]
        if path == "/livez":
            self._answer(*_health())
        elif path != "/metrics":
            self._answer(404, b"See /metrics and /livez.\n")
        elif self.server.may_read(self.client_address[0], self.headers.get("Authorization", "")):
            self._answer(200, process_text(), CONTENT_TYPE)
        else:
            self._answer(401, _REFUSED)

    def _answer(self, status: int, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: there is a scrape every few seconds."""


def _health() -> tuple[int, bytes]:
    """Return the status and text of `/livez`, which needs no token: health checks have none."""
    age_s = heartbeat.age_s()
    if age_s < heartbeat.HUNG_AFTER_S:
        return 200, b"ok\n"
    return 503, f"The main loop of this process has not run for {age_s:.0f} s: it hangs.\n".encode()


def serve_metrics() -> ProcessMetricsServer | None:
    """Open the metrics port of this process, if the settings name one.

    A port that is taken is logged and does not stop the process: on one machine each needs a port of its own.
    """
    settings = current()
    if not settings.metrics_port:
        return None
    try:
        server = ProcessMetricsServer(settings.metrics_host, settings.metrics_port)
    except OSError as error:
        logger.error(
            "The metrics port %d of %s cannot be opened: %s. Set another LORIKEET_METRICS_PORT for this process.",
            settings.metrics_port, settings.metrics_host, error.strerror,
        )  # fmt: skip
        return None
    server.start()
    return server
