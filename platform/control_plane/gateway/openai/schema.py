"""/v1 in the API's schema, made from the very models that check requests."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from control_plane.gateway.openai.chat_request import ChatRequest
from control_plane.gateway.openai.completion_request import CompletionRequest
from control_plane.gateway.openai.parameters import HARMLESS
from control_plane.gateway.openai.response_models import (
    ChatAnswer,
    CompletionAnswer,
    ErrorAnswer,
    ModelAnswer,
    ModelsAnswer,
)

# Before the models' names: others of the platform have the same.
PREFIX = "Inference"
Json = dict[str, Any]
STREAM = {"text/event-stream": {"schema": {"type": "string", "description": "With `stream`: OpenAI's events."}}}
NAME = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}


def add_inference(result: Json, **_of_the_generator: object) -> Json:
    """A post-processing hook of drf-spectacular, which knows views of its own kind only."""
    schemas: Json = result["components"]["schemas"]
    result["paths"] |= {
        "/v1/chat/completions": {
            "post": _operation(schemas, "create_chat_completion", "Answer a conversation.", ChatAnswer, ChatRequest)
        },
        "/v1/completions": {
            "post": _operation(schemas, "create_completion", "Go on with a text.", CompletionAnswer, CompletionRequest)
        },
        "/v1/models": {"get": _operation(schemas, "list_inference_models", "What `model` may be.", ModelsAnswer)},
        "/v1/models/{model}": {
            "get": {**_operation(schemas, "read_inference_model", "One of them.", ModelAnswer), "parameters": [NAME]}
        },
    }
    result["components"]["schemas"] = dict(sorted(schemas.items()))
    return result


def _operation(
    schemas: Json, name: str, description: str, answer: type[BaseModel], asked: type[BaseModel] | None = None
) -> Json:
    statuses = ("400", "401", "403", "404", "413", "429", "503") if asked else ("401", "403", "404")
    content = {"application/json": {"schema": _component(schemas, answer)}, **(STREAM if asked else {})}
    error = {"application/json": {"schema": _component(schemas, ErrorAnswer)}}
    operation: Json = {
        "operationId": name,
        "description": description,
        "tags": ["inference"],
        "security": [{"apiKey": []}],
        "responses": {"200": {"content": content, "description": ""}}
        | {status: {"content": error, "description": ""} for status in statuses},
    }
    if asked is not None:
        schema = _component(schemas, asked)
        operation["requestBody"] = {"content": {"application/json": {"schema": schema}}, "required": True}
    return operation


def _component(schemas: Json, model: type[BaseModel]) -> Json:
    """A reference to the model's schema, which with all that it needs becomes a part of the document."""
    made = model.model_json_schema(ref_template=f"#/components/schemas/{PREFIX}{{model}}")
    parts = made.pop("$defs", {}) | {model.__name__: made}
    schemas |= {PREFIX + name: as_openapi(part) for name, part in parts.items()}
    if model in (ChatRequest, CompletionRequest):
        harmless = {name: {"description": "Accepted, without effect."} for name in sorted(HARMLESS)}
        schemas[PREFIX + model.__name__]["properties"] |= harmless
    return {"$ref": f"#/components/schemas/{PREFIX}{model.__name__}"}


def as_openapi(schema: Any) -> Any:
    """JSON Schema of 2020 as OpenAPI 3.0 has it: null, constants and open bounds are written differently there."""
    if isinstance(schema, list):
        return [as_openapi(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: as_openapi(value) for name, value in schema.items() if name != "title" or not isinstance(value, str)}
    if "const" in made:
        made["enum"] = [made.pop("const")]
    if made.get("type") == "null":
        return {"nullable": True, "enum": [None], **{name: made[name] for name in made if name != "type"}}
    for bound in ("Minimum", "Maximum"):
        if f"exclusive{bound}" in made:
            made |= {bound.lower(): made[f"exclusive{bound}"], f"exclusive{bound}": True}
    return _nullable(made)


def _nullable(schema: Json) -> Json:
    """`anyOf` with null among it."""
    forms = schema.get("anyOf")
    if not forms or not any(form.get("enum") == [None] for form in forms):
        return schema
    others = [form for form in forms if form.get("enum") != [None]]
    rest = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    if len(others) == 1 and "$ref" not in others[0]:
        return {**others[0], **rest, "nullable": True}
    return {"anyOf": others, **rest, "nullable": True}
