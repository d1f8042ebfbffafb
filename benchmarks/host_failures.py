"""Failures and pauses that callers notice when engine hosts are restarted, killed or frozen under load.

    python benchmarks/host_failures.py [--dry] [--rounds 3] [--freeze-s 30] [--hosts 1] [--only restarts]
    python benchmarks/host_failures.py --hosts 4 --device cuda [--callers 64] --only both    # each host has a GPU
    python benchmarks/host_failures.py --tensor-parallel 2 [--device cuda] [--dry] [--rounds 3] [--only kill-rank-1]

A web process over SQLite with its workers inside, and two engines (or one) with the demo model on the processor. Eight
callers send requests without a pause: every second one streamed, every second one for an adapter, 64 tokens. Meanwhile

    restarts   each engine in turn gets SIGTERM (5 s to drain), is started again, and the next when it is ready
    kills      the same with SIGKILL
    freeze     one engine stands still (SIGSTOP) for 30 s
    both       one engine is killed and another stands still meanwhile, `--freeze-s` long; with four hosts

With `--tensor-parallel N` there is one engine of N ranks. Meanwhile one rank of it gets SIGKILL (kill-rank-0,
kill-rank-1) or SIGSTOP (stop-rank-0, stop-rank-1). The engine's program starts all ranks again; if it ends itself, this
script starts it again half a second later, as `make run` does. The rows have the seconds after the signal until rank 0
ended, until the next one listens, until the control plane shows it online, and until a stream got its next token; and
whether the ledger has one event a request, with the tokens that its answer reported.

With two, none may fail, nor break off after its first token: another host goes on with it, and ends it with the text
that every other answer of that model has, since all are greedy and of one prompt. What callers notice is the longest
pause. With one, what comes while it is away is refused with 503, and what had begun waits until it is back.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rows import append, machine, parser_of, row

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / part) for part in ("platform", "inference_engine", "tests/support", ".")]
RESULTS = ROOT / "benchmarks" / "results" / "host_failures.jsonl"

import httpx  # noqa: E402
from lorikeet_testing.web import WebProcess, eventually  # noqa: E402

DRAIN_S = 5
WAITING = {"LORIKEET_HOST_RETURN_S": "30"}
ADAPTER = "pirate"
MODEL = "lorikeet-demo"  # which the adapter names as its base


class Engine:
    """An engine host, as a process."""

    def __init__(self, folder: Path, name: str, env: dict[str, str], options: tuple[str, ...] = ()) -> None:
        self.name, self.folder, self.env, self.options = name, folder, env, options
        self.address = f"unix:{folder}/{name}.sock"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [
            sys.executable, "-m", "lora_engine", "--model", str(ROOT / "demo" / "model"), "--model-name", MODEL,
            "--listen", self.address, "--data-dir", str(self.folder / self.name), "--threads", "1",
            "--pool-mb", "64", "--host-arena-mb", "64", "--drain-seconds", str(DRAIN_S),
            *self.options,
        ]  # fmt: skip
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, env=self.env, stdout=log, stderr=log)

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def rank(self, number: int) -> int:
        """Return the process id of a rank, a descendant of the program."""
        assert self.process is not None
        pids = [self.process.pid]
        for pid in pids:
            pids += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return next(pid for pid in pids if Path(f"/proc/{pid}/comm").read_text().strip() == f"lora-rank-{number}")

    def starts(self) -> int:
        """Return how often the engine's log says that it listens."""
        return (self.folder / f"{self.name}.log").read_text().count('"listening on')

    def last_start(self) -> str:
        """Return what the log says about the last start: its seconds and those of its phases."""
        lines = [line for line in (self.folder / f"{self.name}.log").read_text().splitlines() if '"ready after' in line]
        return str(json.loads(lines[-1])["message"])

    def start_again(self) -> None:
        """Start the program again if it has ended, after a pause."""
        assert self.process is not None
        if self.process.poll() is not None:
            time.sleep(RESTART_PAUSE_S)
            self.start()

    def end(self, number: int) -> None:
        self.signal(number)
        assert self.process is not None
        self.process.wait(60)


@dataclass
class Load:
    """Callers that continue whatever happens, and the outcomes of their requests."""

    url: str
    key: str
    callers: int = 8
    ends: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    texts: dict[str, Counter[str]] = field(default_factory=lambda: {ADAPTER: Counter(), MODEL: Counter()})
    longest_s: float = 0.0
    longest_pause_s: float = 0.0  # in a stream
    usage: Counter[str] = field(default_factory=Counter)  # as the answers report it
    token_times: list[float] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._repeat, args=[number]) for number in range(self.callers)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stopped.set()
            for thread in threads:
                thread.join()

    def first_token_after(self, moment: float) -> float:
        """Return when a stream got the first token after a moment; waits for it."""
        eventually(lambda: self.token_times[-1] > moment, 60, what="a token after the restart")
        return min(each for each in self.token_times.copy() if each > moment)

    def _repeat(self, number: int) -> None:
        headers = {"Authorization": f"Bearer {self.key}"}
        with httpx.Client(base_url=self.url, headers=headers, trust_env=False, timeout=120) as http:
            count = number
            while not self.stopped.is_set():
                count += 1
                begun = time.monotonic()
                end, code = self._ask(http, streamed=count % 2 == 0, model=(ADAPTER, MODEL)[count // 2 % 2])
                self.longest_s = max(self.longest_s, time.monotonic() - begun)
                self.ends[end] += 1
                if code:
                    self.codes[f"{end}: {code}"] += 1

    def _ask(self, http: httpx.Client, *, streamed: bool, model: str) -> tuple[str, str]:
        body: dict[str, Any] = {
            "model": model,
            "prompt": "Tell me about rivers and",
            "max_tokens": 64,
            "temperature": 0,
        }
        if streamed:
            body["stream_options"] = {"include_usage": True}
        answered, text, last = False, "", time.monotonic()
        try:
            with http.stream("POST", "/v1/completions", json={**body, "stream": streamed}) as answer:
                for line in answer.iter_lines():
                    if '"error"' in line:
                        code = json.loads(line.removeprefix("data: "))["error"]["code"]
                        return ("broke off" if answered else "failed"), code
                    if line.startswith("data: {"):
                        now, answered = time.monotonic(), True
                        self.token_times.append(now)
                        self.longest_pause_s, last = max(self.longest_pause_s, now - last), now
                    if line.removeprefix("data: ").startswith("{"):
                        message = json.loads(line.removeprefix("data: "))
                        text += "".join(choice["text"] for choice in message["choices"])
                        if usage := message.get("usage"):
                            self.usage.update(completion=usage["completion_tokens"], requests=1)
                if answer.status_code != 200:
                    return "failed", str(answer.status_code)
                self.texts[model][text] += 1
                return "answered", ""
        except httpx.TransportError as error:
            return ("broke off" if answered else "failed"), type(error).__name__


@dataclass(frozen=True)
class Platform:
    web: WebProcess
    engines: list[Engine]
    key: str
    callers: int

    def ready(self, boots: dict[str, str] | None = None) -> bool:
        """Return whether all hosts answer, hold the adapter, and have restarted since `boots`."""
        hosts = self.web.query("select id, name, state, boot_id from hosts_enginehost")
        placed = self.web.query("select host_id from placements_placement where phase = 'ready'")
        new = all(host["boot_id"] != (boots or {}).get(host["name"]) for host in hosts)
        return (
            new and len(placed) == len(hosts) == len(self.engines) and all(host["state"] == "online" for host in hosts)
        )

    def boot(self, engine: Engine) -> dict[str, str]:
        rows = self.web.query("select name, boot_id from hosts_enginehost")
        return {row["name"]: row["boot_id"] for row in rows if row["name"] == engine.name}

    def restart(self, engine: Engine, number: int) -> None:
        before = self.boot(engine)
        engine.end(number)
        engine.start()
        eventually(lambda: self.ready(before), 120, what=f"{engine.name} ready again")
        time.sleep(2)

    def load(self) -> Load:
        return Load(self.web.url, self.key, self.callers)

    def billed(self) -> Counter[str]:
        """Return the events and completion tokens of the ledger."""
        sums = "select count(*) as requests, coalesce(sum(completion_tokens), 0) as completion from usage_usageevent"
        return Counter(self.web.query(sums)[0])


@contextmanager
def platform(
    hosts: int, options: tuple[str, ...] = (), callers: int = 8, a_gpu_each: bool = False
) -> Iterator[Platform]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        roots = os.pathsep.join(str(ROOT / root) for root in ("platform", "inference_engine", "kernels"))
        env = {**os.environ, "PYTHONPATH": roots, "OMP_NUM_THREADS": "1"}
        engines = []
        for number, each in enumerate(("one", "two", "three", "four")[:hosts]):
            card = {"CUDA_VISIBLE_DEVICES": str(number)} if a_gpu_each else {}
            engines.append(Engine(folder, each, env | card, options))
        web = WebProcess(folder / "var", ",".join(f"{each.name}={each.address}" for each in engines), WAITING)
        web.var.mkdir()
        try:
            for engine in engines:
                engine.start()
            manage(web, "migrate", "--verbosity", "0")
            made = manage(web, "create_tenant", "acme", "--owner", "ada@example.org", "--key", "first")
            key = next(word for word in made.split() if word.startswith("lk_"))
            web.start()
            eventually(lambda: seen(web) == hosts, 240, what="all hosts")
            upload(web, key)
            whole = Platform(web, engines, key, callers)
            eventually(whole.ready, 60, what="the adapter on all hosts")
            yield whole
        finally:
            with suppress(AssertionError):
                web.stop()
            for engine in engines:
                if engine.process is not None and engine.process.poll() is None:
                    engine.process.kill()
                    engine.process.wait()


def manage(web: WebProcess, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments], cwd=ROOT, env=web.env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def seen(web: WebProcess) -> int:
    return len(web.query("select 1 from hosts_enginehost where state = 'online'"))


def upload(web: WebProcess, key: str) -> None:
    folder = ROOT / "demo" / "adapters" / ADAPTER
    names = ("adapter_config.json", "adapter_model.safetensors")
    form = [("files", (name, (folder / name).read_bytes())) for name in names]
    headers = {"Authorization": f"Bearer {key}"}
    path = f"{web.url}/api/tenants/acme/uploads"
    answer = httpx.post(path, data={"name": ADAPTER}, files=form, headers=headers, trust_env=False, timeout=60)
    assert answer.status_code == 202, answer.text


# -- what happens to the hosts --------------------------------------------------------


def restarts(platform: Platform, args: argparse.Namespace) -> None:
    for _ in range(args.rounds):
        for engine in platform.engines:
            platform.restart(engine, signal.SIGTERM)


def kills(platform: Platform, args: argparse.Namespace) -> None:
    for _ in range(args.rounds):
        for engine in platform.engines:
            platform.restart(engine, signal.SIGKILL)


def freeze(platform: Platform, args: argparse.Namespace) -> None:
    engine = platform.engines[0]
    engine.signal(signal.SIGSTOP)
    try:
        time.sleep(args.freeze_s)
    finally:
        engine.signal(signal.SIGCONT)
    time.sleep(5)


def both(platform: Platform, args: argparse.Namespace) -> None:
    killed, frozen = platform.engines[:2]
    before = platform.boot(killed)
    frozen.signal(signal.SIGSTOP)
    try:
        killed.end(signal.SIGKILL)
        killed.start()
        time.sleep(args.freeze_s)
    finally:
        frozen.signal(signal.SIGCONT)
    eventually(lambda: platform.ready(before), 120, what=f"{killed.name} ready again")
    time.sleep(3)


RESTART_PAUSE_S = 0.5  # as `RESTART_PAUSES_S` in scripts/launch/supervisor.py


def lose_rank(platform: Platform, number: int, rank: int) -> dict[str, float]:
    """Signal one rank and start the engine again once it has ended; return the seconds of each phase since then."""
    (engine,) = platform.engines
    before, starts = platform.boot(engine), engine.starts()
    first, lost = engine.rank(0), engine.rank(rank)
    begun = time.monotonic()
    os.kill(lost, number)
    eventually(lambda: not Path(f"/proc/{first}").exists(), 120, what="the end of rank 0")
    phases = {"ended_s": time.monotonic() - begun}
    eventually(lambda: engine.starts() > starts or engine.start_again(), 120, what="a ready engine")
    phases["listens_s"] = time.monotonic() - begun
    eventually(lambda: platform.boot(engine) != before and seen(platform.web) == 1, 60, what="an online engine")
    phases["online_s"] = time.monotonic() - begun
    return {"at": begun, **phases}


def outcomes(platform: Platform, load: Load, before: Counter[str]) -> dict[str, Any]:
    """Return how the requests of a load ended, and what the ledger has of them."""
    with suppress(AssertionError):
        eventually(lambda: platform.billed() - before == load.usage, 20, what="the ledger")
    billed = platform.billed() - before
    return {
        "requests": sum(load.ends.values()),
        "failed_before_an_answer": load.ends["failed"],
        "broke_off": load.ends["broke off"],
        "other_texts": sum(sum(texts.values()) - max(texts.values(), default=0) for texts in load.texts.values()),
        "codes": dict(load.codes),
        "ledger_is_exact": billed == load.usage,
        "billed": dict(billed),
        "reported": dict(load.usage),
    }


def measure_ranks(platform: Platform, case: str, args: argparse.Namespace) -> dict[str, Any]:
    name, _, rank = case.split("-")
    number = signal.SIGKILL if name == "kill" else signal.SIGSTOP
    rounds, starts = [], []
    load = platform.load()
    before = platform.billed()

    with load.running():
        for _ in range(args.rounds):
            time.sleep(3)
            phases = lose_rank(platform, number, int(rank))
            at = phases.pop("at")
            resumed = load.first_token_after(at + phases["listens_s"])
            rounds.append({**phases, "goes_on_s": resumed - at})
            starts.append(platform.engines[0].last_start())
    return {
        **outcomes(platform, load, before),
        "longest_pause_s": round(load.longest_pause_s, 1),
        "rounds": [{key: round(value, 2) for key, value in each.items()} for each in rounds],
        "starts": starts,
    }


RANK_CASES = ("kill-rank-1", "kill-rank-0", "stop-rank-1", "stop-rank-0")
CASES: dict[str, Callable[[Platform, argparse.Namespace], None]] = {
    "restarts": restarts,
    "kills": kills,
    "freeze": freeze,
    "both": both,
}


def measure(platform: Platform, case: str, args: argparse.Namespace) -> dict[str, Any]:
    load, before = platform.load(), platform.billed()
    begun = time.monotonic()
    with load.running():
        time.sleep(3)
        CASES[case](platform, args)
    eventually(platform.ready, 120, what="all hosts")
    return {
        **outcomes(platform, load, before),
        "longest_s": round(load.longest_s, 1),
        "longest_pause_s": round(load.longest_pause_s, 2),
        "seconds": round(time.monotonic() - begun),
        "hosts": len(platform.engines),
        "restarts": 0 if case == "freeze" else 1 if case == "both" else len(platform.engines) * args.rounds,
    }


def report(case: str, results: dict[str, Any], args: argparse.Namespace) -> None:
    failed = results["failed_before_an_answer"]
    settings = {**machine(), "device": args.device, "callers": args.callers, "drain_s": DRAIN_S, **results}
    one = row("host_failures", case, "failed_before_an_answer", failed, "requests", settings, model="lorikeet-demo")
    append(args.out or RESULTS, [one], dry=args.dry)


def main() -> None:
    parser = parser_of(__doc__, dry=True)
    parser.add_argument("--rounds", type=int, default=3, help="restarts of both hosts")
    parser.add_argument("--hosts", type=int, choices=(1, 2, 4), default=2)
    parser.add_argument("--callers", type=int, default=8)
    parser.add_argument("--out", type=Path, help="file for the rows")
    parser.add_argument("--freeze-s", type=float, default=30)
    parser.add_argument("--tensor-parallel", type=int, default=1, help="ranks of one engine, one of which is lost")
    parser.add_argument("--device", default="cpu", help="device of the first rank, or cuda: each host has a GPU")
    parser.add_argument("--only", choices=[*sorted(CASES), *RANK_CASES], action="append")
    args = parser.parse_args()
    if args.tensor_parallel > 1:
        options = ("--tensor-parallel", str(args.tensor_parallel), "--device", args.device)
        with platform(1, options, args.callers) as running:
            for case in args.only or RANK_CASES:
                results = measure_ranks(running, case, args)
                settings = {**machine(), "device": args.device, "ranks": args.tensor_parallel, **results}
                slowest = max(each["goes_on_s"] for each in results["rounds"])
                one = row("host_failures", case, "goes_on", round(slowest, 2), "s", settings, model="lorikeet-demo")
                append(args.out or RESULTS, [one], dry=args.dry)
        return
    options = ("--device", args.device, "--deterministic") if args.device == "cuda" else ()
    with platform(args.hosts, options, args.callers, args.device == "cuda") as running:
        for case in args.only or [case for case in CASES if case != "both" or args.hosts == 4]:
            report(case, measure(running, case, args), args)


if __name__ == "__main__":
    main()
