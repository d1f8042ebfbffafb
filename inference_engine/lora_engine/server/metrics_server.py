"""The small web server of the metrics port: metrics, and the progress of the start."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from lora_engine.start_progress import StartProgress

from .secret_list import SecretList

_REFUSED = (
    "The metrics are for callers with the token. Send Authorization: Bearer and the value of "
    "LORA_ENGINE_METRICS_TOKEN, which callers on other machines always need.\n"
)
# Seconds without a step, while there is work, after which an engine counts as hung. On a CPU one step with a long
# prompt of a large model takes seconds; on a GPU --step-timeout-s ends the process, after a minute by default.
HUNG_AFTER_S = 120.0


class _Server(ThreadingHTTPServer):
    daemon_threads = True


class _Server6(_Server):
    address_family = socket.AF_INET6


def _is_loopback(address: str) -> bool:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback


class Pages:
    """The pages that the server shows. Until the engine is ready they only show the progress of its start.

    The metrics name tenants and adapters. They are for callers with the token, if there is one, and otherwise for
    callers on this machine, or for all with ``open_metrics``. The progress of the start and the health are for all.
    """

    def __init__(self, progress: StartProgress, token: str = "", *, open_metrics: bool = False) -> None:
        self._progress, self._tokens, self._open = progress, SecretList(token), open_metrics
        self.metrics: Callable[[], str] = lambda: ""
        # Seconds for which the step thread has made no step although it has work.
        self.stalled_s: Callable[[], float] = lambda: 0.0

    def get(self, path: str, address: str = "127.0.0.1", authorization: str = "") -> tuple[int, str]:
        """Return the HTTP status and the text of a page, for a caller's address and ``Authorization`` header."""
        path = path.partition("?")[0]
        if path == "/metrics":
            return (200, self.metrics()) if self._may_read(address, authorization) else (401, _REFUSED)
        if path == "/livez":
            return self._stall() or (200, "ok\n")
        if path == "/readyz":
            return self._stall() or self._readiness()
        return 404, "see /metrics, /readyz and /livez\n"

    def _readiness(self) -> tuple[int, str]:
        return 200 if self._progress.is_ready else 503, self._progress.text() + "\n"

    def _stall(self) -> tuple[int, str] | None:
        """Return the answer of an engine that hangs; None from one that makes steps, or has no work."""
        seconds = self.stalled_s()
        if seconds < HUNG_AFTER_S:
            return None
        return 503, f"no step has been made for {seconds:.0f} s although requests wait: the engine hangs\n"

    def _may_read(self, address: str, authorization: str) -> bool:
        if self._tokens:
            scheme, _, token = authorization.partition(" ")
            return scheme.lower() == "bearer" and self._tokens.accepts(token)
        return self._open or _is_loopback(address)


class MetricsServer:
    """A server of ``Pages`` on one address, in a separate thread."""

    def __init__(self, host: str, port: int, pages: Pages) -> None:
        handler = type("Handler", (_Handler,), {"pages": pages})
        self._server = (_Server6 if ":" in host else _Server)((host, port), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    pages: Pages
    timeout = 10.0  # seconds until a silent connection releases its thread

    def do_GET(self) -> None:  # the library's name
        status, text = self.pages.get(self.path, self.client_address[0], self.headers.get("Authorization", ""))
        payload = text.encode()
        self.send_response(status)
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: there is a scrape every few seconds."""
