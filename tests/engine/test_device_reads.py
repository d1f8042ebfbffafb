"""Tensors read for a GPU are those that safetensors reads; here into memory that stands for the device's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from lora_engine.errors import UnsupportedModel
from lora_engine.model import device_reads
from lora_engine.model.checkpoint import Checkpoint
from lora_engine.model.device_reads import DeviceCheckpoint


class Copied:
    """In an event's place: copies are done when they return."""

    def synchronize(self) -> None: ...
    def record(self, stream: None) -> None: ...


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(torch.cuda, "Event", Copied)
    monkeypatch.setattr(device_reads, "_BUFFER_BYTES", 1000)
    generator = torch.Generator().manual_seed(1)
    tensors = {
        "large": torch.randn(41, 77, generator=generator).bfloat16(),
        "float": torch.randn(13, generator=generator),
        "half": torch.randn(5, 3, 2, generator=generator).half(),
        "one": torch.tensor(2.5),
        "none": torch.zeros(0, 4),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path


def test_they_are_the_same(folder: Path) -> None:
    plain, read = Checkpoint(folder), DeviceCheckpoint(folder, torch.device("cpu"))
    assert len(plain.files) == 5
    with ThreadPoolExecutor(4) as threads:
        for name, tensor in zip(plain.files, threads.map(read.tensor, plain.files), strict=True):
            wanted = plain.tensor(name)
            assert tensor.dtype == wanted.dtype and torch.equal(tensor, wanted), name


def test_a_file_cut_meanwhile_is_named(folder: Path) -> None:
    read = DeviceCheckpoint(folder, torch.device("cpu"))
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(UnsupportedModel, match="it became shorter while it was read"):
        for name in read.files:
            read.tensor(name)
