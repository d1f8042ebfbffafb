"""Error bodies: `{"error": {code, message, fix, param, request_id}}` for every failure outside /v1."""

from __future__ import annotations

import functools
import inspect
import logging
import math
import sys
from http import HTTPStatus
from typing import Any, cast

from django.core.exceptions import PermissionDenied
from django.db import IntegrityError
from django.http import Http404, HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from rest_framework import exceptions
from rest_framework.response import Response

from control_plane.core.db import is_duplicate
from control_plane.core.errors import LorikeetError
from control_plane.core.http.access import View
from control_plane.core.http.field_texts import fault_of
from control_plane.core.http.request_id import current_request_id
from control_plane.core.storage_errors import as_storage_error
from control_plane.core.unavailable import as_unavailable

logger = logging.getLogger(__name__)
CHALLENGE = 'Bearer realm="lorikeet"'


_FIXES: dict[type[exceptions.APIException], tuple[str, str]] = {
    exceptions.NotAuthenticated: ("not_authenticated", "Log in, or send an API key as `Authorization: Bearer lk_...`."),
    exceptions.AuthenticationFailed: ("authentication_failed", "Check the key or log in again."),
    exceptions.PermissionDenied: ("forbidden", "Ask an owner or admin of the tenant for a role that may do this."),
    exceptions.ParseError: ("malformed_body", "Send a body that matches the Content-Type header."),
    exceptions.NotAcceptable: ("not_acceptable", "Accept application/json."),
    exceptions.Throttled: ("too_many_requests", "Wait as long as the Retry-After header says."),
}
_CONFLICT = "Another request created or changed the same resource at this moment; this one was not carried out."


def error_body(code: str, message: str, fix: str, param: str | None = None) -> dict[str, Any]:
    return {
        "error": {
            "code": code,
            "message": message,
            "fix": fix,
            "param": param,
            "request_id": current_request_id(),
        }
    }


def error_response(status: int, code: str, message: str, fix: str, param: str | None = None) -> JsonResponse:
    return JsonResponse(error_body(code, message, fix, param), status=status)


def headers_of(error: LorikeetError) -> dict[str, str]:
    """Return the headers of an answer with this error."""
    headers = {"WWW-Authenticate": CHALLENGE} if error.status == HTTPStatus.UNAUTHORIZED else {}
    retry_after_s = getattr(error, "retry_after_s", None)
    return headers if retry_after_s is None else {**headers, "Retry-After": str(math.ceil(retry_after_s))}


def exception_handler(exc: Exception, context: dict[str, Any]) -> Response | None:
    """Turn an exception into an answer (DRF's hook). Unexpected errors return None and end in `server_error`."""
    if (refused := as_storage_error(exc)) is not None:
        logger.error("The artifact folder cannot be used: %s", exc)
        exc = refused
    if (away := as_unavailable(exc)) is not None:
        logger.warning("Answered with 503: %s", exc)
        exc = away
    if isinstance(exc, LorikeetError):
        return Response(error_body(**exc.body()), status=exc.status, headers=headers_of(exc))
    if isinstance(exc, Http404):
        return Response(error_body("not_found", "There is nothing at this address.", "Check the id."), status=404)
    if isinstance(exc, PermissionDenied):
        exc = exceptions.PermissionDenied(str(exc) or None)
    if isinstance(exc, exceptions.ValidationError):
        return Response(_validation_body(exc), status=400)
    if isinstance(exc, exceptions.APIException):
        return _from_drf(exc, context.get("view"))
    if isinstance(exc, IntegrityError) and is_duplicate(exc):
        logger.warning("A unique constraint was violated; the request was answered with 409.", exc_info=exc)
        return Response(
            error_body("conflict", _CONFLICT, "Read the resource as it is now, and send the request again if needed."),
            409,
        )
    return None


def _from_drf(exc: exceptions.APIException, view: Any) -> Response:
    if isinstance(exc, exceptions.MethodNotAllowed):
        return _method_not_allowed(view)
    if isinstance(exc, exceptions.UnsupportedMediaType):
        return _unsupported_media_type(view)
    code, fix = next(
        ((code, fix) for kind, (code, fix) in _FIXES.items() if isinstance(exc, kind)),
        ("request_failed", "See /api/docs for what this address expects."),
    )
    headers: dict[str, str] = {}
    if isinstance(exc, exceptions.Throttled):
        headers["Retry-After"] = str(int(getattr(exc, "wait", None) or 1) + 1)
    if challenge := getattr(exc, "auth_header", None):
        headers["WWW-Authenticate"] = challenge
    return Response(error_body(code, str(exc.detail), fix), status=exc.status_code, headers=headers)


def _method_not_allowed(view: Any) -> Response:
    method = getattr(getattr(view, "request", None), "method", None) or "This method"
    allowed = " or ".join(name for name in getattr(view, "allowed_methods", ()) if name not in ("HEAD", "OPTIONS"))
    fix = f"Send {allowed}." if allowed else "See /api/docs for the methods of this address."
    return Response(error_body("method_not_allowed", f"{method} is not allowed here.", fix), 405)


def _unsupported_media_type(view: Any) -> Response:
    sent = getattr(getattr(view, "request", None), "content_type", "") or "none"
    accepted = " or ".join(parser.media_type for parser in getattr(view, "parser_classes", ()))
    fix = f"Send {accepted}." if accepted else "Set the Content-Type that /api/docs names."
    return Response(
        error_body("unsupported_media_type", f"The body's Content-Type, {sent[:80]}, is not accepted here.", fix), 415
    )


def _validation_body(exc: exceptions.ValidationError) -> dict[str, Any]:
    fault = fault_of(exc.detail)
    return error_body("invalid_request", fault.message, fault.fix, fault.param)


READS = ("GET", "HEAD")


def read_only(view: View) -> View:
    """Answer methods other than GET and HEAD with 405, not with an error about a CSRF token or a template."""

    def refusal(request: HttpRequest) -> JsonResponse:
        allowed = ", ".join(READS)
        response = error_response(
            405, "method_not_allowed", f"{request.method} is not allowed here.", f"Send {allowed}."
        )
        response["Allow"] = allowed
        return response

    if inspect.iscoroutinefunction(view):

        @functools.wraps(view)
        async def of_reads(request: HttpRequest) -> Any:
            return await view(request) if request.method in READS else refusal(request)
    else:

        @functools.wraps(view)
        def of_reads(request: HttpRequest) -> Any:
            return view(request) if request.method in READS else refusal(request)

    return cast(View, csrf_exempt(of_reads))


def csrf_failure(request: HttpRequest, reason: str = "") -> JsonResponse:
    return error_response(
        403,
        "csrf_failed",
        f"The request's CSRF check failed: {reason or 'no token'}",
        "Read csrf_token from GET /api/session and send it as the X-CSRFToken header.",
    )


def bad_request(request: HttpRequest, exception: Exception) -> JsonResponse:
    if request.content_type == "multipart/form-data":
        fix = "Send multipart/form-data whose parts begin with the boundary in Content-Type."
        return error_response(400, "bad_request", "The form could not be read.", fix)
    return error_response(400, "bad_request", "The request could not be read.", "Check its headers and body.")


def not_found(request: HttpRequest, exception: Exception) -> JsonResponse:
    fix = "Check the ids in it; /api/docs lists the addresses."
    return error_response(404, "not_found", f"There is nothing at {request.path}.", fix)


def server_error(request: HttpRequest) -> JsonResponse:
    """Answer exceptions from outside DRF's views: middleware, plain views."""
    error = sys.exc_info()[1]
    if error is not None and (away := as_unavailable(error)) is not None:
        logger.warning("Answered with 503: %s", error)
        return JsonResponse(error_body(**away.body()), status=away.status, headers=headers_of(away))
    return error_response(
        500,
        "internal_error",
        "An unexpected error happened on the server; it has been logged.",
        "Try again. If it persists, report the request_id to the operator of this server.",
    )
