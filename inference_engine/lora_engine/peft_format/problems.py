"""Problems of an adapter, in words that name the exact mismatch and the fix."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

# Characters of an untrusted name in messages, logs and pages; longer names are cut.
MAX_NAME = 160


GATHER_FIRST = (
    "DeepSpeed ZeRO-3 saves such files when it does not gather: set stage3_gather_16bit_weights_on_model_save, or run "
    "zero_to_fp32.py in the checkpoint and save the adapter from its result."
)


@dataclass(frozen=True, slots=True)
class Problem:
    """A finding of the inspection. ``code`` is stable; ``tensor`` is the name of the faulty tensor in the
    file, if any.
    """

    code: str
    message: str
    fix: str
    tensor: str | None = None

    def to_json(self) -> dict[str, str | None]:
        return {"code": self.code, "message": self.message, "fix": self.fix, "tensor": self.tensor}


class FormatError(Exception):
    """A file that cannot be read as its name claims."""

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


# Maximum number of problems in a report, so that a hostile file cannot make it arbitrarily large.
MAX_PROBLEMS = 2000


class Findings:
    """A collection of problems: the first ``cap`` in full, and their total number.

    The same fault of many tensors is one problem: the first one's text, and the number of others.
    """

    def __init__(self, cap: int = MAX_PROBLEMS) -> None:
        self._cap = cap
        self._groups: dict[object, _Group] = {}
        self.added = 0  # number of additions, one for each tensor

    @property
    def count(self) -> int:
        return len(self._groups)

    @property
    def problems(self) -> list[Problem]:
        return [group.problem() for group in list(self._groups.values())[: self._cap]]

    def add(self, code: str, message: str, fix: str, tensor: str | None = None) -> None:
        """Add a problem, of ``tensor`` if given. Tensors with the same ``code`` and ``fix`` become one problem."""
        self.added += 1
        key: object = (code, fix) if tensor is not None else self.added
        known = self._groups.get(key)
        if known is not None:
            known.tensors += 1
            return
        named = None if tensor is None else printable(tensor)
        self._groups[key] = _Group(Problem(code, message, fix, named))

    def add_error(self, error: FormatError) -> None:
        self.add(error.code, error.message, error.fix, error.problem.tensor)

    def lead_with(self, code: str, message: str, fix: str, *, instead_of: Collection[str] = ()) -> None:
        """Put a summary before all earlier problems, replacing those with one of the codes ``instead_of``."""
        self.added += 1
        kept = {key: group for key, group in self._groups.items() if group.first.code not in instead_of}
        self._groups = {("lead", code): _Group(Problem(code, message, fix))} | kept


@dataclass(slots=True)
class _Group:
    first: Problem
    tensors: int = 1

    def problem(self) -> Problem:
        if self.tensors == 1:
            return self.first
        more = self.tensors - 1
        return replace(
            self.first, message=f"{self.first.message} The same holds for {more} more tensor{'s' * (more > 1)}."
        )


def printable(text: object) -> str:
    """Return ``text`` safe for a log line or a page: control characters escaped, long text cut."""
    clean = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in str(text)[: MAX_NAME + 1])
    return clean if len(clean) <= MAX_NAME else clean[: MAX_NAME - 1] + "…"
