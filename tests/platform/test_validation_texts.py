"""Errors about the values of a body are in the API's words: every field of every request is broken in every way."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from control_plane.gateway.dispatch.errors import ApiError
from control_plane.gateway.lorax import request as lorax
from control_plane.gateway.openai.batch_views import NewBatch
from control_plane.gateway.openai.chat_request import ChatCompletionRequest
from control_plane.gateway.openai.completion_request import CompletionRequest
from control_plane.gateway.openai.embeddings import EmbeddingsRequest
from control_plane.gateway.openai.parameters import read_parameters, validate
from control_plane.gateway.openai.tokenizing import DetokenizeRequest, TokenizeRequest
from control_plane.gateway.openai.validation_texts import GUIDE, KNOWN_ERRORS, PATTERNS
from control_plane.gateway.responses import request as responses

Json = dict[str, Any]
READERS: dict[type[BaseModel], Callable[[Json], BaseModel]] = {
    ChatCompletionRequest: partial(read_parameters, ChatCompletionRequest),
    CompletionRequest: partial(read_parameters, CompletionRequest),
    EmbeddingsRequest: partial(read_parameters, EmbeddingsRequest),
    TokenizeRequest: partial(validate, TokenizeRequest),
    DetokenizeRequest: partial(validate, DetokenizeRequest),
    NewBatch: partial(validate, NewBatch),
    responses.ResponsesRequest: partial(responses.read_request, responses.ResponsesRequest),
    lorax.LoraxRequest: lorax.read_request,
}
VALUES: tuple[Any, ...] = (None, True, 7, 1.5, "", "no such word", [], [{}], {}, {"type": "function"}, {"type": "x"})
PYDANTIC = re.compile(
    r"Input should|Field required|Extra inputs|should (have|be|match)|Value error|valid (string|integer|number|list"
    r"|dictionary|boolean)|Unable to|instance of|pydantic|literal_error|function-|constrained|<\w+>|None\b|True\b"
    r"|False\b"
)


def resolve(schema: Json, root: Json) -> Json:
    """Return the schema that a reference names."""
    return root["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def example(schema: Json, root: Json) -> Any:
    """Return a value of the schema with the required fields only."""
    schema = resolve(schema, root)
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    members = schema.get("anyOf") or schema.get("oneOf")
    if members:
        return example(members[0], root)
    match schema.get("type"):
        case "object":
            return {name: example(schema["properties"][name], root) for name in schema.get("required", ())}
        case "array":
            return [example(schema["items"], root)] if schema.get("minItems") else []
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return False
        case "string":
            return "24h" if schema.get("title") == "Completion Window" else "f"
    return None


def faults(schema: Json, root: Json) -> Iterator[Any]:
    """Yield values that break the schema in one place, and some that do not break it."""
    schema = resolve(schema, root)
    yield from VALUES
    for member in schema.get("anyOf", schema.get("oneOf", ())):
        yield from faults(member, root)
    for bound, step in (("minimum", -1), ("exclusiveMinimum", 0), ("maximum", 1), ("exclusiveMaximum", 0)):
        if bound in schema:
            yield schema[bound] + step
    if "maxLength" in schema:
        yield "x" * (schema["maxLength"] + 1)
    if "maxProperties" in schema:
        yield {f"n{number}": "1" for number in range(schema["maxProperties"] + 1)}
    if "propertyNames" in schema:
        yield {"x" * (schema["propertyNames"].get("maxLength", 0) + 1): "1"}
    if isinstance(items := schema.get("items"), dict):
        yield from ([fault] for fault in faults(items, root))
        if "maxItems" in schema and schema["maxItems"] < 10_000:
            yield [example(items, root)] * (schema["maxItems"] + 1)
    if isinstance(values := schema.get("additionalProperties"), dict):
        yield from ({"5": fault} for fault in faults(values, root))
    if schema.get("properties"):
        yield from broken_objects(schema, root)


def broken_objects(schema: Json, root: Json) -> Iterator[Json]:
    valid = example(schema, root)
    yield {**valid, "frobnicate": 1}
    yield {**valid, "a b": 1}
    for name, field in schema["properties"].items():
        yield {other: value for other, value in valid.items() if other != name}
        yield from ({**valid, name: fault} for fault in faults(field, root))


def problems(error: ApiError) -> list[Json]:
    listed: list[Json] = (error.details or {}).get("problems", [{"param": error.param, "message": error.message}])
    return listed


@pytest.fixture(scope="module")
def met() -> set[str]:
    """Types of pydantic's errors that the walks have met."""
    return set()


@pytest.mark.parametrize("kind", READERS)
def test_no_error_of_a_body_is_in_pydantics_words(kind: type[BaseModel], met: set[str]) -> None:
    schema = kind.model_json_schema()
    count = 0
    for body in broken_objects(schema, schema):
        try:
            kind.model_validate(body)
        except ValidationError as error:
            met |= {item["type"] for item in error.errors()}
        try:
            READERS[kind](body)
        except ApiError as error:
            count += 1
            assert not PYDANTIC.search(error.message), error.message
            assert error.fix and not PYDANTIC.search(error.fix), error.fix
            for problem in problems(error):
                named = problem["param"] is None or problem["param"] in problem["message"]
                assert GUIDE not in error.fix, problem
                assert named and not PYDANTIC.search(problem["message"]), problem
    assert count >= 20


def test_every_sentence_is_for_an_error_that_occurs(met: set[str]) -> None:
    assert met == KNOWN_ERRORS | {"extra_forbidden", "missing"}


def test_every_pattern_of_a_name_is_described() -> None:
    patterns = {
        pattern for kind in READERS for pattern in re.findall(r"'pattern': '([^']+)'", str(kind.model_json_schema()))
    }
    assert patterns == set(PATTERNS)


MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("fields", "param", "message", "fix"),
    [
        ({"temperature": "hot"}, "temperature", """it is "hot", not a number""", "Send a number for 'temperature'."),
        ({"temperature": 9}, "temperature", "it is 9, more than the maximum 2",
         "Send a number of at most 2 for 'temperature'."),
        ({"n": 1.5}, "n", "it is 1.5, not a whole number", "Send a whole number for 'n'."),
        ({"stream": 1}, "stream", "it is 1, not a boolean", "Send a boolean for 'stream'."),
        ({"stop": 5}, "stop", "it is 5, not a string or an array", "Send a string or an array for 'stop'."),
        ({"stop": ["a", ""]}, "stop[1]", "it is empty", "Send at least 1 character for 'stop[1]'."),
        ({"stop": ["x"] * 17}, "stop", "it holds 17 items; the limit is 16", "Send at most 16 items in 'stop'."),
        ({"cache_salt": "x" * 300}, "cache_salt", "it is 300 characters long; the limit is 256",
         "Send a shorter string for 'cache_salt'."),
        ({"logit_bias": {"5": 200}}, 'logit_bias["5"]', "it is 200, more than the maximum 100",
         """Send a number of at most 100 for 'logit_bias["5"]'."""),
        ({"tool_choice": "any"}, "tool_choice",
         """it is "any", not one of 'none', 'auto' or 'required', or an object""",
         "Send 'none', 'auto' or 'required', or an object for 'tool_choice'."),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content",
         "it is 5, not a string or an array", "Send a string or an array for 'messages[0].content'."),
        ({"messages": [{"role": "user", "content": {"str": 1}}]}, "messages[0].content",
         "it is an object, not a string or an array", "Send a string or an array for 'messages[0].content'."),
        ({"messages": [{"role": "user"}]}, "messages[0]", "content is missing",
         "Add content, or with role assistant tool_calls."),
        ({"messages": "hi"}, "messages", """it is "hi", not an array""", "Send an array for 'messages'."),
        ({"messages": []}, "messages", "it is empty", "Send at least 1 item in 'messages'."),
        ({"messages": [*MESSAGES, 7]}, "messages[1]", "it is 7, not an object", "Send an object for 'messages[1]'."),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name",
         """it is "a b"; a name here is made of 1 to 64 letters, digits, underscores and hyphens""",
         "Send such a name for 'tools[0].function.name'."),
    ],
)  # fmt: skip
def test_sentences_about_values(fields: Json, param: str, message: str, fix: str) -> None:
    with pytest.raises(ApiError) as caught:
        read_parameters(ChatCompletionRequest, {"model": "support", "messages": MESSAGES, **fields})
    error = caught.value
    assert (error.param, error.message, error.fix) == (param, f"Invalid value for '{param}': {message}.", fix)


def test_a_prompt_of_another_type_may_also_be_an_array() -> None:
    with pytest.raises(ApiError) as caught:
        read_parameters(CompletionRequest, {"model": "support", "prompt": 5})
    assert caught.value.message == "Invalid value for 'prompt': it is 5, not a string or an array."


def test_names_in_an_object_of_any_names() -> None:
    with pytest.raises(ApiError) as caught:
        responses.read_request(
            responses.ResponsesRequest, {"model": "support", "input": "hi", "metadata": {"x" * 65: "y"}}
        )
    assert caught.value.message.startswith("Invalid name in 'metadata': it is 65 characters long")
    with pytest.raises(ApiError) as caught:
        read_parameters(
            ChatCompletionRequest, {"model": "support", "messages": MESSAGES, "a b": 1}, refuse_unknown=True
        )
    assert caught.value.message == "Unknown parameter: 'a b'."
