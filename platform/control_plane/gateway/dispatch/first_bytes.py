"""Which connections the process of inference serves itself, told by their first bytes (`http/handover.py`)."""

from __future__ import annotations

from control_plane.gateway.openai.asgi import FILES, is_inference

SOCKET = "/ws/inference"
PROBES = frozenset({"/livez", "/readyz", "/readyz/inference", "/health", "/ping", "/metrics"})
"""Asked by who wants to know whether there is inference. `/metrics` with parameters is the second process's."""
BATCHES = "/v1/batches"


def stays(start: bytes) -> bool:
    """Whether a connection that begins so is for inference. What cannot be told yet is not."""
    method, _, rest = start.partition(b" ")
    target, ended, _ = rest.partition(b" ")
    if not ended:
        return False
    path = target.partition(b"?")[0].decode("latin-1")
    if path.startswith((FILES, BATCHES)):
        return False
    scope = {"path": path, "method": method.decode("latin-1")}
    return path == SOCKET or target.decode("latin-1") in PROBES or is_inference(scope)
