"""`lorikeet audit`: who changed what in the tenant."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from lorikeet_cli.client import Client
from lorikeet_cli.commands import FILE, Commands, list_options
from lorikeet_cli.output import Output, moment, say, table, write

# Events of one request for the log: the server's maximum.
_PAGE = 200
_FILTERS = ("action", "actor", "target", "since", "until")


def add_commands(commands: Commands) -> None:
    verb = commands.add(
        "audit",
        audit,
        "Show who changed what, the newest first; for owners and admins.",
        "lorikeet audit --limit 20",
        "lorikeet audit --action version.promote --since 2026-05-01T00:00:00Z",
        "lorikeet audit --csv audit.csv",
    )
    list_options(verb)
    verb.add_argument("--action", help="only this action, like version.promote")
    verb.add_argument("--actor", help="only by this account or key")
    verb.add_argument("--target", help="only of this adapter, key, member …")
    verb.add_argument("--since", metavar="TIME", help="like 2026-05-01T00:00:00Z")
    verb.add_argument("--until", metavar="TIME", help="like 2026-06-01T00:00:00Z")
    verb.add_argument("--csv", default="", metavar="FILE", help=f"write all of it as CSV: {FILE}")


def audit(args: Namespace, client: Client) -> Output:
    filters = {name: getattr(args, name) for name in _FILTERS}
    if args.csv:
        write(client.stream(client.tenant_path("audit.csv"), **filters), args.csv)
        return Output()
    events: list[Any] = []
    before: int | None = None
    while len(events) < args.limit:
        size = min(_PAGE, args.limit - len(events))
        page = client.tenant("GET", "audit", size=size, before=before, **filters)
        events += page["events"]
        before = page["next"]
        if before is None:
            break
    if before is not None:
        say("There are older events; --limit N or --all shows more.")
    rows = [
        [moment(each["created_at"]), each["actor"]["label"], each["action"], each["target"]["label"], _detail(each)]
        for each in events
    ]
    return Output(events, table(["time", "who", "action", "of", "detail"], rows))


def _detail(event: Any) -> str:
    return ", ".join(f"{name}={value}" for name, value in event["detail"].items() if value not in (None, "", [], {}))
