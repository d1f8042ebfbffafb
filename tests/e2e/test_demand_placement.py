"""Adapters placed by demand on three real engines: what is called much spreads, what nobody calls leaves for the store,
a new version is beside the old one before it is live, and no request is lost meanwhile."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from lorikeet_testing.engine_process import EngineProcess
from lorikeet_testing.peft_files import config_bytes, safetensors_bytes, tensors
from lorikeet_testing.web import ROOT, WebProcess, eventually

from lora_engine.peft_format import CONFIG_FILE, WEIGHTS_FILE, BaseGeometry

# What another process places is begun at the reconciler's next look, half a minute later.
pytestmark = [pytest.mark.e2e, pytest.mark.long]
NAMES, MODEL, RANK = "abc", "lorikeet-demo", 64
SIZES: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
}
SHAPE = BaseGeometry(MODEL, "", num_layers=5, head_dim=32, vocab_size=2560, **SIZES)
# Three of these adapters fit into a host's memory, so nine into all.
ARENA_MB = 4
PLAN = """
import django; django.setup()
import json, sys
from datetime import timedelta
from django.utils import timezone
from control_plane.adapters.registry.models import AdapterVersion
from control_plane.fleet.base_models.base_model import served_bases
from control_plane.fleet.placements import demand
from control_plane.fleet.placements.models import Placement
from control_plane.billing.usage.models import HourlyUsage, Series
hour = (timezone.now() - timedelta(hours=1)).replace(minute=0, second=0, microsecond=0)
counts = dict.fromkeys(("prompt_tokens", "cached_prompt_tokens", "completion_tokens"), 1)
counts |= {"queue_ms": 1, "adapter_load_ms": 1, "requests": 10}
for name, share in json.loads(sys.argv[1]).items():
    version = AdapterVersion.objects.get(adapter__name=name, number=1)
    row = {"tenant": version.tenant, "adapter": version.adapter, "version": version, "outcome": "finished"}
    series, _ = Series.objects.get_or_create(identity=f"an hour of {name}", defaults=row)
    figures = {**counts, "tenant": version.tenant, "device_us": round(share * 3600e6)}
    HourlyUsage.objects.update_or_create(series=series, start=hour, defaults=figures)
Placement.objects.exclude(unneeded_since=None).update(unneeded_since=timezone.now() - demand.REMOVE_AFTER)
print(json.dumps(demand.place_by_demand(served_bases().only)))
"""
"""As each minute, after an hour in which adapters took these shares of a device; what is too much was so for long."""


class Fleet:
    def __init__(self, folder: Path) -> None:
        for name in NAMES:
            (folder / name).mkdir()
        options = ("--model-name", MODEL, "--host-arena-mb", str(ARENA_MB))
        self.engines = [EngineProcess(ROOT / "demo" / "model", folder / name, *options) for name in NAMES]
        addresses = ",".join(f"{name}={each.address}" for name, each in zip(NAMES, self.engines, strict=True))
        self.web = WebProcess(folder / "var", addresses, {"LORIKEET_PLACEMENT": "demand"})
        self.web.seed(adapters=False)
        self.web.start()
        online = "select 1 from hosts_enginehost where state = 'online'"
        eventually(lambda: len(self.web.query(online)) == len(NAMES), 120, what="three hosts")

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = self.web.tenants["acme"].bearer
        return httpx.request(method, self.web.url + path, headers=headers, trust_env=False, timeout=60, **options)

    def complete(self, model: str) -> httpx.Response:
        body = {"model": model, "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
        return self.ask("POST", "/v1/completions", json=body)

    def upload(self, name: str, seed: int) -> None:
        made = {key: array * 0.02 for key, array in tensors(rank=RANK, geometry=SHAPE, seed=seed).items()}
        config = config_bytes(rank=RANK, base_model_name_or_path=MODEL)
        files = [("files", (CONFIG_FILE, config)), ("files", (WEIGHTS_FILE, safetensors_bytes(made)))]
        sent = self.ask("POST", "/api/tenants/acme/uploads", data={"name": name}, files=files)
        path = f"/api/tenants/acme/uploads/{sent.json()['id']}"
        eventually(lambda: self.ask("GET", path).json()["state"] == "accepted", 30, what=f"the upload of {name}")

    def plan(self, **shares: float) -> tuple[int, int]:
        """How many copies were added and taken away."""
        printed = self.web.run("-c", PLAN, json.dumps(shares))
        added, taken = json.loads(printed.splitlines()[-1])
        return added, taken

    def ready_on(self, name: str, number: int = 1) -> set[str]:
        """Hosts that have a copy of the version, by the database."""
        rows = self.web.query(
            "select h.name as host, v.number as number, p.phase as phase from placements_placement p "
            "join hosts_enginehost h on h.id = p.host_id join registry_adapterversion v on v.id = p.version_id "
            f"join registry_adapter a on a.id = v.adapter_id where a.name = '{name}' and p.phase = 'ready'"
        )
        return {row["host"] for row in rows if row["number"] == number}

    def answered_by(self, name: str, number: int) -> Counter[str]:
        """Requests by the hosts that answered them."""
        rows = self.web.query(
            "select u.host as host from usage_usageevent u join registry_adapterversion v on v.id = u.version_id "
            f"join registry_adapter a on a.id = v.adapter_id where a.name = '{name}' and v.number = {number}"
        )
        return Counter(row["host"] for row in rows)

    def close(self) -> None:
        self.web.stop()
        for engine in self.engines:
            engine.end()


class Callers:
    """Several who call an adapter again and again; what they were answered."""

    def __init__(self, fleet: Fleet, *models: str) -> None:
        self.statuses: list[int] = []
        self._fleet, self._stop = fleet, threading.Event()
        self._threads = [threading.Thread(target=self._call, args=[model]) for model in models]

    def _call(self, model: str) -> None:
        while not self._stop.is_set():
            self.statuses.append(self._fleet.complete(model).status_code)

    def __enter__(self) -> Callers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path)
    try:
        yield made
    finally:
        made.close()


def test_copies_follow_demand_and_no_request_is_lost(fleet: Fleet) -> None:
    cold = [f"cold{number}" for number in range(5)]
    for seed, name in enumerate(["hot", "warm", *cold]):
        fleet.upload(name, seed)
    for name in ("hot", "warm", *cold):
        eventually(partial(fleet.ready_on, name), 60, what=f"a host for {name}")
        assert len(fleet.ready_on(name)) == 1, "one host until it is known what is called"
    with Callers(fleet, "hot", "hot", "hot", "warm") as callers:
        # What is called much spreads.
        assert fleet.plan(hot=0.5, warm=0.1)[0] >= 2
        eventually(lambda: fleet.ready_on("hot") == set(NAMES), 90, what="copies on all hosts")
        eventually(lambda: set(fleet.answered_by("hot", 1)) == set(NAMES), 60, what="answers of all hosts")
        # A new version is where the live one is before it is live, and takes the room of what nobody calls.
        fleet.upload("hot", 99)
        eventually(lambda: fleet.ready_on("hot", 2), 60, what="a host for the new version")
        for _ in range(2):
            fleet.plan(hot=0.5, warm=0.1)
        eventually(lambda: len(fleet.ready_on("hot", 2)) > 1, 90, what="copies of the new version")
        assert not fleet.answered_by("hot", 2), "it is not live"
        promoted = fleet.ask("PUT", "/api/tenants/acme/adapters/hot/aliases/live", json={"version": 2})
        assert promoted.status_code == 200, promoted.text
        eventually(lambda: len(fleet.answered_by("hot", 2)) > 1, 60, what="answers of the new version by several hosts")
        fleet.plan(hot=0.5, warm=0.1)
        gone = [name for name in cold if not fleet.ready_on(name)]
        assert gone, "three hosts have no room for all"
        # One that is in the store only is brought back by a request.
        eventually(lambda: fleet.complete(gone[0]).status_code == 200, 60, what="an answer of one in the store")
        # What is called no more is on one host again.
        for _ in range(2):
            fleet.plan(hot=0.0, warm=0.1)
        eventually(lambda: len(fleet.ready_on("hot", 1)) <= 1, 30, what="the end of copies")
        assert fleet.complete("hot").status_code == 200
    assert set(callers.statuses) == {200}, Counter(callers.statuses)
