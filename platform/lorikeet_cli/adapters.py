"""`lorikeet adapters`, `promote`, `confirm-base` and `confirm-effect`."""

from __future__ import annotations

from argparse import Namespace

from lorikeet_cli.client import Client
from lorikeet_cli.errors import CliError
from lorikeet_cli.output import Output, say, table


def adapters(args: Namespace, client: Client) -> Output:
    if args.name:
        return _versions(client, args.name)
    adapters = client.tenant("GET", "adapters")
    rows = [
        [each["name"], each["status"], f"v{each['live_version']}" if each["live_version"] else "–", each["bytes"] or 0]
        for each in adapters
    ]
    return Output(adapters, table(["adapter", "status", "live", "bytes"], rows))


def _versions(client: Client, name: str) -> Output:
    adapter = client.tenant("GET", "adapters", name)
    rows = [
        [
            f"v{each['number']}",
            each["state"],
            ", ".join(alias["name"] for alias in adapter["aliases"] if alias["version"] == each["number"]),
            each["rank"],
            each["bytes"],
            (each["verdict"] or "not tried yet").replace("_", " "),
        ]
        for each in adapter["versions"]
    ]
    return Output(adapter, table(["version", "state", "aliases", "rank", "bytes", "effect"], rows))


def promote(args: Namespace, client: Client) -> Output:
    name, number = parse_version(args.version)
    version = client.tenant("POST", "adapters", name, "versions", number, "promote")
    say(f"{name} is now version {number}; running requests keep the one they started with.")
    return Output(version)


def confirm_base(args: Namespace, client: Client) -> Output:
    name, number = parse_version(args.version)
    version = client.tenant("POST", "adapters", name, "versions", number, "confirm-base")
    say(f"{name}@v{number} is served as an adapter of {version['base_model']}.")
    return Output(version)


def confirm_effect(args: Namespace, client: Client) -> Output:
    name, number = parse_version(args.version)
    version = client.tenant("POST", "adapters", name, "versions", number, "confirm-effect")
    live = "; it is live" if "live" in version["aliases"] else ""
    say(f"{name}@v{number} may be live as it is{live}.")
    return Output(version)


def parse_version(text: str) -> tuple[str, str]:
    """Return the adapter and the number of a version such as support@v7. Raises CliError."""
    name, _, number = text.partition("@v")
    if not name or not number.isdecimal():
        raise CliError(f'"{text}" names no version.', "Write it like support@v7.", code="bad_version")
    return name, number
