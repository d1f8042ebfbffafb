"""What the gateway makes of ``response_format``, ``structured_outputs`` and ``guided_…``, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest

from control_plane.gateway.dispatch.constraint_checks import ConstraintChecks
from control_plane.gateway.dispatch.errors import ApiError
from control_plane.gateway.lorax.request import read_request
from control_plane.gateway.openai.chat_request import ChatCompletionRequest
from control_plane.gateway.openai.completion_request import CompletionRequest
from control_plane.gateway.openai.parameters import read_parameters
from lora_engine.constraints import Constraint, Kind

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TEXT = json.dumps(SCHEMA)


def chat(**body: Any) -> ChatCompletionRequest:
    return read_parameters(
        ChatCompletionRequest, {"model": "m", "messages": [{"role": "user", "content": "x"}], **body}
    )


def test_what_litellm_sends_back_with_a_call_is_not_read() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    again = {"role": "assistant", "content": None, "tool_calls": [call], "provider_specific_fields": {"refusal": None}}
    result = {"role": "tool", "tool_call_id": "c", "content": "1"}
    assert "refusal" not in str(chat(messages=[again, result]).messages[0].wire())


def named(schema: object, **more: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, **more}}}


def refusal(body: dict[str, Any]) -> ApiError:
    """Of the body, or of the constraint that it asks for."""
    with pytest.raises(ApiError) as refused:
        asyncio.run(check(chat(**body)))
    assert refused.value.fix
    return refused.value


async def check(request: ChatCompletionRequest) -> None:
    asked, checks = request.requested_constraint, ConstraintChecks()
    assert asked is not None
    try:
        await checks.check(asked, "tenant")
    finally:
        checks.close()


@pytest.mark.parametrize(
    ("body", "constraint"),
    [
        ({"response_format": {"type": "json_object"}}, Constraint(Kind.JSON_OBJECT)),
        (named(SCHEMA), Constraint(Kind.JSON_SCHEMA, TEXT, best_effort=True)),
        (named(SCHEMA, strict=True, description="d"), Constraint(Kind.JSON_SCHEMA, TEXT)),
        ({"structured_outputs": {"json": SCHEMA}}, Constraint(Kind.JSON_SCHEMA, TEXT)),
        ({"structured_outputs": {"json": TEXT}}, Constraint(Kind.JSON_SCHEMA, TEXT)),
        ({"structured_outputs": {"regex": "a+"}}, Constraint(Kind.REGEX, "a+")),
        ({"structured_outputs": {"choice": ["a", "b"]}}, Constraint(Kind.CHOICE, '["a", "b"]')),
        ({"structured_outputs": {"grammar": 'start: "a"'}}, Constraint(Kind.GRAMMAR, 'start: "a"')),
        ({"structured_outputs": {"json_object": True}}, Constraint(Kind.JSON_OBJECT)),
        ({"guided_json": SCHEMA}, Constraint(Kind.JSON_SCHEMA, TEXT)),
        ({"guided_regex": "a+"}, Constraint(Kind.REGEX, "a+")),
        ({"guided_choice": ["a", "b"]}, Constraint(Kind.CHOICE, '["a", "b"]')),
        ({"guided_grammar": 'root ::= "a"'}, Constraint(Kind.GRAMMAR, 'root ::= "a"')),
    ],
)
def test_every_form_on_both_endpoints(body: dict[str, Any], constraint: Constraint) -> None:
    request = chat(**body)
    assert request.requested_constraint is not None
    assert request.requested_constraint.constraint == constraint
    asyncio.run(check(request))
    wire = request.requested_constraint.wire()
    assert (Kind(wire.kind), wire.text, wire.best_effort) == (constraint.kind, constraint.text, constraint.best_effort)
    completion = read_parameters(CompletionRequest, {"model": "m", "prompt": "x", **body})
    assert completion.requested_constraint == request.requested_constraint


def test_text_and_nothing_ask_for_nothing() -> None:
    assert chat(response_format={"type": "text"}).requested_constraint is None
    assert chat(response_format=None).requested_constraint is None


def test_lorax_has_its_own_form() -> None:
    body = {"inputs": "x", "parameters": {"response_format": {"type": "json_object", "schema": SCHEMA}}}
    asked = read_request(body).requested_constraint
    assert asked is not None and asked.constraint == Constraint(Kind.JSON_SCHEMA, TEXT)
    assert asked.param == "parameters.response_format.schema"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "json_object", "json_schema": {"name": "n"}}}, "response_format"),
        (named(SCHEMA, name="a b"), "response_format.json_schema.name"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs.structural_tag"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_choice": ["a"], "response_format": {"type": "json_object"}}, "response_format"),
    ],
)
def test_what_is_no_constraint_is_refused_by_its_name(body: dict[str, Any], param: str | None) -> None:
    error = refusal(body)
    assert (error.status, error.param) == (400, param)


IN_SCHEMA = "response_format.json_schema.schema"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (named({"properties": {"a": {"not": {"pattern": "(?=b)"}}}}, strict=True), f"{IN_SCHEMA}.properties.a.not"),
        (named({"anyOf": [{}], "unevaluatedProperties": False}, strict=True), f"{IN_SCHEMA}.unevaluatedProperties"),
        (named({"properties": {"a": {"pattern": "(?=b)"}}}, strict=True), f"{IN_SCHEMA}.properties.a.pattern"),
        (named({"properties": {"a": {"$ref": "#/$defs/none"}}}), f"{IN_SCHEMA}.properties.a.$ref"),
        (named({"properties": {"a": {"type": "text"}}}), f"{IN_SCHEMA}.properties.a.type"),
        (named({"enum": []}), IN_SCHEMA),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_json": {"items": {"$dynamicRef": "#x"}}}, "guided_json.items.$dynamicRef"),
        ({"guided_regex": "(?=a)"}, "guided_regex"),
        ({"structured_outputs": {"grammar": "start: nothing"}}, "structured_outputs.grammar"),
        ({"structured_outputs": {"grammar": "root ::= ("}}, "structured_outputs.grammar"),
    ],
)
def test_what_cannot_be_enforced_is_refused_with_its_path(body: dict[str, Any], param: str) -> None:
    error = refusal(body)
    assert (error.status, error.code, error.param) == (400, "invalid_constraint", param)
    assert "<" not in error.message


def test_without_strict_keywords_that_cannot_be_enforced_are_left_out() -> None:
    of_set = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    password = {"type": "string", "pattern": r"^(?=.*[A-Z]).{8,}$", "format": "password"}
    either = {"oneOf": [{"type": "string"}, {"minLength": 3}]}
    asyncio.run(check(chat(**named({"properties": {"a": of_set, "b": password, "c": either}}))))
    error = refusal(named({"properties": {"a": {"pattern": "("}}}))
    assert error.param == f"{IN_SCHEMA}.properties.a.pattern"


def test_a_server_without_the_library_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    error = refusal({"guided_regex": "unheard of"})
    assert (error.status, error.code) == (503, "structured_outputs_unavailable")
