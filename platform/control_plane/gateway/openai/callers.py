"""The caller of a request to /v1: authenticated from its headers, before its body is read."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest

from control_plane.core.http.bearer import token_of
from control_plane.core.http.connections import prove, tenant_holder
from control_plane.gateway.dispatch.admission import Admission, MissingKeyError
from control_plane.gateway.dispatch.runtime import runtime
from control_plane.identity.access.principal import Principal

_KEY_HEADERS = frozenset({b"authorization", b"x-api-key", b"api-key"})


@dataclass(frozen=True)
class Authentication:
    """A principal, or the error to answer with: a bad key, a body that is too large, a limit."""

    principal: Principal | None = None
    error: Exception | None = None
    took_s: float = 0.0


class GatewayRequest(ASGIRequest):
    """A request to /v1. ``GatewayHandler`` sets its authentication before the view runs."""

    authentication = Authentication()
    cors_headers: Mapping[str, str] = MappingProxyType({})


def _token_in(scope: Mapping[str, Any]) -> str | None:
    """Return the key of a request: a bearer token, or as Anthropic's and Azure's clients send it."""
    headers = {name: value.decode("latin-1") for name, value in scope["headers"] if name in _KEY_HEADERS}
    if token := token_of(headers.get(b"authorization", "")):
        return token
    return (headers.get(b"x-api-key") or headers.get(b"api-key") or "").strip() or None


async def identify(scope: Mapping[str, Any]) -> Authentication:
    """Authenticate a request by its headers, and count the connection for the caller's tenant."""
    token = _token_in(scope)
    if not token:
        return Authentication(error=MissingKeyError())
    began = time.monotonic()
    try:
        principal = await runtime().admission_cache.caller(token)
        prove(scope, tenant_holder(principal.tenant.pk))
        return Authentication(principal, took_s=time.monotonic() - began)
    except Exception as error:  # caller_of raises it in the view
        return Authentication(error=error)


def caller_of(request: HttpRequest) -> Principal:
    """Return the caller, or raise the authentication error: ApiError or LorikeetError (401, 403, 413, 429, 503), or a
    database error.
    """
    assert isinstance(request, GatewayRequest), "GatewayHandler makes the requests of /v1"
    if request.authentication.principal is None:
        raise request.authentication.error or MissingKeyError()
    return request.authentication.principal


async def admission_of(request: HttpRequest, model: str) -> Admission:
    """Admit the caller to a model. Raises as ``caller_of`` does, and ``LorikeetError`` about the model."""
    principal = caller_of(request)
    admission = await runtime().admission_cache.admission(principal, model)
    assert isinstance(request, GatewayRequest)
    return replace(admission, took_s=admission.took_s + request.authentication.took_s)
