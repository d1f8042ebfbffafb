"""The identity of this host in the fleet that it joined: its key, made here, and the certificate of the control plane.

Needs the package cryptography (the extra ``join``), which an engine without ``--join`` does not load.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from lora_engine.errors import StartupError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

log = logging.getLogger(__name__)


class BadCertificateError(ValueError):
    """The certificate is for another key than the last one, or from another authority."""


@dataclass(frozen=True)
class Identity:
    """A host's key and certificates as PEM, with the join that they come from."""

    name: str
    url: str
    token_hash: str  # of the join token
    key: str
    certificate: str
    authority: str  # one, or two while the fleet changes from one to the other


class IdentityFiles:
    """Files of the identity, in a folder that only this user may read. Key and certificate match even after a crash."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._identity, self._key = folder / "identity.json", folder / "joining-key.pem"

    def read(self) -> Identity | None:
        """Return the identity, None if this host never joined. Raises ``StartupError`` for a damaged file."""
        try:
            return Identity(**json.loads(self._identity.read_bytes()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise StartupError(
                f"{self._identity} is damaged ({error}). Remove it, have a join token made for this host's name, and "
                "start the engine with --token."
            ) from None

    def write(self, identity: Identity) -> None:
        self._replace(self._identity, json.dumps(asdict(identity)))
        self._key.unlink(missing_ok=True)

    def joining_key(self) -> str:
        """Return the key for joining. It is kept until it is certified, so that a join whose answer was lost can be
        repeated.
        """
        if not self._key.exists():
            self._replace(self._key, private_pem(new_key()))
        return self._key.read_text()

    def _replace(self, path: Path, text: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = path.with_name(path.name + ".new")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)


class HostIdentity:
    """The identity that the server presents, and its renewal."""

    def __init__(self, identity: Identity, files: IdentityFiles) -> None:
        self._identity, self._files = identity, files
        self._next_key: EllipticCurvePrivateKey | None = None
        self._shown = identity

    @property
    def name(self) -> str:
        return self._identity.name

    def server_credentials(self) -> grpc.ServerCredentials:
        """Return credentials for a port that only this fleet's control plane can use; a renewed certificate is picked
        up.
        """
        return grpc.dynamic_ssl_server_credentials(_configuration(self._identity), self._renewed, True)

    def _renewed(self) -> Any:  # None means unchanged, which grpc's stubs do not know
        now = self._identity
        if now is self._shown:
            return None
        self._shown = now
        return _configuration(now)

    def request(self) -> bytes:
        """Return a certificate request for a new key (PKCS #10, PEM)."""
        self._next_key = new_key()
        return certificate_request(self._next_key)

    def install(self, certificate: bytes, authority: bytes = b"") -> None:
        """Install a renewed certificate, and the authorities to trust from now on, unless that is empty.

        Raises BadCertificateError, OSError.
        """
        if self._next_key is None:
            raise BadCertificateError("no certificate was requested")
        trusted = authority.decode(errors="replace") or self._identity.authority
        check_certificate(certificate.decode(errors="replace"), trusted, self._next_key)
        values = {"key": private_pem(self._next_key), "certificate": certificate.decode(), "authority": trusted}
        renewed = Identity(**{**asdict(self._identity), **values})
        self._files.write(renewed)
        self._identity, self._next_key = renewed, None
        log.info("the certificate of this host was renewed", extra={"until": str(expiry(renewed.certificate))})


def _configuration(identity: Identity) -> grpc.ServerCertificateConfiguration:
    pairs = [(identity.key.encode(), identity.certificate.encode())]
    return grpc.ssl_server_certificate_configuration(pairs, root_certificates=identity.authority.encode())


def new_key() -> EllipticCurvePrivateKey:
    """Make a key. Raises ``StartupError`` where the package cryptography is missing."""
    require_cryptography()
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def require_cryptography() -> None:
    """Raise ``StartupError`` where the package cryptography is missing."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise StartupError(
            "--join needs the package cryptography: run pip install '.[join]' in the checkout, or listen with "
            "--tls-certificate, --tls-key and LORA_ENGINE_HOST_TOKEN."
        ) from None


def private_pem(key: EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives import serialization

    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def read_key(pem: str) -> EllipticCurvePrivateKey:
    """Read a private key from its PEM. Raises ValueError."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = serialization.load_pem_private_key(pem.encode(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("another kind of key")
    return key


def certificate_request(key: EllipticCurvePrivateKey) -> bytes:
    """Return a certificate request without names: the control plane decides which names it certifies."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def check_certificate(certificate: str, authority: str, key: EllipticCurvePrivateKey) -> None:
    """Raise BadCertificateError unless one of the authorities certified this key."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        issued = x509.load_pem_x509_certificate(certificate.encode())
        issuers = {issuer.subject: issuer for issuer in x509.load_pem_x509_certificates(authority.encode())}
        if issued.issuer not in issuers:
            raise BadCertificateError("the certificate is not from the fleet's authority: another one issued it")
        issued.verify_directly_issued_by(issuers[issued.issuer])
    except (ValueError, TypeError, InvalidSignature) as error:
        raise BadCertificateError(f"the certificate is not from the fleet's authority: {error}") from None
    if issued.public_key() != key.public_key():
        raise BadCertificateError("the certificate is for another key")


def validity(certificate: str) -> tuple[datetime, datetime]:
    """Return when the certificate's validity begins and ends."""
    from cryptography import x509

    read = x509.load_pem_x509_certificate(certificate.encode())
    return read.not_valid_before_utc, read.not_valid_after_utc


def expiry(certificate: str) -> datetime:
    return validity(certificate)[1]


def has_expired(identity: Identity) -> bool:
    return expiry(identity.certificate) <= datetime.now(UTC)
