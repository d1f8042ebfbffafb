"""What is pinned on a real engine whose pool has no room for all: it stays while others come and go, is there without
a request after the engine was killed and started anew, and goes like others when it is unpinned."""

from __future__ import annotations

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

pytestmark = [pytest.mark.e2e, pytest.mark.long]
MODEL, RANK = "lorikeet-demo", 64
SIZES: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
}
SHAPE = BaseGeometry(MODEL, "", num_layers=5, head_dim=32, vocab_size=2560, **SIZES)
OTHERS = [f"other{number}" for number in range(6)]
OPTIONS = ("--model-name", MODEL, "--pool-mb", "6")
GRANT = """
import django; django.setup()
from control_plane.identity.access.actor import SYSTEM
from control_plane.billing.limits.actions import set_tenant_limits
from control_plane.billing.limits.values import Limits
from control_plane.identity.tenants.models import Tenant
set_tenant_limits(actor=SYSTEM, tenant=Tenant.objects.get(slug="acme"), limits=Limits(pinned_bytes=2 * 2**20))
"""


class Service:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.engine = EngineProcess(ROOT / "demo" / "model", folder, *OPTIONS)
        self.web = WebProcess(folder / "var", f"local={self.engine.address}")
        self.web.seed(adapters=False)
        self.web.start()
        online = "select 1 from hosts_enginehost where state = 'online'"
        eventually(lambda: self.web.query(online), 120, what="the host")

    def replace_engine(self) -> None:
        """Kill it and start it anew."""
        self.engine.end()
        self.engine = EngineProcess(ROOT / "demo" / "model", self._folder, *OPTIONS)

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = self.web.tenants["acme"].bearer
        return httpx.request(method, self.web.url + path, headers=headers, trust_env=False, timeout=60, **options)

    def adapters(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self.ask(method, f"/api/tenants/acme/adapters/{path}", **options)

    def complete(self, model: str) -> int:
        body = {"model": model, "prompt": "Once upon a time", "max_tokens": 4, "temperature": 0}
        return self.ask("POST", "/v1/completions", json=body).status_code

    def upload(self, name: str, seed: int) -> None:
        made = {key: array * 0.02 for key, array in tensors(rank=RANK, geometry=SHAPE, seed=seed).items()}
        config = config_bytes(rank=RANK, base_model_name_or_path=MODEL)
        files = [("files", (CONFIG_FILE, config)), ("files", (WEIGHTS_FILE, safetensors_bytes(made)))]
        self.ask("POST", "/api/tenants/acme/uploads", data={"name": name}, files=files).raise_for_status()

    def is_ready(self, name: str) -> bool:
        answer = self.adapters("GET", name)
        return answer.status_code == 200 and answer.json()["status"] == "ready"

    def tier(self, name: str) -> str:
        tiers = self.adapters("GET", f"{name}/versions/1/tiers").json()
        return str(tiers[0]["tier"]) if tiers else ""

    def is_kept(self, name: str) -> bool:
        return [host["pinned"] for host in self.adapters("GET", f"{name}/pin").json()["hosts"]] == [True]

    def prefix_state(self) -> list[str]:
        (prefix,) = self.ask("GET", "/api/tenants/acme/pins").json()["prefixes"]
        return [host["state"] for host in prefix["hosts"]]

    def cached(self, system: str) -> int:
        """Of the tokens of a chat that begins with it."""
        messages = [{"role": "system", "content": system}, {"role": "user", "content": "Who are you?"}]
        answer = self.ask("POST", "/v1/chat/completions", json={"model": MODEL, "messages": messages, "max_tokens": 2})
        return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])

    def close(self) -> None:
        self.web.stop()
        self.engine.end()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    try:
        yield made
    finally:
        made.close()


def test_a_pinned_adapter_stays_while_others_come_and_go(service: Service) -> None:
    names = ["pinned", *OTHERS]
    for seed, name in enumerate(names):
        service.upload(name, seed)
    for name in names:
        eventually(partial(service.is_ready, name), 60, what=f"a ready {name}")
    refused = service.adapters("PUT", "pinned/pin")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "pins_not_allowed")
    service.web.run("-c", GRANT)

    assert service.adapters("PUT", "pinned/pin").status_code == 200
    eventually(partial(service.is_kept, "pinned"), 20, what="the pinned adapter on the device, without a request")
    second = service.adapters("PUT", "other0/pin").json()["error"]
    assert second["code"] == "pin_limit_reached", second
    for name in OTHERS * 2:
        assert service.complete(name) == 200
    eventually(lambda: "host" in map(service.tier, OTHERS), 20, what="the eviction of others")
    assert service.tier("pinned") == "device"

    service.replace_engine()
    eventually(lambda: not service.is_kept("pinned"), 60, what="the end of the old engine")
    eventually(partial(service.is_kept, "pinned"), 90, what="the pinned adapter on the new engine's device")
    eventually(lambda: service.tier("pinned") == "device", 20, what="the host's own word")

    assert service.adapters("DELETE", "pinned/pin").status_code == 204
    eventually(lambda: not service.is_kept("pinned"), 20, what="the end of the pin")
    for name in OTHERS * 2:
        assert service.complete(name) == 200
    eventually(lambda: service.tier("pinned") == "host", 20, what="the eviction of what was pinned")


def test_a_pinned_prefix_stays_while_others_come_and_go(service: Service) -> None:
    beginning = "You answer for a parrot. " + "It likes nuts, songs and long walks by the sea. " * 8
    service.web.run("-c", GRANT)
    body = {"name": "parrot", "model": MODEL, "messages": [{"role": "system", "content": beginning}]}
    made = service.ask("POST", "/api/tenants/acme/pinned-prefixes", json=body)
    assert made.status_code == 201, made.text
    eventually(lambda: service.prefix_state() == ["kept"], 30, what="the pinned prefix")
    assert service.cached(beginning) > 64
    for number in range(40):
        service.cached(f"Somebody else's prompt {number}. " * 20)
    assert service.cached(beginning) > 64, "others were evicted"

    service.replace_engine()
    eventually(lambda: service.prefix_state() == ["waiting"], 60, what="the end of the old engine")
    eventually(lambda: service.prefix_state() == ["kept"], 90, what="the pinned prefix on the new engine")
    assert service.cached(beginning) > 64, "computed before anybody asked"

    assert service.ask("DELETE", "/api/tenants/acme/pinned-prefixes/parrot").status_code == 204
    for number in range(40):
        service.cached(f"One more prompt {number}. " * 20)
    assert service.cached(beginning) <= 64
