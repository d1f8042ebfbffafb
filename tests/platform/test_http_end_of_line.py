"""JSON answers end with a newline: in a terminal the prompt follows on a line of its own."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import HttpResponse, JsonResponse
from lorikeet_testing.clients import keyed
from rest_framework.test import APIClient

from control_plane.core.http.middleware import end_line


@pytest.mark.django_db(transaction=True)  # the gateway's database threads must see what is made here
def test_answers_and_errors_of_every_kind(acme: Any) -> None:
    key = keyed(acme.key()[1])
    answers = [
        acme.client().get(acme.path("adapters")),
        acme.client().get(acme.path("adapters/nobody")),
        APIClient().get("/api/session"),
        APIClient().get("/livez"),
        key.get("/v1/models"),
        key.get("/v1/models/nobody"),
        key.get("/v1/nowhere"),
        APIClient().get("/v1/models"),
    ]
    for answer in answers:
        assert answer.content.endswith(b"}\n") or answer.content.endswith(b"]\n"), answer.content
        assert answer.json() is not None


def test_nothing_else_is_changed() -> None:
    assert end_line(JsonResponse({})).content == b"{}\n"
    for content, kind in ((b"{}\n", "application/json"), (b"a", "text/plain"), (b"", "application/json")):
        response = HttpResponse(content, content_type=kind)
        assert end_line(response) is response and response.content == content
    counted = HttpResponse(b"{}", content_type="application/json", headers={"Content-Length": "2"})
    assert end_line(counted) is counted and counted.content == b"{}"
