"""Speed of the whole product on this machine, through the REST API with the demo model.

    make bench                                   starts a platform of its own, measures, stops it
    python benchmarks/rest_throughput.py --url http://127.0.0.1:8000 --key lk_…     measures a running one

Cases: one stream; 16 streams at once, each with another adapter in turn. Each
is run `--runs` times after a warm-up; a row per figure goes to
benchmarks/results/rest_cpu.jsonl (the format is described in
benchmarks/README.md). Greedy, end-of-text ignored, so that every run makes the
same number of tokens; the tokens are counted by the engine (`usage`).
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rows import cpu_name, parser_of, row

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "rest_cpu.jsonl"
PROMPT = "Tell me about the shop, where my order is, and what I should do next."
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Target:
    url: str
    key: str
    models: tuple[str, ...] = ()


@dataclass
class Stream:
    """A streamed completion: seconds to its first text, seconds in all, tokens by the engine's count."""

    first_s: float = 0.0
    total_s: float = 0.0
    tokens: int = 0
    chunks: int = 0


@dataclass
class Run:
    seconds: float
    streams: list[Stream]
    cpu_s: dict[str, float] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        return sum(stream.tokens for stream in self.streams)

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds


def stream_once(target: Target, model: str, max_tokens: int) -> Stream:
    """Read one streamed chat completion as its events arrive."""
    body = {
        "model": model, "messages": [{"role": "user", "content": PROMPT}], "temperature": 0, "max_tokens": max_tokens,
        "stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True,
    }  # fmt: skip
    headers = {"Authorization": f"Bearer {target.key}", "Content-Type": "application/json"}
    result, started = Stream(), time.perf_counter()
    with closing(http.client.HTTPConnection(urlsplit(target.url).netloc, timeout=300)) as connection:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise SystemExit(f"{model}: {answer.status} {answer.read().decode()}")
        for line in answer:
            if line.startswith(b"data: {") and _is_wanted(line, result):
                _take(result, json.loads(line[6:]), started)
    result.total_s = time.perf_counter() - started
    return result


def _is_wanted(line: bytes, result: Stream) -> bool:
    """The client shares the cores with what it measures, so it parses the first chunks and the last one only."""
    result.chunks += 1
    return not result.first_s or b'"completion_tokens"' in line or b'"error"' in line


def _take(result: Stream, chunk: dict[str, Any], started: float) -> None:
    if "error" in chunk:
        raise SystemExit(f"The stream broke: {chunk['error']}")
    if chunk.get("usage"):
        result.tokens = chunk["usage"]["completion_tokens"]
    if any(choice["delta"].get("content") for choice in chunk["choices"]):
        result.first_s = result.first_s or time.perf_counter() - started


def run_streams(target: Target, models: Sequence[str], max_tokens: int, pids: dict[str, int]) -> Run:
    """Run one stream per model, all at the same time."""
    streams: list[Stream] = [Stream()] * len(models)

    def work(index: int) -> None:
        streams[index] = stream_once(target, models[index], max_tokens)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(models))]
    before, started = cpu_seconds(pids), time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds, after = time.perf_counter() - started, cpu_seconds(pids)
    return Run(seconds, streams, {name: after[name] - before[name] for name in after})


def cpu_seconds(pids: dict[str, int]) -> dict[str, float]:
    """Return each process's user and system CPU time so far, in seconds (Linux)."""
    used = {}
    for name, pid in pids.items():
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        used[name] = (int(fields[11]) + int(fields[12])) / CLOCK_TICKS
    return used


def measure(target: Target, pids: dict[str, int], options: argparse.Namespace) -> list[dict[str, Any]]:
    adapters = target.models
    cases = {
        "1 stream base": [options.base],
        "1 stream adapter": [adapters[0]],
        f"{options.streams} streams mixed": [adapters[i % len(adapters)] for i in range(options.streams)],
    }
    rows: list[dict[str, Any]] = []
    for case, models in cases.items():
        run_streams(target, models, 16, pids)  # adapters reach the pool, code paths warm up
        runs = [run_streams(target, models, options.max_tokens, pids) for _ in range(options.runs)]
        rows += rows_of(case, runs, options)
    return rows


def rows_of(case: str, runs: list[Run], options: argparse.Namespace) -> list[dict[str, Any]]:
    first = sorted(stream.first_s * 1000 for run in runs for stream in run.streams)
    figures = {
        "tokens_per_s": (statistics.median(run.tokens_per_s for run in runs), "1/s"),
        "ttft_p50_ms": (statistics.median(first), "ms"),
        "ttft_p99_ms": (first[min(len(first) - 1, int(0.99 * len(first)))], "ms"),
    }
    for name in runs[0].cpu_s:
        per_token = [run.cpu_s[name] / run.tokens * 1e6 for run in runs]
        figures[f"{name}_cpu_us_per_token"] = (statistics.median(per_token), "us")
    each = {"tokens_per_s": [round(run.tokens_per_s, 1) for run in runs]}
    return [row_of(case, metric, value, unit, each.get(metric), options) for metric, (value, unit) in figures.items()]


def row_of(
    case: str, metric: str, value: float, unit: str, runs: list[float] | None, options: argparse.Namespace
) -> dict[str, Any]:
    settings = {
        "cpu": cpu_name(), "cores": os.cpu_count(), "load_1m_before": options.load, "runs": options.runs,
        "max_tokens": options.max_tokens, "streams": options.streams, "python": platform.python_version(),
        **({"each_run": runs} if runs else {}),
    }  # fmt: skip
    return row("rest_cpu", case, metric, value, unit, settings, model=options.base)


@contextmanager
def started_platform() -> Iterator[tuple[Target, dict[str, int]]]:
    """Start a platform in a temporary folder, as `make run` does."""
    sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT)]
    from lorikeet_testing.launched import Launched

    from scripts.test_services import free_port

    with tempfile.TemporaryDirectory(prefix="lorikeet-bench-") as folder:
        launched = Launched(Path(folder) / "var", free_port())
        try:
            access = launched.start()
            yield Target(access.url, access.key), {name: launched.child_pid(name) for name in ("engine", "web")}
        finally:
            launched.stop()


def with_models(target: Target, base: str) -> Target:
    """Return the target with the names of its adapters."""
    with closing(http.client.HTTPConnection(urlsplit(target.url).netloc, timeout=30)) as connection:
        connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {target.key}"})
        names = [entry["id"] for entry in json.load(connection.getresponse())["data"]]
    adapters = tuple(name for name in names if name != base)
    if not adapters:
        raise SystemExit("No adapter is ready on this platform; upload one first.")
    return Target(target.url, target.key, adapters)


def report(rows: list[dict[str, Any]]) -> None:
    for each in rows:
        print(f"{each['case']:<20} {each['metric']:<28} {each['value']:>10} {each['unit']}")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = parser_of(__doc__, dry=True)
    parser.add_argument("--url", help="a running platform; without it one is started")
    parser.add_argument("--key", help="an API key of it")
    parser.add_argument("--base", default="lorikeet-demo", help="name of the base model")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args(arguments)
    options.load = round(os.getloadavg()[0], 2)
    return options


def main() -> int:
    options = parse(sys.argv[1:])
    if options.url:
        rows = measure(with_models(Target(options.url, options.key), options.base), {}, options)
    else:
        with started_platform() as (target, pids):
            rows = measure(with_models(target, options.base), pids, options)
    report(rows)
    if not options.dry:
        RESULTS.parent.mkdir(exist_ok=True)
        with RESULTS.open("a") as results:
            results.writelines(json.dumps(each) + "\n" for each in rows)
        print(f"{len(rows)} rows appended to {RESULTS.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
