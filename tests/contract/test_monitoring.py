"""deploy/monitoring: rules that Prometheus accepts and that fire, a page for each, dashboards whose queries parse."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from lorikeet_testing.compose import load_compose
from lorikeet_testing.monitoring import ALERTS, DASHBOARDS, FOLDER, alerts, metrics_in, panels, queries

from scripts import alert_rules
from scripts.launch.paths import ROOT


def promtool(*arguments: str, cwd: Path = FOLDER) -> str:
    program = shutil.which("promtool")
    assert program, "Install promtool: make test does so on Debian, `brew install prometheus` elsewhere."
    done = subprocess.run([program, *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_accepts_the_rules_and_each_alert_fires() -> None:
    promtool("check", "rules", ALERTS.name)
    promtool("test", "rules", "alerts.test.yml")
    tests = (FOLDER / "alerts.test.yml").read_text()
    assert {name for name in alerts() if f'alertname="{name}"}}\', value: 1' not in tests} == set()


def test_the_tests_of_rules_notice_a_rule_that_never_fires(tmp_path: Path) -> None:
    (tmp_path / "alerts.yml").write_text(ALERTS.read_text().replace("== 0\n", "== 2\n"))
    shutil.copy(FOLDER / "alerts.test.yml", tmp_path)
    with pytest.raises(AssertionError, match="LorikeetProcessDown"):
        promtool("test", "rules", "alerts.test.yml", cwd=tmp_path)


def test_every_alert_has_a_page_of_its_own_and_every_page_an_alert() -> None:
    pages = {name: ROOT / rule["annotations"]["runbook"] for name, rule in alerts().items()}
    for name, page in pages.items():
        text = page.read_text()
        assert f"`{name}`" in text and "**Effect.**" in text and "\n1. " in text, page
    written = {path for path in (ROOT / "docs" / "incidents").glob("*.md") if path.name != "index.md"}
    assert set(pages.values()) == written
    index = (ROOT / "docs" / "incidents" / "index.md").read_text()
    assert all(f"]({page.name})" in index for page in pages.values())
    assert {rule["labels"]["severity"] for rule in alerts().values()} == {"page", "ticket"}


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_can_be_imported(path: Path, tmp_path: Path) -> None:
    board: dict[str, Any] = json.loads(path.read_text())
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids)) and board["uid"] == f"lorikeet-{path.stem}"
    places = [panel["gridPos"] for panel in board["panels"]]
    cells = [
        (x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells)), "panels overlap"
    assert all(at["x"] + at["w"] <= 24 for at in places)
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries(path))]
    (tmp_path / "queries.yml").write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    promtool("check", "rules", "queries.yml", cwd=tmp_path)
    assert all(panel["title"] and panel["targets"] for panel in panels(path))


def test_the_four_dashboards_are_there() -> None:
    assert {path.stem for path in DASHBOARDS} == {"fleet", "tenants", "adapters", "money"}


def test_counters_are_read_as_rates_and_gauges_are_not() -> None:
    texts = [rule["expr"] for rule in alerts().values()] + [query for path in DASHBOARDS for query in queries(path)]
    for text in texts:
        for name in metrics_in(text):
            is_counter = name.endswith(("_total", "_bucket", "_count", "_sum"))
            read_as = re.findall(rf"(rate|increase|absent)?\(?{name}\b", text)
            assert all(bool(how) == is_counter for how in read_as), (name, text)


def test_compose_scrapes_every_process() -> None:
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    secrets = {"POSTGRES_PASSWORD": "p", "LORIKEET_SECRET_KEY": "s"}
    compose = load_compose(secrets)
    services = compose["services"]
    targets = {
        target for job in config["scrape_configs"] for each in job["static_configs"] for target in each["targets"]
    }
    platform = {name for name in services if name.startswith("worker-") or name in ("beat", "watcher")}
    port = services["beat"]["environment"]["LORIKEET_METRICS_PORT"]
    assert targets == {"web:8000", "engine:9400", *(f"{name}:{port}" for name in platform)}
    assert "web" in services["web"]["environment"]["LORIKEET_ALLOWED_HOSTS"].split(",")
    for name in ("engine-cpu", "engine-gpu"):
        command = services[name]["command"]
        assert command[command.index("--metrics-port") + 1] == "9400"
        assert services[name]["networks"]["default"]["aliases"] == ["engine"]
    assert all(job["job_name"].startswith("lorikeet") for job in config["scrape_configs"])
    (file,) = {job["authorization"]["credentials_file"] for job in config["scrape_configs"]}
    assert Path(file).name in services["prometheus"]["secrets"] and Path(file).name in compose["secrets"]
    for name in ("prometheus", "grafana"):
        mounted = [volume.split(":")[0] for volume in services[name]["volumes"] if volume.startswith("./")]
        assert mounted and all((ROOT / path).exists() for path in mounted)
    promtool("check", "config", "--syntax-only", "prometheus.yml")


def test_the_rules_for_kubernetes_are_the_same() -> None:
    assert alert_rules.TARGET.read_text() == alert_rules.text(), "Run python -m scripts.alert_rules."
    rules = yaml.safe_load(alert_rules.text())
    assert rules["spec"]["groups"] == yaml.safe_load(ALERTS.read_text())["groups"]
