"""`lorikeet keys`: API keys of the tenant."""

from __future__ import annotations

import sys
from argparse import Namespace
from datetime import UTC, datetime, timedelta
from typing import Any

from lorikeet_cli.client import Client
from lorikeet_cli.commands import Commands, list_actions, positive, searched
from lorikeet_cli.errors import CliError
from lorikeet_cli.output import Output, moment, part_note, say, table

SCOPES = ("infer", "adapters.write", "view")
_KEY = ("key", "its name, or lk_<prefix>")


def add_commands(commands: Commands) -> None:
    verb = commands.add(
        "keys",
        keys,
        "List, create, rotate and revoke API keys.",
        "lorikeet keys --search backend",
        'lorikeet keys create "backend" --scope infer --days 90',
        "lorikeet keys revoke backend",
    )
    actions = list_actions(verb, searched("the name or prefix"))
    create = actions.add("create", create_key, "make a key; its secret is printed once", ("name", "its name"))
    create.add_argument(
        "--scope", action="append", choices=SCOPES, help="may be repeated; by default all that keys may have"
    )
    create.add_argument("--days", type=positive, help="days until it expires; by default never")
    rotate = actions.add("rotate", rotate_key, "give a key a new secret, which is printed once", _KEY)
    rotate.add_argument("--grace", type=int, default=86_400, metavar="S", help="seconds that the old one still works")
    actions.add("revoke", revoke_key, "end a key at once", _KEY)


def keys(args: Namespace, client: Client) -> Output:
    keys, total = client.rows("keys", limit=args.limit, search=args.search)
    rows = [
        [
            key["name"],
            f"lk_{key['prefix']}_…",
            _state(key),
            ", ".join(key["scopes"]),
            moment(key["last_used_at"]) if key["last_used_at"] else "never",
        ]
        for key in keys
    ]
    part_note(keys, total)
    return Output(keys, table(["name", "key", "state", "scopes", "last used"], rows))


def _state(key: Any) -> str:
    if key["revoked_at"]:
        return "revoked"
    expired = key["expires_at"] and datetime.fromisoformat(key["expires_at"]) < datetime.now(UTC)
    return "expired" if expired else "active"


def create_key(args: Namespace, client: Client) -> Output:
    body: dict[str, object] = {"name": args.name}
    if args.scope:
        body["scopes"] = args.scope
    if args.days:
        body["expires_at"] = (datetime.now(UTC) + timedelta(days=args.days)).isoformat()
    key = client.tenant("POST", "keys", body=body)
    say("Keep it now: it is not shown again.")
    return Output(key, key["secret"])


def rotate_key(args: Namespace, client: Client) -> Output:
    key = find_key(client, args.key)
    rotated = client.tenant("POST", "keys", key["id"], "rotate", body={"grace_s": args.grace})
    say("Keep it now: it is not shown again.")
    return Output(rotated, rotated["secret"])


def revoke_key(args: Namespace, client: Client) -> Output:
    key = find_key(client, args.key)
    client.tenant("DELETE", "keys", key["id"])
    say(f"Revoked {key['name']}.")
    return Output()


def find_key(client: Client, name: str) -> Any:
    """Return the active key of that name, or of the prefix in lk_<prefix>. Raises CliError unless there is one."""
    prefix = name.removeprefix("lk_").partition("_")[0]
    rows = {key["id"]: key for text in {name, prefix} for key in client.rows("keys", limit=sys.maxsize, search=text)[0]}
    matches = [
        key for key in rows.values() if not key["revoked_at"] and (key["prefix"] == prefix or key["name"] == name)
    ]
    if len(matches) != 1:
        message = f"{len(matches)} active keys are called {name}."
        raise CliError(message, "Write lk_ and the part after it, as `lorikeet keys` shows them.", code="no_such_key")
    return matches[0]


def key_option(client: Client, name: str) -> dict[str, str]:
    """Return the form field that makes requests count as the key's; nothing for the key that is logged in."""
    return {"key": find_key(client, name)["id"]} if name else {}
