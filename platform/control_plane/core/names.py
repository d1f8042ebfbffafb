"""The characters that a name may contain: of a tenant, a person, a key, a file, a base model.

A name goes into the subjects of mails, into headers, logs, CSV files and other people's pages. There a line break ends
a header, a bidirectional control makes a name read as another one, and an invisible character makes two names look
alike. Free text (prompts, descriptions, reasons) is not a name.
"""

from __future__ import annotations

import unicodedata

from control_plane.core.errors import LorikeetError

# Cc: line breaks, NUL, DEL, C1. Cf: bidirectional controls, zero-width characters, tags. Cs: half surrogates.
# Co: private use. Zl, Zp: line and paragraph separators. Cn: not assigned.
_REFUSED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Letters, marks and symbols that are displayed as nothing: fillers of Hangul, Khmer's inherent vowels, the blank of
# Braille, the grapheme joiner, Mongolian variation selectors.
_BLANKS = frozenset("\u115f\u1160\u3164\uffa0\u17b4\u17b5\u2800\u034f\u180b\u180c\u180d\u180f")
# Zero-width non-joiner and joiner: Persian and the scripts of India need both, sequences of emoji the second.
_JOINERS = frozenset("\u200c\u200d")
# Python's tables may be older than an emoji.
_PICTOGRAPHS = range(0x1F000, 0x1FB00)


class BadNameError(LorikeetError):
    """A name contains a character that no name may contain."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__("invalid_request", message, "Remove the character from the name.", param=param)


def require_name(text: str, param: str = "name") -> str:
    """Return `text` if it is a valid name. Raises BadNameError (400)."""
    if (problem := name_problem(text)) is not None:
        raise BadNameError(param, problem)
    return text


def name_problem(text: str) -> str | None:
    """Return the sentence that says which character a name cannot contain, or None."""
    for place, character in enumerate(text):
        if not _is_allowed(text, place):
            title = unicodedata.name(character, "control character or no character").lower()
            return f"A name cannot contain U+{ord(character):04X} ({title}), which is not displayed as itself."
    return None


def without_refused(text: str) -> str:
    """Return `text` with a space for each character that a name cannot contain: for names from before this rule."""
    return "".join(character if _is_allowed(text, place) else " " for place, character in enumerate(text))


def _is_allowed(text: str, place: int) -> bool:
    character = text[place]
    if character in _JOINERS:
        return 0 < place < len(text) - 1 and _takes_joiner(text[place - 1]) and _takes_joiner(text[place + 1])
    if _is_variation_selector(character):
        return place > 0 and _takes_selector(text[place - 1])
    if ord(character) in _PICTOGRAPHS:
        return True
    return unicodedata.category(character) not in _REFUSED_CATEGORIES and character not in _BLANKS


def _takes_joiner(neighbour: str) -> bool:
    """Return True if a joiner can change the character's form: scripts with capital letters have no joined forms."""
    return not (neighbour.isascii() or neighbour in _JOINERS or neighbour.isspace() or _has_case(neighbour))


def _takes_selector(base: str) -> bool:
    """Return True for emoji, ideographs, and the digits, # and * of keycaps."""
    return not (base in _JOINERS or base.isspace() or _is_variation_selector(base) or _has_case(base))


def _has_case(character: str) -> bool:
    return character.isalpha() and character.lower() != character.upper()


def _is_variation_selector(character: str) -> bool:
    return "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"
