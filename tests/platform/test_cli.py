"""The command line without a server: what it prints, and what it reads."""

from __future__ import annotations

import io
import sys
import warnings

import pytest

from lorikeet_cli import commands
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
