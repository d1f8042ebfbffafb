"""The fleet's certificate authority, by which the control plane and hosts that joined know each other.

Its key is derived from the installation's pepper, as the keys of sealed secrets are: every process has it, and a copy
of the database opens no host. A host's certificate names its credential, which the database has and takes back.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from control_plane.core.config import current

# Of P-256. A number below it and above zero is a private key.
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_FIRST_DAY, _LAST_DAY = datetime(2020, 1, 1, tzinfo=UTC), datetime(2120, 1, 1, tzinfo=UTC)
# Clocks of machines differ.
_BEFORE = timedelta(minutes=10)
_CLIENT_LIFE = timedelta(days=5 * 365)
_READING_LIFE = timedelta(minutes=10)
_DOMAIN = "hosts.lorikeet.invalid"


class BadRequestForCertificateError(ValueError):
    """It cannot be read, was altered, or its key is of a kind that is not taken."""


@dataclass(frozen=True)
class Certified:
    """A private key and what certifies it, as PEM."""

    key: bytes
    certificate: bytes
    expires_at: datetime


def server_name(credential: str) -> str:
    """What the certificate of a host with this credential is for: no address, as hosts may move."""
    return f"{credential}.{_DOMAIN}"


def authority_certificate() -> bytes:
    """PEM, for hosts to know the control plane by."""
    return _pem(_authority(current().key_pepper))


def certify_host(request: bytes, credential: str, lifetime: timedelta) -> Certified:
    """The certificate that a host asks for (PKCS #10, PEM); ``key`` is empty, as it never leaves the host.

    Raises BadRequestForCertificateError.
    """
    public_key = _public_key(request)
    expires_at = datetime.now(UTC) + lifetime
    name = server_name(credential)
    certificate = _certify(public_key, name, expires_at, ExtendedKeyUsageOID.SERVER_AUTH)
    return Certified(b"", _pem(certificate), expires_at)


def fingerprint(request: bytes) -> str:
    """Of the key that the request is for. Raises BadRequestForCertificateError."""
    kind, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(_public_key(request).public_bytes(kind, form)).hexdigest()


def client_identity() -> Certified:
    """This process's own, for as long as it runs. It can make as many as it likes: a short life would save nothing."""
    return _client_identity(current().key_pepper)


@lru_cache(maxsize=4)
def _client_identity(_pepper: str) -> Certified:
    key = ec.generate_private_key(ec.SECP256R1())
    expires_at = datetime.now(UTC) + _CLIENT_LIFE
    certificate = _certify(key.public_key(), "control-plane", expires_at, ExtendedKeyUsageOID.CLIENT_AUTH)
    return Certified(_private(key), _pem(certificate), expires_at)


def reading_identity(digest: str) -> Certified:
    """For a host to read this adapter from another one, and for nothing else (`lora_engine.server.grants`)."""
    key = ec.generate_private_key(ec.SECP256R1())
    expires_at = datetime.now(UTC) + _READING_LIFE
    name = digest.removeprefix("sha256:")
    certificate = _certify(key.public_key(), name, expires_at, ExtendedKeyUsageOID.CLIENT_AUTH)
    return Certified(_private(key), _pem(certificate), expires_at)


def _public_key(request: bytes) -> ec.EllipticCurvePublicKey:
    try:
        read = x509.load_pem_x509_csr(request)
        key, signed = read.public_key(), read.is_signature_valid
    except Exception as error:  # ValueError, UnsupportedAlgorithm, and what the parser makes of damaged bytes
        raise BadRequestForCertificateError(f"The certificate request cannot be read: {error}") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise BadRequestForCertificateError("The key of the certificate request is not of the curve P-256.")
    if not signed:
        raise BadRequestForCertificateError("The certificate request is not signed by its own key.")
    return key


def _certify(
    key: ec.EllipticCurvePublicKey, name: str, expires_at: datetime, usage: x509.ObjectIdentifier
) -> x509.Certificate:
    """For one side of a connection only: a host's certificate cannot be used to call another host."""
    pepper = current().key_pepper
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(_authority(pepper).subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - _BEFORE)
        .not_valid_after(expires_at)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(_authority_key(pepper), hashes.SHA256())
    )


@lru_cache(maxsize=4)
def _authority_key(pepper: str) -> ec.EllipticCurvePrivateKey:
    digest = hmac.new(pepper.encode(), b"fleet: certificate authority", hashlib.sha512).digest()
    return ec.derive_private_key(int.from_bytes(digest) % (_ORDER - 1) + 1, ec.SECP256R1())


@lru_cache(maxsize=4)
def _authority(pepper: str) -> x509.Certificate:
    key = _authority_key(pepper)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Lorikeet fleet")])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(_FIRST_DAY)
        .not_valid_after(_LAST_DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
