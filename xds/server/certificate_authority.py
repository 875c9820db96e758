"""The certificate authority of the mesh: a key, the path from its certificate to a root, and what it signs.

In: a directory of the four PEM files Istio calls `cacerts` (certificate_files.py reads it), or nothing: then a
self-signed root is made. Out: chains as PEM texts. It signs whatever it is told to: whether a caller may have a
certificate is decided in access.py, whether a request is sound in certificate_requests.py. Safe to use from any thread.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from xds.server.authentication import Identity

# Istio's DEFAULT_WORKLOAD_CERT_TTL and MAX_WORKLOAD_CERT_TTL.
DEFAULT_LIFETIME: Final = timedelta(hours=24)
LONGEST_LIFETIME: Final = timedelta(days=90)
ROOT_LIFETIME: Final = timedelta(days=3650)
# A certificate is valid from this long before it was made, for verifiers whose clocks are behind.
CLOCK_SKEW: Final = timedelta(minutes=2)

PublicKey: TypeAlias = ec.EllipticCurvePublicKey | rsa.RSAPublicKey
PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

_LEAF_USAGE: Final = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=True,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=False,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)
_ROOT_USAGE: Final = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class CertificateAuthorityError(Exception):
    """Files that make no certificate authority, or one that can sign no more; names the file, the cause, the cure."""


class ServerCertificate(msgspec.Struct, frozen=True):
    """What a TLS server presents: PEM of a fresh private key, PEM of the leaf and its intermediates (no root)."""

    private_key: bytes
    chain: bytes
    not_before: datetime
    not_after: datetime


def utc_now() -> datetime:
    """The wall clock, as certificates count it."""
    return datetime.now(UTC)


class CertificateAuthority:
    """A private key and the path that lets others trust it.

    `path` starts with the certificate of `key` and leads, each signed by the next, up to but not including a root; it
    is empty when the key is that of a root. `roots` are all certificates the mesh trusts (several while a root is
    being replaced), the one the path ends at first. The arguments are taken to fit together.
    """

    def __init__(
        self,
        key: PrivateKey,
        path: Sequence[x509.Certificate],
        roots: Sequence[x509.Certificate],
        *,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.key: Final = key
        self.path: Final = tuple(path)
        self.roots: Final = tuple(roots)
        self._now = now
        self._issuer = (*self.path, *self.roots)[0]
        self._authority_key = _authority_key(self._issuer)
        # A leaf that outlives any link of its path would look valid and be refused.
        self.expires: Final = min(certificate.not_valid_after_utc for certificate in (*self.path, self.roots[0]))
        self._upper = tuple(bundle((certificate,)) for certificate in self.path)

    @classmethod
    def self_signed(cls, trust_domain: str, *, now: Callable[[], datetime] = utc_now) -> CertificateAuthority:
        """A new root for ten years: P-256, which every ztunnel and Envoy accepts and which signs in some 30 us."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, trust_domain[:64])])
        made = now()
        root = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(made - CLOCK_SKEW)
            .not_valid_after(made + ROOT_LIFETIME)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_ROOT_USAGE, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(key, (), (root,), now=now)

    @property
    def root_certificates(self) -> str:
        """PEM of all roots: what every proxy of the mesh has to trust."""
        return bundle(self.roots)

    @property
    def fingerprint(self) -> bytes:
        """SHA-256 over the certificates that lead from the key to its root: equal for whoever signs with the same."""
        digest = hashlib.sha256()
        for certificate in (*self.path, self.roots[0]):
            digest.update(certificate.public_bytes(Encoding.DER))
        return digest.digest()

    def signs_as(self, other: CertificateAuthority) -> bool:
        """Whether what both sign is trusted alike, whatever else they trust."""
        return self.fingerprint == other.fingerprint

    def trusting(self, roots: Sequence[x509.Certificate]) -> CertificateAuthority:
        """The same with these roots, its own first."""
        return CertificateAuthority(self.key, self.path, roots, now=self._now)

    def issue(self, public_key: PublicKey, identity: Identity, seconds: int = 0) -> tuple[str, ...]:
        """A workload's chain, PEM, one certificate an element: leaf, intermediates, and in the last all roots.

        `seconds` is the lifetime asked for; 0 or less stands for the default, and no wish exceeds LONGEST_LIFETIME or
        the authority's own expiry. The subject is empty and the SPIFFE URI the only name, so its extension is critical
        (RFC 5280 4.2.1.6). Raises CertificateAuthorityError once the authority has expired.
        """
        leaf = self._sign(
            public_key,
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(str(identity))]),
            [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH],
            lifetime_of(seconds),
        )
        return bundle((leaf,)), *self._upper, self.root_certificates

    def issue_server(self, names: Sequence[str], lifetime: timedelta = DEFAULT_LIFETIME) -> ServerCertificate:
        """A key and certificate for the control plane's own TLS port, valid for `names`: DNS names and IP addresses.

        Raises CertificateAuthorityError once the authority has expired, ValueError without names.
        """
        if not names:
            raise ValueError("a server certificate needs a name")
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
        leaf = self._sign(key.public_key(), alternatives, [ExtendedKeyUsageOID.SERVER_AUTH], lifetime)
        return ServerCertificate(
            private_key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
            chain="".join((bundle((leaf,)), *self._upper)).encode(),
            not_before=leaf.not_valid_before_utc,
            not_after=leaf.not_valid_after_utc,
        )

    def _sign(
        self,
        public_key: PublicKey,
        names: x509.SubjectAlternativeName,
        usages: list[x509.ObjectIdentifier],
        lifetime: timedelta,
    ) -> x509.Certificate:
        now = self._now()
        if now >= self.expires:
            raise CertificateAuthorityError(
                f"the certificate authority expired at {self.expires.isoformat()}: replace its certificates"
            )
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self._issuer.subject)
            .public_key(public_key)
            # 159 random bits (CA/Browser Forum BR 7.1 asks for 64).
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - CLOCK_SKEW)
            .not_valid_after(min(now + lifetime, self.expires))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_LEAF_USAGE, critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(names, critical=True)
            .add_extension(self._authority_key, critical=False)
            .sign(self.key, signature_hash(self.key))
        )


def lifetime_of(seconds: int) -> timedelta:
    """How long a certificate lives that is asked for with a lifetime in seconds; 0 or less asks for the usual one."""
    longest = int(LONGEST_LIFETIME.total_seconds())
    return timedelta(seconds=min(seconds, longest)) if seconds > 0 else DEFAULT_LIFETIME


def bundle(certificates: Sequence[x509.Certificate]) -> str:
    """PEM of certificates, one after another."""
    return "".join([certificate.public_bytes(Encoding.PEM).decode() for certificate in certificates])


def signature_hash(key: PrivateKey) -> hashes.SHA256 | hashes.SHA384:
    """The hash that is as strong as the key."""
    if isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.key_size > 256:
        return hashes.SHA384()
    return hashes.SHA256()


def _authority_key(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    try:
        subject_key = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key())  # type: ignore[arg-type]
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(subject_key)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
