"""Base models as operators see them: their hosts, the number of their adapters, and whether they are served."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from django.db.models import Count

from control_plane.adapters.registry.models import OUT_OF_USE, Adapter, AdapterVersion
from control_plane.fleet.base_models.actions import BaseNameTakenError
from control_plane.fleet.base_models.api.wakefulness import wakefulness
from control_plane.fleet.base_models.base_model import described_hosts, served_bases
from control_plane.fleet.base_models.models import BaseModel

# `waiting`: a host has the base model, and no operator approved it.
SERVED, WAITING, WITHDRAWN = "served", "waiting", "withdrawn"
STATES = [SERVED, WAITING, WITHDRAWN]


def base_models() -> list[dict[str, Any]]:
    """Return served base models in order of approval, then those that wait for it, then withdrawn ones."""
    hosts, models = defaultdict[str, list[str]](list), dict[str, str]()
    for host in described_hosts():
        digest = host.description.get("base_digest", "")
        hosts[digest].append(host.name)
        models.setdefault(digest, host.description.get("base_model", ""))
    rows = {row.digest: row for row in BaseModel.objects.all()}
    adapters, bases = _adapters(), served_bases()
    limits = {base.digest: base.max_context for base in bases}
    awake = wakefulness()
    result = []
    for digest in dict.fromkeys([*rows, *filter(None, hosts)]):
        row = rows.get(digest)
        state = WAITING if row is None else SERVED if row.withdrawn_at is None else WITHDRAWN
        served = bases.for_adapters_of(digest) if state == SERVED else None
        result.append(
            {
                "name": row.name if row else models[digest],
                "digest": digest,
                "state": state,
                "hosts": sorted(hosts[digest]),
                "adapters": sum(adapters[each] for each in (served.adapters_of if served else [digest])),
                "max_context": limits.get(digest),
                "sleeps_after_s": row.sleeps_after_s if row else 0,
                "wanted": digest in awake and awake[digest].wanted,
                "hosts_online": awake[digest].online if digest in awake else 0,
                "decided_by": row.decided_by if row else None,
                "decided_at": row.decided_at if row else None,
                "withdrawn_at": row.withdrawn_at if row else None,
            }
        )
    return sorted(result, key=lambda each: STATES.index(each["state"]))


def _adapters() -> defaultdict[str, int]:
    """Return the number of adapters of all tenants with versions in use, by base digest."""
    versions = AdapterVersion.objects.exclude(state__in=OUT_OF_USE).order_by()
    counts = versions.values_list("base_digest").annotate(Count("adapter", distinct=True))
    return defaultdict(int, counts)


def require_no_adapters_name(name: str) -> None:
    """Raise BaseNameTakenError (409) if a tenant's adapter has this name, which requests would mean by it."""
    if Adapter.objects.filter(name=name, archived_at__isnull=True).exists():
        raise BaseNameTakenError(name)
