"""Caches callers and models for a second.

A busy key costs at most five database queries a second, and no request waits for them. A revoked key is refused by
every process within a second; by a process that cannot reach the database, within ``LORIKEET_DATABASE_GRACE_S``.

The resolution of a model name is cached for longer, as long as the tenant's audit log and the fleet are unchanged: a
tenant that calls many adapters would otherwise query each of them every second.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Hashable
from contextlib import ExitStack
from dataclasses import replace
from typing import cast
from uuid import UUID

from control_plane.adapters.registry.resolve import ModelLoadingError
from control_plane.core import drain
from control_plane.core.config import current
from control_plane.core.events.waiting import TenantChanges, changes_of
from control_plane.core.unavailable import as_unavailable
from control_plane.fleet.base_models.demand import BaseDemand
from control_plane.gateway.api_settings.models import ApiSettings
from control_plane.gateway.api_settings.queries import api_settings_of
from control_plane.gateway.dispatch.admission import (
    Admission,
    BaseAsleepError,
    Placed,
    Serving,
    Sleeper,
    Terms,
    admission,
    authenticate,
    authenticate_again,
    place,
    serving_now,
    terms_of,
)
from control_plane.gateway.transcripts.queries import keeps_text
from control_plane.identity.access.principal import Principal
from control_plane.identity.audit.changes import last_changes
from control_plane.identity.keys.last_used import last_used
from control_plane.identity.origins.queries import is_allowed_by_any, origins_of
from control_plane.identity.single_flight import SLOW_S, SingleFlightCache
from control_plane.identity.tenants.models import Tenant

# Seconds between checks of a model that loads. Changes made by this process notify the waiter; others' are polled.
LOADING_POLL_S = 0.5
# Seconds between database queries for a newly joined host, while no known host of a sleeping base model is reachable.
JOINED_POLL_S = 5.0
# Seconds after which a host that newly received an adapter is used for it, if other hosts had it before.
PLACED_S = 5.0


class AdmissionCache:
    def __init__(self, is_reached: Callable[[str, str], bool] = lambda host, base_digest: True) -> None:
        """``is_reached``: returns whether this process could now send a request for the base model to the host."""
        self._is_reached = is_reached
        self._demand = BaseDemand()
        self._callers: SingleFlightCache[Principal] = SingleFlightCache(
            still_good=_key_is_usable, tenant_of=lambda _, principal: principal.tenant.pk
        )
        self._waiting_callers: SingleFlightCache[Principal] = SingleFlightCache(
            tenant_of=lambda key, _: _tenant_in(key)
        )
        # Hosts may become ready at any moment, without a signal: an empty set of hosts is not cached.
        self._serving: SingleFlightCache[Serving] = SingleFlightCache(lambda serving: any(serving.hosts.values()))
        self._terms: SingleFlightCache[Terms] = SingleFlightCache(tenant_of=lambda key, _: _tenant_in(key))
        self._changes: SingleFlightCache[Hashable] = SingleFlightCache(tenant_of=lambda tenant, _: cast(UUID, tenant))
        self._placed: SingleFlightCache[Placed] = SingleFlightCache(
            lambda placed: placed.hosts is None or bool(placed.hosts),
            tenant_of=lambda key, _: _tenant_in(key),
            fresh_s=PLACED_S,
        )
        self._origins: SingleFlightCache[frozenset[str]] = SingleFlightCache(
            tenant_of=lambda tenant, _: cast(UUID, tenant)
        )
        self._known_origins: SingleFlightCache[bool] = SingleFlightCache()
        self._api_settings: SingleFlightCache[ApiSettings] = SingleFlightCache(
            tenant_of=lambda tenant, _: cast(UUID, tenant)
        )
        self._recording: SingleFlightCache[bool] = SingleFlightCache(tenant_of=lambda tenant, _: cast(UUID, tenant))

    async def caller(self, token: str | None) -> Principal:
        """Return the caller of an API key. Raises ``ApiError`` or ``LorikeetError`` as ``authenticate`` does."""
        # The cache holds a digest, so that the secret does not stay in memory.
        digest = hashlib.sha256((token or "").encode()).digest()
        caller = await self._callers.get(digest, lambda: authenticate(token))
        if caller.api_key is not None:
            last_used.seen(caller.api_key)
        return caller

    async def check_again(self, principal: Principal) -> None:
        """Check the key of a request that has waited. Raises InvalidKeyError (401) or ForbiddenError (403).

        Members are not checked: their sockets check them, and end with their requests.
        """
        key = principal.api_key
        if key is None:
            return
        try:
            # A rotation may have ended the secret by which the request authenticated.
            cached_as = (principal.tenant.pk, key.pk, key.rotated_at)
            async with asyncio.timeout(SLOW_S):
                await self._waiting_callers.get(cached_as, lambda: authenticate_again(key))
        except TimeoutError:
            return  # hosts' slots do not wait for a slow database
        except Exception as error:
            if as_unavailable(error) is None:  # without the database, the earlier result counts
                raise

    async def admission(
        self, principal: Principal, model: str, *, wakes: bool = True, checks_again: bool = True
    ) -> Admission:
        """Return the admission of a request. Waits a while for a model that is being imported or staged, and with
        ``wakes`` for a host of a base model that sleeps. With ``checks_again`` the wait ends if the caller loses its
        access.

        Raises as ``admit`` and ``check_again`` do, or BaseAsleepError (503).
        """
        began, waited = time.monotonic(), False
        with ExitStack() as waiting:
            changes: TenantChanges | None = None
            while True:
                try:
                    if waited and checks_again:
                        await self.check_again(principal)
                    waited = True
                    admitted = await self._admission(principal, model)
                    self._require_awake(admitted)
                    return replace(admitted, took_s=time.monotonic() - began)
                except BaseAsleepError as asleep:
                    until = began + current().wake_wait_s
                    if not wakes or not await self._may_have_woken(asleep.sleeper, until):
                        raise
                except ModelLoadingError:
                    waited_s = time.monotonic() - began
                    if waited_s + LOADING_POLL_S > current().hub_model_wait_s or drain.is_draining():
                        raise
                    changes = changes or waiting.enter_context(changes_of(principal.tenant.pk))
                    await changes.wait(LOADING_POLL_S)

    def _require_awake(self, admitted: Admission) -> None:
        if admitted.sleeper is None:
            return
        self._demand.note(admitted.sleeper.digest)
        if not any(self._is_reached(host, admitted.base_digest) for host in admitted.hosts):
            raise BaseAsleepError(admitted.sleeper)

    async def _may_have_woken(self, sleeper: Sleeper, until: float) -> bool:
        """Wait until a new query is worthwhile; False if ``until`` passes first. Thousands may wait here."""
        next_query = time.monotonic() + JOINED_POLL_S
        while time.monotonic() + LOADING_POLL_S <= until and not drain.is_draining():
            await asyncio.sleep(LOADING_POLL_S)
            self._demand.note(sleeper.digest)
            if time.monotonic() >= next_query or any(self._is_reached(host, sleeper.digest) for host in sleeper.hosts):
                return True
        return False

    def remembered(self, principal: Principal, model: str) -> Admission | None:
        """Return the cached admission, if every part of it is still valid."""
        tenant, who = principal.tenant, principal.api_key or principal.user
        assert who is not None
        serving, terms = self._serving.peek(None), self._terms.peek((tenant.pk, who.pk))
        if serving is None or terms is None:
            return None
        placed = self._placed.peek((tenant.pk, model, self._changes.peek(tenant.pk), serving.mark))
        return admission(principal, serving, terms, placed) if placed is not None else None

    async def _admission(self, principal: Principal, model: str) -> Admission:
        tenant, who = principal.tenant, principal.api_key or principal.user
        assert who is not None
        serving = await self._serving.get(None, serving_now)
        terms = await self._terms.get((tenant.pk, who.pk), lambda: terms_of(principal))
        changes = await self._changes.get(tenant.pk, lambda: last_changes(tenant))
        key = (tenant.pk, model, changes, serving.mark)
        placed = await self._placed.get(key, lambda: place(principal, model, serving))
        return admission(principal, serving, terms, placed)

    async def allows_origin(self, tenant: Tenant, origin: str) -> bool:
        """Return whether pages of that origin may read answers to this tenant's keys."""
        return origin in await self._origins.get(tenant.pk, lambda: frozenset(origins_of(tenant)))

    async def some_allow_origin(self, origin: str) -> bool:
        return await self._known_origins.get(origin, lambda: is_allowed_by_any(origin))

    async def api_settings(self, tenant: Tenant) -> ApiSettings:
        return await self._api_settings.get(tenant.pk, lambda: api_settings_of(tenant))

    async def keeps_text(self, tenant: Tenant) -> bool:
        """Return whether the tenant records transcripts."""
        return await self._recording.get(tenant.pk, lambda: keeps_text(tenant))


def _tenant_in(key: object) -> UUID:
    return cast(tuple[UUID, ...], key)[0]


def _key_is_usable(principal: Principal) -> bool:
    """Return whether the key is still valid: it may have expired while it was cached."""
    return principal.api_key is None or principal.api_key.usable_at()
