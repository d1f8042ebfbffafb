"""The base model of requests, as reports name it and filter by it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Any

from django.db.models import Q

from control_plane.billing.usage.models import DailyUsage, Series, UsageEvent, Watermark
from control_plane.billing.usage.sums import Key, UsageSums
from control_plane.core.errors import NotFoundError
from control_plane.fleet.base_models.models import BaseModel

# Columns with the name of a row's base model. Rows older than the first column have that of their version, or none.
BASE_COLUMNS = ("series__base_model__name", "series__version__base_model")


@dataclass(frozen=True)
class NamedBases:
    """The base models of one name: a withdrawn one may have had the name of another before."""

    pks: tuple[int, ...]
    digests: tuple[str, ...]

    def of(self, before: str = "") -> Q:
        """Return the condition for rows of these base models; `before` is the prefix of the columns' names.

        Rows from before the column have the base model of their version.
        """
        unrecorded = Q(**{f"{before}base_model": None, f"{before}version__base_digest__in": self.digests})
        return Q(**{f"{before}base_model__in": self.pks}) | unrecorded


class BaseModelUnknownError(NotFoundError):
    def __init__(self, name: str) -> None:
        super().__init__(
            f"No base model is called {json.dumps(name, ensure_ascii=False)}.",
            "GET /v1/models lists the served base models by their current names.",
            code="base_model_not_found",
            param="base_model",
        )


def named_bases(name: str) -> NamedBases:
    """Return the base models with this current name, also withdrawn ones; empty if there is none."""
    bases = dict(BaseModel.objects.filter(name=name).values_list("pk", "digest"))
    return NamedBases(tuple(bases), tuple(bases.values()))


def filtered_bases(name: str) -> NamedBases | None:
    """Return the base models of a filter; None if it is empty. Raises BaseModelUnknownError (404)."""
    if not name:
        return None
    bases = named_bases(name)
    if not bases.pks:
        raise BaseModelUnknownError(name)
    return bases


def by_named_base(sums: dict[Key, UsageSums]) -> dict[tuple[Any, ...], UsageSums]:
    """Add sums up by the one name that `BASE_COLUMNS` give."""
    by_name: dict[tuple[Any, ...], UsageSums] = {}
    for (base, of_version), part in sums.items():
        key = (base or of_version,)
        by_name[key] = by_name.get(key, UsageSums()) + part
    return by_name


def is_used_since(base: BaseModel, day: date, **_signal: Any) -> bool:
    """Return whether a request ran on the base model since that day (UTC), by the whole ledger."""
    series = list(Series.objects.filter(base_model=base).values_list("pk", flat=True))
    if series and DailyUsage.objects.filter(series__in=series, start__gte=day).exists():
        return True
    mark = Watermark.objects.values_list("event_id", flat=True).first() or 0
    fresh = UsageEvent.objects.filter(id__gt=mark, created_at__gte=datetime.combine(day, time.min, UTC))
    return fresh.filter(base_model=base).exists()
