"""`manage.py create_tenant acme --owner ada@example.org`: a tenant with its first member, and a key if requested."""

from __future__ import annotations

import os
import secrets
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from control_plane.core.errors import LorikeetError
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.access.principal import Principal
from control_plane.identity.accounts.actions import create_user, proven_account
from control_plane.identity.accounts.models import User
from control_plane.identity.keys.actions import create_key
from control_plane.identity.members.actions import add_member, create_tenant
from control_plane.identity.tenants.models import Membership
from control_plane.identity.tenants.roles import Role

PASSWORD_VARIABLE = "LORIKEET_OWNER_PASSWORD"


class Command(BaseCommand):
    help = "Create a tenant and its owner. A password or key that it creates is printed once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("slug", help="The tenant's name in addresses, e.g. acme.")
        parser.add_argument("--name", default="", help="Name of the tenant for people; by default the slug.")
        parser.add_argument(
            "--owner", required=True, help="E-mail address; an account of it is used if its holder has proven it."
        )
        parser.add_argument(
            "--key", default="", help="Name of an API key to create in the tenant; by default none is created."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            with transaction.atomic():
                self._create(**options)
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        except LorikeetError as error:
            raise CommandError(f"{error.message} {error.fix}") from error

    def _create(self, *, slug: str, name: str, owner: str, key: str, **rest: Any) -> None:
        tenant = create_tenant(actor=SYSTEM, slug=slug, name=name or slug)
        user = proven_account(owner) or self._create_user(owner)
        add_member(actor=SYSTEM, tenant=tenant, user=user, role=Role.OWNER)
        self.stdout.write(f"Tenant {slug}, owner {user.email}")
        if key:
            membership = Membership.objects.for_tenant(tenant).select_related("tenant", "user").get(user=user)
            _, text = create_key(acting=Principal.of_member(membership), name=key)
            self.stdout.write(f"API key {text}")

    def _create_user(self, email: str) -> User:
        chosen = os.environ.get(PASSWORD_VARIABLE)
        password = chosen or secrets.token_urlsafe(12)
        user = create_user(actor=SYSTEM, email=email, password=password)
        if not chosen:
            self.stdout.write(f"Password {password}")
        return user
