"""The API's schema: complete, without warnings, and the one that the console's client is made from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.urls import URLPattern, URLResolver
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator

from control_plane.gateway.openai.chat_request import ChatCompletionRequest
from control_plane.gateway.openai.completion_request import CompletionRequest
from control_plane.gateway.openai.unknown_fields import HARMLESS
from control_plane.identity.access.views import TenantView
from control_plane.urls import urlpatterns

COMMITTED = Path(__file__).resolve().parents[2] / "frontend" / "openapi.json"


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    GENERATOR_STATS.reset()  # type: ignore[no-untyped-call]
    made: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    assert not GENERATOR_STATS, "the generator warned"
    return made


def test_committed_schema_is_current(schema: dict[str, Any]) -> None:
    made = json.loads(json.dumps(schema, default=str))
    assert json.loads(COMMITTED.read_text()) == made, (
        "Run: python manage.py spectacular --file frontend/openapi.json --format openapi-json"
    )


def test_every_tenant_address_is_described(schema: dict[str, Any]) -> None:
    def count(patterns: list[Any]) -> int:
        return sum(
            count(pattern.url_patterns)
            if isinstance(pattern, URLResolver)
            else int(isinstance(pattern, URLPattern) and issubclass(_view(pattern), TenantView))
            for pattern in patterns
        )

    described = [path for path in schema["paths"] if path.startswith("/api/tenants/")]
    assert len(described) == count(urlpatterns)


def _view(pattern: URLPattern) -> type[Any]:
    view: type[Any] = getattr(pattern.callback, "view_class", object)
    return view


def test_names_are_for_people(schema: dict[str, Any]) -> None:
    names = set(schema["components"]["schemas"])
    assert {"Adapter", "AdapterSummary", "Upload", "Version", "Host", "ApiKey", "CreatedApiKey", "UsageReport"} <= names
    assert not {name for name in names if any(digit in name for digit in "0123456789")}
    operations = [operation["operationId"] for path in schema["paths"].values() for operation in path.values()]
    assert len(operations) == len(set(operations))


def test_security_is_named(schema: dict[str, Any]) -> None:
    assert set(schema["components"]["securitySchemes"]) == {"apiKey", "session"}


def test_inference_is_described_by_the_models_that_check_it(schema: dict[str, Any]) -> None:
    described = {path: set(methods) for path, methods in schema["paths"].items() if path.startswith("/v1/")}
    assert described == {
        "/v1/chat/completions": {"post"},
        "/v1/completions": {"post"},
        "/v1/responses": {"post"},
        "/v1/responses/{id}": {"get", "delete"},
        "/v1/responses/{id}/input_items": {"get"},
        "/v1/responses/input_tokens": {"post"},
        "/v1/responses/compact": {"post"},
        "/v1/files": {"get", "post"},
        "/v1/files/{id}": {"get", "delete"},
        "/v1/files/{id}/content": {"get"},
        "/v1/batches": {"get", "post"},
        "/v1/batches/{id}": {"get"},
        "/v1/batches/{id}/cancel": {"post"},
        "/v1/embeddings": {"post"},
        "/v1/messages": {"post"},
        "/v1/messages/count_tokens": {"post"},
        "/v1/models": {"get"},
        "/v1/models/{model}": {"get"},
    }
    for kind in (ChatCompletionRequest, CompletionRequest):
        shown = schema["components"]["schemas"][kind.__name__]
        assert set(shown["properties"]) == set(kind.model_fields) | HARMLESS
        assert shown["required"] == [name for name, field in kind.model_fields.items() if field.is_required()]
