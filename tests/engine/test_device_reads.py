"""Tensors read for a GPU are those that safetensors reads; here into memory that stands for the device's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from lora_engine.errors import UnsupportedModel
from lora_engine.model import device_reads
from lora_engine.model.checkpoint import Checkpoint
from lora_engine.model.config import ModelConfig
from lora_engine.model.device_reads import DeviceCheckpoint
from lora_engine.model.parallel import Parallel
from lora_engine.model.rank_tensors import RankTensors
from lora_engine.model.tensor_shapes import tensor_shapes
from lora_engine.model.weight_loading import build_weights

LLAMA: dict[str, Any] = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 50, "max_position_embeddings": 256,
}  # fmt: skip


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


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of bytes that were read at a time."""
    read, read_whole = list[int](), device_reads._read_whole

    def watched(file: int, into: memoryview, offset: int) -> None:
        read.append(len(into))
        read_whole(file, into, offset)

    monkeypatch.setattr(device_reads, "_read_whole", watched)
    return read


def test_only_the_rows_of_a_part_are_read(folder: Path, sizes: list[int]) -> None:
    plain, read = Checkpoint(folder), DeviceCheckpoint(folder, torch.device("cpu"))
    for name, (start, stop), row_bytes in (("large", (7, 30), 154), ("half", (4, 5), 12), ("float", (0, 13), 4)):
        sizes.clear()
        rows = read.rows(name, start, stop)
        assert torch.equal(rows, plain.tensor(name)[start:stop]) and rows.dtype == plain.tensor(name).dtype
        assert sum(sizes) == (stop - start) * row_bytes
    for checkpoint in (plain, read):
        checkpoint.join(("large", "large"), "twice")
    assert torch.equal(read.rows("twice", 30, 50), plain.rows("twice", 30, 50))


def test_a_rank_reads_its_rows_and_whole_matrices_only_where_it_has_columns(folder: Path, sizes: list[int]) -> None:
    config, cpu = ModelConfig.from_dict(LLAMA), torch.device("cpu")
    shapes = tensor_shapes(config)
    save_file({name: torch.randn(shape) for name, shape in shapes.items()}, folder / "model.safetensors")
    sources = Checkpoint(folder), DeviceCheckpoint(folder, cpu)
    plain, read = (
        build_weights(RankTensors(each, config, cpu, torch.float32, Parallel(1, 2)), tied=False) for each in sources
    )
    assert torch.equal(read.embedding, plain.embedding) and torch.equal(read.lm_head, plain.lm_head)
    for ours, theirs in zip(read.layers, plain.layers, strict=True):
        for name in ("mixer_in", "mixer_out", "gate_up", "down"):
            assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
    whole = ("o_proj.weight", "down_proj.weight", "norm.weight")
    assert sum(sizes) == sum(4 * prod(shape) // (1 if name.endswith(whole) else 2) for name, shape in shapes.items())


def test_a_file_cut_meanwhile_is_named(folder: Path) -> None:
    read = DeviceCheckpoint(folder, torch.device("cpu"))
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(UnsupportedModel, match="it became shorter while it was read"):
        for name in read.files:
            read.tensor(name)
