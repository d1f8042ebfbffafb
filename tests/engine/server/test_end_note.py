"""What an engine leaves for the next one to say about its end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lora_engine.server.end_note import EndNote, LastEnd


def test_an_end_is_told_once_by_the_engine_that_follows(tmp_path: Path) -> None:
    assert EndNote(tmp_path).begin() is None, "the first one"
    sudden = EndNote(tmp_path).begin()
    assert sudden == LastEnd("it was killed, or its machine went down", 0.0)
    note = EndNote(tmp_path)
    note.begin()
    note.write("rank 1 ended with status -9")
    last = EndNote(tmp_path).begin()
    assert last is not None and last.reason == "rank 1 ended with status -9" and abs(last.at - time.time()) < 10
    EndNote(tmp_path).clear()
    EndNote(tmp_path).clear()
    assert EndNote(tmp_path).begin() is None, "as it should"


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"reason": "x", "at": "noon"}', '{"reason": "x", "at": null}']
)
def test_a_damaged_note_keeps_no_engine_from_starting(tmp_path: Path, content: str) -> None:
    (tmp_path / "end.json").write_text(content)
    assert EndNote(tmp_path).begin() == LastEnd("its reason cannot be read", 0.0)


def test_an_error_of_any_length_is_kept_short(tmp_path: Path) -> None:
    EndNote(tmp_path).write("x" * 100_000)
    last = EndNote(tmp_path).begin()
    assert last is not None and len(last.reason) == 1000


def test_a_folder_that_is_gone_is_no_reason_not_to_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    note = EndNote(tmp_path / "gone")
    assert note.begin() is None
    note.write("hung")
    assert "cannot be written" in caplog.text
    note.clear()
