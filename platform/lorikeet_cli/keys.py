"""`lorikeet keys`: API keys of the tenant."""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime, timedelta
from typing import Any

from lorikeet_cli.client import Client
from lorikeet_cli.errors import CliError
from lorikeet_cli.output import Output, say, table


def keys(args: Namespace, client: Client) -> Output:
    keys = client.tenant("GET", "keys")
    rows = [
        [key["name"], f"lk_{key['prefix']}_…", _state(key), ",".join(key["scopes"]), key["last_used_at"] or "never"]
        for key in keys
    ]
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


def revoke_key(args: Namespace, client: Client) -> Output:
    key = find_key(client, args.key)
    client.tenant("DELETE", "keys", key["id"])
    say(f"Revoked {key['name']}.")
    return Output()


def find_key(client: Client, name: str) -> Any:
    """Return the active key of that name, or of the prefix in lk_<prefix>. Raises CliError unless there is one."""
    prefix = name.removeprefix("lk_").partition("_")[0]
    matches = [
        key
        for key in client.tenant("GET", "keys")
        if not key["revoked_at"] and (key["prefix"] == prefix or key["name"] == name)
    ]
    if len(matches) != 1:
        message = f"{len(matches)} active keys are called {name}."
        raise CliError(message, "Write lk_ and the part after it, as `lorikeet keys` shows them.", code="no_such_key")
    return matches[0]


def key_option(client: Client, name: str) -> dict[str, str]:
    """Return the form field that makes requests count as the key's; nothing for the key that is logged in."""
    return {"key": find_key(client, name)["id"]} if name else {}
