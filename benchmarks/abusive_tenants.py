"""First tokens and uploads of a well-behaved tenant beside a tenant, or a stranger, that abuses the platform.

    python benchmarks/abusive_tenants.py [--production] [--dry] [--seconds 30] [--only heads --only reads]
    taskset -c 0-2 python benchmarks/abusive_tenants.py --machine-of-its-own

A web process over SQLite with its workers inside, as `make run` has it, or with `--production` the processes that
docker-compose.yml has, on PostgreSQL and Redis; with a scripted engine of 64 places and 50 steps a second, in a process
of its own. The well-behaved tenant streams a short chat, 20 times a second at most, on a connection that it keeps, and
uploads a small adapter every second: first alone, then while one of these goes on:

    heads      200 connections that send headers without end
    bodies     100 connections that post 4 MiB to /v1 without a key, and 40 that send 8 MiB to /api/session
    logins     40 sign-ins at once with wrong passwords and right CSRF tokens, all the time
    frames     20 websockets of a tenant that send `resume` with 60,000 ids, and 20 strangers' with frames of 1 MiB
    reads      16 threads of one tenant that read the longest lists and reports there are
    webhooks, uploads    as in background_fairness.py

Each of the abuser's connections is tried again half a second after its end. The abuser is another process at the
lowest priority, because in earnest it would have a machine of its own; with `--machine-of-its-own` it has the last of
this process's processors for itself, and the platform and the well-behaved tenant have the others. It tells how often
it was answered, and how, so that a flood that never came is seen. Floods of chats are not here: the scripted engine
serves in order of arrival, and what they meet in earnest is the engine's fairness between tenants.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from background_fairness import Client, flood_uploads, flood_webhooks, owner
from rows import append, machine, parser_of, row

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "abusive_tenants.jsonl"

sys.path[:0] = [str(ROOT / part) for part in ("tests/support", ".", "platform", "inference_engine", "benchmarks")]
import httpx  # noqa: E402
from lorikeet_testing.fake_engine import Behaviour, FakeEngineThread  # noqa: E402
from lorikeet_testing.web import TenantAccess, WebProcess, new_installation  # noqa: E402

from scripts.test_services import services  # noqa: E402

CHAT_EVERY_S, UPLOAD_EVERY_S = 0.05, 1.0
WARM_UP_S = 3.0
WORKERS = [("system", 2), ("validation", 3), ("staging", 4), ("webhooks,mail", 8), ("exports,maintenance", 3)]
# `nice` among sessions: four times and a quarter of the others' weight, as `cpu_shares` in docker-compose.yml.
WEB_SHARE, WORKERS_SHARE = -6, 6
# Interval, in seconds, at which Python switches threads. The chat's and the upload's share this interpreter, whose
# default of 5 ms would show in their times.
SWITCH_S = 0.0005
# Seconds before each of the abuser's threads tries again.
PAUSE_S = 0.5


# -- the abuser ---------------------------------------------------------------------


class Abuser:
    """The abuser's credentials, and the answers it received."""

    def __init__(self, url: str, key: str) -> None:
        self.url, self.key = url, key
        self.port = int(url.rpartition(":")[2])
        self.bearer = {"Authorization": f"Bearer {key}"}
        self.answers: Counter[str] = Counter()
        self.csrf: dict[str, str] = {}

    def take_csrf_token(self) -> None:
        """Get a CSRF token as any page of the console does, so that sign-ins are checked and not refused at once."""
        with httpx.Client(trust_env=False, timeout=120) as http:
            token = http.get(f"{self.url}/api/session").json()["csrf_token"]
            cookies = "; ".join(f"{name}={value}" for name, value in http.cookies.items())
        self.csrf = {"X-CSRFToken": token, "Cookie": cookies}

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def send(self, head: str, piece: bytes, times: int, outcome: str, *, upgrades: bool = False) -> None:
        """Send `head`, then `piece` repeatedly, until the server stops reading.

        upgrades: frames that come before the handshake's answer are none, and are refused for that.
        """
        try:
            with self.connect() as connection:
                connection.sendall(head.encode())
                if upgrades:
                    self.answers[f"handshake {connection.recv(4096)[9:12].decode(errors='replace') or 'closed'}"] += 1
                for _ in range(times):
                    connection.sendall(piece)
                answer = connection.recv(4096)
                status = "answered" if upgrades and answer else answer[9:12].decode(errors="replace") or "closed"
                self.answers[f"{outcome} {status}"] += 1
        except OSError as error:
            self.answers[f"{outcome} {type(error).__name__}"] += 1

    def call(self, method: str, path: str, headers: dict[str, str], body: str | None = None) -> None:
        """Send a request on a new connection, without httpx, which needs more of a processor for that than the
        server.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            answer.read()
            self.answers[str(answer.status)] += 1
        except (OSError, http.client.HTTPException) as error:
            self.answers[type(error).__name__] += 1
        finally:
            connection.close()


def heads(abuser: Abuser, _: int) -> None:
    abuser.send("GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: ", b"x" * 65_536, 2000, "head")


def bodies(abuser: Abuser, index: int) -> None:
    path, size = ("/v1/chat/completions", 4) if index < 100 else ("/api/session", 8)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    abuser.send(f"{head}Content-Length: {size << 20}\r\n\r\n", b" " * (1 << 20), size, "body")


def logins(abuser: Abuser, index: int) -> None:
    login = {"email": f"somebody{index}@example.org", "password": "not the password"}
    headers = {**abuser.csrf, "Content-Type": "application/json"}
    abuser.call("POST", "/api/session", headers, json.dumps(login))


def frames(abuser: Abuser, index: int) -> None:
    key = base64.b64encode(os.urandom(16)).decode()
    head = (
        "GET /ws/inference HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
    )
    if index < 20:
        ids = {f"{number:x}": 0 for number in range(60_000)}
        message = json.dumps({"type": "resume", "session": "x.y", "after": ids}).encode()
        abuser.send(f"{head}Authorization: Bearer {abuser.key}\r\n\r\n", frame(message), 20, "socket", upgrades=True)
    else:
        abuser.send(f"{head}\r\n", frame(b"x" * (1 << 20)), 20, "socket", upgrades=True)


def frame(payload: bytes) -> bytes:
    """Return a websocket frame, masked with zeros."""
    return b"\x81\xff" + len(payload).to_bytes(8, "big") + bytes(4) + payload


def reads(abuser: Abuser, index: int) -> None:
    paths = ("requests?limit=200", "usage", "usage.csv", "adapters", "uploads", "hosts")
    abuser.call("GET", f"/api/tenants/acme/{paths[index % len(paths)]}", abuser.bearer)


BY_THREADS: dict[str, tuple[Callable[[Abuser, int], None], int]] = {
    "heads": (heads, 200),
    "bodies": (bodies, 140),
    "logins": (logins, 40),
    "frames": (frames, 40),
    "reads": (reads, 16),
}
BY_JOBS = {"webhooks": flood_webhooks, "uploads": flood_uploads}


def abuse(kind: str, url: str, access: TenantAccess) -> None:
    """Run the abuser until its standard input ends; then print the answers that it received."""
    take_lowest_priority()
    if kind in BY_JOBS:
        web: Any = SimpleNamespace(url=url, tenants={"acme": access})
        results = BY_JOBS[kind](owner(web, "acme"), 20)
        sys.stdin.read()
        print(json.dumps(results), flush=True)
        os._exit(0)
    act, threads = BY_THREADS[kind]
    abuser, over = Abuser(url, access.key), threading.Event()
    abuser.take_csrf_token()

    def go_on(index: int) -> None:
        while not over.wait(PAUSE_S):
            act(abuser, index)

    for index in range(threads):
        threading.Thread(target=go_on, args=(index,), daemon=True).start()
    sys.stdin.read()
    over.set()
    time.sleep(0.5)  # threads that are counting just now
    print(json.dumps(dict(abuser.answers)), flush=True)
    os._exit(0)


def take_lowest_priority() -> None:
    """Give this session the lowest priority: Linux shares the processor among sessions first, then by `nice`."""
    os.nice(19)
    share_among_sessions(os.getpid(), 19)


def share_among_sessions(process: int, nice: int) -> None:
    """Set the priority of the session that the process leads."""
    with contextlib.suppress(OSError):  # kernels without autogroups
        Path(f"/proc/{process}/autogroup").write_text(str(nice))


# -- the tenant that behaves --------------------------------------------------------


class Good:
    """The well-behaved tenant: its times to first token and of uploads, in seconds."""

    def __init__(self, web: WebProcess) -> None:
        self.uploader = Client(web, "globex")
        self.http = httpx.Client(base_url=web.url, headers=web.tenants["globex"].bearer, trust_env=False, timeout=120)
        self._seed = 0

    def measure(self, seconds: float) -> dict[str, list[float]]:
        until = time.monotonic() + seconds
        results: dict[str, list[float]] = {"first_token_s": [], "upload_s": []}
        threads = [
            threading.Thread(target=_every, args=(CHAT_EVERY_S, until, self.first_token, results["first_token_s"])),
            threading.Thread(target=_every, args=(UPLOAD_EVERY_S, until, self.upload, results["upload_s"])),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    def first_token(self) -> float:
        message = {"role": "user", "content": "words 1"}
        request = {"model": "sql", "messages": [message], "stream": True}
        began = time.perf_counter()
        with self.http.stream("POST", "/v1/chat/completions", json=request) as answer:
            assert answer.status_code == 200, answer.read()
            lines = answer.iter_lines()
            next(line for line in lines if '"content":"' in line.replace('"content":""', ""))
            took = time.perf_counter() - began
            for _ in lines:
                pass
        return took

    def upload(self) -> float:
        self._seed += 1
        return self.uploader.timed_upload(self._seed)


def _every(pause_s: float, until: float, act: Callable[[], float], results: list[float]) -> None:
    while time.monotonic() < until:
        began = time.monotonic()
        results.append(act())
        time.sleep(max(0.0, began + pause_s - time.monotonic()))


def measure(kind: str, seconds: float, abusers_cpu: int | None, installation: dict[str, str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        address = f"unix:{name}/engine.sock"
        stack.enter_context(engine(address))
        settings = {"LORIKEET_WEBHOOK_ALLOW_PRIVATE": "1"}
        web = WebProcess(Path(name) / "var", f"local={address}", settings, installation=installation)
        web.seed()
        web.start()
        stack.callback(web.kill)
        if installation:
            assert web.process is not None
            share_among_sessions(web.process.pid, WEB_SHARE)
            stack.enter_context(workers(web))
        web.wait_until_ready("support")
        web.wait_until_ready("sql", tenant="globex")
        good = Good(web)
        good.measure(WARM_UP_S)
        alone = good.measure(seconds)
        beside, answers = beside_abuse(kind, web, good, seconds, abusers_cpu)
        return {"alone": alone, "beside": beside, "answers": answers, "web_mib": peak_mib(web)}


@contextlib.contextmanager
def engine(address: str) -> Iterator[None]:
    """Run the scripted engine in another process, so that its steps do not delay the clients' clocks."""
    command = [sys.executable, __file__, "--engine", address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        try:
            yield
        finally:
            process.kill()


def serve_engine(address: str) -> None:
    """Run the scripted engine until standard input ends."""
    running = FakeEngineThread(address, Behaviour(steps_per_second=50))
    sys.stdin.read()
    running.close()


@contextlib.contextmanager
def workers(web: WebProcess) -> Iterator[None]:
    """Start the other processes of docker-compose.yml, each with its share of the processor there.

    Linux shares it among sessions as among containers, before it looks at the `nice` of processes.
    """
    celery = [sys.executable, "-m", "celery", "--app", "control_plane.celery"]
    commands = [
        [*celery, "worker", "--queues", names, "--pool", "threads", "--concurrency", str(slots), "--loglevel", "ERROR"]
        for names, slots in WORKERS
    ]
    commands.append([*celery, "beat", "--schedule", str(web.var / "beat"), "--pidfile", "", "--loglevel", "ERROR"])
    commands.append([sys.executable, str(ROOT / "manage.py"), "watch_fleet"])
    with (web.var / "workers.log").open("ab") as log:
        options: dict[str, Any] = {"env": web.env, "cwd": ROOT, "stdout": log, "stderr": log}
        running = [subprocess.Popen(command, start_new_session=True, **options) for command in commands]
    for process in running[: len(WORKERS)]:
        share_among_sessions(process.pid, WORKERS_SHARE)
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def beside_abuse(
    kind: str, web: WebProcess, good: Good, seconds: float, abusers_cpu: int | None
) -> tuple[dict[str, list[float]], Any]:
    access = json.dumps(asdict(web.tenants["acme"]))
    command = [sys.executable, __file__, "--abuse", kind, "--url", web.url, "--access", access]
    if abusers_cpu is not None:
        command = ["taskset", "-c", str(abusers_cpu), *command]
    abuser = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    time.sleep(WARM_UP_S)
    beside = good.measure(seconds)
    return beside, json.loads(abuser.communicate()[0])


def peak_mib(web: WebProcess) -> int:
    assert web.process is not None
    status = Path(f"/proc/{web.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) >> 10


def p99(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]


def report(kind: str, results: dict[str, Any], installation: str, dry: bool) -> None:
    for metric in ("first_token_s", "upload_s"):
        alone, beside = results["alone"][metric], results["beside"][metric]
        settings = {
            **machine(),
            "processors": sorted(os.sched_getaffinity(0)),
            "installation": installation,
            "samples": [len(alone), len(beside)],
            "median_alone_s": round(statistics.median(alone), 4),
            "median_beside_s": round(statistics.median(beside), 4),
            "times_alone": round(p99(beside) / p99(alone), 2),
            "abuser_was_answered": results["answers"],
            "web_process_peak_mib": results["web_mib"],
        }
        name = f"p99_{metric}_beside"
        one = row("abusive tenant", kind, name, p99(beside), "s", settings, floor=p99(alone), digits=4)
        append(RESULTS, [one], dry=dry)


def main() -> None:
    parser = parser_of(__doc__, dry=True)
    parser.add_argument("--seconds", type=float, default=30, help="seconds of each measurement, alone and beside")
    parser.add_argument("--only", choices=[*BY_THREADS, *BY_JOBS], action="append")
    parser.add_argument("--machine-of-its-own", action="store_true", help="the abuser gets a processor for itself")
    parser.add_argument(
        "--production", action="store_true", help="measure on PostgreSQL and Redis, with separate workers"
    )
    parser.add_argument("--abuse", choices=[*BY_THREADS, *BY_JOBS], help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    parser.add_argument("--access", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.abuse:
        abuse(args.abuse, args.url, TenantAccess(**json.loads(args.access)))
    if args.engine:
        serve_engine(args.engine)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends child processes in other sessions too
    sys.setswitchinterval(SWITCH_S)
    abusers_cpu = None
    if args.machine_of_its_own:
        *ours, abusers_cpu = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, ours)
    with services() if args.production else contextlib.nullcontext() as servers:
        if servers is not None:
            os.environ.update(servers.environment())
        for kind in args.only or [*BY_THREADS, *BY_JOBS]:
            # One of processes of their own, as in docker-compose.yml, or one web process with all in it.
            installation = {**new_installation(), "LORIKEET_EMBEDDED": "0"} if args.production else {}
            results = measure(kind, args.seconds, abusers_cpu, installation)
            report(kind, results, "production" if args.production else "one process", args.dry)


if __name__ == "__main__":
    main()
