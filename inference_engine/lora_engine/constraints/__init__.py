"""What an answer may be, and whether llguidance can hold it to that. Without torch: the web tier checks with it."""

from .compiling import Compiled, compile_constraint
from .constraint import Constraint, ConstraintError, Kind, LibraryMissingError
from .library import door_tokenizer, load_library
from .schema_problems import first_line

__all__ = [
    "Compiled",
    "Constraint",
    "ConstraintError",
    "Kind",
    "LibraryMissingError",
    "compile_constraint",
    "door_tokenizer",
    "first_line",
    "load_library",
]
