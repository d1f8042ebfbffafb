"""The log lines of requests, one for each: of HTTP at its end, of inference with its tokens and times.

Addresses are logged by their pattern: those of invitations contain secrets. Checks of health are logged at DEBUG.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from control_plane.core.config import current
from control_plane.core.http.request_id import RequestIds, is_in_request

logger = logging.getLogger("lorikeet.requests")

# Addresses that balancers and Prometheus call every few seconds.
QUIET = frozenset({"/livez", "/readyz", "/readyz/inference", "/metrics", "/health", "/ping"})
# Maximum number of ids of requests that were sent to an engine; their line is written when they are settled.
_MAX_DISPATCHED = 10_000
ROUTE, TENANT = "lorikeet.route", "lorikeet.tenant"
_dispatched: OrderedDict[str, None] = OrderedDict()
_lock = threading.Lock()


def note_dispatched(request_id: str) -> None:
    """Note that a request was sent to an engine: its line comes with its usage, not with the end of its HTTP answer.

    Requests of batches and on sockets are not noted.
    """
    if not is_in_request():
        return
    with _lock:
        _dispatched[request_id] = None
        while len(_dispatched) > _MAX_DISPATCHED:
            _dispatched.popitem(last=False)


def forget_dispatched(request_id: str) -> bool:
    """Take back `note_dispatched`. Returns whether the request was noted."""
    with _lock:
        return _dispatched.pop(request_id, "") is None


def is_logged(*, failed: bool) -> bool:
    """Return True for a request to log: all that failed, and LORIKEET_LOG_REQUESTS of the others."""
    share = current().log_requests
    return failed or share >= 1 or random.random() < share


def log_http(scope: Mapping[str, Any], ids: RequestIds, status: int, began_s: float) -> None:
    """Log an HTTP request, unless it was sent to an engine. `status` is 0 if the client left before the answer."""
    if forget_dispatched(ids.current) or not is_logged(failed=status >= HTTPStatus.BAD_REQUEST):
        return
    level = logging.DEBUG if scope["path"] in QUIET else logging.INFO
    if not logger.isEnabledFor(level):
        return
    state = scope.get("state") or {}
    route, method = state.get(ROUTE, ""), scope["method"][:16]
    fields = {
        "request_id": ids.current or ids.client or "-",
        "method": method,
        "route": route,
        "status": status,
        "ms": round((time.perf_counter() - began_s) * 1000, 1),
        "tenant": state.get(TENANT, ""),
    }
    if ids.client and ids.client != ids.current:
        fields["client_request_id"] = ids.client
    logger.log(level, "%s %s %d", method, route or "-", status, extra=fields)
