"""Two tenants with members, keys and validated adapters, printed as JSON. Run as a program with LORIKEET_* set.

The adapters have no files: only the scripted engine stages them.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from typing import Any

PASSWORD = "correct horse battery"
TENANTS = {"acme": ["support", "pirate"], "globex": ["sql"]}


def digest_of(tenant: str, adapter: str, number: int = 1) -> str:
    return "sha256:" + hashlib.sha256(f"{tenant}/{adapter}/{number}".encode()).hexdigest()


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings")
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    bare = "--without-adapters" in sys.argv
    print(json.dumps({slug: seed_tenant(slug, [] if bare else adapters) for slug, adapters in TENANTS.items()}))


def seed_tenant(slug: str, adapters: list[str]) -> dict[str, Any]:
    from django.utils import timezone

    from control_plane.identity.access.principal import Principal
    from control_plane.identity.accounts.models import User
    from control_plane.identity.keys.actions import create_key
    from control_plane.identity.tenants.models import Membership, Tenant
    from control_plane.identity.tenants.roles import Role

    tenant = Tenant.objects.create(slug=slug, name=slug.title())
    user = User.objects.create_user(f"owner@{slug}.example", PASSWORD, email_verified_at=timezone.now())
    membership = Membership.objects.create(tenant=tenant, user=user, role=Role.OWNER)
    acting = Principal.of_member(membership)
    _, key = create_key(acting=acting, name="test")
    _, view_only = create_key(acting=acting, name="view only", scopes=["view"])
    for name in adapters:
        add_version(tenant, name)
    return {"id": str(tenant.pk), "email": user.email, "password": PASSWORD, "key": key, "view_only_key": view_only}


def add_version(tenant: Any, name: str, number: int = 1) -> Any:
    from control_plane.adapters.registry.models import Adapter, AdapterVersion

    adapter, _ = Adapter.objects.get_or_create(tenant=tenant, name=name)
    return AdapterVersion.objects.create(
        tenant=tenant,
        adapter=adapter,
        number=number,
        digest=digest_of(tenant.slug, name, number),
        file_digests={"adapter_config.json": "sha256:00", "adapter_model.safetensors": "sha256:00"},
        rank=8,
        targets=["q_proj", "v_proj"],
        dtype="float32",
        bytes=1 << 20,
        num_parameters=1 << 18,
        base_model="fake-base",
        base_digest="sha256:" + "ba5e" * 16,
        report={"ok": True, "problems": [], "problem_count": 0, "checks": [], "notes": [], "manifest": None},
    )


if __name__ == "__main__":
    main()
