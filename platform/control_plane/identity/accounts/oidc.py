"""The OpenID Connect client: redirects to the provider and verifies its signed answers.

Authorization code flow with PKCE, state and nonce (OpenID Connect Core 1.0, 3.1; RFC 7636), and the issuer of the
answer (RFC 9207). The state of a sign-in is in a signed cookie of the browser, so that an answer to another browser's
request is refused here.

The requests go through `http/egress.py`, which bounds their size and their time; joserfc verifies signatures. Both read
what a server sent, so all their errors become a ProviderError.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import quote, urlencode

from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry, KeySet

from control_plane.core.config import current
from control_plane.core.errors import LorikeetError
from control_plane.core.http import egress
from control_plane.core.names import name_problem, without_refused
from control_plane.identity.accounts.addresses import normalise_email

# Seconds for one answer of the provider to arrive completely, and for all that one page needs.
ANSWER_S = 10.0
PAGE_S = 20.0
# Bytes of one answer. Discovery documents, key sets and tokens have a few thousand.
MAX_BYTES = 1 << 20
METADATA_LIFETIME_S = 3600.0
LEEWAY_S = 60
# Age in seconds of an ID token that proves a sign-in of now; as long as a sign-in may take from its first page.
MAX_TOKEN_AGE_S = 600
# Characters of a subject (OpenID Connect Core 1.0, 2), of an address, and of a display name, which is cut.
LONGEST_SUBJECT, LONGEST_EMAIL, LONGEST_NAME = 255, 254, 120
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]


class ProviderError(LorikeetError):
    """The provider cannot be reached, or it sent something that cannot be trusted.

    `reason` completes the message. It contains no text of the provider, because strangers may read it; `detail`, which
    is for the log, may.
    """

    def __init__(self, reason: str, detail: object = "") -> None:
        super().__init__(
            "oidc_failed",
            f"The sign-in with your organisation's provider failed: {reason}.",
            "Try again; if it persists, report this message and the time to the operator of this installation.",
            status=502,
        )
        self.reason = reason
        self.detail = ascii(detail)[:500] if detail else ""


class DeclinedError(LorikeetError):
    """The provider's answer is an error instead of a code."""

    def __init__(self, code: str) -> None:
        super().__init__(
            "oidc_declined",
            f"Your provider declined the sign-in ({re.sub(r'[^a-z_]', '', code)[:40] or 'no reason given'}).",
            "Try again, or ask the administrator of the provider.",
        )


@dataclass(frozen=True)
class Pending:
    """A sign-in that began in this browser and waits for the provider's answer."""

    state: str
    nonce: str
    verifier: str
    next: str


@dataclass(frozen=True)
class Claims:
    """A person's identity as the provider signed it."""

    issuer: str
    subject: str
    email: str
    email_verified: bool
    name: str


@dataclass(frozen=True)
class ProviderMetadata:
    """The parts of the provider's discovery document that the flow needs."""

    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    # True if every answer names its issuer (RFC 9207).
    sends_issuer: bool


class Deadline:
    """The time until which one page may wait for the provider."""

    def __init__(self) -> None:
        self._end = time.monotonic() + PAGE_S

    def seconds_for_answer(self) -> float:
        """Return the seconds for the next answer. Raises ProviderError when none are left."""
        left = min(ANSWER_S, self._end - time.monotonic())
        if left <= 0:
            raise ProviderError(f"it did not answer within {PAGE_S:.0f} s")
        return left


def is_configured() -> bool:
    return bool(current().oidc_issuer and current().oidc_client_id)


def redirect_uri() -> str:
    """Return the address to register at the provider."""
    return f"{current().address}/api/oidc/callback"


def begin(following: str) -> tuple[str, Pending]:
    """Return the provider's page, for a person who then goes on to the path `following`. Raises ProviderError."""
    pending = Pending(secrets.token_urlsafe(24), secrets.token_urlsafe(24), secrets.token_urlsafe(48), following)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(pending.verifier.encode()).digest()).decode().rstrip("=")
    query = urlencode(
        {
            "response_type": "code",
            "client_id": current().oidc_client_id,
            "redirect_uri": redirect_uri(),
            "scope": "openid email profile",
            "state": pending.state,
            "nonce": pending.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
    )
    page = _metadata(Deadline()).authorization_endpoint
    return f"{page}{'&' if '?' in page else '?'}{query}", pending


def finish(pending: Pending, answer: Mapping[str, str]) -> Claims:
    """Exchange the code of the provider's answer, a query of the callback, for the identity that it signed.

    Raises DeclinedError, ProviderError.
    """
    deadline = Deadline()
    _check_issuer(answer.get("iss"), deadline)
    if "error" in answer:
        raise DeclinedError(answer["error"])
    code = answer.get("code")
    if not code:
        raise ProviderError("its answer has no code")
    payload = _signed_payload(_fetch_id_token(pending, code, deadline), deadline)
    return _checked_claims(_parse_object(payload, "its ID token"), pending.nonce)


def _check_issuer(issuer: str | None, deadline: Deadline) -> None:
    """Raise ProviderError if `iss` is another issuer's, or missing although the provider always sends it."""
    if issuer is None and _metadata(deadline).sends_issuer:
        raise ProviderError("its answer does not name its issuer")
    if issuer is not None and issuer != current().oidc_issuer:
        raise ProviderError("the answer came from another issuer", issuer)


def _fetch_id_token(pending: Pending, code: str, deadline: Deadline) -> str:
    settings = current()
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect_uri(),
        "code_verifier": pending.verifier,
    }
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    if settings.oidc_client_secret:
        login = ":".join(quote(part, safe="") for part in (settings.oidc_client_id, settings.oidc_client_secret))
        headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
    else:
        form["client_id"] = settings.oidc_client_id
    url = _metadata(deadline).token_endpoint
    token = _fetch("its token endpoint", url, deadline, body=urlencode(form).encode(), headers=headers)
    id_token = token.get("id_token")
    if not isinstance(id_token, str):
        raise ProviderError("its token endpoint returned no ID token", list(token))
    return id_token


def _signed_payload(id_token: str, deadline: Deadline) -> bytes:
    """Return the content of a token that one of the provider's keys signed; changed keys are read again."""
    for fresh in (False, True):
        keys = _keys(deadline, fresh=fresh)
        try:
            return jws.deserialize_compact(id_token, keys, algorithms=ALGORITHMS).payload
        except Exception as error:
            failure = error
    raise ProviderError("its ID token is not signed by one of its keys", failure) from failure


def _checked_claims(claims: dict[str, Any], nonce: str) -> Claims:
    """Raise ProviderError unless the token is the provider's, for this client, recent, and the answer to `nonce`."""
    settings = current()
    registry = jwt.JWTClaimsRegistry(
        leeway=LEEWAY_S,
        iss={"essential": True, "value": settings.oidc_issuer},
        aud={"essential": True, "value": settings.oidc_client_id},
        exp={"essential": True},
        iat={"essential": True},
        sub={"essential": True},
        nonce={"essential": True, "value": nonce},
    )
    try:
        registry.validate(claims)
    except JoseError as error:
        raise ProviderError(f"its ID token was not accepted. {error.description.rstrip('.')}", error) from error
    if claims["iat"] < time.time() - MAX_TOKEN_AGE_S - LEEWAY_S:
        raise ProviderError(f"its ID token was issued more than {MAX_TOKEN_AGE_S // 60} minutes ago", claims["iat"])
    audiences = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
    if claims.get("azp", settings.oidc_client_id) != settings.oidc_client_id or (
        len(audiences) > 1 and "azp" not in claims
    ):
        raise ProviderError("its ID token was issued to another client", claims.get("azp"))
    return Claims(
        issuer=claims["iss"],
        subject=_plain_text(claims, "sub", LONGEST_SUBJECT),
        email=normalise_email(_plain_text(claims, "email", LONGEST_EMAIL)),
        email_verified=claims.get("email_verified") is True,
        name=_display_name(claims),
    )


def _plain_text(claims: dict[str, Any], name: str, longest: int) -> str:
    """Return the claim, "" if it is missing.

    Raises ProviderError if it is not text, too long, or not a possible name.
    """
    value = claims.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ProviderError(f"its ID token's claim {name} is not text", type(value).__name__)
    if len(value) > longest:
        raise ProviderError(f"its ID token's claim {name} has {len(value)} characters; {longest} are the most")
    if name_problem(value) is not None:
        raise ProviderError(f"its ID token's claim {name} contains characters that are not allowed", value)
    return value


def _display_name(claims: dict[str, Any]) -> str:
    """Return the person's name without the directional marks that some providers add."""
    name = claims.get("name")
    if not isinstance(name, str):
        return ""
    if re.search(r"[\x00-\x1f\x7f\ud800-\udfff]", name):
        raise ProviderError("its ID token's claim name contains characters that are not allowed", name)
    return " ".join(without_refused(name).split())[:LONGEST_NAME]


# Documents of the provider that passed their checks, by address, with the time at which they were read.
_documents: dict[str, tuple[float, Any]] = {}


def _remembered(url: str) -> Any:
    read_at, document = _documents.get(url, (float("-inf"), None))
    return document if time.monotonic() - read_at < METADATA_LIFETIME_S else None


def _remember(url: str, document: Any) -> None:
    _documents[url] = (time.monotonic(), document)


def _metadata(deadline: Deadline) -> ProviderMetadata:
    issuer = current().oidc_issuer
    url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    metadata: ProviderMetadata | None = _remembered(url)
    if metadata is None:
        document = _fetch("its discovery document", url, deadline)
        if document.get("issuer") != issuer:
            raise ProviderError("LORIKEET_OIDC_ISSUER is not what it calls itself", document.get("issuer"))
        metadata = ProviderMetadata(
            authorization_endpoint=_endpoint(document, "authorization_endpoint"),
            token_endpoint=_endpoint(document, "token_endpoint"),
            jwks_uri=_endpoint(document, "jwks_uri"),
            sends_issuer=document.get("authorization_response_iss_parameter_supported") is True,
        )
        _remember(url, metadata)
    return metadata


def _endpoint(document: dict[str, Any], name: str) -> str:
    """Return an address of the discovery document, which must be as safe as the issuer's."""
    url = document.get(name)
    try:
        address = egress.check_url(url if isinstance(url, str) else "", allow_private=True)
    except egress.UrlRefusedError as error:
        raise ProviderError(f"its discovery document has no valid {name}", url) from error
    if address.scheme != "https" and current().oidc_issuer.startswith("https:"):
        raise ProviderError(f"the {name} of its discovery document does not begin with https://", url)
    return str(address)


def _keys(deadline: Deadline, *, fresh: bool) -> KeySet:
    url = _metadata(deadline).jwks_uri
    keys: KeySet | None = None if fresh else _remembered(url)
    if keys is None:
        document: Any = _fetch("its key set", url, deadline)
        keys = _usable_keys(document)
        _remember(url, keys)
    return keys


def _usable_keys(document: dict[str, Any]) -> KeySet:
    """Return the readable keys of a set; others, for example of an unknown curve, are ignored (RFC 7517, 5)."""
    keys: list[Any] = []
    failure: Exception | None = None
    listed = document.get("keys")
    for each in listed if isinstance(listed, list) else []:
        try:
            keys.append(JWKRegistry.import_key(each))
        except Exception as error:
            failure = error
    if not keys:
        raise ProviderError("its key set is not valid", failure or "") from failure
    return KeySet(keys)


def _fetch(
    what: str, url: str, deadline: Deadline, *, body: bytes | None = None, headers: dict[str, str] | None = None
) -> dict[str, Any]:
    """Return the JSON object at `url`, by POST if there is a body. Redirects are refused. Raises ProviderError."""
    try:
        answer = egress.exchange(
            "GET" if body is None else "POST",
            url,
            body or b"",
            {
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                "User-Agent": "Lorikeet/1",
                **(headers or {}),
            },
            most_bytes=MAX_BYTES,
            seconds=deadline.seconds_for_answer(),
            allow_private=True,  # the operator chose the provider, which is often in the same network
        )
    except egress.NotPublicError as error:
        raise ProviderError(f"the host name of {what} was not found", url) from error
    except egress.UrlRefusedError as error:
        raise ProviderError(f"the address of {what} cannot be called", url) from error
    except egress.EgressError as error:
        raise ProviderError(f"{what} could not be read. {str(error).rstrip('.')}", url) from error
    if answer.body is None:
        raise ProviderError(f"{what} sent more than {MAX_BYTES} bytes", url)
    if answer.status != 200:
        _refuse_status(what, url, answer)
    return _parse_object(answer.body, what)


def _refuse_status(what: str, url: str, answer: egress.Document) -> NoReturn:
    """Raise ProviderError with the OAuth error code (RFC 6749, 5.2), if the answer has one."""
    try:
        code = str(json.loads(answer.body or b"")["error"])
    except (ValueError, RecursionError, LookupError, TypeError):
        code = ""
    reason = f" ({code})" if re.fullmatch(r"[a-z_]{1,40}", code) else ""
    raise ProviderError(f"{what} answered with status {answer.status}{reason}", f"{url}: {answer.body!r}")


def _parse_object(text: bytes, what: str) -> dict[str, Any]:
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:  # the second: nested too deeply
        raise ProviderError(f"{what} is not valid JSON", error) from error
    if not isinstance(document, dict):
        raise ProviderError(f"{what} is not a JSON object", type(document).__name__)
    return document


def _refuse_constant(text: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python reads although JSON has neither: a token expiring at NaN never would."""
    raise ValueError(f"{text} is not JSON")
