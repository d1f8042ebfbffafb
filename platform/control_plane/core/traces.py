"""OpenTelemetry spans of requests and stagings, created at their end from times that are measured anyway.

Off without `LORIKEET_OTLP_URL`. Nothing is traced while a request runs, and the engine needs no tracing: each usage
record carries its times. Names follow the conventions for generative AI; prompts and answers are never included.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from control_plane.core.config import current

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

logger = logging.getLogger(__name__)

_FORM = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.{0,100})?")
_parent: ContextVar[str] = ContextVar("lorikeet_traceparent", default="")
Attributes = Mapping[str, str | int | float | bool | list[str]]


@dataclass(frozen=True)
class SpanPart:
    """A span within another; times in seconds since 1970."""

    name: str
    start: float
    end: float
    attributes: Attributes


def set_parent(header: str) -> None:
    """Set the caller's `traceparent` for the request that this code runs for; an invalid one is ignored."""
    _parent.set(header if _FORM.fullmatch(header) else "")


def parent() -> str:
    return _parent.get()


def is_on() -> bool:
    return bool(current().otlp_url)


def report(
    whole: SpanPart, parts: Iterable[SpanPart], *, caller: str = "", error: str = "", is_server: bool = False
) -> None:
    """Send a span and its parts, if traces are on, below the caller's span if there is one."""
    if is_on():
        _report(_provider(current().otlp_url, current().trace_share), whole, parts, caller, error, is_server)


def _report(
    provider: TracerProvider, whole: SpanPart, parts: Iterable[SpanPart], caller: str, error: str, is_server: bool
) -> None:
    from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    tracer = provider.get_tracer("lorikeet")
    above = TraceContextTextMapPropagator().extract({"traceparent": caller} if caller else {})
    kind = SpanKind.SERVER if is_server else SpanKind.INTERNAL
    span = tracer.start_span(whole.name, above, kind, whole.attributes, start_time=_ns(whole.start))
    within = set_span_in_context(span)
    for part in parts:
        child = tracer.start_span(part.name, within, attributes=part.attributes, start_time=_ns(part.start))
        child.end(_ns(part.end))
    if error:
        span.set_attribute("error.type", error)
        span.set_status(Status(StatusCode.ERROR, error))
    span.end(_ns(whole.end))


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


@lru_cache(maxsize=1)
def _provider(url: str, share: float) -> TracerProvider:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return make_provider(OTLPSpanExporter(f"{url.rstrip('/')}/v1/traces", timeout=5), share)


def make_provider(exporter: SpanExporter, share: float) -> TracerProvider:
    """Return a provider that sends in batches from a thread, and drops spans that the collector accepts too slowly."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    # A caller's sampling decision holds; of the other requests a share is sampled.
    made = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(share)),
        resource=Resource.create({"service.name": "lorikeet"}),
        shutdown_on_exit=False,
    )
    made.add_span_processor(BatchSpanProcessor(exporter))
    return made


def flush(seconds: float) -> None:
    """Send all spans at the end of a process; blocks for `seconds` at most."""
    if is_on():
        _provider(current().otlp_url, current().trace_share).force_flush(round(seconds * 1000))
