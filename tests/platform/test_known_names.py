"""Unknown names are refused by name at every door of the schema: in queries, forms and bodies."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from lorikeet_testing.clients import call
from lorikeet_testing.doors import *  # noqa: F403
from lorikeet_testing.doors import Doors, operations
from lorikeet_testing.in_one_world import *  # noqa: F403
from rest_framework.test import APIClient

from control_plane.core.http.known_names import MAX_NAMES

pytestmark = pytest.mark.django_db
NAME = "no_such_name"
# Names that clients of Azure and Anthropic add to each address; they change nothing.
OF_CLIENTS = ("api-version", "beta")
# Bodies of which unknown fields are left out and named in the answer (`test_gateway_unknown_fields.py`).
LENIENT = {
    "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/messages", "/v1/messages/count_tokens",
    "/v1/responses", "/v1/responses/input_tokens", "/v1/responses/compact", "/tokenize", "/detokenize",
}  # fmt: skip


def refused(answer: Any, name: str) -> str | None:
    """What is wrong with a refusal by name; None if nothing is."""
    error = answer.json().get("error", {}) if answer.content else {}
    if (answer.status_code, error.get("code"), error.get("param")) != (400, "unknown_parameter", name):
        return f"{answer.status_code} {error}"
    return None if name in error["message"] and error["fix"] else f"{error}"


def test_query_parameters(doors: Doors) -> None:
    problems = {}
    for path, method, operation in operations():
        answer = doors.ask(path, method, f"?{NAME}=1")
        if wrong := refused(answer, NAME):
            problems[f"{method} {path}"] = wrong
            continue
        declared = {each["name"] for each in operation.get("parameters", []) if each["in"] == "query"}
        fix = answer.json()["error"]["fix"]
        listed = set(fix.partition("Known here: ")[2].rstrip(".").split(", ")) - {"", *OF_CLIENTS}
        if listed != declared:
            problems[f"{method} {path}"] = f"{declared} in the schema, but {fix}"
    assert not problems


def test_fields_of_bodies(doors: Doors) -> None:
    problems = {}
    for path, method, _operation in operations("application/json"):
        if path in LENIENT:
            error = doors.ask(path, method, body={NAME: 1}).json()["error"]
            assert NAME not in error["message"], path
            continue
        if wrong := refused(doors.ask(path, method, body={NAME: 1}), NAME):
            problems[f"{method} {path}"] = wrong
    assert not problems


def test_fields_of_forms(doors: Doors) -> None:
    forms = [path for path, _method, _operation in operations("multipart/form-data") if path.startswith("/api/")]
    assert forms
    for path in forms:
        for value in ("1", SimpleUploadedFile("x.bin", b"x")):
            assert refused(doors.send(path, {NAME: value}), NAME) is None, path


def test_names_in_parts_of_a_body(acme: Any, owner: APIClient) -> None:
    answer = owner.put(acme.path("budgets"), {"tokens": {"day": 1, "dya": 2}}, format="json")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] in ("tokens", "tokens.dya")


def test_several_names_are_listed_together(acme: Any, owner: APIClient) -> None:
    query = {f"n{number}": "x" for number in range(9)} | {"limit": "1", "x" * 500: "1"}
    error = owner.get(acme.path("adapters"), query).json()["error"]
    assert error["param"] == "n0"
    assert [name for name in query if f"'{name}'" in error["message"]] == [f"n{n}" for n in range(MAX_NAMES)]
    assert "limit" in error["fix"]


def test_who_shows_no_key_hears_of_that_first(acme: Any, furnished: dict[str, Any]) -> None:
    for path in (acme.path("adapters"), "/v1/models", "/v1/files"):
        assert call(APIClient(), "get", f"{path}?{NAME}=1").status_code == 401
