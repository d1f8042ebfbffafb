"""Checks finished answers against keywords of their schemas that no grammar enforces, and names what they violate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from control_plane.fleet.transport.coalescing import Chunk
from control_plane.gateway.dispatch.constraint_checks import ConstraintChecks
from lora_engine.constraints import Violation

# Maximum number of violations that a row of the ledger names, and of the characters of each.
MAX_RECORDED, LONGEST_RECORDED = 8, 128


@dataclass
class CheckedSchemas:
    """The schemas of a request with such keywords: that of the answer's text, and those of functions by name."""

    answer: str | None = None
    functions: dict[str, str] = field(default_factory=dict)
    # Places of the keywords, as a header names them.
    places: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.places)


@dataclass
class _Call:
    name: str
    arguments: str = ""


@dataclass
class _Answer:
    text: str = ""
    calls: list[_Call] = field(default_factory=list)


class AnswerChecks:
    """The checks of one prompt's answers, as they arrive."""

    def __init__(self, schemas: CheckedSchemas, checks: ConstraintChecks, tenant: str) -> None:
        self._schemas, self._checks, self._tenant = schemas, checks, tenant
        self._answers: dict[int, _Answer] = {}
        # Keywords that answers violated, without repetition and without any text of an answer.
        self.violated: dict[str, None] = {}

    async def add(self, chunks: Sequence[Chunk]) -> None:
        """Take new output, and set the violations of an answer at the chunk that ends it."""
        for chunk in chunks:
            answer = self._answers.setdefault(chunk.choice, _Answer())
            answer.text += chunk.text
            for call in chunk.tool_calls:
                if call.index == len(answer.calls):
                    answer.calls.append(_Call(call.name))
                answer.calls[call.index].arguments += call.arguments
            if chunk.finish_reason in ("stop", "tool_calls"):  # others are incomplete
                chunk.violations = await self._violations(answer)

    async def _violations(self, answer: _Answer) -> list[Mapping[str, str]]:
        rows: list[Mapping[str, str]] = []
        if answer.calls:
            for index, call in enumerate(answer.calls):
                if (schema := self._schemas.functions.get(call.name)) is not None:
                    where = f"tool_calls[{index}].function.arguments"
                    rows += self._rows(await self._violated(schema, call.arguments), where)
        elif self._schemas.answer is not None:
            rows += self._rows(await self._violated(self._schemas.answer, answer.text), "")
        return rows

    async def _violated(self, schema: str, text: str) -> Sequence[Violation]:
        return await self._checks.violations(schema, text, self._tenant)

    def _rows(self, violations: Sequence[Violation], where: str) -> list[Mapping[str, str]]:
        for violation in violations:
            if len(self.violated) < MAX_RECORDED:
                self.violated[(violation.keyword or "unchecked")[:LONGEST_RECORDED]] = None
        return [
            {"path": _joined(where, violation.path), "keyword": violation.keyword, "message": violation.message}
            for violation in violations
        ]


def _joined(where: str, path: str) -> str:
    return where + path if path.startswith("[") else ".".join(filter(None, (where, path)))
