"""TLS Secrets: what they hold reaches the fact and nothing else, neither a repr nor the text of an error or fault."""

from __future__ import annotations

import copy
import io
import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from rich.console import Console

from tests.kit import manifests
from tests.unit.watchers.recorded import recorded
from watchers.facts import kinds
from watchers.facts.invalid import InvalidObject
from watchers.facts.kinds import kind_of
from watchers.facts.secrets import MOST_BYTES, NamedSecret, SecretObject, TLSSecret
from watchers.manifests import read_manifests

CERTIFICATE, KEY = b"-----BEGIN CERTIFICATE-----\nleaf\n", b"-----BEGIN PRIVATE KEY-----\nkey\n"
ROOT = b"-----BEGIN CERTIFICATE-----\nroot\n"
TREASURE = "dHJlYXN1cmU="
"""What must not be seen, as such and as base64 of something."""
SECRET = kind_of("v1", "Secret")
assert SECRET is not None


def secret(data: Any = None, plain: Any = None, kind: Any = "kubernetes.io/tls") -> Any:
    document: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tls", "namespace": "shop"}}
    return {**document, "type": kind, "data": data, "stringData": plain}


def fact(document: Any) -> TLSSecret:
    keyed = kinds.decode(document, "west", "istio-system")
    assert keyed is not None
    assert isinstance(keyed[1], TLSSecret)
    return keyed[1]


def refused(document: Any) -> InvalidObject:
    with pytest.raises(InvalidObject) as caught:
        kinds.decode(document, "west", "istio-system")
    return caught.value


def test_a_recorded_secret() -> None:
    assert kinds.decode(recorded("secret"), "west", "istio-system") == (
        ("west", "TLSSecret", "shop", "cart-tls"),
        TLSSecret(CERTIFICATE, KEY, ROOT, b"-----BEGIN X509 CRL-----\nrevoked\n", b"staple"),
    )


def test_a_built_secret() -> None:
    assert fact(manifests.tls_secret("shop/tls", CERTIFICATE, KEY)) == TLSSecret(CERTIFICATE, KEY)


@pytest.mark.parametrize("kind", ["Opaque", None, "", "kubernetes.io/dockerconfigjson", "helm.sh/release.v1"])
def test_secrets_of_other_types_are_not_read(kind: Any) -> None:
    assert kinds.decode(secret({"password": TREASURE, "tls.key": "not base64"}, kind=kind), "west", "s") is None


def test_plain_text_goes_before_data() -> None:
    data = {"tls.crt": b64encode(b"old").decode(), "tls.key": b64encode(KEY).decode()}
    assert fact(secret(data, {"tls.crt": CERTIFICATE.decode()})) == TLSSecret(CERTIFICATE, KEY)
    assert fact(secret(data, {"tls.crt": ""})) == TLSSecret(b"", KEY)


def test_plain_text_alone_is_enough() -> None:
    assert fact(secret(plain={"tls.crt": "a", "tls.key": "b"})) == TLSSecret(b"a", b"b")


def test_base64_may_be_broken_into_lines() -> None:
    text = b64encode(KEY * 9).decode()
    lines = "\r\n".join(text[start : start + 64] for start in range(0, len(text), 64)) + "\n"
    assert fact(secret({"tls.crt": lines, "tls.key": lines})) == TLSSecret(KEY * 9, KEY * 9)


def test_an_entry_that_is_empty_is_there() -> None:
    assert fact(secret({"tls.crt": "", "tls.key": ""})) == TLSSecret(b"", b"")


@pytest.mark.parametrize("data", [None, {}, {"tls.key": TREASURE}, {"tls.crt": None, "tls.key": TREASURE}])
def test_an_entry_that_is_not_there_is_named(data: Any) -> None:
    error = refused(secret(data))
    assert str(error) == 'Secret shop/tls: data["tls.crt"] is missing'
    assert error.key == ("west", "TLSSecret", "shop", "tls")


@pytest.mark.parametrize("bad", ["dHJlYXN1cmU", "dHJlYXN1cmU=!", "dHJl YXN1cmU=", "\ud800", "dHJlYXN1cmU=\x00"])
def test_what_is_no_base64_is_refused_without_showing_it(bad: str) -> None:
    error = refused(secret({"tls.crt": TREASURE, "tls.key": bad}))
    assert str(error) == 'Secret shop/tls: data["tls.key"] is not base64'
    assert error.cure == "encode it, or write it under stringData"


@pytest.mark.parametrize("field", ["data", "stringData"])
def test_a_secret_no_api_server_would_take_is_refused(field: str) -> None:
    long = "A" * (MOST_BYTES * 4 // 3 + 8)
    document = secret({"tls.crt": TREASURE, "tls.key": TREASURE})
    document[field] = {"tls.crt": long, "tls.key": TREASURE}
    assert refused(document).path == (field, "tls.crt")


def test_a_secret_shows_its_size_and_no_content() -> None:
    found = TLSSecret(CERTIFICATE, KEY)
    console = Console(file=io.StringIO(), width=200)
    console.print(found)
    shown = f"{found!r} {found} {found.__rich_repr__()} {console.file.getvalue()}"  # type: ignore[attr-defined]
    assert repr(found) == "TLSSecret(33 bytes, key of 32 bytes)"
    assert "BEGIN" not in shown
    assert "leaf" not in shown


def test_a_secret_on_the_wire_shows_no_content() -> None:
    wire = msgspec.convert(secret({"tls.crt": TREASURE}, {"tls.key": TREASURE}), SecretObject)
    assert TREASURE not in repr(wire)


def mutations(document: Any) -> Iterator[Any]:
    """The Secret with something wrong in every place, where the treasure is still in it."""
    wrong: tuple[object, ...] = (
        TREASURE,
        [TREASURE],
        [],
        {TREASURE: 5},
        {"tls.crt": {"tls.key": TREASURE}},
        5,
        True,
        f"{TREASURE}!",
        [[TREASURE]],
    )
    for field in ("data", "stringData"):
        for value in wrong:
            yield {**document, field: value}
            for name in ("tls.crt", "tls.key"):
                yield {**document, field: {"tls.crt": TREASURE, "tls.key": TREASURE, name: value}}
    for value in wrong[1:]:
        yield {**document, "type": value}
        changed = copy.deepcopy(document)
        changed["metadata"]["namespace"] = value if value != f"{TREASURE}!" else []
        yield changed


def test_nothing_a_secret_holds_is_in_the_text_of_an_error() -> None:
    seen = 0
    for document in mutations(secret({"tls.crt": TREASURE, "tls.key": TREASURE})):
        assert SECRET is not None
        for encode in (False, True):
            try:
                if encode:
                    SECRET.decode_json(json.dumps(document).encode(), "west", "s")
                else:
                    kinds.decode(document, "west", "s")
            except InvalidObject as error:
                seen += 1
                told = f"{error} {error!r} {error.cause} {error.cure} {error.args} {error.__cause__}"
                assert "dHJl" not in told, document
    assert seen > 50


def test_a_page_of_secrets_tells_nothing_of_a_bad_one() -> None:
    assert SECRET is not None
    items = [
        secret({"tls.crt": TREASURE, "tls.key": TREASURE}),
        secret(TREASURE),
        secret({"tls.crt": 5, "tls.key": TREASURE}),
    ]
    page = SECRET.decode_page(json.dumps({"items": items}).encode(), "west", "s")
    assert (len(page.facts), len(page.invalid)) == (1, 2)
    assert not any(TREASURE in f"{error}{error.cure}" for error in page.invalid)


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_the_fault_of_a_file_tells_nothing_of_its_secrets(form: str) -> None:
    for document in mutations(secret({"tls.crt": TREASURE, "tls.key": TREASURE})):
        text = manifests.manifest_text(document, form=form).encode()
        flaw = read_manifests(f"secret.{form}", text, "west", "s").flaw
        assert flaw is None or "dHJl" not in f"{flaw.cause} {flaw.cure}"


# Secrets of other types, as they lie in a directory and are read by name.


def named(document: Any) -> NamedSecret:
    found = kinds.decode(document, "west", "istio-system")
    assert found is not None
    assert found[0] == ("west", "NamedSecret", "shop", "tls")
    assert isinstance(found[1], NamedSecret)
    return found[1]


def plain(kind: str = "Opaque", **entries: str) -> Any:
    return secret(plain={name.replace("_", "."): value for name, value in entries.items()}, kind=kind)


def test_a_generic_pair_goes_before_that_of_tls() -> None:
    both = plain(cert="c", key="k", cacert="r", crl="l", tls_crt="C", tls_key="K", ca_crt="R", ca_crl="L")
    assert named(both) == NamedSecret(b"c", b"k", b"r", b"l", generic=True)


@pytest.mark.parametrize("missing", ["cert", "key"])
def test_half_a_generic_pair_is_none(missing: str) -> None:
    entries = {"cert": "c", "key": "k", "tls_crt": "C", "tls_key": "K"}
    del entries[missing]
    assert named(plain(**entries)) == NamedSecret(b"C", b"K")


def test_revocations_are_those_beside_the_roots_that_count() -> None:
    assert named(plain(cacert="r", ca_crt="R", ca_crl="L")) == NamedSecret(roots=b"r")
    assert named(plain(ca_crt="R", ca_crl="L", crl="l")) == NamedSecret(roots=b"R", crl=b"L")


def test_a_secret_of_another_type_without_a_credential_is_not_read() -> None:
    for entries in ({"key": "password"}, {"cert": "c", "tls_key": "k"}, {"crl": "l"}, {}):
        assert kinds.decode(plain(**entries), "west", "istio-system") is None


def test_a_tls_secret_is_read_by_the_entries_of_its_type() -> None:
    entries = plain("kubernetes.io/tls", tls_crt="C", tls_key="K", cert="c", key="k", ca_crt="R", cacert="r")
    assert fact(entries) == TLSSecret(b"C", b"K", b"r")


def test_what_a_server_sends_of_other_types_does_not_become_a_fact_of_tls_secrets() -> None:
    (tls,) = (kind for kind in kinds.KINDS if kind.fact == "TLSSecret")
    page = tls.decode_page(json.dumps({"items": [plain(cert="c", key="k")]}).encode(), "west", "s")
    assert page.facts == []


def test_by_name_a_secret_of_any_type_is_read_whatever_it_holds() -> None:
    for document in (plain(), plain("kubernetes.io/tls", tls_crt="C", tls_key="K"), plain(password="p")):
        keyed = kinds.NAMED_SECRET.decode(document, "west", "s")
        assert keyed is not None
        assert keyed[0][1] == "NamedSecret"


def test_equal_roots_are_kept_once() -> None:
    tls = fact(plain("kubernetes.io/tls", tls_crt="", tls_key="", ca_crt="roots"))
    assert named(plain(cacert="roots")).roots is tls.roots


def test_a_named_secret_shows_only_how_much_it_holds() -> None:
    shown = named(plain(cert=TREASURE, key=TREASURE, cacert=TREASURE))
    console = Console(file=io.StringIO(), width=200)
    console.print(shown)
    assert TREASURE not in f"{shown!r} {shown} {console.file.getvalue()}"  # type: ignore[attr-defined]
