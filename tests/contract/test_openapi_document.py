"""The published schema is OpenAPI, and says of every operation what it may answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV30SpecValidator

DOCUMENT = Path(__file__).resolve().parents[2] / "frontend" / "openapi.json"


@pytest.fixture(scope="module")
def document() -> Any:
    return json.loads(DOCUMENT.read_text())


def operations(document: Any) -> list[tuple[str, str, Any]]:
    return [(path, method, body) for path, methods in document["paths"].items() for method, body in methods.items()]


def test_it_is_valid(document: Any) -> None:
    problems = [
        f"{'/'.join(map(str, error.path))}: {error.message}"
        for error in OpenAPIV30SpecValidator(document).iter_errors()
    ]
    assert not problems, "\n".join(problems)


def test_every_operation_names_what_any_request_may_be_answered(document: Any) -> None:
    for path, method, operation in operations(document):
        answered = set(operation["responses"])
        assert {"400", "429", "503"} <= answered, f"{method} {path}"
        if {} not in operation.get("security", [{}]):
            assert {"401", "403"} <= answered, f"{method} {path}"
        if "requestBody" in operation:
            assert "413" in answered, f"{method} {path}"


def test_whole_numbers_that_are_asked_have_bounds(document: Any) -> None:
    for path, method, operation in operations(document):
        for parameter in operation.get("parameters", []):
            schema = parameter["schema"]
            if schema.get("type") == "integer":
                assert "minimum" in schema, f"{method} {path}: {parameter['name']}"


def test_no_request_must_give_what_has_a_default(document: Any) -> None:
    """Generators of clients ask for properties with a default."""
    for name in ("ChatCompletionRequest", "CompletionRequest", "NewUploadRequest", "StreamOptions"):
        shape = document["components"]["schemas"][name]
        assert not [field for field, schema in shape["properties"].items() if "default" in schema], name
