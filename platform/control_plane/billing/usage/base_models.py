"""The base model on which requests ran, as reports name it and ask for it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from control_plane.billing.usage.sums import Key, UsageSums
from control_plane.core.errors import NotFoundError
from control_plane.fleet.hosts.models import BaseModel

# Rows of before the base model was written down have that of their version, and of the base model itself none.
BASE_COLUMNS = ("series__base_model__name", "series__version__base_model")


@dataclass(frozen=True)
class NamedBases:
    """Those of one name: a withdrawn one may have had the name of another before."""

    pks: tuple[int, ...]
    digests: tuple[str, ...]

    def of(self, before: str = "") -> Q:
        """Which rows are theirs, by columns after `before`. Those that do not say it are of their version's."""
        unsaid = Q(**{f"{before}base_model": None, f"{before}version__base_digest__in": self.digests})
        return Q(**{f"{before}base_model__in": self.pks}) | unsaid


class BaseModelUnknownError(NotFoundError):
    def __init__(self, name: str) -> None:
        super().__init__(
            f"No base model is called {json.dumps(name, ensure_ascii=False)}.",
            "GET /v1/models lists those that are served; one that was renamed has its new name.",
            code="base_model_not_found",
            param="base_model",
        )


def named_bases(name: str) -> NamedBases:
    """By their names now, also those that were withdrawn; empty if there is none."""
    found = dict(BaseModel.objects.filter(name=name).values_list("pk", "digest"))
    return NamedBases(tuple(found), tuple(found.values()))


def asked_bases(name: str) -> NamedBases | None:
    """Of a filter; None if it is empty. Raises BaseModelUnknownError (404)."""
    if not name:
        return None
    bases = named_bases(name)
    if not bases.pks:
        raise BaseModelUnknownError(name)
    return bases


def by_named_base(sums: dict[Key, UsageSums]) -> dict[tuple[Any, ...], UsageSums]:
    """By the one name that `BASE_COLUMNS` give."""
    found: dict[tuple[Any, ...], UsageSums] = {}
    for (base, of_version), part in sums.items():
        key = (base or of_version,)
        found[key] = found.get(key, UsageSums()) + part
    return found
