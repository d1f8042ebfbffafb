"""Each token stands for bytes, by a table.

Two families of tokenisers cover the models served here. Byte-level BPE (Llama 3, Qwen, GPT-2) writes each byte as one
printable character. SentencePiece-like ones (Llama 2, Mistral) write text with ``▁`` for a space, and bytes without a
piece as ``<0xE2>``. With a table from token to bytes, decoding is concatenation, and streaming needs no look-back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from .model_files import TokenizerError

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True, slots=True)
class DecodingRules:
    """The rules by which a tokeniser turns pieces into text.

    ``kind`` is "bytes" (byte-level BPE), "pieces" (SentencePiece) or "words" (joined by spaces). ``strip_left`` spaces
    are dropped at the start of a text; with ``bare_first`` all spaces of its first token are.
    """

    kind: str
    space: str = "▁"
    byte_fallback: bool = False
    strip_left: int = 0
    bare_first: bool = False

    def piece_bytes(self, piece: str) -> bytes:
        """Return the bytes of one piece in the middle of a text."""
        if self.kind == "bytes":
            return _byte_level(piece)
        if self.kind == "words":
            return b" " + piece.encode()
        if self.byte_fallback and (match := _BYTE_PIECE.fullmatch(piece)):
            return bytes([int(match[1], 16)])
        return piece.replace(self.space, " ").encode()


def rules_from_decoder(decoder: dict[str, Any] | None) -> DecodingRules:
    """Read the ``decoder`` section of a ``tokenizer.json``. Raises ``TokenizerError`` for unknown kinds."""
    if decoder is None:
        return DecodingRules("words", strip_left=1)
    steps = decoder["decoders"] if decoder.get("type") == "Sequence" else [decoder]
    kinds = {step["type"]: step for step in steps}
    unknown = set(kinds) - {"ByteLevel", "Metaspace", "Replace", "ByteFallback", "Fuse", "Strip"}
    if unknown or ("Strip" in kinds and "Fuse" not in kinds):
        raise TokenizerError(
            f"the tokeniser's decoder {', '.join(sorted(kinds))} is not supported; supported are byte-level and "
            "SentencePiece decoders, as Llama, Mistral and Qwen models have."
        )
    if "ByteLevel" in kinds:
        return DecodingRules("bytes")
    metaspace, strip, replace = kinds.get("Metaspace", {}), kinds.get("Strip", {}), kinds.get("Replace", {})
    return DecodingRules(
        "pieces",
        space=metaspace.get("replacement") or replace.get("pattern", {}).get("String") or "▁",
        byte_fallback="ByteFallback" in kinds,
        strip_left=strip.get("start", 0) if strip.get("content") == " " else 0,
        bare_first=bool(metaspace) and metaspace.get("prepend_scheme", "always") != "never",
    )


def _byte_characters() -> dict[str, int]:
    """Return GPT-2's table: printable bytes stand for themselves, the others for characters from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


_BYTE_OF = _byte_characters()


def _byte_level(piece: str) -> bytes:
    try:
        return bytes([_BYTE_OF[char] for char in piece])
    except KeyError:  # an added token, stored as plain text
        return piece.encode()
