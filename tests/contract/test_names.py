"""Every text field of a request to /api is a name, which is checked, or stands in a list that says why it is none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.urls import get_resolver
from rest_framework import serializers

DOCUMENT = Path(__file__).resolve().parents[2] / "frontend" / "openapi.json"
OTHER_FORMATS = {"uuid", "date", "date-time", "binary", "email"}  # an e-mail address: accounts/addresses.py
NO_NAMES = {
    # Prose, which may have lines, and what models read.
    "NewImport.description", "NewUpload.description", "WebhookSettings.description", "Suspension.reason",
    "NewPrefix.prompt", "PrefixMessage.content",
    # Secrets, which are compared and never shown.
    "AcceptInvitation.token", "AcceptInvitation.password", "InvitationToken.token", "ResetPassword.token",
    "ResetPassword.password", "ChangePassword.current_password", "ChangePassword.password", "Login.password",
    "SecondFactor.code", "IdentityConfirmation.code", "IdentityConfirmation.password", "Code.code",
    "Join.token", "Join.certificate_request", "NewPrefix.cache_salt",
    # URLs: http/egress.py, check_url; adapters/imports/bucket.py.
    "WebhookSettings.url", "BucketCredentials.endpoint",
    # Lines of digests and files' names, which are compared.
    "NewUpload.sha256",
}  # fmt: skip


def request_texts() -> Iterator[tuple[str, str, bool]]:
    """The components of requests to /api with their text fields, and whether the field is a list of texts."""
    document = json.loads(DOCUMENT.read_text())
    components = document["components"]["schemas"]
    waiting: list[Any] = [
        operation.get("requestBody", {})
        for path, methods in document["paths"].items()
        if path.startswith("/api/")
        for operation in methods.values()
    ]
    seen = set()
    while waiting:
        part = waiting.pop()
        if not isinstance(part, dict | list):
            continue
        waiting += part.values() if isinstance(part, dict) else part
        name = str(part.get("$ref", "") if isinstance(part, dict) else "").rpartition("/")[2]
        if name and name not in seen:
            seen.add(name)
            waiting.append(components[name])
            for field, schema in components[name].get("properties", {}).items():
                items = schema.get("items", schema)
                if items.get("type") == "string" and "enum" not in items and items.get("format") not in OTHER_FORMATS:
                    yield name.removeprefix("Patched").removesuffix("Request"), field, "items" in schema


def subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)


@pytest.fixture(scope="module")
def by_name() -> dict[str, type[serializers.Serializer[Any]]]:
    get_resolver().url_patterns  # noqa: B018  # loads every view, and with it its serializers
    return {kind.__name__.removesuffix("Serializer"): kind for kind in subclasses(serializers.Serializer)}


def test_every_name_is_checked(by_name: dict[str, type[serializers.Serializer[Any]]]) -> None:
    texts = set(request_texts())
    assert len(texts) > 40
    unchecked = set()
    for component, field, is_list in texts:
        text = "a\u202eb"
        serializer = by_name.get(component, by_name.get(f"{component}Request"))
        assert serializer is not None, component
        checked = serializer(data={field: [text] if is_list else text}, partial=True)
        if checked.is_valid() or field not in checked.errors:
            unchecked.add(f"{component}.{field}")
    assert unchecked - NO_NAMES == set(), "make it a NameField, or say above what it is"
    assert NO_NAMES - unchecked == set(), "it is checked, or there is no such field"
