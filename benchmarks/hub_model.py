"""A request that first names a 100 MB adapter of the Hub, up to its answer, on loopback.

    python benchmarks/hub_model.py                        three revisions, one after another
    python benchmarks/hub_model.py --engine cpu           the same with an engine that answers
    python benchmarks/hub_model.py --out results/hub_model.jsonl
    python benchmarks/hub_model.py --engine cpu --timeline    when each process did what, of the last revision

Starts a web process over a folder of its own, with its worker inside, an engine and a server that speaks the Hub's
protocol. With a scripted engine, of Llama 3.2 1B's shapes, the platform is measured: fetching, checking and storing the
adapter, and noticing that it is ready. With one on the CPU, of a random model of 0.1 billion parameters, so is what a
host does: fetching from the store, checking, packing, trying the adapter, and the answer's first token.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("platform", "inference_engine", "tests/support")]

import httpx  # noqa: E402
import timeline  # noqa: E402
from lorikeet_testing import peft_files  # noqa: E402
from lorikeet_testing.fake_engine import GEOMETRY, Behaviour, FakeEngineThread  # noqa: E402
from lorikeet_testing.hub_server import commit_of, running_hub  # noqa: E402
from lorikeet_testing.seed import PASSWORD  # noqa: E402
from lorikeet_testing.web import SOURCE_ROOTS, WebProcess  # noqa: E402
from rows import append, parser_of, row  # noqa: E402

from lora_engine.wire import engine_pb2 as pb  # noqa: E402

MODELS = {"scripted": "scripted, shapes of Llama 3.2 1B", "cpu": "random, 0.1 billion parameters, CPU"}
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
RANK, CPU_RANK = 36, 144
CPU_SHAPES: dict[str, Any] = {
    "num_layers": 8,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "vocab_size": 512,
}
SHAPES: dict[str, Any] = {
    "num_layers": 16,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": GEOMETRY.vocab_size,
}
# Functions that ``--timeline`` records: module -> function -> label.
PARTS = {
    "control_plane.gateway.dispatch.admission": {"place": "request: look what the name means"},
    "control_plane.adapters.imports.fetching": {
        "fetch": "worker: fetch",
        "_on_hub": "worker: ask the Hub for the files",
        "_Transfer.run": "worker: fetch a file",
    },
    "control_plane.adapters.uploads.validation_job": {
        "validate_next": "worker: decide",
        "inspect": "worker: the child",
    },
    "control_plane.adapters.artifacts.store": {
        "FolderStore.put": "worker: put into the store",
        "read_digests": "worker: digests of what is stored",
        "_bring": "worker: bring a file into the store",
    },
    "control_plane.adapters.uploads.actions": {
        "claim_next": "worker: claim the import",
        "accept_upload": "worker: accept",
    },
    "control_plane.fleet.placements.actions": {
        "claim_next": "worker: claim the staging",
        "record_stage_event": "worker: record a phase",
        "place_version": "worker: place the version",
    },
    "control_plane.fleet.placements.tasks": {"stage": "worker: stage", "probe": "worker: wait for the trial"},
    "lora_engine.peft_format.upload": {"unpack_upload": "child: take the files"},
    "lora_engine.peft_format.canonical": {"to_peft_form": "child: to PEFT's form"},
    "lora_engine.peft_format.inspection": {"inspect_adapter": "child or engine: inspect"},
    "lora_engine.peft_format.identity": {"file_digest": "digest of a file"},
    "lora_engine.adapters.staging": {
        "AdapterTiers._stage": "engine: bring to host memory",
        "AdapterTiers.delta_norms": "engine: norms of the layers",
    },
    "lora_engine.adapters.disk_tier": {"DiskTier.add": "engine: fetch to its disk"},
    "lora_engine.adapters.packing": {"PoolPacker.pack": "engine: pack"},
    "lora_engine.adapters.device_tier": {"DeviceTier.load": "engine: copy to the pool"},
    "lora_engine.server.adapter_probes": {
        "AdapterProbes.probe": "engine: trial",
        "AdapterProbes._try": "engine: the trial's requests",
    },
    "lora_engine.engine": {"Engine.step": "engine: step"},
}


@contextmanager
def scripted_engine(folder: Path, _paths: list[str]) -> Iterator[tuple[str, str]]:
    """Start a scripted engine; yield its address and its model's name."""
    behaviour = Behaviour(steps_per_second=2000, known_digests_only=True, geometry=pb.BaseGeometry(**SHAPES))
    engine = FakeEngineThread(f"unix:{folder}/e.sock", behaviour)
    try:
        yield engine.engine.address, "fake-base"
    finally:
        engine.close()


@contextmanager
def cpu_engine(folder: Path, paths: list[str]) -> Iterator[tuple[str, str]]:
    """Start an engine process with these folders in front of its import path, which takes seconds; yield its address
    and its model's name.
    """
    from lorikeet_testing.engine_process import EngineProcess
    from lorikeet_testing.tiny_models import save_model

    save_model("llama2-mha", folder / "model", num_hidden_layers=CPU_SHAPES["num_layers"], **CPU_SHAPES)
    options = ("--model-name", "fake-base", "--pool-mb", "1024", "--host-arena-mb", "1024", "--threads", "2")
    engine = EngineProcess(folder / "model", folder, *options, paths=paths)
    try:
        yield engine.address, "fake-base"
    finally:
        engine.end()


def revisions(count: int, rank: int, shapes: dict[str, Any]) -> dict[str, dict[str, bytes]]:
    """Return revisions of an adapter, each of which differs from the others in one value."""
    made = peft_files.tensors(rank, TARGETS, replace(peft_files.GEOMETRY, **shapes))
    first = next(iter(made.values()))
    results = {}
    for number in range(count):
        first[0, 0] = number
        weights = peft_files.safetensors_bytes(made)
        results[f"v{number}"] = {
            "adapter_config.json": peft_files.config_bytes(rank, TARGETS),
            "adapter_model.safetensors": weights,
        }
    return results


def allow(web: WebProcess, tenant: str) -> None:
    with httpx.Client(base_url=web.url, trust_env=False, timeout=30) as member:
        token = member.get("/api/session").json()["csrf_token"]
        headers = {"X-CSRFToken": token, "Origin": web.url, "Referer": web.url}
        login = {"email": web.tenants[tenant].email, "password": PASSWORD}
        headers["X-CSRFToken"] = member.post("/api/session", json=login, headers=headers).json()["csrf_token"]
        member.put(f"/api/tenants/{tenant}/hub-models", json={"enabled": True}, headers=headers).raise_for_status()


def show(folder: Path, web: WebProcess, began: float, ended: float) -> None:
    """Print the recorded parts in order of their start, in milliseconds since the request."""
    web_pid = web.process.pid if web.process else 0
    print(f"{'from':>6} {'to':>6}  ms since the request")
    for mark in timeline.read(folder, began):
        if mark.began > ended:
            break
        at, until = (round(1000 * (moment - began)) for moment in (mark.began, mark.ended))
        print(f"{at:6} {until:6}  {mark.part} ({'web' if mark.process == web_pid else mark.process})")
    print(f"{round(1000 * (ended - began)):13}  the answer", flush=True)


def main() -> None:
    parser = parser_of(__doc__, out=True)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--engine", choices=MODELS, default="scripted")
    parser.add_argument("--timeline", action="store_true")
    args = parser.parse_args()
    scripted = args.engine == "scripted"
    rank, shapes = (RANK, SHAPES) if scripted else (CPU_RANK, CPU_SHAPES)
    with tempfile.TemporaryDirectory() as name, running_hub() as hub, ExitStack() as stack:
        folder, paths = Path(name), []
        if args.timeline:
            paths = [str(timeline.hooks(folder, PARTS))]
        hub.repositories["org/adapter"] = revisions(args.times, rank, shapes)
        for files in hub.repositories["org/adapter"].values():
            commit_of(files)  # a hub knows its commits
        address, base = stack.enter_context((scripted_engine if scripted else cpu_engine)(folder, paths))
        env = {
            "LORIKEET_HUB_URL": hub.url,
            "LORIKEET_IMPORT_ALLOW_PRIVATE": "1",
            "LORIKEET_HUB_MODEL_WAIT_S": "120",
            "PYTHONPATH": os.pathsep.join([*paths, *(str(ROOT / root) for root in SOURCE_ROOTS)]),
        }
        web = WebProcess(folder / "var", f"local={address}", env)
        web.seed(adapters=False)
        web.start()
        stack.callback(web.kill)
        web.wait_until_ready(base)
        allow(web, "acme")
        for revision, files in hub.repositories["org/adapter"].items():
            body = {"model": f"hub:org/adapter@{revision}", "prompt": "hello", "max_tokens": 1}
            at, began = time.time(), time.perf_counter()
            url, headers = f"{web.url}/v1/completions", web.tenants["acme"].bearer
            answer = httpx.post(url, json=body, headers=headers, timeout=180, trust_env=False)
            took = time.perf_counter() - began
            assert answer.is_success, answer.text
            if args.timeline:
                show(folder, web, at, at + took)
            megabytes = round(sum(map(len, files.values())) / 1e6, 1)
            settings = {"mb": megabytes, "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
            model = MODELS[args.engine]
            append(args.out, [row("hub_model", revision, "request to answer", took, "s", settings, model=model)])


if __name__ == "__main__":
    main()
