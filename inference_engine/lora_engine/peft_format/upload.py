"""Unpacking of an upload, loose files or one archive, into a folder with one adapter's config and weights.

Nothing in an archive is trusted: names are allow-listed rather than cleaned, sizes are counted as bytes come out rather
than read from headers, and only ordinary files count.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Self

from .adapter_template import MAX_TEMPLATE_FILE_BYTES, TEMPLATE_FILES
from .canonical import INITIAL_FOLDER, is_weights
from .changed_base import INITIAL
from .geometry import AdapterLimits
from .guarded_zip import DirectoryTooLargeError, GuardedZip
from .identity import CONFIG_FILE, WEIGHTS_FILE
from .problems import printable
from .recognised import PACK_AS_ZIP, archive_kind, instead_of_a_file, recognise
from .tar_stream import BLOCK, ArchiveMember, TarError, TarReader

# Entries that an archive may have.
MAX_ENTRIES = 1000
# Unpacked bytes per packed byte, beyond some free bytes: weights hardly compress, so more only costs time.
MAX_RATIO = 50
_RATIO_FREE_BYTES = 16 << 20
# Maximum bytes of ignored files in a .tar.gz, which can only be skipped by unpacking.
MAX_IGNORED_BYTES = 256 << 20
_BLOCK_BYTES = 1 << 20
# Folders above an adapter, as training programs and hubs make them.
MAX_DEPTH = 4
_ARCHIVE_SUFFIXES = (".zip", ".tar.gz", ".tgz", ".tar")
# Other suffixes of archives, which are read if they are one of the above under this name, or refused by their kind.
_OTHER_SUFFIXES = (
    *(".7z", ".rar", ".xz", ".txz", ".bz2", ".tbz", ".tbz2", ".zst", ".tzst"),
    *(".lz4", ".lz", ".lzma", ".cab", ".z", ".gz"),
)
_CHECKPOINT = re.compile(r"checkpoint-\d+", re.ASCII)
# A tokenizer's files, which training programs save with an adapter.
TEXT_FILES = frozenset(
    {
        "tokenizer.json",
        "tokenizer.model",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "chat_template.jinja",
        "chat_template.json",
        "vocab.json",
        "merges.txt",
    }
)
# Files that programs and systems add everywhere; no note lists them.
_NOT_NOTED = frozenset({"README.md", ".gitattributes", ".gitignore", "LICENSE", ".DS_Store"})
_TEXT_OF_BASE = "prompts become tokens by the served model's tokenizer"
# Number and total bytes of template files that are kept until the adapter's folder is known.
_MAX_TEMPLATE_FILES, _MAX_TEMPLATE_BYTES = 64, 32 << 20
_BOTH = (
    f"Upload {CONFIG_FILE} and {WEIGHTS_FILE} as PEFT's save_pretrained writes them, loose or in one .zip or .tar.gz."
)
_PACK_AGAIN = f"Pack only {CONFIG_FILE} and {WEIGHTS_FILE}, e.g. zip -j adapter.zip {CONFIG_FILE} {WEIGHTS_FILE}."


class UploadError(Exception):
    """An upload that cannot become an adapter: what happened, and the fix."""

    def __init__(self, code: str, message: str, fix: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.fix = fix


def unpack_upload(
    files: Mapping[str, Path], into: Path, limits: AdapterLimits | None = None, *, notes: list[str] | None = None
) -> Path:
    """Put an adapter's config and weights, in any form (``is_weights``), into ``into`` and return it.

    ``files`` maps the client's names to paths that are not written to any more. Of a training folder the adapter that
    lies highest is taken, and its initial adapter from a folder named so (``INITIAL``) within or beside it, which goes
    to ``INITIAL_FOLDER``. Other files are ignored, with lines in ``notes``. Raises ``UploadError``, and then leaves
    ``into``, created if absent, without any of the upload's files.
    """
    into.mkdir(parents=True, exist_ok=True)
    collector = _Collector(into, limits or AdapterLimits())
    try:
        _collect(files, collector)
        if wanted := collector.passed_over():
            collector.discard()
            collector = _Collector(into, limits or AdapterLimits(), wanted)
            _collect(files, collector)
        collector.finish()
        if notes is not None:
            notes += collector.notes()
    except BaseException:
        collector.discard()
        raise
    return into


def _collect(files: Mapping[str, Path], collector: _Collector) -> None:
    """Offer every file of the upload, loose or in its one archive, to the collector."""
    suffixes = _ARCHIVE_SUFFIXES if len(files) > 1 else (*_ARCHIVE_SUFFIXES, *_OTHER_SUFFIXES)
    archive = next((name for name in files if name.lower().endswith(suffixes)), None)
    if archive is None:
        for name, path in files.items():
            with path.open("rb") as file:
                collector.offer(name, iter(lambda: file.read(_BLOCK_BYTES), b""), path)
        return
    if len(files) > 1:
        raise UploadError("mixed_upload", f"An archive came together with {len(files) - 1} other files.", _BOTH)
    with files[archive].open("rb") as file, _damage_of(archive), _reader_of(archive, file) as reader:
        for entries, member in enumerate(reader, start=1):
            _require_few(entries)
            if member.kind in ("link", "special"):
                name = printable(member.name)
                raise UploadError("unsafe_archive", f"{name} is a link or a special file.", _PACK_AGAIN)
            if member.kind == "folder":
                collector.check_path(member.name)
            else:
                collector.offer(member.name, reader.blocks())


@contextmanager
def _reader_of(name: str, file: BinaryIO) -> Iterator[_ZipReader | TarReader]:
    """Return a context with the archive's reader, which checks a gzip file's checksum at its end.

    Raises ``UploadError`` for a file that is no archive of a kind that is read here.
    """
    magic = file.read(BLOCK)
    file.seek(0)
    if magic[:2] == b"PK":
        with _ZipReader(file) as members:
            yield members
    elif magic[:2] == b"\x1f\x8b":
        with _Inflated(file) as stream:
            _require_no_archive(name, stream.begins())
            yield TarReader(stream)
            stream.finish()
    elif magic[257:262] == b"ustar":
        yield TarReader(_Seekable(file))
    elif problem := instead_of_a_file(name, magic):
        raise UploadError(problem.code, problem.message, problem.fix)
    elif kind := archive_kind(magic):
        message = f"{printable(name)} is packed with {kind}, which is not read here."
        raise UploadError("unsupported_archive", message, PACK_AS_ZIP)
    else:
        raise UploadError("bad_archive", f"{printable(name)} is neither a zip, a tar nor a gzip file.", _BOTH)


@contextmanager
def _damage_of(name: str) -> Iterator[None]:
    """Raise ``UploadError`` for the errors of libraries that read a damaged archive."""
    try:
        yield
    except (zipfile.BadZipFile, NotImplementedError, TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise UploadError("bad_archive", f"{printable(name)} is damaged: {printable(error)}.", _PACK_AGAIN) from None
    except DirectoryTooLargeError:
        message = "The archive's table of contents is too large."
        raise UploadError("too_many_entries", message, _PACK_AGAIN) from None
    except (ValueError, LookupError, ArithmeticError, RuntimeError, struct.error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk's fault, not the archive's: `GuardedZip` and `_Seekable` only seek within the file
        message = f"{printable(name)} cannot be read: {printable(error)}."
        raise UploadError("bad_archive", message, _PACK_AGAIN) from None


def _require_no_archive(name: str, begins: bytes) -> None:
    """Raise ``UploadError`` unless gzip contains a tar archive, which has names of files."""
    if kind := archive_kind(begins):
        message = f"{printable(name)} is a gzip file that holds a {kind} file, not a tar archive."
        raise UploadError("nested_archive", message, f"Unpack it once (gunzip), and upload what comes out. {_BOTH}")
    if begins[:1] == b"{" or begins[6:9] == b"\0\0{":  # JSON and safetensors files begin so
        message = f"{printable(name)} is a gzip file that holds one file, not a tar archive of two."
        raise UploadError("nested_archive", message, f"Unpack it (gunzip). {_BOTH}")


def _require_few(entries: int) -> None:
    if entries > MAX_ENTRIES:
        raise UploadError("too_many_entries", f"The archive holds more than {MAX_ENTRIES} entries.", _PACK_AGAIN)


class _ZipReader:
    """An iterator over the members of a zip; ``blocks()`` yields the current one's bytes, as in ``TarReader``."""

    def __init__(self, file: BinaryIO) -> None:
        self._size = file.seek(0, os.SEEK_END)
        self._archive = zipfile.ZipFile(GuardedZip(file))
        self._current: zipfile.ZipInfo | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._archive.close()

    def __iter__(self) -> Iterator[ArchiveMember]:
        members = self._archive.infolist()
        _require_few(len(members))
        for member in members:
            name, mode = printable(member.filename), member.external_attr >> 16
            kind = "folder" if member.filename.endswith("/") else "file"
            if member.flag_bits & 0x1:
                raise UploadError("encrypted_archive", f"{name} is encrypted.", "Pack the archive without a password.")
            if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                kind = "special"
            elif member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                message = f"{name} uses an unusual compression."
                raise UploadError("bad_archive", message, "Pack with plain zip (deflate).")
            self._current = member
            yield ArchiveMember(member.filename, kind)

    def blocks(self) -> Iterator[bytes]:
        """Yield the current member's bytes; `zipfile` compares their CRC-32 at the end."""
        assert self._current is not None
        ratio, packed = _Ratio(printable(self._current.filename)), min(self._current.compress_size, self._size)
        with self._archive.open(self._current) as stream:
            while block := stream.read(_BLOCK_BYTES):
                ratio.count(len(block), packed)
                yield block


class _Folder:
    """A folder of the upload with the files that are kept of it."""

    def __init__(self, name: str, place: Path) -> None:
        self.name = name
        self.place = place
        self.files: dict[str, Path] = {}

    @property
    def has_weights(self) -> bool:
        return any(map(is_weights, self.files))

    @property
    def is_complete(self) -> bool:
        return CONFIG_FILE in self.files and self.has_weights


class _Collector:
    """A collector of the adapters' files among those offered. At the end it picks the adapter that lies highest.

    Of folders beside each other it keeps the first, or the ``wanted`` one.
    """

    def __init__(self, into: Path, limits: AdapterLimits, wanted: str = "") -> None:
        self._into = into
        self._limits = limits
        self._wanted = wanted
        self._kept: dict[int, _Folder] = {}  # by depth
        self._beside: dict[int, dict[str, set[str]]] = {}  # by depth: names of files in each other folder
        self._taken = ""  # the adapter's folder
        self._initial: _Folder | None = None
        self._left = limits.max_bytes
        self._templates: dict[str, dict[str, Path]] = {}  # by folder: files that may have a chat template
        self._template_files, self._template_bytes = 0, 0
        self._placed = set[str]()  # names of the adapter's template files
        self._too_deep: list[str] = []
        self._ignored: list[str] = []

    def check_path(self, name: str) -> list[str]:
        """Return the path's parts. Refuses paths that could leave the folder of the upload."""
        parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
        absolute = name.startswith(("/", "\\")) or name[1:2] == ":"
        if absolute or ".." in parts or "\0" in name:
            raise UploadError("unsafe_archive", f"The path {printable(name)} leads outside the upload.", _PACK_AGAIN)
        return parts

    def offer(self, name: str, blocks: Iterable[bytes], place: Path | None = None) -> None:
        """Keep the file if it belongs to an adapter; note it otherwise. ``blocks`` is read only if it is kept.

        ``place``: a path with the same bytes that is not written to any more.
        """
        parts = self.check_path(name)
        base, depth = parts[-1] if parts else "", len(parts) - 1
        if base in TEMPLATE_FILES and self._keep_template("/".join(parts[:-1]), base, blocks):
            return
        is_of_adapter = base == CONFIG_FILE or is_weights(base)
        folder = self._folder("/".join(parts[:-1]), depth, base) if is_of_adapter else None
        if folder is None:
            self._ignored.append(name)
            return
        if base in folder.files:
            raise UploadError("duplicate_file", f"{base} comes twice.", _PACK_AGAIN)
        folder.place.mkdir(parents=True, exist_ok=True)
        target = folder.files[base] = folder.place / base
        if place is not None and self._link(place, target):
            return
        with target.open("xb") as file:
            for block in blocks:
                self._left -= len(block)
                if self._left < 0:
                    raise UploadError(
                        "upload_too_large",
                        f"The adapter is larger than {self._limits.max_bytes} bytes.",
                        "Train with a lower rank or fewer target modules, or ask the operator to raise the limit.",
                    )
                file.write(block)

    def finish(self) -> None:
        """Move the one adapter's files into place. Raises ``UploadError`` if there is none, or more than one."""
        if not any(folder.is_complete for folder in self._kept.values()) and self._initial is not None:
            self._kept[self._initial.name.count("/") + 1], self._initial = self._initial, None  # it is the only adapter
        depth = next((depth for depth, folder in sorted(self._kept.items()) if folder.is_complete), None)
        if depth is None:
            depth = min(self._kept, default=0)
        kept = self._kept.get(depth)
        if self._complete_beside(depth) or (self._beside.get(depth) and not (kept and kept.is_complete)):
            raise self._several(depth)
        if kept is None or not kept.is_complete:
            raise self._missing(kept)
        self._taken = kept.name
        for name, path in kept.files.items():
            path.rename(self._into / name)
        self._place_initial(kept)
        self._place_templates(kept.name)
        self._ignored += [f"{folder.name}/" for other, folder in self._kept.items() if other != depth]
        self._ignored += [f"{name}/" for name in self._beside.get(depth, ())]
        self.discard()

    def passed_over(self) -> str:
        """Return the folder of the highest complete adapter if an incomplete one was kept instead; else ""."""
        for depth in sorted({*self._kept, *self._beside}):
            complete = self._complete_beside(depth)
            if complete or self._kept[depth].is_complete:
                return complete[0] if len(complete) == 1 and not self._kept[depth].is_complete else ""
        return ""

    def _complete_beside(self, depth: int) -> list[str]:
        beside = self._beside.get(depth, {})
        return [name for name, files in beside.items() if CONFIG_FILE in files and any(map(is_weights, files))]

    def _place_initial(self, kept: _Folder) -> None:
        """Move the initial adapter to where ``to_peft_form`` expects it, if it lies in the adapter's folder or beside
        it.
        """
        initial = self._initial
        if initial is None:
            return
        around = initial.name.rpartition("/")[0]
        if initial.is_complete and around in (kept.name, kept.name.rpartition("/")[0]):
            initial.place.rename(self._into / INITIAL_FOLDER)
        else:
            self._ignored.append(f"{initial.name}/")

    def _place_templates(self, folder: str) -> None:
        """Move the adapter's template files to where ``read_adapter_template`` expects them."""
        for name, path in self._templates.pop(folder, {}).items():
            path.rename(self._into / name)
            self._placed.add(name)
        self._ignored += [f"{other}/{name}".lstrip("/") for other, files in self._templates.items() for name in files]

    def _keep_template(self, folder: str, name: str, blocks: Iterable[bytes]) -> bool:
        """Keep a template's file; returns False, with nothing kept, if it is too large or there are too many."""
        files = self._templates.setdefault(folder, {})
        if name in files:
            raise UploadError("duplicate_file", f"{name} comes twice.", _PACK_AGAIN)
        if self._template_files >= _MAX_TEMPLATE_FILES:
            return False
        place = self._aside / "templates" / str(self._template_files)
        place.parent.mkdir(parents=True, exist_ok=True)
        self._template_files += 1
        size = 0
        with place.open("xb") as file:
            for block in blocks:
                size += len(block)
                if size > MAX_TEMPLATE_FILE_BYTES or self._template_bytes + size > _MAX_TEMPLATE_BYTES:
                    break
                file.write(block)
            else:
                self._template_bytes += size
                files[name] = place
                return True
        place.unlink()
        return False

    def notes(self) -> list[str]:
        """Describe the ignored files in a line or two, however many there are."""
        named = (name for name in self._ignored if _base(name) not in _NOT_NOTED and not _base(name).startswith("._"))
        names = sorted(named, key=lambda name: (name.count("/"), name))
        of_text = sorted({base for name in names if (base := _base(name)) in TEXT_FILES and base not in self._placed})
        lines = _left_out([name for name in names if _base(name) not in TEXT_FILES])
        if of_text:
            listed = ", ".join(of_text)
            lines.insert(0, f"{listed} {'was' if len(of_text) == 1 else 'were'} not used: {_TEXT_OF_BASE}")
        if _CHECKPOINT.fullmatch(_base(self._taken)):
            lines.insert(0, f"the adapter of {printable(self._taken)} was taken: there is none beside or above it")
        return lines

    def discard(self) -> None:
        """Remove all files that are still kept aside."""
        shutil.rmtree(self._aside, ignore_errors=True)

    @property
    def _aside(self) -> Path:
        return self._into / ".incoming"

    def _folder(self, name: str, depth: int, file: str) -> _Folder | None:
        """Return the place for that file of that folder; None if it is not kept."""
        if depth > MAX_DEPTH:
            self._too_deep.append(name)
            return None
        if INITIAL.fullmatch(name.rpartition("/")[2]):
            self._initial = self._initial or _Folder(name, self._aside / INITIAL_FOLDER)
            return self._initial if self._initial.name == name else None
        if self._wanted and name != self._wanted and depth == self._wanted.count("/") + 1:
            return None
        folder = self._kept.get(depth)
        if folder is None:
            if any(above.is_complete for upper, above in self._kept.items() if upper < depth):
                return None
            folder = self._kept[depth] = _Folder(name, self._aside / str(depth))
        if folder.name != name:
            self._beside.setdefault(depth, {}).setdefault(name, set()).add(file)
            return None
        return folder

    def _link(self, place: Path, target: Path) -> bool:
        """Link the file, which takes no time. Returns False if it must be copied, or is too large."""
        size = place.stat().st_size
        if size > self._left:
            return False
        try:
            os.link(place, target)
        except OSError:
            return False
        self._left -= size
        return True

    def _several(self, depth: int) -> UploadError:
        names = sorted([self._kept[depth].name, *(self._complete_beside(depth) or self._beside[depth])])
        listed = ", ".join(map(printable, names[:5]))
        return UploadError(
            "several_adapters",
            f"The upload holds more than one adapter, in {listed}.",
            "Upload one of these folders; of a training's checkpoints usually the one with the highest number.",
        )

    def _missing(self, kept: _Folder | None) -> UploadError:
        if self._too_deep and kept is None:
            return UploadError(
                "nested_too_deep",
                f"{printable(self._too_deep[0])} lies more than {MAX_DEPTH} folders deep.",
                _PACK_AGAIN,
            )
        if kept is None or not kept.has_weights:
            recognised = recognise(self._ignored)
            if recognised is not None:
                return UploadError(*recognised)
        files = {} if kept is None else kept.files
        names = [CONFIG_FILE] * (CONFIG_FILE not in files) + [WEIGHTS_FILE] * (kept is None or not kept.has_weights)
        return UploadError("missing_file", f"The upload holds no {' and no '.join(names)}.", _BOTH)


def _base(name: str) -> str:
    return name.replace("\\", "/").rpartition("/")[2]


def _left_out(names: list[str]) -> list[str]:
    if len(names) < 4:
        return [f"{printable(name)} was ignored" for name in names]
    some = ", ".join(printable(name) for name in names[:3])
    return [f"{len(names)} files that are no part of an adapter were ignored: {some} and {len(names) - 3} more"]


class _Ratio:
    """A guard that stops unpacking at a multiple of the packed size, before it takes space and time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._unpacked = 0

    def count(self, unpacked: int, packed: int) -> None:
        """Count ``unpacked`` more bytes from ``packed`` bytes in all. Raises ``UploadError``."""
        self._unpacked += unpacked
        if self._unpacked > _RATIO_FREE_BYTES + MAX_RATIO * packed:
            message = f"{self._name} unpacks to more than {MAX_RATIO} times its size."
            raise UploadError("archive_bomb", message, _PACK_AGAIN)


class _Seekable:
    """An archive that is not compressed, in which skipped parts are not read."""

    def __init__(self, file: BinaryIO) -> None:
        self.read = file.read
        self._file = file
        self._end = os.fstat(file.fileno()).st_size

    def skip(self, size: int, /) -> None:
        self._file.seek(min(self._file.tell() + size, self._end))


class _Inflated:
    """The contents of a gzip file. Reading to the end (``finish``) checks the checksum and the length."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._stream = gzip.GzipFile(fileobj=file, mode="rb")
        self._ratio = _Ratio("The archive")
        self._skipped = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stream.close()

    def begins(self) -> bytes:
        """Return the first bytes, enough to detect the type, without consuming them."""
        return self._stream.peek(BLOCK)[:BLOCK]

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
