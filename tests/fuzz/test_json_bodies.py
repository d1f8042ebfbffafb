"""JSON bodies of every bad kind, sent to every address that takes one: none is answered with the server's own fault."""

from __future__ import annotations

import http.client
import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from lorikeet_testing.fake_engine import Behaviour
from lorikeet_testing.fuzzing import changed, fuzz
from lorikeet_testing.web import ROOT, WebProcess

ID = "00000000-0000-4000-8000-000000000000"
TENANT = "/api/tenants/acme"
MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}]
CALLED = [
    {"role": "user", "content": "hi"},
    {
        "role": "assistant",
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "a", "content": "1"},
]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}}
SAMPLING = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 4, "n": 1, "seed": 7, "stop": ["x"], "logit_bias": {"5": 1}}
HOOK = {"url": "https://hooks.example.org/x", "description": "d", "events": ["adapter.ready"], "active": True}
BUDGETS = {"day": None, "month": {"amount_micros": 5_000_000, "at_limit": "warn", "alerts": [50, 100]}}
LIMITS = {"requests_per_minute": 1000000, "tokens_per_minute": None, "concurrency": None, "pinned_bytes": 1024}
# Method, address, and a body that is understood there. {key} is a key of the tenant.
CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/v1/chat/completions", {"model": "support", "messages": MESSAGES, "stream": False, **SAMPLING}),
    ("POST", "/v1/chat/completions", {"model": "support", "messages": MESSAGES, "logprobs": True, "top_logprobs": 2}),
    (
        "POST",
        "/v1/chat/completions",
        {
            "model": "support",
            "messages": CALLED,
            "tools": [TOOL],
            "tool_choice": "auto",
            "parallel_tool_calls": False,
            "reasoning_effort": "low",
            "chat_template_kwargs": {"enable_thinking": True},
        },
    ),
    ("POST", "/v1/completions", {"model": "support", "prompt": ["a", "b"], "echo": True, **SAMPLING}),
    ("POST", "/v1/completions", {"model": "support", "prompt": [[1, 2], [3]], "logprobs": 1, "max_tokens": 2}),
    ("POST", "/v1/embeddings", {"model": "support", "input": ["a", "b"], "encoding_format": "base64", "dimensions": 4}),
    (
        "POST",
        "/v1/messages",
        {
            "model": "support",
            "max_tokens": 2,
            "system": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
            "tools": [{"name": "f", "description": "x", "input_schema": {"type": "object"}}],
            "tool_choice": {"type": "auto"},
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "stop_sequences": ["x"],
            "metadata": {"user_id": "u"},
            "stream": False,
        },
    ),
    ("POST", "/v1/messages/count_tokens", {"model": "support", "messages": MESSAGES}),
    ("PUT", "/api/tenants/acme/api-settings", {"refuse_unknown_fields": False, "never_store_responses": False}),
    ("POST", "/v1/batches", {"input_file_id": "file-x", "endpoint": "/v1/completions", "completion_window": "24h"}),
    (
        "POST",
        "/v1/responses",
        {"model": "support", "input": [{"role": "user", "content": "words 2"}], "store": True, "tools": []},
    ),
    (
        "POST",
        "/v1/responses/input_tokens",
        {"model": "support", "input": [{"id": "msg_1", "role": "user", "content": "x"}], "truncation": "auto"},
    ),
    (
        "POST",
        "/v1/responses/compact",
        {"model": "support", "input": [{"type": "compaction", "encrypted_content": "lorikeet1.eA=="}]},
    ),
    ("POST", "/tokenize", {"model": "support", "messages": MESSAGES, "add_generation_prompt": True}),
    ("POST", "/detokenize", {"model": "support", "tokens": [1, 2]}),
    ("POST", "/api/session", {"email": "nobody@acme.example", "password": ""}),
    ("POST", "/api/session/second-factor", {"code": "123456"}),
    ("POST", "/api/session/second-factor", {"credential": {"id": "x", "response": {}}}),
    ("POST", "/api/session/confirmation", {"password": ""}),
    ("POST", "/api/second-factors/app/confirm", {"code": "123456"}),
    ("POST", "/api/second-factors/passkeys", {"name": "Laptop", "credential": {"id": "x", "response": {}}}),
    ("PUT", "/api/profile", {"name": "Ada"}),
    ("POST", "/api/password", {"current_password": "", "password": "a new pass phrase"}),
    ("POST", "/api/password/forgot", {"email": "nobody@acme.example"}),
    ("POST", "/api/password/reset", {"token": "a-b", "password": "a new pass phrase"}),
    ("POST", "/api/invitations/read", {"token": "t"}),
    ("POST", "/api/invitations/accept", {"token": "t", "password": "a new pass phrase", "name": "A"}),
    ("POST", "/api/operator/prices", {"effective_on": "2100-01-01", "currency": "USD", "note": "n"}),
    ("POST", "/api/operator/prices/end", {"base_model_digest": "sha256:x", "effective_on": "2100-01-01"}),
    ("PUT", "/api/operator/base-model", {"host": "local", "keep_adapters": False}),
    ("POST", "/api/operator/base-models", {"host": "nowhere", "name": "n"}),
    ("PATCH", "/api/operator/base-models/nowhere", {"name": "n"}),
    ("POST", "/api/operator/tenants", {"slug": "initech", "name": "Initech", "owner": "nobody@initech.example"}),
    ("PATCH", "/api/operator/tenants/globex", {"name": "Globex"}),
    ("POST", "/api/operator/tenants/globex/invitations", {"email": "nobody@globex.example", "role": "viewer"}),
    ("PUT", "/api/operator/tenants/globex/suspension", {"reason": "unpaid"}),
    ("PUT", "/api/operator/tenants/globex/objectives", {"first_token_ms": 500, "inter_token_ms": 50, "target": 0.99}),
    ("PUT", "/api/operator/hosts/local/service", {"service": "serving"}),
    ("POST", "/api/operator/hosts/nowhere/restart", {"wait_s": 5}),
    ("POST", "/api/operator/join-tokens", {"host": "gpu1", "expires_s": 60}),
    ("POST", "/api/hosts/join", {"token": "t", "name": "gpu1", "address": "gpu1:7000", "certificate_request": "x"}),
    ("PUT", "/api/operator/tenants/globex/limits", LIMITS),
    ("PUT", "/api/operator/tenants/globex/budgets", BUDGETS),
    ("PUT", "/api/operator/tenants/globex/weight", {"weight": 1.5}),
    ("PUT", f"{TENANT}/adapters/support/aliases/beta", {"version": 1}),
    ("PUT", f"{TENANT}/adapters/support/aliases/beta/canary", {"version": 1, "percent": 10}),
    ("PUT", f"{TENANT}/adapters/support/versions/1/dtype", {"adapter_dtype": "bf16"}),
    ("POST", f"{TENANT}/imports", {"name": "imported", "source": "https://127.0.0.1:1/adapter.zip"}),
    ("POST", f"{TENANT}/evaluations", {"set": "sums", "adapter": "support", "version": 1, "upload": None, "key": ID}),
    (
        "PUT",
        f"{TENANT}/adapters/support/promotion-rule",
        {"set": "sums", "key": ID, "minimum": 0.5, "not_worse_than_live": True},
    ),
    ("POST", f"{TENANT}/follows", {"name": "followed", "source": "hub:org/name@main"}),
    ("PUT", f"{TENANT}/hub-models", {"enabled": False, "organizations": ["org"]}),
    ("PUT", f"{TENANT}/hub-token", {"token": "hf_x"}),
    (
        "POST",
        f"{TENANT}/bucket-credentials",
        {"bucket": "trainings", "endpoint": "", "region": "r", "access_key_id": "a", "secret_access_key": "s"},
    ),
    (
        "POST",
        f"{TENANT}/pinned-prefixes",
        {
            "name": "handbook",
            "model": "support",
            "messages": [{"role": "system", "content": "Be brief."}],
            "tools": [TOOL],
            "chat_template_kwargs": {"enable_thinking": True},
            "reasoning_effort": "low",
            "cache_salt": "s",
        },
    ),
    ("POST", f"{TENANT}/pinned-prefixes", {"name": "story", "model": "support", "prompt": "Once upon a time"}),
    ("PUT", f"{TENANT}/security", {"second_factor_required": False}),
    ("PUT", f"{TENANT}/origins", {"origins": ["https://app.example.org"]}),
    ("POST", f"{TENANT}/export-schedules", {"cadence": "month", "grain": "day"}),
    ("POST", f"{TENANT}/exports", {"first": "2026-01-01", "last": "2026-01-02", "grain": "day"}),
    ("POST", f"{TENANT}/invitations", {"email": "no address", "role": "viewer"}),
    ("POST", f"{TENANT}/keys", {"name": "k", "scopes": ["view"], "expires_at": "2100-01-01T00:00:00Z"}),
    ("PATCH", f"{TENANT}/keys/{{key}}", {"name": "k", "scopes": ["view"], "expires_at": None}),
    ("PUT", f"{TENANT}/keys/{{key}}/limits", LIMITS),
    ("PUT", f"{TENANT}/keys/{{key}}/budgets", BUDGETS),
    ("PUT", f"{TENANT}/budgets", BUDGETS),
    ("POST", f"{TENANT}/keys/{{key}}/rotate", {"grace_s": 60}),
    ("PATCH", f"{TENANT}/members/{ID}", {"role": "viewer"}),
    ("PUT", f"{TENANT}/recording", {"enabled": False, "days": 7}),
    ("PUT", f"{TENANT}/slo", {"first_token_ms": 500, "token_ms": 50, "target": 0.99}),
    ("POST", f"{TENANT}/webhooks", HOOK),
    ("PUT", f"{TENANT}/webhooks/{ID}", HOOK),
]
# As they stand in the text: some are no JSON.
VALUES = [
    "null", "true", "[]", "{}", '""', "0", "-0", "-1", "1", "0.1", "1e-400", "1e400", "NaN", "-Infinity", "01", "1.",
    "2147483647", "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808", "18446744073709551616",
    "9" * 30, "9" * 5000, "1e308", '"\\ud800"', '"\\udfff x"', '"\\u0000"', '"a\\u0000b"', '"\\ud83d\\ude00"',
    '"\\u202e"', '"\\u001b[31m"', '"\\n"', '"１２"', '"x"', '"' + "x" * 300 + '"', '"' + "x" * 5000 + '"',
    '"' + "x" * 70_000 + '"', "[" * 30 + "]" * 30, "[" * 80 + "]" * 80, "[" * 20_000, '{"a":' * 80 + "1" + "}" * 80,
    "[null]", "[[]]", '{"a":1,"a":2}', '["a", 1, null, {}]', '"0001-01-01"', '"9999-12-31"', '"2026-02-30"',
    '"0001-01-01T00:00:00+14:00"', '"9999-12-31T23:59:59-14:00"', '"2026-01-01T00:00:00"', f'"{ID}"', '"not-a-uuid"',
    '"../../etc/passwd"', '"http://[::1"', '"https://user:pw@example.org:99999/"', '"a@b"', '"\'; DROP TABLE x"',
    '"<script>"', '"%00"', '"False"', '"1e5"', '"nan"', "1" + "0" * 18, "[" + "1," * 5000 + "1]", "'single'", "// no",
]  # fmt: skip
NAMES = [
    '"extra"', '"\\ud800"', '"\\u0000"', '""', '"__proto__"', '"model"', '"id"', '"' + "k" * 500 + '"',
]  # fmt: skip


@dataclass(frozen=True)
class Case:
    call: int
    body: bytes


@st.composite
def cases(draw: Callable[[SearchStrategy[Any]], Any]) -> Case:
    call = draw(st.integers(0, len(CALLS) - 1))
    changes = draw(st.lists(st.tuples(st.integers(0, 63), st.integers(0, 5), st.sampled_from(VALUES)), max_size=3))
    text = json.dumps(CALLS[call][2])
    for place, kind, value in changes:
        text = change(text, place, kind, value)
    body = text.encode()
    bytewise = st.tuples(st.floats(0, 1), st.integers(0, 3), st.binary(max_size=3))
    for at, cut, put in draw(st.lists(bytewise, max_size=1)):
        start = int(at * len(body))
        body = body[:start] + put + body[start + cut :]
    return Case(call, body)


def change(text: str, place: int, kind: int, value: str) -> str:
    """Replace a value, or add a member. What is no JSON any more is changed no further."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return text
    places = list(values_in([whole], 0))
    container, at = places[place % len(places)]
    if kind == 0 and isinstance(container[at], dict):
        container[at]["\0name"] = "\0value"
    elif kind == 1 and isinstance(container, dict):
        del container[at]
    else:
        container[at] = "\0value"
    marked = json.dumps(places[0][0][0])
    return marked.replace('"\\u0000name"', NAMES[place % len(NAMES)]).replace('"\\u0000value"', value)


def values_in(container: Any, depth: int) -> Iterator[tuple[Any, Any]]:
    for at, value in list(container.items() if isinstance(container, dict) else enumerate(container)):
        yield container, at
        if isinstance(value, (dict, list)) and depth < 5:
            yield from values_in(value, depth + 1)


IDLE_S = 30.0


class Sender:
    """An owner of the tenant who also runs the installation, on a connection that is kept."""

    def __init__(self, web: WebProcess) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=30)
        self._last = time.monotonic()
        access = web.tenants["acme"]
        with httpx.Client(base_url=web.url, trust_env=False, timeout=30) as session:
            token = session.get("/api/session").json()["csrf_token"]
            body = {"email": access.email, "password": access.password}
            answer = session.post("/api/session", json=body, headers={"X-CSRFToken": token})
            assert answer.status_code == 200, answer.text
            self._token = answer.json()["csrf_token"]
            self._cookie = "; ".join(f"{name}={value}" for name, value in session.cookies.items())
            # One to be changed and rotated; the calls of /v1 have another.
            made = session.post(f"{TENANT}/keys", json={"name": "changed"}, headers={"X-CSRFToken": self._token})
            self._key = made.json()["id"]
        self._bearer = access.bearer

    def __call__(self, case: Case) -> int:
        method, path, _ = CALLS[case.call]
        own = self._bearer if path.startswith("/v1/") else {"Cookie": self._cookie, "X-CSRFToken": self._token}
        headers = {**own, "Content-Type": "application/json"}
        if time.monotonic() - self._last > IDLE_S:  # the server closes an idle one; any other end of it is a finding
            self._connection.close()
        self._connection.request(method, path.replace("{key}", self._key), case.body, headers)
        answer = self._connection.getresponse()
        status, text = answer.status, answer.read()
        self._last = time.monotonic()
        if status >= 400:
            assert json.loads(text)["error"]["fix"], text
        return status


@pytest.fixture(scope="module")
def behaviour() -> Behaviour:
    return Behaviour(steps_per_second=2000)


@pytest.fixture(scope="module")
def web_settings() -> dict[str, str]:
    rates = dict.fromkeys(("LORIKEET_LOGIN_RATE", "LORIKEET_LOGIN_ACCOUNT_RATE"), "1000000/min")
    return rates | {"LORIKEET_STRANGER_REQUESTS_PER_S": "0", "LORIKEET_CALLER_CPU_SHARE": "0"}


@pytest.fixture(scope="module")
def web(web: WebProcess) -> WebProcess:
    """Acme's owner operates the installation."""
    web.run("control_plane", "make_operator", web.tenants["acme"].email)
    return web


def vary(case: Case, rnd: random.Random) -> Case:
    return replace(case, body=changed(case.body, rnd))


def test_json_bodies(web: WebProcess) -> None:
    assert web.process is not None
    found = fuzz("json body", cases(), Sender(web), vary=vary, processes=[web.process.pid])
    assert "400" in found.outcomes
    assert "Exception in ASGI application" not in web.log.read_text(errors="replace")


def test_every_address_with_a_body_is_fuzzed() -> None:
    schema = json.loads((Path(ROOT) / "frontend" / "openapi.json").read_text())
    takes = {
        (method.upper(), path)
        for path, operations in schema["paths"].items()
        for method, operation in operations.items()
        if "application/json" in operation.get("requestBody", {}).get("content", {})
    }
    sent = {(method, as_in_schema(path)) for method, path, _ in CALLS}
    assert sent == {(method, as_in_schema(path)) for method, path in takes}


def as_in_schema(path: str) -> str:
    """Without what is put in for a parameter."""
    names = {"acme", "globex", "local", "nowhere", "support", "beta", "1", "{key}", ID}
    return "/".join("{}" if part in names or part.startswith("{") else part for part in path.split("/"))
