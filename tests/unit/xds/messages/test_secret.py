"""Secrets as bytes, and never as text."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from xds import protos
from xds.encoded import wrap
from xds.messages.secret import SECRET_TYPE, KeyPair, TrustedRoots, encode_key_pair, encode_roots, renamed

Secret = protos.envoy.extensions.transport_sockets.tls.v3.Secret


def test_a_certificate_and_its_key() -> None:
    message = Secret.FromString(encode_key_pair(KeyPair("a.example", b"chain", b"key")).data)
    assert message.name == "a.example"
    assert message.tls_certificate.certificate_chain.inline_bytes == b"chain"
    assert message.tls_certificate.private_key.inline_bytes == b"key"


def test_roots_to_trust() -> None:
    message = Secret.FromString(encode_roots(TrustedRoots("ROOTCA", b"roots")).data)
    assert (message.name, message.validation_context.trusted_ca.inline_bytes) == ("ROOTCA", b"roots")


def test_what_goes_with_them_is_told_where_it_is_given() -> None:
    stapled = Secret.FromString(encode_key_pair(KeyPair("a", b"chain", b"key", b"staple")).data)
    assert stapled.tls_certificate.ocsp_staple.inline_bytes == b"staple"
    revoking = Secret.FromString(encode_roots(TrustedRoots("a", b"roots", b"crl")).data)
    assert revoking.validation_context.crl.inline_bytes == b"crl"
    bare = Secret.FromString(encode_key_pair(KeyPair("a", b"chain", b"key")).data)
    assert not bare.tls_certificate.HasField("ocsp_staple")
    assert not Secret.FromString(encode_roots(TrustedRoots("a", b"roots")).data).validation_context.HasField("crl")


def test_a_pair_shows_its_name_alone() -> None:
    pair = KeyPair("a.example", b"chain", b"treasure")
    assert repr(pair) == str(pair) == "KeyPair('a.example')"
    assert pair.__rich_repr__() == [("name", "a.example")]


@pytest.mark.parametrize("name", ["", "b", "x" * 300])
def test_another_name_gives_the_bytes_of_encoding_it_so(name: str) -> None:
    for before in ("a.example", "y" * 200):
        pair = KeyPair(before, b"chain", b"key", b"staple")
        found = renamed(wrap(SECRET_TYPE, before, encode_key_pair(pair)), name)
        if name:
            assert found == wrap(SECRET_TYPE, name, encode_key_pair(replace(pair, name=name)))
        assert Secret.FromString(found.body.tobytes()).name == name
