r"""``\d``, ``\w`` and ``\s`` are ASCII characters, as in vLLM and JSON Schema, not Unicode's as in Rust's regex crate.

In a schema's ``pattern`` llguidance reads ``\d`` and ``\w`` as ASCII already. Its ``\s`` is Unicode's white space, and
ECMA-262 has another set, so ``\s`` becomes the white space that all readings have in common.
"""

from __future__ import annotations

_MEMBERS = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t\n\x0b\x0c\r\x20"}


def with_ascii_classes(regex: str) -> str:
    r"""Write out ``\d``, ``\D``, ``\w``, ``\W``, ``\s`` and ``\S`` in a regular expression, in classes too."""
    out: list[str] = []
    for piece, depth, _ in _pieces(regex):
        members = _MEMBERS.get(piece[1:].lower()) if piece.startswith("\\") else None
        if members is None:
            out.append(piece)
            continue
        written = f"[{'^' if piece[1].isupper() else ''}{members}]"
        # (?i) would add the long s and the sign for Kelvin; within a class it cannot be switched off.
        out.append(written if depth else f"(?-i:{written})")
    return "".join(out)


def with_common_white_space(pattern: str) -> str:
    r"""Write out ``\s`` in a schema's pattern as ASCII white space, except in negated classes, where that would add
    characters.
    """
    pieces, white = _pieces(pattern), _MEMBERS["s"]
    if any(depth > 1 or piece in ("[]", "[^]") for piece, depth, _ in pieces) or r"\s-" in pattern or r"-\s" in pattern:
        return pattern  # ECMA-262 reads such classes otherwise than Rust
    return "".join(
        (white if depth else f"[{white}]") if piece == r"\s" and not negated else piece
        for piece, depth, negated in pieces
    )


def _pieces(regex: str) -> list[tuple[str, int, bool]]:
    """Return each character or escape, the number of classes around it, and whether one of these is negated."""
    pieces: list[tuple[str, int, bool]] = []
    classes: list[bool] = []
    at = 0
    while at < len(regex):
        size = 1
        if regex[at] == "\\":
            size = 2
        elif classes and regex.startswith("[:", at) and (end := regex.find(":]", at)) > 0:
            size = end + 2 - at  # [:alpha:]
        elif regex[at] == "[":
            negated = regex.startswith("^", at + 1)
            size = 2 if negated else 1
            classes.append(negated)
            if regex.startswith("]", at + size):  # the first one is a character
                size += 1
        elif regex[at] == "]" and classes:
            classes.pop()
        pieces.append((regex[at : at + size], len(classes), any(classes)))
        at += size
    return pieces
