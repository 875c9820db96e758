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
from watchers.facts.secrets import MOST_BYTES, SecretObject, TLSSecret
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
