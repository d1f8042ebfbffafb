"""The cost of an ASGI server, and the effect of one endless header on it: the figures behind `core/http/protocol.py`.

    python benchmarks/web_servers.py              every server that is installed, into results/web_servers.jsonl
    python benchmarks/web_servers.py --dry --servers ours uvicorn

`ours` is what `python -m control_plane.serve` starts; `uvicorn` and `uvicorn-h11` are the same without bounds; granian
and hypercorn are measured where they are installed. Each serves the same small application in a process of its own:

* `requests`: processor time of the server for a small request, `--connections` at once on kept connections;
* `stream`: processor time for each chunk of a streamed answer, as many at once;
* `endless header`: the longest that another client waits for an answer while one sends `--header-mib` of one header.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / part) for part in ("tests/support", ".", "platform", "inference_engine", "benchmarks")]

from lorikeet_testing.web import free_port  # noqa: E402
from rest_throughput import cpu_seconds  # noqa: E402
from rows import append, cpu_name, parser_of, row  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "web_servers.jsonl"
SERVERS = ("ours", "uvicorn", "uvicorn-h11", "granian", "hypercorn")
CHUNKS = 200
SMALL = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
STREAM = b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    if scope["path"] == "/stream":
        for _ in range(CHUNKS):
            await send({"type": "http.response.body", "body": b"data: token\n\n", "more_body": True})
            await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b"the end"})


def serve(name: str, port: int) -> None:
    if name == "granian":
        from granian.constants import Interfaces
        from granian.server.embed import Server

        asyncio.run(Server(app, address="127.0.0.1", port=port, interface=Interfaces.ASGI).serve())
    elif name == "hypercorn":
        from hypercorn.asyncio import serve as run
        from hypercorn.config import Config

        config = Config()
        config.bind = [f"127.0.0.1:{port}"]
        asyncio.run(run(app, config))
    else:
        _serve_uvicorn(name, port)


def _serve_uvicorn(name: str, port: int) -> None:
    import uvicorn

    options: dict[str, Any] = {
        "port": port, "loop": "uvloop", "lifespan": "off", "access_log": False, "log_config": None,
        "proxy_headers": False, "interface": "asgi3",
    }  # fmt: skip
    if name != "ours":
        uvicorn.Server(uvicorn.Config(app, http="h11" if name == "uvicorn-h11" else "httptools", **options)).run()
        return
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings")
    from control_plane.core.http.connections import ConnectionTable
    from control_plane.core.http.protocol import BoundedConfig
    from control_plane.serve import Server

    Server(BoundedConfig(app, ConnectionTable(4096, 512), **options)).run()


@contextmanager
def served(name: str) -> Iterator[tuple[int, int]]:
    """Yield the port and the process of a running web server."""
    port = free_port()
    command = [sys.executable, __file__, "--serve", name, "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        end = time.monotonic() + 60
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > end:
                process.kill()
                raise RuntimeError((process.communicate()[1] or b"").decode()[-500:])
            time.sleep(0.05)
        yield port, process.pid
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError):
        return ask(port, 5) is not None
    return False


def ask(port: int, limit_s: float) -> float | None:
    """Return the seconds until an answer of the server began; None if none began in time."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=limit_s) as client:
        client.sendall(SMALL)
        return time.monotonic() - began if client.recv(100).startswith(b"HTTP/1.1 200") else None


class Asker(asyncio.Protocol):
    """A client of one connection that sends the same request ``times`` times, each when the last answer has ended."""

    def __init__(self, request: bytes, times: int, done: asyncio.Future[None]) -> None:
        self._request, self._left, self._done = request, times, done
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        seen = self._tail + data
        self._tail = seen[-20:]
        if b"the end" not in seen or not seen.endswith((b"0\r\n\r\n", b"the end")):
            return
        self._tail = b""
        self._left -= 1
        if self._left:
            self._transport.write(self._request)
        elif not self._done.done():
            self._transport.close()
            self._done.set_result(None)


async def run(port: int, request: bytes, connections: int, times: int) -> None:
    loop = asyncio.get_running_loop()
    ends = [loop.create_future() for _ in range(connections)]
    for end in ends:
        await loop.create_connection(lambda end=end: Asker(request, times, end), "127.0.0.1", port)  # type: ignore[misc]
    await asyncio.wait_for(asyncio.gather(*ends), 300)


def cpu_us(name: str, request: bytes, connections: int, times: int, units: int, runs: int) -> list[float]:
    with served(name) as (port, process):
        asyncio.run(run(port, request, connections, max(times // 10, 1)))
        rows = []
        for _ in range(runs):
            before = cpu_seconds({"web": process})["web"]
            asyncio.run(run(port, request, connections, times))
            spent = cpu_seconds({"web": process})["web"] - before
            rows.append(spent / (connections * times * units) * 1e6)
        return rows


def endless_header(name: str, mib: int) -> float:
    """The longest wait of another client, in seconds."""
    with served(name) as (port, _):
        sender = threading.Thread(target=_send_header, args=(port, mib), daemon=True)
        sender.start()
        longest = 0.0
        while sender.is_alive():
            longest = max(longest, ask(port, 120) or 120.0)
            time.sleep(0.01)
        return max(longest, ask(port, 120) or 120.0)


def _send_header(port: int, mib: int) -> None:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Endless: ")
        for _ in range(mib * 4):
            client.sendall(b"a" * (256 << 10))


def measure(name: str, options: argparse.Namespace) -> list[tuple[str, str, float, str, list[float]]]:
    each, runs = options.connections, options.runs
    requests = cpu_us(name, SMALL, each, 1000, 1, runs)
    chunks = cpu_us(name, STREAM, each, 12, CHUNKS, runs)
    waits = [endless_header(name, options.header_mib) for _ in range(min(runs, 2))]
    return [
        ("requests", "cpu_us_per_request", statistics.median(requests), "us", requests),
        ("stream", "cpu_us_per_chunk", statistics.median(chunks), "us", chunks),
        ("endless header", "longest_wait_s", max(waits), "s", waits),
    ]


def main() -> int:
    parser = parser_of(__doc__, dry=True)
    parser.add_argument("--servers", nargs="+", choices=SERVERS, default=list(SERVERS))
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--header-mib", type=int, default=96)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--serve", choices=SERVERS, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.port)
        return 0
    for name in options.servers:
        load = round(os.getloadavg()[0], 2)
        try:
            figures = measure(name, options)
        except RuntimeError as error:
            print(f"{name}: not measured: {str(error).strip().splitlines()[-1:]}", flush=True)
            continue
        for case, metric, value, unit, runs in figures:
            settings = {
                "cpu": cpu_name(), "cores": os.cpu_count(), "load_1m_before": load, "connections": options.connections,
                "header_mib": options.header_mib, "each_run": [round(one, 3) for one in runs],
            }  # fmt: skip
            one = row("web_servers", case, metric, value, unit, settings, system=name, digits=3)
            append(RESULTS, [one], dry=options.dry)
    return 0


if __name__ == "__main__":
    sys.exit(main())
