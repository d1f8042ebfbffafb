"""Passkeys (WebAuthn), checked by `fido2`: challenges for the browser, and the verification of its answers.

The browser signs its page's origin and the relying party's id, which is a domain. Both come from settings, so a proxy
cannot change them. A challenge answers one request: it is in a signed cookie, and its use is recorded.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from django.core.cache import cache
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from control_plane.core.config import current, split_list
from control_plane.core.errors import LorikeetError
from control_plane.identity.accounts.models import User
from control_plane.identity.accounts.notes import Note
from control_plane.identity.second_factor.models import Passkey

if TYPE_CHECKING:
    from fido2.server import Fido2Server
    from fido2.webauthn import AttestedCredentialData

# Seconds in which a person answers: it may be necessary to fetch a security key.
WITHIN_S = 300
_NOTE = Note("lorikeet_passkey", "/api/", WITHIN_S)
# Bytes of a browser's answer as JSON; with an attestation it has a few thousand.
MAX_ANSWER = 32_768
# Bytes of AAGUID, id and public key; an RSA key of 4096 bits needs less.
MAX_ATTESTED = 2048
# Errors that `fido2` raises for an answer that is malformed or does not verify.
_FAULTS = (
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    AttributeError,
    NotImplementedError,
    RecursionError,
    struct.error,
)


class PasskeyRefusedError(LorikeetError):
    def __init__(self, message: str = "The passkey was not accepted.") -> None:
        super().__init__(
            "passkey_refused",
            message,
            "Try again with a passkey of your account, or use a code instead.",
            param="credential",
        )


class ChallengeExpiredError(LorikeetError):
    def __init__(self) -> None:
        super().__init__(
            "passkey_challenge_expired",
            "The passkey was asked for more than five minutes ago, in another browser, or was used already.",
            "Try again.",
            param="credential",
        )


class PasskeysUnavailableError(LorikeetError):
    def __init__(self) -> None:
        super().__init__(
            "passkeys_unavailable",
            "Browsers offer passkeys only to pages with a host name and HTTPS, or on localhost.",
            "Open the console by its host name (operators set LORIKEET_PUBLIC_URL), or use an authenticator app.",
            status=409,
        )


@dataclass(frozen=True)
class RelyingParty:
    """The domain that passkeys belong to, and the origins of pages that may use them."""

    id: str
    origins: frozenset[str]


@dataclass(frozen=True)
class Challenge:
    text: str
    user_id: str
    # What the answer is for: "register", "sign in" or "confirm".
    purpose: str


@dataclass(frozen=True)
class MadePasskey:
    credential_id: str
    attested: str
    sign_count: int


def relying_party(request: HttpRequest) -> RelyingParty | None:
    """Return the relying party of this installation. None where browsers offer no passkeys.

    The settings name it; without them it is the host of the request, which ALLOWED_HOSTS has checked.
    """
    settings = current()
    named = split_list(settings.passkey_origins) or [settings.public_url, *split_list(settings.trusted_origins)]
    origins = [origin for each in named if (origin := _usable_origin(each))]
    if not origins and (origin := _usable_origin(f"{request.scheme}://{request.get_host()}")):
        origins = [origin]
    if not origins:
        return None
    rp_id = settings.passkey_rp_id or urlsplit(origins[0]).hostname or ""
    return RelyingParty(rp_id, frozenset(origin for origin in origins if _covers(rp_id, origin)))


def require_relying_party(request: HttpRequest) -> RelyingParty:
    """Return the relying party. Raises PasskeysUnavailableError."""
    rp = relying_party(request)
    if rp is None:
        raise PasskeysUnavailableError
    return rp


def creation_options(rp: RelyingParty, user: User, known: Sequence[Passkey]) -> tuple[dict[str, Any], str]:
    """Return the options of `navigator.credentials.create` as JSON, and their challenge."""
    from fido2.webauthn import (
        PublicKeyCredentialUserEntity,
        ResidentKeyRequirement,
        UserVerificationRequirement,
    )

    entity = PublicKeyCredentialUserEntity(id=user.pk.bytes, name=user.email, display_name=user.name or user.email)
    options, state = _server(rp).register_begin(
        entity,
        [_attested(passkey) for passkey in known],
        resident_key_requirement=ResidentKeyRequirement.PREFERRED,
        user_verification=UserVerificationRequirement.PREFERRED,
    )
    return dict(options)["publicKey"], state["challenge"]


def request_options(rp: RelyingParty, known: Sequence[Passkey]) -> tuple[dict[str, Any], str]:
    """Return the options of `navigator.credentials.get` as JSON, and their challenge."""
    from fido2.webauthn import UserVerificationRequirement

    options, state = _server(rp).authenticate_begin(
        [_attested(passkey) for passkey in known], user_verification=UserVerificationRequirement.PREFERRED
    )
    return dict(options)["publicKey"], state["challenge"]


def remember(response: HttpResponseBase, challenge: Challenge) -> None:
    value = {"text": challenge.text, "user_id": challenge.user_id, "purpose": challenge.purpose}
    _NOTE.write(response, value)


def take_challenge(request: HttpRequest, user: User, purpose: str) -> Challenge:
    """Return the challenge of this browser for `purpose`, and use it up. Raises ChallengeExpiredError."""
    value: dict[str, str] | None = _NOTE.read(request)
    challenge = Challenge(**value) if value else None
    if challenge is None or (challenge.user_id, challenge.purpose) != (str(user.pk), purpose):
        raise ChallengeExpiredError
    used = hashlib.sha256(challenge.text.encode()).hexdigest()
    if not cache.add(f"lorikeet:passkey-challenge-used:{used}", True, WITHIN_S):
        raise ChallengeExpiredError
    return challenge


def verify_registration(rp: RelyingParty, challenge: Challenge, answer: Mapping[str, Any]) -> MadePasskey:
    """Check the browser's answer to `creation_options`. Raises PasskeyRefusedError."""
    from fido2.cose import CoseKey
    from fido2.utils import websafe_encode

    _require_size(answer)
    try:
        data = _server(rp).register_complete(_state(challenge), answer)
        made = data.credential_data
        if made is None or made.public_key.ALGORITHM not in CoseKey.supported_algorithms():
            raise PasskeyRefusedError("The passkey uses an algorithm that is not supported.")
        if len(made) > MAX_ATTESTED:
            raise PasskeyRefusedError
        return MadePasskey(websafe_encode(made.credential_id), websafe_encode(made), data.counter)
    except _FAULTS as error:
        raise PasskeyRefusedError from error


def verify_assertion(
    rp: RelyingParty, challenge: Challenge, user: User, passkeys: Sequence[Passkey], answer: Mapping[str, Any]
) -> tuple[Passkey, int]:
    """Check the browser's answer to `request_options`. Returns the passkey and its counter.

    Raises PasskeyRefusedError, also for a counter that did not grow: the authenticator may have been copied.
    """
    from fido2.utils import websafe_encode
    from fido2.webauthn import AuthenticationResponse

    _require_size(answer)
    try:
        known = {passkey.credential_id: passkey for passkey in passkeys}
        credentials = [_attested(passkey) for passkey in passkeys]
        used = _server(rp).authenticate_complete(_state(challenge), credentials, answer)
        parsed = AuthenticationResponse.from_dict(answer)
        passkey = known[websafe_encode(used.credential_id)]
        handle, counter = parsed.response.user_handle, parsed.response.authenticator_data.counter
    except _FAULTS as error:
        raise PasskeyRefusedError from error
    if handle and handle != user.pk.bytes:
        raise PasskeyRefusedError
    if (counter or passkey.sign_count) and counter <= passkey.sign_count:
        raise PasskeyRefusedError("The passkey's counter did not grow, so it may have been copied.")
    return passkey, counter


def _server(rp: RelyingParty) -> Fido2Server:
    # Loaded at its first use, because it takes a tenth of a second.
    from fido2.server import Fido2Server
    from fido2.webauthn import PublicKeyCredentialRpEntity

    return Fido2Server(
        PublicKeyCredentialRpEntity(id=rp.id, name="Lorikeet"), verify_origin=lambda origin: origin in rp.origins
    )


def _attested(passkey: Passkey) -> AttestedCredentialData:
    from fido2.utils import websafe_decode
    from fido2.webauthn import AttestedCredentialData

    return AttestedCredentialData(websafe_decode(passkey.attested))


def _state(challenge: Challenge) -> dict[str, Any]:
    return {"challenge": challenge.text, "user_verification": None}


def _require_size(answer: Mapping[str, Any]) -> None:
    try:
        size = len(json.dumps(answer))
    except RecursionError as error:
        raise PasskeyRefusedError from error
    if size > MAX_ANSWER:
        raise PasskeyRefusedError


def _usable_origin(url: str) -> str | None:
    """Return the origin of an address from which browsers offer passkeys; None for an IP address or plain HTTP."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if not host or "*" in host:
        return None
    with suppress(ValueError):
        ipaddress.ip_address(host)
        return None
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_localhost(host)):
        return None
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2].lower()}"


def _is_localhost(host: str) -> bool:
    return host == "localhost" or host.endswith(".localhost")


def _covers(rp_id: str, origin: str) -> bool:
    host = urlsplit(origin).hostname or ""
    return host == rp_id or host.endswith(f".{rp_id}")
