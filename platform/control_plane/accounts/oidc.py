"""The OpenID Connect client: redirects to the provider and verifies what it signed.

Authorization code flow with PKCE, state and nonce (OpenID Connect Core 1.0, 3.1; RFC 7636). What it takes to come back
is kept in a signed cookie of the browser, so that an answer that was asked for elsewhere is worth nothing here.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import Any

import httpx
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.httpx_client import OAuth2Client
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from control_plane.accounts.addresses import normalise_email
from control_plane.config import current
from control_plane.errors import LorikeetError

TIMEOUT_S = 10.0
METADATA_LIFETIME_S = 3600.0
LEEWAY_S = 60
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]


class ProviderError(LorikeetError):
    """The provider is away or says something that cannot be believed. `reason` is for the log, not for the person."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            "oidc_failed",
            "The sign-in with your organisation's provider did not work.",
            "Try again; if it stays, tell whoever runs this installation when it was.",
            status=502,
        )
        self.reason = reason


@dataclass(frozen=True)
class Pending:
    """What is remembered of a person who was sent to the provider."""

    state: str
    nonce: str
    verifier: str
    next: str


@dataclass(frozen=True)
class Claims:
    """What the provider signed about a person."""

    issuer: str
    subject: str
    email: str
    email_verified: bool
    name: str


def is_configured() -> bool:
    return bool(current().oidc_issuer and current().oidc_client_id)


def redirect_uri() -> str:
    """To be entered at the provider."""
    return f"{current().address}/api/oidc/callback"


def begin(following: str) -> tuple[str, Pending]:
    """Where to send a person who then wants to go to the path `following`. Raises ProviderError."""
    pending = Pending(secrets.token_urlsafe(24), secrets.token_urlsafe(24), secrets.token_urlsafe(48), following)
    with _client() as client:
        url, _ = client.create_authorization_url(
            _metadata()["authorization_endpoint"],
            state=pending.state,
            nonce=pending.nonce,
            code_verifier=pending.verifier,
        )
    return str(url), pending


def finish(pending: Pending, *, code: str) -> Claims:
    """Trade the code for what the provider says of the person. Raises ProviderError."""
    metadata = _metadata()
    try:
        with _client() as client:
            token = client.fetch_token(metadata["token_endpoint"], code=code, code_verifier=pending.verifier)
        return _claims(str(token["id_token"]), pending.nonce)
    except (httpx.HTTPError, AuthlibBaseError, JoseError, KeyError, ValueError) as error:
        raise ProviderError(f"{type(error).__name__}: {error}") from error


def _client() -> Any:
    settings = current()
    return OAuth2Client(
        settings.oidc_client_id,
        settings.oidc_client_secret or None,
        token_endpoint_auth_method="client_secret_basic" if settings.oidc_client_secret else "none",
        scope="openid email profile",
        redirect_uri=redirect_uri(),
        code_challenge_method="S256",
        timeout=TIMEOUT_S,
    )


def _claims(id_token: str, nonce: str) -> Claims:
    """Raises JoseError or ValueError unless the token is the provider's, for us, fresh, and the answer to `nonce`."""
    settings = current()
    token = _decode(id_token)
    registry = jwt.JWTClaimsRegistry(
        leeway=LEEWAY_S,
        iss={"essential": True, "value": settings.oidc_issuer},
        aud={"essential": True, "value": settings.oidc_client_id},
        exp={"essential": True},
        iat={"essential": True},
        sub={"essential": True},
        nonce={"essential": True, "value": nonce},
    )
    registry.validate(token.claims)
    claims = token.claims
    audiences = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
    if claims.get("azp", settings.oidc_client_id) != settings.oidc_client_id or (
        len(audiences) > 1 and "azp" not in claims
    ):
        raise ValueError("the token was issued to another client")
    return Claims(
        issuer=str(claims["iss"]),
        subject=str(claims["sub"]),
        email=normalise_email(str(claims.get("email", ""))),
        email_verified=claims.get("email_verified") is True,
        name=str(claims.get("name", ""))[:120],
    )


def _decode(id_token: str) -> Any:
    """With the provider's keys; read once more if it may have changed them."""
    try:
        return jwt.decode(id_token, _keys(fresh=False), algorithms=ALGORITHMS)
    except (JoseError, ValueError):
        return jwt.decode(id_token, _keys(fresh=True), algorithms=ALGORITHMS)


_kept: dict[str, tuple[float, Any]] = {}


def _metadata() -> dict[str, Any]:
    """Raises ProviderError."""
    issuer = current().oidc_issuer
    metadata: dict[str, Any] = _get(f"{issuer.rstrip('/')}/.well-known/openid-configuration", fresh=False)
    if metadata.get("issuer") != issuer:
        raise ProviderError(f"LORIKEET_OIDC_ISSUER is {issuer}, but the provider calls itself {metadata.get('issuer')}")
    return metadata


def _keys(*, fresh: bool) -> KeySet:
    return KeySet.import_key_set(_get(str(_metadata()["jwks_uri"]), fresh=fresh))


def _get(url: str, *, fresh: bool) -> Any:
    """A JSON document of the provider, kept for an hour. Raises ProviderError."""
    fetched_at, document = _kept.get(url, (float("-inf"), None))
    if not fresh and time.monotonic() - fetched_at < METADATA_LIFETIME_S:
        return document
    try:
        answer = httpx.get(url, timeout=TIMEOUT_S)
        answer.raise_for_status()
        document = answer.json()
    except (httpx.HTTPError, ValueError) as error:
        raise ProviderError(f"{url}: {type(error).__name__}: {error}") from error
    _kept[url] = (time.monotonic(), document)
    return document
