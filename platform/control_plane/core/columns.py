"""Columns that refer to accounts."""

from typing import Any

from django.conf import settings
from django.db import models


def account_column(deed: str, otherwise: str = "") -> "models.ForeignKey[Any, Any]":
    """Return a column for the account that did something, such as "created the set".

    It is null once the account no longer exists. `otherwise` says when it is null besides: "an API key did".
    """
    others = f"{otherwise}, or " if otherwise else ""
    return models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text=f"Account that {deed}; null: {others}the account no longer exists.",
    )
