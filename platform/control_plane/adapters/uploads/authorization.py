"""Authorises an upload from its headers, before a body is read."""

from __future__ import annotations

import io

from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.core.exceptions import SuspiciousOperation
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse

from control_plane.core.errors import LorikeetError
from control_plane.core.http.bearer import bearer_token
from control_plane.core.http.connections import prove, tenant_holder
from control_plane.core.lifespan import Scope
from control_plane.identity.access.principal import Principal, session_user
from control_plane.identity.access.tenant_access import enter
from control_plane.identity.accounts.auth import enforce_csrf
from control_plane.identity.keys.auth import InvalidKeyError, authenticate_key
from control_plane.identity.tenants.roles import Capability

_BODY_HEADERS = (b"content-type", b"content-length", b"transfer-encoding")


def authorize_upload(scope: Scope, slug: str, needs: Capability = Capability.WRITE_ADAPTERS) -> Principal:
    """Return the authorised caller. Raises the error that the upload view would raise, from the headers alone."""
    request = _request_without_body(scope)
    token = bearer_token(request)
    principal = authenticate_key(token) if token is not None else None
    if token is not None and principal is None:
        raise InvalidKeyError
    user = None if principal else session_user(request)
    if user is not None:
        _check_csrf(request)
    caller = enter(slug, user=user, key_principal=principal)
    caller.require(needs)
    prove(scope, tenant_holder(caller.tenant.pk))
    return caller


def _request_without_body(scope: Scope) -> HttpRequest:
    headers = [(name, value) for name, value in scope["headers"] if name.lower() not in _BODY_HEADERS]
    request = ASGIRequest({**scope, "headers": headers}, io.BytesIO())
    for middleware in (SessionMiddleware, AuthenticationMiddleware):
        middleware(_nothing).process_request(request)
    return request


def _nothing(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


def _check_csrf(request: HttpRequest) -> None:
    try:
        enforce_csrf(request)
    except SuspiciousOperation as error:
        raise LorikeetError(
            "bad_host", "The Host header names a host that this server does not serve.", "Use the server's own address."
        ) from error
