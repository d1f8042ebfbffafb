"""API keys: shown once, stored hashed, refused when revoked or expired, and never a write per use."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.core import serializers
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from control_plane.core.errors import LorikeetError
from control_plane.identity.access.principal import Principal
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.keys import secret as key_secret
from control_plane.identity.keys.auth import authenticate_key
from control_plane.identity.keys.last_used import LastUsed
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.tenants.roles import Capability, Role

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]


def test_shown_once_and_hashed(acme: Any) -> None:
    made = acme.client().post(acme.path("keys"), {"name": "ci"}, format="json")
    assert made.status_code == 201
    assert made["Cache-Control"] == "no-store"
    text = made.json()["secret"]
    parts = key_secret.parse(text)
    assert parts is not None
    assert text.startswith(f"lk_{made.json()['prefix']}_")
    assert re.fullmatch("[A-Za-z0-9]{43}", parts.secret)
    listed = acme.client().get(acme.path("keys"))
    assert parts.secret not in listed.content.decode()
    assert parts.secret not in serializers.serialize("json", ApiKey.objects.all())
    assert ApiKey.objects.get().secret_hash == key_secret.hash_secret(parts.secret)


def test_the_pepper_matters(acme: Any, settings: Any) -> None:
    _, text = acme.key()
    assert authenticate_key(text) is not None
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"key_pepper": "another-pepper"})
    assert authenticate_key(text) is None


def test_principal(acme: Any) -> None:
    key, text = acme.key(scopes=["infer"])
    principal = authenticate_key(text)
    assert isinstance(principal, Principal)
    assert principal.tenant == acme.tenant
    assert principal.api_key == key
    assert principal.capabilities == {Capability.INFER}


@pytest.mark.parametrize("change", [{"revoked_at": -1}, {"expires_at": -1}], ids=["revoked", "expired"])
def test_dead_keys(acme: Any, change: dict[str, int]) -> None:
    key, text = acme.key()
    field, hours = next(iter(change.items()))
    ApiKey.objects.filter(pk=key.pk).update(**{field: timezone.now() + timedelta(hours=hours)})
    assert authenticate_key(text) is None


@pytest.mark.parametrize(
    "text", ["", "lk_", "lk__", "lk_abc", "sk_abcdefgh_secret", "lk_abcdefgh_" + "x" * 500, "lk_\x00_\x00", "🦜"]
)
def test_nonsense(acme: Any, text: str) -> None:
    assert authenticate_key(text) is None


def test_wrong_secret_for_a_known_prefix(acme: Any) -> None:
    key, _ = acme.key()
    assert authenticate_key(f"lk_{key.prefix}_wrong") is None


def test_a_key_is_no_more_than_its_maker(acme: Any) -> None:
    with pytest.raises(LorikeetError) as refused:
        acme.key(scopes=["keys.write"])
    assert refused.value.code == "unknown_scope"
    key, _ = acme.key(role=Role.DEVELOPER)
    assert set(key.scopes) == {"view", "infer", "adapters.write"}


def test_expiry_in_the_past(acme: Any) -> None:
    body = {"name": "k", "expires_at": "2020-01-01T00:00:00Z"}
    answer = acme.client().post(acme.path("keys"), body, format="json")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "expires_at")


def test_revoking(acme: Any) -> None:
    key, text = acme.key()
    assert acme.client().delete(acme.path(f"keys/{key.pk}")).status_code == 204
    assert authenticate_key(text) is None
    assert acme.client().get(acme.path("keys")).json()[0]["revoked_at"] is not None


def test_no_write_per_use(acme: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("control_plane.identity.keys.auth.last_used", LastUsed(flush_every_s=1e9))
    key, text = acme.key()
    authenticate_key(text)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        for _ in range(5):
            authenticate_key(text)
    assert [q["sql"].split()[0] for q in queries] == ["SELECT"] * 5
    uses = LastUsed(flush_every_s=1e9)
    uses.note(key)
    uses.note(key)
    uses.flush()
    key.refresh_from_db()
    assert key.last_used_at is not None


def test_a_late_batch_does_not_go_back_in_time(acme: Any) -> None:
    key, _ = acme.key()
    uses = LastUsed(flush_every_s=1e9)
    uses.flush()
    uses.note(key)
    later = timezone.now() + timedelta(minutes=1)
    ApiKey.objects.filter(pk=key.pk).update(last_used_at=later)
    uses.flush()
    key.refresh_from_db()
    assert key.last_used_at == later


def rotate(org: Any, key: ApiKey, grace_s: int = 3600, role: Role = Role.OWNER) -> Any:
    return org.client(role).post(org.path(f"keys/{key.pk}/rotate"), {"grace_s": grace_s}, format="json")


def test_rotation_with_grace(acme: Any) -> None:
    key, old = acme.key()
    answer = rotate(acme, key)
    assert (answer.status_code, answer["Cache-Control"]) == (200, "no-store")
    new = answer.json()["secret"]
    assert new != old
    assert new.startswith(f"lk_{key.prefix}_")
    assert authenticate_key(new) is not None
    assert authenticate_key(old) is not None
    ApiKey.objects.update(previous_until=timezone.now() - timedelta(seconds=1))
    assert authenticate_key(old) is None
    assert authenticate_key(new) is not None


def test_rotation_without_grace_and_twice(acme: Any) -> None:
    key, first = acme.key()
    second = rotate(acme, key).json()["secret"]
    third = rotate(acme, key).json()["secret"]
    assert [authenticate_key(text) is not None for text in (first, second, third)] == [False, True, True]
    fourth = rotate(acme, key, 0).json()["secret"]
    key.refresh_from_db()
    assert key.accepted_hashes(timezone.now() - timedelta(hours=1)) == [key.secret_hash], "for a clock that is behind"
    assert [authenticate_key(text) is not None for text in (third, fourth)] == [False, True]
    rows = AuditEvent.objects.filter(action="key.rotate").order_by("id")
    assert [row.detail["grace_s"] for row in rows] == [3600, 3600, 0]
    assert fourth.split("_", 2)[2] not in str([row.detail for row in rows])


def test_what_cannot_be_rotated(acme: Any) -> None:
    key, _ = acme.key()
    assert rotate(acme, key, 10**9).status_code == 400
    assert rotate(acme, key, role=Role.VIEWER).status_code == 403
    ApiKey.objects.update(revoked_at=timezone.now())
    refused = rotate(acme, key)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "key_revoked")


def test_change(acme: Any) -> None:
    key, text = acme.key()
    path = acme.path(f"keys/{key.pk}")
    soon = timezone.now() + timedelta(days=1)
    body = {"name": "reader", "scopes": ["view"], "expires_at": soon.isoformat()}
    changed = acme.client().patch(path, body, format="json")
    assert (changed.status_code, changed.json()["scopes"]) == (200, ["view"])
    principal = authenticate_key(text)
    assert principal is not None
    assert principal.capabilities == {Capability.VIEW}
    key.refresh_from_db()
    assert (key.name, key.expires_at) == ("reader", soon)
    assert acme.client().patch(path, {"name": "again"}, format="json").json()["scopes"] == ["view"]
    for param, value in (("scopes", ["keys.write"]), ("expires_at", "2020-01-01T00:00:00Z")):
        refused = acme.client().patch(path, {param: value}, format="json")
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
