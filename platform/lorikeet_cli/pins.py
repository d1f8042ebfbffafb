"""`lorikeet pin`, `unpin` and `pins`: adapters and prefixes of prompts that stay in device memory."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lorikeet_cli.commands import client, say
from lorikeet_cli.errors import CliError
from lorikeet_cli.output import table

MIB = 1 << 20
# Of a chat's request, what its beginning depends on.
_OF_CHATS = ("messages", "tools", "chat_template_kwargs", "reasoning_effort", "cache_salt")


def pin(asked: Namespace) -> None:
    if asked.prefix:
        _pin_prefix(asked)
        return
    if stray := next((name for name in ("name", "salt", "as_prompt") if getattr(asked, name)), None):
        raise CliError(f"--{stray.replace('_', '-')} goes with a prefix.", "Name its file with --prefix.")
    found = client().tenant("PUT", f"adapters/{quote(asked.model, safe='')}/pin")
    say(f"{asked.model} is kept loaded; it takes {_size(found['bytes'] or 0)} of each host. {_quota(found)}")


def unpin(asked: Namespace) -> None:
    path = (
        f"pinned-prefixes/{quote(asked.name, safe='')}"
        if asked.prefix
        else f"adapters/{quote(asked.name, safe='')}/pin"
    )
    client().tenant("DELETE", path)
    say(f"The prefix {asked.name} is unpinned, and its text deleted." if asked.prefix else f"{asked.name} is unpinned.")


def listed(asked: Namespace) -> None:
    """All that is pinned, a line for each host of a prefix that does not keep it, with the reason."""
    found = client().tenant("GET", "pins")
    rows = [["adapter", each["name"], each["name"], "", _size(each["bytes"]), ""] for each in found["adapters"]]
    rows += [
        ["prefix", each["name"], each["model"] or "–", each["tokens"], _size(each["bytes"]), _hosts(each["hosts"])]
        for each in found["prefixes"]
    ]
    print(table(["kind", "name", "model", "tokens", "of each host", "hosts"], rows))
    for prefix in found["prefixes"]:
        for host in prefix["hosts"]:
            if host["error"]:
                say(f"{prefix['name']} on {host['host']}: {host['error']['message']} {host['error']['fix']}")
    say(_quota(found))


def _pin_prefix(asked: Namespace) -> None:
    path = Path(asked.prefix)
    name = asked.name or ("prefix" if asked.prefix == "-" else path.stem.lower())
    body = {"name": name, "model": asked.model, **_content(_read(asked.prefix), is_prompt=asked.as_prompt)}
    if asked.salt:
        body["cache_salt"] = asked.salt
    made = client().tenant("POST", "pinned-prefixes", body)
    say(f"The prefix {made['name']} has {made['tokens']} tokens; it takes {_size(made['bytes'])} of each host.")
    print(made["name"])


def _read(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{path} cannot be read: {error}.", "Name a file of UTF-8 text.") from None


def _content(text: str, *, is_prompt: bool) -> dict[str, Any]:
    """A chat's beginning, if it is JSON of one: a list of messages, or an object with messages and tools. Any other
    text is the system prompt of chats, or the beginning of completions' prompts.
    """
    if is_prompt:
        return {"prompt": text}
    try:
        found = json.loads(text) if text.lstrip().startswith(("[", "{")) else None
    except ValueError:
        found = None
    if isinstance(found, list):
        return {"messages": found}
    if isinstance(found, dict) and "messages" in found:
        return {name: found[name] for name in _OF_CHATS if name in found}
    return {"messages": [{"role": "system", "content": text}]}


def _hosts(hosts: list[Any]) -> str:
    states = [each["state"] for each in hosts]
    return ", ".join(f"{states.count(state)} {state.replace('_', ' ')}" for state in dict.fromkeys(states)) or "none"


def _size(size: int) -> str:
    return f"{size / MIB:.1f} MiB"


def _quota(found: Any) -> str:
    return f"{_size(found['used_bytes'])} of {_size(found['limit_bytes'] or 0)} are used."
