"""`lorikeet`: arguments, and errors as a person wants to read them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from lorikeet_cli import batches, commands, evaluations, hosts, pins, uploads
from lorikeet_cli.errors import CliError

Command = Callable[[argparse.Namespace], None]


_BASE = "the base model that it was trained for, where several are served; by default as its configuration says"


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="lorikeet",
        description="Adapters, keys and usage of a Lorikeet server. LORIKEET_URL, LORIKEET_TENANT and LORIKEET_KEY "
        "in the environment stand in for `login`.",
    )
    top.add_argument("--version", action="version", version=f"lorikeet {commands.version()}")
    verbs = top.add_subparsers(required=True, metavar="command")

    def add(name: str, run: Command, text: str) -> argparse.ArgumentParser:
        verb = verbs.add_parser(name, help=text, description=text)
        verb.set_defaults(run=run)
        return verb

    login = add("login", commands.login, "Remember a server, and a key or a session.")
    login.add_argument("url", help="like https://lorikeet.example.org")
    login.add_argument("--tenant", default="", help="the tenant's short name")
    login.add_argument("--key", nargs="?", const="", help="an API key; asked for if it is not given here")
    login.add_argument("--email", default="", help="of an account, instead of a key; keys can only be managed so")
    add("logout", commands.logout, "Forget the server, and end the session.")
    adapters = add("adapters", commands.adapters, "List adapters, or the versions of one.")
    adapters.add_argument("name", nargs="?", default="")
    _upload(add("upload", evaluations.upload_adapter, "Send an adapter and wait until it can be called."))
    bring = add("import", commands.import_adapter, "Have an adapter fetched from the Hub, a bucket or an address.")
    bring.add_argument("source", help="hub:org/name/folder@revision, s3://bucket/folder, or an archive's https address")
    bring.add_argument("--name", required=True, help="the adapter; made if there is none")
    bring.add_argument("--description", default="")
    bring.add_argument("--base", default="", help=_BASE)
    bring.add_argument("--no-wait", action="store_true", help="print the upload's id and end")
    _uploads(add("uploads", uploads.listed, "What became of uploads and imports; ends those that are not decided."))
    token = add("hub-token", commands.hub_token, "Keep a token for private repositories of the Hub; asked for.")
    token.add_argument("--remove", action="store_true", help="forget it")
    _follow(add("follow", commands.follow, "Have adapters follow branches of the Hub; lists them without a source."))
    hub = add("hub-models", commands.hub_models, "Show or set whether requests may name repositories of the Hub.")
    switch = hub.add_mutually_exclusive_group()
    switch.add_argument("--on", action="store_true", help="with the organisations that are given, or with all")
    switch.add_argument("--off", action="store_true")
    hub.add_argument("--organization", action="append", default=[], help="again for each; for --on")
    _buckets(add("buckets", commands.buckets, "Keep keys of buckets, for imports from s3://bucket."))
    promote = add("promote", commands.promote, "Make a version the live one.")
    promote.add_argument("version", help="like support@v7")
    confirm = add("confirm-base", commands.confirm_base, "Say that the base which a version names is the served one.")
    confirm.add_argument("version", help="like support@v7")
    effect = add("confirm-effect", commands.confirm_effect, "Say that a flagged version may be live as it is.")
    effect.add_argument("version", help="like support@v7")
    _pin(add("pin", pins.pin, "Keep an adapter's live version, or the beginning of prompts, in device memory."))
    unpin = add("unpin", pins.unpin, "Let hosts evict what was pinned.")
    unpin.add_argument("name", help="an adapter, or with --prefix a pinned prefix")
    unpin.add_argument("--prefix", action="store_true", help="a prefix; its text is deleted")
    add("pins", pins.listed, "What is kept in device memory, on which hosts, and how much of the quota that takes.")
    _evaluate(add("evaluate", evaluations.evaluate, "Score a version, the live one and the base on an evaluation set."))
    _sets(add("evaluation-sets", evaluations.sets, "List, add and delete evaluation sets."))
    add("evaluations", evaluations.listed, "The latest fifty evaluations, with their scores.")
    _rule(add("promotion-rule", evaluations.rule, "What a version must score before it can be live."))
    _keys(add("keys", commands.keys, "List, create and revoke API keys."))
    _usage(add("usage", commands.usage, "What was used, by adapter; or a statement, or CSV."))
    _batches(add("batches", batches.listed, "List, send, follow and cancel batches of requests."))
    _files(add("files", batches.files, "List, download and delete the files of batches."))
    _origins(add("origins", commands.origins, "Which web pages may call inference with this tenant's keys."))
    _hosts(add("hosts", hosts.listed, "For operators: engine hosts, and machines that join as hosts."))
    tail = add("tail", commands.tail, "Show requests as they end.")
    tail.add_argument("--seconds", type=float, default=0, help="stop after so long")
    return top


def _upload(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("path", help="the folder that PEFT saved, or a .zip or .tar.gz of it")
    verb.add_argument("--name", default="", help="by default that of the folder or archive")
    verb.add_argument("--description", default="")
    verb.add_argument("--base", default="", help=_BASE)
    verb.add_argument("--no-wait", action="store_true", help="print the upload's id and do not wait")
    verb.add_argument(
        "--evaluate",
        default="",
        metavar="FILE.jsonl",
        help='score what it becomes: JSON lines {"prompt" or "messages", "expected"}, or the name of an evaluation set',
    )
    verb.add_argument("--metric", choices=evaluations.METRICS, default="exact", help="of a file for --evaluate")
    verb.add_argument("--max-tokens", type=int, default=64, help="of an answer, of a file for --evaluate")
    verb.add_argument("--key", default="", help="whose requests an evaluation's are; not if logged in with a key")


def _uploads(verb: argparse.ArgumentParser) -> None:
    actions = verb.add_subparsers(metavar="action")
    actions.add_parser("list", help="the newest first, as without an action")
    cancel = actions.add_parser("cancel", help="give one up that is on its way or waits to be checked")
    cancel.add_argument("upload", help="its id, as `lorikeet uploads` lists it")
    cancel.set_defaults(run=uploads.cancel)


def _pin(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("model", help="an adapter; with --prefix an adapter or a base model")
    verb.add_argument(
        "--prefix",
        default="",
        metavar="FILE",
        help='pin this beginning of its prompts: a system prompt, or JSON of messages; "-" is standard input',
    )
    verb.add_argument("--name", default="", help="of the prefix; by default that of the file")
    verb.add_argument("--as-prompt", action="store_true", help="the file begins prompts of completions, not of chats")
    verb.add_argument("--salt", default="", help="the cache_salt of the requests that begin with it")


def _evaluate(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("version", help="like support@v7")
    verb.add_argument("--set", required=True, help="an evaluation set's name")
    verb.add_argument("--key", default="", help="whose requests they are: a key's name; not if logged in with a key")
    verb.add_argument("--no-wait", action="store_true", help="print the evaluation's id and end")


def _sets(verb: argparse.ArgumentParser) -> None:
    actions = verb.add_subparsers(metavar="action")
    actions.add_parser("list", help="list them, as without an action")
    create = actions.add_parser("add", help='keep a file of JSON lines {"prompt" or "messages", "expected"}')
    create.add_argument("path", help="like sums.jsonl")
    create.add_argument("--name", default="", help="by default that of the file")
    create.add_argument("--metric", choices=evaluations.METRICS, default="exact")
    create.add_argument("--max-tokens", type=int, default=64, help="of an answer")
    create.set_defaults(run=evaluations.add_set)
    remove = actions.add_parser("remove", help="delete one; its scores stay")
    remove.add_argument("name")
    remove.set_defaults(run=evaluations.remove_set)


def _rule(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("adapter")
    verb.add_argument("--set", default="", help="new versions are evaluated with it by themselves")
    verb.add_argument("--minimum", type=float, help="score")
    verb.add_argument("--may-be-worse", action="store_true", help="than the live version")
    verb.add_argument("--key", default="", help="whose requests they are: a key's name; not if logged in with a key")
    verb.add_argument("--remove", action="store_true", help="any ready version may be live")


def _follow(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("source", nargs="?", default="", help="like hub:org/name@main")
    verb.add_argument("--name", default="", help="the adapter; made if there is none")
    verb.add_argument("--remove", action="store_true", help="let the adapter of --name follow no longer")


def _buckets(verb: argparse.ArgumentParser) -> None:
    actions = verb.add_subparsers(metavar="action")
    actions.add_parser("list", help="list them, as without an action")
    keep = actions.add_parser("set", help="keep a key that may list and read one; asked for")
    keep.add_argument("bucket")
    keep.add_argument("--region", default="us-east-1")
    keep.add_argument("--endpoint", default="", help="of a server other than Amazon's, like https://s3.example.org")
    keep.set_defaults(run=commands.set_bucket)
    remove = actions.add_parser("remove", help="forget it")
    remove.add_argument("bucket")
    remove.set_defaults(run=commands.remove_bucket)


def _keys(verb: argparse.ArgumentParser) -> None:
    actions = verb.add_subparsers(metavar="action")
    actions.add_parser("list", help="list them, as without an action")
    create = actions.add_parser("create", help="make a key; its secret is printed once")
    create.add_argument("name")
    create.add_argument("--scope", action="append", help="again for each; by default all that keys may have")
    create.add_argument("--days", type=int, default=0, help="how long it is valid; by default for ever")
    create.set_defaults(run=commands.create_key)
    revoke = actions.add_parser("revoke", help="end a key at once")
    revoke.add_argument("key", help="its name, or lk_<prefix>")
    revoke.set_defaults(run=commands.revoke_key)


def _batches(verb: argparse.ArgumentParser) -> None:
    actions = verb.add_subparsers(metavar="action")
    actions.add_parser("list", help="the latest fifty, as without an action")
    create = actions.add_parser("create", help="send a file of requests, one JSON object a line")
    create.add_argument("path", help="like requests.jsonl")
    create.add_argument("--endpoint", choices=batches.ENDPOINTS, default="chat/completions")
    create.add_argument("--key", default="", help="whose requests they are: a key's name; not if logged in with a key")
    create.add_argument("--wait", action="store_true", help="until it is over")
    create.set_defaults(run=batches.create)
    show = actions.add_parser("show", help="how far one is, and why it failed")
    show.add_argument("batch", help="like batch_…")
    show.set_defaults(run=batches.show)
    cancel = actions.add_parser("cancel", help="what has run stays; the rest never runs")
    cancel.add_argument("batch", help="like batch_…")
    cancel.set_defaults(run=batches.cancel)
    download = actions.add_parser("download", help="the results, as JSON lines")
    download.add_argument("batch", help="like batch_…")
    download.add_argument("--errors", action="store_true", help="the requests that failed instead")
    download.add_argument("--to", default="-", metavar="FILE", help='"-" is standard output')
    download.set_defaults(run=batches.download)


def _files(verb: argparse.ArgumentParser) -> None:
    actions = verb.add_subparsers(metavar="action")
    actions.add_parser("list", help="the latest fifty, as without an action")
    download = actions.add_parser("download", help="what is in one")
    download.add_argument("file", help="like file-…")
    download.add_argument("--to", default="-", metavar="FILE", help='"-" is standard output')
    download.set_defaults(run=batches.download_file)
    delete = actions.add_parser("delete", help="before it expires")
    delete.add_argument("file", help="like file-…")
    delete.set_defaults(run=batches.delete_file)


def _hosts(verb: argparse.ArgumentParser) -> None:
    actions = verb.add_subparsers(metavar="action")
    actions.add_parser("list", help="list them, as without an action")
    new = actions.add_parser("add", help="make a join token; it is printed once, as options of the engine's command")
    new.add_argument("--host", default="", help="the only name to join by; it takes that host's place")
    new.add_argument("--minutes", type=int, default=60, help="how long the token can be used")
    new.set_defaults(run=hosts.add)
    revoke = actions.add_parser("revoke", help="take the credential of a host that joined back")
    revoke.add_argument("host")
    revoke.add_argument("--forget", action="store_true", help="and take it out of the lists; its name is free again")
    revoke.set_defaults(run=hosts.revoke)


def _origins(verb: argparse.ArgumentParser) -> None:
    actions = verb.add_subparsers(metavar="action")
    actions.add_parser("list", help="list them, as without an action")
    for name, run, text in (
        ("allow", commands.allow_origin, "let its pages read answers"),
        ("remove", commands.disallow_origin, "no longer"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("origin", help="like https://app.example.org")
        action.set_defaults(run=run)


def _usage(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--days", type=int, default=30)
    verb.add_argument("--base", default="", help="only what ran on this base model; not of a statement")
    verb.add_argument("--month", default="", help="the statement of a month, like 2026-05")
    verb.add_argument("--csv", default="", metavar="FILE", help='write CSV there; "-" is standard output')
    verb.add_argument("--grain", choices=("day", "hour"), default="day", help="a row of CSV for each")


def main(arguments: Sequence[str] | None = None) -> int:
    asked = parser().parse_args(arguments)
    try:
        asked.run(asked)
    except CliError as error:
        commands.say("\n".join(filter(None, [error.message, error.fix, _field(error), _request(error)])))
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # `lorikeet usage | head` has read enough
        return 0
    return 0


def _field(error: CliError) -> str:
    """Which field the server means, where its words do not name it."""
    return f"(field {error.param})" if error.param and error.param not in error.message else ""


def _request(error: CliError) -> str:
    return f"(request {error.request_id})" if error.request_id else ""
