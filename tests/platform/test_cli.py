"""The command line without a server: what it prints, and what it reads."""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path

import pytest

from lorikeet_cli import commands, upload
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
