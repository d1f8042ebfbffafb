"""Unpacking uploads: what is accepted, and every archive trick that is not."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import struct
import tarfile
import time
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lorikeet_testing.peft_files import config_bytes, safetensors_bytes, tensors

from lora_engine.peft_format import AdapterLimits, UploadError, unpack_upload

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
BOTH = {CONFIG: b"{}", WEIGHTS: b"weights"}
SMALL = AdapterLimits(max_bytes=1 << 20)


def zipped(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def tarred(path: Path, members: dict[str, bytes], fmt: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, "w:gz", format=fmt) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.mtime = 12345.678  # makes the PAX writer add an extended header
            archive.addfile(info, io.BytesIO(data))
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def refusal(upload: Path | dict[str, Path], into: Path, limits: AdapterLimits = SMALL) -> UploadError:
    with pytest.raises(UploadError) as caught:
        unpack_upload(upload if isinstance(upload, dict) else {upload.name: upload}, into, limits)
    assert list(into.iterdir()) == []
    assert caught.value.fix
    return caught.value


@pytest.mark.parametrize(
    ("begins", "code"),
    [(b"\n<!DOCTYPE html><title>Sign in</title>", "web_page"), (b"<?xml version='1.0'?><Error/>", "web_page"),
     (b"version https://git-lfs.github.com/spec/v1\noid sha256:0a", "lfs_pointer")],
)  # fmt: skip
def test_what_an_address_gave_instead_of_an_archive(tmp_path, begins, code):
    (tmp_path / "adapter.zip").write_bytes(begins)
    assert refusal(tmp_path / "adapter.zip", tmp_path / "out").code == code


def test_loose_files(tmp_path):
    files = {name: tmp_path / f"upload{i}" for i, name in enumerate(BOTH)}
    for name, path in files.items():
        path.write_bytes(BOTH[name])
    (tmp_path / "readme").write_text("hello")
    notes: list[str] = []
    others = dict.fromkeys(("loss.png", "README.md", ".gitattributes", "__MACOSX/._adapter_config.json"))
    sent = files | dict.fromkeys(others, tmp_path / "readme")
    into = unpack_upload(sent, tmp_path / "out", SMALL, notes=notes)
    assert contents(into) == BOTH
    assert notes == ["loss.png was ignored"], "what lies beside every adapter is not worth a note"


@pytest.mark.parametrize("prefix", ["", "my-adapter/", "./"])
@pytest.mark.parametrize("pack", [zipped, tarred, lambda p, m: tarred(p, m, tarfile.GNU_FORMAT)])
def test_archives(tmp_path, prefix, pack):
    members = {prefix + name: data for name, data in BOTH.items()}
    members |= {f"{prefix}tokenizer.json": b"x" * 3000, f"{prefix}training_args.bin": b"x", "__MACOSX/._adapter": b"x"}
    name = "a.zip" if pack is zipped else "a.TAR.GZ"
    into = unpack_upload({name: pack(tmp_path / "archive", members)}, tmp_path / "out", SMALL)
    assert contents(into) == BOTH


def test_long_folder_names_and_checkpoints_below(tmp_path):
    members = {f"{'x' * 150}/{name}": data for name, data in BOTH.items()}
    members |= {f"{'x' * 150}/checkpoint-5/{name}": b"old" for name in BOTH}
    for fmt in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT):
        into = unpack_upload({"a.tgz": tarred(tmp_path / "a", members, fmt)}, tmp_path / f"out{fmt}", SMALL)
        assert contents(into) == BOTH


def test_a_real_folder_packed_by_tar_and_zip(tmp_path):
    folder = tmp_path / "adapter"
    folder.mkdir()
    for name, data in BOTH.items():
        (folder / name).write_bytes(data)
    assert os.system(f"cd {tmp_path} && tar czf a.tar.gz adapter && python3 -m zipfile -c a.zip adapter") == 0
    for name in ("a.tar.gz", "a.zip"):
        assert contents(unpack_upload({name: tmp_path / name}, tmp_path / f"out-{name}", SMALL)) == BOTH


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({CONFIG: b"{}"}, "missing_file"),
        ({}, "missing_file"),
        ({CONFIG: b"{}", "adapter_model.pt": b"\x80"}, "torchtune_checkpoint"),
        ({CONFIG: b"{}", "model.safetensors": b"", "training_args.bin": b"\x80"}, "merged_model"),
        ({CONFIG: b"{}", "optimizer.pt": b"\x80"}, "missing_file"),
        ({CONFIG: b"{}", "pytorch_model.pt": b"\x80"}, "pickle_refused"),
        ({"../" + CONFIG: b"{}", WEIGHTS: b""}, "unsafe_archive"),
        ({"a/../../etc/passwd": b"", **BOTH}, "unsafe_archive"),
        ({"/etc/" + CONFIG: b"{}", WEIGHTS: b""}, "unsafe_archive"),
        ({"..\\" + CONFIG: b"{}"}, "unsafe_archive"),
        ({"C:" + CONFIG: b"{}"}, "unsafe_archive"),
        ({"a/b/c/d/e/" + CONFIG: b"{}", "a/b/c/d/e/" + WEIGHTS: b""}, "nested_too_deep"),
        ({"a/" + CONFIG: b"{}", "b/" + WEIGHTS: b""}, "several_adapters"),
        ({"inner.zip": b"PK\x03\x04", "x.txt": b""}, "nested_archive"),
        ({"run/adapter.tar.gz": b"\x1f\x8b", CONFIG: b"{}"}, "nested_archive"),
        ({"run/adapter.7z": b"7z"}, "unsupported_archive"),
        ({"run/adapter_model.safetensors.gz": b"\x1f\x8b", CONFIG: b"{}"}, "unsupported_archive"),
        ({f"checkpoint-{i}/{name}": data for i in (1, 2) for name, data in BOTH.items()}, "several_adapters"),
        (BOTH | {f"junk{i}": b"" for i in range(1001)}, "too_many_entries"),
        ({CONFIG: b"{}", WEIGHTS: os.urandom((1 << 20) + 1)}, "upload_too_large"),
    ],
)
@pytest.mark.parametrize("pack", [zipped, tarred])
def test_refused_archives(tmp_path, members, code, pack):
    archive = pack(tmp_path / ("a.zip" if pack is zipped else "a.tar.gz"), members)
    assert refusal(archive, tmp_path / "out").code == code


# How files of these programs begin, and what they are called to people.
PACKED = {
    "7z": (b"7z\xbc\xaf\x27\x1c\0\4", "7-Zip"),
    "rar": (b"Rar!\x1a\x07\x01\0", "RAR"),
    "tar.xz": (lzma.compress(bytes(1024)), "xz"),
    "tar.bz2": (bz2.compress(bytes(1024)), "bzip2"),
    "tar.zst": (b"\x28\xb5\x2f\xfd\x04", "Zstandard"),
    "tar.lz4": (b"\x04\x22\x4d\x18", "LZ4"),
}


@pytest.mark.parametrize("kind", PACKED)
def test_other_archives_are_refused_by_their_name(tmp_path, kind):
    """By their content, under whatever name."""
    data, words = PACKED[kind]
    for name in (f"adapter.{kind}", "adapter.zip", "adapter.tar.gz"):
        (tmp_path / name).write_bytes(data)
        error = refusal(tmp_path / name, tmp_path / "out")
        assert error.code == "unsupported_archive" and f"packed with {words}" in error.message
        assert "zip -j" in error.fix


def test_archives_under_another_archives_name_are_read(tmp_path):
    for number, pack in enumerate((zipped, tarred)):
        archive = pack(tmp_path / f"{number}.rar", BOTH)
        assert contents(unpack_upload({archive.name: archive}, tmp_path / f"out{number}", SMALL)) == BOTH


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        (lambda folder: zipped(folder / "inner", BOTH).read_bytes(), "holds a zip file, not a tar archive"),
        (lambda folder: tarred(folder / "inner", BOTH).read_bytes(), "holds a gzip file, not a tar archive"),
        (lambda folder: PACKED["7z"][0], "holds a 7-Zip file, not a tar archive"),
        (lambda folder: safetensors_bytes(tensors()), "holds one file, not a tar archive"),
        (lambda folder: config_bytes(), "holds one file, not a tar archive"),
    ],
)
@pytest.mark.parametrize("name", ["adapter.tar.gz", "adapter_model.safetensors.gz"])
def test_gzip_of_anything_but_a_tar_archive(tmp_path, inner, words, name):
    (tmp_path / name).write_bytes(gzip.compress(inner(tmp_path)))
    error = refusal(tmp_path / name, tmp_path / "out")
    assert error.code == "nested_archive" and words in error.message and "gunzip" in error.fix


@pytest.mark.parametrize("pack", [zipped, tarred])
@pytest.mark.parametrize("before", [{CONFIG: b"{}"}, {WEIGHTS: b"x"}])
def test_the_only_complete_checkpoint_is_taken(tmp_path, pack, before):
    """Whichever of the folders comes first, and with the files above it that a training leaves there."""
    stopped = {f"run/checkpoint-10/{name}": data for name, data in before.items()}
    whole = {f"run/checkpoint-20/{name}": data for name, data in BOTH.items()}
    for number, members in enumerate((stopped | whole, whole | stopped, {"run/trainer_state.json": b"{}", **whole})):
        archive = pack(tmp_path / f"{number}.{'zip' if pack is zipped else 'tar.gz'}", members)
        notes: list[str] = []
        assert contents(unpack_upload({archive.name: archive}, tmp_path / f"out{number}", SMALL, notes=notes)) == BOTH
        assert notes[0] == "the adapter of run/checkpoint-20 was taken: there is none beside or above it"


def test_duplicate_members(tmp_path):
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(CONFIG, "{}")
        archive.writestr(CONFIG, "[]")
    assert refusal(tmp_path / "a.zip", tmp_path / "out").code == "duplicate_file"


def test_zip_links_and_passwords(tmp_path):
    link = zipfile.ZipInfo(CONFIG)
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "link.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
    assert refusal(tmp_path / "link.zip", tmp_path / "out").code == "unsafe_archive"
    data = bytearray(zipped(tmp_path / "a.zip", BOTH).read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "locked.zip").write_bytes(data)
    assert refusal(tmp_path / "locked.zip", tmp_path / "out").code == "encrypted_archive"


def test_unusual_compression(tmp_path):
    archive = zipped(tmp_path / "a.zip", BOTH, zipfile.ZIP_LZMA)
    assert refusal(archive, tmp_path / "out").code == "bad_archive"


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, b"S"])
def test_tar_links_and_devices(tmp_path, kind):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        info = tarfile.TarInfo(WEIGHTS)
        info.type = kind
        info.linkname = "/etc/passwd"
        archive.addfile(info)
    assert refusal(tmp_path / "a.tar.gz", tmp_path / "out").code == "unsafe_archive"


def test_bombs_end_early(tmp_path):
    limits = AdapterLimits(max_bytes=64 << 20)
    big = bytes(60 << 20)
    started = time.monotonic()
    archive = zipped(tmp_path / "a.zip", {CONFIG: b"{}", WEIGHTS: big})
    assert refusal(archive, tmp_path / "o", limits).code == "archive_bomb"
    members = {CONFIG: b"{}"} | {f"junk{i}": big for i in range(6)}
    archive = tarred(tmp_path / "a.tar.gz", members)
    assert refusal(archive, tmp_path / "o", limits).code == "archive_bomb"
    assert time.monotonic() - started < 30


def test_a_lying_zip_size_is_not_believed(tmp_path):
    data = bytearray(zipped(tmp_path / "a.zip", {CONFIG: b"{}", WEIGHTS: os.urandom(2 << 20)}).read_bytes())
    entry = data.rindex(b"PK\x01\x02")
    struct.pack_into("<I", data, entry + 24, 10)
    (tmp_path / "a.zip").write_bytes(data)
    assert refusal(tmp_path / "a.zip", tmp_path / "out").code in {"bad_archive", "upload_too_large"}


def test_a_huge_zip_directory_is_not_read(tmp_path):
    entry = b"PK\x01\x02" + bytes(24) + struct.pack("<HHH", 0, 0, 0) + bytes(12)
    directory = entry * 40_000
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 40_000, 40_000, len(directory), 0, 0)
    (tmp_path / "a.zip").write_bytes(directory + end)
    assert refusal(tmp_path / "a.zip", tmp_path / "out").code == "too_many_entries"


def test_huge_extended_tar_headers_are_not_read(tmp_path):
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 100 << 20
    with gzip.open(tmp_path / "a.tar.gz", "wb") as file:
        file.write(info.tobuf(tarfile.USTAR_FORMAT) + bytes(1 << 20))
    assert refusal(tmp_path / "a.tar.gz", tmp_path / "out").code == "bad_archive"


DAMAGED = [b"", b"PK", b"PK\x03\x04" + bytes(50), b"\x1f\x8b", b"\x1f\x8b\x08" + bytes(60), b"RAR"]


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
@pytest.mark.parametrize("data", DAMAGED)
def test_damaged_archives(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    assert refusal(tmp_path / name, tmp_path / "out").code in {"bad_archive", "missing_file"}


def test_an_archive_and_more(tmp_path):
    archive = zipped(tmp_path / "a.zip", BOTH)
    assert refusal({"a.zip": archive, "b.zip": archive}, tmp_path / "out").code == "mixed_upload"
    (tmp_path / "loose").write_bytes(b"x")
    assert refusal({"pytorch_model.pt": tmp_path / "loose"}, tmp_path / "out").code == "pickle_refused"


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_mutated_archives_never_raise_anything_else(tmp_path, data):
    suffix = data.draw(st.sampled_from([".zip", ".tar.gz"]))
    good = tmp_path / ("good" + suffix)
    if not good.exists():
        (zipped if suffix == ".zip" else tarred)(good, BOTH | {"README.md": b"x" * 600})
    raw = good.read_bytes()
    if suffix == ".tar.gz" and data.draw(st.booleans()):
        raw = gzip.compress(mutate(gzip.decompress(raw), data))
    else:
        raw = mutate(raw, data)
    bad = tmp_path / ("bad" + suffix)
    bad.write_bytes(raw)
    try:
        into = unpack_upload({bad.name: bad}, tmp_path / "out", SMALL)
    except UploadError as error:
        assert error.code and error.message and error.fix
        assert list((tmp_path / "out").iterdir()) == []
    else:
        assert set(contents(into)) == set(BOTH)
        for path in into.iterdir():
            path.unlink()


def mutate(raw: bytes, data: st.DataObject) -> bytes:
    changed = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 4))):
        if changed:
            changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    return bytes(changed[: data.draw(st.integers(0, len(changed)))] if data.draw(st.booleans()) else changed)
