"""A million requests, none of which may get a token of a wrong adapter or version.

    python benchmarks/signatures.py --device cuda --out benchmarks/results/signatures.jsonl

    python benchmarks/signatures.py --rest --seconds 180 --adapters 100 --out benchmarks/results/signatures.jsonl

Each case is an engine host of its own process with a thousand adapters, every one of which answers with its own
signature (`tests/support/lorikeet_testing/signatures.py`), and `signed_traffic.py` beside it: requests while adapters
are staged, replaced, dropped, evicted and merged at random. All cases run at once until they have `--requests`
together, or until `--seconds` are over. Ends with 1 if a token was wrong, or if nothing explains how a request ended.
docs/explanation/isolation.md describes the method.

With `--rest` the only case is a web process and an engine process on the CPU: `--clients` clients request over HTTP
(`signed_http.py`) while adapters are uploaded, replaced, archived, restored and evicted.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import multiprocessing
import os
import queue
import sys
import tempfile
import time
import traceback
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / part) for part in ("inference_engine", "kernels", "tests/support", "benchmarks")]

from lorikeet_testing.engine_process import EngineProcess  # noqa: E402
from lorikeet_testing.signatures import save_base  # noqa: E402
from lorikeet_testing.signed_http import Caller, SignedHttpTraffic  # noqa: E402
from lorikeet_testing.signed_traffic import SignedTraffic, Tally  # noqa: E402
from lorikeet_testing.web import WebProcess  # noqa: E402
from rows import Rows, parser_of  # noqa: E402

from lora_engine.config import EngineConfig  # noqa: E402
from lora_engine.model.loading import load_model  # noqa: E402
from lora_engine.server.process import build_host  # noqa: E402

# A pool, and memory and disk of the host, that hold a part of a thousand adapters of about 80 KB in float32.
_TIERS: dict[str, Any] = {"pool_mb": 16, "host_arena_mb": 32, "disk_tier_mb": 64}
CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "merged": {"mode": "merged"},
    "dlora": {"mode": "dlora"},
    "auto": {"mode": "auto"},
    "deterministic": {"deterministic": True},
    "small pool": {"pool_mb": 1, "page_tokens": 4, "order": "lcfs"},
    "fcfs without prefixes": {"order": "fcfs", "prefix_cache": False, "prefetch": 0},
    "without graphs": {"cuda_graphs": False},
}
_LONG_ANSWERS = {"small pool": 0.2}  # so that running requests outgrow it and are pre-empted
_CONCURRENCY = 384
# Longer than a kernel takes to compile for a batch that the start did not foresee.
_PATIENCE_S = 200.0


def run_case(
    name: str,
    number: int,
    arguments: argparse.Namespace,
    left: Synchronized[int],
    until: float,
    results: multiprocessing.Queue[tuple[str, Tally, float]],
) -> None:
    logging.basicConfig(level="ERROR")
    with tempfile.TemporaryDirectory(prefix="signatures-") as folder:
        tally, seconds = asyncio.run(_serve(name, number, arguments, left, until, Path(folder)))
    results.put((name, tally, seconds))


async def _serve(
    name: str, number: int, arguments: argparse.Namespace, left: Synchronized[int], until: float, folder: Path
) -> tuple[Tally, float]:
    save_base(folder / "model")
    settings = {**_TIERS, "device": arguments.device, "threads": 1, **CASES[name]}
    config = EngineConfig(model=folder / "model", data_dir=folder / "data", **settings)
    host = build_host(config, load_model(config))
    host.start()
    traffic = SignedTraffic(
        host,
        folder / "adapters",
        adapters=arguments.adapters,
        seed=arguments.seed + number,
        concurrency=_CONCURRENCY,
        disturb_every=arguments.disturb_every,
        long_answers=_LONG_ANSWERS.get(name, 0.01),
        patience_s=_PATIENCE_S,
    )

    def may_go_on() -> bool:
        if time.time() > until:
            return False
        with left.get_lock():
            left.value -= 1
            return left.value >= 0

    began = time.monotonic()
    try:
        await traffic.run(may_go_on)
    except Exception:
        traffic.tally.unexplained.append(traceback.format_exc())
    finally:
        host.stop()
    return traffic.tally, time.monotonic() - began


def run_rest(arguments: argparse.Namespace) -> tuple[Tally, float]:
    """Run the traffic over HTTP; returns its tally and its seconds."""
    with tempfile.TemporaryDirectory(prefix="signatures-") as name:
        folder = Path(name)
        save_base(folder / "model")
        engine = EngineProcess(folder / "model", folder, "--model-name", "signatures", "--dtype", "float32",
                               "--pool-mb", "2", "--host-arena-mb", "4")  # fmt: skip
        web = WebProcess(folder / "var", f"local={engine.address}")
        try:
            web.seed(adapters=False)
            web.start()
            web.wait_until_ready("signatures")
            return asyncio.run(_request_over_http(web, folder, arguments))
        finally:
            web.stop()
            engine.end()


async def _request_over_http(web: WebProcess, folder: Path, arguments: argparse.Namespace) -> tuple[Tally, float]:
    callers = [Caller(slug, access.bearer) for slug, access in web.tenants.items()]
    traffic = SignedHttpTraffic(
        web.url, callers, "signatures", folder / "adapters",
        adapters=arguments.adapters, clients=arguments.clients, seed=arguments.seed,
    )  # fmt: skip
    began = time.monotonic()
    until = began + arguments.seconds
    try:
        await traffic.run(lambda: time.monotonic() < until and traffic.tally.requests < arguments.requests)
    except Exception:
        traffic.tally.unexplained.append(traceback.format_exc())
    seconds = time.monotonic() - began
    await asyncio.sleep(3)  # until the last usage is recorded
    for row in web.query(
        "SELECT adapter_loaded_from AS tier, count(*) AS loads, sum(cached_prompt_tokens) AS cached"
        " FROM usage_usageevent GROUP BY adapter_loaded_from"
    ):
        traffic.tally.events["cached_prompt_tokens"] += row["cached"]
        if row["tier"]:
            traffic.tally.events[f"loads_from_{row['tier']}"] += row["loads"]
    return traffic.tally, seconds


def main() -> int:
    parser = parser_of(__doc__, out=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--requests", type=int, default=1_000_000, help="requests of all cases together")
    parser.add_argument("--seconds", type=float, default=3600.0, help="time after which no more requests begin")
    parser.add_argument("--adapters", type=int, default=1000, help="adapters of each case")
    parser.add_argument("--disturb-every", type=int, default=40, help="requests between two changes of adapters")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rest", action="store_true", help="over HTTP, to a web process and an engine on the CPU")
    parser.add_argument("--clients", type=int, default=32, help="with --rest: requests under way at once")
    arguments = parser.parse_args()
    if arguments.rest:
        arguments.concurrency = arguments.clients
        return report({"REST API": run_rest(arguments)}, arguments)
    arguments.concurrency = _CONCURRENCY
    until, context = time.time() + arguments.seconds, multiprocessing.get_context("spawn")
    left: Any = context.Value("q", arguments.requests)
    results: multiprocessing.Queue[tuple[str, Tally, float]] = context.Queue()
    children = {
        name: context.Process(target=run_case, args=(name, number, arguments, left, until, results))
        for number, name in enumerate(arguments.cases)
    }
    for child in children.values():
        child.start()
    return report(_collect(children, results), arguments)


def _collect(
    children: dict[str, Any], results: multiprocessing.Queue[tuple[str, Tally, float]]
) -> dict[str, tuple[Tally, float]]:
    """Return the tally and seconds of each case; a case whose process died counts as failed."""
    collected: dict[str, tuple[Tally, float]] = {}
    while len(collected) < len(children):
        dead = [name for name, child in children.items() if name not in collected and child.exitcode is not None]
        try:
            name, tally, seconds = results.get(timeout=1)
            collected[name] = tally, seconds
        except queue.Empty:
            for name in dead:
                died = f"the process of {name} ended with {children[name].exitcode}"
                collected[name] = Tally(unexplained=[died]), 0.0
    for child in children.values():
        child.join()
    return collected


def report(collected: dict[str, tuple[Tally, float]], arguments: argparse.Namespace) -> int:
    """Print and write a row for each case and one for all; the process's exit status."""
    rows = Rows(
        arguments.out, "signatures", "signatures", adapters=arguments.adapters, concurrency=arguments.concurrency,
        device=arguments.device, cores=os.cpu_count(), seed=arguments.seed,
    )  # fmt: skip
    total = Tally()
    for name, (tally, seconds) in collected.items():
        total.add(tally)
        rows.add(name, "wrong_tokens", tally.wrong_tokens, "", settings=_counts(tally, seconds))
        for line in (*tally.wrong, *tally.unexplained):
            print(f"{name}: {line}", flush=True)
    longest = max(seconds for _, seconds in collected.values())
    if len(collected) > 1:
        rows.add("all", "wrong_tokens", total.wrong_tokens, "", settings=_counts(total, longest))
    print(_counts(total, longest), flush=True)
    return 1 if total.wrong or total.unexplained else 0


def _counts(tally: Tally, seconds: float) -> dict[str, Any]:
    return {
        "requests": tally.requests, "finished": tally.finished, "aborted": tally.aborted, "refused": tally.refused,
        "tokens": tally.tokens, "unexplained": len(tally.unexplained), "seconds": round(seconds, 1),
        **dict(sorted(tally.events.items())),
    }  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
