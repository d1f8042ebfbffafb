"""What became of uploads and imports, and an end to those that are not decided."""

from __future__ import annotations

from argparse import Namespace
from typing import Any
from urllib.parse import quote

from lorikeet_cli.commands import client, say
from lorikeet_cli.output import table


def listed(asked: Namespace) -> None:
    rows = [
        [each["id"], each["adapter"], each["state"], _source(each), _outcome(each), each["created_at"][:19]]
        for each in client().tenant("GET", "uploads")
    ]
    print(table(["upload", "adapter", "state", "from", "became", "created"], rows))


def _source(sent: Any) -> str:
    source = sent["imported_from"]
    if source is None:
        return "files"
    return f"{source['name']}@{source['revision']}" if source["revision"] else str(source["name"])


def _outcome(sent: Any) -> str:
    if sent["version"]:
        return f"{sent['adapter']}@v{sent['version']}"
    return str(sent["reason"]["message"]) if sent["reason"] else ""


def cancel(asked: Namespace) -> None:
    ended = client().tenant("DELETE", f"uploads/{quote(asked.upload, safe='')}")
    say(f"{ended['adapter']}: cancelled, and nothing is kept of it.")
