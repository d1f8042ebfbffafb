"""Start: from the engine's process to the first request it would take, cold and warm, part by part.

    python benchmarks/start_time.py --out benchmarks/results/start.jsonl [--model llama-3.1-8b] [--starts cold warm]

Starts ``python -m lora_engine`` itself, with no number given, and asks ``/readyz`` of its metrics port. ``cold``: its
data folder is new, so that no kernel is compiled and no digest known; ``warm``: the same folder again. The weights are
a file with holes: of the right size, read through the page cache, and all zeros, so a disk's time is not in here.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

from offline_throughput import MODELS, tokenizer_folder
from rows import Rows, parser_of

from lora_engine.model.config import ModelConfig
from lora_engine.model.tensor_shapes import tensor_shapes

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S, LATER_S = 300.0, 30.0


def save_checkpoint(folder: Path, raw: dict[str, Any]) -> None:
    """A model's folder whose weights take no room."""
    shutil.copytree(tokenizer_folder(raw["vocab_size"]), folder, dirs_exist_ok=True)
    (folder / "config.json").write_text(json.dumps(raw))
    entries, end = {}, 0
    for name, shape in tensor_shapes(ModelConfig.from_dict(raw)).items():
        start, end = end, end + 2 * prod(shape)
        entries[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [start, end]}
    header = json.dumps(entries).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + end)


class Start:
    """A start of the engine's process."""

    def __init__(self, model: Path, data: Path, device: str, logs: Path, *settings: str) -> None:
        self._port, self._logs, self._data = free_port(), logs, data
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(ROOT / n) for n in ("inference_engine", "kernels")),
        }
        environment.pop("TRITON_CACHE_DIR", None)
        command = [
            sys.executable, "-m", "lora_engine", "--model", str(model), "--data-dir", str(data), "--device", device,
            "--listen", f"unix:{data}/engine.sock", "--metrics-port", str(self._port),
            "--log-level", "DEBUG", *settings,
        ]  # fmt: skip
        self._began = time.monotonic()
        self._process = subprocess.Popen(command, env=environment, stderr=logs.open("w"))

    def wait(self) -> dict[str, Any]:
        """Wait until it is ready; return the answer of ``/readyz``, and the seconds by this process's clock."""
        while time.monotonic() - self._began < LIMIT_S and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/readyz", timeout=5) as answer:
                    return {**json.load(answer), "outside": time.monotonic() - self._began}
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        raise SystemExit(f"it did not start:\n{self._logs.read_text()[-4000:]}")

    def wait_for(self, words: str) -> str:
        """The log's line that holds the words; empty if none comes."""
        request_began = time.monotonic()
        while time.monotonic() - request_began < LATER_S and self._process.poll() is None:
            if line := next((line for line in self.messages() if words in line), ""):
                return line
            time.sleep(0.1)
        return ""

    def messages(self) -> Iterator[str]:
        for line in self._logs.read_text().splitlines():
            try:
                yield json.loads(line)["message"]
            except (ValueError, KeyError):
                yield line

    def kernels(self) -> int:
        """Return the number of compiled kernels in the engine's cache."""
        return sum(1 for _ in (self._data / "kernels").rglob("*.cubin"))

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def measure(rows: Rows, kind: str, start: Start, deferred: bool) -> None:
    """Rows of one start."""
    began = time.monotonic()
    times = start.wait()
    kernels = start.kernels()
    rows.add(kind, "ready", times["outside"], "s", settings={"inside": times["seconds"]})
    for phase in times["phases"]:
        rows.add(f"{kind}: {phase['name']}", "seconds", phase["seconds"], "s")
    if deferred:
        start.wait_for("captured all")
        rows.add(
            f"{kind}: other graphs, while nothing runs", "seconds", time.monotonic() - began - times["outside"], "s"
        )
    for words in [line.split() for line in start.messages() if line.startswith("captured ")]:
        count = words[2] if words[1] == "all" else words[1]
        kept = words[words.index("keep") + 1]
        rows.add(f"{kind}: graphs", "kept", float(kept), "MiB", settings={"graphs": int(count)})
    rows.add(f"{kind}: kernels", "in the cache when ready", kernels, "")
    for line in start.messages():
        if any(words in line for words in ("device memory", "are in the cache", "captured", "at its first use")):
            print(line, flush=True)


def main() -> None:
    parser = parser_of(__doc__, out=True)
    parser.add_argument("--model", choices=MODELS, default="llama-3.1-8b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--starts", nargs="*", choices=("cold", "warm"), default=["cold", "warm"])
    parser.add_argument("--max-running", type=int, default=256)
    parser.add_argument("--defer-graphs", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--fast-start", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--folder", type=Path, help="where the model's and the engine's files go; kept")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # and stop the engine with it
    folder = arguments.folder or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    save_checkpoint(folder / "model", MODELS[arguments.model])
    rows = Rows(arguments.out, "start", arguments.model, max_running=arguments.max_running,
                defer_graphs=arguments.defer_graphs, fast_start=arguments.fast_start)  # fmt: skip
    settings = ["--max-context", "4096", "--max-running", str(arguments.max_running)]
    settings += [] if arguments.defer_graphs else ["--no-defer-graphs"]
    settings += [] if arguments.fast_start else ["--no-fast-start"]
    try:
        for number, kind in enumerate(arguments.starts):
            if kind == "cold":
                shutil.rmtree(folder / "data", ignore_errors=True)
            (folder / "data").mkdir(exist_ok=True)
            start = Start(folder / "model", folder / "data", arguments.device, folder / f"{number}.log", *settings)
            try:
                measure(rows, kind, start, arguments.defer_graphs)
            finally:
                start.stop()
                if arguments.out:
                    shutil.copy(folder / f"{number}.log", arguments.out.with_name(f"start-{number}-{kind}.log"))
    finally:
        if not arguments.folder:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
