"""`manage.py make_operator ada@example.org`: let a person see reports and publish prices across tenants."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from control_plane.core.errors import LorikeetError
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.accounts.actions import set_operator
from control_plane.identity.accounts.addresses import normalise_email
from control_plane.identity.accounts.models import User


class Command(BaseCommand):
    help = "Make the account of an e-mail address an operator of this installation."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")
        parser.add_argument("--undo", action="store_true", help="End the account's operator rights.")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(email=normalise_email(options["email"])).first()
        if user is None:
            raise CommandError(f"There is no account of {options['email']}. Make one with create_tenant.")
        try:
            set_operator(actor=SYSTEM, user=user, operator=not options["undo"])
        except LorikeetError as error:
            raise CommandError(f"{error.message} {error.fix}") from error
        self.stdout.write(f"{user.email} is {'no longer ' if options['undo'] else ''}an operator.")
