"""What the commands about batches and their files do."""

from __future__ import annotations

import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from lorikeet_cli.client import Client
from lorikeet_cli.commands import client, find_key, say
from lorikeet_cli.errors import CliError
from lorikeet_cli.output import ProgressBar, size, table, write
from lorikeet_cli.upload import send_form

ENDPOINTS = ("chat/completions", "completions", "embeddings")
OPEN = ("validating", "in_progress", "finalizing", "cancelling")
SHOWN = 50
POLL_S = 1.0


def listed(asked: Namespace) -> None:
    rows = [
        [each["id"], each["state"], _progress(each), each["endpoint"], each["key"], each["created_at"][:19]]
        for each in client().tenant("GET", "batches", limit=SHOWN)
    ]
    print(table(["batch", "state", "done", "endpoint", "key", "created"], rows))


def _progress(batch: Any) -> str:
    counts = batch["counts"]
    failed = f", {counts['failed']:,} failed" if counts["failed"] else ""
    return f"{counts['completed'] + counts['failed']:,} of {counts['total']:,}{failed}"


def create(asked: Namespace) -> None:
    own, path = client(), Path(asked.path)
    if not path.is_file():
        raise CliError(f"{path} is no file.", "Give a file of JSON lines.")
    form = {"endpoint": f"/v1/{asked.endpoint}"}
    if asked.key:
        form["key"] = find_key(own, asked.key)["id"]
    made = send_form(own, "batches", form, "file", [path], ProgressBar(path.name))
    if asked.wait:
        made = _over(own, made)
        _tell(own, made)
    print(made["id"])
    if made["state"] == "failed":
        raise CliError("The batch failed: no request of it ran.", "Mend the lines above and send the file again.")


def _over(own: Client, batch: Any) -> Any:
    said = ""
    while batch["state"] in OPEN:
        if (now := f"{batch['state']}: {_progress(batch)}") != said:
            say(said := now)
        time.sleep(POLL_S)
        batch = own.tenant("GET", f"batches/{batch['id']}")
    return batch


def show(asked: Namespace) -> None:
    own = client()
    _tell(own, own.tenant("GET", f"batches/{asked.batch}"), print)


def _tell(own: Client, batch: Any, tell: Any = say) -> None:
    tell(f"{batch['state']}: {_progress(batch)}, as {batch['key']}, of {batch['endpoint']}")
    for what in ("input", "output", "error"):
        if file := batch[f"{what}_file"]:
            tell(f"{what}: {file['id']}  {file['name']}  {size(file['bytes'])}")
    if batch["bad_lines"]:
        for error in own.tenant("GET", f"batches/{batch['id']}/errors"):
            tell(f"line {error['line']}: {error['message']}")


def cancel(asked: Namespace) -> None:
    batch = client().tenant("POST", f"batches/{asked.batch}/cancel")
    say(f"{batch['state']}: {_progress(batch)}")


def download(asked: Namespace) -> None:
    own = client()
    batch = own.tenant("GET", f"batches/{asked.batch}")
    file = batch["error_file" if asked.errors else "output_file"]
    if file is None:
        what = "failed" if asked.errors else "succeeded"
        raise CliError(
            f"The batch is {batch['state']} and has no file of requests that {what}.",
            "`lorikeet batches show` says how far it is; files are deleted when they expire.",
        )
    write(own.stream(own.tenant_path(f"files/{file['id']}/content")), asked.to)


def files(asked: Namespace) -> None:
    rows = [
        [each["id"], each["name"], each["purpose"], each["bytes"], each["expires_at"][:10]]
        for each in client().tenant("GET", "files", limit=SHOWN)
    ]
    print(table(["file", "name", "purpose", "bytes", "deleted on"], rows))


def download_file(asked: Namespace) -> None:
    own = client()
    write(own.stream(own.tenant_path(f"files/{asked.file}/content")), asked.to)


def delete_file(asked: Namespace) -> None:
    client().tenant("DELETE", f"files/{asked.file}")
    say(f"Deleted {asked.file}.")
