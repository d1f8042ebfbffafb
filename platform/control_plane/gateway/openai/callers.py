"""Who sends a request of /v1, known from its headers: before a byte of its body is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from control_plane.access.principal import Principal
from control_plane.gateway.admission import MissingKeyError
from control_plane.gateway.runtime import runtime
from control_plane.http.bearer import token_of
from control_plane.http.connections import prove, tenant_holder

CALLER = "lorikeet.caller"


@dataclass(frozen=True)
class Authentication:
    """A principal, or why there is no answer: who it is, or how much they sent."""

    principal: Principal | None = None
    error: Exception | None = None


async def identify(scope: Mapping[str, Any]) -> Authentication:
    """Counts the connection for the caller's tenant."""
    given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    token = token_of(given.decode("latin-1"))
    if not token:
        return Authentication(error=MissingKeyError())
    try:
        principal = await runtime().admission_cache.caller(token)
        prove(scope, tenant_holder(principal.tenant.pk))
        return Authentication(principal)
    except Exception as error:  # the view that asks for the caller answers with it
        return Authentication(error=error)


def caller_of(request: HttpRequest) -> Principal:
    """Raises what was met before: ApiError or LorikeetError (401, 403, 413, 429, 503), or an error of the database."""
    caller: Authentication = request.META[CALLER]
    if caller.principal is None:
        raise caller.error or MissingKeyError()
    return caller.principal
