"""A certificate authority as files: the four Istio calls `cacerts`, read with suspicion.

In: a directory, or the entries of a Secret, with ca-cert.pem, ca-key.pem, root-cert.pem and, where ca-cert.pem is not
signed by a root itself, cert-chain.pem. Out: a CertificateAuthority whose parts fit together, or an error that names
the file. Files that do not fit are found here, and not by proxies that refuse what was signed with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from xds.server.certificate_authority import (
    CLOCK_SKEW,
    CertificateAuthority,
    CertificateAuthorityError,
    PrivateKey,
    bundle,
    utc_now,
)

CERTIFICATE_FILE: Final = "ca-cert.pem"
KEY_FILE: Final = "ca-key.pem"
CHAIN_FILE: Final = "cert-chain.pem"
ROOT_FILE: Final = "root-cert.pem"

Extension = TypeVar("Extension", bound=x509.ExtensionType)

_CURVES: Final = (ec.SECP256R1, ec.SECP384R1)  # What ztunnel and Envoy verify in their default builds.
_SHORTEST_RSA_KEY: Final = 2048
# What cryptography raises for bytes that are no sound certificate.
_FAULTS_OF_CERTIFICATES: Final = (
    ValueError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)


def load_authority(directory: Path, *, now: Callable[[], datetime] = utc_now) -> CertificateAuthority:
    """Reads and checks a plug-in authority from a directory; as `read_authority`."""
    contents = {name: _read(directory / name) for name in (KEY_FILE, CERTIFICATE_FILE, ROOT_FILE)}
    if (directory / CHAIN_FILE).exists():
        contents[CHAIN_FILE] = _read(directory / CHAIN_FILE)
    return read_authority(contents, directory, now=now)


def read_authority(
    contents: Mapping[str, bytes], place: Path, *, now: Callable[[], datetime] = utc_now
) -> CertificateAuthority:
    """Checks a plug-in authority: the key is that of the certificate, the certificate may sign and its path leads to a
    root, nothing on the way has expired. `contents` are the files by name, `place` is what they are in, for messages.
    Raises CertificateAuthorityError.
    """

    def content(name: str) -> bytes:
        if name not in contents:
            raise CertificateAuthorityError(
                f"{place / name}: is missing; there have to be {CERTIFICATE_FILE}, {KEY_FILE} and {ROOT_FILE}"
            )
        return contents[name]

    key = key_in(place / KEY_FILE, content(KEY_FILE))
    own, *above = certificates_in(place / CERTIFICATE_FILE, content(CERTIFICATE_FILE))
    roots = certificates_in(place / ROOT_FILE, content(ROOT_FILE))
    if CHAIN_FILE in contents:
        above += certificates_in(place / CHAIN_FILE, contents[CHAIN_FILE])
    check_pair(place / KEY_FILE, key, CERTIFICATE_FILE, own)
    steps = _path(place, own, above, roots)
    for height, (file, certificate) in enumerate(steps):
        _check_link(place / file, certificate, height, now())
    anchor = steps[-1][1]
    return CertificateAuthority(
        key,
        [certificate for _, certificate in steps[:-1]],
        tuple(dict.fromkeys((anchor, *roots))),
        now=now,
    )


def contents_of(authority: CertificateAuthority) -> dict[str, bytes]:
    """The files that make up an authority, by name, as `read_authority` takes them."""
    key = authority.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    own, *above = (*authority.path, authority.roots[0])
    return {
        CERTIFICATE_FILE: bundle((own,)).encode(),
        CHAIN_FILE: bundle((own, *above)).encode(),
        KEY_FILE: key,
        ROOT_FILE: authority.root_certificates.encode(),
    }


def load_roots(file: Path) -> tuple[x509.Certificate, ...]:
    """The certificates in a file of roots, each once. Raises CertificateAuthorityError."""
    return tuple(dict.fromkeys(certificates_in(file, _read(file))))


def _path(
    directory: Path, own: x509.Certificate, above: Sequence[x509.Certificate], roots: Sequence[x509.Certificate]
) -> list[tuple[str, x509.Certificate]]:
    """The certificates from the authority's own up to and including a root, each with the file it comes from."""
    if own in roots:
        return [(CERTIFICATE_FILE, own)]
    steps = [(CERTIFICATE_FILE, own)]
    candidates = [certificate for certificate in above if certificate not in roots]
    while True:
        last = steps[-1][1]
        for root in roots:
            if _issued(root, last):
                return [*steps, (ROOT_FILE, root)]
        issuer = next((candidate for candidate in candidates if _issued(candidate, last)), None)
        if issuer is None:
            raise CertificateAuthorityError(
                f"{directory / ROOT_FILE}: no certificate in it or in {CHAIN_FILE} has signed "
                f"'{last.subject.rfc4514_string()}' of {steps[-1][0]}; give its issuers up to the root"
            )
        candidates.remove(issuer)  # A certificate is used once, so that a circle ends.
        steps.append((CHAIN_FILE, issuer))


def _issued(issuer: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _check_link(file: Path, certificate: x509.Certificate, height: int, now: datetime) -> None:
    """One certificate of the path, with `height` others of authorities below it."""
    subject = certificate.subject.rfc4514_string()
    if certificate.not_valid_after_utc <= now:
        expired = certificate.not_valid_after_utc.isoformat()
        raise CertificateAuthorityError(f"{file}: '{subject}' expired at {expired}; give a renewed one")
    if certificate.not_valid_before_utc > now + CLOCK_SKEW:
        start = certificate.not_valid_before_utc.isoformat()
        raise CertificateAuthorityError(f"{file}: '{subject}' is valid from {start} only; check the clocks")
    constraints = _extension(certificate, x509.BasicConstraints)
    if constraints is None or not constraints.ca:
        raise CertificateAuthorityError(f"{file}: '{subject}' is no CA certificate; give one with CA:TRUE")
    usage = _extension(certificate, x509.KeyUsage)
    if usage is not None and not usage.key_cert_sign:
        raise CertificateAuthorityError(f"{file}: '{subject}' may not sign certificates; give one with keyCertSign")
    if constraints.path_length is not None and constraints.path_length < height:
        raise CertificateAuthorityError(
            f"{file}: '{subject}' allows {constraints.path_length} authorities below it, and has {height}; "
            "sign nearer to the root, or give a root with a longer path length"
        )


def _extension(certificate: x509.Certificate, kind: type[Extension]) -> Extension | None:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise CertificateAuthorityError(
            f"{file}: {error.strerror}; the directory needs {CERTIFICATE_FILE}, {KEY_FILE} and {ROOT_FILE}"
        ) from None


def certificates_in(file: Path, content: bytes) -> list[x509.Certificate]:
    """The certificates in the content of a file, at least one. Raises CertificateAuthorityError."""
    try:
        certificates = x509.load_pem_x509_certificates(content)
    except _FAULTS_OF_CERTIFICATES:
        raise CertificateAuthorityError(f"{file}: holds no certificate in PEM; give one") from None
    for number, certificate in enumerate(certificates, start=1):
        try:
            _parse(certificate)
        except _FAULTS_OF_CERTIFICATES:
            raise CertificateAuthorityError(
                f"{file}: certificate {number} is malformed; give it as its issuer made it"
            ) from None
    return certificates


def _parse(certificate: x509.Certificate) -> None:
    """Has everything read that cryptography reads late, where it is known which file it is of."""
    _public(certificate)
    certificate.subject.rfc4514_string()
    tuple(certificate.extensions)
    max(certificate.not_valid_before_utc, certificate.not_valid_after_utc)


def key_in(file: Path, content: bytes) -> PrivateKey:
    """The private key in the content of a file, of a kind that proxies verify. Raises CertificateAuthorityError."""
    try:
        key = load_pem_private_key(content, password=None)
    except TypeError:
        raise CertificateAuthorityError(f"{file}: the key is encrypted; give it without a password") from None
    except (ValueError, UnsupportedAlgorithm):
        raise CertificateAuthorityError(f"{file}: holds no private key in PEM; give one") from None
    if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, _CURVES):
        return key
    if isinstance(key, rsa.RSAPrivateKey) and key.key_size >= _SHORTEST_RSA_KEY:
        return key
    raise CertificateAuthorityError(
        f"{file}: proxies do not verify this kind of key; give P-256, P-384 or RSA of {_SHORTEST_RSA_KEY} bits or more"
    )


def check_pair(file: Path, key: PrivateKey, certificates: str, own: x509.Certificate) -> None:
    """Raises CertificateAuthorityError unless the key in `file` is that of the first certificate in `certificates`."""
    if _public(key) != _public(own):
        raise CertificateAuthorityError(
            f"{file}: not the key of the first certificate in {certificates}; give the pair"
        )


def _public(holder: PrivateKey | x509.Certificate) -> bytes:
    return holder.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
