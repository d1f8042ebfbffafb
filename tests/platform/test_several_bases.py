"""Several base models in one installation: each with its hosts, its adapters and its names."""

from __future__ import annotations

import csv
from dataclasses import asdict, replace
from typing import Any

import pytest
from django.utils import timezone
from lorikeet_testing.ledger import record_event
from lorikeet_testing.peft_files import GEOMETRY, config_bytes, safetensors_bytes, tensors
from lorikeet_testing.platform_fixtures import Org, Uploader

from control_plane.adapters.registry.aliases import start_canary
from control_plane.adapters.registry.archiving import archive_version
from control_plane.adapters.registry.base_of_adapter import OtherBaseOfAdapterError
from control_plane.adapters.registry.models import AdapterVersion, VersionState
from control_plane.adapters.registry.resolve import ModelNotFoundError, list_models, resolve_model
from control_plane.adapters.registry.versions import promote_version
from control_plane.adapters.uploads.models import Upload
from control_plane.billing.reports.models import Grain
from control_plane.billing.reports.usage_csv import UsageTable
from control_plane.billing.usage import recovery
from control_plane.billing.usage.aggregation import aggregate
from control_plane.billing.usage.counters import Counts
from control_plane.billing.usage.rollup_check import differences
from control_plane.billing.usage.sums import last_days
from control_plane.core.errors import LorikeetError
from control_plane.fleet.base_models.actions import (
    approve_base_model,
    rename_base_model,
    set_base_model,
    withdraw_base_model,
)
from control_plane.fleet.base_models.base_model import host_quarantine, served_bases
from control_plane.fleet.base_models.models import BaseModel
from control_plane.fleet.hosts import actions as fleet_actions
from control_plane.fleet.hosts.models import EngineHost, StagingPhase
from control_plane.fleet.placements import tasks
from control_plane.fleet.placements.models import Placement
from control_plane.gateway.dispatch.admission import admit
from control_plane.gateway.dispatch.errors import ApiError
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.accounts.actions import create_user, set_operator
from control_plane.identity.audit.models import AuditEvent
from lora_engine.peft_format import CONFIG_FILE, WEIGHTS_FILE, BaseGeometry
from lora_engine.wire import engine_pb2 as pb

pytestmark = pytest.mark.django_db

FIRST = GEOMETRY.digest
WIDE = BaseGeometry(
    name="wide",
    digest="sha256:" + "31de" * 16,
    num_layers=3,
    hidden_size=96,
    intermediate_size=192,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=16,
    vocab_size=48,
)
TWIN = replace(GEOMETRY, name="twin", digest="sha256:" + "7219" * 16)


def describe(geometry: BaseGeometry, *, model: str = "", context: int = 4096, **fields: Any) -> pb.EngineDescription:
    sizes = {name: size for name, size in asdict(geometry).items() if name not in ("name", "digest")}
    known = {field.name for field in pb.BaseGeometry.DESCRIPTOR.fields}
    return pb.EngineDescription(
        boot_id=f"boot-{geometry.name}",
        base_model=model or geometry.name,
        base_digest=geometry.digest,
        max_context=context,
        max_lora_rank=64,
        geometry=pb.BaseGeometry(**{name: size for name, size in sizes.items() if name in known}),
        **fields,
    )


def join(name: str, geometry: BaseGeometry, **fields: Any) -> EngineHost:
    EngineHost.objects.update_or_create(
        name=name, defaults={"address": f"unix:/nowhere/{name}", "credential": f"c-{name}"}
    )
    fleet_actions.record_boot(name, describe(geometry, **fields))
    return EngineHost.objects.get(name=name)


@pytest.fixture
def wide(host: EngineHost) -> EngineHost:
    """A second host with another base model of another shape, approved."""
    found = join("wide-1", WIDE, context=512)
    approve_base_model(actor=SYSTEM, description=describe(WIDE, context=512))
    return found


def files(geometry: BaseGeometry, named: str | None = None, **options: Any) -> dict[str, bytes]:
    config = config_bytes(base_model_name_or_path=geometry.name if named is None else named)
    return {CONFIG_FILE: config, WEIGHTS_FILE: safetensors_bytes(tensors(geometry=geometry, **options))}


def ready(uploader: Uploader, org: Org, name: str, geometry: BaseGeometry, **options: Any) -> AdapterVersion:
    """A version that is ready on every host where it was placed."""
    version = uploader.ready_version(org, name, files=files(geometry, **options))
    for placement in Placement.objects.filter(version=version).select_related("host"):
        Placement.objects.filter(pk=placement.pk).update(phase=StagingPhase.READY, boot_id=placement.host.boot_id)
    version.refresh_from_db()
    return version


def operator(org: Org) -> Any:
    user = create_user(actor=SYSTEM, email="ops@example.org", password="correct horse battery")
    set_operator(actor=SYSTEM, user=user, operator=True)
    client = org.client()
    client.force_login(user)
    return client


# -- which are served ---------------------------------------------------------------


def test_a_second_one_is_in_quarantine_until_an_operator_approves_it(host: EngineHost, acme: Org) -> None:
    other = join("wide-1", WIDE)
    reason = host_quarantine(served_bases(), other)
    assert reason is not None and reason.code == "other_base_model" and "approve_base_model" in reason.fix
    approve_base_model(actor=SYSTEM, description=describe(WIDE))
    assert host_quarantine(served_bases(), other) is None
    assert [base.name for base in served_bases()] == ["fake-base", "wide"]
    fleet_actions.record_boot("wide-1", describe(WIDE))
    third = join("twin-1", TWIN)
    reason = host_quarantine(served_bases(), third)
    assert reason is not None and "fake-base" in reason.message and "wide (" in reason.message
    events = AuditEvent.objects.count()
    approve_base_model(actor=SYSTEM, description=describe(WIDE))
    assert AuditEvent.objects.count() == events, "to say it again changes nothing"


def test_names_are_unique_and_callers_use_them(wide: EngineHost, acme: Org) -> None:
    with pytest.raises(LorikeetError, match="fake-base") as refused:
        approve_base_model(actor=SYSTEM, description=describe(TWIN, model="fake-base"))
    assert refused.value.code == "base_model_name_taken"
    approve_base_model(actor=SYSTEM, description=describe(TWIN, model="fake-base"), name="twin")
    for wrong in ("", " wide2", "hub:org/x", "a" * 201, "x\ny"):
        with pytest.raises(LorikeetError):
            rename_base_model(actor=SYSTEM, digest=WIDE.digest, name=wrong)
    rename_base_model(actor=SYSTEM, digest=WIDE.digest, name="broad")
    assert admit(acme.principal(), "broad").hosts == ("wide-1",)
    assert admit(acme.principal(), "broad").base_digest == WIDE.digest
    assert admit(acme.principal(), "fake-base").hosts == ("local",)
    with pytest.raises(ModelNotFoundError):
        admit(acme.principal(), "wide")
    with pytest.raises(ApiError) as unclear:
        admit(acme.principal(), "")
    assert unclear.value.code == "base_model_required" and "broad" in unclear.value.fix


def test_a_base_model_without_a_host_is_known_and_has_none(wide: EngineHost, acme: Org) -> None:
    EngineHost.objects.filter(name="wide-1").update(active=False)
    assert admit(acme.principal(), "wide").hosts == ()
    assert admit(acme.principal(), "fake-base").hosts == ("local",)


def test_the_last_one_cannot_be_withdrawn_and_a_withdrawn_one_comes_back(
    uploader: Uploader, wide: EngineHost, acme: Org
) -> None:
    version = ready(uploader, acme, "tall", WIDE)
    assert admit(acme.principal(), "tall").hosts == ("wide-1",)
    withdraw_base_model(actor=SYSTEM, digest=WIDE.digest)
    assert admit(acme.principal(), "tall").hosts == (), "at once, before anything has tidied up"
    tasks.reconcile()
    version.refresh_from_db()
    assert version.state == VersionState.FAILED and version.error is not None
    assert version.error["code"] == "other_base_model" and "fake-base" in version.error["fix"]
    assert not Placement.objects.filter(version=version).exists()
    with pytest.raises(LorikeetError) as last:
        withdraw_base_model(actor=SYSTEM, digest=FIRST)
    assert last.value.code == "last_base_model"
    with pytest.raises(LorikeetError) as gone:
        withdraw_base_model(actor=SYSTEM, digest=WIDE.digest)
    assert gone.value.code == "base_model_not_found"
    fleet_actions.record_boot("wide-1", describe(WIDE))
    assert BaseModel.objects.filter(withdrawn_at=None).count() == 1, "only an operator approves it again"
    approve_base_model(actor=SYSTEM, description=describe(WIDE))
    tasks.reconcile()
    version.refresh_from_db()
    assert version.state == VersionState.STAGING
    assert {placement.host.name for placement in version.placements.all()} == {"wide-1"}


def test_one_instead_of_all_others(wide: EngineHost) -> None:
    set_base_model(actor=SYSTEM, description=describe(TWIN))
    assert [base.name for base in served_bases()] == ["twin"]
    set_base_model(actor=SYSTEM, description=describe(WIDE))
    assert [(base.name, base.digest) for base in served_bases()] == [("wide", WIDE.digest)]
    assert BaseModel.objects.count() == 3


def test_what_one_took_over_goes_back_when_the_other_is_served_itself(wide: EngineHost) -> None:
    withdraw_base_model(actor=SYSTEM, digest=WIDE.digest)
    set_base_model(actor=SYSTEM, description=describe(TWIN), keep_adapters=True)
    twin = served_bases().for_adapters_of(FIRST)
    assert twin is not None and twin.name == "twin"
    approve_base_model(actor=SYSTEM, description=describe(GEOMETRY))
    own = served_bases().for_adapters_of(FIRST)
    assert own is not None and own.name == "fake-base"
    assert served_bases().for_adapters_of(TWIN.digest) == served_bases().named("twin")


def test_operators_list_approve_rename_and_withdraw(
    uploader: Uploader, acme: Org, monkeypatch: pytest.MonkeyPatch
) -> None:
    join("wide-1", WIDE)
    from control_plane.fleet.base_models.api import views

    monkeypatch.setattr(views, "describe_host", lambda name: describe(WIDE))
    client, path = operator(acme), "/api/operator/base-models"
    ready(uploader, acme, "support", GEOMETRY)
    shown = client.get(path).json()
    assert [(each["name"], each["state"], each["hosts"], each["adapters"]) for each in shown] == [
        ("fake-base", "served", ["local"], 1),
        ("wide", "waiting", ["wide-1"], 0),
    ]
    assert client.post(path, {"host": "wide-1", "name": "support"}, format="json").status_code == 409
    assert client.post(path, {"host": "wide-1"}, format="json").json()["name"] == "wide"
    one = f"{path}/{WIDE.digest}"
    assert client.patch(one, {"name": "support"}, format="json").json()["error"]["code"] == "base_model_name_taken"
    assert client.patch(one, {"name": "broad"}, format="json").json()["name"] == "broad"
    assert client.patch(f"{path}/sha256:none", {"name": "x"}, format="json").status_code == 404
    assert client.delete(one).status_code == 204
    assert [each["state"] for each in client.get(path).json()] == ["served", "withdrawn"]
    assert client.delete(f"{path}/{FIRST}").json()["error"]["code"] == "last_base_model"
    for method in (acme.client().get, acme.client().post):
        assert method(path).status_code == 403


# -- whose adapters they are ----------------------------------------------------------


def test_an_upload_is_checked_against_the_base_that_it_names(uploader: Uploader, wide: EngineHost, acme: Org) -> None:
    tall = uploader.upload(acme, "tall", files=files(WIDE, "someone/Wide-bf16")).version
    small = uploader.upload(acme, "small", files=files(GEOMETRY)).version
    assert tall is not None and small is not None
    assert (tall.base_digest, tall.base_model, tall.named_base) == (WIDE.digest, "wide", "")
    assert (small.base_digest, small.base_model) == (FIRST, "fake-base")
    assert {(each.version.adapter.name, each.host.name) for each in Placement.objects.all()} == {
        ("tall", "wide-1"),
        ("small", "local"),
    }
    wrong = uploader.upload(acme, "wrong", files=files(WIDE, "fake-base"))
    assert wrong.state == "refused" and wrong.report is not None, "against the shapes of the base it names"


@pytest.mark.parametrize("named", ["", "demo/model", "./out/checkpoint-5"])
def test_one_that_names_no_model_is_for_the_only_base_that_it_fits(
    uploader: Uploader, wide: EngineHost, acme: Org, named: str
) -> None:
    upload = uploader.upload(acme, "tall", files=files(WIDE, named))
    assert upload.version is not None and upload.version.base_digest == WIDE.digest
    assert any("it fits only wide" in note for note in upload.report["notes"])
    approve_base_model(actor=SYSTEM, description=describe(TWIN, model="fake-base"), name="twin")
    unclear = uploader.upload(acme, "small", files=files(GEOMETRY, named))
    assert unclear.reason is not None and unclear.reason["code"] == "base_model_required"
    fits_none = uploader.upload(acme, "odd", files=files(replace(WIDE, hidden_size=48), named))
    assert fits_none.reason is not None and fits_none.reason["code"] == "base_model_required"


@pytest.mark.parametrize("named", ["somebody/else"])
def test_one_that_names_none_of_them_is_told_the_choices(
    uploader: Uploader, wide: EngineHost, acme: Org, named: str
) -> None:
    refused = uploader.upload(acme, "tall", files=files(WIDE, named))
    assert refused.state == "refused" and refused.reason is not None
    assert refused.reason["code"] == "base_model_required"
    assert "fake-base" in refused.reason["fix"] and "wide" in refused.reason["fix"]
    answer = send(acme, "tall", files(WIDE, named), base_model="wide")
    assert answer.status_code == 202
    with uploader.committing():
        from control_plane.adapters.uploads import validation_job

        validation_job.validate_next()
    version = Upload.objects.get(pk=answer.json()["id"]).version
    assert version is not None and version.base_digest == WIDE.digest
    following = uploader.upload(acme, "tall", files=files(WIDE, named, seed=1)).version
    assert following is not None and following.base_digest == WIDE.digest, "that of its other versions"


def send(org: Org, name: str, contents: dict[str, bytes], **fields: str) -> Any:
    from django.core.files.uploadedfile import SimpleUploadedFile

    sent = [SimpleUploadedFile(file, content) for file, content in contents.items()]
    return org.client().post(org.path("uploads"), {"name": name, "files": sent, **fields}, format="multipart")


def test_a_base_that_is_not_served_is_refused_at_the_door(wide: EngineHost, acme: Org) -> None:
    answer = send(acme, "tall", files(WIDE), base_model="narrow")
    assert answer.status_code == 400 and answer.json()["error"]["code"] == "base_model_not_found"
    assert "fake-base, wide" in answer.json()["error"]["fix"]


def test_versions_of_one_adapter_do_not_mix(uploader: Uploader, wide: EngineHost, acme: Org) -> None:
    first = ready(uploader, acme, "support", GEOMETRY)
    refused = uploader.upload(acme, "support", files=files(WIDE))
    assert refused.reason is not None and refused.reason["code"] == "adapter_of_other_base"
    assert send(acme, "support", files(WIDE), base_model="wide").status_code == 409
    # Made while the other base model was not served.
    mixed = AdapterVersion.objects.get(pk=first.pk)
    mixed.pk, mixed.number, mixed.base_digest, mixed.base_model = None, 2, WIDE.digest, "wide"
    mixed._state.adding = True
    mixed.save()
    for act in (
        lambda: promote_version(acting=acme.principal(), version=first, alias="prod"),
        lambda: start_canary(acting=acme.principal(), version=first, name="live", percent=10),
    ):
        with pytest.raises(OtherBaseOfAdapterError):
            act()
    archive_version(acting=acme.principal(), version=mixed)
    promote_version(acting=acme.principal(), version=first, alias="prod")


def test_adapters_of_two_bases_are_not_combined(uploader: Uploader, wide: EngineHost, acme: Org) -> None:
    ready(uploader, acme, "support", GEOMETRY)
    ready(uploader, acme, "tall", WIDE)
    with pytest.raises(LorikeetError, match="different base models") as refused:
        resolve_model(acme.tenant, "support+tall:0.5")
    assert "fake-base" in refused.value.message and "wide" in refused.value.message


def test_the_lists_show_each_with_its_base(uploader: Uploader, wide: EngineHost, acme: Org) -> None:
    ready(uploader, acme, "support", GEOMETRY)
    ready(uploader, acme, "tall", WIDE)
    found = {model.id: model.base and (model.base.name, model.base.max_context) for model in list_models(acme.tenant)}
    assert found == {
        "fake-base": ("fake-base", 4096),
        "wide": ("wide", 512),
        "support": ("fake-base", 4096),
        "tall": ("wide", 512),
    }
    shown = acme.client().get(acme.path("models")).json()
    assert [(each["id"], each["base_model"]) for each in shown][:2] == [("fake-base", "fake-base"), ("wide", "wide")]
    rename_base_model(actor=SYSTEM, digest=WIDE.digest, name="broad")
    tasks.reconcile()
    assert acme.client().get(acme.path("adapters/tall")).json()["base_model"] == "broad"


def test_a_host_that_changes_its_base_gives_up_what_it_held(uploader: Uploader, wide: EngineHost, acme: Org) -> None:
    ready(uploader, acme, "support", GEOMETRY)
    version = ready(uploader, acme, "tall", WIDE)
    join("wide-1", GEOMETRY)
    assert admit(acme.principal(), "tall").hosts == ()
    tasks.reconcile()
    assert set(version.placements.all()) == set()
    assert version.state == VersionState.READY
    assert {(each.version.adapter.name, each.host.name) for each in Placement.objects.all()} == {
        ("support", "local"),
        ("support", "wide-1"),
    }


# -- what was used of each -------------------------------------------------------------


def test_usage_tells_them_apart(uploader: Uploader, wide: EngineHost, acme: Org) -> None:
    tall = ready(uploader, acme, "tall", WIDE)
    pks = {row.name: row.pk for row in BaseModel.objects.all()}

    def record(name: str, prompt: int, base: str | None, version: AdapterVersion | None = None, **more: Any) -> None:
        record_event(
            request_id=name, tenant=acme.tenant, model=base or "m", endpoint="completions", outcome="finished",
            created_at=timezone.now(), counts=Counts(prompt_tokens=prompt, completion_tokens=1), version=version,
            adapter=version.adapter if version else None, base_model_id=base and pks[base], **more,
        )  # fmt: skip

    record("first", 1, "fake-base")
    record("wide", 20, "wide")
    record("tall", 300, "wide", tall)
    record("line", 4000, "wide", tall, batch=True)
    record("older, of tall", 50_000, None, tall)
    record("older", 600_000, None)
    aggregate()
    assert differences() == []
    rename_base_model(actor=SYSTEM, digest=WIDE.digest, name="broad")
    tasks.reconcile()
    usage = acme.client().get(acme.path("usage?days=1")).json()
    by_base = {row["base_model"]: row["prompt_tokens"] for row in usage["by_base_model"]}
    assert by_base == {"fake-base": 1, "broad": 54_320, None: 600_000}, "by its name of today"
    assert sum(by_base.values()) == usage["totals"]["prompt_tokens"]
    rows = list(csv.DictReader("".join(UsageTable(acme.tenant, last_days(1), Grain.DAY).pages()).splitlines()))
    assert sorted((row["base_model"], int(row["prompt_tokens"])) for row in rows) == [
        ("", 600_000), ("broad", 20), ("broad", 300), ("broad", 4000), ("broad", 50_000), ("fake-base", 1),
    ]  # fmt: skip
    for name, ids in (
        ("broad", {"wide", "tall", "line", "older, of tall"}), ("fake-base", {"first"}), ("unheard", set())
    ):  # fmt: skip
        found = acme.client().get(acme.path("requests"), {"base_model": name}).json()["results"]
        assert {row["id"] for row in found} == ids


def test_what_a_host_s_journal_tells_is_of_its_base_model(wide: EngineHost, acme: Org) -> None:
    assert recovery._base_of("wide-1").name == "wide"
    assert recovery._base_of("wide-1").pk == BaseModel.objects.get(digest=WIDE.digest).pk
    assert recovery._base_of("nobody").pk is None
