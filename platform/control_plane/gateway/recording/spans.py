"""Spans of a request that has ended: where its time went, below the caller's own span."""

from __future__ import annotations

import time
from collections.abc import Iterator

from control_plane.billing.usage.actions import Ended
from control_plane.billing.usage.counters import PHASES
from control_plane.billing.usage.models import ApiEndpoint, Outcome
from control_plane.core import traces
from control_plane.core.traces import SpanPart

_OPERATIONS = {
    ApiEndpoint.COMPLETIONS: "text_completion",
    ApiEndpoint.EMBEDDINGS: "embeddings",
}
_NAMES = {
    "auth_ms": "admission",
    "quota_ms": "limits",
    "queue_ms": "queue",
    "adapter_load_ms": "load adapter",
    "prefill_ms": "prefill",
    "decode_ms": "decode",
}


def report_request(ended: Ended, caller: str) -> None:
    """Report the spans of a request. ``caller`` is its traceparent, or "". Does nothing if tracing is off."""
    if not traces.is_on():
        return
    operation = _OPERATIONS.get(ApiEndpoint(ended.endpoint), "chat")
    start, counts = ended.created_at.timestamp(), ended.counts
    attributes: dict[str, str | int | bool | list[str]] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "lorikeet",
        "gen_ai.request.model": ended.model,
        "gen_ai.response.id": ended.request_id,
        "gen_ai.usage.input_tokens": counts.prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": counts.cached_prompt_tokens,
        "gen_ai.usage.output_tokens": counts.completion_tokens,
        "server.address": ended.host,
        "lorikeet.tenant": ended.tenant.slug,
        "lorikeet.outcome": ended.outcome,
        "lorikeet.streamed": ended.streamed,
        "lorikeet.batch": ended.batch,
        "lorikeet.first_token_ms": counts.first_token_ms,
        "lorikeet.preemptions": counts.preemptions,
        "lorikeet.drafted_tokens": counts.drafted_tokens,
        "lorikeet.accepted_tokens": counts.accepted_tokens,
    }
    if ended.version is not None:
        attributes["gen_ai.response.model"] = f"{ended.model}@v{ended.version.number}"
    if reason := ended.details.finish_reason:
        attributes["gen_ai.response.finish_reasons"] = [reason]
    parts = [*_parts(ended, start)]
    end = max([time.time(), *(part.end for part in parts)])
    failed = ended.outcome in (Outcome.FAILED, Outcome.REFUSED)
    traces.report(
        SpanPart(f"{operation} {ended.model}", start, end, attributes),
        parts,
        caller=caller,
        error=(ended.error_code or str(ended.outcome)) if failed else "",
        is_server=True,
    )


def _parts(ended: Ended, start: float) -> Iterator[SpanPart]:
    """Yield the phases in order, and the pauses of pre-emptions within them."""
    details, at = ended.details, start
    engine = start + (details.auth_ms + details.quota_ms) / 1000
    for phase in PHASES:
        took = getattr(details if phase in ("auth_ms", "quota_ms") else ended.counts, phase) / 1000
        if took:
            loads = phase == "adapter_load_ms" and details.adapter_loaded_from
            yield SpanPart(_NAMES[phase], at, at + took, {"lorikeet.loaded_from": loads} if loads else {})
        at += took
    for begun_ms, took_ms in details.preemption_spans:
        begun = engine + begun_ms / 1000
        yield SpanPart("pre-empted", begun, begun + took_ms / 1000, {})
