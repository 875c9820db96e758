"""Which tokens are accepted by the keys of a cluster, and whose they are."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.utils import base64url_encode

from tests.kit.certificates import rsa_key
from tests.kit.service_accounts import ISSUER, SigningKey, claims
from watchers.kubernetes.key_sets import KeySet, read_key_set
from watchers.kubernetes.token_reviews import Account
from watchers.kubernetes.token_verification import (
    LEEWAY,
    LONGEST_HEADER,
    LONGEST_TOKEN,
    NotAccepted,
    Verified,
    read_token,
    verify,
)

NOW = 1_800_000_000.0
KEY = SigningKey()


def key_set(*keys: SigningKey, issuer: str = ISSUER) -> KeySet:
    wire = {"keys": [key.published() for key in keys]}
    return read_key_set(json.dumps({"issuer": issuer}).encode(), json.dumps(wire).encode())


KEYS = key_set(KEY)


def claimed(account: str = "shop/cart", **given: Any) -> dict[str, Any]:
    return claims(account, now=NOW, **given)


def judged(text: str, keys: KeySet = KEYS, *, now: float = NOW) -> Verified:
    return verify(read_token(text), keys, ("istio-ca", "isthmus"), now)


def refused(text: str, keys: KeySet = KEYS, *, now: float = NOW) -> str:
    """Why a token is not accepted."""
    with pytest.raises(NotAccepted) as caught:
        judged(text, keys, now=now)
    return str(caught.value)


def bound(**changed: Any) -> dict[str, Any]:
    """Claims of which Kubernetes' own are changed."""
    whole = claimed(pod="cart-1", node="n1")
    return {**whole, "kubernetes.io": {**whole["kubernetes.io"], **changed}}


# Whose it is.


def test_a_sound_token_names_account_pod_and_node_and_says_when_it_ends() -> None:
    found = judged(KEY.sign(claimed(pod="cart-1", node="n1")))
    assert found == Verified(Account("shop", "cart", "cart-1", "n1", "uid-of-cart-1"), NOW + 3600)


def test_a_token_that_is_bound_to_no_pod_has_none() -> None:
    assert judged(KEY.sign(claimed())).account == Account("shop", "cart")


def test_a_token_that_is_bound_to_a_node_alone_has_that() -> None:
    assert judged(KEY.sign(claimed(node="n1"))).account == Account("shop", "cart", node="n1")


@pytest.mark.parametrize("name", ["a.b", "a-b.c-d", "0", "9.9", "a" * 253, "default"])
def test_accounts_may_be_called_what_kubernetes_lets_them(name: str) -> None:
    assert judged(KEY.sign(claimed(f"shop/{name}"))).account == Account("shop", name)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a..b", ".a", "a.", "-a", "a-", "A", "a_b", "a/sa/b", "a:b", "a b", "a\n", "ä", "a\x00", "a" * 254],
)
def test_an_account_that_cannot_be_called_so_is_not_accepted(name: str) -> None:
    assert refused(KEY.sign(claimed(f"shop/{name}"))) == "it names no service account"


@pytest.mark.parametrize("namespace", ["", "a.b", "A", "a:b", "a\n", "a" * 64])
def test_a_namespace_that_cannot_be_called_so_is_not_accepted(namespace: str) -> None:
    assert refused(KEY.sign(claimed(f"{namespace}/cart"))) == "it names no service account"


# The signature.


def test_the_key_is_the_one_whose_id_the_token_names() -> None:
    other = SigningKey()
    both = key_set(KEY, other)
    for key in (KEY, other):
        assert judged(key.sign(claimed()), both).account.name == "cart"
    assert refused(KEY.sign(claimed(), {"kid": other.id}), both) == "its signature is wrong"


def test_a_token_by_a_key_that_was_given_up_is_not_accepted() -> None:
    assert refused(KEY.sign(claimed()), key_set(SigningKey())) == "it is signed by no key of this cluster"


def test_a_token_without_a_key_id_is_not_accepted() -> None:
    assert refused(KEY.sign(claimed(), {"kid": None})) == "its header cannot be read, or names no key"


def test_a_token_of_another_cluster_with_the_same_issuer_is_not_accepted() -> None:
    stranger = SigningKey()
    assert refused(stranger.sign(claimed())) == "it is signed by no key of this cluster"
    assert refused(stranger.sign(claimed(), {"kid": KEY.id})) == "its signature is wrong"


@pytest.mark.parametrize("algorithm", ["none", "None", "nOnE", ""])
def test_a_token_without_a_signature_is_not_accepted(algorithm: str) -> None:
    head, payload, signature = KEY.sign(claimed(), {"alg": algorithm}).split(".")
    wrong = "its signature is of an algorithm that is not for this key"
    assert refused(f"{head}.{payload}.{signature}") == wrong
    assert refused(f"{head}.{payload}.") == "it is no JSON Web Token of three parts"


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_public_key_is_no_shared_secret(algorithm: str) -> None:
    public = KEY.key.public_key()
    forms = (Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), (Encoding.X962, PublicFormat.UncompressedPoint)
    for encoding, form in forms:
        secret = public.public_bytes(encoding, form)
        parts = [base64url_encode(json.dumps(one).encode()) for one in ({"alg": algorithm, "kid": KEY.id}, claimed())]
        hmac = jwt.get_algorithm_by_name(algorithm)
        text = b".".join([*parts, base64url_encode(hmac.sign(b".".join(parts), secret))]).decode()
        assert refused(text) == "its signature is of an algorithm that is not for this key"


@pytest.mark.parametrize("algorithm", ["RS256", "ES384", "ES512", "ES256K", "PS256", "EdDSA", "es256", "ES256 "])
def test_an_algorithm_that_is_not_for_the_key_is_not_accepted(algorithm: str) -> None:
    text = KEY.sign(claimed(), {"alg": algorithm})
    assert refused(text) == "its signature is of an algorithm that is not for this key"


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512"])
def test_tokens_by_rsa_keys_are_accepted(algorithm: str) -> None:
    key = SigningKey(rsa_key(3482), algorithm)
    assert judged(key.sign(claimed()), key_set(key)).account.name == "cart"


@pytest.mark.parametrize(("algorithm", "curve"), [("ES384", ec.SECP384R1()), ("ES512", ec.SECP521R1())])
def test_tokens_by_keys_on_longer_curves_are_accepted(algorithm: str, curve: ec.EllipticCurve) -> None:
    key = SigningKey(ec.generate_private_key(curve), algorithm)
    assert judged(key.sign(claimed()), key_set(key)).account.name == "cart"


def test_a_key_that_is_for_another_algorithm_of_its_type_verifies_nothing() -> None:
    key = SigningKey(rsa_key(3482), "RS256")
    stronger = SigningKey(rsa_key(3482), "RS512")
    text = stronger.sign(claimed())
    assert refused(text, key_set(key)) == "its signature is of an algorithm that is not for this key"


def test_a_token_that_was_changed_is_not_accepted() -> None:
    head, _, signature = KEY.sign(claimed()).split(".")
    other = KEY.sign(claimed("kube-system/admin")).split(".")[1]
    assert refused(f"{head}.{other}.{signature}") == "its signature is wrong"


@pytest.mark.parametrize("header", [{"crit": ["exp"]}, {"crit": []}, {"b64": False}, {"b64": False, "crit": ["b64"]}])
def test_a_header_that_asks_for_what_is_not_known_here_is_not_accepted(header: dict[str, Any]) -> None:
    assert refused(KEY.sign(claimed(), header)) == "its signature is wrong"


def test_keys_and_addresses_of_keys_in_the_header_count_for_nothing() -> None:
    stranger = SigningKey()
    header = {"kid": KEY.id, "jwk": stranger.published(), "jku": "https://attacker.example/keys", "x5u": "https://a"}
    assert refused(stranger.sign(claimed(), header)) == "its signature is wrong"


# What it claims.


def test_a_token_of_another_issuer_is_not_accepted() -> None:
    for issuer in ("https://other.example", "", f"{ISSUER}/"):
        assert refused(KEY.sign(claimed(issuer=issuer))) == "it is of another issuer than this cluster's"


def test_a_token_for_any_of_the_audiences_is_accepted_and_for_others_is_not() -> None:
    assert judged(KEY.sign(claimed(audiences=["vault", "isthmus"]))).account.name == "cart"
    assert judged(KEY.sign({**claimed(), "aud": "istio-ca"})).account.name == "cart"
    for audience in (["https://kubernetes.default.svc"], [], "istio-ca2", ""):
        assert refused(KEY.sign({**claimed(), "aud": audience})) == "it is made for another audience"


def test_a_token_that_has_ended_is_not_accepted_not_even_for_a_moment() -> None:
    text = KEY.sign(claimed(seconds=600))
    assert judged(text, now=NOW + 599).ends == NOW + 600
    assert refused(text, now=NOW + 600) == "it has ended"


@pytest.mark.parametrize("claim", ["nbf", "iat"])
def test_a_token_of_the_future_is_accepted_within_the_difference_that_clocks_have(claim: str) -> None:
    assert judged(KEY.sign({**claimed(), claim: NOW + LEEWAY})).account.name == "cart"
    assert refused(KEY.sign({**claimed(), claim: NOW + LEEWAY + 1})) == "it does not count yet"


@pytest.mark.parametrize("claim", ["iss", "sub", "aud", "exp", "kubernetes.io"])
@pytest.mark.parametrize("value", ["absent", None, {}, [5], True], ids=str)
def test_a_claim_that_is_absent_or_of_another_type_is_not_accepted(claim: str, value: object) -> None:
    told = {**claimed(), claim: value}
    if value == "absent":
        del told[claim]
    assert refused(KEY.sign(told)) == "its claims are not those of a service account's token"


@pytest.mark.parametrize("number", ["1e999", "9" * 4400, "-1", "0", "1e-999", '"1900000000"', "true"])
def test_no_number_of_seconds_breaks_anything(number: str) -> None:
    payload = json.dumps(claimed()).replace(str(int(NOW) + 3600), number).encode()
    text = jwt.PyJWS().encode(payload, KEY.key, "ES256", headers={"kid": KEY.id})
    assert refused(text) in ("it has ended", "its claims are not those of a service account's token")


@pytest.mark.parametrize(
    "subject",
    [
        "system:serviceaccount:shop:orders",
        "system:serviceaccount:store:cart",
        "system:serviceaccount:shop:cart:x",
        "system:serviceaccount:shop",
        "system:node:n1",
        "cart",
        "",
        "system:serviceaccount:shop:cart\n",
    ],
)
def test_a_subject_that_is_not_its_service_account_is_not_accepted(subject: str) -> None:
    assert refused(KEY.sign({**claimed(), "sub": subject})) == "its subject is another than its service account"


@pytest.mark.parametrize(
    "changed",
    [{"namespace": "store"}, {"serviceaccount": {"name": "orders"}}],
    ids=["namespace", "account"],
)
def test_claims_of_kubernetes_that_are_not_its_subject_are_not_accepted(changed: dict[str, Any]) -> None:
    assert refused(KEY.sign(bound(**changed))) == "its subject is another than its service account"


@pytest.mark.parametrize(
    "changed",
    [
        {"pod": {"name": "a/b", "uid": "u"}},
        {"pod": {"name": "", "uid": "u"}},
        {"pod": {"name": "cart-1", "uid": ""}},
        {"pod": {"name": "cart-1", "uid": "u\n"}},
        {"pod": {"name": "cart-1", "uid": "u" * 129}},
        {"node": {"name": "n~1"}},
    ],
    ids=str,
)
def test_a_pod_or_node_that_cannot_be_called_so_is_not_accepted(changed: dict[str, Any]) -> None:
    assert refused(KEY.sign(bound(**changed))) in ("it names no pod that can be", "it names no node that can be")


@pytest.mark.parametrize(
    "changed", [{"pod": {"name": "cart-1"}}, {"pod": "cart-1"}, {"node": []}, {"namespace": 1}], ids=str
)
def test_claims_of_kubernetes_of_another_form_are_not_accepted(changed: dict[str, Any]) -> None:
    assert refused(KEY.sign(bound(**changed))) == "its claims are not those of a service account's token"


# Form and size.


def test_a_token_is_bounded_before_it_is_read() -> None:
    fits = {**claimed(), "x": "a" * 10_000}
    assert judged(KEY.sign(fits)).account.name == "cart"
    assert refused(KEY.sign({**claimed(), "x": "a" * LONGEST_TOKEN})) == "it is too long"
    assert refused(KEY.sign(claimed(), {"x": "a" * LONGEST_HEADER})) == "it is no JSON Web Token of three parts"


def encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"alg":"ES256"}',
        b'{"alg":5,"kid":"a"}',
        b'{"alg":"ES256","kid":["a"]}',
        b'{"alg":["ES256"],"kid":"a"}',
        b'{"alg":"ES256","kid":"a"',
        '{"alg":"ES256","kid":"a"}'.encode("utf-16"),
        b"[" * 700,
        b'{"x":' * 140,
        b'{"alg":"ES256","kid":"\xff"}',
    ],
    ids=lambda header: repr(header)[:30],
)
def test_a_header_that_is_none_is_not_accepted(header: bytes) -> None:
    text = f"{encoded(header) or 'AA'}.{encoded(b'{}')}.{encoded(b'x')}"
    assert refused(text) == "its header cannot be read, or names no key"


@pytest.mark.parametrize(
    "text",
    [
        *("", ".", "..", "a.b", "a.b.c.d", "a.b.", ".b.c", "a..c"),
        *("a.b.c\n", " a.b.c", "a.b.c=", "a.b!.c", "ä.b.c", "\ud800.b.c"),
    ],
    ids=ascii,
)
def test_what_is_no_token_is_not_accepted(text: str) -> None:
    assert refused(text) == "it is no JSON Web Token of three parts"


@pytest.mark.parametrize(
    "payload",
    [b"[]", b"null", b"{}", b"\xff", b"[" * 10_000, b'{"x":' * 2_000, b"9" * 8_000],
    ids=lambda payload: repr(payload)[:20],
)
def test_a_signed_payload_that_is_no_set_of_claims_is_not_accepted(payload: bytes) -> None:
    text = jwt.PyJWS().encode(payload, KEY.key, "ES256", headers={"kid": KEY.id})
    assert refused(text) == "its claims are not those of a service account's token"


def test_a_token_and_what_is_read_of_it_show_nothing_of_it() -> None:
    text = KEY.sign(claimed())
    assert repr(read_token(text)) == "Presented()"
    for cause in (refused(text, now=NOW + 9_999), refused(SigningKey().sign(claimed()))):
        assert not any(part in cause for part in (*text.split("."), KEY.id, "cart"))
