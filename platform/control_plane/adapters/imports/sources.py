"""What a tenant writes for a source: `hub:org/name/folder@revision`, or an https address of an archive."""

from __future__ import annotations

import re
from dataclasses import dataclass

from control_plane.config import current
from control_plane.errors import LorikeetError
from control_plane.http.egress import UrlRefusedError, check_url

_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?"
_HUB = re.compile(
    rf"hub:({_PART}/{_PART})((?:/{_PART}){{1,8}})?(?:@([A-Za-z0-9](?:[A-Za-z0-9._/-]{{0,254}}[A-Za-z0-9])?))?", re.ASCII
)
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")


class SourceRefusedError(LorikeetError):
    def __init__(self, message: str, fix: str) -> None:
        super().__init__("source_refused", message, fix, param="source")


@dataclass(frozen=True)
class HubSource:
    repository: str
    revision: str
    folder: str = ""  # inside of it, without slashes at its ends

    @property
    def shown(self) -> str:
        return f"hub:{self.repository}/{self.folder}" if self.folder else f"hub:{self.repository}"


@dataclass(frozen=True)
class UrlSource:
    """`url` may hold a bucket's signature: only `shown` is for people."""

    url: str
    shown: str
    file_name: str


def parse_source(text: str) -> HubSource | UrlSource:
    """Raises SourceRefusedError (400)."""
    if text.startswith("hub:"):
        match = _HUB.fullmatch(text)
        if match is None or ".." in text or "--" in match[1]:
            raise SourceRefusedError(
                "That is no repository of the Hub.",
                "Write it like hub:org/name, hub:org/name@v1 or hub:org/name/folder@v1.",
            )
        return HubSource(match[1], match[3] or "main", (match[2] or "").strip("/"))
    try:
        url = check_url(text, allow_private=current().import_allow_private)
    except UrlRefusedError as error:
        raise SourceRefusedError(error.message, "Write hub:org/name, or an https address of an archive.") from None
    name = url.path.rpartition("/")[2]
    if not name.lower().endswith(_ARCHIVES):
        raise SourceRefusedError(
            "The address does not name an archive.",
            "Use one that ends with .zip, .tar or .tar.gz; for a bucket, a signed address of that object.",
        )
    return UrlSource(text, str(url.copy_with(query=None)), name[-255:])
