"""What is wrong with an adapter, in words that name the exact mismatch and the way out."""

from __future__ import annotations

from dataclasses import dataclass

# Untrusted names end up in messages, logs and pages: longer ones are cut.
MAX_NAME = 160


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding. ``code`` is stable; ``tensor`` is the tensor's name in the file, where one is at fault."""

    code: str
    message: str
    fix: str
    tensor: str | None = None

    def to_json(self) -> dict[str, str | None]:
        return {"code": self.code, "message": self.message, "fix": self.fix, "tensor": self.tensor}


class FormatError(Exception):
    """A file that cannot be read as what it claims to be."""

    def __init__(self, code: str, message: str, fix: str, tensor: str | None = None) -> None:
        super().__init__(message)
        self.problem = Problem(code, message, fix, tensor)

    @property
    def code(self) -> str:
        return self.problem.code

    @property
    def message(self) -> str:
        return self.problem.message

    @property
    def fix(self) -> str:
        return self.problem.fix


# Both matrices of seven targets in 126 layers are 1764 tensors: what is wrong with every tensor of the largest models
# is told, and a hostile file cannot make a report of any size.
MOST_PROBLEMS = 2000


class Findings:
    """Collects problems: the first ``cap`` in full, and how many there were in all."""

    def __init__(self, cap: int = MOST_PROBLEMS) -> None:
        self._cap = cap
        self.problems: list[Problem] = []
        self.count = 0

    def add(self, code: str, message: str, fix: str, tensor: str | None = None) -> None:
        self.count += 1
        if len(self.problems) < self._cap:
            self.problems.append(Problem(code, message, fix, None if tensor is None else printable(tensor)))

    def add_error(self, error: FormatError) -> None:
        self.add(error.code, error.message, error.fix, error.problem.tensor)

    def lead_with(self, code: str, message: str, fix: str) -> None:
        """Put a summary before everything found so far."""
        self.count += 1
        self.problems.insert(0, Problem(code, message, fix))
        del self.problems[self._cap :]


def printable(text: object) -> str:
    """``text`` safe for a log line or a page: control characters escaped, long text cut."""
    clean = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in str(text)[: MAX_NAME + 1])
    return clean if len(clean) <= MAX_NAME else clean[: MAX_NAME - 1] + "…"
