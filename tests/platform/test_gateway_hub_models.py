"""A request that names a repository of the Hub, against a real web process and a scripted engine."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from lorikeet_testing.fake_engine import Behaviour
from lorikeet_testing.hub_server import HubServer, running_hub
from lorikeet_testing.peft_files import adapter_files
from lorikeet_testing.seed import PASSWORD
from lorikeet_testing.web import WebProcess, eventually

NAME = "hub:Org/Adapter@v1"


@pytest.fixture(scope="module")
def hub() -> Iterator[HubServer]:
    with running_hub() as server:
        server.repositories["Org/Adapter"] = {"v1": adapter_files()}
        yield server


@pytest.fixture(scope="module")
def behaviour() -> Behaviour:
    return Behaviour(steps_per_second=2000, known_digests_only=True)


@pytest.fixture(scope="module")
def web_settings(hub: HubServer) -> dict[str, str]:
    return {
        "LORIKEET_HUB_URL": hub.url,
        "LORIKEET_IMPORT_ALLOW_PRIVATE": "1",
        "LORIKEET_HUB_MODEL_WAIT_S": "1",
    }


def allow(web: WebProcess, tenant: str) -> None:
    with httpx.Client(base_url=web.url, trust_env=False, timeout=30) as member:
        token = member.get("/api/session").json()["csrf_token"]
        headers = {"X-CSRFToken": token, "Origin": web.url, "Referer": web.url}
        login = {"email": web.tenants[tenant].email, "password": PASSWORD}
        headers["X-CSRFToken"] = member.post("/api/session", json=login, headers=headers).json()["csrf_token"]
        answer = member.put(f"/api/tenants/{tenant}/hub-models", json={"enabled": True}, headers=headers)
        assert answer.status_code == 200, answer.text


def test_from_a_refusal_to_an_answer(web: WebProcess, hub: HubServer) -> None:
    hub.open.clear()
    with httpx.Client(base_url=web.url, timeout=30, trust_env=False, headers=web.tenants["acme"].bearer) as http:

        def ask() -> httpx.Response:
            return http.post("/v1/completions", json={"model": NAME, "prompt": "hello", "max_tokens": 4})

        refused = ask()
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "hub_model_not_allowed")
        assert http.get(f"/v1/models/{NAME}").status_code == 404
        allow(web, "acme")
        loading = ask()
        assert (loading.status_code, loading.json()["error"]["code"]) == (503, "adapter_loading")
        assert loading.headers["Retry-After"] == "5"
        hub.open.set()
        eventually(lambda: ask().status_code == 200, what="an answer of the imported adapter")
        assert ask().json()["model"] == NAME
        card = http.get(f"/v1/models/{NAME}").json()
        of_lorax = {"adapter_id": NAME.removeprefix("hub:"), "adapter_source": "hub", "max_new_tokens": 4}
        for parameters in (of_lorax, {"adapter_id": NAME, "max_new_tokens": 4}):
            assert http.post("/generate", json={"inputs": "hello", "parameters": parameters}).status_code == 200
        assert (card["id"], card["root"].partition("-")[0]) == (NAME, "hub")
    assert sum(path.endswith(".safetensors") for path, _ in hub.seen) == 1
