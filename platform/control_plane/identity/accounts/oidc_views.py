"""Sign-in with the organisation's provider: the redirect to it, and its callback."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
from dataclasses import asdict
from urllib.parse import urlencode

from django.core.cache import cache
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from control_plane.core.errors import LorikeetError, NotFoundError
from control_plane.core.http.access import public
from control_plane.core.http.metrics import SIGN_INS
from control_plane.core.unavailable import as_unavailable
from control_plane.identity.access.principal import session_user
from control_plane.identity.accounts import oidc
from control_plane.identity.accounts.actions import log_out, start_session
from control_plane.identity.accounts.attempts import PROVIDER, count_address
from control_plane.identity.accounts.identities import user_of
from control_plane.identity.accounts.notes import Note
from control_plane.identity.accounts.pending import begin

logger = logging.getLogger(__name__)

WITHIN_S = 600  # for a sign-in, from the first page to the callback
LONGEST_PATH = 500
PENDING = Note("lorikeet_oidc", "/api/oidc/", WITHIN_S)
REFUSAL = Note("lorikeet_sign_in_error", "/api/session", WITHIN_S)


class OidcOffError(NotFoundError):
    def __init__(self) -> None:
        super().__init__(
            "This installation has no provider to sign in with.",
            "Sign in with your password; operators set LORIKEET_OIDC_ISSUER and LORIKEET_OIDC_CLIENT_ID.",
            code="oidc_off",
        )


class StaleError(LorikeetError):
    def __init__(self) -> None:
        super().__init__(
            "oidc_stale",
            "This sign-in was not begun in this browser, is older than ten minutes, or has been used already.",
            "Begin again on the sign-in page.",
        )


@public
@never_cache
@require_GET
def start(request: HttpRequest) -> HttpResponse:
    """Send the browser to the provider."""
    try:
        if not oidc.is_configured():
            raise OidcOffError
        count_address("provider", request.META["REMOTE_ADDR"], PROVIDER)
        url, pending = oidc.begin(_local_path(request.GET.get("next", "")))
    except LorikeetError as error:
        return _refused(error)
    response = HttpResponseRedirect(url)
    PENDING.write(response, asdict(pending))
    return response


@public
@never_cache
@require_GET
def callback(request: HttpRequest) -> HttpResponse:
    """Handle the browser's return from the provider: begin a session, or show the error on the sign-in page."""
    response = _come_back(request)
    PENDING.forget(response)  # valid for one answer
    return response


def _come_back(request: HttpRequest) -> HttpResponse:
    try:
        count_address("provider", request.META["REMOTE_ADDR"], PROVIDER)
        pending = _pending(request)
        claims = oidc.finish(pending, request.GET.dict())
        user = user_of(claims)
        started = start_session(request, user, issuer=claims.issuer)
    except LorikeetError as error:
        return _refused(error)
    except Exception as error:
        if (away := as_unavailable(error)) is None:
            raise
        return _refused(away)
    if started:
        return HttpResponseRedirect(pending.next)
    if before := session_user(request):
        log_out(request, before)
    response = HttpResponseRedirect(f"/login?{urlencode({'next': pending.next})}")
    begin(response, user, issuer=claims.issuer)
    return response


def _pending(request: HttpRequest) -> oidc.Pending:
    """Return the sign-in that this answer belongs to, and use up its state. Raises StaleError."""
    kept = PENDING.read(request)
    if not oidc.is_configured() or kept is None:
        raise StaleError
    pending = oidc.Pending(**kept)
    right = hmac.compare_digest(pending.state.encode(), request.GET.get("state", "").encode())
    used = f"lorikeet:oidc-used:{hashlib.sha256(pending.state.encode()).hexdigest()}"
    # Of two simultaneous requests only one adds it. The cookie alone could be sent again.
    if not right or not cache.add(used, True, WITHIN_S):
        raise StaleError
    return pending


def _refused(error: LorikeetError) -> HttpResponse:
    SIGN_INS.labels("provider_refused").inc()
    detail = {name: getattr(error, name, "") for name in ("reason", "detail")}
    logger.warning("A sign-in by provider failed.", extra={"code": error.code, **detail})
    response = HttpResponseRedirect("/login")
    REFUSAL.write(response, error.body())
    return response


def _local_path(path: str) -> str:
    """Return `path` if it is a path of this console, else "/": an address elsewhere must not be followed."""
    is_local = len(path) <= LONGEST_PATH and re.match(r"/(?![/\\])[^\\\x00-\x20]*\Z", path)
    return path if is_local else "/"
