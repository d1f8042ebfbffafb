"""What a model name means, and what is said when it means nothing."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from control_plane.adapters.registry.archiving import archive_adapter
from control_plane.adapters.registry.models import Alias
from control_plane.adapters.registry.resolve import (
    ModelKind,
    ModelNotFoundError,
    ModelNotReadyError,
    list_models,
    resolve_model,
)
from control_plane.adapters.registry.versions import mark_version_failed, promote_version
from control_plane.core.errors import LorikeetError
from control_plane.fleet.base_models.models import BaseModel
from lora_engine.peft_format import Part, parts_of

pytestmark = pytest.mark.django_db


def test_adapter_version_alias_and_base(acme: Any, ready_version: Any) -> None:
    first = ready_version(acme)
    second = ready_version(acme, seed=1)
    promote_version(acting=acme.principal(), version=second, alias="beta")
    for name, version in [
        ("support", first),
        ("support@live", first),
        ("support@v2", second),
        ("support@beta", second),
    ]:
        resolved = resolve_model(acme.tenant, name)[0]
        assert (resolved.kind, resolved.version, resolved.digest) == (ModelKind.ADAPTER, version, version.digest)
        assert resolved.display_name == name
        assert resolved.adapter == version.adapter
    base = resolve_model(acme.tenant, "fake-base")[0]
    assert (base.kind, base.version, base.adapter, base.digest) == (ModelKind.BASE, None, None, "")


def test_first_ready_version_is_live_and_later_ones_wait(acme: Any, ready_version: Any, committing: Any) -> None:
    first, second = ready_version(acme), ready_version(acme, seed=1)
    assert resolve_model(acme.tenant, "support")[0].version == first
    answer = acme.client().post(acme.path("adapters/support/versions/2/promote"))
    assert answer.json()["aliases"] == ["live"]
    assert resolve_model(acme.tenant, "support")[0].version == second
    acme.client().post(acme.path("adapters/support/versions/1/promote"))
    assert resolve_model(acme.tenant, "support")[0].version == first


def test_one_query_for_an_adapter(acme: Any, ready_version: Any) -> None:
    ready_version(acme)
    with CaptureQueriesContext(connection) as queries:
        resolve_model(acme.tenant, "support")
    assert len(queries) == 1


@pytest.mark.parametrize("name", ["suport", "Support", "support@v9", "support@prod"])
def test_near_misses(acme: Any, ready_version: Any, name: str) -> None:
    ready_version(acme)
    with pytest.raises(ModelNotFoundError) as missing:
        resolve_model(acme.tenant, name)
    assert missing.value.status == 404
    assert '"support' in missing.value.fix


@pytest.mark.parametrize("name", ["", "@", "support@", "@v1", "a" * 5000, "support@v0", "support@v99999999999", "\x00"])
def test_strange_names(acme: Any, ready_version: Any, name: str) -> None:
    ready_version(acme)
    with pytest.raises(ModelNotFoundError) as missing:
        resolve_model(acme.tenant, name)
    assert len(missing.value.message) < 400


def test_other_tenants_names_never_show(acme: Any, globex: Any, ready_version: Any) -> None:
    ready_version(globex, name="secret-project")
    for name in ("secret-project", "secret-projec", "secret-project@v1"):
        with pytest.raises(ModelNotFoundError) as missing:
            resolve_model(acme.tenant, name)
        assert '"secret-project"' not in missing.value.fix
    assert [model.id for model in list_models(acme.tenant)] == ["fake-base"]


def test_not_ready_yet(acme: Any, upload: Any) -> None:
    version = upload(acme).version
    version.placements.update(bytes_done=40, bytes_total=100)
    for name in ("support", "support@v1"):
        with pytest.raises(ModelNotReadyError) as waiting:
            resolve_model(acme.tenant, name)
        assert (waiting.value.status, waiting.value.retry_after_s) == (503, 2)
        assert "staging, 40 %" in waiting.value.message


def test_failed(acme: Any, upload: Any) -> None:
    mark_version_failed(upload(acme).version, {"code": "x", "message": "It does not fit.", "fix": "Use a lower rank."})
    with pytest.raises(ModelNotReadyError) as failed:
        resolve_model(acme.tenant, "support")
    assert (failed.value.status, failed.value.code, failed.value.fix) == (409, "model_failed", "Use a lower rank.")


def test_only_ready_versions_are_promoted(acme: Any, upload: Any) -> None:
    upload(acme)
    answer = acme.client().post(acme.path("adapters/support/versions/1/promote"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "version_not_ready")
    assert not Alias.objects.exists()


def test_archived(acme: Any, ready_version: Any, committing: Any) -> None:
    version = ready_version(acme)
    with committing():
        archive_adapter(acting=acme.principal(), adapter=version.adapter)
    for name in ("support", "support@v1"):
        with pytest.raises(ModelNotFoundError):
            resolve_model(acme.tenant, name)
    assert acme.client().get(acme.path("adapters")).json() == []
    again = ready_version(acme)
    assert again.number == 1
    assert resolve_model(acme.tenant, "support")[0].version == again


def test_model_list(acme: Any, ready_version: Any, upload: Any) -> None:
    ready_version(acme)
    ready_version(acme, seed=1)
    upload(acme, name="waiting", seed=2)
    listed = acme.client().get(acme.path("models")).json()
    assert [(model["id"], model["kind"]) for model in listed] == [("fake-base", "base"), ("support", "adapter")]
    assert listed[1]["aliases"] == ["support@v2", "support@v1"]
    for model in listed:
        for name in (model["id"], *model["aliases"]):
            resolve_model(acme.tenant, name)


def test_no_host_yet(acme: Any) -> None:
    assert list_models(acme.tenant) == []
    with pytest.raises(LorikeetError):
        resolve_model(acme.tenant, "fake-base")


def test_several_adapters_as_one(acme: Any, ready_version: Any) -> None:
    support, legal = ready_version(acme), ready_version(acme, name="legal", seed=1)
    for name, parts in [
        ("support+legal:0.5", [(support, 1.0), (legal, 0.5)]),
        ("support@v1:-2+legal@live:0.25", [(support, -2.0), (legal, 0.25)]),
        ("legal:0.5", [(legal, 0.5)]),
    ]:
        model, canary = resolve_model(acme.tenant, name)
        assert (model.kind, model.version, model.adapter, canary) == (
            ModelKind.ADAPTER,
            None,
            parts[0][0].adapter,
            None,
        )
        assert model.display_name == name and list(model.parts) == parts
        assert parts_of(model.digest) == tuple(sorted(Part(version.digest, weight) for version, weight in parts))
    assert resolve_model(acme.tenant, "legal:0.5+support:1")[0].recorded_name == "legal@v1:0.5+support@v1:1"
    same = resolve_model(acme.tenant, "legal:0.5+support")[0]
    assert same.digest == resolve_model(acme.tenant, "support+legal:0.5")[0].digest
    assert resolve_model(acme.tenant, "legal:1")[0].digest == legal.digest


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("support+", "not an adapter with a weight"),
        ("support:0", "not an adapter with a weight"),
        ("support:11", "not an adapter with a weight"),
        ("support:nan", "not an adapter with a weight"),
        ("support:0.5:2", "not an adapter with a weight"),
        ("support+legal+support:2", "twice"),
        ("+".join("abcde"), "combines 5"),
        ("support+fake-base", "is the base model"),
    ],
)
def test_combinations_that_mean_nothing(acme: Any, ready_version: Any, name: str, says: str) -> None:
    ready_version(acme)
    with pytest.raises(LorikeetError, match=says) as refused:
        resolve_model(acme.tenant, name)
    assert refused.value.status == 400 and refused.value.fix and refused.value.param == "model"


def test_a_part_of_another_tenant_is_not_found(acme: Any, globex: Any, ready_version: Any) -> None:
    ready_version(acme)
    ready_version(globex, name="secret", seed=1)
    with pytest.raises(ModelNotFoundError, match='no model "secret"'):
        resolve_model(acme.tenant, "support+secret:0.5")


def test_a_base_model_of_such_a_name_is_the_base(acme: Any, ready_version: Any) -> None:
    ready_version(acme)
    BaseModel.objects.update(name="base:8b+x")
    assert resolve_model(acme.tenant, "base:8b+x")[0].kind is ModelKind.BASE
