"""Certificates and signing requests with damage inside of what is signed, and then signed with the right key."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import strategies as st

from tests.kit.certificates import rsa_key
from tests.kit.hostile import OIDS, damaged, damaged_der, der, elements_of

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

KEYS: Sequence[Key] = (ec.derive_private_key(2**255 - 19, ec.SECP256R1()), rsa_key(3482))
"""The same in every process: what is drawn depends on how long a signature is."""

_ECDSA = bytes.fromhex("300a06082a8648ce3d040302")
_RSA = bytes.fromhex("300d06092a864886f70d01010b0500")


def signed(inner: bytes, key: Key) -> bytes:
    """A SEQUENCE of the bytes, the algorithm and the signature: the shape of certificates and requests alike."""
    if isinstance(key, rsa.RSAPrivateKey):
        algorithm, signature = _RSA, key.sign(inner, padding.PKCS1v15(), hashes.SHA256())
    else:
        algorithm, signature = _ECDSA, key.sign(inner, ec.ECDSA(hashes.SHA256(), deterministic_signing=True))
    return der(0x30, inner, algorithm, der(0x03, b"\0", signature))


def armoured(data: bytes, what: str) -> bytes:
    """PEM."""
    text = base64.encodebytes(data).decode()
    return f"-----BEGIN {what}-----\n{text}-----END {what}-----\n".encode()


def bytes_of(pem: bytes) -> bytes:
    """The DER of a PEM text of one block."""
    return base64.b64decode(b"".join(pem.splitlines()[1:-1]))


_EXTENSIONS = 0xA3
_SEQUENCE = 0x30


@st.composite
def _extended(draw: Any, sound: st.SearchStrategy[tuple[x509.Certificate, Key]]) -> bytes:
    """A certificate in proper form, with extensions that are given twice, mean something else or nothing."""
    certificate, key = draw(sound)
    parts = _entries(certificate.tbs_certificate_bytes)
    own = [der(*one) for tag, content in parts if tag == _EXTENSIONS for one in _entries(content)]
    values = st.sampled_from([b"", b"\x30\x00", b"\x05\x00", b"\x04\x02ab", b"\x30\x03\x01\x01\xff"]) | damaged_der(
        st.sampled_from([_value_of(one) for one in own])
    )
    others = st.builds(
        lambda oid, critical, value: der(_SEQUENCE, der(0x06, oid), critical, der(0x04, value)),
        st.sampled_from(OIDS),
        st.sampled_from([b"", b"\x01\x01\xff", b"\x01\x01\x00"]),
        values,
    )
    extensions = draw(st.lists(st.sampled_from(own) | st.sampled_from(own) | others, max_size=6))
    kept = [der(*part) for part in parts if part[0] != _EXTENSIONS]
    return signed(der(_SEQUENCE, *kept, der(_EXTENSIONS, der(_SEQUENCE, *extensions))), key)


def _entries(content: bytes) -> list[tuple[int, bytes]]:
    """The elements of the one element there is."""
    outer = elements_of(content)
    inner = elements_of(outer[0][1]) if outer else None
    assert inner is not None
    return inner


def _value_of(extension: bytes) -> bytes:
    return _entries(extension)[-1][1]


def hostile_certificates(sound: st.SearchStrategy[tuple[x509.Certificate, Key]]) -> st.SearchStrategy[bytes]:
    """PEM of certificates with damage before or after they were signed, and of bytes that are none."""

    @st.composite
    def resigned(draw: Any) -> bytes:
        certificate, key = draw(sound)
        return signed(draw(damaged_der(st.just(certificate.tbs_certificate_bytes))), key)

    whole = sound.map(lambda pair: pair[0].public_bytes(Encoding.DER))
    extended = _extended(sound)
    made = st.one_of(extended, extended, resigned(), resigned(), damaged_der(whole), damaged(whole))
    return _in_pem(made, "CERTIFICATE")


def hostile_requests(
    sound: st.SearchStrategy[tuple[x509.CertificateSigningRequest, Key]],
) -> st.SearchStrategy[bytes]:
    """PEM of signing requests, likewise."""

    @st.composite
    def resigned(draw: Any) -> bytes:
        request, key = draw(sound)
        return signed(draw(damaged_der(st.just(request.tbs_certrequest_bytes))), key)

    whole = sound.map(lambda pair: pair[0].public_bytes(Encoding.DER))
    return _in_pem(st.one_of(resigned(), resigned(), damaged_der(whole), damaged(whole)), "CERTIFICATE REQUEST")


def hostile_keys(sound: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """PEM of private keys with damage, and of bytes that are none; `sound` is PEM."""
    inner = sound.map(bytes_of)
    what = st.sampled_from(["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "DSA PRIVATE KEY"])
    return _armour(st.one_of(damaged_der(inner), damaged_der(inner), damaged(inner)), what) | damaged(sound)


def _in_pem(data: st.SearchStrategy[bytes], what: str) -> st.SearchStrategy[bytes]:
    pem = _armour(data, st.just(what))
    return pem | pem | pem | damaged(pem)


def _armour(data: st.SearchStrategy[bytes], what: st.SearchStrategy[str]) -> st.SearchStrategy[bytes]:
    make: Callable[[bytes, str], bytes] = armoured
    return st.builds(make, data, what)


