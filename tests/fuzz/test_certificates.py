"""Whatever Secrets and the files of an authority hold: they are used, or refused in words that show nothing of them."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from hypothesis import strategies as st

from aggregator.security.certificates import MOST_RSA_BITS, InvalidPair, certificate
from tests.fuzz.signed import KEYS, Key, armoured, hostile_certificates, hostile_keys
from tests.kit.certificates import pem, private_pem
from tests.kit.fuzzing import bounded, fuzz
from tests.kit.hostile import TEXTS, damaged, der
from watchers.facts.secrets import TLSSecret
from watchers.kubernetes.expiry import certificate_expiry
from xds.server.certificate_authority import CertificateAuthorityError
from xds.server.certificate_files import CERTIFICATE_FILE, CHAIN_FILE, KEY_FILE, ROOT_FILE, load_authority

pytestmark = [
    pytest.mark.slow,
    # It says what later releases will refuse.
    pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning"),
]

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def made(key: Key, *, ca: bool) -> x509.Certificate:
    """A certificate that signs itself, the same in every process."""
    name = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, "a.example"), x509.NameAttribute(NameOID.COUNTRY_NAME, "DE")]
    )
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=1 if ca else None), critical=True)
        .add_extension(x509.KeyUsage(not ca, False, False, False, False, ca, ca, False, False), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName("a.example"), x509.IPAddress(ADDRESS)]), critical=False
        )
        .sign(key, hashes.SHA256(), ecdsa_deterministic=True if isinstance(key, ec.EllipticCurvePrivateKey) else None)
    )


ADDRESS = ipaddress.ip_address("10.0.0.1")
LEAVES = [(made(key, ca=False), key) for key in KEYS]
AUTHORITIES = [(made(key, ca=True), key) for key in KEYS]
PEMS = [private_pem(key) for key in KEYS]


def check_pair(chain: bytes, key: bytes) -> None:
    try:
        found = bounded(lambda: certificate(TLSSecret(chain, key)), len(chain) + len(key))
    except InvalidPair as error:
        assert str(error) and "BEGIN" not in str(error)
    else:
        assert found.names == tuple(sorted(found.names))
        assert found.chain.startswith(b"-----BEGIN CERTIFICATE-----")


@st.composite
def pairs(draw: Any) -> tuple[bytes, bytes]:
    """A certificate with damage and its key, or the other way round."""
    number = draw(st.integers(0, len(KEYS) - 1))
    chain, key = pem(LEAVES[number][0]), PEMS[number]
    match draw(st.integers(0, 2)):
        case 0:
            chain = draw(hostile_certificates(st.just(LEAVES[number])))
        case 1:
            key = draw(hostile_keys(st.just(key)))
        case _:
            chain += draw(hostile_certificates(st.just(LEAVES[number])))
    return chain, key


def test_any_secret_is_served_or_refused() -> None:
    fuzz(lambda pair: check_pair(*pair), pairs(), share=0.3)


def integer(number: int) -> bytes:
    return der(0x02, number.to_bytes(number.bit_length() // 8 + 1, "big"))


RIGHT = KEYS[1].private_numbers()
assert isinstance(RIGHT, rsa.RSAPrivateNumbers)


def numbers(n: int, e: int, d: int, p: int, q: int, dp: int, dq: int, inverse: int) -> bytes:
    """An RSA key of these numbers, PKCS #1 in PEM."""
    content = (integer(one) for one in (0, n, e, d, p, q, dp, dq, inverse))
    return armoured(der(0x30, *content), "RSA PRIVATE KEY")


RIGHT_NUMBERS = (
    RIGHT.public_numbers.n,
    RIGHT.public_numbers.e,
    RIGHT.d,
    RIGHT.p,
    RIGHT.q,
    RIGHT.dmp1,
    RIGHT.dmq1,
    RIGHT.iqmp,
)


# By names: Python does not write out numbers of this length.
ODD = {
    "0": 0,
    "1": 1,
    "2": 2,
    "the modulus": RIGHT_NUMBERS[0],
    "half the modulus": RIGHT_NUMBERS[0] // 2,
    "a prime": RIGHT_NUMBERS[3],
    "the most": 2**MOST_RSA_BITS - 1,
    "one more": 2**MOST_RSA_BITS,
    "some KB": 2**100_000,
    "some 100 KB": 2**1_000_000,
}
FIELDS = ("n", "e", "d", "p", "q", "dp", "dq", "inverse")


def check_key(odd: dict[str, str]) -> None:
    given = [ODD[odd[field]] if field in odd else right for field, right in zip(FIELDS, RIGHT_NUMBERS, strict=True)]
    check_pair(pem(LEAVES[1][0]), numbers(*given))


def test_rsa_keys_of_any_numbers_are_served_or_refused() -> None:
    fuzz(check_key, st.dictionaries(st.sampled_from(FIELDS), st.sampled_from(list(ODD))), share=0.1)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("odd", ODD)
def test_no_number_of_an_rsa_key_takes_long(field: str, odd: str) -> None:
    check_key({field: odd})


@pytest.mark.parametrize(("p", "q"), [("1", "the modulus"), ("the modulus", "1"), ("2", "half the modulus")])
def test_factors_that_are_no_primes_are_refused(p: str, q: str) -> None:
    check_key({"p": p, "q": q})


def test_when_a_certificate_ends_is_told_of_whatever_is_one() -> None:
    hostile = hostile_certificates(st.sampled_from(LEAVES))

    def one(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        assert bounded(lambda: certificate_expiry(data), len(data)) >= -(10**12)
        assert bounded(lambda: certificate_expiry(text), len(data)) >= -(10**12)

    fuzz(one, hostile | st.binary(max_size=60), share=0.1)


def check_files(directory: Path, files: dict[str, bytes]) -> None:
    for name in (CERTIFICATE_FILE, KEY_FILE, CHAIN_FILE, ROOT_FILE):
        (directory / name).unlink(missing_ok=True)
        if name in files:
            (directory / name).write_bytes(files[name])
    try:
        authority = load_authority(directory, now=lambda: NOW + timedelta(days=1))
    except CertificateAuthorityError as error:
        assert str(directory) in str(error) and "BEGIN" not in str(error)
    else:
        # What was taken can be signed with.
        server = authority.issue_server(["a.example"])
        assert x509.load_pem_x509_certificate(server.chain).not_valid_before_utc < NOW + timedelta(days=2)


@st.composite
def authorities(draw: Any) -> dict[str, bytes]:
    """The files of an authority, one or two of them damaged."""
    number = 1 if draw(st.integers(0, 19)) == 19 else 0  # To look at an RSA key takes a third of a second.
    root = pem(AUTHORITIES[number][0])
    files = {CERTIFICATE_FILE: root, KEY_FILE: PEMS[number], ROOT_FILE: root, CHAIN_FILE: root}
    hostile = hostile_certificates(st.just(AUTHORITIES[number]))
    if draw(st.booleans()):
        # The same certificate as its own root: its damage is met behind the search for a path.
        files[CERTIFICATE_FILE] = files[ROOT_FILE] = draw(hostile)
    for name in draw(st.lists(st.sampled_from(list(files)), max_size=2)):
        match draw(st.integers(0, 3)):
            case 0:
                del files[name]
                break
            case 1:
                files[name] = draw(hostile_keys(st.just(PEMS[number])) | st.sampled_from(PEMS))
            case 2:
                files[name] = draw(hostile | damaged(st.just(root)) | st.sampled_from(TEXTS))
            case _:
                files[name] = files[name] + draw(hostile)
    return files


def test_any_files_make_an_authority_or_are_refused(tmp_path: Path) -> None:
    fuzz(lambda files: check_files(tmp_path, files), authorities(), share=0.5)
