"""Names of credentials: what each stands for, and which stand for nothing."""

from __future__ import annotations

import pytest

from aggregator.security.credential_names import CredentialName, credential_name, has_scheme

OWN = "infra"


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("kubernetes://a", CredentialName("kubernetes", OWN, ("a",), False)),
        ("kubernetes://infra/a", CredentialName("kubernetes", OWN, ("a",), False)),
        ("kubernetes://a-cacert", CredentialName("kubernetes", OWN, ("a-cacert", "a"), True)),
        ("kubernetes://infra/a.b-cacert", CredentialName("kubernetes", OWN, ("a.b-cacert", "a.b"), True)),
        ("kubernetes-gateway://certs/a", CredentialName("kubernetes-gateway", "certs", ("a",), False)),
        ("kubernetes-gateway://certs/a-cacert", CredentialName("kubernetes-gateway", "certs", ("a-cacert", "a"), True)),
        ("configmap://x/ca", CredentialName("configmap", "x", ("ca",), True)),
        ("configmap://x/ca-cacert", CredentialName("configmap", "x", ("ca-cacert", "ca"), True)),
    ],
)
def test_names_that_stand_for_something(asked: str, meant: CredentialName) -> None:
    assert has_scheme(asked)
    assert credential_name(asked, OWN) == meant


@pytest.mark.parametrize(
    "asked",
    [
        "builtin://",
        "builtin://default",
        "invalid://a/b",
        "sds://provider",
        "file-cert:/etc/cert~/etc/key",
        "file:///etc/passwd",
        "kubernetes://",
        "kubernetes://-cacert",
        "kubernetes:///a",
        "kubernetes://other/a",
        "kubernetes://infra/a/b",
        "kubernetes://infra//a",
        "kubernetes://../a",
        "kubernetes://A",
        "kubernetes://a\n",
        "kubernetes://a|namespace=certs",
        "kubernetes://a-cacert-cacert\x00",
        "kubernetes-gateway://a",
        "kubernetes-gateway:///a",
        "kubernetes-gateway://certs/",
        "kubernetes-gateway://Certs/a",
        "kubernetes-gateway://certs/a/b",
        "configmap://a",
        "Kubernetes://a",
        " kubernetes://a",
        "kubernetes://" + "a" * 254,
        "kubernetes://" + "a" * 100_000,
        "://a",
        "",
        "a.example",
    ],
)
def test_names_that_stand_for_nothing(asked: str) -> None:
    assert credential_name(asked, OWN) is None


def test_host_names_and_names_of_the_proxys_own_have_no_scheme() -> None:
    assert not any(map(has_scheme, ("a.example", "*.example", "default", "ROOTCA", "")))
