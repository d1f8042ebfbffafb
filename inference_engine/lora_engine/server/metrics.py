"""Counters and gauges in Prometheus' text format, and the small web server that shows them."""

from __future__ import annotations

import socket
import threading
from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from lora_engine.request import RequestFinished
from lora_engine.start_progress import StartProgress
from lora_engine.wire import engine_pb2 as pb

# Upper bounds of histogram buckets in seconds.
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
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
            yield f"{self._name}{labels} {value:g}"


class Histogram:
    """A distribution of durations in seconds, in fixed buckets."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text
        self._counts = [0] * (len(_SECONDS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(_SECONDS, seconds)] += 1
        self._sum += seconds

    def lines(self) -> Iterator[str]:
        yield from _head(self._name, "histogram", self._text)
        total = 0
        for bound, count in zip((*_SECONDS, float("inf")), self._counts, strict=True):
            total += count
            yield f'{self._name}_bucket{{le="{"+Inf" if bound == float("inf") else f"{bound:g}"}"}} {total}'
        yield f"{self._name}_sum {self._sum:g}"
        yield f"{self._name}_count {total}"


class HostMetrics:
    """The metrics that a host counts; others come from its latest status. Only the event loop writes them."""

    def __init__(self) -> None:
        self.requests = Counter("lora_engine_requests_total", "Requests that ended, by outcome.")
        self.errors = Counter("lora_engine_errors_total", "Requests that ended with an error, by its code.")
        self.prompt_tokens = Counter("lora_engine_prompt_tokens_total", "Prompt tokens of requests that ended.")
        self.completion_tokens = Counter("lora_engine_completion_tokens_total", "Generated tokens.")
        self.inter_token = Counter(
            "lora_engine_inter_token_objectives_total",
            "Requests with an objective between tokens, by whether it was met.",
        )
        self.stages = Counter("lora_engine_stages_total", "Adapters staged, by result.")
        self.first_token = Histogram("lora_engine_first_token_seconds", "From submission to the first token.")
        self.queue = Histogram("lora_engine_queue_seconds", "From submission to the first step.")
        self.status = pb.HostStatus()

    def count(self, finished: RequestFinished, inter_token_ms: int = 0, tokens_before: int = 0) -> None:
        """Count a request that ended. ``inter_token_ms`` is its objective (0: none), ``tokens_before`` another host's
        tokens.
        """
        usage = finished.usage
        generated = max(0, usage.completion_tokens - tokens_before)  # a refused request counts neither
        self.requests.add(1, outcome=usage.outcome)
        if finished.error is not None:
            self.errors.add(1, code=finished.error.code)
        self.prompt_tokens.add(usage.prompt_tokens)
        self.completion_tokens.add(generated)
        if inter_token_ms and usage.outcome == "finished" and generated > 1:
            mean = usage.decode_ms / (generated - 1)
            self.inter_token.add(1, kept="yes" if mean <= inter_token_ms else "no")
        if generated:
            self.first_token.observe(usage.first_token_ms / 1000)
            self.queue.observe(usage.queue_ms / 1000)

    def text(self) -> str:
        totals = (self.requests, self.errors, self.prompt_tokens, self.completion_tokens, self.inter_token, self.stages)
        lines = [line for metric in (*totals, self.first_token, self.queue) for line in metric.lines()]
        return "\n".join([*lines, *_status_lines(self.status)]) + "\n"


def _status_lines(status: pb.HostStatus) -> Iterator[str]:
    yield from _gauge("steps", "Engine steps since start.", status.steps)
    yield from _gauge("running", "Sequences in the running batch.", status.running)
    yield from _gauge("waiting", "Sequences in the queue.", status.waiting)
    yield from _gauge("draining", "1 while no new requests are taken.", int(status.draining))
    yield from _gauge("tokens_per_second", "Tokens generated per second, over two seconds.", status.tokens_per_second)
    yield from _gauge("host_arena_bytes", "Bytes of adapters in host memory.", status.host_arena_bytes_used)
    yield from _gauge("unacknowledged_usage", "Usage records waiting in the journal.", status.unacknowledged_usage)
    yield from _gauge("refused_early", "Requests refused by the admission policy.", status.refused_early)
    if status.HasField("first_token"):
        text = "When a request that came now, of a tenant without others, would have its first token."
        yield from _gauge("predicted_first_token_seconds", text, status.first_token.seconds)
    for part in ("median", "p90"):
        name, text = f"forecast_error_{part}", "Relative error of predicted first-token times."
        yield from _gauge(name, text, getattr(status.forecast, part))
    yield from _gauge("merges", "Adapters merged into the second set of weights.", status.merging.merges)
    yield from _gauge("merged_steps", "Steps that ran on merged weights.", status.merging.merged_steps)
    prefill = status.prefill_budget
    yield from _gauge("inter_token_objective_ms", "Objective between tokens that steps keep to.", prefill.objective_ms)
    yield from _gauge("prefill_limited_steps", "Steps whose prefill was cut for it.", prefill.limited_steps)
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


def _tenant_lines(status: pb.HostStatus) -> Iterator[str]:
    """Yield the metrics of at most 100 tenants, those with the longest queues, to keep the page small."""
    for name, kind, text in _TENANT_METRICS:
        yield from _head(f"lora_engine_tenant_{name}", kind, text)
        field = name.removesuffix("_total")
        for share in status.tenants:
            yield f"lora_engine_tenant_{name}{_labels({'tenant': share.tenant})} {getattr(share, field):g}"


def _gauge(name: str, text: str, value: float) -> Iterator[str]:
    yield from _head(f"lora_engine_{name}", "gauge", text)
    yield f"lora_engine_{name} {value:g}"


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _labels(labels: dict[str, str]) -> str:
    inside = ",".join(f'{name}="{value}"' for name, value in sorted(labels.items()))
    return f"{{{inside}}}" if inside else ""


class _Server(ThreadingHTTPServer):
    daemon_threads = True


class _Server6(_Server):
    address_family = socket.AF_INET6


class Pages:
    """The pages that the server shows. Until the engine is ready they only show the progress of its start."""

    def __init__(self, progress: StartProgress) -> None:
        self._progress = progress
        self.metrics: Callable[[], str] = lambda: ""

    def get(self, path: str) -> tuple[int, str]:
        """Return the HTTP status and the text of a page."""
        if path == "/metrics":
            return 200, self.metrics()
        if path == "/livez":
            return 200, "ok\n"
        if path == "/readyz":
            return 200 if self._progress.is_ready else 503, self._progress.text() + "\n"
        return 404, "see /metrics, /readyz and /livez\n"


class MetricsServer:
    """A server of ``Pages`` on one address, in a separate thread, without authentication."""

    def __init__(self, host: str, port: int, pages: Pages) -> None:
        handler = type("Handler", (_Handler,), {"pages": pages})
        self._server = (_Server6 if ":" in host else _Server)((host, port), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    pages: Pages
    timeout = 10.0  # seconds until a silent connection releases its thread

    def do_GET(self) -> None:  # the library's name
        status, text = self.pages.get(self.path)
        payload = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: there is a scrape every few seconds."""
