"""`python -m scripts.alert_rules`: write the alert rules for the Prometheus Operator, from those for Prometheus."""

from __future__ import annotations

import sys

from scripts.launch.paths import ROOT

SOURCE = ROOT / "deploy" / "monitoring" / "alerts.yml"
TARGET = ROOT / "deploy" / "kubernetes" / "monitoring" / "rules.yaml"
HEAD = """\
# Made by `python -m scripts.alert_rules` from deploy/monitoring/alerts.yml.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: lorikeet
spec:
"""


def text() -> str:
    """Return the object with the rules, which differ by their indentation only."""
    rules = SOURCE.read_text()
    lines = rules[rules.index("groups:") :].splitlines()
    return HEAD + "".join(f"  {line}\n" if line else "\n" for line in lines)


def main() -> int:
    TARGET.write_text(text())
    print(f"Wrote {TARGET.relative_to(ROOT)}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
