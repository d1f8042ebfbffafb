"""What still counts while the database is away: what was looked up before, for LORIKEET_DATABASE_GRACE_S and no longer,
and nothing of a key that expired or that this process knows to be revoked."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone
from lorikeet_testing.platform_fixtures import Org

from control_plane.core.config import current
from control_plane.core.db import run_db
from control_plane.core.unavailable import as_unavailable
from control_plane.gateway.dispatch.admission_cache import AdmissionCache
from control_plane.identity import single_flight
from control_plane.identity.access.principal import Principal
from control_plane.identity.keys.actions import revoke_key
from control_plane.identity.single_flight import FRESH_S, SingleFlightCache


class Outage:
    """Of a database on a clock that stands still unless it is told otherwise."""

    def __init__(self) -> None:
        self.now, self.away = 0.0, False

    def monotonic(self) -> float:
        return self.now

    async def run_db(self, fn: Callable[..., Any], *args: Any) -> Any:
        if self.away:
            raise OperationalError("the database is away")
        return await run_db(fn, *args)

    def begin(self) -> None:
        self.away = True
        self.now += FRESH_S + 0.1


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch) -> Outage:
    made = Outage()
    monkeypatch.setattr(single_flight, "time", made)
    monkeypatch.setattr(single_flight, "run_db", made.run_db)
    return made


async def test_what_was_looked_up_counts_until_the_grace_is_over(outage: Outage) -> None:
    fresh: SingleFlightCache[str] = SingleFlightCache()
    assert await fresh.get("k", lambda: "known") == "known"
    outage.begin()
    assert await fresh.get("k", lambda: "new") == "known"
    outage.now = float(current().database_grace_s)
    assert await fresh.get("k", lambda: "new") == "known"
    outage.now += 0.1
    with pytest.raises(OperationalError):
        await fresh.get("k", lambda: "new")
    with pytest.raises(OperationalError):
        await fresh.get("never looked up", lambda: "new")


async def test_using_it_during_the_outage_does_not_prolong_it(outage: Outage) -> None:
    fresh: SingleFlightCache[str] = SingleFlightCache()
    await fresh.get("k", lambda: "known")
    outage.begin()
    while outage.now < current().database_grace_s:
        assert await fresh.get("k", lambda: "new") == "known"
        outage.now += 10
    with pytest.raises(OperationalError):
        await fresh.get("k", lambda: "new")


async def test_no_grace_is_none(outage: Outage, settings: Any) -> None:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"database_grace_s": 0})
    fresh: SingleFlightCache[str] = SingleFlightCache()
    await fresh.get("k", lambda: "known")
    outage.begin()
    with pytest.raises(OperationalError):
        await fresh.get("k", lambda: "new")


async def refused_as_away(grants: AdmissionCache, secret: str) -> bool:
    with pytest.raises(OperationalError) as raised:
        await grants.caller(secret)
    told = as_unavailable(raised.value)
    return told is not None and (told.status, told.code) == (503, "database_unavailable")


async def caller(grants: AdmissionCache, secret: str) -> Principal:
    return await grants.caller(secret)


@pytest.mark.django_db(transaction=True)
async def test_a_key_that_expires_meanwhile_is_refused(
    acme: Org, outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, secret = await run_db(acme.key, expires_at=timezone.now() + timedelta(seconds=60))
    grants = AdmissionCache()
    assert (await caller(grants, secret)).api_key == key
    outage.begin()
    assert (await caller(grants, secret)).api_key == key
    later = timezone.now() + timedelta(seconds=61)
    monkeypatch.setattr(timezone, "now", lambda: later)
    assert await refused_as_away(grants, secret)


@pytest.mark.django_db(transaction=True)
async def test_a_key_that_was_revoked_here_before_it_is_refused(acme: Org, outage: Outage) -> None:
    """Nothing can be revoked without the database, but the outage may begin with the next query."""
    key, secret = await run_db(acme.key)
    other = (await run_db(acme.key, "other"))[1]
    grants = AdmissionCache()
    await caller(grants, secret)
    await run_db(lambda: revoke_key(acting=acme.principal(), key=key))
    await caller(grants, other)
    outage.begin()
    assert await refused_as_away(grants, secret)
    assert (await caller(grants, other)).tenant == acme.tenant


@pytest.mark.django_db(transaction=True)
async def test_a_key_that_another_process_revoked_ends_with_the_grace(acme: Org, outage: Outage) -> None:
    key, secret = await run_db(acme.key)
    grants = AdmissionCache()
    await caller(grants, secret)
    outage.begin()
    await run_db(type(key).objects.filter(pk=key.pk).update, revoked_at=timezone.now())  # this process is not told
    assert (await caller(grants, secret)).api_key == key
    outage.now += current().database_grace_s
    assert await refused_as_away(grants, secret)


@pytest.mark.django_db(transaction=True)
async def test_the_first_look_after_it_counts_at_once(acme: Org, outage: Outage) -> None:
    key, secret = await run_db(acme.key)
    grants = AdmissionCache()
    await caller(grants, secret)
    outage.begin()
    await run_db(type(key).objects.filter(pk=key.pk).update, revoked_at=timezone.now())
    assert (await caller(grants, secret)).api_key == key
    outage.away = False
    for _ in range(2):
        with pytest.raises(Exception, match="revoked"):
            await caller(grants, secret)
    outage.away = True
    assert await refused_as_away(grants, secret)
