"""Repositories of the Hub as the model of a request: imported at the first use, when the tenant allows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from lorikeet_testing.hub_server import HubServer, running_hub
from lorikeet_testing.peft_files import adapter_files
from lorikeet_testing.platform_fixtures import Org

from control_plane.adapters.imports.actions import set_hub_models, set_hub_token
from control_plane.adapters.imports.hub_models import (
    HubModelFailedError,
    HubModelLoadingError,
    HubModelsOffError,
    TooManyHubModelsError,
    resolve_hub_model,
)
from control_plane.adapters.imports.models import HubModel
from control_plane.adapters.registry import versions
from control_plane.adapters.registry.archiving import archive_adapter, delete_archived_adapter
from control_plane.adapters.registry.models import AdapterVersion
from control_plane.adapters.registry.resolve import (
    ModelNotFoundError,
    ModelNotReadyError,
    ResolvedModel,
    find_models,
)
from control_plane.adapters.uploads import validation_job
from control_plane.adapters.uploads.models import Upload, UploadState
from control_plane.core.errors import LorikeetError
from control_plane.identity.audit.models import AuditEvent

pytestmark = pytest.mark.django_db
NAME = "hub:Org/Adapter@v1"


@pytest.fixture
def hub(settings: Any, host: Any, queue: Any, in_process: None) -> Iterator[HubServer]:
    with running_hub() as server:
        server.repositories["Org/Adapter"] = {"v1": adapter_files(), "main": adapter_files(seed=1)}
        settings.LORIKEET = settings.LORIKEET.model_copy(update={"hub_url": server.url, "import_allow_private": True})
        yield server


def allow(org: Org, *organizations: str) -> None:
    set_hub_models(acting=org.principal(), enabled=True, organizations=organizations)


def ask(org: Org, name: str = NAME) -> ResolvedModel:
    return resolve_hub_model(acting=org.principal(), name=name)


@pytest.fixture
def bring(committing: Any) -> Callable[..., AdapterVersion]:
    """Until it can be called."""

    def run(org: Org, name: str = NAME) -> AdapterVersion:
        with pytest.raises(HubModelLoadingError), committing():
            ask(org, name)
        with committing():
            validation_job.validate_next()
        version = Upload.objects.order_by("-created_at")[0].version
        assert version is not None
        with committing():
            versions.mark_version_ready(versions.mark_version_staging(version))
        return version

    return run


def test_imported_at_its_first_use(acme: Org, hub: HubServer, bring: Any) -> None:
    allow(acme)
    version = bring(acme)
    found = ask(acme)
    assert (found.version, found.digest, found.display_name) == (version, version.digest, NAME)
    assert version.adapter.name.startswith("hub-org-adapter-")
    assert bring(acme, "hub:Org/Adapter").number == 2, "another revision is another version of the same adapter"
    assert ask(acme).version == version
    assert Upload.objects.count() == 2
    assert AuditEvent.objects.filter(action="upload.import").count() == 2


def test_off_until_an_owner_allows_it(acme: Org, hub: HubServer) -> None:
    for prepare in (
        lambda: None,
        lambda: allow(acme, "another"),
        lambda: set_hub_models(acting=acme.principal(), enabled=False, organizations=[]),
    ):
        prepare()
        with pytest.raises(HubModelsOffError) as refused:
            ask(acme)
        assert refused.value.status == 403
    assert not Upload.objects.exists()
    allow(acme, "ORG")
    with pytest.raises(HubModelLoadingError):
        ask(acme)


def test_what_is_switched_off_answers_no_more(acme: Org, hub: HubServer, bring: Any) -> None:
    allow(acme)
    version = bring(acme)
    listed = find_models(acme.tenant)[0][-1]
    assert (listed.id, listed.aliases) == (version.adapter.name, [f"{version.adapter.name}@v1", NAME])
    set_hub_models(acting=acme.principal(), enabled=False, organizations=[])
    with pytest.raises(HubModelsOffError):
        ask(acme)
    assert find_models(acme.tenant)[0][-1].aliases == [f"{version.adapter.name}@v1"]


def test_asked_again_it_is_imported_once(acme: Org, hub: HubServer) -> None:
    allow(acme)
    for _ in range(3):
        with pytest.raises(HubModelLoadingError) as loading:
            ask(acme)
    assert (loading.value.status, loading.value.retry_after_s) == (503, 5)
    assert "it waits for its turn" in loading.value.message
    assert Upload.objects.count() == HubModel.objects.count() == 1


def test_another_tenants_copy_gives_nothing(
    acme: Org, globex: Org, hub: HubServer, bring: Any, committing: Any
) -> None:
    hub.token = "hf_of_acme"
    set_hub_token(acting=acme.principal(), token="hf_of_acme")
    allow(acme)
    allow(globex)
    bring(acme)
    with pytest.raises(HubModelLoadingError), committing():
        ask(globex)
    with committing():
        validation_job.validate_next()
    with pytest.raises(HubModelFailedError) as refused:
        ask(globex)
    assert (refused.value.code, refused.value.status) == ("source_forbidden", 409)
    assert not AdapterVersion.objects.for_tenant(globex.tenant).exists()


def test_a_failure_is_told_and_tried_again_later(acme: Org, hub: HubServer, committing: Any) -> None:
    allow(acme)
    with pytest.raises(HubModelLoadingError):
        ask(acme, "hub:Org/Nothing")
    with committing():
        validation_job.validate_next()
    seen = len(hub.seen)
    for _ in range(3):
        with pytest.raises(HubModelFailedError) as failed:
            ask(acme, "hub:Org/Nothing")
    assert (failed.value.code, failed.value.status) == ("source_not_found", 404)
    assert len(hub.seen) == seen
    Upload.objects.update(updated_at=timezone.now() - timedelta(hours=1))
    with pytest.raises(HubModelLoadingError):
        ask(acme, "hub:Org/Nothing")
    assert HubModel.objects.get().upload.state == UploadState.RECEIVED
    assert Upload.objects.count() == 2


def test_what_was_deleted_is_imported_anew(acme: Org, hub: HubServer, bring: Any, committing: Any) -> None:
    allow(acme)
    version = bring(acme)
    with committing():
        archive_adapter(acting=acme.principal(), adapter=version.adapter)
    with pytest.raises(ModelNotReadyError) as archived:
        ask(acme)
    assert archived.value.code == "model_archived"
    with committing():
        delete_archived_adapter(acting=acme.principal(), adapter_id=version.adapter.pk)
    assert bring(acme) != version


def test_what_could_not_become_live_by_itself_does_not_answer(acme: Org, hub: HubServer, bring: Any) -> None:
    allow(acme)
    version = bring(acme)
    AdapterVersion.objects.filter(pk=version.pk).update(effect={"verdict": "overflows"})
    with pytest.raises(ModelNotReadyError) as refused:
        ask(acme)
    assert (refused.value.code, refused.value.param) == ("effect_not_confirmed", "model")
    AdapterVersion.objects.filter(pk=version.pk).update(named_base="another", effect=None)
    with pytest.raises(ModelNotReadyError) as refused:
        ask(acme)
    assert refused.value.code == "base_not_confirmed"


def test_imports_within_an_hour_are_bounded(acme: Org, hub: HubServer, settings: Any) -> None:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"hub_models_per_hour": 2})
    allow(acme)
    for revision in ("a", "b"):
        with pytest.raises(HubModelLoadingError):
            ask(acme, f"hub:Org/Adapter@{revision}")
    with pytest.raises(TooManyHubModelsError):
        ask(acme)
    Upload.objects.update(created_at=timezone.now() - timedelta(hours=2))
    with pytest.raises(HubModelLoadingError):
        ask(acme)


def test_a_name_that_fails_again_and_again_is_counted_each_time(acme: Org, hub: HubServer, settings: Any) -> None:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"hub_models_per_hour": 3, "hub_model_retry_s": 0})
    allow(acme)
    for _ in range(3):
        with pytest.raises(HubModelLoadingError):
            ask(acme, "hub:Org/Nothing")
        Upload.objects.update(state=UploadState.REFUSED)
    with pytest.raises(TooManyHubModelsError):
        ask(acme, "hub:Org/Nothing")
    assert Upload.objects.count() == 3


@pytest.mark.parametrize("name", ["hub:", "hub:name", "hub:a/b@../c", "hub:a/" + "b" * 300, "hub:a/b+c:0.5"])
def test_no_names_of_repositories(acme: Org, hub: HubServer, name: str) -> None:
    allow(acme)
    with pytest.raises(ModelNotFoundError):
        ask(acme, name)


def test_limits_of_the_tenant_hold(acme: Org, hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from control_plane.adapters.uploads import actions

    monkeypatch.setattr(actions, "MAX_WAITING", 0)
    allow(acme)
    with pytest.raises(LorikeetError) as refused:
        ask(acme)
    assert refused.value.code == "too_many_unfinished_uploads"
    assert not HubModel.objects.exists()


def test_the_setting(acme: Org, hub: HubServer, bring: Any) -> None:
    path = acme.path("hub-models")
    assert acme.client().get(path).json() == {"enabled": False, "organizations": [], "models": []}
    changed = acme.client().put(path, {"enabled": True, "organizations": ["Org", "b"]}, format="json")
    assert (changed.json()["enabled"], changed.json()["organizations"]) == (True, ["b", "org"])
    bring(acme)
    shown = acme.client().get(path).json()["models"][0]
    assert (shown["name"], shown["state"], shown["version"]) == (NAME, "accepted", 1)
    detail = AuditEvent.objects.get(action="hub_models.update").detail
    assert detail == {"enabled": True, "organizations": ["b", "org"], "before": None}
    assert acme.client().put(path, {"enabled": True, "organizations": ["a/b"]}, format="json").status_code == 400
