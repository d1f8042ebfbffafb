"""A version that its trial flags can be called, and is live once somebody said that it may be as it is."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone
from lorikeet_testing.platform_fixtures import error_of

from control_plane.adapters.registry.models import AdapterVersion, Alias
from control_plane.adapters.registry.resolve import ModelNotReadyError, resolve_model
from control_plane.adapters.registry.versions import mark_version_overflowed, mark_version_ready, record_effect
from control_plane.console.webhooks.events import FROM_AUDIT
from control_plane.console.webhooks.models import EventType
from control_plane.identity.audit.models import AuditEvent
from lorikeet_cli.effect import confirmations

pytestmark = pytest.mark.django_db
PATH = "adapters/support/versions/{}"
FIGURES = {"tokens": 6, "agreeing": 5, "mean_distance": 0.1, "largest_distance": 0.2}


def effect(verdict: str, agreement: str = "") -> dict[str, Any]:
    compared = {
        "outcome": agreement,
        "reason": "By more.",
        "dequantised": False,
        "base": FIGURES,
        "adapter": FIGURES,
        "prompts": [],
        "layer_changes": [],
        "elapsed_ms": 1,
    }
    return {
        "verdict": verdict,
        "largest_change": 0.0,
        "tokens": 6,
        "differing_tokens": 0,
        "layer_changes": [],
        "prompts": [],
        "agreement": compared if agreement else None,
        "host": "local",
        "elapsed_ms": 1,
        "at": timezone.now().isoformat(),
    }


def tried(version: AdapterVersion, found: dict[str, Any]) -> AdapterVersion:
    record_effect(version, found)
    return mark_version_ready(version)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (effect("overflows"), "overflows"),
        (effect("acts", "differs"), "differs from what it is on the unquantised base"),
    ],
)
def test_a_flagged_version_is_live_when_somebody_says_so(
    acme: Any, upload: Any, found: dict[str, Any], said: str
) -> None:
    version = tried(upload(acme).version, found)
    path, client = PATH.format(1), acme.client()
    assert not Alias.objects.exists(), "the first version is not live by itself"
    assert FROM_AUDIT["version.flag"] == EventType.VERSION_FLAGGED
    assert AuditEvent.objects.get(action="version.flag").detail["flag"] == version.flag
    shown = client.get(acme.path(path)).json()
    assert shown["asks_for_effect"] is True
    assert confirmations(shown) == ["it can be live as it is with: lorikeet confirm-effect support@v1"]
    assert "confirm-base support@v1" in confirmations({**shown, "asks_for_base": True, "named_base": "other"})[0]
    assert resolve_model(acme.tenant, "support@v1")[0].version == version
    with pytest.raises(ModelNotReadyError, match=said) as refused:
        resolve_model(acme.tenant, "support")
    assert (refused.value.code, refused.value.status) == ("model_not_live", 409)
    for answer in (
        client.post(acme.path(f"{path}/promote")),
        client.put(acme.path("adapters/support/aliases/prod"), {"version": 1}, format="json"),
    ):
        assert error_of(answer) == (409, "effect_not_confirmed")
        assert "confirm-effect" in answer.json()["error"]["fix"]

    assert acme.client("viewer").post(acme.path(f"{path}/confirm-effect")).status_code == 403
    assert acme.client("viewer").put(acme.path(f"{path}/dtype"), {"adapter_dtype": "fp8"}).status_code == 403
    assert client.put(acme.path(f"{path}/dtype"), {"adapter_dtype": "int4"}, format="json").status_code == 400
    set_dtype = client.put(acme.path(f"{path}/dtype"), {"adapter_dtype": "fp8"}, format="json")
    assert set_dtype.json()["adapter_dtype"] == "fp8"
    confirmed = client.post(acme.path(f"{path}/confirm-effect")).json()
    assert (confirmed["asks_for_effect"], confirmed["aliases"]) == (False, ["live"])
    assert confirmations(confirmed) == []
    event = AuditEvent.objects.get(action="version.confirm_effect")
    assert (event.tenant, event.target_label, event.detail["flag"]) == (acme.tenant, "support@v1", version.flag)
    assert client.post(acme.path(f"{path}/confirm-effect")).status_code == 200
    assert AuditEvent.objects.filter(action="version.confirm_effect").count() == 1


def test_a_first_version_that_changes_nothing_is_live_and_takes_nobodys_place(acme: Any, upload: Any) -> None:
    """It answers as the base model does."""
    idle = tried(upload(acme).version, effect("changes_nothing"))
    assert (resolve_model(acme.tenant, "support")[0].version, idle.asks_for_effect) == (idle, True)
    acts = tried(upload(acme, "other").version, effect("acts"))
    tried(upload(acme, "other", seed=1).version, effect("changes_nothing"))
    answer = acme.client().post(acme.path("adapters/other/versions/2/promote"))
    assert error_of(answer) == (409, "effect_not_confirmed")
    assert resolve_model(acme.tenant, "other")[0].version == acts


def test_a_flag_holds_up_a_canary_and_no_way_back(acme: Any, upload: Any) -> None:
    first = tried(upload(acme).version, effect("acts"))
    tried(upload(acme, seed=1).version, effect("changes_nothing"))
    client, canary = acme.client(), acme.path("adapters/support/aliases/live/canary")
    assert error_of(client.put(canary, {"version": 2, "percent": 5}, format="json")) == (409, "effect_not_confirmed")
    client.post(acme.path(PATH.format(2) + "/confirm-effect"))
    assert Alias.objects.get().version == first, "another one is live, and stays so until somebody promotes"
    assert client.put(canary, {"version": 2, "percent": 5}, format="json").status_code == 200
    mark_version_overflowed(first)
    mark_version_overflowed(first)
    flags = AuditEvent.objects.filter(action="version.flag").order_by("pk").values_list("detail__flag", flat=True)
    assert [*flags] == ["changes_nothing", "overflows"]
    assert client.post(acme.path(PATH.format(1) + "/promote")).status_code == 200, "it is live, and ends the canary"
    assert client.post(acme.path(PATH.format(2) + "/promote")).status_code == 200
    assert error_of(client.post(acme.path(PATH.format(1) + "/promote"))) == (409, "effect_not_confirmed")
    assert client.post(acme.path("adapters/support/aliases/live/rollback")).status_code == 200
    assert Alias.objects.get().version == first


def test_nothing_is_confirmed_where_nothing_is_flagged(acme: Any, upload: Any) -> None:
    for agreement in ("", "agrees", "pending", "not_measured"):
        name = f"support-{agreement or 'none'}".replace("_", "-")
        version = tried(upload(acme, name).version, effect("acts", agreement))
        assert Alias.objects.filter(version=version, name="live").exists()
        confirmed = acme.client().post(acme.path(f"adapters/{name}/versions/1/confirm-effect"))
        assert (confirmed.status_code, confirmed.json()["asks_for_effect"]) == (200, False)
    assert not AuditEvent.objects.filter(action__in=["version.confirm_effect", "version.flag"]).exists()
    assert not AdapterVersion.objects.exclude(effect_confirmed_at=None).exists()
