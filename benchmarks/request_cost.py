"""The web process's costs of small requests and password hashes, and its event loop's waits for Python's lock.

    python benchmarks/request_cost.py [--dry] [--requests 200] [--only requests]

    requests   processor time of the web process for a request on a connection of its own, of each kind that strangers
               can ask for; SQLite, workers inside, no limit on strangers. What it takes idle is deducted
    turns      five round trips on an event loop beside none, one or two threads that compute, by the interval after
               which a thread gives the interpreter to another; and how much work the threads do
    hashes     processor time of a password's hash, by Django's parameters in a thread of the web process, as it was
               once, and as it has them made now; and how much of it is the web process's own

The first and last are processor time, which other work on the machine changes little; the second wants a quiet machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import uvloop
from background_fairness import platform
from rows import append, machine, parser_of, row

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "request_cost.jsonl"
sys.path[:0] = [str(ROOT / part) for part in ("tests/support", ".", "platform", "inference_engine")]
import django  # noqa: E402
import httpx  # noqa: E402
from lorikeet_testing.web import WebProcess  # noqa: E402

UNLIMITED = {"LORIKEET_STRANGER_REQUESTS_PER_S": "0", "LORIKEET_CALLER_CPU_SHARE": "0"}
INTERVALS_MS = (5.0, 0.5, 0.2, 0.1)
ROUND_TRIPS_S = 4.0
HASHES = 40


# -- requests -----------------------------------------------------------------------


def messages(web: WebProcess) -> dict[str, bytes]:
    """Return the requests, as bytes, by name."""
    with httpx.Client(base_url=web.url, trust_env=False) as http:
        token = http.get("/api/session").json()["csrf_token"]
        cookies = "; ".join(f"{name}={value}" for name, value in http.cookies.items())
    login = json.dumps({"email": "somebody@example.org", "password": "not the password"})
    signed = f"X-CSRFToken: {token}\r\nCookie: {cookies}\r\n"
    wrong = f"Authorization: Bearer lk_abcdefgh_{'x' * 43}\r\n"
    right = f"Authorization: {web.tenants['acme'].bearer['Authorization']}\r\n"
    return {
        "/livez": head("GET /livez"),
        "the console's page": head("GET /"),
        "/v1 without a key": head("POST /v1/chat/completions", length=4 << 20),
        "/v1 with a wrong key": head("POST /v1/chat/completions", wrong, 2) + b"{}",
        "a body that is too large": head("POST /api/session", length=8 << 20),
        "a sign-in refused by its rate": head("POST /api/session", signed, len(login)) + login.encode(),
        "the API without a key": head("GET /api/tenants/acme/usage"),
        "the API with a key": head("GET /api/tenants/acme/usage", right),
    }


def head(line: str, headers: str = "", length: int | None = None) -> bytes:
    body = "" if length is None else f"Content-Type: application/json\r\nContent-Length: {length}\r\n"
    return f"{line} HTTP/1.1\r\nHost: localhost\r\n{headers}{body}\r\n".encode()


def cpu_s(web: WebProcess) -> float:
    assert web.process is not None
    return cpu_of(web.process.pid)


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def ask(web: WebProcess, message: bytes) -> None:
    with socket.create_connection(("127.0.0.1", web.port), timeout=60) as connection:
        connection.sendall(message)
        connection.recv(4096)


def idle_share(web: WebProcess) -> float:
    began = cpu_s(web)
    time.sleep(3)
    return (cpu_s(web) - began) / 3


def measure_requests(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name, platform(Path(name), UNLIMITED) as web:
        idle = idle_share(web)
        for name, message in messages(web).items():
            for _ in range(15):  # sign-ins until their rate refuses them
                ask(web, message)
            began, before = time.monotonic(), cpu_s(web)
            for _ in range(args.requests):
                ask(web, message)
            time.sleep(0.3)
            each_ms = (cpu_s(web) - before - idle * (time.monotonic() - began)) / args.requests * 1000
            settings = {**machine(), "requests": args.requests}
            one = row("request cost", name, "web_cpu_ms", each_ms, "ms", settings, digits=2)
            append(RESULTS, [one], dry=args.dry)


# -- lock waits --------------------------------------------------------------------------


class Computing:
    """A number of threads that hold the interpreter as long as they may."""

    def __init__(self, threads: int) -> None:
        self.done, self._over = 0, threading.Event()
        self._threads = [threading.Thread(target=self._compute) for _ in range(threads)]

    def __enter__(self) -> Computing:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _compute(self) -> None:
        while not self._over.is_set():
            sum(len(str(number)) for number in range(4000))
            self.done += 1


async def round_trips() -> list[float]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1):
            writer.write(data)

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    took, until = [], time.monotonic() + ROUND_TRIPS_S
    while time.monotonic() < until:
        began = time.perf_counter()
        for _ in range(5):
            writer.write(b"x")
            await reader.readexactly(1)
        took.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(0.02)
    writer.close()
    return sorted(took)


def measure_lock_waits(args: argparse.Namespace) -> None:
    for threads in (0, 1, 2):
        for interval_ms in INTERVALS_MS:
            sys.setswitchinterval(interval_ms / 1000)
            with Computing(threads) as computing:
                took = uvloop.run(round_trips())
            settings = {
                **machine(),
                "switch_interval_ms": interval_ms,
                "p99_ms": round(took[int(len(took) * 0.99)], 2),
                "work_per_s": round(computing.done / ROUND_TRIPS_S),
            }
            one = row("turns", f"{threads} threads", "median_ms", took[len(took) // 2], "ms", settings, digits=2)
            append(RESULTS, [one], dry=args.dry)


# -- hashes -------------------------------------------------------------------------


def measure_hashes(args: argparse.Namespace) -> None:
    os.environ["LORIKEET_VAR_DIR"] = tempfile.mkdtemp()
    os.environ["DJANGO_SETTINGS_MODULE"] = "control_plane.settings"
    django.setup()
    from django.contrib.auth.hashers import Argon2PasswordHasher, BasePasswordHasher

    from control_plane.identity.accounts.hashing import BoundedArgon2Hasher, hashing

    kinds: dict[str, BasePasswordHasher] = {
        "Django's parameters, in this process": Argon2PasswordHasher(),
        "OWASP's parameters, in a child": BoundedArgon2Hasher(),
    }
    for name, hasher in kinds.items():
        hasher.encode("correct horse battery", "s" * 22)  # starts the child
        child = next((child.process.pid for child in hashing()._idle), None)
        before, times_before = _of_child(child), os.times()
        began = time.monotonic()
        for _ in range(HASHES):
            hasher.encode("correct horse battery", "s" * 22)
        took_s, now = time.monotonic() - began, os.times()
        process_s = now.user + now.system - times_before.user - times_before.system
        settings = {**machine(), "hashes": HASHES, "wall_ms": round(took_s / HASHES * 1000, 1)}
        settings["of_it_in_this_process_ms"] = round(process_s / HASHES * 1000, 2)
        each_ms = (process_s + _of_child(child) - before) / HASHES * 1000
        append(RESULTS, [row("hashes", name, "cpu_ms", each_ms, "ms", settings, digits=1)], dry=args.dry)
    hashing().close()


def _of_child(pid: int | None) -> float:
    return 0.0 if pid is None else cpu_of(pid)


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "requests": measure_requests,
    "turns": measure_lock_waits,
    "hashes": measure_hashes,
}


def main() -> None:
    parser = parser_of(__doc__, dry=True)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--only", choices=sorted(PARTS), action="append")
    args = parser.parse_args()
    for part in args.only or PARTS:
        PARTS[part](args)


if __name__ == "__main__":
    main()
