"""Errors about fields of `/api` are in the API's words: no sentence of Django REST framework reaches a caller."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
from lorikeet_testing.doors import *  # noqa: F403
from lorikeet_testing.doors import SCHEMA, Doors, operations
from lorikeet_testing.in_one_world import *  # noqa: F403
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail
from rest_framework.test import APIClient

from control_plane.core.errors import LorikeetError
from control_plane.core.http.field_texts import fault_of
from control_plane.core.http.serializers import FormField, validated

FRAMEWORK = re.compile(
    r"[Tt]his (field|list|dictionary|value)|Ensure|valid choice|valid (integer|number|string|boolean|UUID)|"
    r"Must be a|Expected a|Enter a|wrong format|non_field_errors|required pattern|Invalid data|submitted"
)
# Kinds of fields that no serializer of a request has.
UNUSED = {
    serializers.DecimalField, serializers.DurationField, serializers.FilePathField, serializers.ImageField,
    serializers.ModelField, serializers.TimeField, serializers.IPAddressField, serializers.SlugField,
    serializers.URLField, serializers.HyperlinkedRelatedField, serializers.PrimaryKeyRelatedField,
    serializers.ManyRelatedField, serializers.SlugRelatedField, serializers.MultipleChoiceField,
    serializers.HyperlinkedIdentityField,
}  # fmt: skip


def framework_messages() -> Iterator[tuple[str, str]]:
    """Yield the default messages of the framework's fields, with values in them."""
    for kind in vars(serializers).values():
        if not (inspect.isclass(kind) and issubclass(kind, serializers.Field)) or kind in UNUSED:
            continue
        for code, message in {
            **getattr(kind, "default_error_messages", {}),
            **({"invalid": "A valid integer is required."} if kind is serializers.IntegerField else {}),
        }.items():
            filled = re.sub(r"\{\w*(length|value|code_point)\w*(:X)?\}", "5", str(message))
            yield f"{kind.__name__}.{code}", re.sub(r"\{\w+\}", "str", filled).replace("U+5", "U+D800")
    yield "EmailField", "Enter a valid email address."
    yield "CharField", "Null characters are not allowed."
    yield "CharField", "Surrogate characters are not allowed: U+D800."


@pytest.mark.parametrize(("code", "message"), list(framework_messages()))
def test_every_message_of_the_framework_is_rewritten(code: str, message: str) -> None:
    fault = fault_of({"name": [ErrorDetail(message)]})
    assert fault.param == "name" and "'name'" in fault.message and "'name'" in fault.fix
    assert message not in fault.message and not FRAMEWORK.search(fault.message + fault.fix), fault


class _Part(serializers.Serializer[Any]):
    role = serializers.ChoiceField(choices=["user", "system"])


class _Body(serializers.Serializer[Any]):
    parts = _Part(many=True, required=False)
    counts = serializers.DictField(child=serializers.IntegerField(max_value=9), required=False)
    origins = serializers.ListField(child=FormField(r"^[a-z]+\Z", form="lower-case letters"), required=False)

    def validate(self, attrs: Any) -> Any:
        if not attrs:
            raise serializers.ValidationError("Send one of the three.")
        return attrs


@pytest.mark.parametrize(
    ("body", "param", "message", "fix"),
    [
        ({"parts": [{"role": "user"}, {"role": "king"}]}, "parts[1].role",
         """Invalid value for 'parts[1].role': it is "king", which is not an allowed value.""",
         "Send an allowed value for 'parts[1].role': user, system."),
        ({"parts": [{"role": "user"}, {}]}, "parts[1].role", "Missing required field: 'parts[1].role'.",
         "Add 'parts[1].role'."),
        ({"parts": 5}, "parts", "Invalid value for 'parts': it is a number, not an array.",
         "Send an array for 'parts'."),
        ({"counts": {"day": 1, "hour": 10}}, "counts.hour",
         "Invalid value for 'counts.hour': it is more than the maximum 9.",
         "Send a number of at most 9 for 'counts.hour'."),
        ({"origins": ["a", "B"]}, "origins[1]", "Invalid value for 'origins[1]'. Send lower-case letters.",
         "Correct 'origins[1]'; /api/docs describes it."),
        ({}, None, "Send one of the three.", "Correct the body; /api/docs describes it."),
        ([1], None, "The body is not valid: it is an array, not an object.", "Send an object for the body."),
    ],
)  # fmt: skip
def test_sentences_about_fields(body: Any, param: str | None, message: str, fix: str) -> None:
    with pytest.raises(LorikeetError) as caught:
        validated(_Body, body)
    error = caught.value
    assert (error.status, error.code) == (400, "invalid_request")
    assert (error.param, error.message, error.fix) == (param, message, fix)


@pytest.mark.django_db
def test_other_refusals_name_what_is_accepted(acme: Any) -> None:
    client = acme.client()

    def refusal(answer: Any) -> tuple[int, str, str]:
        error = answer.json()["error"]
        return answer.status_code, error["message"], error["fix"]

    keys, uploads = acme.path("keys"), acme.path("uploads")
    assert refusal(client.put(keys, {}, format="json")) == (405, "PUT is not allowed here.", "Send GET or POST.")
    assert refusal(client.post(keys, "{}", content_type="text/plain")) == (
        415, "The body's Content-Type, text/plain, is not accepted here.", "Send application/json.",
    )  # fmt: skip
    assert refusal(client.post(uploads, {"name": "x"}, format="json")) == (
        415, "The body's Content-Type, application/json, is not accepted here.", "Send multipart/form-data.",
    )  # fmt: skip
    assert refusal(client.delete(f"{keys}/nope")) == (
        404, f"There is nothing at {keys}/nope.", "Check the ids in it; /api/docs lists the addresses.",
    )  # fmt: skip


VALUES: tuple[Any, ...] = (
    None,
    "",
    5,
    -1,
    1.5,
    True,
    "no such value",
    "x" * 5000,
    "a\nb",
    [],
    {},
    [{}],
    [5],
    {"x": {}},
)


def referenced(schema: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref")
    return SCHEMA["components"]["schemas"][reference.rpartition("/")[2]] if reference else schema


def problem_of(answer: Any) -> str | None:
    """Return the texts of a refusal that are not the API's, or None."""
    error = answer.json()["error"]
    texts = f"{error['message']} / {error['fix']}"
    return texts if FRAMEWORK.search(texts) or not error["fix"] else None


@pytest.mark.django_db
def test_no_door_answers_about_a_query_in_the_frameworks_words(doors: Doors, owner: APIClient) -> None:
    wrong: dict[str, str] = {}
    refused = 0
    for path, method, operation in operations():
        for parameter in operation.get("parameters", []):
            for value in ("", "no%20such%20value", "-1", "1e99", "2026-13-45", "%00", "x" * 3000):
                if parameter["in"] != "query" or not path.startswith("/api/"):
                    continue
                answer = doors.ask(path, method, f"?{parameter['name']}={value}")
                if answer.status_code == 400:
                    refused += 1
                    if problem := problem_of(answer):
                        wrong[f"{method} {path} {parameter['name']}={value[:20]}"] = problem
    assert refused > 300
    assert not wrong


@pytest.mark.django_db
def test_no_door_answers_about_a_body_in_the_frameworks_words(doors: Doors, owner: APIClient) -> None:
    """Each field of each body gets values of every type; the other fields are missing."""
    wrong: dict[str, str] = {}
    refused = 0
    for path, method, operation in operations("application/json"):
        if not path.startswith("/api/"):
            continue
        schema = referenced(operation["requestBody"]["content"]["application/json"]["schema"])
        for name in schema.get("properties", {}):
            for value in VALUES:
                answer = doors.ask(path, method, body={name: value})
                if answer.status_code == 400:
                    refused += 1
                    if problem := problem_of(answer):
                        wrong[f"{method} {path} {name}={str(value)[:20]}"] = problem
    assert refused > 500
    assert not wrong
