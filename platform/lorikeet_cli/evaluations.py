"""`lorikeet evaluate`, `evaluations`, `evaluation-sets` and `promotion-rule`."""

from __future__ import annotations

import argparse
import hashlib
import re
from argparse import Namespace
from pathlib import Path
from typing import Any

from lorikeet_cli.adapters import parse_version
from lorikeet_cli.client import Client
from lorikeet_cli.commands import (
    BATCH_TIMEOUT_S,
    KEY,
    VERSION,
    Commands,
    list_actions,
    list_options,
    no_options,
    timeout_option,
)
from lorikeet_cli.errors import CliError
from lorikeet_cli.forms import file_part, send_form
from lorikeet_cli.keys import key_option
from lorikeet_cli.output import Output, ProgressBar, part_note, say, table
from lorikeet_cli.waiting import Wait

METRICS = ("exact", "contains", "logprob")
_LINES = 'JSON lines {"prompt" or "messages", "expected"}'


def add_commands(commands: Commands) -> None:
    verb = commands.add(
        "evaluate",
        evaluate,
        "Score a version, the live one and the base model on an evaluation set.",
        "lorikeet evaluate support@v7 --set sums",
    )
    verb.add_argument("version", help=VERSION)
    verb.add_argument("--set", required=True, help="an evaluation set's name")
    verb.add_argument("--key", default="", help=KEY)
    verb.add_argument("--no-wait", action="store_true", help="print the evaluation's id and end")
    timeout_option(verb, BATCH_TIMEOUT_S)
    verb = commands.add(
        "evaluations", evaluations, "List evaluations with their scores, the newest first.", "lorikeet evaluations"
    )
    list_options(verb, search="the adapter or set")
    verb = commands.add(
        "evaluation-sets",
        sets,
        "List, add and remove evaluation sets.",
        "lorikeet evaluation-sets add sums.jsonl --metric exact",
    )
    actions = list_actions(verb, no_options)
    create = actions.add("add", add_set, f"store a file of {_LINES}", ("path", "like sums.jsonl"))
    create.add_argument("--name", default="", help="the set; by default the name of the file")
    _metric_options(create)
    actions.add("remove", remove_set, "delete one; its scores stay", ("name", "the set"))
    verb = commands.add(
        "promotion-rule",
        rule,
        "Show or set what a version must score before it can be live.",
        "lorikeet promotion-rule support --set sums --minimum 0.8",
        "lorikeet promotion-rule support --remove",
    )
    verb.add_argument("adapter")
    verb.add_argument("--set", default="", help="the evaluation set on which every new version is scored")
    verb.add_argument("--minimum", type=float, help="the lowest score of a version that can be live")
    verb.add_argument("--may-be-worse", action="store_true", help="a version may score less than the live one")
    verb.add_argument("--key", default="", help=KEY)
    verb.add_argument("--remove", action="store_true", help="any ready version may be live")


def file_options(verb: argparse.ArgumentParser) -> None:
    """Add the options of an upload that is evaluated."""
    help_text = f"score the version: {_LINES}, or the name of an evaluation set"
    verb.add_argument("--evaluate", default="", metavar="FILE.jsonl", help=help_text)
    _metric_options(verb)


def _metric_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--metric", choices=METRICS, default="exact", help="how the items of a file are scored")
    verb.add_argument("--max-tokens", type=int, default=64, help="tokens of an answer to an item of a file")


def evaluations(args: Namespace, client: Client) -> Output:
    evaluations, total = client.rows("evaluations", limit=args.limit, search=args.search)
    rows = [
        [
            _model(each),
            each["set"],
            each["state"],
            *(_figures(each["score"]) if each["score"] else ["", "", ""]),
            (each["problem"] or {}).get("message", ""),
        ]
        for each in evaluations
    ]
    part_note(evaluations, total)
    return Output(evaluations, table(["version", "set", "state", "score", "live", "base", "problem"], rows))


def _model(evaluation: Any) -> str:
    number = evaluation["version"]
    return f"{evaluation['adapter']}@v{number}" if number else f"{evaluation['adapter']} (upload)"


def _figures(score: Any) -> list[str]:
    live = score["live"]
    return [
        f"{score['score']:.4g}",
        f"{live['score']:.4g} (v{live['version']})" if live else "–",
        f"{score['base']:.4g}",
    ]


def sets(args: Namespace, client: Client) -> Output:
    sets = client.tenant("GET", "evaluation-sets")
    rows = [[each["name"], each["metric"], each["items"], each["created_at"][:10]] for each in sets]
    return Output(sets, table(["set", "metric", "items", "created"], rows))


def add_set(args: Namespace, client: Client) -> Output:
    path = Path(args.path)
    return Output(_send_set(args, client, path, args.name or path.stem.lower()))


def remove_set(args: Namespace, client: Client) -> Output:
    client.tenant("DELETE", "evaluation-sets", args.name)
    say(f"{args.name} is deleted; its scores stay.")
    return Output()


def set_for_upload(args: Namespace, client: Client) -> dict[str, str]:
    """Return the set and key of an evaluation for `upload --evaluate`. The set of a file is made if there is none."""
    path, key = Path(args.evaluate), key_option(client, args.key)
    names = {each["name"] for each in client.tenant("GET", "evaluation-sets")}
    name = _content_name(path, args.metric, args.max_tokens) if path.is_file() else args.evaluate
    if name not in names:
        if not path.is_file():
            message = f"{path} is neither a file nor an evaluation set."
            raise CliError(message, "Name a file of JSON lines, or a set.", code="no_file")
        _send_set(args, client, path, name)
    return {"set": name, **key}


def _send_set(args: Namespace, client: Client, path: Path, name: str) -> Any:
    if not path.is_file():
        raise CliError(f"{path} is no file.", "Name a file of JSON lines.", code="no_file")
    form = {"name": name, "metric": args.metric, "max_tokens": str(args.max_tokens)}
    made = send_form(client, "evaluation-sets", form, "file", [file_part(path)], ProgressBar(path.name))
    say(f"{made['name']}: {made['items']} items, scored by {made['metric']}.")
    return made


def _content_name(path: Path, metric: str, max_tokens: int) -> str:
    """Return a name that is the same for the same items and metric, and another one for others."""
    content = hashlib.sha256(f"{metric} {max_tokens}\n".encode() + path.read_bytes()).hexdigest()[:8]
    stem = re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-")[:50].rstrip("-")
    return f"{stem}-{content}" if stem else content


def evaluate(args: Namespace, client: Client) -> Output:
    name, number = parse_version(args.version)
    body = {"set": args.set, "adapter": name, "version": number, **key_option(client, args.key)}
    evaluation = client.tenant("POST", "evaluations", body=body)
    return Output(evaluation, evaluation["id"]) if args.no_wait else wait_for_score(client, evaluation, args.timeout)


def wait_for_score(client: Client, evaluation: Any, timeout_s: float) -> Output:
    """Wait until an evaluation ends. Raises CliError if it has no score."""
    wait = Wait(timeout_s, "`lorikeet evaluations` shows it; evaluations run when no other request waits.")
    while evaluation["state"] in ("waiting", "running"):
        problem = (evaluation["problem"] or {}).get("message", "")
        wait.pause(f"{evaluation['state']}: {_model(evaluation)} on {evaluation['set']} {problem}".rstrip())
        evaluation = client.tenant("GET", "evaluations", evaluation["id"])
    if evaluation["score"] is None:
        problem = evaluation["problem"] or {"message": "The evaluation was cancelled.", "fix": "", "code": "cancelled"}
        raise CliError(f"No score: {problem['message']}", problem["fix"], code=problem.get("code", "failed"))
    score, live, base = _figures(evaluation["score"])
    for item in evaluation["score"]["worst"]:
        answer = "" if item["version"] is None else f", answered {item['version']!r}"
        say(f"line {item['line']}: expected {item['expected']!r}{answer} ({item['score']:.4g})")
    label = f"{_model(evaluation)}  {evaluation['set']} ({evaluation['score']['metric']})"
    return Output(evaluation, f"{label}: {score}; live {live}, base {base}")


def rule(args: Namespace, client: Client) -> Output:
    """Show, set or remove the rule of an adapter."""
    if args.remove:
        client.tenant("DELETE", "adapters", args.adapter, "promotion-rule")
        say(f"Any ready version of {args.adapter} may be live.")
        return Output()
    if args.set:
        body = {
            "set": args.set,
            "minimum": args.minimum,
            "not_worse_than_live": not args.may_be_worse,
            **key_option(client, args.key),
        }
        adapter = client.tenant("PUT", "adapters", args.adapter, "promotion-rule", body=body)
        say(f"New versions of {args.adapter} are evaluated with {args.set} before they can be live.")
        return Output(adapter)
    if args.minimum is not None or args.may_be_worse or args.key:
        raise CliError("The set that versions are scored on is missing.", "Add --set NAME.")
    rule = client.tenant("GET", "adapters", args.adapter)["promotion_rule"]
    if rule is None:
        return Output({"promotion_rule": None}, f"{args.adapter} has no rule: any ready version may be live.")
    conditions = [f"at least {rule['minimum']:g}"] if rule["minimum"] is not None else []
    conditions += ["not worse than the live version"] if rule["not_worse_than_live"] else []
    return Output({"promotion_rule": rule}, f"{rule['set']}: {' and '.join(conditions) or 'any score'}")
