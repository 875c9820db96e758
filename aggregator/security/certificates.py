"""Certificates and their keys: what home's Secrets hold, checked so that no proxy refuses it.

A Secret whose pair does not fit is told of and its last good pair stays in force (a latch), so that one bad renewal
takes no host down; an expired certificate is served and told of. Keys are compared and carried, never used, and neither
a record nor a finding shows one. Who may be sent a certificate is not judged here.
"""

from __future__ import annotations

from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509 import ocsp
from cryptography.x509.oid import NameOID

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Outcome, Source, Withheld
from aggregator.mesh.home import Home
from aggregator.mesh.selection import UNSELECTED, Includes
from watchers.facts.keys import ObjectKey
from watchers.facts.named import NAMED
from watchers.facts.secrets import NamedSecret, TLSSecret

LEAST_RSA_BITS: Final = 2048
"""Envoy refuses shorter RSA keys, and curves other than these."""
_CURVES: Final = ("secp256r1", "secp384r1", "secp521r1")
MOST_RSA_BITS: Final = 16_384
"""Longer ones no TLS library takes; and whoever can write a Secret must not choose how long arithmetic takes."""
MOST_KEY_BYTES: Final = 64 * 1024
"""The longest key that is served has some 13 KB."""
_MOST_CERTIFICATES: Final = 16
ATTACKS_ON_PARSERS = (
    ValueError,
    TypeError,
    OverflowError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)


class Certificate(msgspec.Struct, frozen=True, gc=False):
    """A certificate chain, leaf first, and its key (both PEM); good until `not_after` (seconds since the epoch).

    `names` are the DNS names it is for, in lower case and sorted; a name may begin with `*.`. `ocsp_staple` (DER) is
    what its issuer says of it, b"" where nothing of use was given; then `flaw` may tell why.
    """

    chain: bytes
    key: bytes
    not_after: float
    names: tuple[str, ...]
    ocsp_staple: bytes = b""
    flaw: str = ""

    def __repr__(self) -> str:
        return f"Certificate(names={self.names!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("names", self.names)]

    def covers(self, host: str) -> bool:
        """Whether a client that asks for `host` would take this certificate (RFC 6125: `*` stands for one label)."""
        wildcard = f"*.{host.partition('.')[2]}"
        return host in self.names or wildcard in self.names


class InvalidPair(ValueError):
    """A pair that cannot be served; the text says why, and shows nothing of it."""


def declare(
    graph: Graph, home: Home, includes: Includes, secrets: Source[ObjectKey, TLSSecret | NamedSecret]
) -> Collection[ObjectKey, Certificate]:
    """Declare the certificates in force, by the key of their Secret."""

    def read(at: At, key: ObjectKey, secret: TLSSecret | NamedSecret) -> Outcome[Certificate]:
        if key[0] not in (home.cluster, NAMED):
            return Withheld("NotOfHome", key[0])
        if not includes(at, home.cluster, key[2]):
            return UNSELECTED
        if isinstance(secret, NamedSecret) and not (secret.certificate and secret.key):
            return Withheld("SecretHoldsNoPair")
        subject = subject_of(home, key)
        try:
            found = certificate(secret)
        except InvalidPair as error:
            at.note(subject, Finding(subject, "SecretInvalid", "data", str(error)))
            return Withheld("SecretInvalid", str(error))
        if found.flaw:
            at.note(subject, Finding(subject, "OcspStapleInvalid", "data", found.flaw))
        return found

    def expired(at: At, key: ObjectKey, one: Certificate) -> bool:
        # The last good pair outlives its selection, but is not spoken of.
        late = includes(at, home.cluster, key[2]) and at.passed(one.not_after)
        if late:
            names, subject = ", ".join(one.names[:3]), subject_of(home, key)
            detail = f"the certificate was for {names or 'nothing'}"
            at.note(subject, Finding(subject, "CertificateExpired", "data", detail))
        return late

    in_force = graph.latch("certificates", graph.derive("certificates as given", secrets, read))
    graph.derive("expired certificates", in_force, expired)
    return in_force


def subject_of(home: Home, key: ObjectKey) -> ObjectKey:
    """The object that findings about a fact are on, as people know it: facts that were read by name have keys apart."""
    kind = {"NamedSecret": "Secret", "RootsConfigMap": "ConfigMap"}.get(key[1])
    return key if kind is None else (home.cluster, kind, key[2], key[3])


def certificate(secret: TLSSecret | NamedSecret) -> Certificate:
    """The certificate and key of a Secret. Raises InvalidPair for whatever a proxy would refuse.

    What may be left out, as a staple that does not fit, costs the pair nothing.
    """
    generic = isinstance(secret, NamedSecret) and secret.generic
    crt_entry, key_entry = ("cert", "key") if generic else ("tls.crt", "tls.key")
    try:
        chain = x509.load_pem_x509_certificates(secret.certificate)
    except ATTACKS_ON_PARSERS:
        raise InvalidPair(f"{crt_entry} is not a chain of certificates in PEM") from None
    if len(chain) > _MOST_CERTIFICATES:
        raise InvalidPair(
            f"{crt_entry} holds {len(chain)} certificates, and more than {_MOST_CERTIFICATES} are no chain"
        )
    if len(secret.key) > MOST_KEY_BYTES:
        raise InvalidPair(f"{key_entry} is longer than {MOST_KEY_BYTES:,} bytes: put nothing but the key there")
    try:
        # RSA keys are not proven to be made of primes, which takes 45 ms of each.
        key = load_pem_private_key(secret.key, password=None, unsafe_skip_rsa_key_validation=True)
    except ATTACKS_ON_PARSERS:
        raise InvalidPair(f"{key_entry} is not a private key in PEM, without a password") from None
    if isinstance(key, rsa.RSAPrivateKey):
        if key.key_size < LEAST_RSA_BITS:
            raise InvalidPair(f"the key is RSA of {key.key_size} bits, and {LEAST_RSA_BITS} are the least")
        if key.key_size > MOST_RSA_BITS:
            raise InvalidPair(f"the key is RSA of {key.key_size} bits, and {MOST_RSA_BITS} are the most")
        if not _consistent(key):
            raise InvalidPair("the numbers of the RSA key do not belong together")
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        if key.curve.name not in _CURVES:
            raise InvalidPair(f"the key is on the curve {key.curve.name}, and only {', '.join(_CURVES)} are served")
    elif not isinstance(key, ed25519.Ed25519PrivateKey):
        raise InvalidPair("the key is neither RSA nor ECDSA nor Ed25519")
    public = key.public_key()
    try:
        fitting = [number for number, one in enumerate(chain) if one.public_key() == public]
        if not fitting:
            raise InvalidPair(f"{key_entry} is not the key of {crt_entry}")
        if fitting[0]:
            raise InvalidPair(
                f"{crt_entry} does not begin with the certificate of {key_entry}: put the leaf first"
            )
        leaf = chain[0]
        names, not_after = _names(leaf), leaf.not_valid_after_utc.timestamp()
    except InvalidPair:
        raise
    except ATTACKS_ON_PARSERS:
        raise InvalidPair(f"a certificate of {crt_entry} is malformed") from None
    # What stands between certificates stays behind.
    pem = b"".join([one.public_bytes(Encoding.PEM) for one in chain])
    staple, flaw = _staple(secret.ocsp_staple, leaf)
    return Certificate(
        secret.certificate if pem == secret.certificate else pem, secret.key, not_after, names, staple, flaw
    )


def _staple(given: bytes, leaf: x509.Certificate) -> tuple[bytes, str]:
    """What of an OCSP response can be told beside a certificate, and why nothing if it is so: Envoy refuses the pair
    with any other.
    """
    if not given:
        return b"", ""
    try:
        response = ocsp.load_der_ocsp_response(given)
        if response.response_status is not ocsp.OCSPResponseStatus.SUCCESSFUL:
            return b"", f"tls.ocsp-staple is no successful response, but {response.response_status.name}"
        answers = list(response.responses)
        if len(answers) != 1 or answers[0].serial_number != leaf.serial_number:
            return b"", "tls.ocsp-staple is not about the certificate of tls.crt"
    except ATTACKS_ON_PARSERS:
        return b"", "tls.ocsp-staple is not an OCSP response in DER"
    return given, ""


def _consistent(key: rsa.RSAPrivateKey) -> bool:
    """What can be told of an RSA key by arithmetic alone; Envoy's library checks the same."""
    own = key.private_numbers()
    p, q, d, public = own.p, own.q, own.d, own.public_numbers
    # Whoever wrote them chose each by itself: how long it is, and whether it can be divided by.
    longest = max(p, q, d, own.dmp1, own.dmq1, own.iqmp, public.e)
    if longest.bit_length() > public.n.bit_length() or p <= 1 or q <= 1:
        return False
    return (
        p * q == public.n
        and own.dmp1 == d % (p - 1)
        and own.dmq1 == d % (q - 1)
        and public.e * own.dmp1 % (p - 1) == 1
        and public.e * own.dmq1 % (q - 1) == 1
        and own.iqmp * q % p == 1
    )


def _names(leaf: x509.Certificate) -> tuple[str, ...]:
    """The DNS names of a certificate; one that says nothing of names is for what its subject is called."""
    try:
        named = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = named.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound:
        common = leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        names = [str(one.value) for one in common[:1]]
    return tuple(sorted({name.lower() for name in names}))
