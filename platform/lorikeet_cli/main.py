"""The arguments of `lorikeet`, its exit codes, and the form of its results and errors."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any

from lorikeet_cli import adapters, batches, evaluations, hosts, imports, keys, login, origins, pins, uploads, usage
from lorikeet_cli.client import Client
from lorikeet_cli.errors import EXIT_CODES, INTERRUPTED, CliError
from lorikeet_cli.output import Output, say

Command = Callable[[argparse.Namespace, Client], Output]
# Rows of a list without --limit.
DEFAULT_ROWS = 50
# Seconds that a command waits without --timeout. Imports of large repositories take minutes; batches and evaluations
# run when no other request waits.
UPLOAD_TIMEOUT_S = 900.0
BATCH_TIMEOUT_S = 3600.0
_BASE = "the base model that it was trained for, if several are served; by default as its configuration says"
_KEY = "the name of the key that makes the requests; not if logged in with a key"
_VERSION = "like support@v7"
_FILE = 'the file to write; "-" is standard output'


class _Parser(argparse.ArgumentParser):
    """A parser of a command; every command takes `--json`, before or after its action."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.add_argument(
            "--json",
            action="store_true",
            default=argparse.SUPPRESS,
            help="print the API's response as JSON, and an error as JSON on the last line of standard error",
        )


def parser() -> argparse.ArgumentParser:
    codes = "\n".join(f"  {code:<4} {text}" for code, text in EXIT_CODES.items())
    top = _Parser(
        prog="lorikeet",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Adapters, keys and usage of a Lorikeet server. `lorikeet COMMAND --help` explains a command.",
        epilog="environment:\n"
        "  LORIKEET_URL, LORIKEET_KEY   a server and an API key, instead of `lorikeet login`\n"
        "  LORIKEET_TENANT              the tenant, also instead of the one that was logged in to\n"
        f"\nexit codes:\n{codes}",
    )
    top.set_defaults(json=False)
    top.add_argument("--version", action="version", version=f"lorikeet {_version()}")
    verbs = top.add_subparsers(required=True, metavar="command")

    def add(name: str, run: Command, text: str) -> argparse.ArgumentParser:
        verb = verbs.add_parser(name, help=text, description=text)
        verb.set_defaults(run=run)
        return verb

    _login(add("login", login.login, "Save a server's address, and a key or a session."))
    add("logout", login.logout, "Delete what `login` saved, and end the session.")
    add("adapters", adapters.adapters, "List adapters, or the versions of one.").add_argument(
        "name", nargs="?", default="", help="an adapter"
    )
    _upload(add("upload", uploads.upload, "Send an adapter and wait until it can be called."))
    _import(add("import", uploads.import_adapter, "Fetch an adapter from the Hub, a bucket or an address."))
    _uploads(add("uploads", uploads.uploads, "List, show and cancel uploads and imports."))
    add("hub-token", imports.hub_token, "Store a token for private repositories of the Hub; reads it.").add_argument(
        "--remove", action="store_true", help="delete it"
    )
    _follow(add("follow", imports.follow, "Let adapters follow branches of the Hub; without a source, list them."))
    _hub_models(add("hub-models", imports.hub_models, "Show or set whether requests may name repositories of the Hub."))
    _buckets(add("buckets", imports.buckets, "List, set and remove keys of buckets, for imports from s3://bucket."))
    for name, run, text in (
        ("promote", adapters.promote, "Make a version the live one."),
        ("confirm-base", adapters.confirm_base, "Confirm that a version which names another base fits the served one."),
        ("confirm-effect", adapters.confirm_effect, "Confirm that a flagged version may be live as it is."),
    ):
        add(name, run, text).add_argument("version", help=_VERSION)
    _pin(add("pin", pins.pin, "Keep an adapter's live version, or the beginning of prompts, in device memory."))
    _unpin(add("unpin", pins.unpin, "Let hosts evict an adapter or a prefix again."))
    add("pins", pins.pins, "List what is kept in device memory, on which hosts, and how much of the quota is used.")
    _evaluate(add("evaluate", evaluations.evaluate, "Score a version, the live one and the base on an evaluation set."))
    _sets(add("evaluation-sets", evaluations.sets, "List, add and remove evaluation sets."))
    _limit(add("evaluations", evaluations.evaluations, "List evaluations with their scores, the newest first."))
    _rule(add("promotion-rule", evaluations.rule, "Show or set what a version must score before it can be live."))
    _keys(add("keys", keys.keys, "List, create and revoke API keys."))
    _usage(add("usage", usage.usage, "Show what was used, by adapter; or a statement, or CSV."))
    _batches(add("batches", batches.batches, "List, send, show and cancel batches of requests."))
    _files(add("files", batches.files, "List, download and delete the files of batches."))
    _origins(add("origins", origins.origins, "List, allow and remove web pages that may call inference."))
    _hosts(add("hosts", hosts.hosts, "List, add and revoke engine hosts; for operators."))
    add("tail", usage.tail, "Show requests as they end; with --json one object a line.").add_argument(
        "--seconds", type=float, default=0, help="stop after so long"
    )
    return top


def _version() -> str:
    try:
        return metadata.version("lorikeet")
    except metadata.PackageNotFoundError:
        return "of a source tree"


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number above 0")
    return int(text)


def _limit(verb: argparse.ArgumentParser, default: Any = DEFAULT_ROWS) -> None:
    verb.add_argument(
        "--limit",
        type=_positive,
        default=default,
        metavar="N",
        help=f"rows, the newest first; by default {DEFAULT_ROWS}",
    )


def _actions(verb: argparse.ArgumentParser, *, limit: bool = False) -> Any:
    """Add `list`, which the command does without an action too, and return the place for other actions."""
    actions = verb.add_subparsers(metavar="action")
    listing = actions.add_parser("list", help="list them, as without an action")
    if limit:
        _limit(verb)
        _limit(listing, argparse.SUPPRESS)
    return actions


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds")
    return seconds


def _timeout(verb: argparse.ArgumentParser, default: float) -> None:
    verb.add_argument(
        "--timeout",
        type=_seconds,
        default=default,
        metavar="S",
        help=f"seconds to wait before the command ends with exit code 5; by default {default:g}",
    )


def _login(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("url", help="like https://lorikeet.example.org")
    verb.add_argument("--tenant", default="", help="the tenant's short name")
    verb.add_argument("--key", nargs="?", const="", help="an API key; without a value it is read from the terminal")
    verb.add_argument("--email", default="", help="the address of an account; only accounts can manage keys")


def _upload(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "path",
        nargs="+",
        help="the folder that PEFT saved or that a training left, one archive (.zip, .tar, .tar.gz), or the files",
    )
    verb.add_argument("--name", default="", help="the adapter; by default the name of the folder or archive")
    verb.add_argument("--description", default="")
    verb.add_argument("--base", default="", help=_BASE)
    verb.add_argument("--no-wait", action="store_true", help="print the upload's id and end")
    _timeout(verb, UPLOAD_TIMEOUT_S)
    verb.add_argument(
        "--evaluate",
        default="",
        metavar="FILE.jsonl",
        help='score the version: JSON lines {"prompt" or "messages", "expected"}, or the name of an evaluation set',
    )
    verb.add_argument("--metric", choices=evaluations.METRICS, default="exact", help="how a file's items are scored")
    verb.add_argument("--max-tokens", type=int, default=64, help="tokens of an answer to an item of a file")
    verb.add_argument("--key", default="", help=_KEY)


def _import(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("source", help="hub:org/name/folder@revision, s3://bucket/folder, or an archive's https address")
    verb.add_argument("--name", required=True, help="the adapter; made if there is none")
    verb.add_argument("--description", default="")
    verb.add_argument("--base", default="", help=_BASE)
    verb.add_argument("--no-wait", action="store_true", help="print the upload's id and end")
    _timeout(verb, UPLOAD_TIMEOUT_S)


def _uploads(verb: argparse.ArgumentParser) -> None:
    actions = _actions(verb, limit=True)
    for name, run, text in (
        ("show", uploads.show, "show the problems and notes of one"),
        ("cancel", uploads.cancel, "cancel one that is not decided yet"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("upload", help="its id, as `lorikeet uploads` lists it")
        action.set_defaults(run=run)


def _hub_models(verb: argparse.ArgumentParser) -> None:
    switch = verb.add_mutually_exclusive_group()
    switch.add_argument("--on", action="store_true", help="allow the organisations of --organization, or all")
    switch.add_argument("--off", action="store_true")
    verb.add_argument("--organization", action="append", default=[], help="may be repeated; goes with --on")


def _pin(verb: argparse.ArgumentParser) -> None:
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


def _unpin(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("name", help="an adapter, or with --prefix a pinned prefix")
    verb.add_argument("--prefix", action="store_true", help="unpin a prefix; its text is deleted")


def _evaluate(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("version", help=_VERSION)
    verb.add_argument("--set", required=True, help="an evaluation set's name")
    verb.add_argument("--key", default="", help=_KEY)
    verb.add_argument("--no-wait", action="store_true", help="print the evaluation's id and end")
    _timeout(verb, BATCH_TIMEOUT_S)


def _sets(verb: argparse.ArgumentParser) -> None:
    actions = _actions(verb)
    create = actions.add_parser("add", help='store a file of JSON lines {"prompt" or "messages", "expected"}')
    create.add_argument("path", help="like sums.jsonl")
    create.add_argument("--name", default="", help="the set; by default the name of the file")
    create.add_argument("--metric", choices=evaluations.METRICS, default="exact", help="how items are scored")
    create.add_argument("--max-tokens", type=int, default=64, help="tokens of an answer")
    create.set_defaults(run=evaluations.add_set)
    remove = actions.add_parser("remove", help="delete one; its scores stay")
    remove.add_argument("name")
    remove.set_defaults(run=evaluations.remove_set)


def _rule(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("adapter")
    verb.add_argument("--set", default="", help="the evaluation set on which every new version is scored")
    verb.add_argument("--minimum", type=float, help="the lowest score of a version that can be live")
    verb.add_argument("--may-be-worse", action="store_true", help="a version may score less than the live one")
    verb.add_argument("--key", default="", help=_KEY)
    verb.add_argument("--remove", action="store_true", help="any ready version may be live")


def _follow(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("source", nargs="?", default="", help="like hub:org/name@main")
    verb.add_argument("--name", default="", help="the adapter; made if there is none")
    verb.add_argument("--remove", action="store_true", help="the adapter of --name no longer follows a source")


def _buckets(verb: argparse.ArgumentParser) -> None:
    actions = _actions(verb)
    keep = actions.add_parser("set", help="store a key that may list and read a bucket; reads it from the terminal")
    keep.add_argument("bucket")
    keep.add_argument("--region", default="us-east-1")
    keep.add_argument("--endpoint", default="", help="a server other than Amazon's, like https://s3.example.org")
    keep.set_defaults(run=imports.set_bucket)
    remove = actions.add_parser("remove", help="delete the key of a bucket")
    remove.add_argument("bucket")
    remove.set_defaults(run=imports.remove_bucket)


def _keys(verb: argparse.ArgumentParser) -> None:
    actions = _actions(verb)
    create = actions.add_parser("create", help="make a key; its secret is printed once")
    create.add_argument("name")
    create.add_argument("--scope", action="append", help="may be repeated; by default all that keys may have")
    create.add_argument("--days", type=int, default=0, help="days until it expires; by default never")
    create.set_defaults(run=keys.create_key)
    revoke = actions.add_parser("revoke", help="end a key at once")
    revoke.add_argument("key", help="its name, or lk_<prefix>")
    revoke.set_defaults(run=keys.revoke_key)


def _batches(verb: argparse.ArgumentParser) -> None:
    actions = _actions(verb, limit=True)
    create = actions.add_parser("create", help="send a file of requests, one JSON object a line")
    create.add_argument("path", help="like requests.jsonl")
    create.add_argument("--endpoint", choices=batches.ENDPOINTS, default="chat/completions")
    create.add_argument("--key", default="", help=_KEY)
    create.add_argument("--wait", action="store_true", help="wait until it is over")
    _timeout(create, BATCH_TIMEOUT_S)
    create.set_defaults(run=batches.create)
    for name, run, text in (
        ("show", batches.show, "show the progress, the files and the bad lines of one"),
        ("cancel", batches.cancel, "cancel one; what has run stays, the rest never runs"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("batch", help="like batch_…")
        action.set_defaults(run=run)
    download = actions.add_parser("download", help="download the results, as JSON lines")
    download.add_argument("batch", help="like batch_…")
    download.add_argument("--errors", action="store_true", help="the requests that failed instead")
    download.add_argument("--to", default="-", metavar="FILE", help=_FILE)
    download.set_defaults(run=batches.download)


def _files(verb: argparse.ArgumentParser) -> None:
    actions = _actions(verb, limit=True)
    download = actions.add_parser("download", help="download the content of one")
    download.add_argument("file", help="like file-…")
    download.add_argument("--to", default="-", metavar="FILE", help=_FILE)
    download.set_defaults(run=batches.download_file)
    delete = actions.add_parser("delete", help="delete one before it expires")
    delete.add_argument("file", help="like file-…")
    delete.set_defaults(run=batches.delete_file)


def _hosts(verb: argparse.ArgumentParser) -> None:
    actions = _actions(verb)
    new = actions.add_parser("add", help="make a join token; it is printed once, as options of the engine's command")
    new.add_argument("--host", default="", help="the only name to join by; it takes that host's place")
    new.add_argument("--minutes", type=int, default=60, help="minutes until the token expires")
    new.set_defaults(run=hosts.add)
    revoke = actions.add_parser("revoke", help="revoke the credential of a host that joined")
    revoke.add_argument("host")
    revoke.add_argument("--forget", action="store_true", help="also remove it from the lists; its name is free again")
    revoke.set_defaults(run=hosts.revoke)


def _origins(verb: argparse.ArgumentParser) -> None:
    actions = _actions(verb)
    for name, run, text in (
        ("allow", origins.allow_origin, "let the pages of an origin read answers"),
        ("remove", origins.remove_origin, "no longer let them"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("origin", help="like https://app.example.org")
        action.set_defaults(run=run)


def _usage(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--days", type=int, default=30, help="days until now; by default 30")
    verb.add_argument("--base", default="", help="only requests of this base model; not for a statement")
    verb.add_argument("--month", default="", help="the statement of a month, like 2026-05")
    verb.add_argument("--csv", default="", metavar="FILE", help='write CSV to this file; "-" is standard output')
    verb.add_argument("--grain", choices=("day", "hour"), default="day", help="what a row of CSV adds up")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code, one of EXIT_CODES."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without UTF-8 has no "…" and no names in it
    args = parser().parse_args(arguments)
    try:
        output = args.run(args, Client())
        if args.json and output.body is not None:
            print(json.dumps(output.body, indent=2))
        elif output.text and not args.json:
            print(output.text)
        print(end="", flush=True)
    except CliError as error:
        return _report(error, args.json)
    except (KeyboardInterrupt, EOFError):
        say("")  # ends the line of "^C", of a prompt or of the progress bar
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()  # `lorikeet usage | head` has read enough
    except OSError as error:
        _discard_output()
        return _report(CliError(f"{error.strerror or error}: {error.filename or 'output'}"), args.json)
    return 0


def _report(error: CliError, as_json: bool) -> int:
    say(json.dumps(error.body()) if as_json else error.text())
    return error.exit_code


def _discard_output() -> None:
    """Send what is still buffered nowhere; the interpreter would fail to write it at its end."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
