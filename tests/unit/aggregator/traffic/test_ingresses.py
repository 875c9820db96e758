"""What an Ingress claims, host by host, and what is said of those parts that cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from aggregator.traffic.ingresses import Claim
from tests.kit import certificates as c
from tests.kit import manifests as m
from tests.kit.world import World

WEB = "ing|shop|web|80"


def world_of(*manifests: m.Manifest) -> World:
    world = World()
    world.now = c.NOW.timestamp()
    world.apply("alpha", m.service("shop/web", "10.96.0.1"), *manifests)
    world.step()
    return world


def ingress(*rules: m.Manifest, **spec: Any) -> m.Manifest:
    return m.ingress("shop/web", rules=rules, spec=spec)


def claims(*manifests: m.Manifest) -> dict[str, Claim]:
    """Claims of the one Ingress by host."""
    world = world_of(*manifests)
    found = world.graph.values(world.pipeline.claims)
    return {key[4]: claim for key, claim in found.items()}


def told(*manifests: m.Manifest) -> list[tuple[str, str]]:
    """(code, field) of every finding about the Ingress."""
    return [(one.code, one.field) for one in world_of(*manifests).findings() if one.object[1] == "Ingress"]


def path(given: str, kind: str = "Prefix") -> list[tuple[str, str]]:
    """(kind, path) as one path of an Ingress is understood."""
    found = claims(ingress(m.ingress_rule("a.example", (given, "web", 80), path_type=kind)))
    return [(one.kind, one.path) for one in found["a.example"].paths]


@pytest.mark.parametrize(
    ("given", "kind", "understood"),
    [
        ("/", "Prefix", ("Prefix", "/")),
        ("/foo", "Prefix", ("Prefix", "/foo")),
        ("/foo/", "Prefix", ("Prefix", "/foo")),
        ("/foo", "ImplementationSpecific", ("Prefix", "/foo")),
        ("/Foo/bar/", "ImplementationSpecific", ("Prefix", "/Foo/bar")),
        ("/foo", "Exact", ("Exact", "/foo")),
        ("/foo/", "Exact", ("Exact", "/foo/")),
        ("/", "Exact", ("Exact", "/")),
        ("/%2F~a.b..c", "Prefix", ("Prefix", "/%2F~a.b..c")),
        ("/%7e%2D%2e%5F%30%39%41%5a%61%7A%6F", "Exact", ("Exact", "/~-._09AZazo")),
        ("/%20%2F%3A%40%5B%60%7B%7F%C3%2C%4", "Exact", ("Exact", "/%20%2F%3A%40%5B%60%7B%7F%C3%2C%4")),
    ],
)
def test_paths(given: str, kind: str, understood: tuple[str, str]) -> None:
    assert path(given, kind) == [understood]


@pytest.mark.parametrize(
    "given",
    [
        "/a?b",
        "/a#b",
        "/a b",
        "/\xe4",
        "/a//b",
        "/a/./b",
        "/a/../b",
        "/a/..",
        "/a/.",
        "//",
        "/\ud800",
        "/\x00",
        "/{a}",
        "/a|b",
        "/%2e%2E/a",
    ],
)
@pytest.mark.parametrize("kind", ["Prefix", "Exact"])
def test_a_path_no_request_has_is_left_out_and_told(given: str, kind: str) -> None:
    rule = m.ingress_rule("a.example", (given, "web", 80), ("/ok", "web", 80), path_type=kind)
    assert [one.path for one in claims(ingress(rule))["a.example"].paths] == ["/ok"]
    assert told(ingress(rule)) == [("PathInvalid", "spec.rules[0].http.paths[0].path")]


def test_hosts_are_compared_in_lower_case_and_without_a_final_dot() -> None:
    found = claims(
        ingress(
            m.ingress_rule("A.Example.", ("/a", "web", 80)),
            m.ingress_rule("a.example", ("/b", "web", 80)),
        )
    )
    assert list(found) == ["a.example"]
    assert [one.path for one in found["a.example"].paths] == ["/a", "/b"]


@pytest.mark.parametrize("host", ["-a", "a..b", "a_b", "a b", ".a", "a/b", "a" * 64, "*.", "*", "a.*.b", "*a.example"])
def test_a_host_that_is_none_is_left_out_and_told(host: str) -> None:
    rules = (m.ingress_rule(host, ("/", "web", 80)), m.ingress_rule("a.example", ("/", "web", 80)))
    assert list(claims(ingress(*rules))) == ["a.example"]
    assert told(ingress(*rules)) == [("HostInvalid", "spec.rules[0].host")]


@pytest.mark.parametrize(("given", "host"), [("", ""), ("*.example", "*.example"), ("*.Example.", "*.example")])
def test_a_rule_may_be_for_many_hosts(given: str, host: str) -> None:
    rules = (m.ingress_rule(given, ("/", "web", 80)), m.ingress_rule("a.example", ("/", "web", 80)))
    assert list(claims(ingress(*rules))) == [host, "a.example"]
    assert told(ingress(*rules)) == []


def test_a_default_backend_is_behind_every_host_of_its_ingress() -> None:
    default = {"service": {"name": "web", "port": {"name": "http"}}}
    found = claims(
        ingress({"host": "a.example"}, m.ingress_rule("b.example", ("/b", "web", 80)), defaultBackend=default)
    )
    assert [one.default.backend for one in found.values() if one.default] == ["ing|shop|web|http"] * 2
    assert [one.backends for one in found.values()] == [("ing|shop|web|http",), (WEB, "ing|shop|web|http")]


def test_a_default_backend_without_any_rule_is_for_all_hosts() -> None:
    alone = ingress(defaultBackend={"service": {"name": "web", "port": {"number": 80}}})
    ((host, claim),) = claims(alone).items()
    assert (host, claim.ruled, claim.paths) == ("", True, ())
    assert claim.default is not None
    assert claim.default.backend == WEB
    assert told(alone) == []


def test_a_default_backend_beside_rules_is_not_for_hosts_that_none_of_them_names() -> None:
    default = {"service": {"name": "web", "port": {"number": 80}}}
    assert list(claims(ingress({"host": "a.example"}, defaultBackend=default))) == ["a.example"]
    assert claims(ingress({"host": "a_b"}, defaultBackend=default)) == {}


def test_a_backend_that_is_no_service_is_told_and_its_path_is_kept() -> None:
    resource = {"host": "a.example", "http": {"paths": [{"path": "/a", "backend": {"resource": {"name": "x"}}}]}}
    assert [one.backend for one in claims(ingress(resource))["a.example"].paths] == [""]
    assert claims(ingress(resource))["a.example"].backends == ()
    assert told(ingress(resource)) == [("BackendNotService", "spec.rules[0].http.paths[0].backend")]


# Paths that are regular expressions.


def regexes(*paths: str, kind: str = "ImplementationSpecific", **annotations: str) -> m.Manifest:
    document = ingress(m.ingress_rule("a.example", *((path, "web", 80) for path in paths), path_type=kind))
    document["metadata"]["annotations"] = {"nginx.ingress.kubernetes.io/use-regex": "true", **annotations}
    return document


@pytest.mark.parametrize("kind", ["Prefix", "ImplementationSpecific"])
def test_paths_are_regular_expressions_as_they_are_written_where_that_is_asked_for(kind: str) -> None:
    found = claims(regexes("/a(/|$)(.*)", "/x{2}/", "/%7E", kind=kind))["a.example"].paths
    assert [(one.kind, one.path) for one in found] == [("Regex", "/a(/|$)(.*)"), ("Regex", "/x{2}/"), ("Regex", "/%7E")]


def test_an_exact_path_is_none_and_neither_is_the_root() -> None:
    found = claims(regexes("/a.b", kind="Exact"))["a.example"].paths
    assert [(one.kind, one.path) for one in found] == [("Exact", "/a.b")]
    assert [(one.kind, one.path) for one in claims(regexes("/"))["a.example"].paths] == [("Prefix", "/")]


def test_a_path_that_is_no_regular_expression_is_left_out_and_told() -> None:
    document = regexes("/a(", "/b(?=c)", "/good")
    assert [one.path for one in claims(document)["a.example"].paths] == ["/good"]
    assert told(document) == [("PathInvalid", f"spec.rules[0].http.paths[{number}].path") for number in (0, 1)]


def test_of_very_many_regular_expressions_some_are_left_out_and_told() -> None:
    document = regexes(*(f"/p{number}.*" for number in range(260)))
    assert len(claims(document)["a.example"].paths) == 256
    assert told(document) == [("PathInvalid", f"spec.rules[0].http.paths[{number}].path") for number in range(256, 260)]


# Classes.


def test_an_annotation_that_names_another_class_than_the_field_is_told() -> None:
    document = ingress(m.ingress_rule("a.example", ("/", "web", 80)))
    document["metadata"]["annotations"] = {"kubernetes.io/ingress.class": "nginx"}
    assert list(claims(document)) == ["a.example"]
    assert told(document) == [("ClassAnnotationIgnored", 'metadata.annotations["kubernetes.io/ingress.class"]')]
    document["metadata"]["annotations"] = {"kubernetes.io/ingress.class": "isthmus"}
    assert told(document) == []


# TLS.


def secret_of(host: str, *tls: Any, rules: tuple[str, ...] = ("a.example", "b.example"), also: Any = ()) -> str:
    """Name of the Secret that a host has with these TLS entries."""
    given = [{"hosts": list(hosts), "secretName": secret} for hosts, secret in tls]
    found = claims(*also, ingress(*(m.ingress_rule(one, ("/", "web", 80)) for one in rules), tls=given))
    secret = found[host].secret
    if secret is not None:
        assert secret[:3] == ("alpha", "TLSSecret", "shop")
    return secret[3] if secret else ""


def test_a_host_has_the_secret_of_the_first_entry_that_lists_it() -> None:
    assert secret_of("a.example", (["b.example"], "one"), (["A.example"], "two"), (["a.example"], "three")) == "two"


def test_a_host_no_entry_lists_has_no_tls() -> None:
    assert secret_of("b.example", (["a.example"], "one")) == ""


def test_a_listed_wildcard_is_over_one_label() -> None:
    tls = (["*.example"], "wild"), (["a.example"], "own"), (["*.example"], "late")
    assert secret_of("a.example", *tls) == "own"
    assert secret_of("b.example", *tls) == "wild"
    assert secret_of("x.b.example", *tls, rules=("x.b.example",)) == ""


def test_a_wildcard_has_the_secret_of_an_entry_that_lists_it_and_gives_it_to_hosts_under_it() -> None:
    tls = ((["*.example"], "wild"),)
    assert secret_of("*.example", *tls, rules=("*.example", "b.example")) == "wild"
    assert secret_of("b.example", *tls, rules=("*.example", "b.example")) == "wild"
    assert secret_of("*.b.example", *tls, rules=("*.b.example",)) == ""


def test_rules_for_all_hosts_have_no_secret() -> None:
    secret = m.tls_secret("shop/some", *c.host_pair("*.example"))
    assert secret_of("", ([""], "some"), ([], "some"), rules=("",), also=[secret]) == ""


def test_an_entry_that_lists_no_host_is_for_those_its_certificate_covers() -> None:
    secret = m.tls_secret("shop/some", *c.host_pair("a.example"))
    assert secret_of("a.example", ([], "some"), also=[secret]) == "some"
    assert secret_of("b.example", ([], "some"), also=[secret]) == ""
    assert secret_of("a.example", ([], "some")) == ""


def test_an_entry_without_a_secret_gives_no_tls_and_is_told() -> None:
    document = ingress(m.ingress_rule("a.example", ("/", "web", 80)), tls=[{"hosts": ["a.example"]}])
    assert claims(document)["a.example"].secret is None
    assert told(document) == [("TlsHasNoSecret", "spec.tls[0].secretName")]


def test_a_host_that_is_named_for_tls_alone_is_claimed_without_rules() -> None:
    found = claims(
        ingress(m.ingress_rule("a.example", ("/", "web", 80)), tls=[{"hosts": ["b.example"], "secretName": "t"}])
    )
    assert [(one.ruled, one.paths != (), one.secret is not None) for one in found.values()] == [
        (True, True, False),
        (False, False, True),
    ]


def test_a_wrong_host_of_an_entry_is_told() -> None:
    document = ingress(m.ingress_rule("a.example", ("/", "web", 80)), tls=[{"hosts": ["a_b"], "secretName": "t"}])
    assert told(document) == [("HostInvalid", "spec.tls[0].hosts[0]")]
