"""Metrics of requests at their end, by base model. Tenants and adapters are no labels: there are thousands of each."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

from control_plane.billing.usage.actions import Ended
from control_plane.billing.usage.models import Outcome
from control_plane.core.metrics.registry import BoundedValues

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5)
_BASE = ["base_model"]
_codes = BoundedValues()
NANOS = 1_000_000_000

INFERENCES = Counter(
    "lorikeet_requests", "Requests that reached an engine, by their end.", ["base_model", "endpoint", "outcome"]
)
FAILURES = Counter("lorikeet_request_failures", "Failed and refused requests, by the error's code.", [*_BASE, "code"])
TOKENS = Counter(
    "lorikeet_tokens", "Tokens of requests that ended; cached tokens of prompts are separate.", [*_BASE, "kind"]
)
DRAFTS = Counter(
    "lorikeet_draft_tokens",
    "Tokens that speculation drafted, of requests that ended, by whether they were accepted; never billed.",
    [*_BASE, "accepted"],
)
COST = Counter("lorikeet_cost", "Cost of requests that ended, in units of the currency.", [*_BASE, "currency"])
FIRST_TOKEN = Histogram(
    "lorikeet_first_token_seconds", "From a request's submission to its first token.", _BASE, buckets=_SECONDS
)
INTER_TOKEN = Histogram(
    "lorikeet_inter_token_seconds", "Mean time between the tokens of a request.", _BASE, buckets=_TOKEN_SECONDS
)
QUEUE = Histogram("lorikeet_request_queue_seconds", "Time that a request waited to run.", _BASE, buckets=_SECONDS)
LOAD = Histogram(
    "lorikeet_adapter_load_seconds", "Time that a request waited for its adapter, if it did.", _BASE, buckets=_SECONDS
)


def count_request(ended: Ended, base_model: str, cost_nanos: int, currency: str | None) -> None:
    """Count a request that has ended, with its cost in billionths of the currency."""
    counts, base = ended.counts, base_model or "unknown"
    INFERENCES.labels(base, ended.endpoint, ended.outcome).inc()
    if ended.outcome in (Outcome.FAILED, Outcome.REFUSED):
        FAILURES.labels(base, _codes.label(ended.error_code)).inc()
    TOKENS.labels(base, "prompt").inc(counts.prompt_tokens - counts.cached_prompt_tokens)
    TOKENS.labels(base, "cached_prompt").inc(counts.cached_prompt_tokens)
    TOKENS.labels(base, "completion").inc(counts.completion_tokens)
    if counts.drafted_tokens:
        DRAFTS.labels(base, "yes").inc(counts.accepted_tokens)
        DRAFTS.labels(base, "no").inc(max(0, counts.drafted_tokens - counts.accepted_tokens))
    if currency:
        COST.labels(base, currency).inc(cost_nanos / NANOS)
    if counts.first_token_ms:
        FIRST_TOKEN.labels(base).observe(counts.first_token_ms / 1000)
        QUEUE.labels(base).observe(counts.queue_ms / 1000)
    if ended.outcome == Outcome.FINISHED and counts.completion_tokens > 1:
        INTER_TOKEN.labels(base).observe(counts.decode_ms / (counts.completion_tokens - 1) / 1000)
    if counts.adapter_load_ms:
        LOAD.labels(base).observe(counts.adapter_load_ms / 1000)
