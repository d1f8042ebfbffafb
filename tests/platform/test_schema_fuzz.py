"""Every operation of the OpenAPI schema with generated input, right and wrong: none may fail on the server's side."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from lorikeet_testing.fake_engine import Behaviour
from lorikeet_testing.in_one_world import *  # noqa: F403
from lorikeet_testing.web import WebProcess
from rest_framework.test import APIClient

from control_plane.gateway.anthropic.response_models import MessageError
from control_plane.gateway.openai.response_models import ErrorResponse

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = schemathesis.openapi.from_dict(json.loads((ROOT / "frontend" / "openapi.json").read_text()))
INFERENCE = "^/(v1/|tokenize|detokenize)"
LONG = bool(os.environ.get("LORIKEET_LONG"))  # of `make test-long`
# Random examples of each operation, beside those at the edges of its schema. They are the same in each `make test`.
EXAMPLES = 100 if LONG else 1
EXAMPLES_OF_INFERENCE = 500 if LONG else 3

pytestmark = [pytest.mark.django_db, *([pytest.mark.long] if LONG else [])]


@pytest.fixture
def owner(acme: Any) -> APIClient:
    """An owner who also runs the installation, so that no door is shut before the input is looked at."""
    user = next(iter(acme.users.values()))
    user.is_operator = True
    user.save()
    client: APIClient = acme.client()
    client.force_login(user)
    client.raise_request_exception = False
    return client


@SCHEMA.exclude(path_regex=INFERENCE).parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_no_server_error(case: Any, acme: Any, owner: APIClient, furnished: dict[str, Any]) -> None:
    known = {**furnished, "tenant": "acme", "slug": "acme"}
    # Ids that exist let a request get as far as its body; what is generated has had its turn in every other place.
    case.path_parameters = {name: str(known.get(name, value)) for name, value in (case.path_parameters or {}).items()}
    answer = send(owner, case)
    if case.method != "GET" and answer.status_code < 400:
        owner.force_login(next(iter(acme.users.values())))  # signing out is one of the operations
    # No engine runs behind the host: what asks it says so.
    is_away = answer.status_code == 503 and answer.json()["error"]["code"] == "engine_unavailable"
    asked = f"{case.method} {answer.wsgi_request.get_full_path()}: {case.body!r}"
    assert answer.status_code < 500 or is_away, asked
    assert_documented(case, answer.status_code, asked)
    if answer.status_code >= 400 and answer["Content-Type"].startswith("application/json"):
        error = answer.json()["error"]
        assert error["fix"]
        assert error["code"] != "conflict", "alone, nothing can be in the way: it must say what is there already"


def assert_documented(case: Any, status: int, asked: str) -> None:
    if case.method.lower() != case.operation.method.lower():
        return  # one that no address has
    assert str(status) in case.operation.definition.raw["responses"], f"{status} is not documented: {asked}"


def send(client: APIClient, case: Any) -> Any:
    asked = case.as_transport_kwargs(base_url="http://testserver")
    query = urlencode(asked.get("params") or {}, doseq=True)
    headers = {name: value for name, value in dict(asked["headers"]).items() if isinstance(value, str)}
    kind = headers.pop("Content-Type", "application/json")
    path = asked["url"].removeprefix("http://testserver") + (f"?{query}" if query else "")
    if asked.get("files"):
        files = asked["files"].items() if isinstance(asked["files"], dict) else asked["files"]
        return client.post(path, dict(files), format="multipart")
    body = json.dumps(asked["json"]) if "json" in asked else asked.get("data") or b""
    return client.generic(case.method, path, body, content_type=kind, headers=headers)


# -- inference, on a process of its own: it lives past the test client's handler ------------------------


@pytest.fixture(scope="module")
def behaviour() -> Behaviour:
    return Behaviour(steps_per_second=2000)


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    """One for all requests: to open it takes longer than most answers."""
    with httpx.Client(timeout=30, trust_env=False) as client:
        yield client


@SCHEMA.include(path_regex=INFERENCE).parametrize()
@settings(max_examples=EXAMPLES_OF_INFERENCE, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_no_server_error_of_inference(case: Any, web: WebProcess, http: httpx.Client) -> None:
    if isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
        case.body["model"] = "support"  # else nothing gets past the model's name
    asked = case.as_transport_kwargs(base_url=web.url)
    named = {name: value for name, value in dict(asked["headers"]).items() if isinstance(value, str)}
    body = json.dumps(asked["json"]) if "json" in asked else asked.get("data")
    answer = http.request(
        case.method,
        asked["url"],
        params=asked.get("params"),
        content=body,
        headers={**named, **web.tenants["acme"].bearer},
    )
    told = f"{case.method} {asked['url']} {body!r}: {answer.text[:400]}"
    assert answer.status_code < 500, told
    assert_documented(case, answer.status_code, told)
    if answer.status_code >= 400:
        assert answer.json()["error"]["fix"]
        shape = MessageError if case.path.startswith("/v1/messages") else ErrorResponse
        shape.model_validate(answer.json())
