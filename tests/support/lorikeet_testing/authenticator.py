"""An authenticator app and a passkey in software, and the browser between it and the platform."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from fido2.cose import ES256
from fido2.utils import websafe_decode, websafe_encode
from fido2.webauthn import Aaguid, AttestationObject, AttestedCredentialData, AuthenticatorData

PAGE = "https://console.example.org"
RP_ID = "console.example.org"


@dataclass
class SoftwarePasskey:
    """A key of one account at one relying party."""

    origin: str = PAGE
    rp_id: str = RP_ID
    counter: int = 1
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    credential_id: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    user_handle: bytes = b""

    def create(self, options: dict[str, Any]) -> dict[str, Any]:
        """The answer to `navigator.credentials.create`."""
        self.user_handle = websafe_decode(options["user"]["id"])
        public = ES256.from_cryptography_key(self.key.public_key())
        attested = AttestedCredentialData.create(Aaguid(bytes(16)), self.credential_id, public)
        flags = AuthenticatorData.FLAG.UP | AuthenticatorData.FLAG.AT
        data = AuthenticatorData.create(self._rp_hash(), flags, self.counter, attested)
        made = {
            "clientDataJSON": self._client_data("webauthn.create", options["challenge"]),
            "attestationObject": websafe_encode(AttestationObject.create("none", data, {})),
        }
        return self._credential(made)

    def get(self, options: dict[str, Any]) -> dict[str, Any]:
        """The answer to `navigator.credentials.get`."""
        self.counter += 1
        data = AuthenticatorData.create(self._rp_hash(), AuthenticatorData.FLAG.UP, self.counter)
        client_data = self._client_data("webauthn.get", options["challenge"])
        signed = data + hashlib.sha256(websafe_decode(client_data)).digest()
        return self._credential(
            {
                "clientDataJSON": client_data,
                "authenticatorData": websafe_encode(data),
                "signature": websafe_encode(self.key.sign(signed, ec.ECDSA(hashes.SHA256()))),
                "userHandle": websafe_encode(self.user_handle),
            }
        )

    def _client_data(self, kind: str, challenge: str) -> str:
        data = {"type": kind, "challenge": challenge, "origin": self.origin, "crossOrigin": False}
        return websafe_encode(json.dumps(data).encode())

    def _credential(self, response: dict[str, Any]) -> dict[str, Any]:
        key = websafe_encode(self.credential_id)
        return {"id": key, "rawId": key, "type": "public-key", "response": response, "clientExtensionResults": {}}

    def _rp_hash(self) -> bytes:
        return hashlib.sha256(self.rp_id.encode()).digest()
