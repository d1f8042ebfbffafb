"""Errors of /v1 in OpenAI's shape, with ``fix`` added, and of the websocket in Lorikeet's."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.http import JsonResponse

from control_plane.core.errors import LorikeetError
from control_plane.core.unavailable import as_unavailable
from control_plane.fleet.transport.errors import HostError

logger = logging.getLogger(__name__)

# HTTP statuses of engine and gateway error codes. A code that is not listed is an internal error of the engine: 500.
_STATUS = {
    "context_length_exceeded": 400,
    "chat_template_missing": 400,
    "chat_template_too_costly": 400,
    "empty_prompt": 400,
    "prefix_too_short": 400,
    "invalid_constraint": 400,
    "invalid_messages": 400,
    "invalid_request": 400,
    "invalid_value": 400,
    "too_large_for_host": 400,
    "tools_not_supported": 400,
    "unsupported_parameter": 400,
    "adapters_cannot_be_combined": 400,
    "rank_too_high": 400,
    "untied_embedding_layers": 400,
    "invalid_api_key": 401,
    "key_scope_missing": 403,
    "tenant_suspended": 403,
    "model_archived": 404,
    "model_not_found": 404,
    "client_too_slow": 408,
    "adapter_does_not_fit": 422,
    "adapter_overflow": 422,
    "constraint_too_complex": 422,
    "rate_limit_exceeded": 429,
    "quota_exceeded": 429,
    "slo_unattainable": 429,
    "too_many_generations": 429,
    "overloaded": 503,
    "draining": 503,
    "adapter_not_found": 503,
    "adapter_not_resident": 503,
    "adapter_too_large_for_host": 503,
    "adapter_too_large_for_pool": 503,
    "artifact_not_found": 503,
    "artifact_too_large": 503,
    "artifact_unavailable": 503,
    "base_model_changed": 503,
    "digest_mismatch": 503,
    "disk_error": 503,
    "disk_tier_damaged": 503,
    "disk_tier_full": 503,
    "host_arena_full": 503,
    "invalid_artifact": 503,
    "journal_unavailable": 503,
    "other_base_model": 503,
    "stage_failed": 503,
    "structured_outputs_unavailable": 503,
    "no_ready_host": 503,
    "engine_unavailable": 503,
    "engine_disconnected": 503,
    "engine_stopped": 503,
    "deadline_exceeded": 504,
}
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
DEFAULT_RETRY_S = 2.0


@dataclass(eq=False)
class ApiError(Exception):
    """An error for the client. ``retry_after_s`` becomes the ``Retry-After`` header; ``details`` go into the body."""

    status: int
    code: str
    message: str
    fix: str
    param: str | None = None
    retry_after_s: float | None = None
    headers: Mapping[str, str] | None = None
    details: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        return f"{self.status} {self.code}: {self.message}"

    @property
    def type(self) -> str:
        """OpenAI's coarse class of error."""
        return _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")

    def openai_body(self) -> dict[str, Any]:
        """Return the body in OpenAI's shape. ``message`` includes the fix, because SDKs show only the message."""
        return {
            "error": {
                "message": f"{self.message} {self.fix}".strip(),
                "type": self.type,
                "param": self.param,
                "code": self.code,
                "fix": self.fix,
                **(self.details or {}),
            }
        }

    def frame_body(self) -> dict[str, Any]:
        """Return the body of an error frame on a websocket."""
        body = {"code": self.code, "message": self.message, "fix": self.fix, "param": self.param}
        return {**body, **(self.details or {})}

    def response(self, body: Callable[[ApiError], dict[str, Any]] | None = None) -> JsonResponse:
        """Return the HTTP response, with OpenAI's body or the one that `body` makes."""
        headers = {"Retry-After": str(math.ceil(self.retry_after_s))} if self.retry_after_s is not None else {}
        shown = self.openai_body() if body is None else body(self)
        return JsonResponse(shown, status=self.status, headers={**headers, **(self.headers or {})})


def of(error: Exception) -> ApiError:
    """Return the response to any error; an unexpected one is logged."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, HostError):
        return from_failure(error)
    if isinstance(error, LorikeetError):
        return from_platform(error)
    if (away := as_unavailable(error)) is not None:
        logger.warning("A request was answered with 503: %s", error)
        return from_platform(away)
    logger.error("A request failed.", exc_info=error)
    return internal()


def invalid(message: str, fix: str, param: str | None = None, code: str = "invalid_value") -> ApiError:
    return ApiError(400, code, message, fix, param)


def too_large(limit: int) -> ApiError:
    return ApiError(
        413,
        "request_too_large",
        f"The request is larger than {limit} bytes.",
        "Send a shorter prompt, or ask the operator to raise LORIKEET_REQUEST_MAX_BYTES.",
    )


def from_failure(failure: HostError) -> ApiError:
    status = _STATUS.get(failure.code, 500)
    retry = failure.retry_after_s
    if retry is None and status in (429, 503):
        retry = DEFAULT_RETRY_S
    return ApiError(status, failure.code, failure.message, failure.fix, failure.param or None, retry)


def from_platform(error: LorikeetError) -> ApiError:
    retry = getattr(error, "retry_after_s", None)
    return ApiError(error.status, error.code, error.message, error.fix, error.param, retry)


def internal() -> ApiError:
    return ApiError(
        500,
        "internal_error",
        "Something went wrong on the server; it has been logged.",
        "Send the request again. If it fails again, report the X-Request-Id to the operator of this server.",
    )
