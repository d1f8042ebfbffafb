"""Demo tenants, users and the demo API key. A second run leaves existing rows unchanged."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from control_plane.billing.limits.actions import set_tenant_limits
from control_plane.billing.limits.models import LimitSet
from control_plane.billing.limits.values import Limits
from control_plane.billing.prices.actions import PriceList, publish_prices
from control_plane.billing.prices.models import PriceVersion
from control_plane.billing.usage.sums import today
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.access.principal import Principal
from control_plane.identity.accounts import actions as accounts
from control_plane.identity.accounts.models import User
from control_plane.identity.keys import actions as keys
from control_plane.identity.keys.auth import authenticate_key
from control_plane.identity.members import actions as tenants
from control_plane.identity.tenants.models import Membership, Tenant
from control_plane.identity.tenants.roles import Role

PASSWORD = "lorikeet-demo"
KEY_NAME = "demo"


@dataclass(frozen=True)
class DemoUser:
    email: str
    name: str
    tenant: str
    role: Role


TENANTS = {"acme": "Acme", "globex": "Globex"}
OWNER = DemoUser("demo@lorikeet.local", "Demo Owner", "acme", Role.OWNER)
USERS = (
    OWNER,
    DemoUser("viewer@lorikeet.local", "Demo Viewer", "acme", Role.VIEWER),
    DemoUser("globex@lorikeet.local", "Globex Owner", "globex", Role.OWNER),
)
PRICES = PriceList(
    "USD",
    input_per_million=200_000,
    cached_input_per_million=50_000,
    output_per_million=600_000,
    storage_per_gb_month=250_000,
)

# Bytes of each host's device memory that the first demo tenant may pin: half of what all tenants may pin in the pool
# of 256 MiB that `make run` gives an engine on a CPU.
PINNED_BYTES = 32 << 20


def seed_people() -> None:
    """Create both tenants with their users."""
    for slug, name in TENANTS.items():
        if not Tenant.objects.filter(slug=slug).exists():
            tenants.create_tenant(actor=SYSTEM, slug=slug, name=name)
    for user in USERS:
        _seed_user(user)


def seed_prices() -> None:
    """Publish a price list, so that costs are not all zero; the owner may publish others."""
    user = User.objects.get(email=OWNER.email)
    if not user.is_operator:
        accounts.set_operator(actor=SYSTEM, user=user, operator=True)
    if not PriceVersion.objects.exists():
        publish_prices(actor=SYSTEM, prices=PRICES, effective_on=today())


def seed_limits() -> None:
    """Let the first demo tenant pin adapters and prefixes, which needs a quota; limits that exist are kept."""
    tenant = Tenant.objects.get(slug=OWNER.tenant)
    if not LimitSet.objects.for_tenant(tenant).exists():
        set_tenant_limits(actor=SYSTEM, tenant=tenant, limits=Limits(pinned_bytes=PINNED_BYTES))


def _seed_user(wanted: DemoUser) -> None:
    user = User.objects.filter(email=wanted.email).first()
    if user is None:
        user = accounts.create_user(actor=SYSTEM, email=wanted.email, password=PASSWORD, name=wanted.name)
    tenant = Tenant.objects.get(slug=wanted.tenant)
    if not Membership.objects.for_tenant(tenant).filter(user=user).exists():
        tenants.add_member(actor=SYSTEM, tenant=tenant, user=user, role=wanted.role)


def owner() -> Principal:
    """Return the demo owner within the demo tenant."""
    memberships = Membership.objects.select_related("tenant", "user")
    return Principal.of_member(memberships.get(tenant__slug=OWNER.tenant, user__email=OWNER.email))


def seed_key(path: Path) -> str:
    """Return the demo key: the one stored in `path` while it works, else a new one, stored there with mode 0600."""
    known = _kept_key(path)
    if known is not None:
        return known
    _, text = keys.create_key(acting=owner(), name=KEY_NAME)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump({"email": OWNER.email, "password": PASSWORD, "tenant": OWNER.tenant, "key": text}, file, indent=2)
    return text


def _kept_key(path: Path) -> str | None:
    try:
        text = str(json.loads(path.read_text())["key"])
    except (OSError, ValueError, KeyError):
        return None
    return text if authenticate_key(text) is not None else None
