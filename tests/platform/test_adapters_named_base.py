"""An adapter that names another base than the served one can be tried, and is live once somebody confirmed it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from lorikeet_testing.peft_files import adapter_files, config_bytes

from control_plane.adapters.registry.base_of_adapter import other_base
from control_plane.adapters.registry.models import Alias
from control_plane.adapters.registry.versions import mark_version_ready
from control_plane.fleet.base_models.base_model import served_bases
from control_plane.identity.audit.models import AuditEvent
from lora_engine.peft_format import CONFIG_FILE

pytestmark = pytest.mark.django_db


def naming(base: str) -> dict[str, bytes]:
    return {**adapter_files(), CONFIG_FILE: config_bytes(base_model_name_or_path=base)}


def test_another_base_has_to_be_confirmed(acme: Any, upload: Any) -> None:
    version = upload(acme, files=naming("org/another-model")).version
    assert version.named_base == "org/another-model"
    note = "it names org/another-model as its base model, but fake-base is served: "
    assert version.report["notes"][-1].startswith(note)
    mark_version_ready(version)
    assert not Alias.objects.exists(), "the first version is not live by itself"
    path = "adapters/support/versions/1"
    shown = acme.client().get(acme.path(path)).json()
    assert (shown["asks_for_base"], shown["named_base"]) == (True, "org/another-model")
    for answer in (
        acme.client().post(acme.path(f"{path}/promote")),
        acme.client().put(acme.path("adapters/support/aliases/prod"), {"version": 1}, format="json"),
    ):
        assert answer.status_code == 409
        assert answer.json()["error"]["code"] == "base_not_confirmed"

    assert acme.client("viewer").post(acme.path(f"{path}/confirm-base")).status_code == 403
    confirmed = acme.client().post(acme.path(f"{path}/confirm-base")).json()
    assert confirmed["asks_for_base"] is False
    assert Alias.objects.get().name == "live"
    event = AuditEvent.objects.get(action="version.confirm_base")
    assert (event.tenant, event.detail["named"], event.detail["served"]) == (
        acme.tenant,
        "org/another-model",
        "fake-base",
    )
    assert acme.client().post(acme.path(f"{path}/confirm-base")).status_code == 200
    assert AuditEvent.objects.filter(action="version.confirm_base").count() == 1


def test_a_confirmed_version_that_is_no_first_one_is_not_made_live(acme: Any, upload: Any) -> None:
    mark_version_ready(upload(acme).version)
    second = mark_version_ready(upload(acme, files=naming("other")).version)
    acme.client().post(acme.path(f"adapters/support/versions/{second.number}/confirm-base"))
    assert Alias.objects.get().version.number == 1


@pytest.mark.parametrize(
    "named",
    [
        "fake-base",
        "org/Fake-Base",
        "/models/fake-base/",
        "unsloth/fake-base-unsloth-bnb-4bit",
        "mlx-community/fake-base-4bit",
        "known/elsewhere",
        "",
        # Folders that name no model.
        "demo/model",
        "./out/checkpoint-500",
        "models--org--name/snapshots/0123456789abcdef0123456789abcdef01234567",
        "..",
        # The same by Windows' paths.
        r"D:\models\fake-base",
        "D:\\models\\Fake-Base\\",
        "c:/models/fake-base",
        r"\\server\share\fake-base-4bit",
        r"D:\out\checkpoint-500",
        r"C:\out/merged\model",
        "C:fake-base",
        "D:\\",
        "D:",
    ],
)
def test_other_names_of_the_same_base(host: Any, settings: Any, named: str) -> None:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"base_model_names": "Elsewhere, more"})
    base = served_bases().only
    assert base is not None
    assert other_base(named, base) == ""
    assert other_base("another", replace(base, name="fake")) == "another"


@pytest.mark.parametrize("named", ["D:\\out\\merged", "\\\\server\\share\\llama", "D:llama", "org/d:fake"])
def test_windows_paths_of_another_base(host: Any, named: str) -> None:
    base = served_bases().only
    assert base is not None
    assert other_base(named, base) == named
