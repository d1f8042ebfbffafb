"""Requests and stagings as OpenTelemetry spans: below the caller's, with where the time went, without any text."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from lorikeet_testing.fake_engine import FakeEngineThread
from lorikeet_testing.web import WebProcess, eventually
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from control_plane.billing.usage.actions import Ended
from control_plane.billing.usage.counters import Counts, Details
from control_plane.core import traces
from control_plane.core.config import Settings, current
from control_plane.gateway.recording.spans import report_request

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CALLER = f"00-{TRACE}-{SPAN}-01"
BEGAN = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)


@pytest.fixture
def exported(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    settings.LORIKEET = current().model_copy(update={"otlp_url": "http://collector:4318"})
    exporter = InMemorySpanExporter()
    provider = traces.make_provider(exporter, 1.0)
    monkeypatch.setattr(traces, "_provider", lambda url, share: provider)
    yield exporter
    provider.shutdown()


def ended(**changed: Any) -> Ended:
    values: dict[str, Any] = {
        "request_id": "req_1",
        "tenant": SimpleNamespace(slug="acme"),
        "model": "support",
        "version": SimpleNamespace(number=3),
        "endpoint": "chat.completions",
        "outcome": "finished",
        "created_at": BEGAN,
        "host": "gpu1",
        "counts": Counts(
            prompt_tokens=12,
            completion_tokens=5,
            queue_ms=30,
            adapter_load_ms=20,
            prefill_ms=40,
            decode_ms=100,
            first_token_ms=95,
            preemptions=1,
        ),
        "details": Details(
            auth_ms=2, quota_ms=3, finish_reason="stop", adapter_loaded_from="disk", preemption_spans=((120, 25),)
        ),
    }
    return Ended(**{**values, **changed})


def spans(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    traces.flush(5)
    return {span.name: span for span in exporter.get_finished_spans()}


def ms(span: ReadableSpan) -> tuple[int, int]:
    assert span.start_time is not None and span.end_time is not None
    began = round(BEGAN.timestamp() * 1000)
    return round(span.start_time / 1e6) - began, round(span.end_time / 1e6) - began


def test_a_request_is_a_span_below_its_caller_with_its_phases_in_it(exported: InMemorySpanExporter) -> None:
    report_request(ended(), CALLER)
    found = spans(exported)
    whole = found.pop("chat support")
    assert whole.context is not None and whole.parent is not None and whole.attributes is not None
    assert format(whole.context.trace_id, "032x") == TRACE and format(whole.parent.span_id, "016x") == SPAN
    assert whole.kind == SpanKind.SERVER and whole.status.status_code == StatusCode.UNSET
    told = dict(whole.attributes)
    assert told["gen_ai.operation.name"] == "chat" and told["gen_ai.request.model"] == "support"
    assert told["gen_ai.response.model"] == "support@v3"
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (12, 5)
    assert told["gen_ai.response.finish_reasons"] == ("stop",) and told["server.address"] == "gpu1"
    assert {name: ms(span) for name, span in found.items()} == {
        "admission": (0, 2),
        "limits": (2, 5),
        "queue": (5, 35),
        "load adapter": (35, 55),
        "prefill": (55, 95),
        "decode": (95, 195),
        "pre-empted": (125, 150),
    }
    assert all(span.parent and span.parent.span_id == whole.context.span_id for span in found.values())
    assert found["load adapter"].attributes == {"lorikeet.loaded_from": "disk"}


def test_without_a_caller_it_is_a_trace_of_its_own_and_a_failure_says_why(exported: InMemorySpanExporter) -> None:
    report_request(ended(outcome="failed", error_code="adapter_overflow", endpoint="embeddings"), "")
    whole = spans(exported)["embeddings support"]
    assert whole.parent is None and whole.status.status_code == StatusCode.ERROR
    assert whole.attributes is not None and whole.attributes["error.type"] == "adapter_overflow"


def test_a_caller_that_is_not_sampled_is_not_traced(exported: InMemorySpanExporter) -> None:
    report_request(ended(), CALLER[:-1] + "0")
    assert not spans(exported)


@pytest.mark.parametrize("header", ["", "x", CALLER.upper() + "Z", CALLER + "\n", "00-1-2-3", CALLER[:-3], "00" * 500])
def test_what_is_no_parent_is_left_out(header: str) -> None:
    traces.set_parent(header)
    assert traces.parent() == ""
    traces.set_parent(CALLER)
    assert traces.parent() == CALLER


def test_off_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "_provider", None)
    report_request(ended(), CALLER)
    traces.report(traces.SpanPart("x", 0, 1, {}), [])
    traces.flush(1)


def test_asked_for_without_the_packages_no_process_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings(var_dir=tmp_path, otlp_url="http://nowhere:1").otlp_url
    monkeypatch.setattr("control_plane.core.config._has_opentelemetry", lambda: False)
    with pytest.raises(ValueError, match=r"pip install '\.\[otel\]'"):
        Settings(var_dir=tmp_path, otlp_url="http://nowhere:1")
    assert not Settings(var_dir=tmp_path).otlp_url


class OtlpCollector:
    """Takes spans over OTLP."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        received = self.spans

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    for scope in resource.scope_spans:
                        received.extend(scope.spans)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None: ...

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def test_a_collector_gets_requests_and_stagings_and_no_text(tmp_path: Path) -> None:
    collector = OtlpCollector()
    engine = FakeEngineThread(f"unix:{tmp_path}/e.sock")
    environment = {"LORIKEET_OTLP_URL": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "100", "NO_PROXY": "127.0.0.1"}
    web = WebProcess(tmp_path / "var", f"local={engine.engine.address}", environment)
    try:
        web.seed()
        web.start()
        web.wait_until_ready("support")
        headers = {**web.tenants["acme"].bearer, "traceparent": CALLER}
        for streamed in (False, True):
            body = {"model": "support", "messages": [{"role": "user", "content": "my secret"}], "stream": streamed}
            url = f"{web.url}/v1/chat/completions"
            assert httpx.post(url, json=body, headers=headers, trust_env=False, timeout=30).status_code == 200
        whole = eventually(
            lambda: len(collector.named("chat support")) == 2 and collector.named("chat support"), what="spans"
        )
        assert all(span.trace_id.hex() == TRACE and span.parent_span_id.hex() == SPAN for span in whole)
        assert eventually(lambda: collector.named("stage adapter"), what="a staging")
        assert "my secret" not in str(collector.spans)
    finally:
        web.stop()
        engine.close()
        collector.close()
