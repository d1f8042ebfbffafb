"""`lorikeet pin`, `unpin` and `pins`: adapters and prefixes of prompts that stay in device memory."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from lorikeet_cli.client import Client
from lorikeet_cli.commands import Commands
from lorikeet_cli.errors import CliError
from lorikeet_cli.output import Output, say, table

MIB = 1 << 20
# Fields of a chat request on which the beginning of its prompt depends.
_PROMPT_FIELDS = ("messages", "tools", "chat_template_kwargs", "reasoning_effort", "cache_salt")


def add_commands(commands: Commands) -> None:
    verb = commands.add(
        "pin",
        pin,
        "Keep an adapter's live version, or the beginning of prompts, in device memory.",
        "lorikeet pin support",
        "lorikeet pin support --prefix system.txt --name handbook",
    )
    verb.add_argument("model", help="an adapter; with --prefix an adapter or a base model")
    verb.add_argument(
        "--prefix",
        default="",
        metavar="FILE",
        help='the beginning of its prompts: a system prompt, or JSON of messages; "-" is standard input',
    )
    verb.add_argument("--name", default="", help="the prefix; by default the name of its file")
    verb.add_argument("--as-prompt", action="store_true", help="the file begins prompts of completions, not of chats")
    verb.add_argument("--salt", default="", help="the cache_salt of the requests that begin with it")
    verb = commands.add(
        "unpin", unpin, "Let hosts evict an adapter or a prefix again.", "lorikeet unpin handbook --prefix"
    )
    verb.add_argument("name", help="an adapter, or with --prefix a pinned prefix")
    verb.add_argument("--prefix", action="store_true", help="unpin a prefix; its text is deleted")
    commands.add(
        "pins", pins, "List what is pinned, on which hosts, and how much of the quota is used.", "lorikeet pins"
    )


def pin(args: Namespace, client: Client) -> Output:
    if args.prefix:
        return _pin_prefix(args, client)
    if option := next((name for name in ("name", "salt", "as_prompt") if getattr(args, name)), None):
        raise CliError(f"--{option.replace('_', '-')} goes with a prefix.", "Name its file with --prefix.")
    pinned = client.tenant("PUT", "adapters", args.model, "pin")
    say(f"{args.model} is kept loaded; it takes {_size(pinned['bytes'] or 0)} of each host. {_quota(pinned)}")
    return Output(pinned)


def unpin(args: Namespace, client: Client) -> Output:
    if args.prefix:
        client.tenant("DELETE", "pinned-prefixes", args.name)
        say(f"The prefix {args.name} is unpinned, and its text deleted.")
    else:
        client.tenant("DELETE", "adapters", args.name, "pin")
        say(f"{args.name} is unpinned.")
    return Output()


def pins(args: Namespace, client: Client) -> Output:
    """List everything that is pinned, with the reason of each host that does not keep a prefix."""
    pins = client.tenant("GET", "pins")
    rows = [["adapter", each["name"], each["name"], "", _size(each["bytes"]), ""] for each in pins["adapters"]]
    rows += [
        ["prefix", each["name"], each["model"] or "–", each["tokens"], _size(each["bytes"]), _hosts(each["hosts"])]
        for each in pins["prefixes"]
    ]
    for prefix in pins["prefixes"]:
        for host in prefix["hosts"]:
            if host["error"]:
                say(f"{prefix['name']} on {host['host']}: {host['error']['message']} {host['error']['fix']}")
    say(_quota(pins))
    return Output(pins, table(["kind", "name", "model", "tokens", "of each host", "hosts"], rows))


def _pin_prefix(args: Namespace, client: Client) -> Output:
    name = args.name or ("prefix" if args.prefix == "-" else Path(args.prefix).stem.lower())
    body = {"name": name, "model": args.model, **_content(_read(args.prefix), is_prompt=args.as_prompt)}
    if args.salt:
        body["cache_salt"] = args.salt
    prefix = client.tenant("POST", "pinned-prefixes", body=body)
    say(f"The prefix {prefix['name']} has {prefix['tokens']} tokens; it takes {_size(prefix['bytes'])} of each host.")
    return Output(prefix, prefix["name"])


def _read(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{path} cannot be read: {error}.", "Name a file of UTF-8 text.", code="not_read") from None


def _content(text: str, *, is_prompt: bool) -> dict[str, Any]:
    """Return the fields of a request that begins with the text.

    JSON is a list of messages, or an object with messages and tools. Any other text is the system prompt of chats, or
    with `is_prompt` the beginning of completions' prompts.
    """
    if is_prompt:
        return {"prompt": text}
    try:
        value = json.loads(text) if text.lstrip().startswith(("[", "{")) else None
    except ValueError:
        value = None
    if isinstance(value, list):
        return {"messages": value}
    if isinstance(value, dict) and "messages" in value:
        return {name: value[name] for name in _PROMPT_FIELDS if name in value}
    return {"messages": [{"role": "system", "content": text}]}


def _hosts(hosts: list[Any]) -> str:
    states = [each["state"] for each in hosts]
    return ", ".join(f"{states.count(state)} {state.replace('_', ' ')}" for state in dict.fromkeys(states)) or "none"


def _size(size: int) -> str:
    return f"{size / MIB:.1f} MiB"


def _quota(pins: Any) -> str:
    return f"{_size(pins['used_bytes'])} of {_size(pins['limit_bytes'] or 0)} are used."
