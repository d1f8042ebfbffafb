"""`lorikeet batches` and `files`."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from lorikeet_cli.client import Client
from lorikeet_cli.commands import BATCH_TIMEOUT_S, FILE, KEY, Commands, list_actions, searched, timeout_option
from lorikeet_cli.errors import CliError
from lorikeet_cli.forms import file_part, send_form
from lorikeet_cli.keys import key_option
from lorikeet_cli.output import Output, ProgressBar, moment, part_note, say, size, table, write
from lorikeet_cli.waiting import Wait

ENDPOINTS = ("chat/completions", "completions", "embeddings")
# States in which a batch is not over.
OPEN = ("validating", "in_progress", "finalizing", "cancelling")


def add_commands(commands: Commands) -> None:
    verb = commands.add(
        "batches",
        batches,
        "List, send, show and cancel batches of requests.",
        "lorikeet batches create requests.jsonl --wait",
        "lorikeet batches download batch_6f1a --to results.jsonl",
    )
    actions = list_actions(verb, searched("the id or the file's name"))
    made = actions.add(
        "create", create, "send a file of requests, one JSON object a line", ("path", "like requests.jsonl")
    )
    made.add_argument("--endpoint", choices=ENDPOINTS, default="chat/completions")
    made.add_argument("--key", default="", help=KEY)
    made.add_argument("--wait", action="store_true", help="wait until it is over")
    timeout_option(made, BATCH_TIMEOUT_S)
    batch = ("batch", "like batch_…")
    actions.add("show", show, "show the progress, the files and the bad lines of one", batch)
    actions.add("cancel", cancel, "cancel one; what has run stays, the rest never runs", batch)
    results = actions.add("download", download, "download the results, as JSON lines", batch)
    results.add_argument("--errors", action="store_true", help="the requests that failed instead")
    results.add_argument("--to", default="-", metavar="FILE", help=FILE)
    verb = commands.add(
        "files", files, "List, download and delete the files of batches.", "lorikeet files download file-6f1a"
    )
    actions = list_actions(verb, searched("the id or name"))
    file = ("file", "like file-…")
    content = actions.add("download", download_file, "download the content of one", file)
    content.add_argument("--to", default="-", metavar="FILE", help=FILE)
    actions.add("delete", delete_file, "delete one before it expires", file)


def batches(args: Namespace, client: Client) -> Output:
    batches, total = client.rows("batches", limit=args.limit, search=args.search)
    rows = [
        [each["id"], each["state"], _progress(each), each["endpoint"], each["key"], moment(each["created_at"])]
        for each in batches
    ]
    part_note(batches, total)
    return Output(batches, table(["batch", "state", "done", "endpoint", "key", "created"], rows))


def _progress(batch: Any) -> str:
    counts = batch["counts"]
    failed = f", {counts['failed']:,} failed" if counts["failed"] else ""
    return f"{counts['completed'] + counts['failed']:,} of {counts['total']:,}{failed}"


def create(args: Namespace, client: Client) -> Output:
    path = Path(args.path)
    if not path.is_file():
        raise CliError(f"{path} is no file.", "Name a file of JSON lines.", code="no_file")
    form = {"endpoint": f"/v1/{args.endpoint}", **key_option(client, args.key)}
    batch = send_form(client, "batches", form, "file", [file_part(path)], ProgressBar(path.name))
    if args.wait:
        batch = _wait_until_over(client, batch, args.timeout)
        say(_description(client, batch))
    if batch["state"] == "failed":
        fix = f"Correct the lines that `lorikeet batches show {batch['id']}` lists, and send the file again."
        raise CliError(f"The batch {batch['id']} failed: none of its requests ran.", fix, code="batch_failed")
    return Output(batch, batch["id"])


def _wait_until_over(client: Client, batch: Any, timeout_s: float) -> Any:
    wait = Wait(timeout_s, f"`lorikeet batches show {batch['id']}` shows it; batches run when no other request waits.")
    while batch["state"] in OPEN:
        wait.pause(f"{batch['state']}: {_progress(batch)}")
        batch = client.tenant("GET", "batches", batch["id"])
    return batch


def show(args: Namespace, client: Client) -> Output:
    batch = client.tenant("GET", "batches", args.batch)
    return Output(batch, _description(client, batch))


def _description(client: Client, batch: Any) -> str:
    lines = [f"{batch['state']}: {_progress(batch)}, as {batch['key']}, of {batch['endpoint']}"]
    for kind in ("input", "output", "error"):
        if file := batch[f"{kind}_file"]:
            lines.append(f"{kind}: {file['id']}  {file['name']}  {size(file['bytes'])}")
    if batch["bad_lines"]:
        errors = client.tenant("GET", "batches", batch["id"], "errors")
        lines += [f"line {error['line']}: {error['message']}" for error in errors]
    return "\n".join(lines)


def cancel(args: Namespace, client: Client) -> Output:
    batch = client.tenant("POST", "batches", args.batch, "cancel")
    say(f"{batch['state']}: {_progress(batch)}")
    return Output(batch)


def download(args: Namespace, client: Client) -> Output:
    batch = client.tenant("GET", "batches", args.batch)
    file = batch["error_file" if args.errors else "output_file"]
    if file is None:
        requests = "failed" if args.errors else "succeeded"
        raise CliError(
            f"The batch is {batch['state']} and has no file of requests that {requests}.",
            "`lorikeet batches show` says how far it is; files are deleted when they expire.",
            code="no_file",
        )
    write(client.stream(client.tenant_path("files", file["id"], "content")), args.to)
    return Output()


def files(args: Namespace, client: Client) -> Output:
    files, total = client.rows("files", limit=args.limit, search=args.search)
    rows = [[each["id"], each["name"], each["purpose"], size(each["bytes"]), each["expires_at"][:10]] for each in files]
    part_note(files, total)
    return Output(files, table(["file", "name", "purpose", "size", "deleted on"], rows))


def download_file(args: Namespace, client: Client) -> Output:
    write(client.stream(client.tenant_path("files", args.file, "content")), args.to)
    return Output()


def delete_file(args: Namespace, client: Client) -> Output:
    client.tenant("DELETE", "files", args.file)
    say(f"Deleted {args.file}.")
    return Output()
