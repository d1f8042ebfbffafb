"""`manage.py reset_second_factor ada@example.org`: remove the second factors of a person who lost them."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.accounts.addresses import normalise_email
from control_plane.identity.accounts.models import User
from control_plane.identity.second_factor.actions import reset


class Command(BaseCommand):
    help = "Remove all second factors of an account and end its sessions. The password then signs in alone."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(email=normalise_email(options["email"])).first()
        if user is None:
            raise CommandError(f"There is no account of {options['email']}. Check the address.")
        if reset(actor=SYSTEM, user=user):
            self.stdout.write(f"The second factors of {user.email} are removed, and its sessions have ended.")
        else:
            self.stdout.write(f"{user.email} had no second factor; its sessions have ended.")
