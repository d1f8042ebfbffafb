"""`lorikeet limits`: how much a tenant and its keys may use, and how much they use now."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from lorikeet_cli.client import Client
from lorikeet_cli.commands import ALL_ROWS, Commands, list_actions, positive, searched
from lorikeet_cli.errors import CliError
from lorikeet_cli.keys import find_key
from lorikeet_cli.output import Output, part_note, say, size, table

KEY_LIMITS = {
    "requests_per_minute": "requests within any 60 seconds",
    "tokens_per_minute": "prompt and output tokens within any 60 seconds",
    "tokens_per_day": "tokens in a day (UTC)",
    "tokens_per_month": "tokens in a month (UTC)",
    "concurrency": "requests that run at once",
    "max_output_tokens": "output tokens of one request, for each choice",
}
TENANT_LIMITS = {
    **KEY_LIMITS,
    "adapters": "adapters that are not archived",
    "storage_bytes": "bytes of all versions that are not archived",
    "max_rank": "rank of an adapter",
    "pinned_bytes": "bytes of each host's device memory for pins; none may be pinned without it",
}
# The value of an option that lifts a limit.
_NONE = "none"
# Keys of one request for limits: the server's maximum.
_PAGE = 200


def add_commands(commands: Commands) -> None:
    verb = commands.add(
        "limits",
        limits,
        "Show the limits of the tenant and its keys, and what is used of them; or set them.",
        "lorikeet limits",
        "lorikeet limits set --key backend --requests-per-minute 600 --tokens-per-day none",
        "lorikeet limits set --tenant acme --pinned-bytes 268435456",
    )
    actions = list_actions(verb, searched("a key's name or prefix"))
    change = actions.add("set", set_limits, "set limits of a key, or as an operator those of a tenant")
    target = change.add_mutually_exclusive_group(required=True)
    target.add_argument("--key", default="", help="a key's name, or lk_<prefix>")
    target.add_argument("--tenant", default="", help="a tenant's short name; for operators")
    for name, text in TENANT_LIMITS.items():
        only = "" if name in KEY_LIMITS else "; only of a tenant"
        option = f"--{name.replace('_', '-')}"
        change.add_argument(option, type=_limit, metavar="N", help=f'{text}{only}; "none" lifts it')


def _limit(text: str) -> int | str:
    return _NONE if text == _NONE else positive(text)


def limits(args: Namespace, client: Client) -> Output:
    report, total = _read(client, args.limit, args.search)
    rows = [[f"tenant {client.profile.tenant}", *cells] for cells in _cells(report["tenant"])]
    for key in report["keys"]:
        rows += [[f"key {key['name']}", *cells] for cells in _cells(key)]
    if not report["counters_reachable"]:
        say("The counters cannot be reached; what is used now is not known.")
    part_note(report["keys"], total)
    text = table(["of", "limit", "used", "at most"], rows) if rows else "Nothing is limited."
    return Output(report, text)


def _read(client: Client, limit: int, search: str | None) -> tuple[Any, int]:
    """Return the report of limits with up to `limit` keys, and the number of all keys that have limits."""
    report: Any = None
    while True:
        offset = len(report["keys"]) if report else 0
        query = {"limit": min(_PAGE, limit - offset), "offset": offset, "search": search}
        page, total = client.page(client.tenant_path("limits"), **query)
        if report is None:
            report = page
        else:
            report["keys"] += page["keys"]
        if not page["keys"] or len(report["keys"]) >= min(limit, total):
            return report, total


def _cells(row: Any) -> list[list[str]]:
    """Return each limit of a tenant or key that is set: its name, what is used, and the limit."""
    shown = []
    for name, limit in row["limits"].items():
        if limit is not None:
            used = row["used"].get(name)
            write = size if name.endswith("_bytes") else "{:,}".format
            shown.append([name.replace("_", " "), "–" if used is None else write(used), write(limit)])
    return shown


def set_limits(args: Namespace, client: Client) -> Output:
    """Change the limits that are named; the API replaces all of them, so the others are sent as they are."""
    changes = {name: getattr(args, name) for name in TENANT_LIMITS if getattr(args, name) is not None}
    if not changes:
        raise CliError("No limit is named.", "Add one, like --requests-per-minute 600.", code="no_limit")
    wrong = sorted(changes.keys() - KEY_LIMITS.keys()) if args.key else []
    if wrong:
        option = f"--{wrong[0].replace('_', '-')}"
        raise CliError(f"{option} is a limit of tenants.", "Keys own no adapters; use --tenant.", code="bad_limit")
    if args.tenant:
        present = client.operator("GET", "tenants", args.tenant, "limits")
        body = client.operator("PUT", "tenants", args.tenant, "limits", body=_merged(present, changes))
        name = args.tenant
    else:
        key = find_key(client, args.key)
        rows = _read(client, ALL_ROWS, key["prefix"])[0]["keys"]
        present = next((row["limits"] for row in rows if row["id"] == key["id"]), {})
        body = client.tenant("PUT", "keys", key["id"], "limits", body=_merged(present, changes))
        name = key["name"]
    say(f"The limits of {name} are in force within two seconds.")
    return Output(body)


def _merged(present: Any, changes: dict[str, Any]) -> dict[str, Any]:
    merged = {**present, **{name: None if value == _NONE else value for name, value in changes.items()}}
    return {name: value for name, value in merged.items() if value is not None}
