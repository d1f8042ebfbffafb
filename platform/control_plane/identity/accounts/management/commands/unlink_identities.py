"""`manage.py unlink_identities ada@example.org`: remove links between accounts and the sign-in provider."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.accounts.addresses import normalise_email
from control_plane.identity.accounts.identities import unlink
from control_plane.identity.accounts.models import Identity


class Command(BaseCommand):
    help = (
        "Remove the links of accounts to the sign-in provider, and end their sessions. The next person whom the "
        "provider knows by an account's verified address is linked to it."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email", nargs="?", help="Address of one account.")
        parser.add_argument("--issuer", help="Address of a provider whose subjects have all changed.")

    def handle(self, *args: Any, **options: Any) -> None:
        if not (options["email"] or options["issuer"]):
            raise CommandError("Name an account, or --issuer for all accounts of a provider.")
        identities = Identity.objects.select_related("user")
        if options["email"]:
            identities = identities.filter(user__email=normalise_email(options["email"]))
        if options["issuer"]:
            identities = identities.filter(issuer=options["issuer"])
        removed = list(identities)
        for identity in removed:
            unlink(actor=SYSTEM, identity=identity)
            self.stdout.write(f"{identity.user.email} is no longer linked to {identity.subject} of {identity.issuer}.")
        if not removed:
            raise CommandError("There are no such links.")
