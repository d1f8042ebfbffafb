"""What the commands about evaluation sets, evaluations and promotion rules do."""

from __future__ import annotations

import hashlib
import re
import time
from argparse import Namespace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lorikeet_cli import commands
from lorikeet_cli.client import Client
from lorikeet_cli.commands import client, find_key, say, version_of
from lorikeet_cli.errors import CliError
from lorikeet_cli.output import ProgressBar, table
from lorikeet_cli.upload import send_form

METRICS = ("exact", "contains", "logprob")
SHOWN = 50
POLL_S = 1.0


def listed(asked: Namespace) -> None:
    rows = [
        [
            _model(each),
            each["set"],
            each["state"],
            *(_figures(each["score"]) if each["score"] else ["", "", ""]),
            (each["problem"] or {}).get("message", ""),
        ]
        for each in client().tenant("GET", "evaluations", limit=SHOWN)
    ]
    print(table(["version", "set", "state", "score", "live", "base", "problem"], rows))


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


def sets(asked: Namespace) -> None:
    rows = [
        [each["name"], each["metric"], each["items"], each["created_at"][:10]]
        for each in client().tenant("GET", "evaluation-sets")
    ]
    print(table(["set", "metric", "items", "created"], rows))


def add_set(asked: Namespace) -> None:
    own, path = client(), Path(asked.path)
    if not path.is_file():
        raise CliError(f"{path} is no file.", "Give a file of JSON lines.")
    form = {"name": asked.name or path.stem.lower(), "metric": asked.metric, "max_tokens": str(asked.max_tokens)}
    made = send_form(own, "evaluation-sets", form, "file", [path], ProgressBar(path.name))
    say(f"{made['name']}: {made['items']} items, scored by {made['metric']}.")


def upload_adapter(asked: Namespace) -> None:
    """Send an adapter; with `--evaluate` its evaluation is started before the upload is decided."""
    if not asked.evaluate:
        commands.upload_adapter(asked)
        return
    own = client()
    key, made = _key(own, asked.key), list[Any]()
    name = _set_of(own, Path(asked.evaluate), asked)

    def evaluated(sent: Any) -> None:
        made.append(own.tenant("POST", "evaluations", {"set": name, "upload": sent["id"], **key}))

    commands.upload_adapter(asked, own, evaluated)
    if not asked.no_wait:
        tell_end(own, own.tenant("GET", f"evaluations/{made[0]['id']}"))


def _set_of(own: Client, path: Path, asked: Namespace) -> str:
    """The set of a file's items, which is made if there is none, or the one of that name."""
    if not path.is_file():
        if str(path) in {each["name"] for each in own.tenant("GET", "evaluation-sets")}:
            return str(path)
        raise CliError(f"{path} is neither a file nor an evaluation set.", "Give JSON lines, or a set's name.")
    name = _name_of(path, asked.metric, asked.max_tokens)
    form = {"name": name, "metric": asked.metric, "max_tokens": str(asked.max_tokens)}
    if name not in {each["name"] for each in own.tenant("GET", "evaluation-sets")}:
        made = send_form(own, "evaluation-sets", form, "file", [path], ProgressBar(path.name))
        say(f"{name}: {made['items']} items, scored by {asked.metric}.")
    return name


def _name_of(path: Path, metric: str, max_tokens: int) -> str:
    """Of a set that never changes: the same for the same items, and another one for others."""
    content = hashlib.sha256(f"{metric} {max_tokens}\n".encode() + path.read_bytes()).hexdigest()[:8]
    stem = re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-")[:50].rstrip("-")
    return f"{stem}-{content}" if stem else content


def remove_set(asked: Namespace) -> None:
    client().tenant("DELETE", f"evaluation-sets/{quote(asked.name, safe='')}")
    say(f"{asked.name} is deleted; its scores stay.")


def evaluate(asked: Namespace) -> None:
    own, (name, number) = client(), version_of(asked.version)
    body = {"set": asked.set, "adapter": name, "version": number, **_key(own, asked.key)}
    made = own.tenant("POST", "evaluations", body)
    if asked.no_wait:
        print(made["id"])
        return
    tell_end(own, made)


def _key(own: Client, name: str) -> dict[str, str]:
    return {"key": find_key(own, name)["id"]} if name else {}


def tell_end(own: Client, evaluation: Any) -> None:
    """Wait for its end. Raises CliError if it came to no score."""
    said = ""
    while evaluation["state"] in ("waiting", "running"):
        problem = (evaluation["problem"] or {}).get("message", "")
        if (now := f"{evaluation['state']}: {_model(evaluation)} on {evaluation['set']} {problem}".rstrip()) != said:
            say(said := now)
        time.sleep(POLL_S)
        evaluation = own.tenant("GET", f"evaluations/{evaluation['id']}")
    if evaluation["score"] is None:
        problem = evaluation["problem"] or {"message": "It was cancelled.", "fix": ""}
        raise CliError(f"No score: {problem['message']}", problem["fix"])
    score, live, base = _figures(evaluation["score"])
    of = f"{_model(evaluation)}  {evaluation['set']} ({evaluation['score']['metric']})"
    print(f"{of}: {score}; live {live}, base {base}")
    for item in evaluation["score"]["worst"]:
        answer = "" if item["version"] is None else f", answered {item['version']!r}"
        say(f"line {item['line']}: expected {item['expected']!r}{answer} ({item['score']:.4g})")


def rule(asked: Namespace) -> None:
    own, path = client(), f"adapters/{quote(asked.adapter, safe='')}/promotion-rule"
    if asked.remove:
        own.tenant("DELETE", path)
        say(f"Any ready version of {asked.adapter} may be live.")
        return
    if not asked.set:
        raise CliError("Which set versions are scored on is not said.", "Add --set NAME, or --remove.")
    body = {
        "set": asked.set,
        "minimum": asked.minimum,
        "not_worse_than_live": not asked.may_be_worse,
        **_key(own, asked.key),
    }
    own.tenant("PUT", path, body)
    say(f"New versions of {asked.adapter} are evaluated with {asked.set} before they can be live.")
