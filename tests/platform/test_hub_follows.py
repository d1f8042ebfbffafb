"""Adapters that follow a branch of the Hub: a move makes a version, and nothing goes live by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from lorikeet_testing.hub_server import HubServer, commit_of, running_hub
from lorikeet_testing.peft_files import adapter_files
from lorikeet_testing.platform_fixtures import Org

from control_plane.adapters.imports import follows
from control_plane.adapters.imports.models import HubFollow
from control_plane.adapters.registry import versions
from control_plane.adapters.registry.models import AdapterVersion, Alias
from control_plane.adapters.uploads import validation_job
from control_plane.adapters.uploads.models import Upload
from control_plane.identity.audit.models import AuditEvent

pytestmark = pytest.mark.django_db
SOURCE = "hub:Org/Adapter@main"
FIRST, SECOND = adapter_files(), adapter_files(seed=1)


@pytest.fixture
def hub(settings: Any, host: Any, queue: Any, in_process: None) -> Iterator[HubServer]:
    with running_hub() as server:
        server.repositories["Org/Adapter"] = {"main": FIRST}
        settings.LORIKEET = settings.LORIKEET.model_copy(update={"hub_url": server.url, "import_allow_private": True})
        yield server


@pytest.fixture
def look(committing: Any) -> Callable[[], int]:
    """As if its time had come; what is imported is checked, and ready."""

    def run() -> int:
        HubFollow.objects.update(next_check_at=timezone.now() - timedelta(seconds=1))
        with committing():
            looked = follows.poll_due()
            while validation_job.validate_next():
                pass
        for version in AdapterVersion.objects.exclude(state="ready"):
            with committing():
                versions.mark_version_ready(versions.mark_version_staging(version))
        return looked

    return run


def follow(org: Org, source: str = SOURCE, name: str = "support") -> Any:
    return org.client().post(org.path("follows"), {"name": name, "source": source}, format="json")


def test_a_move_makes_a_version_and_promotes_nothing(acme: Org, hub: HubServer, look: Any) -> None:
    assert follow(acme).status_code == 201
    look()
    assert Alias.objects.get(name="live").version.number == 1, "the first of an adapter, as with every upload"
    look()
    assert Upload.objects.count() == 1, "it has not moved"
    hub.repositories["Org/Adapter"] = {"main": SECOND, "old": FIRST}
    look()
    assert [version.number for version in AdapterVersion.objects.order_by("number")] == [1, 2]
    assert Alias.objects.get(name="live").version.number == 1
    moved = AuditEvent.objects.filter(action="follow.moved").order_by("id").values_list("detail", flat=True)
    assert [(row["before"], row["commit"]) for row in moved] == [
        ("", commit_of(FIRST)),
        (commit_of(FIRST), commit_of(SECOND)),
    ]
    shown = acme.client().get(acme.path("follows")).json()[0]
    assert (shown["name"], shown["commit"], shown["problem"]) == ("support", commit_of(SECOND), None)


def test_versions_are_numbered_as_the_branch_moved(
    acme: Org, hub: HubServer, look: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A move during the import of the commit before it waits for its end, however long that takes."""
    follow(acme)
    with monkeypatch.context() as away:
        away.setattr(validation_job, "validate_next", lambda: False)
        look()
        hub.repositories["Org/Adapter"] = {"main": SECOND, "old": FIRST}
        look()
        assert Upload.objects.count() == 1
    for _ in range(2):
        look()
    commits = [upload.source and upload.source["commit"] for upload in Upload.objects.order_by("version__number")]
    assert commits == [commit_of(FIRST), commit_of(SECOND)]


def test_a_refused_import_is_shown_and_repeated_if_its_reason_may_pass(
    acme: Org, hub: HubServer, look: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = lambda: acme.client().get(acme.path("follows")).json()[0]["problem"]  # noqa: E731
    follow(acme)
    with monkeypatch.context() as away:
        away.setattr(follows.hub, "commit_at", lambda *_: commit_of(FIRST))
        hub.status = 401
        look()
        look()
        assert Upload.objects.count() == 1, "the next attempt is after a while"
        assert shown()["code"] == "source_forbidden"
        hub.status = None
        Upload.objects.update(updated_at=timezone.now() - timedelta(hours=1))
        look()
    assert [upload.state for upload in Upload.objects.order_by("created_at")] == ["refused", "accepted"]
    assert shown() is None
    assert AuditEvent.objects.filter(action="follow.moved").count() == 1

    hub.repositories["Org/Adapter"] = {"main": {"adapter_config.json": b"{}"}}
    for _ in range(2):
        look()
        Upload.objects.update(updated_at=timezone.now() - timedelta(days=2))
    assert Upload.objects.count() == 3, "these files would be refused again"
    assert shown()["code"] == Upload.objects.latest("created_at").reason["code"]


def test_ended_it_is_looked_at_no_more(acme: Org, globex: Org, hub: HubServer, look: Any) -> None:
    made = follow(acme).json()["id"]
    assert globex.client().get(globex.path("follows")).json() == []
    assert globex.client().delete(globex.path(f"follows/{made}")).status_code == 404
    assert acme.client().delete(acme.path(f"follows/{made}")).status_code == 204
    assert look() == 0
    assert not hub.seen
    actions = AuditEvent.objects.filter(action__startswith="follow.").order_by("id").values_list("action", flat=True)
    assert list(actions) == ["follow.add", "follow.remove"]


def test_looked_at_once_in_a_while(acme: Org, hub: HubServer, settings: Any) -> None:
    follow(acme)
    assert follows.poll_due() == 1
    assert follows.poll_due() == 0
    rest_s = (HubFollow.objects.get().next_check_at - timezone.now()).total_seconds()
    assert 0.7 * settings.LORIKEET.follow_poll_s < rest_s < 1.3 * settings.LORIKEET.follow_poll_s


@pytest.mark.parametrize(("status", "code"), [(503, "source_unavailable"), (404, "source_not_found")])
def test_what_fails_is_told_and_rests_longer(acme: Org, hub: HubServer, look: Any, status: int, code: str) -> None:
    follow(acme)
    hub.status = status
    for _ in range(3):
        look()
    kept = HubFollow.objects.get()
    assert kept.problem is not None
    assert (kept.failures, kept.problem["code"]) == (3, code)
    assert (kept.next_check_at - timezone.now()).total_seconds() > 5 * 900
    hub.status = None
    look()
    kept = HubFollow.objects.get()
    assert (kept.failures, kept.problem, kept.commit) == (0, None, commit_of(FIRST))


def test_a_limit_of_the_tenant_is_told_and_the_commit_tried_again(
    acme: Org, hub: HubServer, look: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from control_plane.adapters.uploads import actions

    follow(acme)
    monkeypatch.setattr(actions, "MAX_WAITING", 0)
    look()
    kept = HubFollow.objects.get()
    assert kept.problem is not None
    assert (kept.commit, kept.problem["code"]) == ("", "too_many_unfinished_uploads")
    monkeypatch.undo()
    look()
    assert HubFollow.objects.get().commit == commit_of(FIRST)


def test_of_two_workers_one_looks(acme: Org, hub: HubServer) -> None:
    follow(acme)
    assert follows._claim() is not None
    assert follows._claim() is None


def test_a_suspended_tenants_are_left_alone(acme: Org, hub: HubServer, look: Any) -> None:
    follow(acme)
    acme.tenant.suspended_at = timezone.now()
    acme.tenant.save(update_fields=["suspended_at"])
    assert look() == 0


def test_what_cannot_be_followed(acme: Org, hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for source in ("hub:Org/Adapter@" + "a" * 40, "https://example.org/a.zip", "hub:Org", "s3://bucket/x"):
        assert follow(acme, source).status_code == 400
    assert follow(acme).status_code == 201
    assert follow(acme).json()["error"]["code"] == "followed_already"
    monkeypatch.setattr(follows, "MAX_FOLLOWS", 1)
    assert follow(acme, name="another").json()["error"]["code"] == "too_many_follows"
