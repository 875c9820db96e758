"""Rules of `watchers.kubernetes.kubeconfig`: what is taken from a kubeconfig, and that nothing else can happen."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.kubeconfigs import kubeconfig
from watchers.kubernetes.destinations import may_dial, objection
from watchers.kubernetes.kubeconfig import (
    MOST_PEM,
    NO_ALLOWANCES,
    Allowances,
    ApiServer,
    InvalidKubeconfig,
    in_cluster,
    read_kubeconfig,
)

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
ENCODED = b64encode(PEM.encode()).decode()
SECRET = "s3cr3t-of-the-user"
EVERYTHING = Allowances(plain_http=True, insecure_skip_tls_verify=True, proxy_url=True)


def config(
    cluster: Mapping[str, Any] | None = None,
    user: Mapping[str, Any] | None = None,
    current: str = "context",
    **document: Any,
) -> bytes:
    """A kubeconfig with these fields in its cluster and its user."""
    whole = json.loads(kubeconfig("https://api.example:6443", user=user if user is not None else {"token": SECRET}))
    whole["clusters"][0]["cluster"].update(cluster or {})
    return json.dumps({**whole, "current-context": current, **document}).encode()


def refusal(data: bytes, allowances: Allowances = NO_ALLOWANCES) -> InvalidKubeconfig:
    with pytest.raises(InvalidKubeconfig) as caught:
        read_kubeconfig(data, allowances)
    return caught.value


def test_the_fields_that_are_used_are_taken() -> None:
    data = config(
        {"certificate-authority-data": ENCODED, "tls-server-name": "kubernetes"},
        {"token": f"{SECRET}\n", "client-certificate-data": ENCODED, "client-key-data": ENCODED},
    )
    assert read_kubeconfig(data) == ApiServer(
        server="https://api.example:6443",
        ca_data=PEM,
        tls_server_name="kubernetes",
        token=SECRET,
        client_certificate=PEM,
        client_key=PEM,
    )


def test_yaml_reads_as_json_does() -> None:
    text = (
        "kind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n"
        f"clusters: [{{name: k, cluster: {{server: 'https://k.example/base/'}}}}]\n"
        f"users: [{{name: u, user: {{token: {SECRET}}}}}]\n"
    )
    assert read_kubeconfig(text.encode()) == ApiServer(server="https://k.example/base", token=SECRET)


def test_unknown_fields_are_dropped() -> None:
    data = config({"disable-compression": True, "extensions": [1]}, {"token": SECRET, "something-new": {"a": 1}})
    assert read_kubeconfig(data) == ApiServer(server="https://api.example:6443", token=SECRET)


def test_the_only_context_is_used_if_none_is_current() -> None:
    assert read_kubeconfig(config(current="")).token == SECRET


def test_a_context_of_several_must_be_chosen() -> None:
    contexts = [{"name": name, "context": {"cluster": "cluster", "user": "reader"}} for name in "ab"]
    assert refusal(config(contexts=contexts, current="")).place == "current-context"


@pytest.mark.parametrize(
    ("user", "field"),
    [
        ({"exec": {"command": "sh", "args": ["-c", "id"]}}, "exec"),
        ({"auth-provider": {"name": "gcp"}}, "auth-provider"),
        ({"auth-provider": {"name": "oidc"}}, "auth-provider"),
        ({"tokenFile": "/etc/passwd"}, "tokenFile"),
        ({"token": SECRET, "tokenFile": "/etc/passwd"}, "tokenFile"),
        ({"client-certificate": "/etc/c.pem"}, "client-certificate"),
        ({"client-key": "/etc/c.key"}, "client-key"),
        ({"username": "admin", "password": SECRET}, "username"),
        ({"token": SECRET, "as": "system:admin"}, "as"),
        ({"client-certificate-data": ENCODED}, "client-key-data"),
        ({"client-key-data": ENCODED}, "client-certificate-data"),
        ({"client-key-data": "%%%", "client-certificate-data": ENCODED}, "client-key-data"),
        ({"client-key-data": b64encode(b"\xff\xfe").decode(), "client-certificate-data": ENCODED}, "client-key-data"),
        ({"token": f"{SECRET}\r\nHost: elsewhere"}, "token"),
        ({"token": f"{SECRET} two"}, "token"),
        ({"token": 7}, "token"),
        ({"token": {"a": SECRET}}, "token"),
    ],
)
def test_a_user_that_is_refused_is_named_with_its_field_and_never_with_its_credential(
    user: Mapping[str, Any], field: str
) -> None:
    error = refusal(config(user=user), EVERYTHING)
    assert error.place == f"user 'reader': {field}"
    assert error.cure
    assert SECRET not in str(error) + repr(error)
    assert "/etc" not in str(error)


@pytest.mark.parametrize(
    ("cluster", "field"),
    [
        ({"certificate-authority": "/etc/ca.crt"}, "certificate-authority"),
        ({"certificate-authority": "/etc/ca.crt", "certificate-authority-data": ENCODED}, "certificate-authority"),
        ({"certificate-authority-data": "bm8gcGVt"}, "certificate-authority-data"),
        ({"certificate-authority-data": ENCODED * (MOST_PEM // len(ENCODED) + 1)}, "certificate-authority-data"),
        ({"server": "http://api.example"}, "server"),
        ({"server": ""}, "server"),
        ({"server": None}, "server"),
        ({"server": ["https://api.example"]}, "server"),
        ({"server": "api.example:6443"}, "server"),
        ({"server": "file:///etc/passwd"}, "server"),
        ({"server": "unix:///run/docker.sock"}, "server"),
        ({"server": f"https://admin:{SECRET}@api.example"}, "server"),
        ({"server": f"https://api.example/?token={SECRET}"}, "server"),
        ({"server": "https://api.example/#x"}, "server"),
        ({"server": "https://api.example/a/../../b"}, "server"),
        ({"server": "https://api.example/%2e%2e"}, "server"),
        ({"server": "https://api.example:0"}, "server"),
        ({"server": "https://api.example:99999"}, "server"),
        ({"server": "https://api.exa\nmple"}, "server"),
        ({"server": "https://api.example\\@169.254.169.254"}, "server"),
        ({"server": "https://[::1"}, "server"),
        ({"server": "https://169.254.169.254/latest"}, "server"),
        ({"server": "https://[fe80::1]:6443"}, "server"),
        ({"server": "https://metadata.google.internal"}, "server"),
        ({"server": "https://0.0.0.0:6443"}, "server"),
        ({"insecure-skip-tls-verify": True}, "insecure-skip-tls-verify"),
        ({"insecure-skip-tls-verify": "yes"}, "insecure-skip-tls-verify"),
        ({"proxy-url": "http://proxy.example:3128"}, "proxy-url"),
        ({"tls-server-name": "a b"}, "tls-server-name"),
    ],
)
def test_a_cluster_that_is_refused_is_named_with_its_field(cluster: Mapping[str, Any], field: str) -> None:
    error = refusal(config(cluster))
    assert error.place == f"cluster 'cluster': {field}"
    assert SECRET not in str(error)


@pytest.mark.parametrize(
    "cluster",
    [
        {"proxy-url": "socks5://proxy.example"},
        {"proxy-url": f"http://me:{SECRET}@proxy.example"},
        {"proxy-url": "http://169.254.169.254"},
        {"insecure-skip-tls-verify": True, "certificate-authority-data": ENCODED},
        {"server": "http://169.254.169.254"},
    ],
)
def test_what_is_allowed_is_still_checked(cluster: Mapping[str, Any]) -> None:
    assert SECRET not in str(refusal(config(cluster), EVERYTHING))


@pytest.mark.parametrize(
    ("cluster", "allowances"),
    [
        ({"server": "http://api.example"}, Allowances(plain_http=True)),
        ({"insecure-skip-tls-verify": True}, Allowances(insecure_skip_tls_verify=True)),
        ({"proxy-url": "http://proxy.example:3128"}, Allowances(proxy_url=True)),
    ],
)
def test_each_weakness_needs_its_own_allowance(cluster: Mapping[str, Any], allowances: Allowances) -> None:
    assert read_kubeconfig(config(cluster), allowances).token == SECRET
    others = Allowances(
        plain_http=not allowances.plain_http,
        insecure_skip_tls_verify=not allowances.insecure_skip_tls_verify,
        proxy_url=not allowances.proxy_url,
    )
    refusal(config(cluster), others)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"a: b: c",
        b"--- {}\n--- {a: b}\n--- {c: d}\n",
        b"kind: Secret\n",
        b"contexts: {}\ncurrent-context: x\n",
        b"contexts: [{name: 1}]\ncurrent-context: x\n",
        b"contexts: []\ncurrent-context: x\n",
        b"contexts: [{name: x, context: {user: u}}]\n",
        b"contexts: [{name: x, context: {cluster: k, user: u}}]\nclusters: [{name: k, cluster: {server: 'https://k'}}]\n",
        b"&a [*a, *a]\n",
        b"x: &a [1,2,3,4,5,6,7,8]\n" + b"".join(b"y%d: [*a,*a,*a,*a,*a,*a]\n" % number for number in range(2_000)),
        b"[" * 100_000,
        b"a" * ((1 << 20) + 1),
    ],
)
def test_what_is_no_kubeconfig_is_refused_as_such(data: bytes) -> None:
    refusal(data)


def test_an_error_in_the_yaml_does_not_quote_it() -> None:
    error = refusal(f"users: [{{name: u, user: {{token: '{SECRET}}}}}]".encode())
    assert "line 1" in str(error)
    assert SECRET not in str(error)


def test_a_repr_shows_no_credential() -> None:
    server = ApiServer("https://x", token=SECRET, client_certificate=PEM, client_key=SECRET, proxy_url="http://p")
    assert repr(server) == "ApiServer('https://x', token and client certificate)"
    assert SECRET not in f"{server} {server!r} {server.__rich_repr__()}"


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
@settings(max_examples=200)
def test_any_bytes_are_refused_in_one_way(data: bytes) -> None:
    refusal(data)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)
FIELDS = ("server", "certificate-authority-data", "insecure-skip-tls-verify", "proxy-url", "tls-server-name")
USERS = ("token", "client-key-data", "client-certificate-data", "exec", "auth-provider", "tokenFile", "as")


@given(
    st.dictionaries(st.sampled_from(FIELDS), JUNK),
    st.dictionaries(st.sampled_from(USERS), JUNK),
    st.dictionaries(st.sampled_from(("contexts", "clusters", "users", "apiVersion", "kind")), JUNK, max_size=1),
)
@settings(max_examples=150, deadline=None)
def test_any_values_are_taken_or_refused_in_one_way(
    cluster: dict[str, Any], user: dict[str, Any], document: dict[str, Any]
) -> None:
    try:
        server = read_kubeconfig(config(cluster, user, **document), EVERYTHING)
    except InvalidKubeconfig:
        return
    assert server.server.startswith(("https://", "http://"))


OPENED: list[str] = []
_listening = False


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if _listening:
        OPENED.append(event)


@contextmanager
def audited() -> Iterator[list[str]]:
    """The events of the interpreter by which anything is opened, started, connected to or compiled meanwhile."""
    global _listening  # noqa: PLW0603 - an audit hook can never be removed
    if not OPENED:
        sys.addaudithook(_hear)
    OPENED.append("hook")
    del OPENED[1:]
    _listening = True
    try:
        yield OPENED
    finally:
        _listening = False


HARMLESS = {"hook", "object.__getattr__", "object.__setattr__", "sys._getframe", "builtins.id", "code.__new__"}


@pytest.mark.parametrize(
    "user",
    [
        {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": ["/tmp/x"]}},
        {"auth-provider": {"name": "gcp", "config": {"cmd-path": "/bin/sh"}}},
        {"tokenFile": "/etc/passwd"},
        {"client-key": "/etc/passwd", "client-certificate": "/etc/passwd"},
        {"token": SECRET},
    ],
)
def test_nothing_is_opened_started_or_asked_while_a_kubeconfig_is_read(user: Mapping[str, Any]) -> None:
    data = config(
        {"server": "https://db.example", "certificate-authority": "/etc/passwd" if "exec" in user else ""}, user
    )
    with audited() as events:
        try:
            read_kubeconfig(data, EVERYTHING)
        except InvalidKubeconfig:
            pass
        happened = set(events) - HARMLESS
    assert not happened


def test_the_audit_hook_hears_what_is_opened() -> None:
    with audited() as events, Path("/dev/null").open("rb"):
        pass
    assert "open" in events


def test_in_a_pod_the_service_account_is_the_credential(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text(PEM)
    (tmp_path / "token").write_text(SECRET)
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    server = in_cluster(environment, tmp_path)
    assert server == ApiServer("https://[fd00::1]:443", ca_data=PEM, token_file=str(tmp_path / "token"))


@pytest.mark.parametrize("environment", [{}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}])
def test_outside_of_a_pod_there_is_no_such_credential(environment: Mapping[str, str], tmp_path: Path) -> None:
    with pytest.raises(InvalidKubeconfig):
        in_cluster(environment, tmp_path / "absent")


@pytest.mark.parametrize(
    "host", ["10.0.0.1", "127.0.0.1", "::1", "localhost", "api.example", "api.example.", "K8S_API"]
)
def test_hosts_that_may_be_dialled(host: str) -> None:
    assert objection(host) == ""


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "fd00:ec2::254%1",
        "100.100.100.200",
        "::",
        "0.0.0.0",
        "224.0.0.1",
        "2852039166",
        "0xa9.0xfe.0xa9.0xfe",
        "169.16689662",
        "metadata.google.internal.",
        "Metadata",
        "",
        "-x",
        "a..b",
    ],
)
def test_hosts_that_may_not(host: str) -> None:
    assert objection(host)


def test_addresses_are_judged_alike_after_resolution() -> None:
    assert not may_dial(ip_address("169.254.169.254"))
    assert may_dial(ip_address("192.0.2.1"))
