"""Numbers of a JSON Schema that llguidance, which keeps them as 64-bit floats, would change or cannot bear.

It writes an integer beyond 2^53 as the nearest float (1234567890123456789 as …768), and rounds bounds in the same way,
so an answer would not fit the schema. At integers next to -2^63 its process ends with a stack overflow, and at a large
``multipleOf`` it computes without an end.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, TypeGuard

from .schema_problems import leave_out, subschemas

Schema = dict[str, Any]

# Largest integer up to which every one is a float.
_EXACT = 1 << 53
# Largest integer below 2^63 that is a float.
_LARGEST = (1 << 63) - 1024
# Largest bound of numbers that may have fractions: llguidance has no expression for ranges with one more digit.
_LARGEST_WITH_FRACTION = 10**18
# Least common multiple of all ``multipleOf`` of a schema. The time to compile one grows with it, to two seconds.
_MAX_MULTIPLE = 100_000
_OPPOSITE = {"maximum": "minimum", "exclusiveMaximum": "exclusiveMinimum"}
_IN_GRAMMAR = "%json"


def fit_numbers(schema: Schema, *, best_effort: bool) -> None:
    """Change ``schema`` so that llguidance reads its numbers exactly.

    It allows fewer answers where bounds are narrowed. Raises ``ConstraintError`` where a number cannot be read;
    ``best_effort``: leave its keyword out instead.
    """
    common = 1
    for path, node in subschemas(schema):
        problems: dict[str, str] = {}
        for keyword in ("const", "enum"):
            if (number := _unwritable(node.get(keyword))) is not None:
                problems[keyword] = f"The number {str(number)[:40]} would be written with 53 bits, as another one."
        largest = _LARGEST if node.get("type") == "integer" else _LARGEST_WITH_FRACTION
        for keyword in ("minimum", "exclusiveMinimum", *_OPPOSITE):
            bound = node.get(keyword)
            if not _is_number(bound) or abs(bound) <= _EXACT:
                continue
            fitting = _fit(keyword, bound, largest)
            if fitting is None:
                problems[keyword] = f"No number beyond {str(bound)[:40]} can be written."
            else:
                node[keyword] = fitting
        if _is_number(multiple := node.get("multipleOf")) and 0 < abs(multiple) < math.inf:
            together = math.lcm(common, _digits(multiple))
            if together > _MAX_MULTIPLE:
                problems["multipleOf"] = (
                    f"multipleOf ({str(multiple)[:40]}) is too large, alone or with others of the schema."
                )
            else:
                common = together
        for keyword, message in problems.items():
            if not best_effort:
                raise leave_out(message, path, keyword)
            del node[keyword]


def fit_numbers_in_grammar(grammar: str) -> str:
    """Return a Lark grammar with the numbers of its JSON Schemas fitted. Raises ``ConstraintError``."""
    first, *rest = grammar.split(_IN_GRAMMAR)
    return first + "".join(_IN_GRAMMAR + part for part in map(_fit_first, rest))


def _fit_first(text: str) -> str:
    """Fit the numbers of the schema with which ``text`` begins; other texts are llguidance's to judge."""
    start = len(text) - len(text.lstrip())
    try:
        schema, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return text
    if isinstance(schema, dict):
        fit_numbers(schema, best_effort=False)
    return f"{text[:start]}{json.dumps(schema)}{text[end:]}"


def _fit(keyword: str, bound: float, largest: int) -> int | None:
    """Return the nearest bound that is read exactly and allows no more; None if it is beyond ``largest``."""
    if keyword in _OPPOSITE:
        mirrored = _fit(_OPPOSITE[keyword], -bound, largest)
        return None if mirrored is None else -mirrored
    if bound < -largest:
        return -largest
    if bound > largest:
        return None
    nearest = float(bound)
    while nearest < bound or (nearest == bound and keyword.startswith("ex")):
        nearest = math.nextafter(nearest, math.inf)
    return int(nearest) if nearest <= largest else None


def _unwritable(value: Any) -> float | None:
    """Return a number in a constant that llguidance would write as another one, or not at all."""
    for number in _numbers(value):
        # A float beyond the integers of 64 bits is written with its digits and zeros.
        refused = isinstance(number, int) or -(1 << 63) <= number < -_LARGEST
        if refused and abs(number) > _EXACT and (abs(number) > _LARGEST or int(float(number)) != number):
            return number
    return None


def _numbers(value: Any) -> Iterator[float]:
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            pending += one.values()
        elif isinstance(one, list):
            pending += one
        elif _is_number(one):
            yield one


def _digits(number: float) -> int:
    """Return a number without its decimal point."""
    exact = Decimal(repr(number)).normalize()
    return abs(int(exact.scaleb(max(0, -int(exact.as_tuple().exponent)))))


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
