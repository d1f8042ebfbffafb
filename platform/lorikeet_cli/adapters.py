"""The commands for adapters and their versions, such as `lorikeet adapters`, `archive` and `confirm-effect`."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any

from lorikeet_cli.client import Client
from lorikeet_cli.commands import VERSION, Commands, list_options
from lorikeet_cli.effect import dtypes_text
from lorikeet_cli.errors import CliError
from lorikeet_cli.output import Output, moment, part_note, say, size, table

STATUSES = ("empty", "validated", "staging", "ready", "failed", "archived")
_NAME = "an adapter like support, or one of its versions like support@v7"


def add_commands(commands: Commands) -> None:
    verb = commands.add(
        "adapters",
        adapters,
        "List adapters, or the versions and aliases of one.",
        "lorikeet adapters",
        "lorikeet adapters support",
        "lorikeet adapters --archived",
        "lorikeet adapters --all --json | jq -r '.[].name'",
    )
    verb.add_argument("name", nargs="?", default="", help="an adapter")
    list_options(verb, search="the name or description")
    verb.add_argument("--status", choices=STATUSES, help="only adapters whose newest version is in this state")
    verb.add_argument("--archived", action="store_true", help="those that can be restored")
    verb = commands.add(
        "models", models, "List what requests can name: base models, and adapters that are live.", "lorikeet models"
    )
    list_options(verb, search="the name")
    for name, run, text, example, help_text in (
        ("archive", archive, "Take an adapter or a version out of service; kept for a while.", "support@v3", _NAME),
        ("restore", restore, "Bring an archived adapter or version back.", "support", _NAME),
        ("restage", restage, "Send a version to the hosts again, after a failure.", "support@v3", VERSION),
        ("confirm-base", confirm_base, "Confirm that a version trained for another base fits.", "support@v7", VERSION),
        ("confirm-effect", confirm_effect, "Confirm that a flagged version may be live.", "support@v7", VERSION),
    ):
        commands.add(name, run, text, f"lorikeet {name} {example}").add_argument("version", help=help_text)
    verb = commands.add(
        "adapter-dtype",
        adapter_dtype,
        "Show in which dtype hosts serve a version, or set it: auto (FP8 where it agrees), bf16 or fp8.",
        "lorikeet adapter-dtype support@v3",
        "lorikeet adapter-dtype support@v3 bf16",
    )
    verb.add_argument("version", help=VERSION)
    verb.add_argument("dtype", nargs="?", choices=("auto", "bf16", "fp8"), help="the setting; left out, it is shown")
    verb = commands.add(
        "delete",
        delete,
        "Delete a version, or an archived adapter, permanently.",
        "lorikeet delete support@v3 --yes",
    )
    verb.add_argument("version", help=_NAME)
    verb.add_argument("--yes", action="store_true", help="do not ask; needed where no terminal can be asked")


def adapters(args: Namespace, client: Client) -> Output:
    if args.name:
        return _versions(client, args.name)
    if args.archived:
        return _archived(args, client)
    adapters, total = client.rows("adapters", limit=args.limit, search=args.search, status=args.status)
    rows = [
        [
            each["name"],
            each["status"],
            f"v{each['live_version']}" if each["live_version"] else "–",
            each["versions_count"],
            size(each["bytes"] or 0),
        ]
        for each in adapters
    ]
    part_note(adapters, total, "by name")
    return Output(adapters, table(["adapter", "status", "live", "versions", "size"], rows))


def _versions(client: Client, name: str) -> Output:
    adapter = client.tenant("GET", "adapters", name)
    rows = [
        [
            f"v{each['number']}",
            each["state"],
            ", ".join(alias["name"] for alias in adapter["aliases"] if alias["version"] == each["number"]),
            each["rank"],
            size(each["bytes"] or 0),
            (each["verdict"] or "not tried yet").replace("_", " "),
        ]
        for each in adapter["versions"]
    ]
    return Output(adapter, table(["version", "state", "aliases", "rank", "size", "effect"], rows))


def _archived(args: Namespace, client: Client) -> Output:
    adapters, total = client.rows("archived-adapters", limit=args.limit, search=args.search)
    rows = [
        [each["name"], each["versions_count"], moment(each["archived_at"]), each["kept_until"]] for each in adapters
    ]
    part_note(adapters, total)
    return Output(adapters, table(["adapter", "versions", "archived", "deleted at"], rows))


def models(args: Namespace, client: Client) -> Output:
    models, total = client.rows("models", limit=args.limit, search=args.search)
    rows = [[each["id"], each["kind"], ", ".join(each["aliases"]), each.get("base_model") or ""] for each in models]
    part_note(models, total, "by name")
    return Output(models, table(["model", "kind", "aliases", "base model"], rows))


def archive(args: Namespace, client: Client) -> Output:
    name, number = parse_name(args.version)
    if number is None:
        client.tenant("DELETE", "adapters", name)
        say(f"{name} is archived and can no longer be called; `lorikeet restore {name}` brings it back.")
        return Output()
    version = client.tenant("POST", "adapters", name, "versions", number, "archive")
    say(f"{args.version} is archived; `lorikeet restore {args.version}` brings it back.")
    return Output(version)


def restore(args: Namespace, client: Client) -> Output:
    name, number = parse_name(args.version)
    if number is None:
        adapter = client.tenant("POST", "archived-adapters", _archived_id(client, name), "restore")
        say(f"{name} is restored; its versions are staged again.")
        return Output(adapter)
    version = client.tenant("POST", "adapters", name, "versions", number, "restore")
    say(f"{args.version} is restored, and staged again.")
    return Output(version)


def restage(args: Namespace, client: Client) -> Output:
    name, number = parse_version(args.version)
    version = client.tenant("POST", "adapters", name, "versions", number, "restage")
    say(f"{args.version} is staged again; `lorikeet adapters {name}` shows when it is ready.")
    return Output(version)


def delete(args: Namespace, client: Client) -> Output:
    name, number = parse_name(args.version)
    if not args.yes:
        _confirm(args.version)
    if number is None:
        client.tenant("DELETE", "archived-adapters", _archived_id(client, name))
    else:
        client.tenant("DELETE", "adapters", name, "versions", number)
    say(f"{args.version} is deleted; its usage stays in the bill.")
    return Output()


def _confirm(name: str) -> None:
    if not sys.stdin.isatty():
        raise CliError(f"Deleting {name} cannot be undone.", "Add --yes to do it.", code="not_confirmed")
    print(f"Delete {name} permanently? Write its name: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() != name:
        raise CliError(f"{name} was not deleted.", code="not_confirmed")


def _archived_id(client: Client, name: str) -> str:
    """Return the id of the adapter of that name which was archived last. Raises CliError if there is none."""
    rows, _ = client.rows("archived-adapters", limit=sys.maxsize, search=name)
    for row in rows:
        if row["name"] == name:
            return str(row["id"])
    fix = "`lorikeet adapters --archived` lists them. An adapter in service is archived first: `lorikeet archive`."
    raise CliError(f"No archived adapter is called {name}.", fix, code="archived_adapter_not_found")


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


def adapter_dtype(args: Namespace, client: Client) -> Output:
    name, number = parse_version(args.version)
    path = ("adapters", name, "versions", number)
    if args.dtype:
        version = client.tenant("PUT", *path, "dtype", body={"adapter_dtype": args.dtype})
        say(f"{name}@v{number} has adapter_dtype {args.dtype}; hosts follow, and running requests keep their dtype.")
    else:
        version = client.tenant("GET", *path)
    return Output(version, dtypes_text(version))


def parse_version(text: str) -> tuple[str, int]:
    """Return the adapter and the number of a version such as support@v7. Raises CliError."""
    name, _, number = text.partition("@v")
    if not name or not number.isdecimal():
        raise CliError(f'"{text}" names no version.', "Write it like support@v7.", code="bad_version")
    return name, int(number)


def parse_name(text: str) -> tuple[str, int | None]:
    """Return the adapter and the number of the version in a name such as support or support@v7. Raises CliError."""
    return parse_version(text) if "@" in text else (text, None)


def alias_of(adapter: Any, name: str) -> Any:
    """Return an alias of an adapter of the API, or None."""
    return next((alias for alias in adapter["aliases"] if alias["name"] == name), None)
