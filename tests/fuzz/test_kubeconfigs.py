"""Whatever a kubeconfig says: it is refused, or becomes an API server that names no file and no program."""

from __future__ import annotations

import builtins
import ipaddress
import json
import os
import ssl
import subprocess
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
import yarl
from hypothesis import strategies as st

from tests.fuzz.signed import KEYS, hostile_certificates, hostile_keys
from tests.kit.certificates import Issuer, pem, private_pem
from tests.kit.fuzzing import bounded, fuzz
from tests.kit.hostile import LEAVES, TEXTS, damaged, damaged_value
from watchers.kubernetes.destinations import may_dial
from watchers.kubernetes.kubeconfig import MOST_BYTES, Allowances, ApiServer, InvalidKubeconfig, read_kubeconfig
from watchers.kubernetes.tls import tls_context

pytestmark = [
    pytest.mark.slow,
    # It says what later releases will refuse.
    pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning"),
]

TOKEN = "s3cret-t0ken-nobody-may-see"
ALL = Allowances(plain_http=True, insecure_skip_tls_verify=True, proxy_url=True)
ISSUER = Issuer("authority", key=KEYS[0])
CERTIFICATE, KEY = pem(ISSUER.certificate), private_pem(KEYS[0])


def encoded(data: bytes) -> str:
    return b64encode(data).decode()


SOUND: Mapping[str, Any] = {
    "apiVersion": "v1",
    "kind": "Config",
    "preferences": {},
    "clusters": [
        {
            "name": "c",
            "cluster": {
                "server": "https://10.0.0.1:6443",
                "certificate-authority-data": encoded(CERTIFICATE),
                "tls-server-name": "api.example",
            },
        }
    ],
    "users": [
        {"name": "u", "user": {"token": TOKEN}},
        {"name": "v", "user": {"client-certificate-data": encoded(CERTIFICATE), "client-key-data": encoded(KEY)}},
    ],
    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
    "current-context": "x",
}
FIELDS = (
    "exec",
    "Exec",
    "auth-provider",
    "tokenFile",
    "token-file",
    "client-certificate",
    "client-key",
    "certificate-authority",
    "username",
    "password",
    "as",
    "as-groups",
    "proxy-url",
    "insecure-skip-tls-verify",
    "disable-compression",
    "extensions",
    "<<",
    "server",
    "current-context",
)
FORBIDDEN: tuple[Any, ...] = (
    {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "args": ["-c", "id"]}},
    {"auth-provider": {"name": "gcp", "config": {"cmd-path": "/bin/sh", "cmd-args": "-c id"}}},
    {"tokenFile": "/etc/passwd"},
    {"token": TOKEN, "tokenFile": "/var/run/secrets/token"},
    {"client-certificate": "/etc/ssl/a.pem", "client-key": "/etc/ssl/a.key"},
    {"client-certificate-data": encoded(CERTIFICATE), "client-key": "../a.key"},
    {"as": "system:admin", "token": TOKEN},
    {"username": "a", "password": "b"},
)
SERVERS = (
    "https://api.example",
    "https://api.example:6443/k8s/clusters/c-1",
    "https://[fd00::1]:6443",
    "https://[::ffff:169.254.169.254]",
    "https://169.254.169.254/latest",
    "https://[fe80::1%25eth0]:1",
    "https://[v1.x]:443",
    "https://[::1",
    "https://2852039166",
    "https://0xa9.0xfe.0xa9.0xfe",
    "https://metadata.google.internal.",
    "http://api.example",
    "unix:///var/run/x.sock",
    "file:///etc/passwd",
    "https://a:b@api.example",
    "https://api.example:99999",
    "https://api.example:0",
    "https://api.example:٣",
    "https://api.example/%2e%2e/",
    "https://api.example/a//b",
    "https://api.example\\@b",
    "https:///",
    "https:api.example",
    "https://api.example:443:443",
    "https://-a.example",
    "https://a_b",
    "https://" + "a." * 150,
    "https://xn--a",
    "//api.example",
    "https://api.example?",
    "https://api.example\r\nx: y",
    "HTTPS://API.EXAMPLE",
)


@st.composite
def configs(draw: Any) -> Any:
    """Kubeconfigs as values: with users that must be refused, servers of all kinds, and what is wrong in form."""
    value = json.loads(json.dumps(SOUND))
    user = value["contexts"][0]["context"]
    user["user"] = draw(st.sampled_from(["u", "v"]))
    for one in value["users"]:
        if not draw(st.integers(0, 3)):
            one["user"] = dict(draw(st.sampled_from(FORBIDDEN)))
    if draw(st.booleans()):
        value["clusters"][0]["cluster"]["server"] = draw(st.sampled_from(SERVERS) | st.text(max_size=20))
    return value


@st.composite
def texts(draw: Any) -> bytes:
    """Kubeconfigs as text, in JSON or YAML."""
    value = draw(configs() | damaged_value(configs(), FIELDS))
    if draw(st.booleans()):
        return json.dumps(value).encode("utf-8", "surrogatepass")
    return yaml.safe_dump(value, default_flow_style=draw(st.booleans()), allow_unicode=True).encode(
        "utf-8", "surrogatepass"
    )


MARKS = [
    b"&a ",
    b"*a",
    b"<<: *a\n",
    b"!!python/object/apply:os.system ['id']\n",
    b"!!binary ",
    b"!<tag:yaml.org,2002:int> ",
    b"!!set ",
    b"%YAML 1.1\n---\n",
    b"%TAG ! tag:x,2000:\n---\n",
    b"---\n",
    b"...\n",
    b"? ",
    b"{",
    b"[",
    b"- - - ",
    b"|2\n",
    b">-\n",
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b'"\\ud800"',
    b"\t",
    b"#",
    b"'",
    *TEXTS,
]


@st.composite
def marked(draw: Any) -> bytes:
    """Kubeconfigs as text, with marks of YAML where they do not belong."""
    data: bytes = draw(texts())
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(data)))
        data = data[:place] + draw(st.sampled_from(MARKS)) + data[place:]
    return data


def read(data: bytes, allowances: Allowances) -> ApiServer | None:
    try:
        return bounded(lambda: read_kubeconfig(data, allowances), len(data))
    except InvalidKubeconfig as error:
        for secret in (TOKEN, encoded(KEY)[:40], KEY.splitlines()[1].decode()):
            assert secret not in str(error)
        assert error.cause and error.cure
    return None


def check_harmless(server: ApiServer, allowances: Allowances) -> None:
    assert server.token_file == ""
    url = urlsplit(server.server)
    assert url.scheme == "https" or (allowances.plain_http and url.scheme == "http")
    assert not (url.username or url.password or url.query or url.fragment)
    for each in filter(None, (server.server, server.proxy_url)):
        host = urlsplit(each).hostname
        assert host
        try:
            assert may_dial(ipaddress.ip_address(host))
        except ValueError:
            assert not host.replace(".", "").isdigit()
        # The client takes it for what it is taken for here.
        taken = yarl.URL(each)
        assert (taken.scheme, taken.raw_host, taken.user) == (urlsplit(each).scheme, host.lower(), None)
    for text in (server.ca_data, server.client_certificate, server.client_key):
        assert not text or "-----BEGIN " in text
    assert "\n" not in server.token and " " not in server.token
    assert bool(server.client_certificate) == bool(server.client_key)
    assert allowances.insecure_skip_tls_verify or not server.insecure
    assert allowances.proxy_url or not server.proxy_url
    for secret in filter(None, (server.token, server.client_key)):
        assert secret not in repr(server)


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing can be opened or started."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("opens a file or starts a program")

    with monkeypatch.context() as patch:
        for module, name in (
            (builtins, "open"),
            (os, "open"),
            (os, "system"),
            (os, "popen"),
            (subprocess, "Popen"),
        ):
            patch.setattr(module, name, refuse)
        yield


@pytest.mark.parametrize("allowances", [Allowances(), ALL], ids=["nothing allowed", "all allowed"])
def test_any_kubeconfig_is_refused_or_names_no_file_and_no_program(allowances: Allowances) -> None:
    def one(data: bytes) -> None:
        server = read(data, allowances)
        if server is not None:
            check_harmless(server, allowances)

    fuzz(one, texts() | marked() | damaged(texts()) | st.binary(max_size=200), share=0.35)


@pytest.mark.parametrize("user", FORBIDDEN)
@pytest.mark.parametrize("leaf", [leaf for leaf in LEAVES if leaf and leaf == leaf and leaf is not True][:12], ids=repr)
def test_a_user_that_names_a_program_or_file_is_refused_whatever_stands_there(
    closed: None, user: dict[str, Any], leaf: Any
) -> None:
    for name in user:
        if name in ("token", "client-certificate-data"):
            continue
        value = json.loads(json.dumps(SOUND))
        value["users"][0]["user"] = {"token": TOKEN, **user, name: leaf}
        with pytest.raises(InvalidKubeconfig):
            read_kubeconfig(json.dumps(value).encode(), ALL)


def test_any_certificates_and_keys_of_a_kubeconfig_are_used_or_refused() -> None:
    sound = st.sampled_from([(Issuer("authority", key=key).certificate, key) for key in KEYS])
    hostile = hostile_certificates(sound)
    keys = hostile_keys(st.sampled_from([private_pem(key) for key in KEYS]))
    plain = st.sampled_from([CERTIFICATE, b"-----BEGIN CERTIFICATE-----\n", b""])

    def one(ca: bytes, certificate: bytes, key: bytes) -> None:
        server = ApiServer(
            server="https://api.example",
            ca_data=ca.decode("ascii", "ignore"),
            client_certificate=certificate.decode("ascii", "ignore"),
            client_key=key.decode("ascii", "ignore"),
        )
        try:
            context = bounded(lambda: tls_context(server), len(ca) + len(certificate) + len(key))
        except InvalidKubeconfig as error:
            assert "PRIVATE" not in str(error)
        else:
            assert context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname

    fuzz(one, hostile | plain, plain | hostile, st.just(KEY) | keys, share=0.3)


def lines(count: int, line: str) -> bytes:
    return b"".join((line % number).encode() for number in range(count))


BOMBS: Mapping[str, bytes] = {
    "laughs": b"a: &a [x,x,x,x,x,x,x,x,x]\n"
    + b"".join(b"%c: &%c [%s]\n" % (c + 1, c + 1, b",".join([b"*%c" % c] * 9)) for c in range(97, 115)),
    "merges": b"a: &a {k: v}\n"
    + b"".join(b"%c: &%c {<<: [%s]}\n" % (c + 1, c + 1, b",".join([b"*%c" % c] * 9)) for c in range(97, 115)),
    "brackets": b"[" * MOST_BYTES,
    "braces": b"{" * MOST_BYTES,
    "dashes": b"- " * (MOST_BYTES // 2),
    "questions": b"? " * (MOST_BYTES // 2),
    "flow pairs": b"[" + b"a: b, " * 150_000 + b"]",
    "quotes": b"'" * MOST_BYTES,
    "a word": b"a" * MOST_BYTES,
    "digits": b"a: " + b"9" * (MOST_BYTES - 3),
    "digits and lines": b"a: 0x" + b"_" * (MOST_BYTES - 5),
    "fractions": b"a: ." + b"0" * 79 + b"e" * 79,
    "keys": lines(60_000, "k%d: 1\n"),
    "anchors": lines(60_000, "- &a%d x\n"),
    "documents": b"---\n" * (MOST_BYTES // 4),
    "comments": b"#\n" * (MOST_BYTES // 2),
    "directives": b"%TAG !a! tag:x\n" * 60_000,
    "tags": b"- !!str x\n" * 90_000,
    "spaces": b" " * MOST_BYTES,
    "line ends": b"\n" * MOST_BYTES,
    "escapes": b'"' + b"\\x41" * (MOST_BYTES // 4 - 1) + b'"',
    "literal": b"a: |\n" + b" \n" * (MOST_BYTES // 2 - 4),
    "NUL": b"\0" * MOST_BYTES,
    "users": b"users:\n" + b"- {name: u, user: {}}\n" * 4000 + b"contexts: []\n",
    "authorities": json.dumps(
        {
            **SOUND,
            "clusters": [{"name": "c", "cluster": {"server": "https://a", "certificate-authority-data": "A" * 9**6}}],
        }
    ).encode(),
}


@pytest.mark.parametrize("what", BOMBS)
def test_a_bomb_is_refused_quickly(what: str) -> None:
    assert read(BOMBS[what], ALL) is None
