"""Comparison of the base model that an adapter names with the served one. Equal shapes do not prove it."""

from __future__ import annotations

from control_plane.adapters.registry.base_names import is_one_of, says_nothing
from control_plane.core.config import current
from control_plane.fleet.base_models.base_model import ServedBase, served_bases


def names_of(base: ServedBase, *, first: bool) -> list[str]:
    """Return the names of a base: to callers, to its engines, and, for the base admitted first, in the settings."""
    return [base.name, base.model, *(current().base_model_names.split(",") if first else [])]


def other_base(named: str, base: ServedBase) -> str:
    """Return the name if it is another model's; "" if it is the served one's, or if the adapter names none."""
    first = next(iter(served_bases()), base)
    known = is_one_of(named, names_of(base, first=first.digest == base.digest))
    return "" if known or says_nothing(named) else named
