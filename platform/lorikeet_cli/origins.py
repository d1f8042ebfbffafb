"""`lorikeet origins`: web pages that may call inference with the tenant's keys."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from lorikeet_cli.client import Client
from lorikeet_cli.commands import Commands, list_actions, no_options
from lorikeet_cli.errors import CliError
from lorikeet_cli.output import Output, say


def add_commands(commands: Commands) -> None:
    verb = commands.add(
        "origins",
        origins,
        "List, allow and remove web pages that may call inference.",
        "lorikeet origins allow https://app.example.org",
    )
    actions = list_actions(verb, no_options)
    origin = ("origin", "like https://app.example.org")
    actions.add("allow", allow_origin, "let the pages of an origin read answers", origin)
    actions.add("remove", remove_origin, "no longer let them", origin)


def origins(args: Namespace, client: Client) -> Output:
    body = client.tenant("GET", "origins")
    return Output(body, "\n".join(body["origins"]))


def allow_origin(args: Namespace, client: Client) -> Output:
    body = _replace(client, {*_allowed(client), args.origin})
    say(f"Pages of {args.origin} may call inference with this tenant's keys.")
    return Output(body)


def remove_origin(args: Namespace, client: Client) -> Output:
    allowed = _allowed(client)
    if args.origin not in allowed:
        raise CliError(f"{args.origin} is not allowed.", "`lorikeet origins` lists the allowed ones.")
    body = _replace(client, allowed - {args.origin})
    say(f"Pages of {args.origin} may no longer read answers.")
    return Output(body)


def _allowed(client: Client) -> set[str]:
    return set(client.tenant("GET", "origins")["origins"])


def _replace(client: Client, origins: set[str]) -> Any:
    return client.tenant("PUT", "origins", body={"origins": sorted(origins)})
