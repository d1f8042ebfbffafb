"""W9: the whole platform on one machine: a web process, the engine's process, clients over HTTP with streamed answers.

    python benchmarks/front_door.py --device cuda --out benchmarks/results/w9.jsonl
    python benchmarks/front_door.py --shape tiny --seconds 3                          a trial without a GPU

Writes a checkpoint of random weights with `--shape`, starts the engine's own command line and a web process over
SQLite, uploads `--adapters` adapters (q,k,v,o; ranks 8/16/32/64) through the API, and keeps `n` streams going from
four client processes: 256 tokens in, 128 out, greedy, no end token, each adapter in turn. Figures, per number of
streams, base and with adapters: requests per second (a request that began or ended outside the measured time counts by
the share of its time inside); first token and time between tokens, P50 and P99; CPU µs a token of the web and the
engine's process. `start` says how long the engine took until it was ready (`--restart`: and a second time).
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import math
import os
import random
import statistics
import string
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import httpx  # noqa: E402
import torch  # noqa: E402
from lorikeet_testing.web import WebProcess, free_port  # noqa: E402
from offline_throughput import MIXED, MODELS, tokenizer_folder  # noqa: E402
from rest_throughput import cpu_seconds  # noqa: E402
from rows import Rows, parser_of  # noqa: E402
from safetensors.torch import save, save_file  # noqa: E402

from lora_engine.model.config import ModelConfig  # noqa: E402

TINY: dict[str, Any] = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 2048,
}  # fmt: skip
SHAPES = {**MODELS, "tiny": TINY}
MODEL_NAME, TENANT = "w9-base", "acme"
TOKENS_IN, TOKENS_OUT, CLIENTS = 256, 128, 4
START_LIMIT_S = 300


# -- a model and adapters -------------------------------------------------------------


def write_model(folder: Path, shape: dict[str, Any], device: str) -> ModelConfig:
    """Write a Hugging Face checkpoint of random weights, a shard per layer, with a tokenizer of one token per
    letter.
    """
    config = {"architectures": ["LlamaForCausalLM"], "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16", **shape}
    parsed = ModelConfig.from_dict(config)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (tokenizer_folder(parsed.vocab_size) / "tokenizer.json").rename(folder / "tokenizer.json")
    width, heads = shape["hidden_size"], shape["num_attention_heads"]
    head, kv_heads, inner = width // heads, shape["num_key_value_heads"], shape["intermediate_size"]
    sizes = {
        "self_attn.q_proj": (width, width), "self_attn.k_proj": (kv_heads * head, width),
        "self_attn.v_proj": (kv_heads * head, width), "self_attn.o_proj": (width, width),
        "mlp.gate_proj": (inner, width), "mlp.up_proj": (inner, width), "mlp.down_proj": (width, inner),
    }  # fmt: skip

    def noise(*size: int) -> torch.Tensor:
        return (torch.randn(size, device=device) * 0.02).bfloat16().cpu()

    def ones() -> torch.Tensor:
        return torch.ones(width, dtype=torch.bfloat16)

    index: dict[str, str] = {}

    def write(file: str, tensors: dict[str, torch.Tensor]) -> None:
        save_file(tensors, folder / file, {"format": "pt"})
        index.update(dict.fromkeys(tensors, file))

    def layer(number: int) -> None:
        stem = f"model.layers.{number}."
        tensors = {f"{stem}{name}.weight": noise(*size) for name, size in sizes.items()}
        norms = {f"{stem}{name}.weight": ones() for name in ("input_layernorm", "post_attention_layernorm")}
        write(f"layer-{number:02}.safetensors", {**tensors, **norms})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(layer, range(parsed.num_layers)))
    rows = parsed.vocab_size
    rest = {"model.embed_tokens.weight": noise(rows, width), "model.norm.weight": ones()}
    write("rest.safetensors", {**rest, "lm_head.weight": noise(rows, width)})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return parsed


def adapter_archive(shape: dict[str, Any], rank: int, seed: int) -> bytes:
    """Return a zip as PEFT saves an adapter, with weights too small to change answers much."""
    width, heads = shape["hidden_size"], shape["num_attention_heads"]
    kv = shape["num_key_value_heads"] * (width // heads)
    outputs = {"q_proj": width, "k_proj": kv, "v_proj": kv, "o_proj": width}
    made = torch.Generator().manual_seed(seed)
    tensors = {}
    for number in range(shape["num_hidden_layers"]):
        for target in outputs:
            stem = f"base_model.model.model.layers.{number}.self_attn.{target}"
            for part, size in (("A", (rank, width)), ("B", (outputs[target], rank))):
                # Random bits are quick to make; an exponent cut to 1/128 .. 1/64 keeps them small.
                bits = torch.randint(-(1 << 15), 1 << 15, size, dtype=torch.int16, generator=made)
                tensors[f"{stem}.lora_{part}.weight"] = ((bits & -32641) | 0x3C00).view(torch.bfloat16)
    config = {
        "peft_type": "LORA", "base_model_name_or_path": MODEL_NAME, "r": rank, "lora_alpha": rank,
        "target_modules": list(outputs), "task_type": "CAUSAL_LM", "bias": "none",
    }  # fmt: skip
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("adapter_config.json", json.dumps(config))
        archive.writestr("adapter_model.safetensors", save(tensors))
    return buffer.getvalue()


# -- the platform ---------------------------------------------------------------------


class EngineProcess:
    """A process `python -m lora_engine`, as an operator starts it."""

    def __init__(self, folder: Path, model: Path, options: argparse.Namespace) -> None:
        self.address = f"unix:{folder}/engine.sock"
        self.log = folder / "engine.log"
        self.metrics = free_port()
        self.command = [
            sys.executable, "-m", "lora_engine", "--model", str(model), "--model-name", MODEL_NAME,
            "--listen", self.address, "--data-dir", str(folder / "engine"), "--device", options.device,
            "--metrics-port", str(self.metrics), *options.engine_options,
        ]  # fmt: skip
        self.env = {**os.environ, "PYTHONPATH": source_roots()}
        self.started = 0.0

    def start(self) -> None:
        self.started = time.perf_counter()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, env=self.env, cwd=ROOT, stdout=log, stderr=log)

    def wait_until_ready(self) -> float:
        """Return the seconds from the start of the process until its socket answers."""
        socket = Path(self.address.removeprefix("unix:"))
        while not socket.exists():
            assert self.process.poll() is None, self.log.read_text()[-4000:]
            assert time.perf_counter() < self.started + START_LIMIT_S, self.log.read_text()[-4000:]
            time.sleep(0.02)
        return time.perf_counter() - self.started

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def source_roots() -> str:
    known = os.environ.get("PYTHONPATH", "")
    ours = [str(ROOT / root) for root in ("platform", "inference_engine", "kernels", "tests/support")]
    return os.pathsep.join([*ours, *([known] if known else [])])


@contextmanager
def running(options: argparse.Namespace, folder: Path, rows: Rows) -> Iterator[tuple[WebProcess, EngineProcess]]:
    model = folder / "model"
    write_model(model, SHAPES[options.shape], options.device)
    engine = EngineProcess(folder, model, options)
    engine.start()
    web = WebProcess(folder / "var", f"local={engine.address}", {"PYTHONPATH": source_roots()}, installation={})
    try:
        web.seed(adapters=False)
        rows.add("start", "ready_s_first", engine.wait_until_ready(), "s")
        if options.restart:
            engine.stop()
            engine.start()
            rows.add("start", "ready_s_again", engine.wait_until_ready(), "s")
        web.start()
        web.wait_until_ready(MODEL_NAME, tenant=TENANT)
        yield web, engine
    finally:
        print(engine.log.read_text()[-3000:], file=sys.stderr)
        if web.process is not None:
            web.kill()
        engine.stop()


def upload(web: WebProcess, shape: dict[str, Any], count: int) -> list[str]:
    """Upload adapters through the API, eight at once, until the engine answers with each."""
    access = web.tenants[TENANT]
    names = [f"adapter-{index}" for index in range(count)]

    def one(index: int) -> None:
        archive = adapter_archive(shape, MIXED[index % len(MIXED)], index)
        with httpx.Client(base_url=web.url, headers=access.bearer, trust_env=False, timeout=300) as http:
            base = f"/api/tenants/{TENANT}/uploads"
            files = [("files", ("adapter.zip", archive))]
            answer = http.post(base, data={"name": names[index]}, files=files)
            assert answer.status_code == 202, answer.text
            path = f"{base}/{answer.json()['id']}"
            while (upload := http.get(path).json())["state"] != "accepted":
                assert upload["state"] not in ("refused", "failed"), upload
                time.sleep(0.1)
            body = {"model": names[index], "prompt": "abc", "max_tokens": 1}
            until = time.monotonic() + 120
            while (answer := http.post("/v1/completions", json=body)).status_code != 200:
                assert time.monotonic() < until, answer.text
                time.sleep(0.2)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(count)))
    return names


# -- the load -------------------------------------------------------------------------


@dataclass
class Seen:
    """The measurements of one client process's streams between the two ends of the measured interval."""

    requests: float = 0
    first_s: list[float] = field(default_factory=list)
    between_s: list[float] = field(default_factory=list)


class Stream(asyncio.Protocol):
    """A connection that sends the next request as soon as the last one was answered."""

    def __init__(self, load: Load, index: int) -> None:
        self._load, self._index, self._rnd = load, index, random.Random(f"{load.seed}/{index}")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        prompt = "".join(self._rnd.choices(string.ascii_letters, k=TOKENS_IN))
        model = self._load.models[self._index % len(self._load.models)]
        self._index += self._load.stride
        request = {
            "model": model, "prompt": prompt, "max_tokens": TOKENS_OUT, "temperature": 0, "ignore_eos": True,
            "stream": True,
        }  # fmt: skip
        body = json.dumps(request)
        self._transport.write(f"{self._load.head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        self._sent_at, self._last, self._tail = time.perf_counter(), 0.0, b""

    def data_received(self, data: bytes) -> None:
        now, load = time.perf_counter(), self._load
        chunks = data.count(b'"text":"') - data.count(b'"text":""')
        if chunks and load.begin <= now < load.end:
            if self._last:
                load.seen.between_s.append((now - self._last) / chunks)
            else:
                load.seen.first_s.append(now - self._sent_at)
        if chunks:
            self._last = now
        seen = self._tail + data
        self._tail = seen[-40:]
        if (b"HTTP/1.1 " in seen and b"HTTP/1.1 200" not in seen) or b'"error"' in seen:
            load.fail(seen[-500:].decode(errors="replace"))
        elif b"data: [DONE]" in seen and seen.endswith(b"0\r\n\r\n"):
            inside = min(now, load.end) - max(self._sent_at, load.begin)
            load.seen.requests += max(0.0, inside) / (now - self._sent_at)
            if now < load.end:
                self._ask()
            else:
                load.stopped(self._transport)

    def connection_lost(self, error: Exception | None) -> None:
        if time.perf_counter() < self._load.end:
            self._load.fail(f"a connection ended: {error}")


class Load:
    """The streams of one client process."""

    def __init__(self, port: int, key: str, models: Sequence[str], first: int, count: int, seed: str) -> None:
        self.models, self.first, self.count, self.seed, self.stride = models, first, count, seed, 7
        self.port, self.seen = port, Seen()
        self.head = (
            f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\n"
            "Content-Type: application/json\r\n"
        )
        self._left = count
        self._error = ""

    async def run(self, warm_s: float, seconds: float) -> Seen:
        loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self.begin = time.perf_counter() + warm_s
        self.end = self.begin + seconds
        for index in range(self.first, self.first + self.count):
            await loop.create_connection(lambda index=index: Stream(self, index), "127.0.0.1", self.port)  # type: ignore[misc]
        await asyncio.wait_for(self._over.wait(), warm_s + seconds + 120)
        if self._error:
            raise RuntimeError(self._error)
        return self.seen

    def stopped(self, transport: asyncio.Transport) -> None:
        transport.close()
        self._left -= 1
        if not self._left:
            self._over.set()

    def fail(self, message: str) -> None:
        self._error = self._error or message
        self._over.set()


def client(arguments: tuple[int, str, Sequence[str], int, int, str, float, float]) -> Seen:
    *load, warm_s, seconds = arguments
    return asyncio.run(Load(*load).run(warm_s, seconds))  # type: ignore[arg-type]


def measure(
    web: WebProcess, engine: EngineProcess, models: Sequence[str], streams: int, warm_s: float, seconds: float
) -> tuple[Seen, dict[str, float]]:
    """Return what all clients measured, and the CPU seconds of the two processes meanwhile."""
    assert web.process is not None
    pids = {"web": web.process.pid, "engine": engine.process.pid}
    share = math.ceil(streams / CLIENTS)
    parts = [(at, min(share, streams - at)) for at in range(0, streams, share)]
    key = web.tenants[TENANT].key
    with get_context("spawn").Pool(len(parts)) as pool:
        pool.map(abs, range(len(parts)))  # they import what they need before the clock runs
        work = pool.map_async(
            client, [(web.port, key, models, at, n, f"{streams}/{models[0]}", warm_s, seconds) for at, n in parts], 1
        )
        time.sleep(warm_s)
        before = cpu_seconds(pids)
        time.sleep(seconds)
        after = cpu_seconds(pids)
        every = work.get(warm_s + seconds + 180)
    seen = Seen()
    for part in every:
        seen.requests += part.requests
        seen.first_s += part.first_s
        seen.between_s += part.between_s
    return seen, {name: after[name] - before[name] for name in pids}


def report(rows: Rows, case: str, streams: int, seen: Seen, cpu_s: dict[str, float], seconds: float) -> None:
    settings = {"streams": streams, "seconds": seconds, "cores": os.cpu_count()}

    def add(metric: str, value: float, unit: str) -> None:
        rows.add(f"{case}, {streams} streams", metric, value, unit, settings=settings)

    add("requests_per_s", seen.requests / seconds, "1/s")
    for name, values in (("first_token", seen.first_s), ("between_tokens", seen.between_s)):
        values.sort()
        add(f"{name}_p50_ms", statistics.median(values) * 1e3, "ms")
        add(f"{name}_p99_ms", values[min(len(values) - 1, int(len(values) * 0.99))] * 1e3, "ms")
    for name, spent in cpu_s.items():
        add(f"{name}_cpu_us_per_token", spent / (seen.requests * TOKENS_OUT) * 1e6, "us")


def main() -> None:
    parser = parser_of(__doc__, out=True)
    parser.add_argument("--shape", choices=SHAPES, default="llama-3.1-8b")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--adapters", type=int, default=64)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 64, 256])
    parser.add_argument("--seconds", type=float, default=12, help="seconds of each measurement")
    parser.add_argument("--warm-s", type=float, default=3)
    parser.add_argument(
        "--restart", action="store_true", help="start the engine twice: its second start is the warm one"
    )
    parser.add_argument("--folder", type=Path, help="for the checkpoint and all state (default: a temporary one)")
    parser.add_argument("engine_options", nargs="*", help="further options of the engine, after --")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="w9-", dir=options.folder) as name:
        rows = Rows(options.out, "W9", options.shape, engine_options=options.engine_options)
        with running(options, Path(name), rows) as (web, engine):
            began = time.perf_counter()
            names = upload(web, SHAPES[options.shape], options.adapters)
            rows.add("upload", "adapters_per_s", len(names) / (time.perf_counter() - began), "1/s")
            for streams in options.streams:
                for case, models in (("base", [MODEL_NAME]), (f"{len(names)} mixed", names)):
                    seconds = options.seconds if streams > 1 else min(options.seconds, 6)
                    seen, cpu_s = measure(web, engine, models, streams, options.warm_s, seconds)
                    report(rows, case, streams, seen, cpu_s, seconds)


if __name__ == "__main__":
    main()
