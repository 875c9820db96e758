"""Whatever a cluster tells of its keys, and whatever a token says: it is judged, and nothing breaks."""

from __future__ import annotations

import json
from typing import Any

import jwt
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.service_accounts import ISSUER, SigningKey, claims
from watchers.kubernetes.key_sets import ALGORITHMS, InvalidKeySet, KeySet, read_key_set
from watchers.kubernetes.token_verification import NotAccepted, read_token, verify

NOW = 1_800_000_000.0
KEY = SigningKey()
WIRE = KEY.published()
CONFIGURATION = {"issuer": ISSUER, "id_token_signing_alg_values_supported": ["ES256"]}
KEYS = read_key_set(json.dumps(CONFIGURATION).encode(), json.dumps({"keys": [WIRE]}).encode())
SOUND = claims("shop/cart", now=NOW, pod="cart-1", node="n1")

names = st.sampled_from(["shop", "cart", "cart-1", "a.b", "a/b", "system:serviceaccount:shop:cart", "istio-ca", ISSUER])
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text() | names
)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | names, inner, max_size=3)
)


def changed(document: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A document of which some fields are anything, and others gone."""
    fields = st.dictionaries(st.sampled_from([*document, "extra"]), anything | st.just("gone"), max_size=3)
    return fields.map(
        lambda other: {name: value for name, value in {**document, **other}.items() if value != "gone"}
    )


def read(configuration: bytes, keys: bytes) -> KeySet | None:
    try:
        found = read_key_set(configuration, keys)
    except InvalidKeySet:
        return None
    assert found.issuer
    assert all(key.algorithms and key.algorithms <= ALGORITHMS for key in found.keys.values())
    return found


@given(configuration=st.binary(), keys=st.binary())
def test_bytes_are_keys_or_none(configuration: bytes, keys: bytes) -> None:
    read(configuration, keys)


@given(configuration=changed(CONFIGURATION), keys=st.lists(changed(WIRE) | anything, max_size=3))
def test_documents_that_were_changed_are_keys_or_none_and_spoil_no_sound_key(
    configuration: dict[str, Any], keys: list[Any]
) -> None:
    read(json.dumps(configuration).encode(), json.dumps({"keys": keys}).encode())
    sound = SigningKey()
    found = read(json.dumps(CONFIGURATION).encode(), json.dumps({"keys": [*keys, sound.published()]}).encode())
    assert found is not None and sound.id in found.keys


def judged(text: str) -> None:
    """Judges a token; what is accepted keeps to every rule there is."""
    try:
        token = read_token(text)
        found = verify(token, KEYS, ("istio-ca",), NOW)
    except NotAccepted:
        return
    told = json.loads(jwt.PyJWS().decode(text, KEY.key.public_key(), ["ES256"]))
    account = found.account
    assert told["iss"] == ISSUER
    assert told["sub"] == f"system:serviceaccount:{account.namespace}:{account.name}"
    assert "istio-ca" in ([told["aud"]] if isinstance(told["aud"], str) else told["aud"])
    assert found.ends == told["exp"] > NOW
    assert "/" not in f"{account.namespace}{account.name}{account.pod}{account.node}"


@given(text=st.text() | st.from_regex(r"[A-Za-z0-9_-]{1,40}(\.[A-Za-z0-9_-]{1,40}){2}", fullmatch=True))
def test_text_is_judged(text: str) -> None:
    judged(text)


@given(told=changed(SOUND))
def test_claims_that_were_changed_are_judged(told: dict[str, Any]) -> None:
    judged(KEY.sign(told))


@given(bound=changed(SOUND["kubernetes.io"]))
def test_claims_of_kubernetes_that_were_changed_are_judged(bound: dict[str, Any]) -> None:
    judged(KEY.sign({**SOUND, "kubernetes.io": bound}))


@given(header=changed({"alg": "ES256", "kid": KEY.id}))
def test_headers_that_were_changed_are_judged(header: dict[str, Any]) -> None:
    judged(KEY.sign(SOUND, header))


@given(payload=st.binary(min_size=1))
def test_signed_bytes_are_judged(payload: bytes) -> None:
    judged(jwt.PyJWS().encode(payload, KEY.key, "ES256", headers={"kid": KEY.id}))


@given(place=st.integers(min_value=0), letter=st.sampled_from("ABab01-_.=\n"))
def test_a_token_of_which_a_letter_was_changed_is_judged(place: int, letter: str) -> None:
    sound = KEY.sign(SOUND)
    at = place % len(sound)
    judged(f"{sound[:at]}{letter}{sound[at + 1 :]}")
