"""Webhooks: what is told, signed how, tried how often, and where it never goes."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from control_plane.adapters.actions import promote_version
from control_plane.audit.models import AuditEvent
from control_plane.tenants.roles import Role
from control_plane.webhooks import delivery, sending, tasks
from control_plane.webhooks.addresses import AddressRefusedError, is_public, resolve
from control_plane.webhooks.events import publish, publish_quota
from control_plane.webhooks.models import Attempt, Delivery, DeliveryState, Endpoint, Event, EventType
from control_plane.webhooks.signing import GRACE

pytestmark = pytest.mark.django_db


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
    """Run what was queued for the webhook worker."""
    calls, queue.calls = queue.calls, []
    for name, args in calls:
        if name == "webhooks.deliver":
            tasks.deliver(*args)


def verify(secret: str, headers: dict[str, str], body: bytes) -> bool:
    """As docs/api.md tells receivers to."""
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
    assert not verify("whsec_other", headers, body)
    assert set(Delivery.objects.values_list("state", flat=True)) == {"delivered"}


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
    tasks.deliver_due()
    assert queue.calls == [], "not before its pause is over"
    for _ in range(2):
        make_due()
        tasks.deliver_due()
        work(queue)
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
        work(queue)
        make_due()
        tasks.deliver_due()
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
    row = Delivery.objects.get()
    assert delivery.deliver(str(row.pk)) is not None
    assert delivery.deliver(str(row.pk)) is None
    assert len(receiver.seen) == 1


def test_a_worker_that_died_is_replaced(acme: Any, receiver: Receiver, queue: Any, monkeypatch: Any) -> None:
    register(acme, receiver.url)
    publish(acme.tenant, EventType.VERSION_READY, {})

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(sending, "post", die)
        delivery.deliver(str(Delivery.objects.get().pk))
    row = Delivery.objects.get()
    assert row.state == "pending"
    assert timezone.now() < row.next_attempt_at <= timezone.now() + delivery.CLAIM


def test_a_dead_endpoint_rests(acme: Any, receiver: Receiver, queue: Any) -> None:
    """A black hole must not take up every worker: after one failure its other messages wait with it."""
    register(acme, receiver.url)
    receiver.answers = [500]
    for _ in range(5):
        publish(acme.tenant, EventType.VERSION_READY, {})
    for pk in Delivery.objects.values_list("pk", flat=True):
        tasks.deliver(str(pk))
    assert len(receiver.seen) == 1
    Endpoint.objects.update(rests_until=timezone.now())
    tasks.deliver_due()
    assert len(queue.calls) == 1


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
        Endpoint.objects.update(rotated_at=timezone.now() - GRACE)
    assert [verify(hook["secret"], *message) for message in receiver.seen] == [True, False]
    assert [verify(new, *message) for message in receiver.seen] == [True, True]
    assert "secret" not in acme.client().get(path).json()


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


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/", "ftp://example.org/", "https://", "https://user:pass@example.org/", "nonsense",
        "https://127.0.0.1/", "https://[::1]/", "https://169.254.169.254/latest/meta-data", "https://10.0.0.1:8000/",
        "https://[::ffff:10.0.0.1]/", "https://example.org:99999/", "https://example.org/#x", "https://exa mple.org/",
    ],
)  # fmt: skip
def test_urls_refused_at_once(acme: Any, url: str) -> None:
    answer = acme.client().post(acme.path("webhooks"), {"url": url}, format="json")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "url"
    assert not Endpoint.objects.exists()


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
        "255.255.255.255", "224.0.0.1", "240.0.0.1", "::1", "::", "fe80::1", "fc00::1", "ff02::1", "::ffff:127.0.0.1",
        "64:ff9b::7f00:1", "2002:7f00:1::", "2001:db8::1", "198.18.0.1", "192.0.2.1",
    ],
)  # fmt: skip
def test_private_addresses(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", ["93.184.216.34", "1.1.1.1", "2606:4700::1111", "64:ff9b::101:101"])
def test_public_addresses(address: str) -> None:
    assert is_public(ip_address(address))


def answers_with(*addresses: str) -> Any:
    return lambda host, port, **_: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (entry, port)) for entry in addresses]


def test_a_name_that_leads_inside_is_refused_when_it_is_used(acme: Any, queue: Any, monkeypatch: Any) -> None:
    register(acme, "https://rebinding.example.org/")
    publish(acme.tenant, EventType.VERSION_READY, {})
    monkeypatch.setattr(socket, "getaddrinfo", answers_with("93.184.216.34", "10.0.0.5"))
    monkeypatch.setattr(socket, "create_connection", lambda *_: pytest.fail("it connected"))
    result = delivery.deliver(str(Delivery.objects.get().pk))
    assert result is not None
    assert result.status is None
    assert "not a public address" in Attempt.objects.get().error
    with pytest.raises(AddressRefusedError):
        resolve("rebinding.example.org", 443)


def test_the_checked_address_is_the_one_connected_to(receiver: Receiver, monkeypatch: Any) -> None:
    """The second look-up, which a rebinding name server answers otherwise, does not happen."""
    lookups: list[str] = []

    def lookup(host: str, port: int, **options: Any) -> Any:
        lookups.append(host)
        return answers_with("127.0.0.1")(host, port)

    real = socket.create_connection
    monkeypatch.setattr(sending, "resolve", lambda host, port: [lookup(host, port)[0][4][0]])
    connected: list[Any] = []
    monkeypatch.setattr(socket, "create_connection", lambda to, *rest: (connected.append(to), real(to, *rest))[1])
    assert sending.post(f"http://hooks.example.org:{receiver.server_port}/x", b"{}", {}) == 200
    assert lookups == ["hooks.example.org"]
    assert connected == [("127.0.0.1", receiver.server_port)]
    assert receiver.seen[0][0]["Host"] == f"hooks.example.org:{receiver.server_port}"


def test_tls_is_checked_against_the_name(receiver: Receiver) -> None:
    with pytest.raises((ssl.SSLError, OSError)):
        sending.post(receiver.url.replace("http:", "https:"), b"{}", {})


def test_a_server_that_drips_is_cut_off(receiver: Receiver, monkeypatch: Any) -> None:
    monkeypatch.setattr(sending, "WHOLE_TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 ")
                for _ in range(300):
                    try:
                        connection.sendall(b"2")
                    except OSError:
                        return
                    threading.Event().wait(0.1)

        threading.Thread(target=drip, daemon=True).start()
        began = time.monotonic()
        with pytest.raises((OSError, http.client.HTTPException)):
            sending.post(f"http://127.0.0.1:{server.getsockname()[1]}/", b"{}", {})
        assert time.monotonic() - began < 5
