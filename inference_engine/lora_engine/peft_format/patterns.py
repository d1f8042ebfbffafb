"""Regular expressions from adapter configs are matched in bounded time.

PEFT matches ``target_modules``, ``exclude_modules``, ``rank_pattern`` and ``alpha_pattern`` with Python's backtracking
engine, which a hostile pattern can keep busy for ever. Here the same parse tree is evaluated over *sets of positions*,
each (node, start) once, on a budget of steps. Only whether a pattern matches is computed, so greediness and groups do
not matter; back references and look-behind are refused by name. Nearly all patterns are plain names, which are looked
up instead.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from importlib import import_module
from typing import Any

# Characters that a regular expression may have.
MAX_PATTERN = 400
# Steps that reading one character of a pattern costs. This bounds the memory of parse trees too.
_STEPS_PER_CHARACTER = 10
_NAME = re.compile(r"(?:[A-Za-z0-9_.]|\\\.)*", re.ASCII)

# The parser behind ``re``; its public name, sre_parse, is deprecated.
sre: Any = import_module("re._constants")
_parser: Any = import_module("re._parser")

_DIGITS = frozenset("0123456789")
_WORD = _DIGITS | frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_SPACE = frozenset(" \t\n\r\f\v")
_CATEGORIES = {
    sre.CATEGORY_DIGIT: (_DIGITS, True),
    sre.CATEGORY_NOT_DIGIT: (_DIGITS, False),
    sre.CATEGORY_WORD: (_WORD, True),
    sre.CATEGORY_NOT_WORD: (_WORD, False),
    sre.CATEGORY_SPACE: (_SPACE, True),
    sre.CATEGORY_NOT_SPACE: (_SPACE, False),
}
_NO_MATCH: frozenset[int] = frozenset()


class PatternError(Exception):
    """The pattern is no regular expression, or is refused; the message says why."""


class PatternMatcher:
    """A matcher of untrusted patterns against ASCII text, in at most ``budget`` steps over its lifetime."""

    def __init__(self, budget: int = 2_000_000) -> None:
        self.budget = budget
        self._trees: dict[str, Any] = {}

    def matches_fully(self, pattern: str, text: str) -> bool:
        """Return ``re.fullmatch(pattern, text) is not None``. Raises ``PatternError``."""
        tree = self._tree(pattern)
        try:
            return len(text) in _Walk(text, self).sequence(tree, 0)
        except RecursionError:
            raise PatternError("it is nested too deeply") from None

    def matches_tail(self, pattern: str, key: str) -> bool:
        """Return whether the pattern matches ``key`` or its end after a dot, as in ``rank_pattern``."""
        return self.matches_fully(rf"(.*\.)?({pattern})$", key)

    def spend(self, steps: int = 1) -> None:
        self.budget -= steps
        if self.budget < 0:
            raise PatternError("the patterns of this config take too long to match")

    def _tree(self, pattern: str) -> Any:
        tree = self._trees.get(pattern)
        if tree is None:
            self.spend(_STEPS_PER_CHARACTER * len(pattern))
            tree = self._trees[pattern] = _parse(pattern)
        return tree


class TailPatterns:
    """The keys of a ``rank_pattern`` or ``alpha_pattern``, of which the first that matches a module counts.

    A pattern that is a name costs a lookup. The dots of a name match any character, so names are stored by length and
    by the positions of their dots, and a module's name is looked up with these blanked.
    """

    def __init__(self, patterns: Iterable[str], matcher: PatternMatcher) -> None:
        self._matcher = matcher
        self._names: dict[int, dict[tuple[int, ...], dict[str, int]]] = {}
        self._expressions: list[tuple[int, str]] = []
        self._patterns = list(patterns)
        for order, pattern in enumerate(self._patterns):
            if is_name(pattern):
                self._add_name(pattern, order)
            else:
                self._expressions.append((order, pattern))

    def first(self, key: str) -> str | None:
        """Return the first pattern that matches ``key`` or its end after a dot. Raises ``PatternError``."""
        best = min((self._first_name(tail) for tail in tails(key)), default=len(self._patterns))
        for order, pattern in self._expressions:
            if order > best:
                break
            if self._matcher.matches_tail(pattern, key):
                best = order
                break
        return self._patterns[best] if best < len(self._patterns) else None

    def every(self, key: str) -> list[str]:
        """Return all patterns that match, in their order, for a message about two where only one applies."""
        return [pattern for pattern in self._patterns if self._matcher.matches_tail(pattern, key)]

    def _add_name(self, pattern: str, order: int) -> None:
        wanted = pattern.replace(r"\.", "\0")
        dots = tuple(place for place, char in enumerate(wanted) if char == ".")
        name = wanted.replace("\0", ".")
        self._names.setdefault(len(name), {}).setdefault(dots, {}).setdefault(_blanked(name, dots), order)

    def _first_name(self, tail: str) -> int:
        best = len(self._patterns)
        for dots, names in self._names.get(len(tail), {}).items():
            self._matcher.spend(1 + len(dots))
            best = min(best, names.get(_blanked(tail, dots), best))
        return best


def is_name(pattern: str) -> bool:
    """Return whether a pattern is only name characters, dots (any character) and escaped dots."""
    return _NAME.fullmatch(pattern) is not None


def tails(key: str) -> list[str]:
    """Return ``a.b.c``, ``b.c`` and ``c`` for ``a.b.c``."""
    parts = key.split(".")
    return [".".join(parts[start:]) for start in range(len(parts))]


def _blanked(name: str, places: tuple[int, ...]) -> str:
    if not places:
        return name
    characters = list(name)
    for place in places:
        characters[place] = "\0"
    return "".join(characters)


def _parse(pattern: str) -> Any:
    if len(pattern) > MAX_PATTERN:
        raise PatternError(f"it is longer than {MAX_PATTERN} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ambiguous set syntax
            tree = _parser.parse(pattern)
    except RecursionError:
        raise PatternError("it is nested too deeply") from None
    except (re.error, OverflowError, ValueError) as error:  # ValueError: flags that exclude each other
        raise PatternError(f"it is not a regular expression: {error}") from None
    if tree.state.flags & ~re.UNICODE:
        raise PatternError("flags are not supported")
    return tree


class _Walk:
    """An evaluation of a parse tree on one text; end positions are cached per (node, start)."""

    def __init__(self, text: str, matcher: PatternMatcher) -> None:
        self._text = text
        self._matcher = matcher
        self._seen: dict[tuple[int, int], frozenset[int]] = {}

    def sequence(self, nodes: Any, start: int) -> frozenset[int]:
        """Return where a match of ``nodes`` that begins at ``start`` may end."""
        known = self._seen.get((id(nodes), start))
        if known is None:
            known = frozenset((start,))
            for op, argument in nodes.data:
                known = self._union([self._node(op, argument, position) for position in known])
                if not known:
                    break
            self._seen[id(nodes), start] = known
        return known

    def _node(self, op: Any, argument: Any, at: int) -> frozenset[int]:
        self._matcher.spend()
        if op in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN):
            fits = at < len(self._text) and _accepts(op, argument, self._text[at])
            return frozenset((at + 1,)) if fits else _NO_MATCH
        if op is sre.BRANCH:
            return self._union([self.sequence(branch, at) for branch in argument[1]])
        if op is sre.SUBPATTERN:
            return self._group(argument, at)
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            return self._repeat(argument, at)
        if op is sre.AT:
            return frozenset((at,)) if self._anchored(argument, at) else _NO_MATCH
        if op in (sre.ASSERT, sre.ASSERT_NOT) and argument[0] == 1:
            return frozenset((at,)) if bool(self.sequence(argument[1], at)) == (op is sre.ASSERT) else _NO_MATCH
        raise PatternError("back references, look-behind and atomic groups are not supported")

    def _union(self, sets: list[frozenset[int]]) -> frozenset[int]:
        self._matcher.spend(sum(map(len, sets)))
        return _NO_MATCH.union(*sets)

    def _group(self, argument: Any, at: int) -> frozenset[int]:
        _number, add_flags, del_flags, body = argument
        if add_flags or del_flags:
            raise PatternError("flags are not supported")
        return self.sequence(body, at)

    def _repeat(self, argument: Any, at: int) -> frozenset[int]:
        low, high, body = argument
        current = frozenset((at,))
        reached = current if low == 0 else _NO_MATCH
        # Ends never precede their start, so the set of positions is stable within the text's length.
        for done in range(1, int(high) + 1):
            following = self._union([self.sequence(body, position) for position in current])
            settled = following == current
            if done >= low or settled:
                reached |= following
            if settled or not following:
                break
            current = following
        return reached

    def _anchored(self, kind: Any, at: int) -> bool:
        text = self._text
        if kind in (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING):
            return at == 0
        if kind is sre.AT_END_STRING:
            return at == len(text)
        if kind is sre.AT_END:
            return text[at:] in ("", "\n")
        before = at > 0 and text[at - 1] in _WORD
        after = at < len(text) and text[at] in _WORD
        return (before != after) == (kind is sre.AT_BOUNDARY)


def _accepts(op: Any, argument: Any, char: str) -> bool:
    if op is sre.LITERAL:
        return bool(ord(char) == argument)
    if op is sre.NOT_LITERAL:
        return bool(ord(char) != argument)
    if op is sre.ANY:
        return char != "\n"
    negate = argument[0][0] is sre.NEGATE
    items = argument[1:] if negate else argument
    return any(_in_set(kind, value, char) for kind, value in items) != negate


def _in_set(kind: Any, value: Any, char: str) -> bool:
    if kind is sre.LITERAL:
        return bool(ord(char) == value)
    if kind is sre.RANGE:
        return bool(value[0] <= ord(char) <= value[1])
    members, wanted = _CATEGORIES[value]
    return (char in members) == wanted
