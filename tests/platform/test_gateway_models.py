"""`GET /v1/models/{name}` knows the names that requests may use, and no others."""

from __future__ import annotations

import random
from typing import Any

import pytest

from control_plane.adapters.registry.archiving import archive_adapter
from control_plane.adapters.registry.models import Alias
from control_plane.adapters.registry.resolve import list_models
from control_plane.adapters.registry.versions import promote_version
from control_plane.core.errors import LorikeetError
from control_plane.gateway.dispatch.admission import Placed, place, serving_now
from control_plane.gateway.openai import views

pytestmark = pytest.mark.django_db
Answer = Any


@pytest.fixture
def adapters(acme: Any, globex: Any, ready_version: Any, upload: Any, committing: Any) -> None:
    """Live ones, one with another alias; never live, staged, archived and foreign ones."""
    ready_version(acme)
    promote_version(acting=acme.principal(), version=ready_version(acme, seed=1), alias="beta")
    ready_version(acme, name="pirate", seed=2)
    Alias.objects.filter(adapter=ready_version(acme, name="flagged", seed=3).adapter).delete()
    upload(acme, name="waiting", seed=4)
    gone = ready_version(acme, name="gone", seed=5).adapter
    with committing():
        archive_adapter(acting=acme.principal(), adapter=gone)
    ready_version(globex, name="secret", seed=6)


def outcome(call: Any, *args: Any) -> Any:
    """What a call returns, or the status and code of its error."""
    try:
        return call(*args)
    except LorikeetError as error:
        return error.status, error.code


def names() -> list[str]:
    rnd = random.Random(1)
    pointers = ("", "@live", "@beta", "@v1", "@v2", "@v3", "@", "@V1", "@v01")
    adapters = ("support", "pirate", "flagged", "waiting", "gone", "secret", "fake-base", "nobody", "Support", "")
    single = [adapter + pointer for adapter in adapters for pointer in pointers]
    weights = ("", "", "", "", ":0.5", ":-1", ":2", ":0", ":x", ":1.00001")
    own = [f"{adapter}{pointer}" for adapter in ("support", "pirate", "flagged") for pointer in ("", "@v1", "@beta")]
    several = [
        "+".join(rnd.choice([*own, *own, rnd.choice(single)]) + rnd.choice(weights) for _ in range(rnd.randint(1, 3)))
        for _ in range(150)
    ]
    single.remove("")  # no name, which some doors take for the base model
    return [*single, *several, "support+", "+", ":", "hub:acme/none", "s3://bucket/a", "a" * 300, "support@v1\n"]


def test_a_name_is_known_to_both_or_to_neither(acme: Any, adapters: None) -> None:
    principal, serving, accepted = acme.principal(), serving_now(), 0
    for name in names():
        placed, card = outcome(place, principal, name, serving), outcome(views._retrieve, principal, name)
        if not isinstance(placed, Placed):
            assert card == placed or name.startswith("hub:"), name
            continue
        accepted += 1
        assert card["id"] == name
        assert placed.base is not None
        assert card["max_model_len"] == placed.base.max_context
        if placed.model.versions:
            # The name of what answers, which stays when an alias moves; two names of one version may be combined.
            if len(set(placed.model.versions)) == len(placed.model.versions):
                assert place(principal, card["root"], serving).model.digest == placed.model.digest, name
            assert (card["owned_by"], card["parent"]) == ("tenant", "fake-base")
            assert "@live" not in card["root"]
        else:
            assert (card["owned_by"], card["root"], card["parent"]) == ("lorikeet", name, None)
    assert accepted > 30


def test_roots(acme: Any, adapters: None) -> None:
    roots = {
        "support": "support@v1", "support@live": "support@v1", "support@v2": "support@v2",
        "support@beta": "support@v2", "flagged@v1": "flagged@v1", "support+pirate:0.5": "support@v1:1+pirate@v1:0.5",
        "pirate:2": "pirate@v1:2", "support@beta+flagged@v1:-1": "support@v2:1+flagged@v1:-1", "fake-base": "fake-base",
    }  # fmt: skip
    for name, root in roots.items():
        assert views._retrieve(acme.principal(), name)["root"] == root


def test_another_tenants_names_are_unknown(acme: Any, globex: Any, adapters: None) -> None:
    theirs = globex.principal()
    for name in (
        "support",
        "support@v1",
        "support@live",
        "support+pirate",
        "pirate:0.5",
        "secret+support",
        "flagged@v1",
    ):
        assert outcome(views._retrieve, theirs, name) == (404, "model_not_found"), name
    assert views._retrieve(theirs, "secret@live")["root"] == "secret@v1"


def test_the_list_and_each_of_it_are_equal(acme: Any, adapters: None) -> None:
    principal = acme.principal()
    for card in views._list(principal):
        assert views._retrieve(principal, card["id"]) == card
    for listed in list_models(acme.tenant):
        for name in listed.aliases:
            assert views._retrieve(principal, name)["id"] == name
