"""On which devices a person is signed in, and signing them out."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.sessions.models import Session
from rest_framework.test import APIClient

from control_plane.identity.accounts import sign_ins
from control_plane.identity.accounts.models import SignIn, User
from control_plane.identity.accounts.tasks import clear_sessions
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.second_factor import sign_in_views
from control_plane.identity.tenants.roles import Role

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"


def signed_in(agent: str, address: str = "192.0.2.1") -> APIClient:
    browser = APIClient(HTTP_USER_AGENT=agent, REMOTE_ADDR=address)
    answer = browser.post("/api/session", {"email": "owner@acme.example", "password": PASSWORD}, format="json")
    assert answer.status_code == 200, answer.content
    return browser


def devices(browser: APIClient) -> list[dict[str, Any]]:
    return list(browser.get("/api/sessions").json())


def alive(browser: APIClient) -> bool:
    return bool(browser.get("/api/session").json()["authenticated"])


@pytest.fixture
def laptop(acme: Any) -> APIClient:
    return signed_in("Laptop")


@pytest.fixture
def phone(laptop: APIClient) -> APIClient:
    return signed_in("Phone\x00", "2001:db8::1")


def test_lists_each_device_and_marks_this_one(laptop: APIClient, phone: APIClient) -> None:
    listed = {device["user_agent"]: device for device in devices(laptop)}
    assert listed.keys() == {"Laptop", "Phone"}
    assert (listed["Laptop"]["current"], listed["Phone"]["current"]) == (True, False)
    assert (listed["Laptop"]["address"], listed["Phone"]["address"]) == ("192.0.2.1", "2001:db8::1")
    keys = set(SignIn.objects.values_list("session_key", flat=True))
    assert not any(key in str(listed) for key in keys), "whoever knows a session's key has the session"


def test_one_is_signed_out(laptop: APIClient, phone: APIClient) -> None:
    other = next(device for device in devices(laptop) if not device["current"])
    assert laptop.delete(f"/api/sessions/{other['id']}").status_code == 204
    assert (alive(laptop), alive(phone)) == (True, False)
    assert len(devices(laptop)) == 1
    row = AuditEvent.objects.get(action="session.end")
    assert row.detail == {"address": "2001:db8::1", "device": "Phone"}
    assert laptop.delete(f"/api/sessions/{other['id']}").status_code == 404


def test_a_device_that_is_signed_out_while_it_confirms(
    laptop: APIClient, phone: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A confirmation gives the session a new id, which must not begin it again."""
    real = sign_in_views.require_password

    def check(user: User, password: str, param: str) -> None:
        real(user, password, param)
        assert laptop.delete("/api/sessions").status_code == 204

    monkeypatch.setattr(sign_in_views, "require_password", check)
    assert phone.post("/api/session/confirmation", {"password": PASSWORD}, format="json").status_code == 401
    assert (alive(laptop), alive(phone)) == (True, False)
    assert not AuditEvent.objects.filter(action="session.confirm").exists()


def test_all_others_are_signed_out(laptop: APIClient, phone: APIClient) -> None:
    tablet = signed_in("Tablet")
    assert phone.delete("/api/sessions").status_code == 204
    assert [alive(browser) for browser in (laptop, phone, tablet)] == [False, True, False]
    assert AuditEvent.objects.get(action="session.end_others").detail == {"sessions": 2}


def test_nobody_elses(acme: Any, laptop: APIClient) -> None:
    viewer = acme.client(Role.VIEWER)
    assert [device["current"] for device in devices(viewer)] == [True], "a session from elsewhere is noted when used"
    own = devices(laptop)[0]
    assert viewer.delete(f"/api/sessions/{own['id']}").status_code == 404
    assert viewer.delete("/api/sessions").status_code == 204
    assert alive(laptop)


def test_a_new_password_ends_the_others(laptop: APIClient, phone: APIClient) -> None:
    body = {"current_password": PASSWORD, "password": "a wholly new pass phrase"}
    assert laptop.post("/api/password", body, format="json").status_code == 200
    assert (alive(laptop), alive(phone)) == (True, False)
    assert [(device["user_agent"], device["current"]) for device in devices(laptop)] == [("Laptop", True)]
    assert Session.objects.count() == 1


def test_signing_out_forgets_the_device(laptop: APIClient, phone: APIClient) -> None:
    phone.delete("/api/session")
    assert [device["user_agent"] for device in devices(laptop)] == ["Laptop"]


def test_expired_sessions_are_not_listed_and_are_forgotten(laptop: APIClient, phone: APIClient) -> None:
    Session.objects.filter(pk=phone.cookies["lorikeet_session"].value).update(expire_date="2020-01-01T00:00:00Z")
    assert [device["user_agent"] for device in devices(laptop)] == ["Laptop"]
    clear_sessions()
    assert SignIn.objects.count() == 1


def test_use_is_noted_now_and_then(laptop: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    first = devices(laptop)[0]["last_seen_at"]
    assert devices(laptop)[0]["last_seen_at"] == first, "not each request writes"
    monkeypatch.setattr(sign_ins, "_noted", sign_ins.Recently(0, 10))
    laptop.defaults["REMOTE_ADDR"] = "192.0.2.77"
    seen = devices(laptop)[0]
    assert (seen["address"], seen["last_seen_at"] > first) == ("192.0.2.77", True)


def test_what_is_remembered_is_bounded() -> None:
    recently = sign_ins.Recently(60, 3)
    assert [recently.again(key) for key in "abcd"] == [True] * 4
    assert (recently.again("d"), recently.again("a")) == (False, True)
