"""Batches as the console and the command line see them: whose requests they are, and who may have them run."""

from __future__ import annotations

from codecs import BOM_UTF8
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from lorikeet_testing.clients import keyed

from control_plane.gateway.batches import actions
from control_plane.gateway.batches.models import Batch
from control_plane.identity.keys.actions import revoke_key

pytestmark = pytest.mark.django_db


def send(client: Any, org: Any, key: Any = None, content: bytes = b"{}\n") -> Any:
    form = {"endpoint": "/v1/chat/completions", "file": SimpleUploadedFile("requests.jsonl", content)}
    return client.post(org.path("batches"), form | ({"key": str(key)} if key else {}), format="multipart")


def code(answer: Any) -> str:
    return str(answer.json()["error"]["code"])


def test_a_batch_from_the_console(acme: Any) -> None:
    key, _ = acme.key()
    made = send(acme.client(), acme, key.pk)
    assert made.status_code == 201
    batch = made.json()
    assert (batch["state"], batch["key"], batch["counts"]) == (
        "validating",
        key.name,
        {"total": 0, "completed": 0, "failed": 0},
    )
    [listed] = acme.client().get(acme.path("batches"), {"search": "requests"}).json()
    assert listed == acme.client().get(acme.path(f"batches/{batch['id']}")).json() == batch
    content = acme.client().get(acme.path(f"files/{batch['input_file']['id']}/content"))
    assert content["Content-Disposition"] == 'attachment; filename="requests.jsonl"'
    assert content["Content-Type"] == "application/octet-stream"
    cancelled = acme.client().post(acme.path(f"batches/{batch['id']}/cancel"))
    assert cancelled.json()["state"] == "cancelling"


def test_lines_that_are_no_requests_are_named(acme: Any) -> None:
    key, _ = acme.key()
    name = send(acme.client(), acme, key.pk).json()["id"]
    batch = actions.claim_next()
    assert batch is not None
    actions.validate(batch, lambda _: None)
    assert acme.client().get(acme.path(f"batches/{name}")).json()["bad_lines"] == 1
    [error] = acme.client().get(acme.path(f"batches/{name}/errors")).json()
    assert (error["line"], error["param"]) == (1, "custom_id")


@pytest.mark.parametrize(
    "line",
    [
        rb'{"custom_id": "\ud800", "method": "POST", "url": "/v1/chat/completions", "body": {}}',
        rb'{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"user": "\udfff"}}',
        rb'{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"n": NaN}}',
        b'{"custom_id": "a\xff"}',
        b"[1]",
        b"{" * 100_000,
        b'{"custom_id": ' + b"9" * 5000 + b"}",
    ],
    ids=["half-pair", "half-pair-in-the-body", "nan", "not-utf-8", "list", "deep", "long-number"],
)
def test_a_line_that_no_database_could_store_fails_the_batch(acme: Any, line: bytes) -> None:
    """It failed for ever before: the batch was validated again and again until it expired."""
    key, _ = acme.key()
    name = send(acme.client(), acme, key.pk, line + b"\n").json()["id"]
    batch = actions.claim_next()
    assert batch is not None
    actions.validate(batch, lambda _: None)
    assert acme.client().get(acme.path(f"batches/{name}")).json()["state"] == "failed"
    [error] = acme.client().get(acme.path(f"batches/{name}/errors")).json()
    assert error["line"] == 1


def test_a_file_with_a_byte_order_mark_and_blank_lines_is_read(acme: Any) -> None:
    key, _ = acme.key()
    line = b'{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"user": "\\u0000"}}'
    name = send(acme.client(), acme, key.pk, BOM_UTF8 + line + b"\r\n \r\n\n").json()["id"]
    batch = actions.claim_next()
    assert batch is not None
    actions.validate(batch, lambda _: None)
    read = acme.client().get(acme.path(f"batches/{name}")).json()
    assert (read["state"], read["counts"]["total"]) == ("in_progress", 1)


def test_a_key_runs_batches_of_its_own_only(acme: Any, globex: Any) -> None:
    other, _ = acme.key()
    own, secret = acme.key()
    assert send(keyed(secret), acme).json()["key"] == own.name
    assert send(keyed(secret), acme, own.pk).status_code == 201
    assert code(send(keyed(secret), acme, other.pk)) == "key_not_own"
    foreign, _ = globex.key()
    assert code(send(acme.client(), acme, foreign.pk)) == "key_not_found"
    assert code(send(acme.client(), acme)) == "key_required"
    assert Batch.objects.for_tenant(acme.tenant).count() == 2


def test_a_key_that_may_not_infer_runs_none(acme: Any) -> None:
    reading, _ = acme.key(scopes=["view"])
    revoked, _ = acme.key()
    revoke_key(acting=acme.principal(), key=revoked)
    for key in (reading, revoked):
        assert code(send(acme.client(), acme, key.pk)) == "key_not_usable"


def test_a_batch_that_is_refused_leaves_no_file(acme: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "MAX_OPEN", 0)
    key, _ = acme.key()
    assert code(send(acme.client(), acme, key.pk)) == "too_many_batches"
    assert acme.client().get(acme.path("files")).json() == []
