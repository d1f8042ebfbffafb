"""Decides by its first bytes which connections the inference process serves itself (`http/handover.py`)."""

from __future__ import annotations

from control_plane.gateway.openai.asgi import FILES, is_inference

SOCKET = "/ws/inference"
# Targets that tell whether inference is available. `/metrics` with a query is served by the second process.
PROBES = frozenset({"/livez", "/readyz", "/readyz/inference", "/health", "/ping", "/metrics"})
BATCHES = "/v1/batches"


def stays(start: bytes) -> bool:
    """Return whether a connection that starts with these bytes is for inference; False while they do not tell."""
    method, _, rest = start.partition(b" ")
    target, ended, _ = rest.partition(b" ")
    if not ended:
        return False
    path = target.partition(b"?")[0].decode("latin-1")
    if path.startswith((FILES, BATCHES)):
        return False
    scope = {"path": path, "method": method.decode("latin-1")}
    return path == SOCKET or target.decode("latin-1") in PROBES or is_inference(scope)
