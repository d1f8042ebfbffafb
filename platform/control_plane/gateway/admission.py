"""The database work of a request: caller, model, hosts. `admission_cache.py` caches the results."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from control_plane.access.principal import Principal
from control_plane.adapters.imports.hub_models import resolve_hub_model
from control_plane.adapters.imports.hub_policy import HUB_PREFIX
from control_plane.adapters.resolve import Canary, ResolvedModel, resolve_model
from control_plane.fleet.base_model import ServedBase, served_base, serving_hosts
from control_plane.gateway.errors import ApiError
from control_plane.keys.auth import InvalidKeyError, authenticate_key
from control_plane.placements.actions import callable_here
from control_plane.placements.models import Placement
from control_plane.quotas.budgets import CallerBudgets, caller_budgets
from control_plane.quotas.queries import PrincipalLimits, limits_of
from control_plane.slo.queries import Targets, targets_of
from control_plane.tenants.roles import Capability


@dataclass(frozen=True)
class Admission:
    """A caller who may infer, the content that answers, and the hosts that are ready for it."""

    principal: Principal
    model: ResolvedModel
    hosts: tuple[str, ...]
    base_digest: str
    limits: PrincipalLimits
    budgets: CallerBudgets
    targets: Targets
    canary: Canary | None = None
    canary_hosts: tuple[str, ...] = ()
    took_s: float = 0.0
    """What finding all this took, for the request that it is used for."""

    @property
    def fingerprint(self) -> str:
        """OpenAI's ``system_fingerprint``: changes when the base model does."""
        return "fp_" + self.base_digest.removeprefix("sha256:")[:12]

    def for_request(self, request_id: str) -> Admission:
        """The admission of this one request: what is remembered is for all, and a canary takes a part of them."""
        if self.canary is None or not self.canary_hosts or not self.canary.takes(request_id):
            return self
        return replace(self, model=self.canary.model, hosts=self.canary_hosts)


class MissingKeyError(ApiError):
    def __init__(self) -> None:
        super().__init__(
            401,
            "missing_api_key",
            "You didn't provide an API key.",
            "Send it as `Authorization: Bearer lk_...`; make one under Keys in the console.",
        )


def authenticate(token: str | None) -> Principal:
    """Raises MissingKeyError or InvalidKeyError (401), ForbiddenError (403)."""
    if not token:
        raise MissingKeyError
    principal = authenticate_key(token)
    if principal is None:
        raise InvalidKeyError
    principal.require(Capability.INFER)
    return principal


def admit(principal: Principal, model: str) -> Admission:
    """``model`` "" is the base model. Raises ``LorikeetError``: the model is unknown to the tenant, or not ready.

    The first use of a repository of the Hub begins its import.
    """
    base = served_base()
    resolved, canary = _resolve(principal, model or (base.name if base else ""))
    hosts = _ready_hosts(resolved, base)
    canary_hosts = _ready_hosts(canary.model, base) if canary else ()
    limits = limits_of(principal.tenant, principal.api_key)
    digest = base.digest if base else ""
    budgets = caller_budgets(principal.tenant, principal.api_key)
    targets = targets_of(principal.tenant)
    return Admission(principal, resolved, hosts, digest, limits, budgets, targets, canary, canary_hosts)


def _resolve(principal: Principal, model: str) -> tuple[ResolvedModel, Canary | None]:
    if model.startswith(HUB_PREFIX):
        return resolve_hub_model(acting=principal, name=model), None
    return resolve_model(principal.tenant, model)


def _ready_hosts(resolved: ResolvedModel, base: ServedBase | None) -> tuple[str, ...]:
    """Names of hosts that serve the base model and have the content now."""
    hosts = serving_hosts(base)
    if not resolved.versions:
        return tuple(host.name for host in hosts)
    if base is None or any(version.base_digest not in base.adapters_of for version in resolved.versions):
        return ()
    placed = Placement.objects.filter(callable_here(), version__in=resolved.versions, host__in=hosts)
    found = Counter(placed.values_list("host__name", flat=True))
    return tuple(name for name, count in found.items() if count == len({version.pk for version in resolved.versions}))
