"""Metrics of all processes: the jobs, queues and tasks, the ledger, and the few tenants and adapters that are named."""

from __future__ import annotations

import urllib.error
import urllib.request
from datetime import date, timedelta
from typing import Any

import pytest
from django.utils import timezone
from lorikeet_testing.ledger import record_event
from lorikeet_testing.seed import add_version
from prometheus_client import REGISTRY

from control_plane.billing.prices.models import PriceVersion
from control_plane.billing.usage.actions import Ended
from control_plane.billing.usage.aggregation import aggregate
from control_plane.billing.usage.counters import Counts
from control_plane.billing.usage.models import Watermark
from control_plane.billing.usage.tasks import forget_abandoned
from control_plane.console.monitoring.busiest import busiest
from control_plane.core.jobs import task_metrics
from control_plane.core.jobs.queue_lengths import QueueLengths
from control_plane.core.jobs.sending import send
from control_plane.core.metrics.endpoint import ProcessMetricsServer, serve_metrics
from control_plane.core.metrics.registry import INSTALLATION, MAX_VALUES, BoundedValues, web_text
from control_plane.gateway.recording.request_metrics import count_request

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]


def installation(name: str, **labels: str) -> float | None:
    return INSTALLATION.get_sample_value(name, labels)


def process(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def series_of(name: str) -> list[dict[str, str]]:
    return [one.labels for family in INSTALLATION.collect() for one in family.samples if one.name == name]


def record(org: Any, number: int, *, tokens: int, version: Any = None, outcome: str = "finished") -> None:
    record_event(
        request_id=f"{org.tenant.slug}-{number}", tenant=org.tenant, model="m", endpoint="completions", outcome=outcome,
        created_at=timezone.now() - timedelta(minutes=2), version=version, adapter=version and version.adapter,
        counts=Counts(prompt_tokens=tokens, cached_prompt_tokens=tokens // 2, completion_tokens=10),
    )  # fmt: skip


def test_the_ledger_and_the_state_of_adapters(acme: Any) -> None:
    add_version(acme.tenant, "support")
    Watermark.objects.update(checked_at=None)
    record(acme, 1, tokens=10)
    assert (installation("lorikeet_usage_rows_behind") or 0) >= 1, "by their ids, which may have gaps"
    assert installation("lorikeet_usage_watermark_age_seconds") is None, "it was never read"
    aggregate()
    assert installation("lorikeet_usage_rows_behind") == 0
    age = installation("lorikeet_usage_watermark_age_seconds")
    assert age is not None and 0 <= age < 60
    states = {one["state"] for one in series_of("lorikeet_adapter_versions")}
    assert {"ready", "failed"} <= states, "those without any are 0"
    assert sum(installation("lorikeet_adapter_versions", state=state) or 0 for state in states) == 1
    assert installation("lorikeet_jobs_open", kind="webhooks") == 0
    assert installation("lorikeet_jobs_oldest_seconds", kind="webhooks") == 0
    assert installation("lorikeet_placements", phase="failed") == 0


def test_few_tenants_and_adapters_are_named_with_their_cost(acme: Any, globex: Any, settings: Any) -> None:
    PriceVersion.objects.create(
        number=1, effective_on=date(2026, 1, 1), currency="USD", input_per_million=60_000_000,
        cached_input_per_million=0, output_per_million=0, storage_per_gb_month=0,
    )  # fmt: skip
    version = add_version(acme.tenant, "support")
    record(acme, 1, tokens=3000, version=version)
    record(acme, 2, tokens=3000, version=version, outcome="failed")
    record(globex, 1, tokens=30)
    aggregate()
    busiest.forget()
    per_s = 1 / 300
    assert installation("lorikeet_tenant_requests_per_second", tenant="acme", outcome="finished") == per_s
    assert installation("lorikeet_adapter_requests_per_second", tenant="acme", adapter="support", outcome="failed") == (
        per_s
    )
    assert installation("lorikeet_tenant_tokens_per_second", tenant="acme", kind="cached_prompt") == 10
    # 3,000 uncached tokens at 60 a million, in five minutes.
    assert installation("lorikeet_tenant_cost_per_hour", tenant="acme", currency="USD") == pytest.approx(0.18 * 12)
    assert {one["tenant"] for one in series_of("lorikeet_tenant_tokens_per_second")} == {"acme", "globex"}
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"metrics_names": 1})
    busiest.forget()
    assert {one["tenant"] for one in series_of("lorikeet_tenant_tokens_per_second")} == {"acme"}
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"metrics_names": 0})
    busiest.forget()
    assert b"acme" not in web_text()


def test_a_request_is_counted_by_its_base_model() -> None:
    base = "metrics-base"
    ended = Ended(
        request_id="r", tenant=None, model="secret-bot", endpoint="completions", outcome="failed",  # type: ignore[arg-type]
        error_code="host_disconnected", created_at=timezone.now(),
        counts=Counts(prompt_tokens=10, cached_prompt_tokens=4, completion_tokens=11, first_token_ms=100, queue_ms=20,
                      adapter_load_ms=50, decode_ms=200, drafted_tokens=9, accepted_tokens=6),
    )  # fmt: skip
    for outcome in ("failed", "finished"):
        count_request(Ended(**{**vars(ended), "outcome": outcome}), base, 2_500_000_000, "USD")
    assert process("lorikeet_requests_total", base_model=base, endpoint="completions", outcome="failed") == 1
    assert process("lorikeet_request_failures_total", base_model=base, code="host_disconnected") == 1
    assert process("lorikeet_tokens_total", base_model=base, kind="prompt") == 12
    assert process("lorikeet_tokens_total", base_model=base, kind="completion") == 22, "drafts are no tokens of theirs"
    drafts = [process("lorikeet_draft_tokens_total", base_model=base, accepted=accepted) for accepted in ("yes", "no")]
    assert drafts == [12, 6]
    assert process("lorikeet_cost_total", base_model=base, currency="USD") == 5
    assert process("lorikeet_inter_token_seconds_sum", base_model=base) == pytest.approx(0.02)
    assert process("lorikeet_first_token_seconds_count", base_model=base) == 2
    assert process("lorikeet_adapter_load_seconds_sum", base_model=base) == pytest.approx(0.1)
    assert b"secret-bot" not in web_text()


def test_values_from_elsewhere_make_a_bounded_number_of_series() -> None:
    values = BoundedValues()
    labels = {values.label(f"code-{number}") for number in range(10 * MAX_VALUES)}
    assert len(labels) == MAX_VALUES + 1
    assert values.label("code-0") == "code-0" and values.label("another") == "other"


def test_a_task_is_counted_by_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    task = forget_abandoned
    before = {end: process("lorikeet_tasks_total", task=task.name, outcome=end) for end in ("succeeded", "failed")}
    task.apply()
    monkeypatch.setattr(task, "run", lambda: 1 / 0)
    task.apply()
    for end, count in before.items():
        assert process("lorikeet_tasks_total", task=task.name, outcome=end) == count + 1, end
    assert process("lorikeet_task_seconds_count", task=task.name) >= 2
    assert task_metrics._name("celery.backend_cleanup") == "other"


def test_the_length_and_the_age_of_a_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    def waiting() -> tuple[float, float]:
        length, age = QueueLengths().collect()
        found = {
            one.labels["queue"]: (one.value, two.value) for one, two in zip(length.samples, age.samples, strict=True)
        }
        return found["exports"]

    before, _ = waiting()
    send("reports.write_next")
    send("reports.write_next")
    length, age = waiting()
    assert length == before + 2
    now = task_metrics.broker_clock.now()
    monkeypatch.setattr(task_metrics.broker_clock, "now", lambda: now + timedelta(seconds=90))
    assert waiting()[1] >= age + 80


@pytest.mark.parametrize(
    ("token", "header", "status"),
    [("", "", 200), ("s3cret", "", 401), ("s3cret", "Bearer s3cret", 200), ("s3cret", "Bearer s3cre", 401)],
)
def test_the_metrics_port_of_a_process(settings: Any, token: str, header: str, status: int) -> None:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"metrics_token": token})
    server = ProcessMetricsServer("127.0.0.1", 0)
    server.start()
    try:
        url = f"http://127.0.0.1:{server.port}/metrics"
        request = urllib.request.Request(url, headers={"Authorization": header} if header else {})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            assert b"lorikeet_tasks_total" in opener.open(request, timeout=10).read()
            assert status == 200
        except urllib.error.HTTPError as error:
            assert error.code == status
        assert server.may_read("192.0.2.7", header) is (bool(token) and status == 200)
    finally:
        server.shutdown()
        server.server_close()


def test_a_taken_metrics_port_does_not_stop_the_process(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert serve_metrics() is None, "none by default"
    taken = ProcessMetricsServer("127.0.0.1", 0)
    try:
        settings.LORIKEET = settings.LORIKEET.model_copy(update={"metrics_port": taken.port})
        assert serve_metrics() is None
        assert "LORIKEET_METRICS_PORT" in caplog.text
    finally:
        taken.server_close()
