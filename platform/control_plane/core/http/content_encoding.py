"""Refuses compressed bodies: the true size of a compressed body cannot be bounded before it is decompressed."""

from __future__ import annotations

from collections.abc import Mapping

from control_plane.core.errors import LorikeetError


class EncodedBodyError(LorikeetError):
    """A body with a ``Content-Encoding``, such as gzip."""

    def __init__(self, encoding: str) -> None:
        super().__init__(
            "unsupported_content_encoding",
            f"The body has the Content-Encoding '{encoding}', and only uncompressed bodies are accepted.",
            "Send it uncompressed, without Content-Encoding.",
            status=415,
        )


def require_plain_body(headers: Mapping[bytes, bytes]) -> None:
    """Refuse a compressed body. Raises EncodedBodyError (415)."""
    encoding = headers.get(b"content-encoding", b"").decode("latin-1").strip()
    if encoding.lower() not in ("", "identity"):
        raise EncodedBodyError(encoding[:40])
