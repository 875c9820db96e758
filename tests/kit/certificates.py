"""Certificate authorities and signing requests for tests, sound ones by default and wrong ones on demand."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey

NOW = datetime.now(UTC).replace(microsecond=0)
ORDERS = "spiffe://cluster.local/ns/shop/sa/orders"


def p256() -> ec.EllipticCurvePrivateKey:
    """A fresh P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


@cache
def rsa_key(bits: int, exponent: int = 65537) -> rsa.RSAPrivateKey:
    """An RSA key of 1886, 3482, 4484 or 5420 bits, at once: its primes are Mersenne's, not random ones."""
    powers = {1886: (1279, 607), 3482: (2203, 1279), 4484: (2281, 2203), 5420: (3217, 2203)}
    p, q = (2**power - 1 for power in powers[bits])
    d = pow(exponent, -1, (p - 1) * (q - 1))
    dmp1, dmq1, iqmp = rsa.rsa_crt_dmp1(d, p), rsa.rsa_crt_dmq1(d, q), rsa.rsa_crt_iqmp(p, q)
    numbers = rsa.RSAPrivateNumbers(p, q, d, dmp1, dmq1, iqmp, rsa.RSAPublicNumbers(exponent, p * q))
    return numbers.private_key(unsafe_skip_rsa_key_validation=True)


def private_pem(key: Key, password: bytes | None = None) -> bytes:
    """PKCS #8 text of a key."""
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


def pem(*certificates: x509.Certificate) -> bytes:
    """The texts of certificates, one after the other."""
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)


VERSION_7 = b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x06"
SAME_EXTENSION_TWICE = b"\x06\x03\x55\x1d\x0e", b"\x06\x03\x55\x1d\x13"
"""What to write for what in the DER of an Issuer's certificate, to have it malformed in ways that are found late."""


def malformed(certificate: x509.Certificate, fault: tuple[bytes, bytes]) -> bytes:
    """The text of a certificate with one of these faults."""
    before, after = fault
    data = certificate.public_bytes(Encoding.DER)
    assert data.count(before) == 1
    text = b64encode(data.replace(before, after))
    return b"-----BEGIN CERTIFICATE-----\n" + text + b"\n-----END CERTIFICATE-----\n"


class Issuer:
    """One certificate authority of a path: its key and certificate, signed by `parent` or by itself."""

    def __init__(
        self,
        name: str,
        parent: Issuer | None = None,
        *,
        key: Key | None = None,
        ca: bool = True,
        path_length: int | None = None,
        may_sign: bool = True,
        starts: datetime = NOW - timedelta(days=1),
        ends: datetime = NOW + timedelta(days=1000),
    ) -> None:
        self.key = key or p256()
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer, signer = (parent.certificate.subject, parent.key) if parent else (subject, self.key)
        algorithm = None if isinstance(signer, ed25519.Ed25519PrivateKey) else hashes.SHA256()
        usage = x509.KeyUsage(not may_sign, False, False, False, False, may_sign, may_sign, False, False)
        self.certificate: x509.Certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(starts)
            .not_valid_after(ends)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=path_length if ca else None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), critical=False)
            .sign(signer, algorithm)
        )


def host_pair(
    *names: str,
    issuer: Issuer | None = None,
    key: Key | None = None,
    ends: datetime = NOW + timedelta(days=90),
) -> tuple[bytes, bytes]:
    """A certificate for DNS names and its key as a TLS Secret holds them (PEM); signed by `issuer`, or by itself."""
    key = key or p256()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    signed_by, signer = (issuer.certificate.subject, issuer.key) if issuer else (subject, key)
    algorithm = None if isinstance(signer, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signed_by)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(NOW, ends) - timedelta(days=1))
        .not_valid_after(ends)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .sign(signer, algorithm)
    )
    chain = (certificate, issuer.certificate) if issuer else (certificate,)
    return pem(*chain), private_pem(key)


def write_cacerts(
    directory: Path,
    own: Issuer,
    *,
    chain: Sequence[Issuer] = (),
    roots: Sequence[Issuer] = (),
    key: bytes | None = None,
) -> Path:
    """Writes the four files of a plug-in authority, with `key` in place of the right one if given."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "ca-cert.pem").write_bytes(pem(own.certificate))
    (directory / "ca-key.pem").write_bytes(private_pem(own.key) if key is None else key)
    (directory / "cert-chain.pem").write_bytes(pem(*(issuer.certificate for issuer in (own, *chain))))
    (directory / "root-cert.pem").write_bytes(pem(*(issuer.certificate for issuer in roots)))
    return directory


def signing_request(
    *uris: str,
    key: Key | None = None,
    names: Sequence[x509.GeneralName] = (),
    extensions: Sequence[x509.ExtensionType] = (),
    subject: str = "",
) -> str:
    """PEM of a request as a ztunnel sends it: empty subject, the URIs as critical alternative names."""
    key = key or p256()
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, subject)] if subject else []
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(attributes))
    alternatives = [*(x509.UniformResourceIdentifier(uri) for uri in uris), *names]
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=True)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=True)
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    deterministic = True if isinstance(key, ec.EllipticCurvePrivateKey) else None
    return builder.sign(key, algorithm, ecdsa_deterministic=deterministic).public_bytes(Encoding.PEM).decode()
