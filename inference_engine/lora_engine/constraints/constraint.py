"""A constraint as plain data, and the error of one that cannot be enforced."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

# Bytes of UTF-8 of a schema or grammar, as large as the largest schemas in use. Compiling one takes a second at most:
# what it may cost is bounded by the number of its parts too (``rewriting.MAX_PARTS``, ``library.parser_limits``).
MAX_BYTES = 512 * 1024


class Kind(Enum):
    """The kinds of a constraint's text. Values are those of ``Constraint.Kind`` on the wire."""

    JSON_OBJECT = 1  # any JSON object; no text
    JSON_SCHEMA = 2  # a JSON Schema (draft 2020-12), as JSON
    REGEX = 3  # a regular expression that the whole answer matches, in Rust's regex syntax without look-around
    CHOICE = 4  # a JSON array of strings, one of which the answer is
    GRAMMAR = 5  # a context-free grammar in llguidance's dialect of Lark, or in GBNF


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint that makes the whole answer match ``text``.

    ``best_effort`` leaves out the keywords of a JSON Schema that cannot be enforced, instead of refusing them.
    """

    kind: Kind
    text: str = ""
    best_effort: bool = False


class ConstraintError(Exception):
    """A constraint that cannot be enforced. ``path`` names the place in a JSON Schema (``properties.a.pattern``)."""

    def __init__(self, message: str, fix: str, path: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.path = path


class LibraryMissingError(Exception):
    """llguidance is not installed."""
