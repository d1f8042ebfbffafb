"""The fleet's certificate authority, by which the control plane and hosts that joined know each other.

Its key is derived from the secret `authority-key`: every process has it, and a copy of the database opens no host. A
host's certificate names its credential, which the database can revoke. During a rotation both sides trust two
authorities; the first of them certifies.
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

from control_plane.core.secrets import keys

# Order of the curve P-256. A private key is a number above zero and below it.
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_FIRST_DAY, _LAST_DAY = datetime(2020, 1, 1, tzinfo=UTC), datetime(2120, 1, 1, tzinfo=UTC)
# Time by which the clocks of two machines may differ: certificates are valid from so long before they are made.
_BEFORE = timedelta(minutes=10)
# Lifetime of the control plane's certificate: a process makes its own at start.
_CLIENT_LIFE = timedelta(days=5 * 365)
# Lifetime of a certificate for reading one adapter from another host.
_READING_LIFE = timedelta(minutes=10)
_NAME = "authority-key"
_DOMAIN = "hosts.lorikeet.invalid"


class BadRequestForCertificateError(ValueError):
    """A certificate request that cannot be read, was altered, or has a key of an unsupported kind."""


@dataclass(frozen=True)
class Certified:
    """A private key and its certificate, as PEM."""

    key: bytes
    certificate: bytes
    expires_at: datetime


def server_name(credential: str) -> str:
    """Return the name in the certificate of a host with this credential. It is no address: hosts may move."""
    return f"{credential}.{_DOMAIN}"


def authority_certificate() -> bytes:
    """Return the certificates of all accepted authorities as PEM, by which hosts recognise the control plane."""
    return b"".join(_pem(_authority(value)) for value in keys.accepted(_NAME))


def authority_ids() -> list[str]:
    """Return the ids of the accepted authorities. The first one certifies."""
    return keys.key_ids(_NAME)


def certify_host(request: bytes, credential: str, lifetime: timedelta) -> Certified:
    """Certify a host's request (PKCS #10, PEM). The result's ``key`` is empty: the key never leaves the host.

    Raises BadRequestForCertificateError.
    """
    public_key = _public_key(request)
    expires_at = datetime.now(UTC) + lifetime
    name = server_name(credential)
    certificate = _certify(public_key, name, expires_at, ExtendedKeyUsageOID.SERVER_AUTH)
    return Certified(b"", _pem(certificate), expires_at)


def fingerprint(request: bytes) -> str:
    """Return the SHA-256 fingerprint of a request's public key. Raises BadRequestForCertificateError."""
    kind, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(_public_key(request).public_bytes(kind, form)).hexdigest()


def client_identity() -> Certified:
    """Return this process's client certificate, made once. It lives long: the key can make new ones anyway."""
    return _client_identity(keys.in_use(_NAME))


@lru_cache(maxsize=4)
def _client_identity(_value: str) -> Certified:
    key = ec.generate_private_key(ec.SECP256R1())
    expires_at = datetime.now(UTC) + _CLIENT_LIFE
    certificate = _certify(key.public_key(), "control-plane", expires_at, ExtendedKeyUsageOID.CLIENT_AUTH)
    return Certified(_private(key), _pem(certificate), expires_at)


def reading_identity(digest: str) -> Certified:
    """Return a certificate to read one adapter from another host (`lora_engine.server.interceptors`)."""
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
    """Certify for one side of a connection only: a host's certificate cannot be used to call another host."""
    value = keys.in_use(_NAME)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(_authority(value).subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - _BEFORE)
        .not_valid_after(expires_at)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(_authority_key(value), hashes.SHA256())
    )


@lru_cache(maxsize=4)
def _authority_key(value: str) -> ec.EllipticCurvePrivateKey:
    digest = hmac.new(value.encode(), b"fleet: certificate authority", hashlib.sha512).digest()
    return ec.derive_private_key(int.from_bytes(digest) % (_ORDER - 1) + 1, ec.SECP256R1())


@lru_cache(maxsize=4)
def _authority(value: str) -> x509.Certificate:
    key = _authority_key(value)
    # Names differ, so that a verifier with two authorities finds the issuer of a certificate.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Lorikeet fleet {keys.key_id(_NAME, value)}")])
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
