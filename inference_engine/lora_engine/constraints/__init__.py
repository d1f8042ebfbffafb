"""Constraints of answers, and the check that llguidance can enforce them. Without torch, for the web tier's checks."""

from .answer_validation import Violation, violations
from .compiling import Compiled, compile_constraint, schema_in_grammars
from .constraint import Constraint, ConstraintError, Kind, LibraryMissingError
from .library import door_tokenizer, load_library
from .schema_problems import first_line

__all__ = [
    "Compiled",
    "Constraint",
    "ConstraintError",
    "Kind",
    "LibraryMissingError",
    "Violation",
    "compile_constraint",
    "door_tokenizer",
    "first_line",
    "load_library",
    "schema_in_grammars",
    "violations",
]
