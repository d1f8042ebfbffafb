"""`manage.py seed_demo`: the demo tenants, users, key and adapters."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from control_plane.core.config import current
from control_plane.fleet.base_models.actions import HostAwayError, approve_base_model, describe_host, set_base_model
from control_plane.fleet.base_models.base_model import served_bases
from control_plane.fleet.hosts.host_status import description_json
from control_plane.fleet.transport.endpoint import configured_endpoints
from control_plane.identity.access.actor import SYSTEM
from control_plane.management.demo import adapters, people

# Name of the second demo model, whose adapters are seeded where it is served.
HYBRID_NAME = "lorikeet-demo-hybrid"
PROMPT = "Hello! Who are you, and what can you do for me?"


class Command(BaseCommand):
    help = "Create the demo tenants, users, API key and adapters. Safe to run again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="Print one line of JSON at the end.")
        parser.add_argument("--url", default="", help="Upload over HTTP to this running server and wait.")
        parser.add_argument("--wait", type=float, default=60.0, help="Seconds to wait for staging (with --url).")

    def handle(self, *args: Any, **options: Any) -> None:
        settings = current()
        if not (settings.debug or settings.demo):
            raise CommandError(
                "The demo has a well-known password and is not created in production. "
                "Set LORIKEET_DEMO=1 if this installation really is a demo."
            )
        if options["url"]:
            self._follow_engines()
        people.seed_people()
        people.seed_prices()
        people.seed_limits()
        key = people.seed_key(settings.var_dir / "demo-credentials.json")
        states = self._adapters(options["url"], key, options["wait"])
        self._report(key, states, as_json=options["json"])

    @staticmethod
    def _follow_engines() -> None:
        """Make the first engine's model the base model, and serve those of the others beside it.

        In a demo the operator chooses them with `make run MODEL=… HYBRID=…`.
        """
        for number, name in enumerate(configured_endpoints()):
            try:
                description = describe_host(name)
            except HostAwayError as error:
                raise CommandError(f"{error} {error.fix}") from error
            if served_bases().is_served_by(description_json(description)):
                continue
            if number:
                approve_base_model(actor=SYSTEM, description=description)
            else:
                set_base_model(actor=SYSTEM, description=description)

    def _adapters(self, url: str, key: str, wait_s: float) -> dict[str, str]:
        self.known = adapters.demo_adapters(current().demo_dir / "adapters")
        if served_bases().named(HYBRID_NAME):
            self.known += adapters.demo_adapters(current().demo_dir / "hybrid" / "adapters")
        for adapter in adapters.missing(self.known):
            self.stdout.write(f"Uploading {adapter.name}")
            try:
                adapters.upload_to(url, key, adapter) if url else adapters.upload_here(adapter)
            except adapters.DemoServerError as error:
                raise CommandError(f"The server refused the demo adapter {error}") from error
        names = {adapter.name for adapter in self.known}
        states = adapters.wait_until_settled(wait_s if url else 0.0)
        return {name: state for name, state in states.items() if name in names}

    def _report(self, key: str, states: dict[str, str], *, as_json: bool) -> None:
        model, prompt = self._example(states)
        facts = {
            "tenant": people.OWNER.tenant,
            "email": people.OWNER.email,
            "password": people.PASSWORD,
            "key": key,
            "model": model,
            "prompt": prompt,
            "adapters": states,
        }
        if as_json:
            self.stdout.write(json.dumps(facts))
            return
        for name, state in states.items():
            self.stdout.write(f"  {name}: {state}")
        self.stdout.write(f"Login {people.OWNER.email} / {people.PASSWORD}, API key {key}")

    def _example(self, states: dict[str, str]) -> tuple[str, str]:
        """Return a model that can be called now, and a prompt for it."""
        ready = [each for each in self.known if states.get(each.name) == "ready"]
        for adapter in sorted(ready, key=lambda each: not each.prompt):
            return adapter.name, adapter.prompt or PROMPT
        base = next(iter(served_bases()), None)
        return (base.name if base else "lorikeet-demo"), PROMPT
