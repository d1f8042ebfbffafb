"""The command line without a running product: arguments, output, exit codes, and servers that misbehave."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lorikeet_cli import adapter_files, completion, errors, login, output, profile, uploads, usage, waiting
from lorikeet_cli import main as command_line
from lorikeet_cli.advice import in_commands
from lorikeet_cli.client import Client
from lorikeet_cli.errors import CliError
from lorikeet_cli.main import main, parser
from lorikeet_cli.profile import Profile
from scripts.docs_reference import ROOT, _errors_in

# Addresses in the server's advice for which the command line has no command: they stand in errors of the console's
# own requests, and of what operators and exports do over the API.
WITHOUT_COMMAND = re.compile(r"csrf_token|socket-ticket|/api/operator/|export|decide with PUT")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("lorikeet ")


def test_keys_list_is_keys() -> None:
    assert parser().parse_args(["keys", "list"]).run is parser().parse_args(["keys"]).run


def test_a_piped_key_is_read_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("lk_abc_def\n"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert login.read_secret("API key: ") == "lk_abc_def"


@pytest.mark.parametrize(("piped", "token"), [("AKIA\nsecret\n", ""), ("ASIA\nsecret\nof-an-hour\n", "of-an-hour")])
def test_keys_of_a_bucket_are_piped_with_or_without_a_session(
    monkeypatch: pytest.MonkeyPatch, piped: str, token: str
) -> None:
    sent: list[Mapping[str, str]] = []
    server = SimpleNamespace(tenant=lambda _method, _path, body: sent.append(body))
    monkeypatch.setattr(command_line, "Client", lambda: server)
    monkeypatch.setattr(sys, "stdin", io.StringIO(piped))
    assert main(["buckets", "set", "trainings", "--region", "eu-west-1"]) == 0
    assert (sent[0]["secret_access_key"], sent[0]["session_token"]) == ("secret", token)


def test_an_error_names_its_field(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    error = {
        "message": "It is empty.",
        "fix": "Correct it.",
        "param": "name",
        "code": "invalid_request",
        "request_id": "req_1",
    }

    def refuse(*_: object) -> None:
        raise CliError.from_response(400, {"error": error})

    monkeypatch.setattr(command_line, "Client", lambda: SimpleNamespace(tenant=refuse))
    assert main(["webhooks"]) == errors.FAILED
    assert capsys.readouterr().err == "It is empty.\nCorrect it.\n(field name)\n(request req_1)\n"
    assert main(["webhooks", "list", "--json"]) == errors.FAILED
    assert json.loads(capsys.readouterr().err) == {"error": error}


@pytest.mark.parametrize("options", [[], ["--base", "llama"]])
def test_an_upload_and_an_import_name_their_base_model(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Mapping[str, str]] = []

    class Server:
        def tenant(self, _method: str, _path: str, *, body: Mapping[str, str]) -> dict[str, str]:
            sent.append(body)
            return {"id": "1"}

    def send_form(_client: object, _address: str, form: Mapping[str, str], *_: object) -> dict[str, str]:
        sent.append(form)
        return {"id": "2"}

    monkeypatch.setattr(command_line, "Client", Server)
    monkeypatch.setattr(uploads, "send_form", send_form)
    (tmp_path / "support.zip").write_bytes(b"")
    assert main(["upload", str(tmp_path / "support.zip"), "--no-wait", *options]) == 0
    assert main(["import", "hub:org/name", "--name", "support", "--no-wait", *options]) == 0
    assert [form["base_model"] for form in sent] == [options[1] if options else ""] * 2


def test_uploads_are_listed_and_cancelled(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    requests, sent = (
        [],
        {"id": "9c", "adapter": "support", "created_at": "2026-11-24T02:03:04.5Z", "imported_from": None},
    )
    source = {"name": "hub:org/name", "revision": "v1", "commit": None}
    refused = {"state": "refused", "version": None, "reason": {"message": "It is no adapter.", "fix": "Send one."}}
    rows = [{**sent, "state": "accepted", "version": 3, "reason": None}, {**sent, **refused, "imported_from": source}]

    class Server:
        def tenant(self, *request: str) -> object:
            requests.append(request)
            return sent

        def rows(self, path: str, *, limit: int, search: str | None) -> object:
            requests.append((path, str(limit)))
            return rows, 70

    monkeypatch.setattr(command_line, "Client", Server)
    assert main(["uploads"]) == 0
    printed = capsys.readouterr()
    first, second = printed.out.splitlines()[-2:]
    assert printed.err == "2 of 70, the newest first; --limit N or --all shows more.\n"
    assert "support@v3" in first and "files" in first and "2026-11-24T02:03:04Z" in first
    assert "hub:org/name@v1" in second and "It is no adapter." in second
    assert main(["uploads", "list", "--limit", "70"]) == main(["uploads", "cancel", "9c"]) == 0
    assert requests == [("uploads", "50"), ("uploads", "70"), ("DELETE", "uploads", "9c")]
    assert "cancelled" in capsys.readouterr().err


def test_hosts_say_why_they_were_restarted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    host = {
        "state": "online",
        "service": "serving",
        "model": "m",
        "running": 0,
        "waiting": 0,
        "zone": "",
        "joined": None,
    }
    quarantine = {"code": "other_base_model", "message": "It has another.", "fix": "Start it with m."}
    end = {"reason": "it was killed", "at": "2026-11-24T02:03:04+00:00"}
    host |= {"zone": "", "joined": None}
    hosts_now = [
        {**host, "name": "gpu1", "address": "a", "quarantine": None, "last_end": end},
        {**host, "name": "gpu2", "address": "b", "quarantine": quarantine, "last_end": {**end, "at": None}},
        {**host, "name": "gpu3", "address": "c", "quarantine": None, "last_end": None},
    ]
    monkeypatch.setattr(command_line, "Client", lambda: SimpleNamespace(operator=lambda *_: hosts_now))
    assert main(["hosts"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "gpu1 was restarted, 2026-11-24 02:03 UTC: it was killed",
        "gpu2 is in quarantine: It has another. Start it with m.",
        "gpu2 was restarted: it was killed",
    ]


class Recorded:
    """A server with two things pinned, which records its requests."""

    requests: list[tuple[str, str, object]] = []

    def tenant(self, method: str, *segments: str, body: object = None) -> object:
        path = "/".join(segments)
        self.requests.append((method, path, body))
        host = {
            "host": "gpu1",
            "state": "failed",
            "bytes": 0,
            "error": {"message": "It did not fit.", "fix": "Cut it."},
        }
        prefix = {"name": "handbook", "model": "support", "tokens": 64, "bytes": 1 << 20, "hosts": [host]}
        if path == "pinned-prefixes":
            return {**prefix, "name": body["name"] if isinstance(body, dict) else ""}
        adapters = [{"name": "support", "bytes": 2 << 20}]
        return {
            "bytes": 2 << 20,
            "used_bytes": 3 << 20,
            "limit_bytes": 4 << 20,
            "adapters": adapters,
            "prefixes": [prefix],
        }


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, object]]:
    monkeypatch.setattr(command_line, "Client", Recorded)
    monkeypatch.setattr(Recorded, "requests", [])
    return Recorded.requests


def test_adapters_are_pinned_and_unpinned_and_listed(
    recorded: list[tuple[str, str, object]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pin", "support"]) == main(["unpin", "support"]) == main(["pins"]) == 0
    assert [(method, path) for method, path, _ in recorded] == [
        ("PUT", "adapters/support/pin"), ("DELETE", "adapters/support/pin"), ("GET", "pins"),
    ]  # fmt: skip
    shown = capsys.readouterr()
    assert "3.0 MiB of 4.0 MiB are used." in shown.err and "It did not fit. Cut it." in shown.err
    assert "1 failed" in shown.out
    assert main(["pin", "support", "--salt", "s"]) == 1, "a salt goes with a prefix"


@pytest.mark.parametrize(
    ("text", "options", "content"),
    [
        ("Be brief.\n", [], {"messages": [{"role": "system", "content": "Be brief.\n"}]}),
        ("{not JSON", [], {"messages": [{"role": "system", "content": "{not JSON"}]}),
        ('[{"role": "system", "content": "a"}]', [], {"messages": [{"role": "system", "content": "a"}]}),
        (
            '{"model": "other", "messages": [], "tools": [], "temperature": 0}',
            [],
            {"messages": [], "tools": []},
        ),
        ('{"a": 1}', ["--as-prompt", "--salt", "s"], {"prompt": '{"a": 1}', "cache_salt": "s"}),
    ],
)
def test_a_file_is_pinned_as_what_it_is(
    text: str, options: list[str], content: dict[str, object], tmp_path: Path, recorded: list[tuple[str, str, object]]
) -> None:
    (tmp_path / "Handbook.txt").write_text(text)
    assert main(["pin", "support", "--prefix", str(tmp_path / "Handbook.txt"), *options]) == 0
    assert recorded == [("POST", "pinned-prefixes", {"name": "handbook", "model": "support", **content})]
    assert main(["unpin", "handbook", "--prefix"]) == 0 and recorded[-1][:2] == ("DELETE", "pinned-prefixes/handbook")


def test_a_prefix_that_cannot_be_read_is_no_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for name in ("nothing", "bytes"):
        assert main(["pin", "support", "--prefix", str(tmp_path / name)]) == 1
        assert "UTF-8" in capsys.readouterr().err


def packed(folder: Path) -> dict[str, int]:
    """The names and sizes in the archive that is sent of a folder."""
    (part,) = adapter_files.parts_of([folder])
    content = b"".join(part.read())
    assert len(content) == part.size
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {member.name: member.size for member in archive}


def adapter(folder: Path, weights: str = "adapter_model.safetensors") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text("{}")
    (folder / weights).write_bytes(b"x" * 600)
    return folder


def test_a_folder_is_sent_as_its_adapter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    adapter(tmp_path)
    for name in ("chat_template.jinja", "optimizer.pt", "adapter_model.bin"):
        (tmp_path / name).write_bytes(b"y")
    adapter(tmp_path / "checkpoint-10")
    assert packed(tmp_path) == {"adapter_config.json": 2, "adapter_model.safetensors": 600, "chat_template.jinja": 1}
    assert capsys.readouterr().err == ""


def test_a_folder_with_one_checkpoint_is_sent_as_that(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = adapter(tmp_path / "run" / "checkpoint-20", "adapter_model.bin")
    (checkpoint / "optimizer.pt").write_bytes(b"y")
    adapter(tmp_path / "run" / "pissa_init")
    assert packed(tmp_path) == {
        "run/checkpoint-20/adapter_config.json": 2,
        "run/checkpoint-20/adapter_model.bin": 600,
        "run/pissa_init/adapter_config.json": 2,
        "run/pissa_init/adapter_model.safetensors": 600,
    }
    assert "Sending run/checkpoint-20" in capsys.readouterr().err


def test_the_server_judges_folders_without_an_adapter_or_with_several(tmp_path: Path) -> None:
    """It gets the names of their files without the contents, and explains what is wrong."""
    (tmp_path / "model.safetensors").write_bytes(b"x" * 99)
    assert packed(tmp_path) == {"model.safetensors": 0}
    for number in (10, 20):
        adapter(tmp_path / f"checkpoint-{number}")
    sizes = packed(tmp_path)
    assert len(sizes) == 5 and set(sizes.values()) == {0}
    (tmp_path / "empty").mkdir()
    with pytest.raises(CliError, match="holds no files of an adapter"):
        adapter_files.parts_of([tmp_path / "empty"])


def test_files_are_sent_as_they_are(tmp_path: Path) -> None:
    """The server judges archives of any kind, and weights without a configuration."""
    for name in ("Adapter.ZIP", "adapter.7z", "adapter_model.safetensors", 'a "quoted".tar'):
        (tmp_path / name).write_bytes(b"abc")
    parts = adapter_files.parts_of(sorted(tmp_path.iterdir()))
    assert [part.name for part in parts] == [
        "Adapter.ZIP",
        "a %22quoted%22.tar",
        "adapter.7z",
        "adapter_model.safetensors",
    ]
    assert [part.size for part in parts] == [3] * 4
    assert adapter_files.digests(parts[:1]).endswith("  Adapter.ZIP")
    with pytest.raises(CliError, match="does not exist"):
        adapter_files.parts_of([tmp_path / "nothing"])


@pytest.mark.parametrize(
    ("path", "name"), [("My Adapter", "my-adapter"), ("Support.V2.tar.gz", "support.v2"), ("x.ZIP", "x"), ("é", "")]
)
def test_the_name_of_an_upload(path: str, name: str, tmp_path: Path) -> None:
    assert adapter_files.default_name(tmp_path / path) == name


class Server:
    """An HTTP server that answers every request alike, and records their paths."""

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        paths: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                paths.append(self.path)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *_: object) -> None:
                pass

        self.paths = paths
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


Serve = Callable[..., Server]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Start a server, and log in to it by the environment."""
    servers = []

    def start(body: Any, status: int = 200, **headers: str) -> Server:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        servers.append(server := Server(status, content, named))
        for name, value in (("URL", server.url), ("TENANT", "acme"), ("KEY", "lk_a_b")):
            monkeypatch.setenv(f"LORIKEET_{name}", value)
        return server

    yield start
    for server in servers:
        server.http.shutdown()
        server.http.server_close()


def test_names_are_one_segment_of_an_address(serve: Serve) -> None:
    server = serve({"aliases": [], "versions": []})
    assert main(["adapters", "a b/c?d"]) == 0
    assert server.paths == ["/api/tenants/acme/adapters/a%20b%2Fc%3Fd"]


@pytest.mark.parametrize(
    ("status", "body", "code", "text"),
    [
        (
            401,
            {"error": {"code": "invalid_api_key", "message": "Expired.", "request_id": "req_1"}},
            errors.LOG_IN,
            "Expired.\n`lorikeet login` replaces",
        ),
        (403, {"error": {"message": "No.", "fix": "Ask."}}, errors.FAILED, "No.\nAsk."),
        (404, b"<html>", errors.FAILED, "The server answered 404."),
        (429, {"error": {"message": "Slowly."}}, errors.TRY_AGAIN, "Slowly."),
        (502, b"Bad Gateway", errors.TRY_AGAIN, "The server answered 502."),
        (301, b"", errors.FAILED, "redirects to https://elsewhere/"),
        (200, b"<html>console</html>", errors.FAILED, "other than JSON"),
    ],
)
def test_exit_codes(
    status: int, body: Any, code: int, text: str, serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(body, status, Location="https://elsewhere/")
    assert main(["keys"]) == code
    assert text in capsys.readouterr().err


def test_a_server_that_is_away(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in (("URL", "http://127.0.0.1:1"), ("TENANT", "acme"), ("KEY", "lk_a_b")):
        monkeypatch.setenv(f"LORIKEET_{name}", value)
    assert main(["keys", "--json"]) == errors.TRY_AGAIN
    error = json.loads(capsys.readouterr().err)["error"]
    assert error["code"] == "unreachable" and "does not answer" in error["message"] and error["request_id"] is None


def test_nobody_is_logged_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("URL", "TENANT", "KEY"):
        monkeypatch.delenv(f"LORIKEET_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["adapters"]) == errors.LOG_IN
    assert "lorikeet login" in capsys.readouterr().err
    profile.save(Profile("http://127.0.0.1:1", "acme", key="lk_a_b"))
    monkeypatch.setenv("LORIKEET_TENANT", "other")
    assert profile.load().tenant == "other"


@pytest.mark.parametrize("address", ["lorikeet.example.org", "https://", "http://host:port", "ftp://host"])
def test_an_address_that_is_none(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["login", address, "--tenant", "acme", "--key", "lk_a_b"]) == errors.FAILED
    assert "is no address" in capsys.readouterr().err


def test_the_address_of_a_page_is_its_servers() -> None:
    assert profile.server_of("https://lorikeet.example.org/acme/adapters?a=b") == "https://lorikeet.example.org"


def test_every_command_takes_json(monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (["keys", "--json"], ["keys", "list", "--json"], ["keys", "--json", "list"], ["--json", "keys"]):
        assert parser().parse_args(words).json is True
    assert parser().parse_args(["keys", "list"]).json is False
    assert parser().parse_args(["files", "--limit", "7", "list"]).limit == 7
    assert main(["files", "--limit", "0"]) == errors.USAGE


def test_json_is_the_servers_own(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"bucket": "ü", "region": "r", "endpoint": "", "new_field": [1]}]
    serve(rows)
    assert main(["buckets", "--json"]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed) == rows and printed.isascii()


def test_long_lists_are_read_in_pages(serve: Serve) -> None:
    server = serve([{"id": number} for number in range(100)], X_Total_Count="250")
    rows, total = Client().rows("files", limit=230)
    assert (len(rows), total) == (300, 250)  # this server sends 100 rows, whatever the limit
    assert server.paths[1:] == [f"/api/tenants/acme/files?limit={n}&offset={o}" for n, o in ((130, 100), (30, 200))]
    assert len(Client().rows("files", limit=5)[0]) == 100 and server.paths[-1].endswith("limit=5&offset=0")


def test_a_download_that_ends_early_leaves_the_old_file(
    serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(b"start,end\n", Content_Length="1000")
    (tmp_path / "usage.csv").write_text("old")
    assert main(["usage", "--csv", str(tmp_path / "usage.csv")]) == errors.TRY_AGAIN
    assert "990 bytes too early" in capsys.readouterr().err
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]
    assert main(["usage", "--csv", str(tmp_path)]) == errors.FAILED
    assert "cannot be written" in capsys.readouterr().err


def test_a_file_that_becomes_shorter_or_vanishes_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"abc")
    (part,) = adapter_files.parts_of([tmp_path / "a.zip"])
    (tmp_path / "a.zip").write_bytes(b"a")
    with pytest.raises(CliError, match="became shorter"):
        list(part.read())
    (tmp_path / "a.zip").unlink()
    with pytest.raises(CliError, match="cannot be read"):
        list(part.read())


def process(*arguments: str, redirect: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as a program of the shell."""
    path = os.pathsep.join(path for path in sys.path if path)
    command = f'"{sys.executable}" -m lorikeet_cli "$@" {redirect}'
    return subprocess.run(
        ["bash", "-c", f"{command}; echo ${{PIPESTATUS[0]}} >&2", "-", *arguments],
        env={**os.environ, "PYTHONPATH": path, **env}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip


def test_a_reader_that_has_enough_is_no_error(serve: Serve) -> None:
    serve([{"bucket": f"b{number}" * 20, "region": "r", "endpoint": ""} for number in range(20_000)])
    done = process("buckets", redirect="| head -2")
    assert len(done.stdout.splitlines()) == 2 and done.stderr == "0\n"
    assert "No space left" in process("buckets", redirect="> /dev/full").stderr


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"PYTHONIOENCODING": "ascii"}, {"TERM": "xterm"}])
def test_output_is_plain_text_in_every_terminal(env: dict[str, str], serve: Serve) -> None:
    serve([{"name": "a\x1b[31m\nü", "status": "ready", "live_version": None, "versions_count": 0, "bytes": None}])
    done = process("adapters", **env)
    assert done.stderr == "0\n" and "\x1b" not in done.stdout and len(done.stdout.splitlines()) == 2


def test_ctrl_c_says_what_goes_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    sent = {"id": "9c", "state": "received", "reason": None}
    monkeypatch.setattr(command_line, "Client", lambda: SimpleNamespace(tenant=lambda *_, body: sent))
    monkeypatch.setattr(waiting.time, "sleep", interrupt)
    assert main(["import", "hub:a/b", "--name", "support"]) == errors.INTERRUPTED
    assert "lorikeet uploads cancel 9c" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "body", "look_at"),
    [
        (["import", "hub:a/b", "--name", "support"], {"state": "received", "reason": None}, "lorikeet uploads show 9c"),
        (
            ["evaluate", "support@v1", "--set", "sums"],
            {"state": "waiting", "problem": None, "adapter": "support", "version": 1, "set": "sums"},
            "lorikeet evaluations",
        ),
    ],
)
def test_a_wait_ends_and_says_where_to_look(
    words: list[str], body: dict[str, object], look_at: str, serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    serve({"id": "9c", **body})
    assert main([*words, "--timeout", "0.1"]) == errors.TIMED_OUT
    error = capsys.readouterr().err
    assert "not done after 0.1 s" in error and look_at in error
    assert main([*words, "--timeout", "-1"]) == errors.USAGE


def test_a_login_without_a_terminal_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert main(["login", "http://127.0.0.1:1"]) == errors.FAILED
    assert "--email" in capsys.readouterr().err


def test_tail_misses_no_request_of_a_burst() -> None:
    """More requests than a page, after a start without any."""
    pages = {None: ([5, 4, 3], "a"), "a": ([2, 1, 0], None)}

    def tenant(*_: str, limit: int, cursor: str | None) -> object:
        rows, following = pages[cursor]
        return {"results": [{"id": row} for row in rows], "next_cursor": following}

    client: Any = SimpleNamespace(tenant=tenant)
    assert [row["id"] for row in usage._unseen(client, set())] == [5, 4, 3, 2, 1, 0]
    assert [row["id"] for row in usage._unseen(client, {"x"} | {4})] == [5, 3]  # type: ignore[arg-type]


def test_the_help_lists_the_exit_codes() -> None:
    for code, meaning in errors.EXIT_CODES.items():
        assert f"  {code:<4} {meaning}" in parser().format_help()


def every_command(made: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield made
    for action in made._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from every_command(each)


def test_every_command_has_examples_that_are_right() -> None:
    top = parser()
    without = []
    for made in every_command(top):
        examples = getattr(made, "examples", ())
        if made.prog.count(" ") == 1 and not examples:
            without.append(made.prog)
        for example in examples:
            words = shlex.split(re.split(r" [|<>] ", example)[0])
            assert top.parse_args(words[1:]).run, example
    assert not without


def test_every_option_has_a_help_text() -> None:
    obvious = {"--region", "--endpoint", "path"}
    for made in every_command(parser()):
        for action in made._actions:
            names = {*action.option_strings, action.dest}
            assert action.help or action.choices or names & obvious or made.prog.endswith("promotion-rule"), (
                made.prog,
                action.dest,
            )


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("promot support@v2", "Did you mean promote?"),
        ("keys crate backend", "Did you mean create?"),
        ("keys --limt 3", "Did you mean --limit?"),
        ("upload x --evalute y", "Did you mean --evaluate?"),
        ("usage --grain hours", "Did you mean hour?"),
        ("adapters --lim 3", "Did you mean --limit?"),
        ("promote", "arguments are required: version"),
        ("canary", "arguments are required: action"),
    ],
)
def test_a_misspelt_word_has_a_hint(words: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == errors.USAGE
    error = capsys.readouterr().err
    assert hint in error and "--help` explains it." in error
    assert main([*words.split(), "--json"]) == errors.USAGE
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "usage"


def test_without_a_command_the_help_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    for made in every_command(parser()):
        if made.prog.count(" ") == 1:
            assert f"  {made.prog.partition(' ')[2]} " in shown


def test_a_fix_that_the_message_has_too_is_printed_once() -> None:
    fix = "GET /v1/models lists the models of this key."
    error = CliError.from_response(404, {"error": {"message": f'There is no model "a". {fix}', "fix": fix}})
    assert error.text() == 'There is no model "a".\n`lorikeet models` lists the models of this key.'


def test_advice_of_the_server_is_in_commands() -> None:
    texts = {error.fix for error in _errors_in(ROOT / "platform" / "control_plane")}
    addresses = [in_commands(text) for text in texts if not WITHOUT_COMMAND.search(text)]
    assert [text for text in addresses if re.search(r"\b(GET|PUT|POST|PATCH|DELETE)\b", text)] == []
    named = {command for text in addresses for command in re.findall(r"`lorikeet ([^`]+)`", text)}
    assert len(named) > 20
    for command in named:
        made: argparse.ArgumentParser = parser()
        for word in command.split():
            verbs = completion._verbs(made)
            assert word in verbs or not verbs or made.prog.count(" ") or word == "…", command
            made = verbs.get(word, made)


@pytest.mark.parametrize(
    ("words", "candidates"),
    [
        (["prom"], ["promote", "promotion-rule"]),
        (["keys", "r"], ["rotate", "revoke"]),
        (["keys", "create", "--sc"], ["--scope"]),
        (["keys", "create", "--scope", ""], ["infer", "adapters.write", "view"]),
        (["completion", "z"], ["zsh"]),
        (["upload", "./sup"], []),
        (["upload", "--name", ""], []),
        (["--json", "who"], ["whoami"]),
    ],
)
def test_completions(words: list[str], candidates: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([completion.HIDDEN, *words]) == 0
    assert capsys.readouterr().out.split() == candidates


def test_bash_completes(tmp_path: Path) -> None:
    """The script for bash, in bash, with the program on the path."""
    (tmp_path / "lorikeet").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m lorikeet_cli "$@"\n')
    (tmp_path / "lorikeet").chmod(0o755)
    lines = (
        'eval "$(lorikeet completion bash)"',
        "COMP_WORDS=(lorikeet canary s) COMP_CWORD=2",
        '_lorikeet; echo "${COMPREPLY[*]}"; complete -p lorikeet',
    )
    env = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    done = subprocess.run(["bash", "-c", "\n".join(lines)], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[0] == "start show stop" and "-F _lorikeet lorikeet" in done.stdout, done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_call_the_hidden_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "lorikeet _complete" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "0.00 USD"),
        (1, "0.000001 USD"),
        (312, "0.000312 USD"),
        (120_000, "0.12 USD"),
        (125_000, "0.125 USD"),
        (1_234_567, "1.23 USD"),
        (5_000_000_000, "5,000.00 USD"),
    ],
)
def test_small_amounts_are_not_zero(micros: int, text: str) -> None:
    assert output.money(micros, "USD") == text


def test_amounts_and_times_have_units(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    sums = {"requests": 2, "prompt_tokens": 10, "completion_tokens": 4, "device_us": 61_000, "cost_micros": 7}
    report = {"currency": "USD", "as_of": None, "totals": sums, "by_adapter": [{**sums, "adapter": "support"}]}
    serve({**report, "by_base_model": []})
    assert main(["usage"]) == 0
    shown = capsys.readouterr().out
    assert "prompt tokens" in shown and "61 ms" in shown and "0.000007 USD" in shown
    lines = [
        {"kind": "input", "quantity": 3, "unit_price_micros": 200_000, "amount_micros": 1, "base_model": None},
        {"kind": "storage", "quantity": 744 * 10**9, "unit_price_micros": 250_000, "amount_micros": 250_000},
    ]
    days = {"first": "2026-05-01", "last": "2026-05-31"}
    serve({"currency": "USD", "month": "2026-05", "lines": [{**days, **each} for each in lines], "total_micros": 1})
    assert main(["usage", "--month", "2026-05"]) == 0
    shown = capsys.readouterr().out
    assert "3 tokens" in shown and "0.20 USD a million" in shown and "1.00 GB for a month" in shown
    assert [output.duration(s) for s in (0.0614, 1.25, 150, 9000)] == ["61 ms", "1.2 s", "2.5 min", "2.5 h"]


def test_damaged_profiles_are_no_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for text in ("", "[]", '{"current": 1, "profiles": {"a": {"x": 1}}}', '{"profiles": []}'):
        profile.path().parent.mkdir(exist_ok=True)
        profile.path().write_text(text)
        assert profile.read() == profile.Saved()
    with pytest.raises(CliError, match="no name of a profile"):
        profile.save(Profile("http://127.0.0.1:1", "acme"), "../other")


def test_sizes_and_tables() -> None:
    assert [output.size(n) for n in (999, 1000, 1_500_000, 2_000_000_000)] == ["999 B", "1.0 kB", "1.5 MB", "2.00 GB"]
    assert output.table(["a", "n"], [["x", 1000], ["yy", 2]]) == "a       n\nx   1,000\nyy      2"
