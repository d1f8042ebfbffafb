"""Receivers of signals about adapters."""

from __future__ import annotations

from typing import Any

from control_plane.adapters.evaluations import actions
from control_plane.adapters.registry.models import AdapterVersion


def evaluate(*, version: AdapterVersion, **_: Any) -> None:
    actions.evaluate_by_rule(version)
