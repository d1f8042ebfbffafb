"""`/metrics`: for those with the token, by URL pattern, without names of anybody."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.test import APIClient

pytestmark = pytest.mark.django_db


@pytest.fixture
def scraper(settings: Any) -> APIClient:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"metrics_token": "scrape-me"})
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION="Bearer scrape-me")
    return client


def test_only_with_the_token(scraper: APIClient, settings: Any) -> None:
    assert scraper.get("/metrics").status_code == 200
    assert APIClient().get("/metrics").status_code == 404
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"metrics_token": ""})
    assert scraper.get("/metrics").status_code == 404


def test_routes_and_no_names(acme: Any, scraper: APIClient) -> None:
    acme.client().get(acme.path("adapters/secret-project"))
    acme.client().get("/nowhere/secret-project")
    scraper.get("/v1/models/secret-project")
    body = {"email": "secret-project@acme.example", "password": "wrong"}
    APIClient().post("/api/session", body, format="json")
    text = scraper.get("/metrics").content.decode()
    assert 'route="api/tenants/<slug:tenant>/adapters/<str:name>",status="404"' in text
    assert 'lorikeet_sign_ins_total{outcome="wrong"}' in text
    assert "secret-project" not in text
    assert "acme" not in text
