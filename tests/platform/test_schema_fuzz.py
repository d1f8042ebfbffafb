"""Every operation of the OpenAPI schema with generated input, right and wrong: none may fail on the server's side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from rest_framework.test import APIClient

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = schemathesis.openapi.from_dict(json.loads((ROOT / "frontend" / "openapi.json").read_text()))
EXAMPLES = 12

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner(acme: Any) -> APIClient:
    """An owner who also runs the installation, so that no door is shut before the input is looked at."""
    user = next(iter(acme.users.values()))
    user.is_operator = True
    user.save()
    client: APIClient = acme.client()
    client.raise_request_exception = False
    return client


@SCHEMA.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_no_server_error(case: Any, acme: Any, owner: APIClient, furnished: dict[str, Any]) -> None:
    known = {**furnished, "tenant": "acme", "slug": "acme"}
    # Ids that exist let a request get as far as its body; what is generated has had its turn in every other place.
    case.path_parameters = {name: str(known.get(name, value)) for name, value in (case.path_parameters or {}).items()}
    owner.force_login(next(iter(acme.users.values())))  # signing out is one of the operations
    answer = send(owner, case)
    assert answer.status_code < 500, f"{case.method} {answer.wsgi_request.get_full_path()}: {case.body!r}"
    if answer.status_code >= 400 and answer["Content-Type"].startswith("application/json"):
        assert answer.json()["error"]["fix"]


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
