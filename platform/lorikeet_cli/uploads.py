"""`lorikeet upload`, `import` and `uploads`: adapters on their way to a version that can be called."""

from __future__ import annotations

import argparse
from argparse import Namespace
from pathlib import Path
from typing import Any

from lorikeet_cli import adapter_files, evaluations
from lorikeet_cli.client import Client
from lorikeet_cli.commands import KEY, UPLOAD_TIMEOUT_S, Commands, list_actions, searched, timeout_option
from lorikeet_cli.effect import confirmations, effect_text
from lorikeet_cli.errors import CliError
from lorikeet_cli.forms import send_form
from lorikeet_cli.output import Output, ProgressBar, moment, part_note, say, table
from lorikeet_cli.waiting import Wait

_BASE = "the base model that it was trained for, if several are served; by default as its configuration says"


def add_commands(commands: Commands) -> None:
    verb = commands.add(
        "upload",
        upload,
        "Send an adapter and wait until it can be called.",
        "lorikeet upload ./support",
        "lorikeet upload ./outputs --name support",
        "lorikeet upload ./support --evaluate sums.jsonl --metric exact",
    )
    verb.add_argument(
        "path",
        nargs="+",
        help="the folder that PEFT saved or that a training left, one archive (.zip, .tar, .tar.gz), or the files",
    )
    verb.add_argument("--name", default="", help="the adapter; by default the name of the folder or archive")
    _sent_options(verb)
    evaluations.file_options(verb)
    verb.add_argument("--key", default="", help=KEY)
    verb = commands.add(
        "import",
        import_adapter,
        "Fetch an adapter from the Hub, a bucket or an address, and wait until it can be called.",
        "lorikeet import hub:org/name@v1 --name support",
        "lorikeet import s3://trainings/support --name support --no-wait",
    )
    verb.add_argument("source", help="hub:org/name/folder@revision, s3://bucket/folder, or an archive's https address")
    verb.add_argument("--name", required=True, help="the adapter; made if there is none")
    _sent_options(verb)
    verb = commands.add(
        "uploads",
        uploads,
        "List, show and cancel uploads and imports.",
        "lorikeet uploads --limit 10",
        "lorikeet uploads show 30e5f796-67a0-4b43-8a39-0d51ef35b0cb",
    )
    actions = list_actions(verb, searched("the adapter's name"))
    upload_id = ("upload", "its id, as `lorikeet uploads` lists it")
    actions.add("show", show, "show the problems and notes of one", upload_id)
    actions.add("cancel", cancel, "cancel one that is not decided yet", upload_id)


def _sent_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--description", default="", help="a sentence about the adapter")
    verb.add_argument("--base", default="", help=_BASE)
    verb.add_argument("--no-wait", action="store_true", help="print the upload's id and end")
    timeout_option(verb, UPLOAD_TIMEOUT_S)


def upload(args: Namespace, client: Client) -> Output:
    """Send an adapter. With `--evaluate` its evaluation is started before the upload is decided."""
    evaluation_set = evaluations.set_for_upload(args, client) if args.evaluate else None
    paths = [Path(path) for path in args.path]
    parts = adapter_files.parts_of(paths)
    name = args.name or adapter_files.default_name(paths[0] if len(paths) == 1 else paths[0].resolve().parent)
    form = {"name": name, "description": args.description, "base_model": args.base}
    form["sha256"] = adapter_files.digests(parts)
    sent = send_form(client, "uploads", form, "files", parts, ProgressBar(name))
    evaluation = None
    if evaluation_set is not None:
        evaluation = client.tenant("POST", "evaluations", body={**evaluation_set, "upload": sent["id"]})
    if args.no_wait:
        return Output(sent, sent["id"])
    output = _wait_until_ready(client, sent, args.timeout)
    if evaluation is None:
        return output
    score = evaluations.wait_for_score(client, evaluation, args.timeout)
    version = client.tenant("GET", "adapters", output.body["adapter"], "versions", output.body["number"])
    return Output(version, f"{output.text}\n{score.text}")


def import_adapter(args: Namespace, client: Client) -> Output:
    body = {"name": args.name, "description": args.description, "source": args.source, "base_model": args.base}
    sent = client.tenant("POST", "imports", body=body)
    return Output(sent, sent["id"]) if args.no_wait else _wait_until_ready(client, sent, args.timeout)


def uploads(args: Namespace, client: Client) -> Output:
    uploads, total = client.rows("uploads", limit=args.limit, search=args.search)
    rows = [
        [each["id"], each["adapter"], each["state"], _source(each), _result(each), moment(each["created_at"])]
        for each in uploads
    ]
    part_note(uploads, total)
    return Output(uploads, table(["upload", "adapter", "state", "from", "became", "created"], rows))


def show(args: Namespace, client: Client) -> Output:
    """Show an upload with every problem or note of its report."""
    sent = client.tenant("GET", "uploads", args.upload)
    report = sent["report"] or {}
    problems = report.get("problems") or [each for each in [sent["reason"]] if each]
    lines = [f"{sent['adapter']}: {sent['state']} {_result(sent) if sent['version'] else ''}".rstrip()]
    lines += [f"  - {problem['message']}\n    {problem['fix']}" for problem in problems]
    return Output(sent, "\n".join([*lines, *(f"  note: {note}" for note in report.get("notes") or [])]))


def cancel(args: Namespace, client: Client) -> Output:
    sent = client.tenant("DELETE", "uploads", args.upload)
    say(f"{sent['adapter']}: cancelled, and its files are deleted.")
    return Output(sent)


def _source(sent: Any) -> str:
    source = sent["imported_from"]
    if source is None:
        return "files"
    return f"{source['name']}@{source['revision']}" if source["revision"] else str(source["name"])


def _result(sent: Any) -> str:
    if sent["version"]:
        return f"{sent['adapter']}@v{sent['version']}"
    return str(sent["reason"]["message"]) if sent["reason"] else ""


def _wait_until_ready(client: Client, sent: Any, timeout_s: float) -> Output:
    """Wait until the version that an upload becomes can be called."""
    try:
        accepted = _wait_until_decided(client, sent, timeout_s)
    except KeyboardInterrupt:
        say(f"The server continues with it; `lorikeet uploads cancel {sent['id']}` ends it.")
        raise
    adapter, number = accepted["adapter"], accepted["version"]
    reused = " (a version with the same content exists)" if accepted["reused_version"] else ""
    say(f"accepted as {adapter}@v{number}{reused}")
    version = _wait_until_staged(client, adapter, number, timeout_s)
    for line in (effect_text(version["effect"]), *confirmations(version)):
        say(line)
    return Output(version, f"{adapter}@v{number}")


def _wait_until_decided(client: Client, sent: Any, timeout_s: float) -> Any:
    """Wait until the server has validated an upload. Raises CliError with every problem that it reports."""
    wait = Wait(timeout_s, f"`lorikeet uploads show {sent['id']}` shows it; var/log has the log of a local server.")
    while sent["state"] in ("received", "validating"):
        wait.pause(_progress(sent))
        sent = client.tenant("GET", "uploads", sent["id"])
    reason = sent["reason"]
    if sent["state"] == "cancelled":
        raise CliError(reason["message"], reason["fix"], code=reason["code"])
    if sent["state"] == "refused":
        problems = (sent["report"] or {}).get("problems") or [reason]
        lines = [f"  - {problem['message']}\n    {problem['fix']}" for problem in problems]
        raise CliError("The adapter was refused:\n" + "\n".join(lines), code=problems[0]["code"])
    return sent


def _progress(sent: Any) -> str:
    if sent["state"] != "validating":
        return f"waiting: {sent['reason']['message']}" if sent["reason"] else "waiting for validation"
    fetched = sent.get("fetched_bytes")
    if fetched is None:
        return "validating"
    # In steps of ten per cent, because each is a line.
    return f"fetching, {10 * fetched // sent['bytes']}0 %" if sent["bytes"] else "fetching"


def _wait_until_staged(client: Client, adapter: str, number: int, timeout_s: float) -> Any:
    """Wait until a host has a version."""
    wait = Wait(timeout_s, f"`lorikeet adapters {adapter}` shows it; `lorikeet hosts` shows an operator the hosts.")
    while True:
        version = client.tenant("GET", "adapters", adapter, "versions", number)
        if version["state"] == "ready":
            return version
        if version["state"] == "failed":
            error = version["error"] or {}
            message = error.get("message", "No host could load it.")
            raise CliError(message, error.get("fix", ""), code=error.get("code", "failed"))
        wait.pause(", ".join(sorted(f"{place['phase']} on {place['host']}" for place in version["placements"])))
