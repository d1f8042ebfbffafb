"""`lorikeet promote`, `rollback`, `canary` and `aliases`: which version of an adapter answers."""

from __future__ import annotations

import argparse
from argparse import Namespace
from typing import Any

from lorikeet_cli.adapters import alias_of, parse_version
from lorikeet_cli.client import Client
from lorikeet_cli.commands import VERSION, Actions, Commands
from lorikeet_cli.errors import CliError
from lorikeet_cli.output import Output, moment, say, table

_ADAPTER = "an adapter"


def add_commands(commands: Commands) -> None:
    verb = commands.add("promote", promote, "Make a version the live one.", "lorikeet promote support@v7")
    verb.add_argument("version", help=VERSION)
    verb = commands.add("rollback", rollback, "Give an alias its previous version back.", "lorikeet rollback support")
    verb.add_argument("adapter", help=_ADAPTER)
    _alias_option(verb)
    verb = commands.add(
        "canary",
        None,
        "Try a version on a part of an alias's requests.",
        "lorikeet canary start support@v7 --percent 10",
        "lorikeet canary show support",
        "lorikeet canary stop support",
    )
    actions = Actions(verb, required=True)
    start = actions.add("start", start_canary, "give a version a share of the requests", ("version", VERSION))
    start.add_argument(
        "--percent",
        type=int,
        required=True,
        metavar="N",
        help="share of the alias's requests in per cent, 1 to 99; may be changed",
    )
    show = actions.add("show", show_canary, "compare it with the alias's own version", ("adapter", _ADAPTER))
    stop = actions.add("stop", stop_canary, "send all requests to the alias's own version", ("adapter", _ADAPTER))
    for action in (start, show, stop):
        _alias_option(action)
    verb = commands.add(
        "aliases",
        None,
        "List, set and remove names of versions, such as support@stable.",
        "lorikeet aliases list support",
        "lorikeet aliases set support@v7 stable",
        "lorikeet aliases remove support stable",
    )
    actions = Actions(verb, required=True)
    actions.add("list", aliases, "list those of an adapter", ("adapter", _ADAPTER))
    actions.add("set", set_alias, "create one or move it", ("version", VERSION), ("alias", "like stable"))
    actions.add("remove", remove_alias, "remove one", ("adapter", _ADAPTER), ("alias", "like stable"))


def _alias_option(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--alias", default="live", help="by default live, which requests without a version get")


def promote(args: Namespace, client: Client) -> Output:
    name, number = parse_version(args.version)
    version = client.tenant("POST", "adapters", name, "versions", number, "promote")
    say(f"{name} is now version {number}; running requests keep the one they started with.")
    return Output(version)


def rollback(args: Namespace, client: Client) -> Output:
    adapter = client.tenant("POST", "adapters", args.adapter, "aliases", args.alias, "rollback")
    alias = alias_of(adapter, args.alias)
    say(f"{_called(args)} is version {alias['version']} again; running requests keep the one they started with.")
    return Output(adapter)


def start_canary(args: Namespace, client: Client) -> Output:
    name, number = parse_version(args.version)
    body = {"version": number, "percent": args.percent}
    adapter = client.tenant("PUT", "adapters", name, "aliases", args.alias, "canary", body=body)
    say(f"{args.version} answers {args.percent} % of the requests; it is stopped if it is clearly worse.")
    say(f"`lorikeet canary show {name}` compares both; `lorikeet promote {args.version}` gives it all requests.")
    return Output(adapter)


def show_canary(args: Namespace, client: Client) -> Output:
    """Show the figures of a canary and of the alias's own version, or how the last one ended."""
    adapter = client.tenant("GET", "adapters", args.adapter)
    alias = alias_of(adapter, args.alias)
    if alias is None:
        fix = f"`lorikeet aliases list {args.adapter}` lists its aliases."
        raise CliError(f"{args.adapter} has no alias {args.alias}.", fix, code="alias_not_found")
    comparison = client.tenant("GET", "adapters", args.adapter, "aliases", args.alias, "canary")
    body = {"alias": alias, **comparison}
    if alias["canary"] is None:
        ended = alias["rolled_back"]
        last = f" The last one, version {ended['version']}, was stopped: {ended['message']}" if ended else ""
        return Output(body, f"{_called(args)} has no canary.{last}")
    percent = alias["canary_percent"]
    rows = [
        _figures(f"v{alias['version']}", 100 - percent, comparison["own"]),
        _figures(f"v{alias['canary']} (canary)", percent, comparison["canary"]),
    ]
    say(f"Nothing is judged before each version has {comparison['least_requests']:,} requests.")
    return Output(body, table(["version", "share", "requests", "failed", "first token", "next token"], rows))


def _figures(label: str, percent: int, stats: Any) -> list[object]:
    stats = stats or {"requests": 0, "failed": 0, "first_token_ms": None, "inter_token_ms": None}
    times = [f"{stats[name]:.1f} ms" if stats[name] else "–" for name in ("first_token_ms", "inter_token_ms")]
    return [label, f"{percent} %", stats["requests"], stats["failed"], *times]


def stop_canary(args: Namespace, client: Client) -> Output:
    client.tenant("DELETE", "adapters", args.adapter, "aliases", args.alias, "canary")
    say(f"All requests of {_called(args)} go to its own version again.")
    return Output()


def aliases(args: Namespace, client: Client) -> Output:
    aliases = client.tenant("GET", "adapters", args.adapter)["aliases"]
    rows = [
        [
            each["name"],
            f"v{each['version']}",
            f"v{each['previous']}" if each["previous"] else "–",
            f"v{each['canary']}, {each['canary_percent']} %" if each["canary"] else "–",
            moment(each["updated_at"]),
        ]
        for each in aliases
    ]
    return Output(aliases, table(["alias", "version", "previous", "canary", "moved"], rows))


def set_alias(args: Namespace, client: Client) -> Output:
    name, number = parse_version(args.version)
    adapter = client.tenant("PUT", "adapters", name, "aliases", args.alias, body={"version": number})
    say(f"{name}@{args.alias} is version {number}.")
    return Output(adapter)


def remove_alias(args: Namespace, client: Client) -> Output:
    client.tenant("DELETE", "adapters", args.adapter, "aliases", args.alias)
    say(f"{args.adapter}@{args.alias} is removed; the version stays.")
    return Output()


def _called(args: Namespace) -> str:
    return str(args.adapter) if args.alias == "live" else f"{args.adapter}@{args.alias}"
