"""Ledgers: rows that are added and read, and neither changed nor removed, except by `billing.archives` once they are in
an archive."""

from __future__ import annotations

from typing import Any, TypeVar

from django.db import models

from control_plane.identity.tenants.models import TenantQuerySet

M = TypeVar("M", bound=models.Model)


class AppendOnlyError(RuntimeError):
    """An attempt to change or remove a row of a ledger."""


class AppendOnlyQuerySet(TenantQuerySet[M]):
    """A queryset of rows that are only added and read. Corrections are further rows."""

    def update(self, **values: Any) -> int:
        raise AppendOnlyError(f"{self.model.__name__} is append-only: add a correcting row instead of updating.")

    def delete(self) -> tuple[int, dict[str, int]]:
        raise AppendOnlyError(f"{self.model.__name__} is append-only: rows are never deleted.")


class AppendOnlyModel(models.Model):
    """The base of the ledgers: a saved row cannot be saved again or deleted."""

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise AppendOnlyError(f"{type(self).__name__} is append-only: add a correcting row instead of updating.")
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        raise AppendOnlyError(f"{type(self).__name__} is append-only: rows are never deleted.")
