"""deploy/monitoring as the tests read it: the rules, the dashboards, and the metrics that they name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from lorikeet_testing.compose import ROOT

FOLDER = ROOT / "deploy" / "monitoring"
ALERTS = FOLDER / "alerts.yml"
DASHBOARDS = sorted((FOLDER / "grafana" / "dashboards").glob("*.json"))
METRIC = re.compile(r"\b(?:lorikeet|lora_engine|vllm:)_?[a-z_]+\b")
_PARTS = ("_bucket", "_count", "_sum")


def alerts() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def panels(path: Path) -> list[dict[str, Any]]:
    return [panel for panel in json.loads(path.read_text())["panels"] if panel["type"] != "row"]


def queries(path: Path) -> Iterator[str]:
    """Yield the queries of a dashboard with Grafana's variables filled in."""
    for panel in panels(path):
        for target in panel["targets"]:
            text = re.sub(r"\$__(?:rate_interval|range)", "5m", target["expr"])
            yield re.sub(r"\$(?:base_model|tenant|adapter)\b", ".*", text)


def metrics_in(query: str) -> set[str]:
    return {name for name in METRIC.findall(re.sub(r'"[^"]*"', "", query)) if name not in ("lorikeet", "lora_engine")}


def all_metrics() -> set[str]:
    """Return the metrics that rules, dashboards and their variables name, without the parts of histograms."""
    texts = [rule["expr"] for rule in alerts().values()]
    for path in DASHBOARDS:
        texts += queries(path)
        texts += [str(each["query"]) for each in json.loads(path.read_text())["templating"]["list"]]
    return {_family(name) for text in texts for name in metrics_in(text.replace("'query': ", ""))}


def _family(name: str) -> str:
    return next((name.removesuffix(part) for part in _PARTS if name.endswith(f"_seconds{part}")), name)


def shown(text: str) -> set[str]:
    """Return the metrics of a page in Prometheus' text format, with or without samples."""
    return set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
