"""What this package does when adapters change."""

from __future__ import annotations

from typing import Any

from control_plane.adapters.models import AdapterVersion
from control_plane.evaluations import actions


def evaluate(*, version: AdapterVersion, **_: Any) -> None:
    actions.evaluate_by_rule(version)
