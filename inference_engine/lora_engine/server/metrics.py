"""Counters, gauges and histograms in Prometheus' text format, some of them under vLLM's names too.

Gateways that choose a model server by its metrics (the Gateway API inference extension, llm-d) read those of vLLM.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from lora_engine.request import RequestFinished, RequestUsage
from lora_engine.wire import engine_pb2 as pb
from lorikeet_version import build_version

# Upper bounds of histogram buckets in seconds: of waits and loads, and of the time between two tokens.
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5)
# Adapters with series of their own, those with the most requests: a page must stay small with thousands of adapters.
_MOST_ADAPTERS = 100
# Maximum number of adapters in the list of those with waiting requests, and of those with running ones.
_MOST_LISTED = 256
_TENANT_METRICS = (
    ("waiting", "gauge", "Sequences of the tenant in the queue."),
    ("running", "gauge", "Sequences of the tenant in the batch."),
    ("input_tokens_total", "counter", "Prompt tokens processed for the tenant, under the fair order."),
    ("output_tokens_total", "counter", "Tokens generated for the tenant, under the fair order."),
    ("owed", "gauge", "Share of the engine that its weight is owed among the tenants active now."),
    ("received", "gauge", "Share of the engine's service that it had over the last 10 to 20 s."),
)
_TIERS = {pb.AdapterResidency.DISK: "disk", pb.AdapterResidency.HOST: "host", pb.AdapterResidency.DEVICE: "device"}


class Counter:
    """A total that only grows, by labels."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text
        self._values: Tally[str] = Tally()

    def add(self, amount: float, **labels: str) -> None:
        self._values[_labels(labels)] += amount  # type: ignore[assignment]

    def lines(self) -> Iterator[str]:
        yield from _head(self._name, "counter", self._text)
        for labels, value in sorted(self._values.items()):
            yield f"{self._name}{labels} {_number(value)}"


class Histogram:
    """A distribution of durations in seconds, in fixed buckets."""

    def __init__(self, name: str, text: str, bounds: tuple[float, ...] = _SECONDS) -> None:
        self._name = name
        self._text = text
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def lines(self) -> Iterator[str]:
        yield from _head(self._name, "histogram", self._text)
        total = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            yield f'{self._name}_bucket{{le="{"+Inf" if bound == float("inf") else f"{bound:g}"}"}} {total}'
        yield f"{self._name}_sum {_number(self._sum)}"
        yield f"{self._name}_count {total}"


@dataclass(frozen=True)
class AdapterLoad:
    """The open requests of an adapter: its name in the latest of them, and how many there are."""

    name: str
    requests: int


class HostMetrics:
    """The metrics that a host counts; others come from its latest status. Only the event loop writes them."""

    def __init__(self, description: pb.EngineDescription | None = None) -> None:
        self.description = description or pb.EngineDescription()
        self.requests = Counter("lora_engine_requests_total", "Requests that ended, by outcome.")
        self.errors = Counter("lora_engine_errors_total", "Requests that ended with an error, by its code.")
        self.prompt_tokens = Counter("lora_engine_prompt_tokens_total", "Prompt tokens of requests that ended.")
        self.completion_tokens = Counter("lora_engine_completion_tokens_total", "Generated tokens.")
        self.inter_token = Counter(
            "lora_engine_inter_token_objectives_total",
            "Requests with an objective between tokens, by whether it was met.",
        )
        self.drafted = Counter("lora_engine_drafted_tokens_total", "Guessed tokens that steps computed, by adapter.")
        self.accepted = Counter("lora_engine_accepted_tokens_total", "Guessed tokens that were right, by adapter.")
        self._drafting: set[str] = set()  # digests with series of their own
        self.stages = Counter("lora_engine_stages_total", "Adapters staged, by result.")
        for result in ("ready", "failed"):  # the first failure must be visible as a step from 0
            self.stages.add(0, result=result)
        self.first_token = Histogram("lora_engine_first_token_seconds", "From submission to the first token.")
        self.queue = Histogram("lora_engine_queue_seconds", "From submission to the first step.")
        self.between_tokens = Histogram(
            "lora_engine_inter_token_seconds", "Mean time between a request's tokens.", _TOKEN_SECONDS
        )
        self.load = Histogram("lora_engine_adapter_load_seconds", "Waits of requests for their adapter to be loaded.")
        self.status = pb.HostStatus()
        # Adapters with open requests, by digest.
        self.adapters: Mapping[str, AdapterLoad] = {}

    def count(
        self, finished: RequestFinished, inter_token_ms: int = 0, tokens_before: int = 0, adapter: str = ""
    ) -> None:
        """Count a request that ended. ``inter_token_ms`` is its objective (0: none), ``tokens_before`` another host's
        tokens, ``adapter`` the name in the request.
        """
        usage = finished.usage
        generated = max(0, usage.completion_tokens - tokens_before)  # a refused request counts neither
        self.requests.add(1, outcome=usage.outcome)
        if finished.error is not None:
            self.errors.add(1, code=finished.error.code)
        self.prompt_tokens.add(usage.prompt_tokens)
        self.completion_tokens.add(generated)
        if usage.outcome == "finished" and generated > 1:
            mean = usage.decode_ms / (generated - 1)
            self.between_tokens.observe(mean / 1000)
            if inter_token_ms:
                self.inter_token.add(1, kept="yes" if mean <= inter_token_ms else "no")
        if generated:
            self.first_token.observe(usage.first_token_ms / 1000)
            self.queue.observe(usage.queue_ms / 1000)
        if usage.adapter_load_ms:
            self.load.observe(usage.adapter_load_ms / 1000)
        if usage.drafted_tokens:
            self._count_drafts(usage, adapter)

    def _count_drafts(self, usage: RequestUsage, adapter: str) -> None:
        """Count guessed tokens, of the first adapters by name and of all others together."""
        digest = usage.adapter_digest
        if len(self._drafting) < _MOST_ADAPTERS:
            self._drafting.add(digest)
        labels = {"adapter": adapter, "digest": digest[:19]} if digest in self._drafting else {"adapter": "other"}
        self.drafted.add(usage.drafted_tokens, **labels)
        self.accepted.add(usage.accepted_tokens, **labels)

    def text(self) -> str:
        totals = (self.requests, self.errors, self.prompt_tokens, self.completion_tokens, self.inter_token, self.stages)
        drafts = (self.drafted, self.accepted)
        times = (self.first_token, self.between_tokens, self.queue, self.load)
        lines = [line for metric in (*totals, *drafts, *times) for line in metric.lines()]
        lines += [*_info_lines(self.description), *_status_lines(self.status)]
        lines += [*_adapter_lines(self.status, self.adapters)]
        lines += [*_vllm_lines(self.status, self.adapters, self.description)]
        return "\n".join(lines) + "\n"


def _status_lines(status: pb.HostStatus) -> Iterator[str]:
    yield from _counter("steps_total", "Engine steps since start.", status.steps)
    yield from _gauge("running", "Sequences in the running batch.", status.running)
    yield from _gauge("waiting", "Sequences in the queue.", status.waiting)
    yield from _gauge("draining", "1 while no new requests are taken.", int(status.draining))
    yield from _gauge("tokens_per_second", "Tokens generated per second, over two seconds.", status.tokens_per_second)
    yield from _gauge("host_arena_bytes", "Bytes of adapters in host memory.", status.host_arena_bytes_used)
    yield from _gauge("unacknowledged_usage", "Usage records waiting in the journal.", status.unacknowledged_usage)
    yield from _counter("refused_early_total", "Requests refused by the admission policy.", status.refused_early)
    if status.HasField("first_token"):
        text = "When a request that came now, of a tenant without others, would have its first token."
        yield from _gauge("predicted_first_token_seconds", text, status.first_token.seconds)
    for part in ("median", "p90"):
        name, text = f"forecast_error_{part}", "Relative error of predicted first-token times."
        yield from _gauge(name, text, getattr(status.forecast, part))
    yield from _counter("merges_total", "Adapters merged into the second set of weights.", status.merging.merges)
    yield from _counter("merged_steps_total", "Steps that ran on merged weights.", status.merging.merged_steps)
    yield from _expert_lines(status)
    prefill = status.prefill_budget
    yield from _gauge("inter_token_objective_ms", "Objective between tokens that steps keep to.", prefill.objective_ms)
    yield from _counter("prefill_limited_steps_total", "Steps whose prefill was cut for it.", prefill.limited_steps)
    yield from _gauge(
        "clock_seconds", "This host's clock, in seconds since 1970, at the latest status.", status.unix_time
    )
    yield from _tenant_lines(status)
    yield from _head("lora_engine_pool_pages", "gauge", "Pages of the pool, by what they hold.")
    for kind in ("total", "free", "kv", "state", "cached_prefix", "adapter", "reserved"):
        yield f'lora_engine_pool_pages{{kind="{kind}"}} {getattr(status.pool, kind)}'
    usable = status.pool.total - status.pool.reserved
    text = "Of the pool's pages that are not reserved, those with keys and values of running requests."
    yield from _gauge("kv_share", text, status.pool.kv / usable if usable else 0.0)
    yield from _head("lora_engine_adapters", "gauge", "Adapters, by the tier nearest to the device.")
    tally = Tally(_TIERS.get(adapter.tier, "unknown") for adapter in status.adapters)
    for tier in _TIERS.values():
        yield f'lora_engine_adapters{{tier="{tier}"}} {tally[tier]}'
    yield from _head("lora_engine_adapters_by_dtype", "gauge", "Adapters in memory, by the dtype of their factors.")
    dtypes = Tally(adapter.dtype for adapter in status.adapters if adapter.dtype)
    for dtype in sorted(dtypes):
        yield f'lora_engine_adapters_by_dtype{{dtype="{dtype}"}} {dtypes[dtype]}'


def _expert_lines(status: pb.HostStatus) -> Iterator[str]:
    """Yield the metrics of adapters on experts, if only some experts are in the pool."""
    if not status.HasField("experts") or status.experts.setting == "full":
        return
    experts = status.experts
    yield from _gauge("experts_resident", "Units of experts of adapters in the page pool.", experts.resident)
    yield from _gauge("experts", "Units of experts of the adapters on the device, in the pool or not.", experts.total)
    text = "Units of experts that were copied into the page pool because the router chose them."
    yield from _counter("expert_promotions_total", text, experts.promotions)
    text = "Units of experts whose pages were given to others."
    yield from _counter("expert_demotions_total", text, experts.demotions)
    yield from _counter("expert_pairs_total", "Pairs of a token and an expert of adapters on experts.", experts.pairs)
    text = "Pairs of a token and an expert whose rows were read from host memory."
    yield from _counter("expert_host_pairs_total", text, experts.host_pairs)


def _tenant_lines(status: pb.HostStatus) -> Iterator[str]:
    """Yield the metrics of at most 100 tenants, those with the longest queues, to keep the page small."""
    for name, kind, text in _TENANT_METRICS:
        yield from _head(f"lora_engine_tenant_{name}", kind, text)
        field = name.removesuffix("_total")
        for share in status.tenants:
            yield f"lora_engine_tenant_{name}{_labels({'tenant': share.tenant})} {_number(getattr(share, field))}"


def _info_lines(description: pb.EngineDescription) -> Iterator[str]:
    labels = {"base_model": description.base_model, "version": build_version()}
    yield from _head("lora_engine_info", "gauge", "1, with the engine's version and its base model as labels.")
    yield f"lora_engine_info{_labels(labels)} 1"


def _adapter_lines(status: pb.HostStatus, open_adapters: Mapping[str, AdapterLoad]) -> Iterator[str]:
    """Yield the metrics of the adapters with the most open requests."""
    busiest = sorted(open_adapters.items(), key=lambda item: (-item[1].requests, item[0]))[:_MOST_ADAPTERS]
    resident = {adapter.digest: adapter for adapter in status.adapters} if busiest else {}
    parts: tuple[list[str], ...] = ([], [], [])
    for digest, load in busiest:
        adapter = resident.get(digest)
        running = min(adapter.running, load.requests) if adapter else 0
        labels = {"adapter": load.name, "digest": digest[:19]}
        tier = _TIERS.get(adapter.tier, "unknown") if adapter else "none"
        parts[0].append(f"lora_engine_adapter_running{_labels(labels)} {running}")
        parts[1].append(f"lora_engine_adapter_waiting{_labels(labels)} {load.requests - running}")
        parts[2].append(f"lora_engine_adapter_tier{_labels({**labels, 'tier': tier})} 1")
    texts = (
        ("running", "Requests of an adapter in the batch; of the 100 adapters with the most requests."),
        ("waiting", "Requests of an adapter in the queue; of the 100 adapters with the most requests."),
        ("tier", "1, with the tier nearest to the device that has the adapter; of the same 100 adapters."),
    )
    for (name, text), lines in zip(texts, parts, strict=True):
        yield from _head(f"lora_engine_adapter_{name}", "gauge", text)
        yield from lines


def _vllm_lines(
    status: pb.HostStatus, open_adapters: Mapping[str, AdapterLoad], description: pb.EngineDescription
) -> Iterator[str]:
    """Yield what the Gateway API inference extension and llm-d read, under vLLM's names and with its labels."""
    model = _labels({"model_name": description.base_model})
    usable = status.pool.total - status.pool.reserved - status.pool.adapter
    # Cached prefixes and states are evicted for new requests, as vLLM's own cached blocks count as free.
    usage = f"{status.pool.kv / usable if usable > 0 else 0.0:g}"
    gauges = (
        ("num_requests_running", "Requests in the running batch.", str(status.running)),
        ("num_requests_waiting", "Requests in the queue.", str(status.waiting)),
        ("kv_cache_usage_perc", "Share of the pages for keys and values that requests use; 1 is all.", usage),
        ("gpu_cache_usage_perc", "The same as kv_cache_usage_perc, by its name until vLLM 0.10.", usage),
    )
    for name, text, value in gauges:
        yield from _head(f"vllm:{name}", "gauge", text)
        yield f"vllm:{name}{model} {value}"
    blocks = {"block_size": str(description.page_tokens), "num_gpu_blocks": str(description.pages_total)}
    yield from _head("vllm:cache_config_info", "gauge", "1, with the size and the number of pages as labels.")
    yield f"vllm:cache_config_info{_labels(blocks)} 1"
    running = {adapter.digest for adapter in status.adapters if adapter.running} & open_adapters.keys()
    labels = {
        "max_lora": str(description.max_running),
        "running_lora_adapters": _listed(open_adapters[digest] for digest in running),
        "waiting_lora_adapters": _listed(load for digest, load in open_adapters.items() if digest not in running),
    }
    yield from _head("vllm:lora_requests_info", "gauge", "Time of this list of adapters with requests, as Unix time.")
    yield f"vllm:lora_requests_info{_labels(labels)} {status.unix_time or time.time():.3f}"


def _listed(loads: Iterable[AdapterLoad]) -> str:
    """Return names with commas between, those with the most requests first; a comma within a name becomes a space."""
    most = sorted(loads, key=lambda load: (-load.requests, load.name))[:_MOST_LISTED]
    return ",".join(dict.fromkeys(load.name.replace(",", " ") for load in most))


def _gauge(name: str, text: str, value: float) -> Iterator[str]:
    yield from _head(f"lora_engine_{name}", "gauge", text)
    yield f"lora_engine_{name} {int(value) if float(value).is_integer() else f'{value:g}'}"


def _counter(name: str, text: str, value: float) -> Iterator[str]:
    yield from _head(f"lora_engine_{name}", "counter", text)
    yield f"lora_engine_{name} {_number(value)}"


def _number(value: float) -> str:
    """Return a value with all its digits: six of them would stop a counter of millions for thousands of events."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _labels(labels: dict[str, str]) -> str:
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(labels.items()))
    return f"{{{inside}}}" if inside else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
