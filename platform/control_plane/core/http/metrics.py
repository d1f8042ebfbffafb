"""Metrics of HTTP requests and sockets, and the page of a web process for Prometheus.

Each process counts separately: with several of them, scrape each. Names of tenants, adapters and people are not labels
here, because there are too many; `console.monitoring.busiest` names a few.
"""

from __future__ import annotations

import time

from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from prometheus_client import Counter, Gauge, Histogram

from control_plane.core.http.access import public
from control_plane.core.http.bearer import bearer_token
from control_plane.core.http.errors import read_only
from control_plane.core.http.middleware import HybridMiddleware
from control_plane.core.http.request_log import ROUTE, TENANT
from control_plane.core.metrics.registry import CONTENT_TYPE, web_text
from control_plane.core.secrets.keys import accepted, is_one_of

REQUESTS = Counter("lorikeet_http_requests", "Requests answered.", ["method", "route", "status"])
SECONDS = Histogram(
    "lorikeet_http_request_seconds",
    "From the request's head to the answer's: a stream is counted when it begins.",
    ["route"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
SOCKETS = Gauge("lorikeet_sockets_open", "Websockets that are open.", ["path"])
SOCKET_ERRORS = Counter("lorikeet_socket_errors", "Error frames and closings of websockets, by code.", ["path", "code"])
SIGN_INS = Counter("lorikeet_sign_ins", "Sign-ins, by how they ended.", ["outcome"])
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}


class MeasuringMiddleware(HybridMiddleware):
    """Middleware that counts requests by URL pattern, so that ids create no new series."""

    def before(self, request: HttpRequest) -> None:
        request.META["lorikeet.began"] = time.perf_counter()

    def after(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        match = request.resolver_match
        route = match.route if match else "console"
        state = getattr(request, "scope", {}).get("state")
        if state is not None:
            state[ROUTE] = route
            state.setdefault(TENANT, match.kwargs.get("tenant", "") if match else "")
        method = request.method if request.method in _METHODS else "other"
        REQUESTS.labels(method, route, str(response.status_code)).inc()
        SECONDS.labels(route).observe(time.perf_counter() - request.META["lorikeet.began"])
        return response


@public
@read_only
def metrics(request: HttpRequest) -> HttpResponse:
    """Return the metrics to a caller with LORIKEET_METRICS_TOKEN; 404 while that is not set."""
    if not is_one_of(bearer_token(request) or "", accepted("metrics-token")):
        raise Http404
    return HttpResponse(web_text(), content_type=CONTENT_TYPE)
