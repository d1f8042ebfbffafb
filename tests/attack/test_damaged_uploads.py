"""Uploads that were damaged, or made to be: refused by name with a fix, or kept exactly as they were sent."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import struct
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from lorikeet_testing.peft_files import GEOMETRY, adapter_files, as_candidate, config_bytes, tar_gz_of, zip_of
from lorikeet_testing.tus_requests import ask, creation

from control_plane.adapters.uploads.models import Upload
from control_plane.adapters.uploads.validation_job import validate_next
from control_plane.adapters.uploads.validation_sandbox import validate
from control_plane.core.db import run_db
from lora_engine.peft_format import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    AdapterLimits,
    FormatError,
    SafetensorsFile,
    UploadError,
    ValidationReport,
    inspect_adapter,
    unpack_upload,
)
from lora_engine.peft_format.patterns import PatternMatcher

ADAPTER = adapter_files()


def unpacked(folder: Path, name: str, archive: bytes) -> dict[str, bytes]:
    (folder / name).write_bytes(archive)
    into = unpack_upload({name: folder / name}, folder / "out", AdapterLimits(max_bytes=64 << 20))
    contents = {file: (into / file).read_bytes() for file in (CONFIG_FILE, WEIGHTS_FILE)}
    for file in contents:
        (into / file).unlink()
    return contents


def refused(folder: Path, name: str, archive: bytes) -> UploadError:
    with pytest.raises(UploadError) as caught:
        unpacked(folder, name, archive)
    assert caught.value.message
    assert caught.value.fix
    assert list((folder / "out").iterdir()) == [], "nothing stays"
    return caught.value


def inspected(folder: Path, **config: Any) -> ValidationReport:
    folder.mkdir(exist_ok=True)
    for name, content in (ADAPTER | {CONFIG_FILE: config_bytes(**config)}).items():
        (folder / name).write_bytes(content)
    report = inspect_adapter(folder, GEOMETRY)
    json.dumps(report.to_json())
    assert all(problem.code and problem.message and problem.fix for problem in report.problems)
    return report


def tar_of(files: dict[str, bytes]) -> bytes:
    return gzip.decompress(tar_gz_of(files))


# -- one bit ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "pack"), [("a.tar.gz", tar_gz_of), ("a.zip", zip_of)], ids=["tar.gz", "zip"])
def test_one_bit(tmp_path: Path, name: str, pack: Callable[[dict[str, bytes]], bytes]) -> None:
    """Wherever it flips: the archive is refused, or its two files are what they were."""
    archive, kept = pack(ADAPTER), 0
    for bit in range(5, 8 * len(archive), 8 * len(archive) // 150):
        damaged = bytearray(archive)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            assert unpacked(tmp_path, name, bytes(damaged)) == ADAPTER, f"bit {bit} changed an accepted adapter"
            kept += 1
        except UploadError as error:
            assert error.code in ("bad_archive", "missing_file", "unsafe_archive", "encrypted_archive"), bit
    assert kept < 20, "nearly every bit matters"


@pytest.mark.parametrize("cut", [1, 4, 8, 100, 600])
def test_a_tar_gz_that_was_cut_off(tmp_path: Path, cut: int) -> None:
    """Also within its last eight bytes, the checksum and the length."""
    assert refused(tmp_path, "a.tar.gz", tar_gz_of(ADAPTER)[:-cut]).code == "bad_archive"


def test_a_tar_that_was_cut_off(tmp_path: Path) -> None:
    archive = tar_of(ADAPTER | {"README.md": bytes(600)})
    for length in range(1024, len(archive.rstrip(b"\0")), 512):
        assert refused(tmp_path, "a.tar", archive[:length]).code in ("bad_archive", "missing_file")


def test_bytes_after_the_end(tmp_path: Path) -> None:
    assert unpacked(tmp_path, "a.tar.gz", tar_gz_of(ADAPTER) + bytes(512)) == ADAPTER
    assert refused(tmp_path, "a.tar.gz", tar_gz_of(ADAPTER) + b"more").code == "bad_archive"


FLIPPED = ADAPTER | {WEIGHTS_FILE: ADAPTER[WEIGHTS_FILE][:-1] + bytes([ADAPTER[WEIGHTS_FILE][-1] ^ 1])}


def sums(files: dict[str, bytes]) -> str:
    return "".join(f"{hashlib.sha256(content).hexdigest()}  ./{name}\n" for name, content in files.items())


@pytest.mark.django_db
@pytest.mark.parametrize(("sent", "state"), [(ADAPTER, "accepted"), (FLIPPED, "refused")])
def test_loose_files_with_announced_digests(
    acme: Any, host: Any, queue: Any, committing: Any, in_process: None, sent: dict[str, bytes], state: str
) -> None:
    """Nothing in loose files has a checksum; their sender may name one."""
    form = [SimpleUploadedFile(name, content) for name, content in sent.items()]
    with committing():
        body = {"name": "support", "files": form, "sha256": sums(ADAPTER)}
        answer = acme.client().post(acme.path("uploads"), body, format="multipart")
        assert answer.status_code == 202, answer.json()
        validate_next()
    upload = acme.client().get(acme.path(f"uploads/{answer.json()['id']}")).json()
    assert upload["state"] == state
    assert upload["files"][0]["sha256"] == hashlib.sha256(ADAPTER[CONFIG_FILE]).hexdigest()
    assert state == "accepted" or upload["reason"]["code"] == "digest_mismatch"


@pytest.mark.django_db
@pytest.mark.parametrize("text", ["x", "0" * 64, "0" * 63 + "  adapter_config.json", "0" * 64 + "  other.json", "a\0b"])
def test_announced_digests_that_are_none(acme: Any, text: str) -> None:
    form = [SimpleUploadedFile(name, content) for name, content in ADAPTER.items()]
    answer = acme.client().post(
        acme.path("uploads"), {"name": "support", "files": form, "sha256": text}, format="multipart"
    )
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "sha256"
    assert answer.json()["error"]["fix"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("announced", [ADAPTER, FLIPPED])
async def test_a_tar_with_an_announced_digest(
    acme: Any, host: Any, queue: Any, in_process: None, announced: dict[str, bytes]
) -> None:
    """A tar has no checksum of what it holds."""
    key, archive = (await run_db(acme.key))[1], tar_of(ADAPTER)
    headers = creation(len(archive), sha256=hashlib.sha256(tar_of(announced)).hexdigest())
    headers["content-type"] = "application/offset+octet-stream"
    assert (await ask("POST", acme.path("uploads/resumable"), headers, archive, key=key)).status == 201
    await run_db(validate_next)
    upload = await run_db(Upload.objects.get)
    assert upload.state == ("accepted" if announced == ADAPTER else "refused")
    bad = await ask("POST", acme.path("uploads/resumable"), creation(10, sha256="ff"), key=key)
    assert (bad.status, bad.code) == (400, "bad_metadata")


# -- archives that lie about themselves ------------------------------------------------------------------------------


def test_zip_members_out_of_order(tmp_path: Path) -> None:
    """The order of the table of contents and of the data are independent; data outside the file is damage."""
    archive = zip_of(ADAPTER)
    with zipfile.ZipFile(io.BytesIO(archive)) as whole:
        first, second = whole.infolist()
    swapped = bytearray(archive)
    places = [archive.index(b"PK\x01\x02"), archive.rindex(b"PK\x01\x02")]
    for place, member in zip(places, (second, first), strict=True):
        struct.pack_into("<I", swapped, place + 42, member.header_offset)
    assert refused(tmp_path, "a.zip", bytes(swapped)).code == "bad_archive"
    struct.pack_into("<I", swapped, places[1] + 42, len(archive))
    assert refused(tmp_path, "a.zip", bytes(swapped)).code == "bad_archive"


@pytest.mark.parametrize("missing", [1, 30, 700])
def test_a_zip_without_its_beginning(tmp_path: Path, missing: int) -> None:
    """Zip counts from its end, so everything in it points before the file."""
    archive = b"PK" + zip_of(ADAPTER)[2 + missing :]
    error = refused(tmp_path, "a.zip", archive)
    assert error.code == "bad_archive"
    assert "server" not in error.message


def test_a_zip_member_without_a_name(tmp_path: Path) -> None:
    nameless = zip_of(ADAPTER | {"zzz.txt": b"x"}).replace(b"zzz.txt", b"\0zz.txt")
    assert unpacked(tmp_path, "a.zip", nameless) == ADAPTER


@pytest.mark.parametrize("size", [b"-0000000777\0", b"+0000000777\0", b"0o000000777\0", b"0_0000000777", b"\xff" * 12])
def test_tar_sizes_that_are_no_sizes(tmp_path: Path, size: bytes) -> None:
    archive = bytearray(tar_of(ADAPTER))
    archive[124:136] = size
    archive[148:156] = b"%06o\0 " % (sum(archive[:148]) + sum(archive[156:512]) + 8 * 32)
    assert refused(tmp_path, "a.tar", bytes(archive)).code == "bad_archive"


def test_a_tar_header_whose_bytes_changed_places(tmp_path: Path) -> None:
    """Its checksum is their sum."""
    archive = bytearray(tar_of(ADAPTER))
    archive[:100], archive[257:265] = archive[257:265] + archive[8:100], archive[:8]
    assert refused(tmp_path, "a.tar", bytes(archive)).code == "bad_archive"


def test_headers_that_never_end(tmp_path: Path) -> None:
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 10
    chain = (info.tobuf(tarfile.USTAR_FORMAT) + b"a" * 512) * 20_000
    assert refused(tmp_path, "a.tar", chain + tar_of(ADAPTER)).code == "bad_archive"


# -- what is ignored costs nothing ------------------------------------------------------------------------------------


def test_ignored_members_of_a_zip_are_not_inflated(tmp_path: Path) -> None:
    buffer = io.BytesIO(zip_of(ADAPTER))
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr("ignored", b"this is not deflated")
    data = bytearray(buffer.getvalue())
    entry = data.rindex(b"PK\x01\x02")
    struct.pack_into("<H", data, entry + 10, zipfile.ZIP_DEFLATED)
    struct.pack_into("<I", data, entry + 24, 0xFFFFFFF0)  # four gigabytes, it says
    assert unpacked(tmp_path, "a.zip", bytes(data)) == ADAPTER


def test_ignored_members_of_a_tar_are_not_read(tmp_path: Path) -> None:
    """Seven gigabytes that are a hole on the disk."""
    info = tarfile.TarInfo("ignored")
    info.size = 7 << 30
    path = tmp_path / "a.tar"
    with path.open("wb") as file:
        file.write(info.tobuf(tarfile.USTAR_FORMAT))
        file.seek(info.size, os.SEEK_CUR)
        file.write(tar_of(ADAPTER))
    began = time.process_time()
    into = unpack_upload({"a.tar": path}, tmp_path / "out")
    assert (into / WEIGHTS_FILE).read_bytes() == ADAPTER[WEIGHTS_FILE]
    assert time.process_time() - began < 0.5


def test_ignored_members_of_a_tar_gz_have_a_limit(tmp_path: Path) -> None:
    """They can only be passed over by inflating them: of these four gigabytes that is given up early, twelve times."""
    info = tarfile.TarInfo("ignored")
    info.size = 4 << 30
    block = gzip.compress(bytes(1 << 20))
    archive = gzip.compress(info.tobuf(tarfile.GNU_FORMAT)) + block * 4096 + tar_gz_of(ADAPTER)
    began = time.process_time()
    for _ in range(12):
        assert refused(tmp_path, "a.tar.gz", archive).code == "archive_bomb"
    assert time.process_time() - began < 5


def test_ignored_members_that_hardly_compress_have_a_limit_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lora_engine.peft_format.upload.MAX_IGNORED_BYTES", 1 << 20)
    assert unpacked(tmp_path, "a.tar.gz", tar_gz_of(ADAPTER | {"log": os.urandom(900_000)})) == ADAPTER
    error = refused(tmp_path, "b.tar.gz", tar_gz_of(ADAPTER | {"optimizer.pt": os.urandom(2 << 20)}))
    assert error.code == "archive_bomb"


# -- configs ----------------------------------------------------------------------------------------------------------

BAD_PATTERNS = [
    "(", "*", "(?<=q)_proj", "(?<!v)_proj", r"(q)\1", "(?i)q_proj", "(?L)q", "(?au)q", "(?>q)_proj", "q++_proj",
    "[z-a]", "a{99999999999}", "(" * 300 + ")" * 300, "(x)" * 134, r"\N{DOES NOT EXIST}", "(?P<a>x)(?P<a>y)", "\ud800(",
]  # fmt: skip


@pytest.mark.parametrize("field", ["rank_pattern", "alpha_pattern"])
@pytest.mark.parametrize("pattern", BAD_PATTERNS)
def test_patterns_that_cannot_be_used(tmp_path: Path, field: str, pattern: str) -> None:
    report = inspected(tmp_path, **{field: {pattern: 4}})
    assert {problem.code for problem in report.problems} == {"unsupported_pattern"}


@pytest.mark.parametrize("field", ["target_modules", "exclude_modules"])
@pytest.mark.parametrize("pattern", BAD_PATTERNS)
def test_expressions_that_cannot_be_used(tmp_path: Path, field: str, pattern: str) -> None:
    report = inspected(tmp_path, **{field: f".*({pattern})"})
    assert "unsupported_pattern" in {problem.code for problem in report.problems}


CATASTROPHES = ["(a*)*" * 40 + "b", "(.*.*)*" * 50 + "x", "(" * 20 + "a|[a-z_.0-9]*" + ")*" * 20, "(.*){1,4000}" * 20]


@pytest.mark.parametrize("pattern", CATASTROPHES)
def test_patterns_that_take_for_ever(tmp_path: Path, pattern: str) -> None:
    began = time.process_time()
    inspected(tmp_path / "a", target_modules=pattern)
    inspected(tmp_path / "b", alpha_pattern={pattern + "x" * (n % 30) + "?" * (n > 9): 8 for n in range(60)})
    assert time.process_time() - began < 6


def test_as_many_patterns_as_fit(tmp_path: Path) -> None:
    """Reading them is charged too: a megabyte of expressions took a minute."""
    began = time.process_time()
    report = inspected(tmp_path / "a", rank_pattern={f"(q|v){{{n}}}" + "(x?y?)*" * 25: 4 for n in range(4096)})
    assert {problem.code for problem in report.problems} == {"unsupported_pattern"}
    assert time.process_time() - began < 4


def test_names_are_no_expressions(tmp_path: Path) -> None:
    """PEFT's EVA writes a name for every module of a model."""
    names = {f"model.layers.{n}.self_attn.q_proj": 4 for n in range(4000)}
    began = time.process_time()
    assert inspected(tmp_path / "a", rank_pattern=names, alpha_pattern=names).ok
    assert time.process_time() - began < 1


def decide(folder: Path, files: dict[str, bytes], **more: Any) -> dict[str, Any]:
    """The answer of the child process that checks an upload."""
    folder.mkdir(exist_ok=True)
    for index, content in enumerate(files.values()):
        (folder / str(index)).write_bytes(content)
    paths = {name: str(folder / str(index)) for index, name in enumerate(files)}
    bases = {"bases": [as_candidate()], "adapter_base": ""}
    return validate({"files": paths, "into": str(folder / "out"), **bases, **more})


def test_a_stored_config_holds_no_expressions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an expression costs is paid at upload: engines read names."""
    config = config_bytes(
        target_modules=r".*\.(q|v)_proj", alpha_pattern={r"layers\.(0|7)\..*q_proj": 5}, rank_pattern={r".*\d.*": 4}
    )
    answer = decide(tmp_path, ADAPTER | {CONFIG_FILE: config})
    assert answer["report"]["ok"]
    assert any("patterns" in note for note in answer["report"]["notes"])
    before = inspected(tmp_path / "before", **json.loads(config)).manifest

    def matched(*_: Any) -> bool:
        raise AssertionError("an expression was matched")

    monkeypatch.setattr(PatternMatcher, "matches_fully", matched)
    after = inspect_adapter(tmp_path / "out", GEOMETRY).manifest
    assert before is not None
    assert after is not None
    assert after.modules == before.modules
    assert {module.alpha for module in after.modules} == {5, 8}


def test_a_config_of_names_is_stored_as_it_came(tmp_path: Path) -> None:
    config = config_bytes(alpha_pattern={"layers.0.self_attn.q_proj": 5}, exclude_modules=["o_proj"])
    assert decide(tmp_path, ADAPTER | {CONFIG_FILE: config})["report"]["ok"]
    assert (tmp_path / "out" / CONFIG_FILE).read_bytes() == config


@pytest.mark.parametrize("depth", [60, 90, 300, 900, 950, 980, 1100, 100_000])
@pytest.mark.parametrize("field", ["r", "lora_alpha", "target_modules", "anything", "rank_pattern"])
def test_deep_json(tmp_path: Path, field: str, depth: int) -> None:
    """What the parser's stack just held, printing did not."""
    nested = b"[" * depth + b"]" * depth
    for name, content in ADAPTER.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / CONFIG_FILE).write_bytes(config_bytes()[:-1] + b', "' + field.encode() + b'2": ' + nested + b"}")
    json.dumps(inspect_adapter(tmp_path, GEOMETRY).to_json())
    text = json.dumps({k: v for k, v in json.loads(config_bytes()).items() if k != field}).encode()
    (tmp_path / CONFIG_FILE).write_bytes(text[:-1] + b', "' + field.encode() + b'": ' + nested + b"}")
    report = inspect_adapter(tmp_path, GEOMETRY)
    assert not report.ok
    json.dumps(report.to_json())


# -- files that become shorter -----------------------------------------------------------------------------------------


def test_weights_that_shrink_after_they_were_checked(tmp_path: Path) -> None:
    """Mapped into memory, the missing page would end the engine's process."""
    inspected(tmp_path)
    weights = SafetensorsFile.open(tmp_path / WEIGHTS_FILE)
    os.truncate(tmp_path / WEIGHTS_FILE, 4096)
    with pytest.raises(FormatError, match="ends inside"):
        weights.tensor(list(weights.entries)[-1])
