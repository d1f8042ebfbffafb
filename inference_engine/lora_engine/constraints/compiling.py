"""Constraints are compiled by llguidance for a tokeniser, within bounds; a refusal says what is wrong and where."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .answer_validation import judges
from .ascii_classes import with_ascii_classes, with_common_white_space
from .constraint import MAX_BYTES, Constraint, ConstraintError, Kind, LibraryMissingError
from .dead_ends import close_dead_ends
from .large_numbers import fit_numbers, fit_numbers_in_grammar
from .library import door_tokenizer, load_library, on_deep_stack, parser_limits
from .rewriting import EndCheck, Rewritten, rewrite
from .schema_problems import explain, first_line, not_enforced, subschemas

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

# White space between two tokens of JSON: a space, or a new line and its indentation. If more is allowed, weak models
# continue with spaces.
WHITESPACE = r"(?: |\n[ \t]{0,24})"
# Maximum bytes of a schema as llguidance gets it: without annotations, with parts repeated. The time to compile grows
# with the square of the worst schemas of this length.
MAX_WRITTEN_BYTES = 256 * 1024
# Strings that a list of choices may have.
MAX_CHOICES = 10_000
# Maximum number of characters of a regular expression: the time to compile the worst ones grows with the square, to
# 2.5 s for so many.
MAX_REGEX_CHARS = 20_000
# Characters of a grammar that an ordinary stack can take, however deeply its references lead.
_MAX_SHALLOW = 8_000
_UNIMPLEMENTED = re.compile(r"Unimplemented keys: (\[.*?\])")
_BEYOND_REGULAR = re.compile(r"\(\?|\\[1-9k]")  # patterns that may have look-around or back-references


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled constraint. ``matcher`` is before the first token; copy it. ``schema`` is what llguidance compiled.

    ``ignored`` lists formats that are annotations, and what a best effort left out; ``checks`` the keywords that no
    grammar enforces here, which ``answer_validation.violations`` judges when an answer is finished.
    """

    matcher: LLMatcher
    ignored: tuple[str, ...] = ()
    schema: Any = None
    checks: tuple[EndCheck, ...] = ()


def compile_constraint(constraint: Constraint, tokenizer: LLTokenizer) -> Compiled:
    """Compile a constraint in milliseconds, at worst about a second, during which other threads run.

    Raises ``ConstraintError``, ``LibraryMissingError``.
    """
    library = load_library()
    if len(constraint.text.encode()) > MAX_BYTES:
        raise ConstraintError(
            f"It is {len(constraint.text.encode())} bytes long; at most {MAX_BYTES} are possible.",
            "Send a smaller one; leave out descriptions, or split the task.",
        )
    if constraint.kind in (Kind.JSON_OBJECT, Kind.JSON_SCHEMA):
        return _compile_schema(library, constraint, tokenizer)
    matcher = _matcher(library, _grammar(library, constraint), tokenizer)
    if matcher.is_error():
        raise _refusal(constraint, matcher.get_error())
    return Compiled(matcher)


def enforceable(schema: Any, *, best_effort: bool, expand: bool = True) -> Rewritten:
    """Write a schema with the keywords that llguidance enforces. Raises ``ConstraintError``."""
    try:
        rewritten = rewrite(schema, expand=expand)
    except RecursionError:
        raise ConstraintError("The schema is nested too deeply.", "Nest it less deeply, with $defs.") from None
    if isinstance(rewritten.schema, dict):
        _narrow_white_space(rewritten.schema)
        if best_effort:
            _leave_out_patterns(load_library().LLMatcher, rewritten.schema)
        fit_numbers(rewritten.schema, best_effort=best_effort)
        close_dead_ends(rewritten.schema, best_effort=best_effort)
    if rewritten.checks and not judges(schema):
        if not best_effort:
            raise not_enforced(rewritten.checks[0].path, rewritten.checks[0].keyword)
        rewritten.checks.clear()
    return rewritten


@functools.lru_cache(256)
def schema_in_grammars(text: str, *, best_effort: bool) -> str:
    """Return a schema as a part of another grammar may have it; one that cannot be enforced is returned as it is."""
    try:
        return json.dumps(compile_constraint(Constraint(Kind.JSON_SCHEMA, text, best_effort), door_tokenizer()).schema)
    except (ConstraintError, LibraryMissingError):
        return text


def _compile_schema(library: Any, constraint: Constraint, tokenizer: LLTokenizer) -> Compiled:
    schema = {"type": "object"} if constraint.kind is Kind.JSON_OBJECT else _read_schema(constraint.text)
    options: dict[str, Any] = {"whitespace_flexible": True, "whitespace_pattern": WHITESPACE}
    if constraint.best_effort:
        options |= {"lenient": True, "coerce_one_of": True}

    def compiled(*, expand: bool) -> Compiled:
        rewritten = enforceable(schema, best_effort=constraint.best_effort, expand=expand)
        written = json.dumps(rewritten.schema)
        if len(written) > MAX_WRITTEN_BYTES:
            raise ConstraintError(
                f"Without descriptions it is {len(written)} bytes long; at most {MAX_WRITTEN_BYTES} are possible.",
                "Send a smaller one, or split the task.",
            )
        try:
            grammar = library.LLMatcher.grammar_from_json_schema(written, overrides=options)
        except ValueError as error:  # it does so for schemas that are nested too deeply
            raise ConstraintError(f"The schema cannot be read: {error}.", "Nest it less deeply, with $defs.") from None
        matcher = _matcher(library, grammar, tokenizer)
        if matcher.is_error():
            raise explain(schema, matcher.get_error())
        ignored = dict.fromkeys((*rewritten.ignored, *_left_out(matcher.get_grammar_warnings())))
        return Compiled(matcher, tuple(ignored), rewritten.schema, tuple(rewritten.checks))

    try:
        return compiled(expand=True)
    except ConstraintError as refusal:
        # Written out, it may be too large for what it is without.
        try:
            return compiled(expand=False)
        except ConstraintError as plain:
            raise (refusal if refusal.path else plain) from None


def _left_out(warnings: Iterable[str]) -> Iterator[str]:
    """Yield the keywords that llguidance's warnings name as left out."""
    for warning in warnings:
        if match := _UNIMPLEMENTED.search(warning):
            yield from json.loads(match[1])


def _matcher(library: Any, grammar: str, tokenizer: LLTokenizer) -> LLMatcher:
    def build() -> LLMatcher:
        matcher: LLMatcher = library.LLMatcher(tokenizer, grammar, log_level=0, limits=parser_limits())
        return matcher

    return on_deep_stack(build) if len(grammar) > _MAX_SHALLOW else build()


def _grammar(library: Any, constraint: Constraint) -> str:
    matcher, text = library.LLMatcher, constraint.text
    if constraint.kind is Kind.REGEX:
        if len(text) > MAX_REGEX_CHARS:
            raise ConstraintError(
                f"It has {len(text)} characters; at most {MAX_REGEX_CHARS} are possible.",
                "Send a shorter one, or a grammar, or a list of choices.",
            )
        return str(matcher.grammar_from_regex(with_ascii_classes(text)))
    if constraint.kind is Kind.CHOICE:
        return str(matcher.grammar_from_lark(_choices(text)))
    return str(matcher.grammar_from_lark(fit_numbers_in_grammar(_as_lark(text))))


def _narrow_white_space(schema: dict[str, Any]) -> None:
    for _, node in subschemas(schema):
        pattern = node.get("pattern")
        if isinstance(pattern, str) and r"\s" in pattern:
            node["pattern"] = with_common_white_space(pattern)


def _leave_out_patterns(matcher: Any, schema: dict[str, Any]) -> None:
    """Remove patterns that cannot be enforced, as the library does with every other keyword."""
    for _, node in subschemas(schema):
        pattern = node.get("pattern")
        if isinstance(pattern, str) and _BEYOND_REGULAR.search(pattern):
            alone = matcher.grammar_from_json_schema({"type": "string", "pattern": pattern})
            if matcher.validate_grammar_with_warnings(alone, limits=parser_limits())[0]:
                del node["pattern"]


def _read_schema(text: str) -> dict[str, Any]:
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConstraintError(f"The schema is not valid JSON ({error}).", "Send a JSON Schema.") from None
    if schema is True:
        return {}
    if not isinstance(schema, dict):
        raise ConstraintError("The schema is not a JSON object.", "Send a JSON Schema.")
    return schema


def _choices(text: str) -> str:
    try:
        choices = json.loads(text)
    except (ValueError, RecursionError):
        choices = None
    fits = isinstance(choices, list) and all(isinstance(choice, str) and choice for choice in choices)
    if not fits or not 0 < len(choices) <= MAX_CHOICES:
        raise ConstraintError(
            "It is not a list of strings that are not empty.", f"Send from 1 to {MAX_CHOICES} strings to choose from."
        )
    return "start: " + " | ".join(json.dumps(choice) for choice in dict.fromkeys(choices))


def _as_lark(text: str) -> str:
    """Return the grammar in Lark. GBNF (``root ::= …``), as vLLM's users send it, is translated."""
    if "::=" not in text:
        return text
    from llguidance.gbnf_to_lark import any_to_lark

    try:
        return str(any_to_lark(text))
    except Exception as error:  # the translator raises bare exceptions
        raise ConstraintError(f"The GBNF grammar cannot be read ({error}).", "Correct it, or send Lark.") from None


def _refusal(constraint: Constraint, error: str) -> ConstraintError:
    fix = "Correct it; the syntax is that of Rust's regex crate, without look-around and back-references."
    if constraint.kind is Kind.GRAMMAR:
        fix = "Correct it; the syntax is llguidance's dialect of Lark."
    return ConstraintError(f"llguidance cannot use it: {first_line(error)[:500]}.", fix)
