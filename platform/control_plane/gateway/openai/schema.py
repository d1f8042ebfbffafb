"""Adds /v1 to the API schema, from the Pydantic models that validate its requests."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from control_plane.gateway.anthropic.request import CountTokensRequest, MessagesRequest
from control_plane.gateway.anthropic.response_models import MessageError, MessageObject, MessageTokens
from control_plane.gateway.openai.batch_views import (
    EXPIRY_ANCHOR,
    EXPIRY_BOUNDS_S,
    EXPIRY_SECONDS,
    NewBatch,
)
from control_plane.gateway.openai.chat_request import ChatCompletionRequest
from control_plane.gateway.openai.completion_request import CompletionRequest
from control_plane.gateway.openai.embeddings import EmbeddingsRequest, EmbeddingsResponse
from control_plane.gateway.openai.paging import MAX_LISTED
from control_plane.gateway.openai.response_models import (
    BatchList,
    BatchObject,
    ChatCompletionResponse,
    CompactedResponse,
    CompletionResponse,
    DeletedFile,
    DeletedResponse,
    ErrorResponse,
    FileList,
    FileObject,
    InputItemList,
    InputTokens,
    ModelCard,
    ModelList,
    ResponseObject,
)
from control_plane.gateway.openai.tokenizing import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeRequest,
    TokenizeResponse,
)
from control_plane.gateway.openai.unknown_fields import HARMLESS, RequestBody
from control_plane.gateway.responses.request import CompactRequest, InputTokensRequest, ResponsesRequest

# The errors of /v1 have OpenAI's form; components of the same names have the form of /api.
COMPONENT_NAMES = {"ErrorResponse": "InferenceErrorResponse", "ErrorDetail": "InferenceErrorDetail"}
_OPERATIONS = {"v1/embeddings": "create_embeddings"}
Json = dict[str, Any]
STREAM = {"text/event-stream": {"schema": {"type": "string", "description": "With `stream`: the events of this API."}}}
NAME = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}


# Parts of bodies whose unknown fields are refused: see STRICT_INSIDE.
_STRICT = frozenset(
    ("NamedFunction", "NamedResponseTool", "NamedSchema", "NamedToolChoice", "ResponseFormat", "StructuredOutputs",
     "TextFormat", "TextOptions", "MessagesToolChoice", "OutputFormat")
)  # fmt: skip

# Statuses of every operation, and those of operations that generate: a slow client, an Idempotency-Key in use or used
# for another request, an adapter that overflows, an engine failure, a deadline.
_ANY = ("400", "401", "403", "404", "429", "503")
_GENERATES = ("408", "409", "413", "415", "422", "500", "504")
_WRITES = ("413", "415", "507")


def add_inference(result: Json, **_of_the_generator: object) -> Json:
    """Add /v1 to the schema: a post-processing hook of drf-spectacular, which knows only its own kind of views."""
    schemas: Json = result["components"]["schemas"]
    result["paths"] |= {
        "/v1/chat/completions": {
            "post": _operation(
                schemas,
                "create_chat_completion",
                "Answer a conversation.",
                ChatCompletionResponse,
                ChatCompletionRequest,
            )
        },
        "/v1/completions": {
            "post": _operation(schemas, "create_completion", "Continue a text.", CompletionResponse, CompletionRequest)
        },
        "/v1/models": {"get": _operation(schemas, "list_inference_models", "List the models to call.", ModelList)},
        "/v1/models/{model}": {
            "get": {
                **_operation(
                    schemas,
                    "read_inference_model",
                    "Return a model by any name that a request may use: `support@v7`, `support@beta`, `a+b:0.5`.",
                    ModelCard,
                    more=("409",),
                ),
                "parameters": [NAME],
            }
        },
        **_responses(schemas),
        **_messages(schemas),
        **_files(schemas),
        **_batches(schemas),
    }
    for name, description, answer, body in (
        ("v1/embeddings", "Return a vector for each input.", EmbeddingsResponse, EmbeddingsRequest),
        ("tokenize", "Return the tokens of a prompt, as a request would have them.", TokenizeResponse, TokenizeRequest),
        ("detokenize", "Return the text of tokens.", DetokenizeResponse, DetokenizeRequest),
    ):
        result["paths"][f"/{name}"] = {
            "post": _operation(schemas, _OPERATIONS.get(name, name), description, answer, body, streams=False)
        }
    result["components"]["schemas"] = dict(sorted(schemas.items()))
    return result


def _responses(schemas: Json) -> Json:
    create = _operation(
        schemas, "create_response", "Answer a conversation, in OpenAI's newer form.", ResponseObject, ResponsesRequest
    )
    read = _operation(schemas, "read_response", "Return a stored response.", ResponseObject)
    delete = _operation(schemas, "delete_response", "Delete a stored response.", DeletedResponse, more=("507",))
    items = _operation(
        schemas, "list_input_items", "Return the items that a stored response was generated from.", InputItemList
    )
    count = _operation(
        schemas,
        "count_input_tokens",
        "Count the tokens of a request's prompt.",
        InputTokens,
        InputTokensRequest,
        streams=False,
    )
    compact = _operation(
        schemas,
        "compact_conversation",
        "Replace a conversation by the user's messages and a summary that the model writes.",
        CompactedResponse,
        CompactRequest,
        streams=False,
    )
    return {
        "/v1/responses": {"post": create},
        "/v1/responses/{id}": {
            "get": {**read, "parameters": [_ID, *_INCLUDE]},
            "delete": {**delete, "parameters": [_ID]},
        },
        "/v1/responses/{id}/input_items": {"get": {**items, "parameters": [_ID, *_PAGE, *_INCLUDE]}},
        "/v1/responses/input_tokens": {"post": count},
        "/v1/responses/compact": {"post": compact},
    }


def _messages(schemas: Json) -> Json:
    create = _operation(
        schemas,
        "create_message",
        "Answer a conversation, in Anthropic's form.",
        MessageObject,
        MessagesRequest,
        error=MessageError,
    )
    count = _operation(
        schemas,
        "count_message_tokens",
        "Count the tokens of a prompt.",
        MessageTokens,
        CountTokensRequest,
        streams=False,
        error=MessageError,
    )
    return {"/v1/messages": {"post": create}, "/v1/messages/count_tokens": {"post": count}}


_LISTED = "Newest first, unless `order` says otherwise."
_PAGE = [
    {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": MAX_LISTED}},
    {"name": "after", "in": "query", "schema": {"type": "string"}},
    {"name": "order", "in": "query", "schema": {"type": "string", "enum": ["asc", "desc"]}},
]
_ID = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
_INCLUDE = [
    {
        "name": name,
        "in": "query",
        "description": "Accepted and ignored: a stored response is always returned whole.",
        "schema": {"type": "array", "items": {"type": "string"}},
    }
    for name in ("include", "include[]")
]
_PURPOSE = {"name": "purpose", "in": "query", "schema": {"type": "string"}}


def _files(schemas: Json) -> Json:
    form = {
        "type": "object",
        "required": ["purpose", "file"],
        "properties": {
            "purpose": {"type": "string", "enum": ["batch"]},
            "file": {
                "type": "string",
                "format": "binary",
                "description": "A JSON Lines file, one request per line.",
            },
            EXPIRY_ANCHOR: {"type": "string", "enum": ["created_at"], "description": f"With `{EXPIRY_SECONDS}`."},
            EXPIRY_SECONDS: {
                "type": "integer",
                "minimum": EXPIRY_BOUNDS_S[0],
                "maximum": EXPIRY_BOUNDS_S[1],
                "description": "Seconds for which the file is kept; by default, as long as the server's setting.",
            },
        },
    }
    content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    upload = _operation(schemas, "create_file", "Upload requests for a batch.", FileObject, more=_WRITES)
    upload["requestBody"] = {"content": {"multipart/form-data": {"schema": form}}, "required": True}
    read = _operation(schemas, "read_file_content", "Return the content of a file.", FileObject)
    read["responses"]["200"]["content"] = content
    delete = _operation(schemas, "delete_file", "Delete a file.", DeletedFile, more=("409",))
    listed = {
        **_operation(schemas, "list_files", _LISTED, FileList),
        "parameters": [*_PAGE, _PURPOSE],
    }
    read_one = _operation(schemas, "read_file", "Return a file's description.", FileObject)
    return {
        "/v1/files": {"get": listed, "post": upload},
        "/v1/files/{id}": {"get": {**read_one, "parameters": [_ID]}, "delete": {**delete, "parameters": [_ID]}},
        "/v1/files/{id}/content": {"get": {**read, "parameters": [_ID]}},
    }


def _batches(schemas: Json) -> Json:
    create = _operation(schemas, "create_batch", "Run the requests of a file.", BatchObject, more=_WRITES)
    create["requestBody"] = {
        "content": {"application/json": {"schema": _component(schemas, NewBatch)}},
        "required": True,
    }
    listed = {
        **_operation(schemas, "list_batches", _LISTED, BatchList),
        "parameters": _PAGE,
    }
    read_one = {**_operation(schemas, "read_batch", "Return a batch.", BatchObject), "parameters": [_ID]}
    cancel = _operation(
        schemas, "cancel_batch", "Cancel a batch; results are kept.", BatchObject, more=("409", "413", "415")
    )
    return {
        "/v1/batches": {"get": listed, "post": create},
        "/v1/batches/{id}": {"get": read_one},
        "/v1/batches/{id}/cancel": {"post": {**cancel, "parameters": [_ID]}},
    }


def _operation(
    schemas: Json,
    name: str,
    description: str,
    answer: type[BaseModel],
    body: type[BaseModel] | None = None,
    *,
    streams: bool = True,
    error: type[BaseModel] = ErrorResponse,
    more: tuple[str, ...] = (),
) -> Json:
    statuses = (*_ANY, *_GENERATES) if body else (*_ANY, *more)
    content = {"application/json": {"schema": _component(schemas, answer)}, **(STREAM if body and streams else {})}
    refusal = {"application/json": {"schema": _component(schemas, error)}}
    operation: Json = {
        "operationId": name,
        "description": description,
        "tags": ["inference"],
        "security": [{"apiKey": []}],
        "responses": {"200": {"content": content, "description": ""}}
        | {status: {"content": refusal, "description": ""} for status in statuses},
    }
    if body is not None:
        schema = _component(schemas, body)
        operation["requestBody"] = {"content": {"application/json": {"schema": schema}}, "required": True}
    return operation


def _component(schemas: Json, model: type[BaseModel]) -> Json:
    """Add a model's schema, and all that it refers to, to the components. Returns a reference to it."""
    made = model.model_json_schema(ref_template="{model}")
    parts = made.pop("$defs", {}) | {model.__name__: made}
    if issubclass(model, RequestBody):
        for name, part in parts.items():
            if name not in _STRICT:
                part.pop("additionalProperties", None)  # unknown fields are left out
    if model in (ChatCompletionRequest, CompletionRequest, EmbeddingsRequest):
        made["properties"] |= {name: {"description": "Accepted and ignored."} for name in sorted(HARMLESS)}
    for name, part in parts.items():
        component, shape = _component_name(name), as_openapi(part)
        if schemas.setdefault(component, shape) != shape:
            raise ValueError(f"Two components are named {component}: rename one of them in COMPONENT_NAMES.")
    return {"$ref": _reference(model.__name__)}


def _component_name(model_name: str) -> str:
    return COMPONENT_NAMES.get(model_name, model_name)


def _reference(model_name: str) -> str:
    return f"#/components/schemas/{_component_name(model_name)}"


def as_openapi(schema: Any) -> Any:
    """Convert JSON Schema 2020-12 to OpenAPI 3.0, which writes null, constants and exclusive bounds differently."""
    if isinstance(schema, list):
        return [as_openapi(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: as_openapi(value) for name, value in schema.items() if name != "title" or not isinstance(value, str)}
    if isinstance(made.get("$ref"), str):
        made["$ref"] = _reference(made["$ref"])
    made.pop("propertyNames", None)  # unknown there
    if "const" in made:
        made["enum"] = [made.pop("const")]
    if made.get("type") == "null":
        return {"nullable": True, "enum": [None], **{name: made[name] for name in made if name != "type"}}
    for bound in ("Minimum", "Maximum"):
        if f"exclusive{bound}" in made:
            made |= {bound.lower(): made[f"exclusive{bound}"], f"exclusive{bound}": True}
    return _nullable(made)


def _nullable(schema: Json) -> Json:
    """Convert an `anyOf` that includes null to a nullable schema."""
    forms = schema.get("anyOf")
    if not forms or not any(form.get("enum") == [None] for form in forms):
        return schema
    others = [form for form in forms if form.get("enum") != [None]]
    rest = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    if len(others) == 1 and "$ref" not in others[0]:
        return {**others[0], **rest, "nullable": True}
    return {"anyOf": others, **rest, "nullable": True}
