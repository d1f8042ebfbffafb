"""Logging in and out, CSRF, throttling."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.utils import timezone
from rest_framework.test import APIClient

from control_plane.identity.accounts.tasks import clear_sessions

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"


@pytest.fixture
def browser() -> APIClient:
    return APIClient(enforce_csrf_checks=True)


def log_in(browser: APIClient, email: str = "owner@acme.example", password: str = PASSWORD) -> Any:
    token = browser.get("/api/session").json()["csrf_token"]
    body = {"email": email, "password": password}
    return browser.post("/api/session", body, format="json", HTTP_X_CSRFTOKEN=token)


def test_anonymous(browser: APIClient) -> None:
    session = browser.get("/api/session").json()
    assert session["authenticated"] is False
    assert session["user"] is None
    assert session["tenants"] == []
    assert session["csrf_token"]


def test_in_and_out(acme: Any, browser: APIClient) -> None:
    answer = log_in(browser, email="Owner@ACME.example")
    assert answer.status_code == 200
    session = answer.json()
    assert session["user"]["email"] == "owner@acme.example"
    assert [tenant["slug"] for tenant in session["tenants"]] == ["acme"]
    assert session["tenants"][0]["role"] == "owner"
    assert "keys.write" in session["tenants"][0]["capabilities"]
    assert browser.get("/api/tenants/acme/adapters").status_code == 200
    assert browser.get("/api/session").json()["tenants"] == session["tenants"]

    out = browser.delete("/api/session", HTTP_X_CSRFTOKEN=session["csrf_token"])
    assert out.json()["authenticated"] is False
    assert browser.get("/api/tenants/acme/adapters").status_code == 401


def test_wrong_password_and_unknown_user_look_alike(acme: Any, browser: APIClient) -> None:
    wrong = log_in(browser, password="nope")
    unknown = log_in(browser, email="nobody@acme.example")
    assert wrong.status_code == unknown.status_code == 401
    assert wrong.json()["error"]["message"] == unknown.json()["error"]["message"]


def test_csrf(acme: Any, browser: APIClient) -> None:
    refused = browser.post("/api/session", {"email": "a@b.example", "password": "x"}, format="json")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "csrf_failed")
    token = log_in(browser).json()["csrf_token"]
    without = browser.post("/api/tenants/acme/keys", {"name": "k"}, format="json")
    assert (without.status_code, without.json()["error"]["code"]) == (403, "csrf_failed")
    assert (
        browser.post("/api/tenants/acme/keys", {"name": "k"}, format="json", HTTP_X_CSRFTOKEN=token).status_code == 201
    )


def test_a_key_needs_no_csrf_token(acme: Any, browser: APIClient) -> None:
    _, text = acme.key()
    browser.credentials(HTTP_AUTHORIZATION=f"Bearer {text}")
    refused = browser.post("/api/tenants/acme/adapters/nope/versions/1/promote")
    assert refused.status_code == 404


def test_session_id_changes_at_login(acme: Any, browser: APIClient) -> None:
    browser.cookies["lorikeet_session"] = "attackersfixedsessionid000000000"
    log_in(browser)
    assert browser.cookies["lorikeet_session"].value != "attackersfixedsessionid000000000"
    assert browser.cookies["lorikeet_session"]["httponly"]
    assert browser.cookies["lorikeet_session"]["samesite"] == "Lax"


def test_throttle(acme: Any, browser: APIClient) -> None:
    answers = [log_in(browser, password="nope") for _ in range(11)]
    assert [answer.status_code for answer in answers] == [401] * 10 + [429]
    assert int(answers[-1]["Retry-After"]) > 0
    assert answers[-1].json()["error"]["fix"]
    assert browser.get("/api/session").status_code == 200


@pytest.mark.parametrize("body", ["{", "[]", '{"email": 3}', '{"email": "x", "password": []}', "null", '"x"'])
def test_malformed_bodies(browser: APIClient, body: str) -> None:
    token = browser.get("/api/session").json()["csrf_token"]
    answer = browser.post("/api/session", body, content_type="application/json", HTTP_X_CSRFTOKEN=token)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["message"]
    assert error["fix"]


def test_inactive_user(acme: Any, browser: APIClient) -> None:
    log_in(browser)
    user = next(iter(acme.users.values()))
    user.is_active = False
    user.save()
    assert browser.get("/api/session").json()["authenticated"] is False
    assert browser.get("/api/tenants/acme/adapters").status_code == 401


def test_expired_sessions_are_cleared(acme: Any) -> None:
    client = acme.client()
    assert client.get("/api/session").json()["authenticated"]
    acme.client()
    Session.objects.filter(pk=client.cookies["lorikeet_session"].value).update(expire_date=timezone.now())
    clear_sessions()
    assert Session.objects.count() == 1
