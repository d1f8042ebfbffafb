"""Webhooks: what is told, signed how, tried how often, and where it never goes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone
from lorikeet_testing.concurrent import while_another_commits
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from control_plane.adapters.registry.versions import promote_version
from control_plane.console.webhooks import actions, delivery, tasks
from control_plane.console.webhooks.events import publish, publish_quota
from control_plane.console.webhooks.models import Delivery, DeliveryState, Endpoint, Event, EventType
from control_plane.console.webhooks.signing import GRACE, MAX_REPLACED, secret_of
from control_plane.core.http import egress
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.tenants.roles import Role

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]


class Receiver(ThreadingHTTPServer):
    """A tenant's server. `answers` are statuses to give in turn, 200 after them."""

    daemon_threads = True

    def __init__(self) -> None:
        self.seen: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[int] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.seen.append((dict(self.headers), body))
                status = outer.answers.pop(0) if outer.answers else 200
                self.send_response(status)
                self.send_header("Location", "http://127.0.0.1:1/")
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hooks?from=lorikeet"


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"webhook_allow_private": True})
    server = Receiver()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


def register(org: Any, url: str, **more: Any) -> dict[str, Any]:
    answer = org.client().post(org.path("webhooks"), {"url": url, **more}, format="json")
    assert answer.status_code == 201, answer.content
    return dict(answer.json())


def work(queue: Any) -> None:
    """Run what was queued for the webhook worker, and what that asks for."""
    while any(name == "webhooks.deliver_next" for name, _ in queue.calls):
        calls, queue.calls = queue.calls, []
        for name, args in calls:
            if name == "webhooks.deliver_next":
                tasks.deliver_next(*args)


def verify(secret: str, headers: dict[str, str], body: bytes) -> bool:
    """As a receiver does, by a library that knows nothing of Lorikeet."""
    try:
        Webhook(secret).verify(body, headers)
    except WebhookVerificationError:
        return False
    return True


def verify_1(secret: str, headers: dict[str, str], body: bytes) -> bool:
    """Version 1, as receivers were told to before there was a version 2."""
    parts = [part.split("=", 1) for part in headers["Lorikeet-Signature"].split(",")]
    at = next(value for name, value in parts if name == "t")
    right = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return any(hmac.compare_digest(right, value) for name, value in parts if name == "v1")


def test_an_adapter_becomes_ready(acme: Any, globex: Any, receiver: Receiver, ready_version: Any, queue: Any) -> None:
    secret = register(acme, receiver.url, events=["version.ready", "version.promoted"])["secret"]
    register(globex, receiver.url)
    ready_version(acme)
    work(queue)
    bodies = [json.loads(body) for _, body in receiver.seen]
    assert sorted(body["type"] for body in bodies) == ["version.promoted", "version.ready"]
    assert {body["tenant"] for body in bodies} == {"acme"}
    assert {body["data"]["target"] for body in bodies} == {"support@v1"}
    headers, body = receiver.seen[0]
    assert verify(secret, headers, body)
    assert not verify(secret, headers, body + b" ")
    assert not verify("whsec_b3RoZXI=", headers, body)
    assert set(Delivery.objects.values_list("state", flat=True)) == {"delivered"}


def test_a_message_that_is_sent_again_has_its_id(acme: Any, receiver: Receiver, queue: Any) -> None:
    secret = register(acme, receiver.url)["secret"]
    receiver.answers = [500]
    publish(acme.tenant, EventType.VERSION_READY, {})
    for _ in range(2):
        make_due()
        delivery.deliver_next()
    assert all(verify(secret, *message) for message in receiver.seen)
    first, second = (headers["webhook-id"] for headers, _ in receiver.seen)
    assert first == second == json.loads(receiver.seen[0][1])["id"]


def test_receivers_of_version_1_go_on_working(acme: Any, receiver: Receiver, queue: Any) -> None:
    """Under the secret as it is shown now, and as it was shown then: another alphabet, no padding."""
    secret = register(acme, receiver.url)["secret"]
    publish(acme.tenant, EventType.VERSION_READY, {})
    delivery.deliver_next()
    headers, body = receiver.seen[0]
    key = base64.b64decode(secret.removeprefix("whsec_"))
    shown_then = "whsec_" + base64.urlsafe_b64encode(key).decode().rstrip("=")
    assert verify_1(secret, headers, body) and verify_1(shown_then, headers, body)
    assert not verify_1(secret, headers, body + b" ")
    rewritten = shown_then.removeprefix("whsec_").replace("-", "+").replace("_", "/") + "="
    assert "whsec_" + rewritten == secret, "as docs/api.md says"


def test_no_event_without_its_write(acme: Any, receiver: Receiver, ready_version: Any, queue: Any) -> None:
    version = ready_version(acme)
    register(acme, receiver.url)
    before = AuditEvent.objects.count()
    with pytest.raises(RuntimeError), transaction.atomic():
        promote_version(acting=acme.principal(), version=version)
        raise RuntimeError("the transaction fails after all")
    assert AuditEvent.objects.count() == before
    assert not Event.objects.exists()


def test_retries_then_delivers(acme: Any, receiver: Receiver, queue: Any, committing: Any, monkeypatch: Any) -> None:
    hook = register(acme, receiver.url)
    receiver.answers = [500, 302]
    with committing():
        acme.client().post(acme.path(f"webhooks/{hook['id']}/test"))
    work(queue)
    row = Delivery.objects.get()
    assert (row.state, row.attempts, row.endpoint.failures) == ("pending", 1, 1)
    assert row.next_attempt_at > timezone.now() + timedelta(seconds=5)
    assert delivery.deliver_next() is None, "not before its pause is over"
    for _ in range(2):
        make_due()
        delivery.deliver_next()
    row.refresh_from_db()
    assert (row.state, row.attempts, row.endpoint.failures) == ("delivered", 3, 0)
    assert [try_.status for try_ in row.log.all()] == [200, 302, 500]
    assert len({body for _, body in receiver.seen}) == 1


def make_due() -> None:
    Delivery.objects.filter(state="pending").update(next_attempt_at=timezone.now())
    Endpoint.objects.update(rests_until=None)


def test_gives_up_and_can_be_sent_again(acme: Any, receiver: Receiver, queue: Any, committing: Any) -> None:
    hook = register(acme, receiver.url)
    receiver.answers = [503] * (len(delivery.PAUSES) + 1)
    with committing():
        publish(acme.tenant, EventType.VERSION_READY, {})
    for _ in range(len(delivery.PAUSES) + 3):
        delivery.deliver_next()
        make_due()
    row = Delivery.objects.get()
    assert (row.state, row.attempts) == (DeliveryState.FAILED, len(delivery.PAUSES) + 1)
    replay = acme.path(f"webhooks/{hook['id']}/deliveries/{row.pk}/replay")
    with committing():
        assert acme.client().post(replay).status_code == 202
    work(queue)
    listed = acme.client().get(acme.path(f"webhooks/{hook['id']}/deliveries")).json()
    assert [(item["state"], item["attempts"]) for item in listed] == [("delivered", 1)]
    assert len(listed[0]["log"]) == len(delivery.PAUSES) + 2


def test_claimed_once(acme: Any, receiver: Receiver, queue: Any) -> None:
    register(acme, receiver.url)
    publish(acme.tenant, EventType.VERSION_READY, {})
    assert delivery.claim_next() is not None
    assert delivery.deliver_next() is None
    assert receiver.seen == []


def test_a_worker_that_died_is_replaced(acme: Any, receiver: Receiver, queue: Any, monkeypatch: Any) -> None:
    register(acme, receiver.url)
    publish(acme.tenant, EventType.VERSION_READY, {})

    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(egress, "post", die)
        delivery.deliver_next()
    assert delivery.deliver_next() is None, "it may be on its way"
    Delivery.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))
    assert delivery.deliver_next() is not None
    assert Delivery.objects.get().state == "delivered"


def test_a_dead_endpoint_rests(acme: Any, receiver: Receiver, queue: Any) -> None:
    """A black hole must not take up every worker: after one failure its other messages wait with it."""
    register(acme, receiver.url)
    receiver.answers = [500]
    for _ in range(5):
        publish(acme.tenant, EventType.VERSION_READY, {})
    for _ in range(5):
        delivery.deliver_next()
    assert len(receiver.seen) == 1
    Endpoint.objects.update(rests_until=timezone.now())
    while delivery.deliver_next():
        pass
    assert len(receiver.seen) == 5, "the others follow as soon as it answers; the first keeps its pause"


def test_told_once(acme: Any, receiver: Receiver, queue: Any) -> None:
    register(acme, receiver.url)
    assert publish(acme.tenant, EventType.QUOTA_WARNING, {}, occasion="month-2026-05-80")
    assert publish(acme.tenant, EventType.QUOTA_WARNING, {}, occasion="month-2026-05-80") is None
    assert publish(acme.tenant, EventType.QUOTA_WARNING, {}, occasion="month-2026-06-80")


def test_a_quota_is_told_at_its_warning_and_at_its_end(acme: Any, receiver: Receiver, queue: Any) -> None:
    register(acme, receiver.url)
    for used in (0, 79, 80, 95, 100, 120):
        publish_quota(acme.tenant, limit="tokens_per_month", period="2026-05", used=used, allowed=100)
    publish_quota(acme.tenant, limit="tokens_per_month", period="2026-06", used=100, allowed=100)
    publish_quota(acme.tenant, limit="none", period="2026-06", used=100, allowed=0)
    told = [(event.type, event.data["used"]) for event in Event.objects.order_by("created_at")]
    assert told == [("quota.warning", 80), ("quota.exhausted", 100), ("quota.exhausted", 100)]


def test_rotation_signs_under_both_for_a_day(acme: Any, receiver: Receiver, queue: Any, committing: Any) -> None:
    hook = register(acme, receiver.url)
    path = acme.path(f"webhooks/{hook['id']}")
    rotated = acme.client().post(f"{path}/rotate")
    new = rotated.json()["secret"]
    assert rotated["Cache-Control"] == "no-store"
    assert new != hook["secret"]
    for _ in range(2):
        with committing():
            acme.client().post(f"{path}/test")
        work(queue)
        Endpoint.objects.update(replaced_at=[(timezone.now() - GRACE).isoformat()])
    for check in (verify, verify_1):
        assert [check(hook["secret"], *message) for message in receiver.seen] == [True, False]
        assert [check(new, *message) for message in receiver.seen] == [True, True]
    assert "secret" not in acme.client().get(path).json()


def test_two_people_rotate_a_secret_at_once(acme: Any, receiver: Receiver, queue: Any) -> None:
    """Each gets another secret, and the one that the receiver still has is good for a day."""
    secrets = [register(acme, receiver.url)["secret"]]
    endpoint = Endpoint.objects.get()
    secrets += [secret_of(actions.rotate_secret(acting=acme.principal(), endpoint=endpoint)) for _ in range(2)]
    assert len(set(secrets)) == 3
    publish(acme.tenant, EventType.VERSION_READY, {})
    delivery.deliver_next()
    assert [verify(secret, *receiver.seen[0]) for secret in secrets] == [True, True, True]
    for _ in range(MAX_REPLACED):
        actions.rotate_secret(acting=acme.principal(), endpoint=endpoint)
    publish(acme.tenant, EventType.VERSION_READY, {})
    delivery.deliver_next()
    assert [verify(secret, *receiver.seen[1]) for secret in secrets] == [False, False, True]


def test_what_is_changed_was_deleted_meanwhile(acme: Any, receiver: Receiver, queue: Any) -> None:
    register(acme, receiver.url)
    gone, message = Endpoint.objects.get(), queued(acme)
    actions.delete_endpoint(acting=acme.principal(), endpoint=gone)
    changes: list[Callable[[], object]] = [
        lambda: actions.change_endpoint(
            acting=acme.principal(), endpoint=gone, settings=actions.WebhookSettings(receiver.url, "", [], True)
        ),
        lambda: actions.rotate_secret(acting=acme.principal(), endpoint=gone),
        lambda: actions.send_test(acting=acme.principal(), endpoint=gone),
        lambda: actions.replay(acting=acme.principal(), delivery=message),
        lambda: actions.delete_endpoint(acting=acme.principal(), endpoint=gone),
    ]
    for change in changes:
        with pytest.raises(actions.WebhookNotFoundError):
            change()


def queued(org: Any) -> Delivery:
    publish(org.tenant, EventType.VERSION_READY, {})
    return Delivery.objects.select_related("endpoint").get()


@pytest.mark.services
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("deleted_first", [True, False])
def test_an_endpoint_is_deleted_while_an_event_is_published(
    acme: Any, receiver: Receiver, queue: Any, deleted_first: bool
) -> None:
    """Neither the deletion nor the write that the event is part of fails."""
    register(acme, receiver.url)
    endpoint = Endpoint.objects.get()
    steps = [
        lambda: publish(acme.tenant, EventType.VERSION_READY, {}),
        lambda: actions.delete_endpoint(acting=acme.principal(), endpoint=endpoint),
    ]
    while_another_commits(*(reversed(steps) if deleted_first else steps))
    assert not Endpoint.objects.exists() and not Delivery.objects.exists()


def test_change_pause_delete(acme: Any, receiver: Receiver, queue: Any) -> None:
    hook = register(acme, receiver.url)
    path = acme.path(f"webhooks/{hook['id']}")
    body = {"url": receiver.url, "active": False, "events": ["export.ready"]}
    assert acme.client().put(path, body, format="json").json()["active"] is False
    assert publish(acme.tenant, EventType.EXPORT_READY, {}) is None
    assert acme.client(Role.DEVELOPER).delete(path).status_code == 403
    assert acme.client(Role.ADMIN).delete(path).status_code == 204
    rows = AuditEvent.objects.filter(action__startswith="webhook.").order_by("id")
    assert [row.action for row in rows] == ["webhook.create", "webhook.change", "webhook.delete"]
    assert hook["secret"] not in str([row.detail for row in rows])


@pytest.mark.services
@pytest.mark.django_db(transaction=True)
def test_an_endpoint_is_deleted_while_an_attempt_is_recorded(
    acme: Any, receiver: Receiver, queue: Any, monkeypatch: Any
) -> None:
    """The worker has locked the endpoint, and locks the message a moment later: neither is a victim of a deadlock."""
    hook = register(acme, receiver.url)
    publish(acme.tenant, EventType.VERSION_READY, {})
    message = delivery.claim_next()
    assert message is not None
    locked, failures = threading.Event(), []
    rest = delivery.Delivery.objects.select_for_update

    def a_moment_later(*arguments: Any, **options: Any) -> Any:
        locked.set()
        time.sleep(0.5)
        return rest(*arguments, **options)

    def worker() -> None:
        try:
            delivery._note(message, delivery.Result(at=timezone.now(), duration_ms=1, status=200, error=""))
        except Exception as error:
            failures.append(error)
        finally:
            connection.close()

    monkeypatch.setattr(delivery.Delivery.objects, "select_for_update", a_moment_later)
    thread = threading.Thread(target=worker)
    thread.start()
    assert locked.wait(30)
    assert acme.client(Role.ADMIN).delete(acme.path(f"webhooks/{hook['id']}")).status_code == 204
    thread.join(30)
    assert not failures and not Endpoint.objects.exists()


def test_a_tenant_has_so_many_and_not_one_more(acme: Any, receiver: Receiver, monkeypatch: Any) -> None:
    monkeypatch.setattr(actions, "MAX_ENDPOINTS", 1)
    register(acme, receiver.url)
    answer = acme.client().post(acme.path("webhooks"), {"url": receiver.url}, format="json")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "too_many_webhooks")
    assert Endpoint.objects.count() == 1


def test_what_is_not_there_cannot_be_sent_again(acme: Any, receiver: Receiver) -> None:
    hook = register(acme, receiver.url)
    answer = acme.client().post(acme.path(f"webhooks/{hook['id']}/deliveries/{uuid.uuid4()}/replay"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "delivery_not_found")


def test_a_message_that_another_worker_took_is_no_work(acme: Any, receiver: Receiver, queue: Any) -> None:
    """The line was open, and is empty when its turn comes."""
    register(acme, receiver.url)
    publish(acme.tenant, EventType.VERSION_READY, {})
    make_due()
    assert delivery.deliver_next() is not None
    queue.calls = []
    tasks.deliver_next()
    assert not queue.calls
    assert len(receiver.seen) == 1
