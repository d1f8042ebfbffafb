"""The cost of a stream that is resumed in another web process than its owner: frames through a list in Redis.

    python -m scripts.test_services -- python benchmarks/handover_cost.py [--dry]

`--streams` (256) sessions with one generation each, at `--rate` (10) frames a second, are read by the other side of the
hand-over. Both sides run in this one process, so the processor time of a frame is that of both together; latency is
from home's writing a frame to the other side's having it. Rows go to benchmarks/results/gateway.jsonl.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / part) for part in ("platform", "inference_engine", "benchmarks")]
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings")

import django  # noqa: E402

django.setup()

from rows import append, cpu_name, parser_of, row  # noqa: E402

from control_plane.gateway.websocket.resume_relay import ResumeRelay  # noqa: E402
from control_plane.gateway.websocket.session import Send, Sessions  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "gateway.jsonl"


class Nobody:
    """A socket whose connection broke."""

    async def send_frame(self, text: str) -> None:
        raise OSError

    def lose(self, session: object) -> None:
        pass


class Ticking:
    """A generation of frames at a fixed rate, each with the time it was written."""

    resumable = True
    over = False

    def __init__(self, rate: float, frames: int) -> None:
        self._rate, self._frames, self._ended = rate, frames, lambda: None

    async def attach(self, send: Send, after: int) -> bool:
        self._task = asyncio.create_task(self._run(send))
        return True

    async def _run(self, send: Send) -> None:
        begin = time.monotonic()
        for seq in range(1, self._frames + 1):
            await asyncio.sleep(max(0.0, begin + seq / self._rate - time.monotonic()))
            await send(f'{{"type":"delta","id":"g","seq":{seq},"choice":0,"text":"{time.monotonic_ns()}","tokens":1}}')
        self.over = True
        self.at_end()

    def at_end(self) -> None:
        raise NotImplementedError

    def detach(self) -> None: ...

    def end(self) -> None: ...


async def resumed(home: Sessions, other: ResumeRelay, rate: float, frames: int, latencies: list[float]) -> None:
    owner = ("bench", uuid.uuid4())
    session = home.open(owner, Nobody())
    ticking: Any = Ticking(rate, frames)
    session.generations["g"] = ticking
    ticking.at_end = lambda: session.at_end()
    session.release()

    async def take(frame: str) -> None:
        if frame.startswith('{"type":"delta"'):
            latencies.append((time.monotonic_ns() - int(frame.split('"text":"')[1].split('"')[0])) / 1e6)

    remote = other.remote(session.name, {"g": 0}, take)
    assert remote is not None
    await remote.start(owner)


async def run(options: argparse.Namespace) -> dict[str, float]:
    url = os.environ["LORIKEET_TEST_REDIS_URL"]
    home, elsewhere = Sessions(), Sessions()
    both = ResumeRelay(home, url), ResumeRelay(elsewhere, url)
    for side in both:
        side.start()
    await asyncio.sleep(0.5)
    latencies: list[float] = []
    cpu = time.process_time()
    await asyncio.gather(
        *(resumed(home, both[1], options.rate, options.frames, latencies) for _ in range(options.streams))
    )
    cpu = time.process_time() - cpu
    for side in both:
        await side.close()
    assert len(latencies) == options.streams * options.frames, "frames were lost"
    latencies.sort()
    return {
        "cpu_us_per_frame_both_sides": cpu / len(latencies) * 1e6,
        "latency_p50_ms": latencies[len(latencies) // 2],
        "latency_p99_ms": latencies[int(len(latencies) * 0.99)],
    }


def main() -> int:
    parser = parser_of(__doc__, dry=True)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--rate", type=float, default=10.0, help="frames a second of each stream")
    parser.add_argument("--frames", type=int, default=100, help="frames of each stream")
    options = parser.parse_args()
    settings = {"cpu": cpu_name(), "cores": os.cpu_count(), "load_1m_before": round(os.getloadavg()[0], 2)}
    settings |= {"streams": options.streams, "frames_per_s": options.rate, "frames_each": options.frames}
    case, model = "resumed elsewhere", "scripted"
    rows = [
        row("gateway", case, metric, value, "us" if "_us_" in metric else "ms", settings, model=model)
        for metric, value in asyncio.run(run(options)).items()
    ]
    append(RESULTS, rows, dry=options.dry)
    return 0


if __name__ == "__main__":
    sys.exit(main())
