"""A pickle is read by an interpreter that has nothing to call: what it takes, and what it refuses by name."""

from __future__ import annotations

import struct
import zipfile
from collections import OrderedDict
from pathlib import Path

import pytest
import torch

from lora_engine.peft_format.geometry import AdapterLimits
from lora_engine.peft_format.problems import FormatError
from lora_engine.peft_format.torch_pickle import TorchFile, read_state_dict

LIMITS = AdapterLimits(max_tensors=8, max_expert_tensors=0)
PROTO = b"\x80\x02"


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


STORAGE = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + b"K\x04tQ"
REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n("


def tensor(shape: bytes = b"K\x02K\x02\x86", strides: bytes = b"K\x02K\x01\x86", storage: bytes = STORAGE) -> bytes:
    return REBUILD + storage + b"K\x00" + shape + strides + b"\x89}tR"


REFUSED = {
    "no dict": (b"N.", "pickle_refused", "something else than a dict"),
    "no tensor": (b"}" + text("a") + b"K\x01s.", "pickle_refused", "no tensor"),
    "a call": (b"cos\nsystem\n(" + text("ls") + b"tR.", "pickle_refused", "would call os system"),
    "an instruction": (b"\x8f.", "pickle_refused", "EMPTY_SET"),
    "a state": (b"K\x01}b.", "pickle_refused", "state of an object"),
    "no end": (b"}", "damaged_pickle", "cut off"),
    "many steps": (b"N" * 6000 + b".", "damaged_pickle", "too many steps"),
    "a name twice": (b"}(" + text("a") + b"K\x01" + text("a") + b"K\x01u.", "damaged_pickle", "cut off"),
    "a name that is none": (b"}K\x01K\x01s.", "damaged_pickle", "cut off"),
    "half a pair": (b"}(" + text("a") + b"u.", "damaged_pickle", "cut off"),
    "pairs for no dict": (b"K\x01(" + text("a") + b"K\x01u.", "damaged_pickle", "cut off"),
    "too little on the stack": (b"K\x01\x87.", "damaged_pickle", "cut off"),
    "a dict with items": (b"ccollections\nOrderedDict\nK\x01\x85R.", "damaged_pickle", "cut off"),
    "a call without a function": (b"K\x01)R.", "damaged_pickle", "cut off"),
    "a parameter of nothing": (b"ctorch._utils\n_rebuild_parameter\nK\x01\x85R.", "damaged_pickle", "cut off"),
    "a storage of another kind": (
        b"(" + text("other") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + b"K\x04tQ.",
        "damaged_pickle",
        "cut off",
    ),
    "strides for another shape": (tensor(strides=b"K\x01\x85") + b".", "damaged_pickle", "cut off"),
    "a negative size": (tensor(shape=b"K\x02J\xff\xff\xff\xff\x86") + b".", "damaged_pickle", "cut off"),
    "a tensor of no storage": (tensor(storage=b"K\x01") + b".", "damaged_pickle", "cut off"),
}


@pytest.mark.parametrize(("program", "code", "words"), REFUSED.values(), ids=REFUSED)
def test_a_program_is_refused(program: bytes, code: str, words: str) -> None:
    with pytest.raises(FormatError, match=words) as refused:
        read_state_dict(PROTO + program, LIMITS)
    assert refused.value.code == code
    assert refused.value.fix


def test_tensors_are_read_with_their_places() -> None:
    (entry,) = read_state_dict(PROTO + b"}" + text("a") + tensor() + b"s.", LIMITS).values()
    assert (entry.name, entry.dtype, entry.shape, entry.strides, entry.storage) == ("a", "F32", (2, 2), (2, 1), "0")
    assert (entry.num_elements, entry.last) == (4, 4)
    (empty,) = read_state_dict(PROTO + b"}" + text("a") + tensor(shape=b"K\x00K\x02\x86") + b"s.", LIMITS).values()
    assert (empty.num_elements, empty.last) == (0, 0)


@pytest.mark.parametrize("protocol", [2, 4])
def test_every_protocol_of_torch(tmp_path: Path, protocol: int) -> None:
    path, values = tmp_path / "adapter_model.bin", torch.randn(3, 4)
    saved = OrderedDict(a=values, b=torch.nn.Parameter(values.t()), c=torch.zeros(0, 2))
    torch.save(saved, path, pickle_protocol=protocol)
    with TorchFile(path, LIMITS) as file:
        assert set(file.entries) == {"a", "b", "c"}
        assert (torch.from_numpy(file.tensor("b")) == values.t()).all()
        assert file.tensor("c").shape == (0, 2)


def archive(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as made:
        for name, data in members.items():
            made.writestr(f"archive/{name}", data)
    return path


PICKLE = PROTO + b"}" + text("a") + tensor() + b"s."
FILES = {
    "values are missing": ({"data.pkl": PICKLE}, "not all in it"),
    "values are cut off": ({"data.pkl": PICKLE, "data/0": bytes(15)}, "not all in it"),
    "no torch file": ({"other": b""}, "not one that torch.save wrote"),
    "another order of bytes": ({"data.pkl": PICKLE, "byteorder": b"big", "data/0": bytes(16)}, "order of bytes"),
    "many members": ({"data.pkl": PICKLE, **{f"data/{n}": bytes(16) for n in range(30)}}, "31 members"),
}


@pytest.mark.parametrize(("members", "words"), FILES.values(), ids=FILES)
def test_a_file_is_refused(tmp_path: Path, members: dict[str, bytes], words: str) -> None:
    with pytest.raises(FormatError, match=words):
        TorchFile(archive(tmp_path / "adapter_model.bin", members), LIMITS)


def test_what_torch_never_writes_is_refused(tmp_path: Path) -> None:
    members = {"data.pkl": PICKLE, "data/0": bytes(16)}
    with pytest.raises(FormatError, match="compressed"):
        TorchFile(archive(tmp_path / "one", members, zipfile.ZIP_DEFLATED), LIMITS)
    (tmp_path / "two").write_bytes(b"\x80\x02}q\x00.")
    with pytest.raises(FormatError, match="old form"):
        TorchFile(tmp_path / "two", LIMITS)
    (tmp_path / "three").write_bytes(archive(tmp_path / "four", members).read_bytes()[:-30])
    with pytest.raises(FormatError, match="damaged"):
        TorchFile(tmp_path / "three", LIMITS)


def test_tensors_that_share_a_storage_are_read_so_often_only(tmp_path: Path) -> None:
    """Two storages in turn are read anew each time."""
    path, first, second = tmp_path / "adapter_model.bin", torch.zeros(64), torch.zeros(64)
    torch.save({f"{n}": (first, second)[n % 2][n:] for n in range(8)}, path)
    with (
        TorchFile(path, AdapterLimits(max_tensors=8, max_expert_tensors=0, max_bytes=300)) as file,
        pytest.raises(FormatError, match="across"),
    ):
        for name in file.entries:
            file.tensor(name)


def test_a_file_may_have_as_many_tensors_of_experts_as_one_of_safetensors(tmp_path: Path) -> None:
    tensors = {f"experts.{number}": torch.ones(2) for number in range(300)}
    torch.save(tensors, tmp_path / "adapter_model.bin")
    with TorchFile(tmp_path / "adapter_model.bin", AdapterLimits(max_tensors=8)) as file:
        assert len(file.entries) == 300
    with pytest.raises(FormatError, match=r"members|steps"):
        TorchFile(tmp_path / "adapter_model.bin", LIMITS)
