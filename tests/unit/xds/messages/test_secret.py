"""Secrets as bytes, and never as text."""

from __future__ import annotations

from xds import protos
from xds.messages.secret import KeyPair, TrustedRoots, encode_key_pair, encode_roots

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
