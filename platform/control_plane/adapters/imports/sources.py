"""Parses the source of an import: `hub:org/name/folder@revision`, the URL of a page of the Hub, `s3://bucket/prefix`,
or an archive's URL."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from control_plane.core.config import current
from control_plane.core.errors import LorikeetError
from control_plane.core.http.egress import UrlRefusedError, check_url

_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?"
_HUB = re.compile(
    rf"hub:({_PART}/{_PART})((?:/{_PART}){{1,8}})?(?:@([A-Za-z0-9](?:[A-Za-z0-9._/-]{{0,254}}[A-Za-z0-9])?))?", re.ASCII
)
BUCKET_FORM = r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
_S3 = re.compile(rf"s3://({BUCKET_FORM})(?:/(.*))?", re.ASCII)
# Maximum bytes of a folder's key: an object's may have 1,024, so that there is room for the names of files.
_MAX_KEY_BYTES = 900
# Hosts of the Hub's pages, whose URLs people copy from the browser.
_PAGE_HOSTS = frozenset({"huggingface.co", "www.huggingface.co", "hf.co"})
_PAGE = re.compile(rf"/({_PART}/{_PART})(?:/(tree|blob|resolve|commit)/([^/]+)(/.*)?)?/?", re.ASCII)
_NOT_MODELS = {"datasets/": "a dataset", "spaces/": "a space"}
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")


class SourceRefusedError(LorikeetError):
    def __init__(self, message: str, fix: str) -> None:
        super().__init__("source_refused", message, fix, param="source")


@dataclass(frozen=True)
class HubSource:
    repository: str
    revision: str
    folder: str = ""  # within the repository, without slashes at its ends

    @property
    def shown(self) -> str:
        return f"hub:{self.repository}/{self.folder}" if self.folder else f"hub:{self.repository}"


@dataclass(frozen=True)
class S3Source:
    """A folder of a bucket (`key` has no slash at its end, and is empty for the bucket's top), or an archive in it."""

    bucket: str
    key: str

    @property
    def shown(self) -> str:
        return f"s3://{self.bucket}/{self.key}" if self.key else f"s3://{self.bucket}"

    @property
    def is_archive(self) -> bool:
        return _is_archive(self.key)


@dataclass(frozen=True)
class UrlSource:
    """An archive's URL. `url` may contain a bucket's signature: only `shown` is for people."""

    url: str
    shown: str
    file_name: str


Source = HubSource | S3Source | UrlSource


def parse_source(text: str) -> Source:
    """Parse a source. Raises SourceRefusedError (400)."""
    if text.startswith("hub:"):
        return _hub(text)
    if text.startswith("s3:"):
        return _s3(text)
    return _page(text) or _url(text)


def _page(text: str) -> HubSource | None:
    """Return the repository that a page of the Hub shows; None for every other URL."""
    host, _, path = text.partition("://")[2].partition("/")
    if host.lower() not in {*_PAGE_HOSTS, urlsplit(current().hub_url).netloc}:
        return None
    path = "/" + path.partition("?")[0].partition("#")[0]
    match = _PAGE.fullmatch(path)
    _require_model(path[1:])
    if match is None or _is_archive(path):
        return None
    place, revision = unquote(match[4] or "").strip("/"), unquote(match[3] or "main")
    folder = place if match[2] in ("tree", "commit") else place.rpartition("/")[0]  # other pages show a file
    return _hub(f"hub:{match[1]}{'/' * bool(folder)}{folder}@{revision}")


def _require_model(name: str) -> None:
    for begins, what in _NOT_MODELS.items():
        if name.startswith(begins):
            raise SourceRefusedError(
                f"This is {what} of the Hub, not a model.", "Name the repository of an adapter, like hub:org/name."
            )


def _hub(text: str) -> HubSource:
    _require_model(text.removeprefix("hub:"))
    match = _HUB.fullmatch(text)
    if match is None or ".." in text or "--" in match[1]:
        raise SourceRefusedError(
            "The source is not a repository of the Hub.",
            "Write it like hub:org/name, hub:org/name@v1 or hub:org/name/folder@v1.",
        )
    return HubSource(match[1], match[3] or "main", (match[2] or "").strip("/"))


def _s3(text: str) -> S3Source:
    match = _S3.fullmatch(text)
    key = ((match and match[2]) or "").removesuffix("/")
    parts = key.split("/") if key else []
    known = key.isprintable() and len(key.encode()) <= _MAX_KEY_BYTES
    if match is None or not known or any(part in ("", ".", "..") for part in parts):
        raise SourceRefusedError(
            "The source is not a place in a bucket.",
            "Write it like s3://bucket/folder or s3://bucket/folder/adapter.zip.",
        )
    return S3Source(match[1], key)


def _url(text: str) -> UrlSource:
    try:
        url = check_url(text, allow_private=current().import_allow_private)
    except UrlRefusedError as error:
        if _HUB.fullmatch(f"hub:{text}"):
            raise SourceRefusedError(
                "The source has no scheme.", f"For a repository of the Hub, write hub:{text}."
            ) from None
        raise SourceRefusedError(
            error.message, "Write hub:org/name, s3://bucket/folder, or an https address of an archive."
        ) from None
    name = url.path.rpartition("/")[2]
    if not _is_archive(name) or not name.isprintable():
        raise SourceRefusedError(
            "The address does not name an archive.",
            "Use one that ends with .zip, .tar or .tar.gz; for a folder of a bucket, s3://bucket/folder.",
        )
    return UrlSource(text, str(url.copy_with(query=None)), name[-255:])


def _is_archive(name: str) -> bool:
    return name.lower().endswith(_ARCHIVES)
