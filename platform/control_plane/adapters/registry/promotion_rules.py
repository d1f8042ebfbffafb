"""The rule that a version must meet before it serves the bare name, alone or as a canary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from control_plane.adapters.registry.models import LIVE, AdapterVersion, Alias
from control_plane.core.errors import LorikeetError


class RuleUnmetError(LorikeetError):
    def __init__(self, version: AdapterVersion, problem: str, fix: str) -> None:
        super().__init__(
            "promotion_rule_unmet",
            f"{version.adapter.name}@v{version.number} does not meet its adapter's promotion rule: {problem}.",
            f"{fix} DELETE …/promotion-rule removes the rule.",
            param="number",
            status=409,
        )


def meets_rule(version: AdapterVersion) -> bool:
    try:
        require_rule(version, LIVE)
    except RuleUnmetError:
        return False
    return True


def require_rule(version: AdapterVersion, alias: str) -> None:
    """Raise RuleUnmetError (409) if `version` may not be `alias`: the rule applies to `live` only."""
    rule = version.adapter.promotion_rule
    if alias != LIVE or rule is None:
        return
    score = next((score for score in version.evaluations if score["set_id"] == rule["set_id"]), None)
    if score is None:
        raise RuleUnmetError(
            version,
            f"it has no score on {rule['set']} yet",
            "Wait for its evaluation if one runs, or evaluate it (POST evaluations), and try again.",
        )
    if (least := rule["minimum"]) is not None and score["score"] < least:
        raise RuleUnmetError(
            version,
            f"{_describe(score)} is below {least:g}",
            "Promote a version that answers better, or change the rule.",
        )
    if rule["not_worse_than_live"]:
        _require_not_worse(version, score)


def _require_not_worse(version: AdapterVersion, score: Mapping[str, Any]) -> None:
    live = Alias.objects.for_tenant(version.tenant).filter(adapter=version.adapter, name=LIVE)
    number = live.values_list("version__number", flat=True).first()
    if number in (None, version.number):
        return
    beside = score["live"]
    if beside is None or beside["version"] != number:
        raise RuleUnmetError(
            version,
            f"it was not compared with v{number}, which is live now",
            "Evaluate it again (POST evaluations), and promote it then.",
        )
    if score["score"] < beside["score"]:
        raise RuleUnmetError(
            version,
            f"{_describe(score)} is worse than {beside['score']:.4g} of the live v{number}",
            "Promote a version that answers better, or change the rule.",
        )


def _describe(score: Mapping[str, Any]) -> str:
    return f"its {score['metric']} score of {score['score']:.4g} on {score['set']}"
