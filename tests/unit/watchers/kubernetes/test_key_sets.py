"""What of the documents of an API server counts as issuer and keys."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm
from jwt.utils import to_base64url_uint

from tests.kit.certificates import p256, rsa_key
from tests.kit.service_accounts import ISSUER, SigningKey, TokenIssuer
from watchers.kubernetes.key_sets import (
    ALGORITHMS,
    LONGEST_DOCUMENT,
    MOST_KEYS,
    InvalidKeySet,
    KeySet,
    read_key_set,
)

CURVES: dict[str, ec.EllipticCurve] = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}


def read(*keys: Any, configuration: Any = None) -> KeySet:
    return read_key_set(json.dumps(configuration or {"issuer": ISSUER}).encode(), json.dumps({"keys": keys}).encode())


def published(**changed: Any) -> dict[str, Any]:
    """A key on P-256, with these fields instead; None takes one away."""
    return {name: value for name, value in {**SigningKey().published(), **changed}.items() if value is not None}


def test_issuer_and_keys_are_those_that_are_published() -> None:
    accounts = TokenIssuer()
    found = read(*accounts.published()["keys"], configuration=accounts.configuration())
    (key,) = accounts.keys
    assert found.issuer == ISSUER
    assert found.keys[key.id].public == key.key.public_key()
    assert found.keys[key.id].algorithms == {"ES256"}


@pytest.mark.parametrize("algorithm", CURVES)
def test_a_key_on_a_curve_is_for_the_algorithm_of_that_curve_alone(algorithm: str) -> None:
    key = SigningKey(ec.generate_private_key(CURVES[algorithm]), algorithm)
    for wire in (key.published(), {name: value for name, value in key.published().items() if name != "alg"}):
        assert read(wire).keys[key.id].algorithms == {algorithm}


def test_an_rsa_key_is_for_the_algorithm_it_names_and_else_for_all_with_rsa() -> None:
    wire = SigningKey(rsa_key(3482), "RS256").published()
    assert read(wire).keys[wire["kid"]].algorithms == {"RS256"}
    del wire["alg"]
    assert read(wire).keys[wire["kid"]].algorithms == {"RS256", "RS384", "RS512"}


def test_algorithms_that_the_configuration_does_not_name_are_not_accepted() -> None:
    wire = SigningKey(rsa_key(3482), "RS256").published()
    del wire["alg"]
    named = {"issuer": ISSUER, "id_token_signing_alg_values_supported": ["RS512", "HS256", "none"]}
    assert read(wire, configuration=named).keys[wire["kid"]].algorithms == {"RS512"}


def test_no_algorithm_of_shared_secrets_and_no_none_is_ever_accepted() -> None:
    assert {"RS256", "RS384", "RS512", "ES256", "ES384", "ES512"} == ALGORITHMS


UNUSABLE = {
    "a shared secret": {"kty": "oct", "kid": "a", "alg": "HS256", "k": "c2VjcmV0"},
    "of an unknown type": published(kty="OKP", crv="Ed25519"),
    "of an unknown curve": published(crv="secp256k1", alg="ES256K"),
    "RSA by name, a point by content": published(kty="RSA", alg="RS256"),
    "for encryption": published(use="enc"),
    "for signing alone": published(key_ops=["sign"]),
    "for an algorithm of another type": published(alg="RS256"),
    "for HS256": published(alg="HS256"),
    "without an id": published(kid=None),
    "with an empty id": published(kid=""),
    "with an endless id": published(kid="a" * 257),
    "with a number for an id": published(kid=5),
    "beside its curve": published(x=published()["x"]),
    "no base64": published(x="ä" * 43),
    "too short a point": published(x="AA"),
    "no point": published(x=None),
    "no object": "key",
    "nothing": None,
    "a nest": json.loads("[" * 900 + "]" * 900),
    "RSA of 1886 bits": SigningKey(rsa_key(1886), "RS256").published(),
    "RSA of an even exponent": {**SigningKey(rsa_key(3482), "RS256").published(), "e": "BA"},
    "RSA of a huge exponent": {**SigningKey(rsa_key(3482), "RS256").published(), "e": "_" * 10},
    "RSA of a huge modulus": {**SigningKey(rsa_key(3482), "RS256").published(), "n": "_" * 60_000},
    "RSA without a modulus": {**SigningKey(rsa_key(3482), "RS256").published(), "n": ""},
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_key_that_cannot_be_used_spoils_no_other(name: str) -> None:
    sound = SigningKey()
    assert set(read(UNUSABLE[name], sound.published()).keys) == {sound.id}


def test_the_longest_rsa_key_may_have_8192_bits() -> None:
    numbers = rsa.RSAPublicNumbers(65537, (1 << 8191) + 1)
    wire = {"kty": "RSA", "kid": "a", **_rsa_fields(numbers)}
    assert "a" in read(wire).keys
    longer = {"kty": "RSA", "kid": "a", **_rsa_fields(rsa.RSAPublicNumbers(65537, (1 << 8192) + 1))}
    with pytest.raises(InvalidKeySet, match="no key for signatures"):
        read(longer)


def _rsa_fields(numbers: rsa.RSAPublicNumbers) -> dict[str, str]:
    return {"n": to_base64url_uint(numbers.n).decode(), "e": to_base64url_uint(numbers.e).decode()}


def test_of_keys_with_one_id_the_first_that_can_be_used_counts() -> None:
    first, second = SigningKey(), SigningKey()
    found = read(published(kid="a", use="enc"), {**first.published(), "kid": "a"}, {**second.published(), "kid": "a"})
    assert found.keys["a"].public == first.key.public_key()


def test_of_a_private_key_only_the_public_part_is_kept() -> None:
    key = p256()
    private = ECAlgorithm.to_jwk(key, as_dict=True) | {"kid": "a"}
    assert "d" in private
    assert read(private).keys["a"].public == key.public_key()


@pytest.mark.parametrize(
    ("configuration", "keys", "cause"),
    [
        (b"", b'{"keys":[]}', "the OpenID configuration is none"),
        (b"<html>", b'{"keys":[]}', "the OpenID configuration is none"),
        (b"\xff\xfe", b'{"keys":[]}', "the OpenID configuration is none"),
        (b"[]", b'{"keys":[]}', "the OpenID configuration is none"),
        (b"[" * 100_000, b'{"keys":[]}', "the OpenID configuration is none"),
        (b'{"a":' * 20_000, b'{"keys":[]}', "the OpenID configuration is none"),
        (b'{"issuer":5}', b'{"keys":[]}', "the OpenID configuration is none"),
        (b'{"issuer":"a","id_token_signing_alg_values_supported":"RS256"}', b'{"keys":[]}', "configuration is none"),
        (b'{"issuer":""}', b'{"keys":[]}', "the OpenID configuration names no issuer"),
        (json.dumps({"issuer": "a" * 2049}).encode(), b'{"keys":[]}', "the OpenID configuration names no issuer"),
        (b'{"issuer":"a"}', b"{}", "the key set is none"),
        (b'{"issuer":"a"}', b'{"keys":{}}', "the key set is none"),
        (b'{"issuer":"a"}', b'{"keys":' + b"[" * 100_000, "the key set is none"),
        (b'{"issuer":"a"}', b'{"keys":[' + b"9" * 100_000 + b"]}", "the key set holds no key for signatures"),
        (b'{"issuer":"a"}', b'{"keys":[]}', "the key set holds no key for signatures by ES256, ES384"),
        (b'{"issuer":"a"}', b" " * (LONGEST_DOCUMENT + 1), "the key set is longer than 131072 bytes"),
        (b" " * (LONGEST_DOCUMENT + 1), b'{"keys":[]}', "the OpenID configuration is longer"),
        (b'{"issuer":"a"}', b'{"keys":[' + b",".join([b"0"] * (MOST_KEYS + 1)) + b"]}", "more than 64 keys"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_no_key_set_is_refused_with_its_cause(configuration: bytes, keys: bytes, cause: str) -> None:
    with pytest.raises(InvalidKeySet, match=cause):
        read_key_set(configuration, keys)
