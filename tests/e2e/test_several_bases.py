"""Three real engines of three base models behind one web process: one of another shape, one with other weights."""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import safetensors.torch
import torch
from lorikeet_testing.engine_process import EngineProcess
from lorikeet_testing.peft_files import config_bytes, safetensors_bytes, tensors
from lorikeet_testing.web import ROOT, WebProcess, eventually

from lora_engine.peft_format import CONFIG_FILE, WEIGHTS_FILE, BaseGeometry

pytestmark = pytest.mark.e2e
DEMO = ROOT / "demo" / "model"
SIZES: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
}
SHAPE = BaseGeometry("demo", "", num_layers=5, head_dim=32, vocab_size=2560, **SIZES)
SHORT = BaseGeometry("short", "", num_layers=3, head_dim=32, vocab_size=2560, **SIZES)
SCRAPER = "scraper"
SLEEP = """
import django; django.setup()
from datetime import timedelta
from django.utils import timezone
from control_plane.identity.access.actor import SYSTEM
from control_plane.fleet.base_models.base_model import served_bases
from control_plane.fleet.base_models.actions import set_sleep
row = set_sleep(actor=SYSTEM, digest=served_bases().named("short").digest, after_s=60)
type(row).objects.filter(pk=row.pk).update(asked_at=timezone.now() - timedelta(hours=1))
"""
WITHDRAW = """
import django; django.setup()
from control_plane.identity.access.actor import SYSTEM
from control_plane.fleet.base_models.base_model import served_bases
from control_plane.fleet.base_models.actions import withdraw_base_model
withdraw_base_model(actor=SYSTEM, digest=served_bases().named("twin").digest)
"""


def derive(folder: Path, *, layers: int = 5, context: int = 1024, scale: float = 1.0) -> Path:
    """The demo model with fewer layers, or with other weights."""
    shutil.copytree(DEMO, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"num_hidden_layers": layers, "max_position_embeddings": context}
    (folder / "config.json").write_text(json.dumps(config))
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    gone = tuple(f"model.layers.{layer}." for layer in range(layers, 5))
    kept = {name: tensor for name, tensor in weights.items() if not name.startswith(gone)}
    kept["model.norm.weight"] = (kept["model.norm.weight"].to(torch.float32) * scale).to(torch.bfloat16)
    safetensors.torch.save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


class Fleet:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.models = {
            "demo": DEMO,
            "short": derive(folder / "short-model", layers=3, context=512),
            "twin": derive(folder / "twin-model", scale=0.5),
        }
        self.engines: dict[str, EngineProcess] = {}
        sockets = ",".join(f"{name}=unix:{folder / name}/engine.sock" for name in self.models)
        self.web = WebProcess(folder / "var", sockets, {"LORIKEET_METRICS_TOKEN": SCRAPER})
        self.web.seed(adapters=False)
        self.web.start()
        for name in self.models:
            self.engine(name)

    def engine(self, name: str) -> None:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        self.engines[name] = EngineProcess(self.models[name], folder, "--model-name", name)

    def manage(self, *arguments: str) -> str:
        return self.web.run(*arguments)

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = self.web.tenants["acme"].bearer
        return httpx.request(method, self.web.url + path, headers=headers, trust_env=False, timeout=60, **options)

    def upload(self, name: str, geometry: BaseGeometry, **fields: str) -> dict[str, Any]:
        """The upload once it is decided."""
        made = {each: array * 0.02 for each, array in tensors(geometry=geometry).items()}
        config = config_bytes(base_model_name_or_path=fields.pop("named", ""))
        files = [("files", (CONFIG_FILE, config)), ("files", (WEIGHTS_FILE, safetensors_bytes(made)))]
        sent = self.ask("POST", "/api/tenants/acme/uploads", data={"name": name, **fields}, files=files)
        assert sent.status_code == 202, sent.text
        path = f"/api/tenants/acme/uploads/{sent.json()['id']}"
        decided: dict[str, Any] = eventually(
            lambda: (found := self.ask("GET", path).json())["state"] in ("accepted", "refused") and found,
            30,
            what="a decision",
        )
        return decided

    def complete(self, model: str, prompt: str = "Once upon a time", **more: Any) -> httpx.Response:
        body = {"model": model, "prompt": prompt, "max_tokens": 4, "temperature": 0, **more}
        return self.ask("POST", "/v1/completions", json=body)

    def metric(self, name: str, base_model: str) -> float:
        """As a scaler reads it."""
        headers = {"Authorization": f"Bearer {SCRAPER}"}
        page = httpx.get(f"{self.web.url}/metrics", headers=headers, trust_env=False, timeout=30).text
        (value,) = re.findall(rf'^{name}{{base_model="{base_model}"}} (\S+)$', page, re.MULTILINE)
        return float(value)

    def answers(self, model: str) -> bool:
        return self.complete(model).status_code == 200


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    made = Fleet(tmp_path_factory.mktemp("bases"))
    try:
        eventually(lambda: made.answers("demo"), 60, what="the first base model")
        for name in ("short", "twin"):
            eventually(partial(online, made, name), 60, what=name)
            made.manage("control_plane", "approve_base_model", "--host", name)
        yield made
    finally:
        made.web.stop()
        for engine in made.engines.values():
            engine.end()


def online(fleet: Fleet, name: str) -> bool:
    return any(
        row["state"] == "online" for row in fleet.web.query("select * from hosts_enginehost") if row["name"] == name
    )


def test_each_has_its_adapter_and_all_are_called_by_name(fleet: Fleet) -> None:
    assert fleet.upload("one", SHAPE, named="org/demo")["state"] == "accepted"
    assert fleet.upload("two", SHORT, base_model="short")["state"] == "accepted"
    assert fleet.upload("three", SHAPE, base_model="twin")["state"] == "accepted"
    for model in ("short", "twin", "one", "two", "three"):
        eventually(partial(fleet.answers, model), 30, what=model)
    listed = {
        model["id"]: (model["parent"], model["max_model_len"])
        for model in fleet.ask("GET", "/v1/models").json()["data"]
    }
    assert listed == {
        "demo": (None, 1024), "short": (None, 512), "twin": (None, 1024),
        "one": ("demo", 1024), "two": ("short", 512), "three": ("twin", 1024),
    }  # fmt: skip
    answers = {model: fleet.complete(model, logprobs=1).json() for model in listed}
    marks = {model: answer["system_fingerprint"] for model, answer in answers.items()}
    assert (marks["one"], marks["two"], marks["three"]) == (marks["demo"], marks["short"], marks["twin"])
    assert len(set(marks.values())) == 3
    scores = [answers[model]["choices"][0]["logprobs"]["token_logprobs"] for model in ("demo", "short", "twin")]
    assert scores[0] != scores[1] and scores[0] != scores[2], "of three different models"
    held = {row["host"]: row["version"] for row in fleet.web.query(
        "select h.name as host, a.name as version from placements_placement p "
        "join hosts_enginehost h on h.id = p.host_id "
        "join registry_adapterversion v on v.id = p.version_id join registry_adapter a on a.id = v.adapter_id"
    )}  # fmt: skip
    assert held == {"demo": "one", "short": "two", "twin": "three"}
    written = (
        "select distinct u.model as model, b.name as base from usage_usageevent u left join base_models_basemodel b"
    )
    written += " on b.id = u.base_model_id where u.outcome = 'finished'"
    eventually(
        lambda: (
            {row["model"]: row["base"] for row in fleet.web.query(written)}.items()
            >= {"demo": "demo", "short": "short", "one": "demo", "two": "short", "three": "twin"}.items()
        ),
        30,
        what="rows of the ledger with their base models",
    )


def test_limits_are_those_of_the_right_one(fleet: Fleet) -> None:
    counted = {
        model: fleet.ask("POST", "/tokenize", json={"model": model, "prompt": "Hello"}).json()
        for model in ("demo", "two")
    }
    assert {model: found["max_model_len"] for model, found in counted.items()} == {"demo": 1024, "two": 512}
    long = "word " * 600
    assert fleet.complete("two", long).json()["error"]["code"] == "context_length_exceeded"
    assert fleet.complete("one", long).status_code == 200


def test_what_is_of_the_wrong_one_is_refused(fleet: Fleet) -> None:
    shape = fleet.upload("wrong", SHORT, base_model="demo")
    assert shape["state"] == "refused" and shape["report"]["problem_count"] > 0
    unclear = fleet.upload("unclear", SHAPE, named="org/unheard-of")
    assert unclear["reason"]["code"] == "base_model_required"
    mixed = fleet.upload("one", SHORT, named="short")
    assert mixed["reason"]["code"] == "adapter_of_other_base"
    both = fleet.complete("one+two").json()["error"]
    assert "different base models" in both["message"] and both["fix"]
    chat = {"model": "three", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}
    assert fleet.ask("POST", "/v1/chat/completions", json=chat).status_code == 200
    assert (
        fleet.ask("POST", "/v1/responses", json={"model": "two", "input": "Hi", "max_output_tokens": 3}).status_code
        == 200
    )


def test_one_that_has_no_host_says_so_and_the_others_go_on(fleet: Fleet) -> None:
    fleet.engines["short"].signal(signal.SIGKILL)
    refused = eventually(lambda: (found := fleet.complete("two")).status_code == 503 and found, 30, what="a refusal")
    error = refused.json()["error"]
    assert error["message"] and error["fix"] and "Retry-After" in refused.headers
    assert fleet.complete("short").status_code == 503
    assert fleet.answers("one") and fleet.answers("three")
    assert {"short", "two"} <= {model["id"] for model in fleet.ask("GET", "/v1/models").json()["data"]}
    fleet.engine("short")
    eventually(lambda: fleet.answers("two"), 60, what="its return")


def test_one_that_sleeps_is_woken_by_a_request_that_waits(fleet: Fleet) -> None:
    """What a scaler does is done by hand here: stop the host when it is not wanted, start it when it is."""
    fleet.manage("-c", SLEEP)
    eventually(lambda: fleet.metric("lorikeet_base_model_wanted", "short") == 0, 30, what="its sleep")
    fleet.engines["short"].signal(signal.SIGTERM)
    eventually(lambda: fleet.metric("lorikeet_base_model_hosts", "short") == 0, 30, what="the end of its host")
    assert fleet.metric("lorikeet_base_model_wanted", "short") == 0 and fleet.answers("one")
    with ThreadPoolExecutor() as callers:
        asked = [callers.submit(fleet.complete, model) for model in ("short", "two", "two")]
        eventually(lambda: fleet.metric("lorikeet_base_model_wanted", "short") == 1, 30, what="that it is wanted")
        assert not any(each.done() for each in asked)
        fleet.engine("short")
        assert [each.result().status_code for each in asked] == [200, 200, 200]
    # Its session takes requests before the next heartbeat records its state.
    eventually(lambda: fleet.metric("lorikeet_base_model_hosts", "short") == 1, 30, what="its host")


@pytest.mark.long  # commands are heard at the next look of the web process, half a minute later
def test_one_that_is_withdrawn_is_called_no_more_and_comes_back(fleet: Fleet) -> None:
    fleet.manage("-c", WITHDRAW)
    eventually(lambda: fleet.complete("twin").status_code == 404, 15, what="the end of the base model")
    refused = eventually(
        lambda: (found := fleet.complete("three")).status_code == 409 and found, 30, what="its adapter's"
    )
    assert "twin" in refused.json()["error"]["message"]
    assert fleet.answers("one")
    fleet.manage("control_plane", "approve_base_model", "--host", "twin")
    eventually(lambda: fleet.answers("twin") and fleet.answers("three"), 30, what="both again")
