"""Certificate signing requests (PKCS #10, RFC 2986), read as what they are: bytes from somebody not yet trusted.

In: the PEM text a workload sent. Out: its public key and the one identity it asks for, or a Refusal that says what is
wrong. Nothing else of a request is ever copied into a certificate; requests that ask for more than a workload's
certificate are refused all the same, since they show that the sender expects something it would not get.
"""

from __future__ import annotations

from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from xds.server import refusals
from xds.server.authentication import Identity

# A request with an RSA key of 4096 bits is below 2 KiB.
LONGEST_REQUEST: Final = 16 * 1024
SHORTEST_RSA_KEY: Final = 2048
# The time to verify grows with the square of the length, and the sender chooses the length.
LONGEST_RSA_KEY: Final = 4096
_BEGIN: Final = "-----BEGIN CERTIFICATE REQUEST-----"
# What cryptography raises for bytes that are no sound request.
_FAULTS_OF_REQUESTS: Final = (
    ValueError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
_HASHES: Final = (hashes.SHA256, hashes.SHA384, hashes.SHA512)


class CertificateRequest(msgspec.Struct, frozen=True):
    """A request whose signature proves that its sender holds the private key of `public_key`."""

    identity: Identity
    public_key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey


def read_certificate_request(pem: str) -> CertificateRequest:
    """The request in `pem`; raises Refusal (INVALID_ARGUMENT).

    Accepted are P-256 keys, and RSA keys of 2048 to 4096 bits, with a signature over SHA-2, and exactly one
    alternative name: a SPIFFE URI of the form Identity knows.
    """
    if len(pem) > LONGEST_REQUEST:
        raise refusals.invalid(f"the certificate request is longer than {LONGEST_REQUEST} bytes")
    if pem.count("-----BEGIN") != 1 or _BEGIN not in pem:
        raise refusals.invalid(f"the certificate request is not one PEM block that starts with {_BEGIN}")
    try:
        request = x509.load_pem_x509_csr(pem.encode())
        public_key = _checked_key(request)
        _check_signature(request)
        identity = _asked_identity(request)
    except _FAULTS_OF_REQUESTS:
        # cryptography parses lazily: a request can turn out malformed at any of these steps.
        raise refusals.invalid("the certificate request is malformed: send a PKCS #10 request") from None
    return CertificateRequest(identity, public_key)


def _checked_key(request: x509.CertificateSigningRequest) -> ec.EllipticCurvePublicKey | rsa.RSAPublicKey:
    """The key, judged before the signature: the cost of verifying depends on it."""
    key = request.public_key()
    if isinstance(key, ec.EllipticCurvePublicKey):
        if not isinstance(key.curve, ec.SECP256R1):
            raise refusals.invalid(f"the key is on curve {key.curve.name}: use P-256")
        return key
    if isinstance(key, rsa.RSAPublicKey):
        if not SHORTEST_RSA_KEY <= key.key_size <= LONGEST_RSA_KEY:
            raise refusals.invalid(
                f"the RSA key has {key.key_size} bits: use {SHORTEST_RSA_KEY} to {LONGEST_RSA_KEY}, or P-256"
            )
        if key.public_numbers().e != 65537:
            raise refusals.invalid("the RSA key has another exponent than 65537")
        return key
    raise refusals.invalid("the key is neither P-256 nor RSA")


def _check_signature(request: x509.CertificateSigningRequest) -> None:
    if not isinstance(request.signature_hash_algorithm, _HASHES):
        raise refusals.invalid("the certificate request is not signed over SHA-256, SHA-384 or SHA-512")
    try:
        valid = request.is_signature_valid
    except InvalidSignature:
        valid = False
    if not valid:
        raise refusals.invalid("the signature of the certificate request does not match its key")


def _asked_identity(request: x509.CertificateSigningRequest) -> Identity:
    names: list[x509.GeneralName] = []
    for extension in request.extensions:
        value = extension.value
        if isinstance(value, x509.SubjectAlternativeName):
            names.extend(value)
        elif isinstance(value, x509.BasicConstraints) and value.ca:
            raise refusals.invalid("the certificate request asks for a CA certificate")
        elif isinstance(value, x509.KeyUsage) and (value.key_cert_sign or value.crl_sign):
            raise refusals.invalid("the certificate request asks to sign certificates")
    if len(names) != 1 or not isinstance(names[0], x509.UniformResourceIdentifier):
        raise refusals.invalid(
            f"the certificate request has {len(names)} alternative names of kinds "
            f"{sorted({type(name).__name__ for name in names})}: it must have one, a SPIFFE URI"
        )
    uri = names[0].value
    try:
        return Identity.parse(uri)
    except ValueError as error:
        raise refusals.invalid(f"the certificate request asks for another name than a SPIFFE id: {error}") from None
