"""The database work of a request: caller, model, hosts. `admission_cache.py` caches the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

from control_plane.adapters.imports.hub_models import resolve_hub_model
from control_plane.adapters.imports.hub_policy import HUB_PREFIX
from control_plane.adapters.registry.resolve import Canary, ModelLoadingError, ResolvedModel, resolve_model
from control_plane.billing.quotas.budgets import CallerBudgets, caller_budgets
from control_plane.billing.quotas.queries import PrincipalLimits, limits_of
from control_plane.billing.slo.queries import Targets, targets_of
from control_plane.fleet.base_models.base_model import ServedBase, ServedBases, served_bases, serving_hosts
from control_plane.fleet.hosts.models import HostState
from control_plane.fleet.placements import demand
from control_plane.fleet.placements.actions import callable_here
from control_plane.fleet.placements.models import Placement
from control_plane.gateway.dispatch.errors import ApiError
from control_plane.identity.access.principal import Principal
from control_plane.identity.keys.auth import InvalidKeyError, authenticate_key, reauthenticate
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.tenants.roles import Capability


@dataclass(frozen=True)
class Sleeper:
    """A base model whose hosts may be stopped while it is idle, and the hosts that serve it when they run."""

    name: str
    digest: str
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class Admission:
    """A caller who may infer, the model that answers, and the hosts that can run it now."""

    principal: Principal
    model: ResolvedModel
    hosts: tuple[str, ...]
    base_digest: str
    limits: PrincipalLimits
    budgets: CallerBudgets
    targets: Targets
    canary: Canary | None = None
    canary_hosts: tuple[str, ...] = ()
    base_model_id: int | None = None
    # The base model's name, for metrics.
    base_model: str = ""
    # The base model, if its hosts may be stopped while it is idle.
    sleeper: Sleeper | None = None
    # Seconds that admission took for this request.
    took_s: float = 0.0

    @property
    def fingerprint(self) -> str:
        """OpenAI's ``system_fingerprint``: changes when the base model does."""
        return "fp_" + self.base_digest.removeprefix("sha256:")[:12]

    def for_request(self, request_id: str) -> Admission:
        """Return the admission of one request: this one is shared by many, and a canary receives some of them."""
        if self.canary is None or not self.canary_hosts or not self.canary.takes(request_id):
            return self
        return replace(self, model=self.canary.model, hosts=self.canary_hosts)


class MissingKeyError(ApiError):
    def __init__(self) -> None:
        super().__init__(
            401,
            "missing_api_key",
            "You didn't provide an API key.",
            "Send it as `Authorization: Bearer lk_...`; make one under API keys in the console.",
        )


class AdapterLoadingError(ModelLoadingError):
    """The adapter was in the artifact store only, and is now being staged on a host."""

    def __init__(self, name: str) -> None:
        super().__init__(
            "adapter_loading",
            f'The model "{name}" is being loaded on a host.',
            "Send the request again in a few seconds.",
            status=503,
            retry_after_s=2,
        )


class BaseAsleepError(ModelLoadingError):
    """The base model has no running host; one is being started because of this request."""

    def __init__(self, sleeper: Sleeper) -> None:
        super().__init__(
            "base_asleep",
            f'No host serves "{sleeper.name}" at the moment; one is being started.',
            "Send the request again in half a minute; OpenAI's libraries retry by themselves.",
            status=503,
            retry_after_s=30,
        )
        self.sleeper = sleeper


class BaseNotNamedError(ApiError):
    def __init__(self, bases: ServedBases) -> None:
        names = ", ".join(base.name for base in bases)
        super().__init__(
            400,
            "base_model_required",
            "This request names no model, and several base models are served.",
            f"Name one of them, or an adapter: {names}.",
            param="model",
        )


def authenticate(token: str | None) -> Principal:
    """Return the caller of an API key. Raises MissingKeyError or InvalidKeyError (401), ForbiddenError (403)."""
    if not token:
        raise MissingKeyError
    principal = authenticate_key(token)
    if principal is None:
        raise InvalidKeyError
    principal.require(Capability.INFER)
    return principal


def authenticate_again(key: ApiKey) -> Principal:
    """Return the present caller of a key that authenticated before. Raises InvalidKeyError (401), ForbiddenError
    (403).
    """
    principal = reauthenticate(key)
    principal.require(Capability.INFER)
    return principal


@dataclass(frozen=True)
class Serving:
    """The served base models, and for each base model's digest the hosts that serve it, by primary key."""

    bases: ServedBases
    hosts: Mapping[str, Mapping[int, str]]
    # A value that differs when other base models are served, or a host joined, left or restarted.
    mark: Hashable


@dataclass(frozen=True)
class Terms:
    """The limits, budgets and latency targets of a caller, whatever model it names."""

    limits: PrincipalLimits
    budgets: CallerBudgets
    targets: Targets


@dataclass(frozen=True)
class Placed:
    """The model that a name stands for in a tenant, and the hosts that have it; None: every host of the base model."""

    model: ResolvedModel
    # The base model on which it runs; None if that is not served.
    base: ServedBase | None
    hosts: frozenset[int] | None
    canary: Canary | None = None
    canary_hosts: frozenset[int] | None = None


def admit(principal: Principal, model: str) -> Admission:
    """Admit a request with database queries only. Raises as ``place`` does."""
    serving = serving_now()
    return admission(principal, serving, terms_of(principal), place(principal, model, serving))


def serving_now() -> Serving:
    bases = served_bases()
    hosts = serving_hosts(bases)
    mark = (
        tuple((base.digest, base.adapters_of, base.name, base.may_sleep) for base in bases),
        frozenset((host.pk, host.boot_id) for host in hosts),
    )
    return Serving(
        bases,
        {base.digest: {host.pk: host.name for host in hosts if base.is_served_by(host.description)} for base in bases},
        mark,
    )


def terms_of(principal: Principal) -> Terms:
    tenant, key = principal.tenant, principal.api_key
    return Terms(limits_of(tenant, key), caller_budgets(tenant, key), targets_of(tenant))


def place(principal: Principal, model: str, serving: Serving) -> Placed:
    """Resolve ``model`` to its content and hosts; "" is the base model, where there is only one.

    The first use of a Hub repository starts its import; the first use of an adapter that is in the artifact store only
    starts its staging. Raises ``LorikeetError``: the model is unknown to the tenant, or not ready.
    """
    name = model or _only_base(serving.bases)
    resolved, canary = _resolve(principal, name)
    base = base_of(resolved, serving.bases)
    if canary is not None and base_of(canary.model, serving.bases) != base:
        canary = None  # its base model was withdrawn or returned in the meantime
    canary_hosts = _hosts_with(canary.model, base, serving) if canary else None
    hosts = _hosts_with(resolved, base, serving)
    if hosts is not None and not hosts and base:
        _resolve(principal, name)  # raises if it was archived between the two queries above
        if demand.is_on() and demand.bring_for_request(resolved.versions, base):
            raise AdapterLoadingError(resolved.display_name)
    return Placed(resolved, base, hosts, canary, canary_hosts)


def admission(principal: Principal, serving: Serving, terms: Terms, placed: Placed) -> Admission:
    return Admission(
        principal,
        placed.model,
        _names(serving, placed.base, placed.hosts),
        placed.base.digest if placed.base else "",
        terms.limits,
        terms.budgets,
        terms.targets,
        placed.canary,
        _names(serving, placed.base, placed.canary_hosts) if placed.canary else (),
        placed.base.pk if placed.base else None,
        placed.base.name if placed.base else "",
        _sleeper(serving, placed.base),
    )


def _sleeper(serving: Serving, base: ServedBase | None) -> Sleeper | None:
    if base is None or not base.may_sleep:
        return None
    return Sleeper(base.name, base.digest, _names(serving, base, None))


def _names(serving: Serving, base: ServedBase | None, hosts: frozenset[int] | None) -> tuple[str, ...]:
    hosts_of_base = serving.hosts.get(base.digest, {}) if base else {}
    return tuple(name for host, name in hosts_of_base.items() if hosts is None or host in hosts)


def _only_base(bases: ServedBases) -> str:
    """Return the base model of a request that names no model. Raises BaseNotNamedError (400)."""
    if len(bases) > 1:
        raise BaseNotNamedError(bases)
    return bases.only.name if bases.only else ""


def base_of(resolved: ResolvedModel, bases: ServedBases) -> ServedBase | None:
    """Return the base model that answers; None if it is no longer served."""
    if not resolved.versions:
        return bases.named(resolved.display_name)
    bases_of = {bases.for_adapters_of(version.base_digest) for version in resolved.versions}
    return bases_of.pop() if len(bases_of) == 1 else None


def _resolve(principal: Principal, model: str) -> tuple[ResolvedModel, Canary | None]:
    if model.startswith(HUB_PREFIX):
        return resolve_hub_model(acting=principal, name=model), None
    return resolve_model(principal.tenant, model)


def _hosts_with(resolved: ResolvedModel, base: ServedBase | None, serving: Serving) -> frozenset[int] | None:
    """Return the hosts that have the content now; None for a base model, which all its hosts have."""
    if not resolved.versions:
        return None
    if base is None:
        return frozenset()
    hosts = serving.hosts[base.digest]
    placed = Placement.objects.filter(callable_here(), version__in=resolved.versions, host__in=hosts)
    if demand.is_on():  # on-demand staging brings it to another host in seconds
        placed = placed.filter(host__state=HostState.ONLINE)
    versions_by_host = Counter(placed.values_list("host", flat=True))
    needed = len({version.pk for version in resolved.versions})
    return frozenset(host for host, count in versions_by_host.items() if count == needed)
