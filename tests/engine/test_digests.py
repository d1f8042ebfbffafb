"""The base model's digest is remembered for the very same files only."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lora_engine.model import digests
from lora_engine.model.digests import DigestMemory, base_digest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    for number in (1, 2):
        (model / f"model-{number}.safetensors").write_bytes(bytes([number]) * 1000)
    return model


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders whose files were read; all of them have settled."""
    calls: list[Path] = []

    def count(folder: Path, progress: Callable[[float], None] = lambda share: None) -> str:
        calls.append(folder)
        return base_digest(folder, progress)

    monkeypatch.setattr(digests, "base_digest", count)
    monkeypatch.setattr(digests, "_SETTLED_NS", -(10**12))
    return calls


def test_it_is_computed_once(folder: Path, tmp_path: Path, computed: list[Path]) -> None:
    memory = tmp_path / "digests.json"
    first = DigestMemory(memory).digest(folder)
    assert first == base_digest(folder)
    assert DigestMemory(memory).digest(folder) == first
    assert len(computed) == 1


def _same_size_and_mtime(folder: Path) -> None:
    path = folder / "model-1.safetensors"
    before = path.stat()
    path.write_bytes(b"x" * before.st_size)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _replaced(folder: Path) -> None:
    other, path = folder / "other", folder / "model-2.safetensors"
    other.write_bytes(b"y" * 1000)
    other.replace(path)


@pytest.mark.parametrize(
    "change",
    [
        _same_size_and_mtime,
        _replaced,
        lambda folder: (folder / "config.json").write_text("{ }"),
        lambda folder: (folder / "model-3.safetensors").write_bytes(b"z"),
        lambda folder: (folder / "model-2.safetensors").unlink(),
        lambda folder: (folder / "model-2.safetensors").rename(folder / "model-4.safetensors"),
    ],
    ids=["same size and mtime", "replaced", "config", "added", "removed", "renamed"],
)
def test_every_change_is_seen(
    change: Callable[[Path], object], folder: Path, tmp_path: Path, computed: list[Path]
) -> None:
    memory = tmp_path / "digests.json"
    before = DigestMemory(memory).digest(folder)
    time.sleep(0.02)  # a tick of the file system's clock
    change(folder)
    after = DigestMemory(memory).digest(folder)
    assert after == base_digest(folder) != before
    assert len(computed) == 2


def test_what_was_just_written_is_not_remembered(folder: Path, tmp_path: Path) -> None:
    """It may be written again within the same tick, which no time would show."""
    DigestMemory(tmp_path / "digests.json").digest(folder)
    assert not (tmp_path / "digests.json").exists()


@pytest.mark.parametrize("text", ["", "[]", "nonsense", '{"format": 0, "digests": {}}', '{"format": 1, "digests": 3}'])
def test_a_damaged_memory_is_no_memory(text: str, folder: Path, tmp_path: Path, computed: list[Path]) -> None:
    memory = tmp_path / "digests.json"
    memory.write_text(text)
    assert DigestMemory(memory).digest(folder) == base_digest(folder)
    assert json.loads(memory.read_text())["format"] == 1


def test_a_memory_that_cannot_be_written_is_done_without(
    folder: Path, tmp_path: Path, computed: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    assert DigestMemory(tmp_path / "no such folder" / "digests.json").digest(folder) == base_digest(folder)
    assert "the next start computes it again" in caplog.text


def test_progress_goes_to_one(folder: Path) -> None:
    shares: list[float] = []
    base_digest(folder, shares.append)
    assert shares == sorted(shares) and shares[-1] == 1.0
