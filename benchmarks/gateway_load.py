"""The web process's cost per request and token, with an engine that costs nothing (W8).

    python benchmarks/gateway_load.py              all cases; rows are appended to benchmarks/results/gateway.jsonl
    python benchmarks/gateway_load.py --dry --cases rest sockets

Cases, each with `--streams` (256) generations at once on a web process of its own:

* `rest`, `websocket`: processor time of the web process for each streamed token, admission of the requests included;
* `latency`: from the moment the engine makes a token to the moment the client has it, at `--latency-rate` (2000)
  tokens per second over all streams, from a second after the last stream began. The engine writes its clock into the
  token's text; one machine, one clock;
* `sockets`: `--sockets` (2000) authenticated websockets that wait: memory for each, processor time while idle.

Client, engine and web process share the machine; so the client does as little as can be, and the load average before
the measurement is in the rows.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / part) for part in ("tests/support", ".", "platform", "inference_engine", "benchmarks")]

from lorikeet_testing.fake_engine import Behaviour, FakeEngine, Running  # noqa: E402
from lorikeet_testing.web import WebProcess  # noqa: E402
from rest_throughput import cpu_seconds  # noqa: E402
from rows import append, cpu_name, parser_of, row  # noqa: E402

from lora_engine.wire import engine_pb2 as pb  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "gateway.jsonl"
STAMP = re.compile(rb"(\d{12,})\|")
CASES = ("rest", "websocket", "latency", "sockets")


class StampingEngine(FakeEngine):
    """A scripted engine whose tokens are its clock, in nanoseconds, and a bar."""

    def _emit(self, request: Running, step: pb.StepDeltas) -> None:
        request.emitted += 1
        request.first_token = request.first_token or time.time()
        last = request.emitted >= max(plan.num_tokens for plan in request.plans)
        text = f"{time.monotonic_ns()}|"
        if last:
            step.deltas.add(request_id=request.request_id, text=text, num_tokens=1, token_ids=[0], finish_reason="stop")
        else:
            step.plain.handles.append(request.submit.handle)
            step.plain.texts.append(text)
            step.plain.token_ids.append(0)


async def run_engine(address: str, steps_per_second: float) -> None:
    """Run the scripted engine, with steps at fixed moments, however long one takes."""
    engine = StampingEngine(address, Behaviour(steps_per_second=0, max_running=4096, max_waiting=4096))
    engine._run = lambda: _paced(engine, steps_per_second)  # type: ignore[method-assign]
    await engine.start()
    print("ready", flush=True)
    await asyncio.Event().wait()


async def _paced(engine: FakeEngine, steps_per_second: float) -> None:
    due = time.monotonic()
    while True:
        if engine.running or engine.waiting:
            engine.step()
        due = max(due + 1 / steps_per_second, time.monotonic() - 1)
        await asyncio.sleep(max(0.0, due - time.monotonic()))


@dataclass
class Platform:
    web: WebProcess
    key: str

    @property
    def cpu_s(self) -> float:
        assert self.web.process is not None
        return cpu_seconds({"web": self.web.process.pid})["web"]

    @property
    def memory_bytes(self) -> int:
        assert self.web.process is not None
        pages = int(Path(f"/proc/{self.web.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def platform(steps_per_second: float) -> Iterator[Platform]:
    """Start a seeded web process and a scripted engine, each in its process."""
    with tempfile.TemporaryDirectory(prefix="lorikeet-gateway-") as folder:
        address = f"unix:{folder}/e.sock"
        command = [sys.executable, __file__, "--engine", address, "--steps", str(steps_per_second)]
        engine = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        web = WebProcess(Path(folder) / "var", f"local={address}", {"LORIKEET_SOCKET_MAX_GENERATIONS": "100000"})
        try:
            assert engine.stdout is not None and engine.stdout.readline() == "ready\n"
            web.seed()
            web.start()
            web.wait_until_ready("support")
            yield Platform(web, web.tenants["acme"].key)
            web.stop()
        finally:
            if web.process is not None:
                web.kill()
            engine.kill()
            engine.wait()


@dataclass
class Load:
    """The parameters and counters that all streams of a run share."""

    streams: int
    tokens: int
    stamps: bool = False
    begun: int = 0
    ended: int = 0
    steady_ns: float = math.inf
    latencies_ms: list[float] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self) -> None:
        self.ended += 1
        if self.ended == self.streams:
            self.over.set()

    def begin(self) -> None:
        self.begun += 1
        if self.begun == self.streams:
            self.steady_ns = time.monotonic_ns() + 1e9

    def take(self, data: bytes) -> None:
        now = time.monotonic_ns()
        if self.stamps and now > self.steady_ns:
            self.latencies_ms += [(now - int(stamp)) / 1e6 for stamp in STAMP.findall(data)]


class Reader(asyncio.Protocol):
    """A client that sends one message, then reads bytes until the end mark."""

    def __init__(self, load: Load, first: bytes, then: bytes, mark: bytes) -> None:
        self._load, self._first, self._then, self._mark = load, first, then, mark
        self._tail = b""
        self._begun = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._first)

    def data_received(self, data: bytes) -> None:
        self._load.take(data)
        if not self._begun and b"|" in data:
            self._begun = True
            self._load.begin()
        seen = self._tail + data
        self._tail = seen[-40:]
        if self._then and b'"hello"' in seen:
            self._transport.write(self._then)
            self._then = b""
        if b"HTTP/1.1 4" in seen or b'"error"' in seen:
            raise SystemExit(f"refused: {seen[-600:]!r}")
        if self._mark in seen:
            self._load.end()
            self._transport.close()
            self._mark = b"\0never"


def rest_reader(platform: Platform, load: Load) -> Reader:
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {_netloc(platform)}\r\n"
    body = json.dumps({**_request(load), "stream": True}).encode()
    head += f"Authorization: Bearer {platform.key}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return Reader(load, head.encode() + b"\r\n" + body, b"", b"[DONE]")


def socket_reader(platform: Platform, load: Load) -> Reader:
    head = f"GET /ws/inference HTTP/1.1\r\nHost: {_netloc(platform)}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    nonce = base64.b64encode(os.urandom(16)).decode()
    head += f"Sec-WebSocket-Key: {nonce}\r\nSec-WebSocket-Version: 13\r\nAuthorization: Bearer {platform.key}\r\n\r\n"
    message = json.dumps({"type": "generate", "id": "g", "request": _request(load)}).encode()
    frame = bytes([0x81, 0x80 | 126]) + len(message).to_bytes(2, "big") + bytes(4) + message  # masked with zeros
    return Reader(load, head.encode(), frame, b'"type":"done"')


def _request(load: Load) -> dict[str, Any]:
    return {"model": "support", "messages": [{"role": "user", "content": f"words {load.tokens}"}]}


def _netloc(platform: Platform) -> str:
    return urlsplit(platform.web.url).netloc


async def run_load(platform: Platform, load: Load, reader: Callable[[Platform, Load], Reader]) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(load.streams):
        await loop.create_connection(lambda: reader(platform, load), "127.0.0.1", platform.web.port)
    await asyncio.wait_for(load.over.wait(), 300)


def measure_cost(options: argparse.Namespace, reader: Callable[[Platform, Load], Reader]) -> dict[str, Any]:
    with platform(options.steps) as ours:
        asyncio.run(run_load(ours, Load(options.streams, 16), reader))
        figures, rates = [], []
        for _ in range(options.runs):
            load = Load(options.streams, options.tokens)
            before, started = ours.cpu_s, time.perf_counter()
            asyncio.run(run_load(ours, load, reader))
            made = load.streams * load.tokens
            figures.append((ours.cpu_s - before) / made * 1e6)
            rates.append(made / (time.perf_counter() - started))
    return {
        "web_cpu_us_per_token": (statistics.median(figures), "us", figures),
        "tokens_per_s": (statistics.median(rates), "1/s", rates),
    }


def measure_latency(options: argparse.Namespace) -> dict[str, Any]:
    with platform(options.latency_rate / options.streams) as ours:
        asyncio.run(run_load(ours, Load(options.streams, 8), rest_reader))
        p50s, p99s = [], []
        for _ in range(options.runs):
            load = Load(options.streams, options.latency_tokens, stamps=True)
            asyncio.run(run_load(ours, load, rest_reader))
            latencies = sorted(load.latencies_ms)
            p50s.append(latencies[len(latencies) // 2])
            p99s.append(latencies[int(len(latencies) * 0.99)])
    return {
        "added_latency_p50_ms": (statistics.median(p50s), "ms", p50s),
        "added_latency_p99_ms": (statistics.median(p99s), "ms", p99s),
    }


def measure_sockets(options: argparse.Namespace) -> dict[str, Any]:
    with platform(options.steps) as ours:
        return asyncio.run(_hold(ours, options.sockets, options.hold_s))


async def _hold(ours: Platform, count: int, hold_s: float) -> dict[str, Any]:
    from websockets.asyncio.client import connect

    url, headers = f"{ours.web.url.replace('http', 'ws')}/ws/inference", {"Authorization": f"Bearer {ours.key}"}
    memory, opened = ours.memory_bytes, []
    started = time.perf_counter()
    for _ in range(count):
        opened.append(await connect(url, additional_headers=headers, proxy=None, ping_interval=None))
    seconds = time.perf_counter() - started
    for socket in opened:
        await asyncio.wait_for(socket.recv(), 30)
    before = ours.cpu_s
    await asyncio.sleep(hold_s)
    idle = (ours.cpu_s - before) / hold_s
    for socket in opened:
        await socket.send('{"type":"ping"}')
    pongs = [json.loads(await asyncio.wait_for(socket.recv(), 30))["type"] for socket in opened]
    assert pongs == ["pong"] * count, "a socket did not answer"
    each = (ours.memory_bytes - memory) / count / 1024
    await asyncio.gather(*(socket.close() for socket in opened))
    return {
        "held": (count, "", None),
        "opened_per_s": (count / seconds, "1/s", None),
        "memory_kib_each": (each, "KiB", None),
        "idle_cpu_share": (idle, "", None),
    }


def rows_of(case: str, figures: dict[str, Any], options: argparse.Namespace) -> list[dict[str, Any]]:
    settings = {
        "cpu": cpu_name(), "cores": os.cpu_count(), "load_1m_before": options.load, "runs": options.runs,
        "streams": options.streams, "steps_per_s": options.steps, "tokens_each": options.tokens,
    }  # fmt: skip
    return [
        row(
            "gateway", case, metric, value, unit,
            {**settings, **({"each_run": [round(one, 2) for one in runs]} if runs else {})}, model="scripted",
        )
        for metric, (value, unit, runs) in figures.items()
    ]  # fmt: skip


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    if case == "rest":
        return measure_cost(options, rest_reader)
    if case == "websocket":
        return measure_cost(options, socket_reader)
    return measure_latency(options) if case == "latency" else measure_sockets(options)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = parser_of(__doc__, dry=True)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--steps", type=float, default=25.0, help="tokens per second of each stream")
    parser.add_argument("--tokens", type=int, default=200, help="tokens of each stream")
    parser.add_argument("--latency-rate", type=float, default=2000.0, help="tokens per second over all streams")
    parser.add_argument("--latency-tokens", type=int, default=60)
    parser.add_argument("--sockets", type=int, default=2000)
    parser.add_argument("--hold-s", type=float, default=15.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.load = round(os.getloadavg()[0], 2)
    return options


def main() -> int:
    options = parse(sys.argv[1:])
    if options.engine:
        asyncio.run(run_engine(options.engine, options.steps))
    rows = [row for case in options.cases for row in rows_of(case, measure(case, options), options)]
    append(RESULTS, rows, dry=options.dry)
    return 0


if __name__ == "__main__":
    sys.exit(main())
