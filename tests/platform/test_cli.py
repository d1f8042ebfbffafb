"""The command line without a server: what it prints, and what it reads."""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from lorikeet_cli import commands, hosts, pins, upload, uploads
from lorikeet_cli.errors import CliError
from lorikeet_cli.main import main, parser


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("lorikeet ")


def test_keys_list_is_keys() -> None:
    assert parser().parse_args(["keys", "list"]).run is commands.keys


def test_a_piped_key_is_read_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("lk_abc_def\n"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert commands._secret("API key: ") == "lk_abc_def"


@pytest.mark.parametrize(("piped", "token"), [("AKIA\nsecret\n", ""), ("ASIA\nsecret\nof-an-hour\n", "of-an-hour")])
def test_keys_of_a_bucket_are_piped_with_or_without_a_session(
    monkeypatch: pytest.MonkeyPatch, piped: str, token: str
) -> None:
    sent: list[Mapping[str, str]] = []
    server = SimpleNamespace(tenant=lambda _method, _path, body: sent.append(body))
    monkeypatch.setattr(commands, "client", lambda: server)
    monkeypatch.setattr(sys, "stdin", io.StringIO(piped))
    assert main(["buckets", "set", "trainings", "--region", "eu-west-1"]) == 0
    assert (sent[0]["secret_access_key"], sent[0]["session_token"]) == ("secret", token)


def test_an_error_names_its_field(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    error = {
        "message": "This field may not be blank.",
        "fix": "Correct it.",
        "param": "name",
        "code": "invalid_request",
    }

    def refused(_asked: object) -> None:
        raise CliError.of_answer(400, {"error": error})

    monkeypatch.setattr(commands, "keys", refused)
    assert main(["keys"]) == 1
    assert "(field name)" in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["--base", "llama"]])
def test_an_upload_and_an_import_name_their_base_model(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Mapping[str, str]] = []

    class Server:
        def tenant(self, _method: str, _path: str, body: Mapping[str, str]) -> dict[str, str]:
            sent.append(body)
            return {"id": "1"}

    def send_form(_client: object, _address: str, form: Mapping[str, str], *_: object) -> dict[str, str]:
        sent.append(form)
        return {"id": "2"}

    monkeypatch.setattr(commands, "client", Server)
    monkeypatch.setattr(upload, "send_form", send_form)
    (tmp_path / "support.zip").write_bytes(b"")
    assert main(["upload", str(tmp_path / "support.zip"), "--no-wait", *options]) == 0
    assert main(["import", "hub:org/name", "--name", "support", "--no-wait", *options]) == 0
    assert [form["base_model"] for form in sent] == [options[1] if options else ""] * 2


def test_uploads_are_listed_and_cancelled(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked, sent = [], {"id": "9c", "adapter": "support", "created_at": "2026-11-24T02:03:04.5Z", "imported_from": None}
    source = {"name": "hub:org/name", "revision": "v1", "commit": None}
    refused = {"state": "refused", "version": None, "reason": {"message": "It is no adapter.", "fix": "Send one."}}
    rows = [{**sent, "state": "accepted", "version": 3, "reason": None}, {**sent, **refused, "imported_from": source}]

    class Server:
        def tenant(self, method: str, path: str) -> object:
            asked.append((method, path))
            return sent if method == "DELETE" else rows

    monkeypatch.setattr(uploads, "client", Server)
    assert main(["uploads"]) == 0
    first, second = capsys.readouterr().out.splitlines()[-2:]
    assert "support@v3" in first and "files" in first and "2026-11-24T02:03:04" in first
    assert "hub:org/name@v1" in second and "It is no adapter." in second
    assert main(["uploads", "cancel", "9c/../x"]) == 0
    assert asked == [("GET", "uploads"), ("DELETE", "uploads/9c%2F..%2Fx")]
    assert "cancelled" in capsys.readouterr().err


def test_hosts_say_why_they_were_started_anew(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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
    monkeypatch.setattr(hosts, "client", lambda: SimpleNamespace(call=lambda *_: hosts_now))
    assert main(["hosts"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "gpu1 was started anew, 2026-11-24 02:03 UTC: it was killed",
        "gpu2 is in quarantine: It has another. Start it with m.",
        "gpu2 was started anew: it was killed",
    ]


class Recorded:
    """A server that has two things pinned, and remembers what it was asked."""

    asked: list[tuple[str, str, object]] = []

    def tenant(self, method: str, path: str, body: object = None) -> object:
        self.asked.append((method, path, body))
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
    monkeypatch.setattr(pins, "client", Recorded)
    monkeypatch.setattr(Recorded, "asked", [])
    return Recorded.asked


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


def test_a_folder_with_only_checkpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The only one that holds an adapter is sent; of several, all are named."""
    run = tmp_path / "run"
    for number in (10, 20):
        (run / f"checkpoint-{number}").mkdir(parents=True)
        (run / f"checkpoint-{number}" / "adapter_config.json").write_text("{}")
    with pytest.raises(CliError, match=r"lacks adapter_config\.json and adapter_model\.safetensors"):
        upload.files_of(run)
    (run / "checkpoint-20" / "adapter_model.bin").write_bytes(b"x")
    (run / "checkpoint-20" / "optimizer.pt").write_bytes(b"x")
    sent = [path.relative_to(tmp_path) for path in upload.files_of(tmp_path)]
    assert sent == [Path("run/checkpoint-20/adapter_config.json"), Path("run/checkpoint-20/adapter_model.bin")]
    assert "Sending the adapter of run/checkpoint-20" in capsys.readouterr().err
    (run / "checkpoint-10" / "adapter_model.safetensors").write_bytes(b"x")
    with pytest.raises(CliError, match="more than one adapter: checkpoint-10, checkpoint-20") as caught:
        upload.files_of(run)
    assert "highest number" in caught.value.fix
