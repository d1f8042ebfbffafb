"""Doors for clients of other servers: health, model cards, LoRAX's endpoints, web pages of other origins."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from lorikeet_testing import script
from lorikeet_testing.fake_engine import Behaviour
from lorikeet_testing.seed import PASSWORD, digest_of
from lorikeet_testing.web import WebProcess, eventually
from openai import AzureOpenAI

from lora_engine.wire import engine_pb2 as pb
from lorikeet_version import build_version

SUPPORT = digest_of("acme", "support")
PAGE = "https://app.example.org"


@pytest.fixture(scope="module")
def behaviour() -> Behaviour:
    return Behaviour(steps_per_second=2000, known_digests_only=True)


@pytest.fixture(scope="module")
def http(web: WebProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=web.url, timeout=30, trust_env=False, headers=web.tenants["acme"].bearer) as client:
        yield client


def expected(prompt: str, digest: str) -> str:
    return script.plan(pb.Submit(adapter_digest=digest, text=prompt, sampling=pb.Sampling())).text


# -- who looks whether it lives ----------------------------------------------------------------------


def test_health_and_version(web: WebProcess) -> None:
    for path in ("/health", "/ping"):
        answer = httpx.get(web.url + path, trust_env=False, timeout=30)
        assert (answer.status_code, answer.content) == (200, b"")
    answer = httpx.get(f"{web.url}/version", trust_env=False, timeout=30)
    assert answer.json() == {"version": build_version()}, "it tells no more than the version"
    assert httpx.head(f"{web.url}/version", trust_env=False, timeout=30).status_code == 200
    refused = httpx.get(f"{web.url}/version?verbose=1", trust_env=False, timeout=30)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "verbose")
    for path in ("/health", "/ping", "/version", "/livez", "/readyz", "/api/docs", "/api/schema"):
        for method in ("POST", "OPTIONS"):
            answer = httpx.request(method, web.url + path, trust_env=False, timeout=30)
            assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD"), path
            assert answer.json()["error"]["code"] == "method_not_allowed"


def test_model_cards_say_what_stands_behind_a_name(http: httpx.Client) -> None:
    cards = {card["id"]: card for card in http.get("/v1/models").json()["data"]}
    assert (cards["support"]["root"], cards["support"]["parent"]) == ("support@v1", "fake-base")
    assert (cards["fake-base"]["root"], cards["fake-base"]["parent"]) == ("fake-base", None)
    assert cards["support"]["max_model_len"] == cards["fake-base"]["max_model_len"] > 0


def test_every_name_of_a_request_has_a_card(http: httpx.Client) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    for name in ("support", "support@live", "support@v1", "pirate:0.5", "support+pirate@v1:-0.5", "fake-base"):
        assert http.post("/v1/chat/completions", json={"model": name, **body}).status_code == 200, name
        card = http.get(f"/v1/models/{quote(name, safe='')}")
        assert (card.status_code, card.json()["id"]) == (200, name)
    for name in ("sql", "sql@v1", "support+sql", "support@v9", "support:0"):
        refused = http.post("/v1/chat/completions", json={"model": name, **body})
        card = http.get(f"/v1/models/{quote(name, safe='')}")
        assert card.status_code == refused.status_code in (400, 404), name
        assert card.json()["error"]["code"] == refused.json()["error"]["code"]


# -- LoRAX -------------------------------------------------------------------------------------------


DOORS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/completions": {"prompt": "hi"},
    "/v1/embeddings": {"input": "hi"},
    "/v1/responses": {"input": "hi"},
    "/tokenize": {"prompt": "hi"},
    "/detokenize": {"tokens": [1]},
}


@pytest.mark.parametrize("path", DOORS)
def test_a_list_of_models_at_every_door(http: httpx.Client, path: str) -> None:
    def ask(model: Any) -> httpx.Response:
        return http.post(path, json={**DOORS[path], "model": model})

    for model in (["support"], [{"model": "support@v1"}], ["support", {"model": "pirate", "weight": -0.5}]):
        answer = ask(model)
        assert answer.status_code == 200, answer.text
        if "model" in answer.json():
            assert answer.json()["model"] in ("support", "support@v1", "support+pirate:-0.5")
    unknown = ask(["support", {"model": "sql", "weight": 2}]).json()["error"]
    assert (unknown["code"], unknown["param"]) == ("model_not_found", "model") and '"sql"' in unknown["message"]
    for model in (
        [], ["support"] * 5, [["support"]], [None], [{}], [{"model": "support", "weight": "1"}], {"model": "support"},
        [{"model": "support", "weight": True}], [{"model": "support", "weight": 0.00001}], ["support:2", "pirate"],
        [{"model": "support", "weight": 0}], [{"model": "support", "weight": 11}], [{"model": "support", "more": 1}],
        ["support", "support"], [{"model": "x" * 300}], ["a\0b"],
    ):  # fmt: skip
        refused = ask(model)
        assert refused.status_code in (400, 404), (model, refused.text)
        assert refused.json()["error"]["param"] == "model" and refused.json()["error"]["fix"]


def test_lorax_generate(http: httpx.Client) -> None:
    asked = {"inputs": "hello there", "parameters": {"adapter_id": "support", "watermark": False, "seed": None}}
    assert http.post("/generate", json=asked).json() == {"generated_text": expected("hello there", SUPPORT)}
    base = http.post("/generate", json={"inputs": "hello there"})
    assert base.json()["generated_text"] == expected("hello there", "")


def test_lorax_details(http: httpx.Client) -> None:
    asked = {"inputs": "say one two", "parameters": {"adapter_id": "support", "details": True}}
    answer = http.post("/generate", json=asked).json()
    details = answer["details"]
    assert (details["finish_reason"], details["prompt_tokens"], details["generated_tokens"]) == ("eos_token", 3, 2)
    assert "".join(token["text"] for token in details["tokens"]) == answer["generated_text"] == "one two"
    assert set(details["tokens"][0]) == {"id", "text", "logprob", "special"}
    short = {"inputs": "words 50", "parameters": {"details": True, "max_new_tokens": 5, "return_full_text": True}}
    answer = http.post("/generate", json=short).json()
    assert answer["details"]["finish_reason"] == "length"
    assert answer["generated_text"].startswith("words 50")


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.headers["content-type"].startswith("text/event-stream")
    return [json.loads(line.removeprefix("data:")) for line in answer.text.split("\n\n") if line]


def test_lorax_stream(http: httpx.Client) -> None:
    asked = {"inputs": "say one two three", "parameters": {"adapter_id": "support"}}
    told = events(http.post("/generate_stream", json=asked))
    assert "".join(event["token"]["text"] for event in told) == "one two three"
    assert [event["generated_text"] for event in told] == [None, None, "one two three"]
    assert told[-1]["details"]["generated_tokens"] == 3


def test_lorax_root_answers_with_a_list_or_a_stream(http: httpx.Client) -> None:
    asked = {"inputs": "say it", "parameters": {"adapter_id": "support"}}
    assert http.post("/", json=asked).json() == [{"generated_text": "it"}]
    assert events(http.post("/", json={**asked, "stream": True}))[-1]["generated_text"] == "it"


@pytest.mark.parametrize(
    ("parameters", "status", "kind"),
    [
        ({"adapter_id": "sql"}, 404, None),
        ({"adapter_id": "org/name", "adapter_source": "hub"}, 403, None),
        ({"adapter_id": "hub:org/name@v1"}, 403, None),
        ({"adapter_id": "bucket/name", "adapter_source": "s3"}, 400, "validation"),
        ({"merged_adapters": {"ids": ["a"]}}, 400, "validation"),
        ({"max_new_tokens": 0}, 400, "validation"),
        ({"frobnicate": 1}, 400, "validation"),
    ],
)
def test_lorax_errors(http: httpx.Client, parameters: dict[str, Any], status: int, kind: str | None) -> None:
    """Another tenant's adapter is as unknown as any."""
    answer = http.post("/generate", json={"inputs": "hi", "parameters": parameters})
    assert answer.status_code == status
    assert isinstance(answer.json()["error"], str)
    assert answer.json().get("error_type") == kind


def test_lorax_needs_a_key(web: WebProcess) -> None:
    for path in ("/generate", "/generate_stream", "/"):
        answer = httpx.post(web.url + path, json={"inputs": "hi"}, trust_env=False, timeout=30)
        assert (answer.status_code, answer.json()["code"]) == (401, "missing_api_key")
        assert httpx.get(f"{web.url}/generate", trust_env=False, timeout=30).status_code == 405


def test_lorax_is_counted_like_any_request(http: httpx.Client, web: WebProcess) -> None:
    count = "SELECT count(*) AS n FROM usage_usageevent WHERE endpoint = 'completions' AND model = 'pirate'"
    before = web.query(count)[0]["n"]
    http.post("/generate", json={"inputs": "say x", "parameters": {"adapter_id": "pirate"}})
    eventually(lambda: web.query(count)[0]["n"] == before + 1, what="a row of the ledger")


# -- Azure's addresses, and addresses without /v1 -----------------------------------------------------


@pytest.mark.parametrize("path", ["deployments/support/chat/completions", "v1/chat/completions"])
def test_addresses_of_azure(web: WebProcess, path: str) -> None:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "say it is"}]}
    body |= {} if "deployments" in path else {"model": "support"}
    headers = {"api-key": web.tenants["acme"].key}
    url = f"{web.url}/openai/{path}?api-version=2024-10-21"
    answer = httpx.post(url, json=body, headers=headers, trust_env=False, timeout=30)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"] == "it is"
    assert answer.text.endswith("}\n")
    assert httpx.post(url, json=body, trust_env=False).status_code == 401


def test_the_official_azure_client(web: WebProcess) -> None:
    key = web.tenants["acme"].key
    with AzureOpenAI(azure_endpoint=web.url, api_key=key, api_version="2024-10-21", max_retries=0) as client:
        messages: Any = [{"role": "user", "content": "say it is"}]
        answer = client.chat.completions.create(model="support", messages=messages)
        assert answer.choices[0].message.content == "it is"
        assert len(client.embeddings.create(model="support", input="x").data) == 1


@pytest.mark.parametrize("path", ["/chat/completions", "/responses", "/messages"])
def test_addresses_without_a_version_say_where_to_go(http: httpx.Client, path: str) -> None:
    answer = http.post(path, json={})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (404, "unknown_url")
    assert f"/v1{path}" in error["message"]


def test_other_addresses_of_azure(http: httpx.Client) -> None:
    answer = http.get("/openai/assistants")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")


# -- web pages of other origins ----------------------------------------------------------------------


def allow(web: WebProcess, tenant: str, origins: list[str]) -> None:
    with httpx.Client(base_url=web.url, trust_env=False, timeout=30) as member:
        token = member.get("/api/session").json()["csrf_token"]
        headers = {"X-CSRFToken": token, "Origin": web.url, "Referer": web.url}
        login = {"email": web.tenants[tenant].email, "password": PASSWORD}
        token = member.post("/api/session", json=login, headers=headers).json()["csrf_token"]
        headers["X-CSRFToken"] = token
        answer = member.put(f"/api/tenants/{tenant}/origins", json={"origins": origins}, headers=headers)
        assert answer.status_code == 200, answer.text


def preflight(web: WebProcess, origin: str = PAGE) -> httpx.Response:
    headers = {"Origin": origin, "Access-Control-Request-Method": "POST", "Cookie": "lorikeet_session=x"}
    return httpx.options(f"{web.url}/v1/chat/completions", headers=headers, trust_env=False, timeout=30)


def test_no_origin_is_allowed_by_default(web: WebProcess, http: httpx.Client) -> None:
    refused = preflight(web, "https://nobody.example")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "origin_not_allowed")
    assert "access-control-allow-origin" not in refused.headers
    answer = http.get("/v1/models", headers={"Origin": "https://nobody.example"})
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers


def test_an_origin_is_allowed_by_the_tenant_of_the_key_alone(web: WebProcess, http: httpx.Client) -> None:
    allow(web, "acme", [PAGE])
    eventually(lambda: preflight(web).status_code == 204, what="an allowed preflight")
    told = preflight(web).headers
    assert told["access-control-allow-origin"] == PAGE
    assert "authorization" in told["access-control-allow-headers"].lower()
    assert "access-control-allow-credentials" not in told
    asked = {"model": "support", "messages": [{"role": "user", "content": "say x"}], "stream": True}
    own = http.post("/v1/chat/completions", json=asked, headers={"Origin": PAGE})
    assert own.headers["access-control-allow-origin"] == PAGE
    assert own.headers["vary"] == "Origin"
    assert "access-control-allow-credentials" not in own.headers
    foreign = http.get("/v1/models", headers={"Origin": PAGE, **web.tenants["globex"].bearer})
    assert foreign.status_code == 200
    assert "access-control-allow-origin" not in foreign.headers
    site = httpx.get(f"{web.url}/api/session", headers={"Origin": PAGE}, trust_env=False, timeout=30)
    assert "access-control-allow-origin" not in site.headers
    allow(web, "acme", [])
    eventually(lambda: preflight(web).status_code == 403, what="a refused preflight")


@pytest.mark.django_db
@pytest.mark.parametrize("origin", ["*", "null", "https://a.example/", "https://A.example", "ftp://a.example", ""])
def test_what_is_no_origin_is_refused(acme: Any, origin: str) -> None:
    answer = acme.client().put(acme.path("origins"), {"origins": [origin]}, format="json")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith("origins")
