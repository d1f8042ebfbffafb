"""SQLite with a full disk, or locked by another process: 507 or 503 with Retry-After, and all goes on afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import OperationalError, connection, transaction
from lorikeet_testing.platform_fixtures import Org

from control_plane.core.unavailable import DatabaseFullError, as_unavailable
from control_plane.gateway.dispatch import errors
from control_plane.identity.keys.models import ApiKey

pytestmark = [pytest.mark.embedded, pytest.mark.django_db(transaction=True)]
MANY = 300


def pragma(what: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA {what}")
        row = cursor.fetchone()
    return int(row[0]) if row else 0


@contextmanager
def no_more_pages() -> Iterator[None]:
    """The database may not grow, as on a full disk."""
    most = pragma("max_page_count")
    pragma(f"max_page_count = {pragma('page_count')}")
    try:
        yield
    finally:
        pragma(f"max_page_count = {most}")


@contextmanager
def locked() -> Iterator[None]:
    """By somebody else, for longer than this process waits."""
    is_locked, done = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            ApiKey.objects.update(name="held")
            is_locked.set()
            done.wait(30)
            transaction.set_rollback(True)
        connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    assert is_locked.wait(10)
    waits = pragma("busy_timeout")
    pragma("busy_timeout = 50")
    try:
        yield
    finally:
        pragma(f"busy_timeout = {waits}")
        done.set()
        holder.join()


def test_a_full_disk(acme: Org) -> None:
    client = acme.client()
    with no_more_pages():
        for number in range(MANY):
            answer = client.post(acme.path("keys"), {"name": f"key {number} {'x' * 60}"}, format="json")
            if answer.status_code != 201:
                break
        assert answer.status_code == 507, answer.content
        assert answer.json()["error"]["code"] == "database_full"
        assert int(answer["Retry-After"]) >= 1
        assert client.get(acme.path("keys")).status_code == 200, "it can still be read"
    made = ApiKey.objects.count()
    assert made == number, "what was refused left nothing behind"
    assert client.post(acme.path("keys"), {"name": "after"}, format="json").status_code == 201


def test_a_locked_database(acme: Org) -> None:
    client = acme.client()
    acme.key()
    with locked():
        answer = client.post(acme.path("keys"), {"name": "meanwhile"}, format="json")
        assert answer.status_code == 503, answer.content
        assert answer.json()["error"]["code"] == "database_unavailable"
        assert int(answer["Retry-After"]) >= 1
    assert client.post(acme.path("keys"), {"name": "meanwhile"}, format="json").status_code == 201


def test_inference_says_so_too(acme: Org) -> None:
    with no_more_pages(), pytest.raises(OperationalError) as raised:
        for _ in range(MANY):
            with transaction.atomic():
                ApiKey.objects.bulk_create(
                    ApiKey(tenant=acme.tenant, name="x" * 60, prefix=f"{n}", secret_hash=f"{n}") for n in range(100)
                )
                transaction.set_rollback(True)
    assert isinstance(as_unavailable(raised.value), DatabaseFullError)
    answer = errors.of(raised.value).response()
    assert answer.status_code == 507
    assert int(answer["Retry-After"]) >= 1
    assert b"database_full" in answer.content


def test_a_mistake_in_sql_is_no_outage() -> None:
    with pytest.raises(OperationalError) as raised, connection.cursor() as cursor:
        cursor.execute("SELECT missing FROM nowhere")
    assert as_unavailable(raised.value) is None
    assert errors.of(raised.value).status == 500
