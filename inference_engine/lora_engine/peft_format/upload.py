"""From what a client sent, loose files or one archive, to a folder with exactly the two PEFT files.

Nothing in an archive is trusted: names are allow-listed rather than cleaned, sizes are
counted as bytes come out rather than read from headers, and only ordinary files count.
"""

from __future__ import annotations

import gzip
import os
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Self

from .geometry import AdapterLimits
from .identity import CONFIG_FILE, WEIGHTS_FILE
from .problems import printable
from .tar_stream import BLOCK, TarError, TarReader

MAX_ENTRIES = 1000
# Weights hardly compress. What unpacks to more than this beside some free bytes only takes time.
MAX_RATIO = 50
_RATIO_FREE_BYTES = 16 << 20
# A gzip file can only be passed over by unpacking it: so much of a .tar.gz may be files that are ignored.
MAX_IGNORED_BYTES = 256 << 20
_MAX_DIRECTORY_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 20
_WANTED = (CONFIG_FILE, WEIGHTS_FILE)
_PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
_ARCHIVE_SUFFIXES = (".zip", ".tar.gz", ".tgz", ".tar")
_BOTH = (
    f"Upload {CONFIG_FILE} and {WEIGHTS_FILE} as PEFT's save_pretrained writes them, loose or in one .zip or .tar.gz."
)
_SAVE_SAFE = f"Save with model.save_pretrained(folder, safe_serialization=True) and upload {WEIGHTS_FILE}."
_PACK_AGAIN = f"Pack only {CONFIG_FILE} and {WEIGHTS_FILE}, e.g. zip -j adapter.zip {CONFIG_FILE} {WEIGHTS_FILE}."


class UploadError(Exception):
    """An upload that cannot become an adapter: what happened, and what to do."""

    def __init__(self, code: str, message: str, fix: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.fix = fix


def unpack_upload(
    files: Mapping[str, Path], into: Path, limits: AdapterLimits | None = None, *, notes: list[str] | None = None
) -> Path:
    """Put the two PEFT files of an upload into ``into`` (created if absent) and return it.

    ``files`` maps the names the client gave to where their bytes are. One leading folder is
    tolerated; other files are ignored, each with a line in ``notes``. Raises ``UploadError``,
    and leaves ``into`` without any of the upload's files then.
    """
    into.mkdir(parents=True, exist_ok=True)
    collector = _Collector(into, limits or AdapterLimits(), [] if notes is None else notes)
    try:
        _collect_upload(files, collector)
        collector.finish()
    except BaseException:
        collector.discard()
        raise
    return into


def _collect_upload(files: Mapping[str, Path], collector: _Collector) -> None:
    archives = [name for name in files if name.lower().endswith(_ARCHIVE_SUFFIXES)]
    if not archives:
        for name, path in files.items():
            with path.open("rb") as file:
                collector.offer(name, iter(lambda: file.read(_BLOCK_BYTES), b""))
        return
    if len(files) > 1:
        raise UploadError("mixed_upload", f"An archive came together with {len(files) - 1} other files.", _BOTH)
    with files[archives[0]].open("rb") as file:
        _collect_archive(file, archives[0], collector)


def _collect_archive(file: BinaryIO, name: str, collector: _Collector) -> None:
    magic = file.read(BLOCK)
    file.seek(0)
    try:
        if magic[:2] == b"PK":
            _collect_zip(file, collector)
        elif magic[:2] == b"\x1f\x8b":
            with _Inflated(file) as stream:
                _collect_tar(stream, collector)
                stream.finish()
        elif magic[257:262] == b"ustar":
            _collect_tar(_Seekable(file), collector)
        else:
            raise UploadError("bad_archive", f"{printable(name)} is neither a zip, a tar nor a gzip file.", _BOTH)
    except (zipfile.BadZipFile, NotImplementedError, TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise UploadError("bad_archive", f"{printable(name)} is damaged: {printable(error)}.", _PACK_AGAIN) from None
    except (ValueError, LookupError, ArithmeticError, RuntimeError, struct.error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk's fault, not the archive's: `_Guarded` and `_Seekable` seek within the file only
        message = f"{printable(name)} cannot be read: {printable(error)}."
        raise UploadError("bad_archive", message, _PACK_AGAIN) from None


def _collect_zip(file: BinaryIO, collector: _Collector) -> None:
    packed = file.seek(0, os.SEEK_END)
    with zipfile.ZipFile(_Guarded(file)) as archive:
        members = archive.infolist()
        collector.count_entries(len(members))
        for member in members:
            _check_zip_member(member)
            if member.filename.endswith("/"):
                collector.check_path(member.filename)
            else:
                collector.offer(member.filename, _zip_blocks(archive, member, packed))


def _check_zip_member(member: zipfile.ZipInfo) -> None:
    name = printable(member.filename)
    if member.flag_bits & 0x1:
        raise UploadError("encrypted_archive", f"{name} is encrypted.", "Pack the archive without a password.")
    mode = member.external_attr >> 16
    if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise UploadError("unsafe_archive", f"{name} is a link or a special file.", _PACK_AGAIN)
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise UploadError("bad_archive", f"{name} uses an unusual compression.", "Pack with plain zip (deflate).")


def _zip_blocks(archive: zipfile.ZipFile, member: zipfile.ZipInfo, packed: int) -> Iterator[bytes]:
    """The member's bytes, which are right if they end: `zipfile` compares their CRC-32. ``packed``: the archive's."""
    ratio = _Ratio(printable(member.filename))
    with archive.open(member) as stream:
        while block := stream.read(_BLOCK_BYTES):
            ratio.count(len(block), min(member.compress_size, packed))
            yield block


def _collect_tar(stream: _Inflated | _Seekable, collector: _Collector) -> None:
    reader = TarReader(stream)
    for entries, member in enumerate(reader, start=1):
        collector.count_entries(entries)
        if member.kind in ("link", "special"):
            name = printable(member.name)
            raise UploadError("unsafe_archive", f"{name} is a link or a special file.", _PACK_AGAIN)
        if member.kind == "folder":
            collector.check_path(member.name)
        else:
            collector.offer(member.name, reader.blocks())


class _Collector:
    """Takes offered files, keeps the wanted ones aside by folder, and picks the one adapter at the end."""

    def __init__(self, into: Path, limits: AdapterLimits, notes: list[str]) -> None:
        self._into = into
        self._limits = limits
        self._notes = notes
        self._kept: dict[str, dict[str, Path]] = {}  # folder in the archive ("" = top) -> file -> where it lies
        self._left = limits.max_bytes
        self._too_deep: list[str] = []
        self._pickles: list[str] = []

    def count_entries(self, count: int) -> None:
        if count > MAX_ENTRIES:
            raise UploadError("too_many_entries", f"The archive holds more than {MAX_ENTRIES} entries.", _PACK_AGAIN)

    def check_path(self, name: str) -> list[str]:
        """The path's parts. Refuses whatever could leave the folder it is unpacked to."""
        parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
        absolute = name.startswith(("/", "\\")) or name[1:2] == ":"
        if absolute or ".." in parts or "\0" in name:
            raise UploadError("unsafe_archive", f"The path {printable(name)} leads outside the upload.", _PACK_AGAIN)
        return parts

    def offer(self, name: str, blocks: Iterable[bytes]) -> None:
        """Keep the file if it is one of the two; note it otherwise. ``blocks`` is read only if it is kept."""
        parts = self.check_path(name)
        base = parts[-1] if parts else ""
        if base.lower().endswith(_PICKLE_SUFFIXES):
            self._pickle(name, base)
        elif base not in _WANTED:
            self._notes.append(f"{printable(name)} was ignored")
        elif len(parts) > 2:
            self._too_deep.append(name)
            self._notes.append(f"{printable(name)} was ignored: it lies too deep")
        else:
            self._keep("/".join(parts[:-1]), base, blocks)

    def finish(self) -> None:
        """Move the one adapter's files into place. Raises ``UploadError`` if there is none, or more than one."""
        kept = self._choose()
        missing = [name for name in _WANTED if name not in kept]
        if missing:
            raise self._missing(missing)
        for name, path in kept.items():
            path.rename(self._into / name)
        self.discard()

    def discard(self) -> None:
        """Remove everything that is still kept aside."""
        shutil.rmtree(self._aside, ignore_errors=True)

    @property
    def _aside(self) -> Path:
        return self._into / ".incoming"

    def _choose(self) -> dict[str, Path]:
        if "" in self._kept or not self._kept:
            return self._kept.get("", {})
        if len(self._kept) > 1:
            folders = ", ".join(printable(folder) for folder in sorted(self._kept)[:5])
            raise UploadError(
                "several_adapters", f"The upload holds more than one adapter, in {folders}.", "Upload one at a time."
            )
        return next(iter(self._kept.values()))

    def _keep(self, folder: str, name: str, blocks: Iterable[bytes]) -> None:
        files = self._kept.setdefault(folder, {})
        if name in files:
            raise UploadError("duplicate_file", f"{name} comes twice.", _PACK_AGAIN)
        self.count_entries(len(self._kept))
        place = self._aside / str(len(self._kept))
        place.mkdir(parents=True, exist_ok=True)
        files[name] = place / name
        with files[name].open("xb") as file:
            for block in blocks:
                self._left -= len(block)
                if self._left < 0:
                    raise UploadError(
                        "upload_too_large",
                        f"The adapter is larger than {self._limits.max_bytes} bytes.",
                        "Train with a lower rank or fewer target modules, or ask the operator to raise the limit.",
                    )
                file.write(block)

    def _pickle(self, name: str, base: str) -> None:
        if base.startswith("adapter_model"):
            raise UploadError(
                "pickle_refused",
                f"{printable(name)} is a pickle file, which can run any code when it is loaded.",
                _SAVE_SAFE,
            )
        self._pickles.append(name)
        self._notes.append(f"{printable(name)} was ignored: it is a pickle file")

    def _missing(self, names: list[str]) -> UploadError:
        if self._too_deep:
            return UploadError(
                "nested_too_deep",
                f"{printable(self._too_deep[0])} lies more than one folder deep.",
                _PACK_AGAIN,
            )
        if self._pickles and WEIGHTS_FILE in names:
            return UploadError(
                "pickle_refused",
                f"The only weights are in {printable(self._pickles[0])}, a pickle file.",
                _SAVE_SAFE,
            )
        return UploadError("missing_file", f"The upload holds no {' and no '.join(names)}.", _BOTH)


class _Ratio:
    """Ends what unpacks to much more than it is, before it takes room and time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._unpacked = 0

    def count(self, unpacked: int, packed: int) -> None:
        """So many bytes more came out of ``packed`` bytes in all. Raises ``UploadError``."""
        self._unpacked += unpacked
        if self._unpacked > _RATIO_FREE_BYTES + MAX_RATIO * packed:
            message = f"{self._name} unpacks to more than {MAX_RATIO} times its size."
            raise UploadError("archive_bomb", message, _PACK_AGAIN)


class _Seekable:
    """An archive that is not packed: what is passed over is not even read."""

    def __init__(self, file: BinaryIO) -> None:
        self.read = file.read
        self._file = file
        self._end = os.fstat(file.fileno()).st_size

    def skip(self, size: int, /) -> None:
        self._file.seek(min(self._file.tell() + size, self._end))


class _Inflated:
    """A gzip file's content. What is read to ``finish`` has the checksum and the length that the file says."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._stream = gzip.GzipFile(fileobj=file, mode="rb")
        self._ratio = _Ratio("The archive")
        self._skipped = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stream.close()

    def read(self, size: int, /) -> bytes:
        data = self._stream.read(size)
        self._ratio.count(len(data), self._file.tell())
        return data

    def skip(self, size: int, /) -> None:
        while size and (data := self.read(min(size, _BLOCK_BYTES))):
            size -= len(data)
            self._skipped += len(data)
            if self._skipped > MAX_IGNORED_BYTES:
                raise UploadError(
                    "archive_bomb",
                    f"The archive holds more than {MAX_IGNORED_BYTES >> 20} MiB of files that do not belong to an "
                    "adapter.",
                    _PACK_AGAIN,
                )

    def finish(self) -> None:
        """Read to the end, where the checksum is."""
        self.skip(MAX_IGNORED_BYTES + 1)


class _Guarded:
    """A seekable file that ``zipfile`` can neither read a huge central directory from, nor leave."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.tell = file.tell
        self.seekable = file.seekable
        self.close = file.close

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        if whence == os.SEEK_SET and not 0 <= offset < 1 << 62:
            raise zipfile.BadZipFile("its table of contents points outside the archive")
        return self._file.seek(offset, whence)

    def read(self, size: int = -1, /) -> bytes:
        data = self._file.read(min(size, _MAX_DIRECTORY_BYTES + 1) if size >= 0 else _MAX_DIRECTORY_BYTES + 1)
        if len(data) > _MAX_DIRECTORY_BYTES:
            raise UploadError("too_many_entries", "The archive's table of contents is too large.", _PACK_AGAIN)
        return data
