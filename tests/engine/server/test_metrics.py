"""The engine's metrics: valid for Prometheus, few with thousands of adapters, for nobody without the token."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lora_engine.request import RequestFinished, RequestUsage
from lora_engine.server.metrics import AdapterLoad, HostMetrics
from lora_engine.server.metrics_server import MetricsServer, Pages
from lora_engine.start_progress import StartProgress
from lora_engine.wire import engine_pb2 as pb

TIERS = pb.AdapterResidency
OTHER_MACHINE = "192.0.2.7"


def samples(metrics: HostMetrics, name: str) -> list[tuple[dict[str, str], float]]:
    parsed = text_string_to_metric_families(metrics.text())
    return [(one.labels, one.value) for family in parsed for one in family.samples if one.name == name]


def busy(adapters: int) -> HostMetrics:
    """Return the metrics of a host with so many adapters on the device, every second one with requests."""
    metrics = HostMetrics(pb.EngineDescription(base_model="llama", max_running=64, page_tokens=16, pages_total=1000))
    metrics.status.unix_time = 1_700_000_000.25
    metrics.status.running, metrics.status.waiting = 3, 4
    metrics.status.pool.total, metrics.status.pool.reserved = 1000, 0
    metrics.status.pool.adapter, metrics.status.pool.kv = 200, 400
    for number in range(adapters):
        metrics.status.adapters.add(digest=f"sha256:{number}", tier=TIERS.DEVICE, running=number % 2)
    metrics.adapters = {f"sha256:{n}": AdapterLoad(f"bot-{n}", 2) for n in range(1, adapters, 2)}
    return metrics


def test_the_names_that_gateways_read() -> None:
    metrics = busy(4)
    metrics.adapters = {
        **metrics.adapters,
        "sha256:0": AdapterLoad('a"b\\c\nd,e', 5),
        "sha256:gone": AdapterLoad("new", 1),
    }
    assert samples(metrics, "vllm:num_requests_running") == [({"model_name": "llama"}, 3)]
    assert samples(metrics, "vllm:num_requests_waiting") == [({"model_name": "llama"}, 4)]
    for name in ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"):
        assert samples(metrics, name) == [({"model_name": "llama"}, 0.5)]
    ((labels, time),) = samples(metrics, "vllm:lora_requests_info")
    assert time == 1_700_000_000.25
    assert labels == {
        "max_lora": "64",
        "running_lora_adapters": "bot-1,bot-3",
        "waiting_lora_adapters": 'a"b\\c\nd e,new',
    }
    assert ({"block_size": "16", "num_gpu_blocks": "1000"}, 1.0) in samples(metrics, "vllm:cache_config_info")


def test_each_adapter_with_requests_has_its_counts_and_its_tier() -> None:
    metrics = busy(4)
    metrics.adapters = {**metrics.adapters, "sha256:gone": AdapterLoad("new", 1)}
    running = {one["adapter"]: value for one, value in samples(metrics, "lora_engine_adapter_running")}
    waiting = {one["adapter"]: value for one, value in samples(metrics, "lora_engine_adapter_waiting")}
    tiers = {one["adapter"]: one["tier"] for one, _ in samples(metrics, "lora_engine_adapter_tier")}
    assert running == {"bot-1": 1, "bot-3": 1, "new": 0}
    assert waiting == {"bot-1": 1, "bot-3": 1, "new": 1}
    assert tiers == {"bot-1": "device", "bot-3": "device", "new": "none"}


def test_guessed_tokens_are_counted_by_adapter_up_to_a_hundred() -> None:
    metrics = HostMetrics()
    for number in range(120):
        usage = RequestUsage("", "", f"sha256:{number:064}"[:71], drafted_tokens=4, accepted_tokens=number % 2)
        for _ in range(2):
            metrics.count(RequestFinished("", usage), adapter=f"bot-{number}")
    drafted = {labels["adapter"]: value for labels, value in samples(metrics, "lora_engine_drafted_tokens_total")}
    accepted = {labels["adapter"]: value for labels, value in samples(metrics, "lora_engine_accepted_tokens_total")}
    assert len(drafted) == len(accepted) == 101
    assert (drafted["bot-7"], accepted["bot-7"], accepted["bot-8"]) == (8, 2, 0)
    assert (drafted["other"], accepted["other"]) == (160, 20)


def test_thousands_of_adapters_make_no_thousands_of_series() -> None:
    few, many = busy(4).text(), busy(6000).text()
    assert many.count("\n") < few.count("\n") + 3 * 100
    assert len(many) < 100_000


def test_counters_are_typed_as_counters_and_keep_their_digits() -> None:
    metrics = busy(0)
    metrics.status.steps = 12_345_678
    for _ in range(3):
        usage = RequestUsage("r", "t", "", prompt_tokens=5_000_001, completion_tokens=11, decode_ms=200,
                             first_token_ms=5, adapter_load_ms=40)  # fmt: skip
        metrics.count(RequestFinished("r", usage))
    text = metrics.text()
    assert "lora_engine_steps_total 12345678\n" in text
    assert "lora_engine_prompt_tokens_total 15000003\n" in text
    for family in text_string_to_metric_families(text):
        assert (family.type == "counter") == all(one.name.endswith("_total") for one in family.samples) or (
            not family.samples or family.type == "histogram"
        ), family.name
    ((_, sum_s),) = samples(metrics, "lora_engine_inter_token_seconds_sum")
    assert sum_s == pytest.approx(0.06)
    assert samples(metrics, "lora_engine_adapter_load_seconds_count") == [({}, 3)]
    assert samples(metrics, "lora_engine_info")[0][0]["base_model"] == "llama"


@pytest.mark.parametrize(
    ("token", "is_open", "address", "header", "status"),
    [
        ("", False, "127.0.0.1", "", 200),
        ("", False, "::1", "", 200),
        ("", False, "::ffff:127.0.0.1", "", 200),
        ("", False, OTHER_MACHINE, "", 401),
        ("", False, f"::ffff:{OTHER_MACHINE}", "Bearer ", 401),
        ("", True, OTHER_MACHINE, "", 200),
        ("s3cret", False, OTHER_MACHINE, "Bearer s3cret", 200),
        ("s3cret", False, OTHER_MACHINE, "bearer  s3cret", 200),
        ("s3cret", False, "127.0.0.1", "", 401),
        ("s3cret", True, OTHER_MACHINE, "Bearer s3cre", 401),
        ("s3cret", False, "127.0.0.1", "Bearer \xfc", 401),
        ("s3cret", False, "127.0.0.1", "Basic s3cret", 401),
    ],
)
def test_who_reads_the_metrics(token: str, is_open: bool, address: str, header: str, status: int) -> None:
    pages = Pages(StartProgress(), token, open_metrics=is_open)
    pages.metrics = lambda: "figures\n"
    assert pages.get("/metrics", address, header)[0] == status
    assert pages.get("/metrics?name[]=up", address, header)[0] == status
    assert pages.get("/livez", OTHER_MACHINE)[0] == 200, "probes have no token"
    assert pages.get("/readyz", OTHER_MACHINE)[0] == 503, "probes have no token"


@contextmanager
def served(pages: Pages) -> Iterator[str]:
    server = MetricsServer("127.0.0.1", 0, pages)
    server.start()
    try:
        yield f"http://127.0.0.1:{server.port}/metrics"
    finally:
        server.stop()


def test_the_server_passes_the_header_on() -> None:
    pages = Pages(StartProgress(), "s3cret")
    pages.metrics = lambda: "figures\n"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with served(pages) as url:
        with pytest.raises(urllib.error.HTTPError) as refused:
            opener.open(url, timeout=10)
        assert refused.value.code == 401
        assert refused.value.headers["WWW-Authenticate"] == "Bearer"
        request = urllib.request.Request(url, headers={"Authorization": "Bearer s3cret"})
        assert opener.open(request, timeout=10).read() == b"figures\n"


def test_experts_outside_the_pool_are_counted_where_that_is_possible() -> None:
    metrics = busy(1)
    assert not samples(metrics, "lora_engine_experts")
    counts = pb.ResidentExperts(resident=3, total=8, promotions=5, demotions=2, pairs=100, host_pairs=7)
    metrics.status.experts.CopyFrom(counts)
    values = {"experts_resident": 3, "experts": 8, "expert_promotions_total": 5, "expert_demotions_total": 2}
    for name, value in (values | {"expert_pairs_total": 100, "expert_host_pairs_total": 7}).items():
        assert samples(metrics, f"lora_engine_{name}") == [({}, value)]
