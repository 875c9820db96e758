"""Hosts: who wins where claims meet, in which order rules are matched, and which certificate is whose."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from aggregator.traffic.hosts import Host
from tests.kit import certificates as c
from tests.kit import manifests as m
from tests.kit.world import World

OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
SHOP = "shop.example"


def world_of(*manifests: m.Manifest, **settings: Any) -> World:
    world = World(**settings)
    world.now = c.NOW.timestamp()
    services = [m.service(f"{place}/web", "10.96.0.1") for place in ("a", "b")]
    world.apply("alpha", *services, *manifests)
    world.step()
    return world


def host(world: World, name: str = SHOP) -> Host:
    found: Host = world.graph.values(world.pipeline.hosts.hosts)[name]
    return found


def table(world: World, name: str = SHOP) -> list[tuple[str, str, str]]:
    """(kind, path, namespace of the Ingress) in the order of matching."""
    return [(rule.kind, rule.path, rule.origin[2]) for rule in host(world, name).rules]


def told(world: World) -> list[tuple[str, str, str]]:
    """(code, Ingress, field) of every finding."""
    return [(one.code, "/".join(one.object[2:]), one.field) for one in world.findings()]


def ingress(name: str, *paths: str, created: str = OLD, kind: str = "Prefix", **fields: Any) -> m.Manifest:
    rule = m.ingress_rule(SHOP, *((path, "web", 80) for path in paths), path_type=kind)
    return m.ingress(name, rules=[rule], created=created, **fields)


def test_the_longest_prefix_comes_first_whatever_the_order_in_the_object() -> None:
    for order in itertools.permutations(("/", "/aaa", "/aaa/bbb")):
        assert [path for _, path, _ in table(world_of(ingress("a/one", *order)))] == ["/aaa/bbb", "/aaa", "/"]


def test_an_exact_path_comes_before_every_prefix() -> None:
    both = world_of(ingress("a/one", "/foo", "/foo/bar"), ingress("a/two", "/foo", kind="Exact"))
    assert [(kind, path) for kind, path, _ in table(both)] == [
        ("Exact", "/foo"),
        ("Prefix", "/foo/bar"),
        ("Prefix", "/foo"),
    ]
    assert both.findings() == []


def test_paths_of_one_length_are_in_their_own_order() -> None:
    assert [path for _, path, _ in table(world_of(ingress("a/one", "/b", "/a", "/c")))] == ["/a", "/b", "/c"]


def test_the_older_ingress_has_a_path_that_two_claim_and_deletion_promotes_the_other() -> None:
    one, two = ingress("a/ing-1", "/", "/cart"), ingress("b/ing-2", "/cart", "/pay", created=NEW)
    for order in ((one, two), (two, one)):
        world = world_of(*order)
        assert table(world) == [("Prefix", "/cart", "a"), ("Prefix", "/pay", "b"), ("Prefix", "/", "a")]
        assert told(world) == [("PathClaimed", "b/ing-2", "spec.rules[0].http.paths[0]")]
        assert "is already claimed by Ingress a/ing-1 (spec.rules[0].http.paths[1])" in world.findings()[0].detail
        world.delete("alpha", one)
        world.step()
        assert table(world) == [("Prefix", "/cart", "b"), ("Prefix", "/pay", "b")]
        assert world.findings() == []


@pytest.mark.parametrize(("first", "second"), [("a/x", "b/x"), ("a/x", "a/y")])
def test_of_one_age_namespace_and_name_decide(first: str, second: str) -> None:
    world = world_of(ingress(second, "/"), ingress(first, "/"))
    assert "/".join(host(world).rules[0].origin[2:]) == first
    assert told(world) == [("PathClaimed", second, "spec.rules[0].http.paths[0]")]


def test_spellings_of_one_prefix_are_one_path() -> None:
    world = world_of(ingress("a/one", "/foo/", "/foo"))
    assert table(world) == [("Prefix", "/foo", "a")]
    assert told(world) == [("PathClaimed", "a/one", "spec.rules[0].http.paths[1]")]


DEFAULT = {"defaultBackend": {"service": {"name": "web", "port": {"number": 8080}}}}


def test_a_default_backend_is_behind_all_rules() -> None:
    world = world_of(ingress("a/one", "/foo", spec=DEFAULT))
    assert [(rule.path, rule.kind, rule.backend) for rule in host(world).rules] == [
        ("/foo", "Prefix", "ing|a|web|80"),
        ("/", "Prefix", "ing|a|web|8080"),
    ]


def test_a_default_backend_hides_no_rule_of_a_younger_ingress() -> None:
    world = world_of(ingress("a/one", "/foo", spec=DEFAULT), ingress("b/two", "/", created=NEW))
    assert [rule.backend for rule in host(world).rules] == ["ing|a|web|80", "ing|b|web|80"]
    assert [one for one in told(world) if one[0] == "PathClaimed"] == [("PathClaimed", "a/one", "spec.defaultBackend")]


def test_a_default_backend_behind_a_rule_for_everything_is_no_flaw() -> None:
    world = world_of(ingress("a/one", "/", spec=DEFAULT))
    assert [rule.backend for rule in host(world).rules] == ["ing|a|web|80"]
    assert [one for one in told(world) if one[0] == "PathClaimed"] == []


def test_of_two_default_backends_the_older_counts() -> None:
    world = world_of(ingress("b/two", "/b", created=NEW, spec=DEFAULT), ingress("a/one", "/a", spec=DEFAULT))
    assert host(world).rules[-1].backend == "ing|a|web|8080"


def test_a_host_without_paths_is_a_host() -> None:
    world = world_of(m.ingress("a/one", rules=[{"host": SHOP}]))
    assert host(world) == Host(SHOP, (), None, None)


def test_an_ingress_that_changes_hosts_leaves_the_old_one() -> None:
    world = world_of(m.ingress("a/one", "old.example", "web"))
    world.apply("alpha", m.ingress("a/one", "new.example", "web"))
    world.step()
    assert list(world.graph.values(world.pipeline.hosts.hosts)) == ["new.example"]


# Wildcards and all hosts.


def hosts(world: World) -> list[str]:
    return sorted(world.graph.values(world.pipeline.hosts.hosts))


def test_a_wildcard_is_a_host_beside_those_it_stands_for() -> None:
    world = world_of(m.ingress("a/one", "*.example", "web", path="/w"), m.ingress("b/two", SHOP, "web", path="/s"))
    assert hosts(world) == ["*.example", SHOP]
    assert table(world, "*.example") == [("Prefix", "/w", "a")]
    assert table(world) == [("Prefix", "/s", "b")]


def test_spellings_of_one_host_are_one_host() -> None:
    spellings = ("*.Example", "*.example.", "*.EXAMPLE.")
    ingresses = (m.ingress(f"a/i{n}", one, "web", path=f"/{n}") for n, one in enumerate(spellings))
    assert [path for _, path, _ in table(world_of(*ingresses), "*.example")] == ["/0", "/1", "/2"]


def everything(name: str, **fields: Any) -> m.Manifest:
    return m.ingress(name, rules=[], spec=DEFAULT, **fields)


def test_of_two_ingresses_for_all_hosts_the_older_counts_and_deletion_promotes_the_other() -> None:
    one, two = everything("b/one"), everything("a/two", created=NEW)
    for order in ((one, two), (two, one)):
        world = world_of(*order)
        assert table(world, "") == [("Prefix", "/", "b")]
        assert [finding for finding in told(world) if finding[0] == "PathClaimed"] == [
            ("PathClaimed", "a/two", "spec.defaultBackend")
        ]
        world.delete("alpha", one)
        world.step()
        assert table(world, "") == [("Prefix", "/", "a")]


def test_rules_for_all_hosts_come_before_a_backend_for_all_hosts() -> None:
    world = world_of(everything("a/default"), m.ingress("b/rule", "", "web", path="/b", created=NEW))
    assert table(world, "") == [("Prefix", "/b", "b"), ("Prefix", "/", "a")]


def test_a_finding_about_rules_for_all_hosts_says_so() -> None:
    world = world_of(m.ingress("a/one", "", "web"), m.ingress("b/two", "", "web"))
    assert [one.detail for one in world.findings()] == [
        "Prefix / of all other hosts is already claimed by Ingress a/one (spec.rules[0].http.paths[0])"
    ]


# Regular expressions.

USE_REGEX = {"nginx.ingress.kubernetes.io/use-regex": "true"}


def regex(name: str, *paths: str, **fields: Any) -> m.Manifest:
    document = ingress(name, *paths, kind="ImplementationSpecific", **fields)
    document["metadata"]["annotations"] = USE_REGEX
    return document


def test_one_ingress_makes_regular_expressions_of_the_paths_of_its_whole_host() -> None:
    world = world_of(regex("a/one", "/x(/|$)(.*)"), ingress("b/two", "/longer/than/the/other", "/y", "/"))
    assert table(world) == [
        ("Regex", "/longer/than/the/other", "b"),
        ("Regex", "/x(/|$)(.*)", "a"),
        ("Regex", "/y", "b"),
        ("Prefix", "/", "b"),
    ]
    assert told(world) == [("PathsAreRegexes", "b/two", "spec.rules")]


def test_an_exact_path_stays_exact_beside_regular_expressions() -> None:
    world = world_of(regex("a/one", "/long/regex.*"), ingress("b/two", "/y", kind="Exact"))
    assert table(world) == [("Exact", "/y", "b"), ("Regex", "/long/regex.*", "a")]
    assert world.findings() == []


def test_a_path_of_another_that_is_no_regular_expression_stays_what_it_was() -> None:
    world = world_of(regex("a/one", "/x.*"), ingress("b/two", "/y(z"))
    assert table(world) == [("Prefix", "/y(z", "b"), ("Regex", "/x.*", "a")]
    assert world.findings() == []


def test_regular_expressions_may_be_kept_to_the_ingress_that_asks_for_them() -> None:
    world = world_of(regex("a/one", "/x.*"), ingress("b/two", "/y", "/x.*"), regexes_for_whole_hosts=False)
    assert table(world) == [("Prefix", "/x.*", "b"), ("Regex", "/x.*", "a"), ("Prefix", "/y", "b")]
    assert world.findings() == []


def test_other_hosts_of_the_ingress_of_a_neighbour_stay_as_they_are() -> None:
    other = m.ingress_rule("other.example", ("/y", "web", 80))
    both = m.ingress("b/two", rules=[m.ingress_rule(SHOP, ("/y", "web", 80)), other])
    world = world_of(regex("a/one", "/x.*"), both)
    assert [kind for kind, _, _ in table(world)] == ["Regex", "Regex"]
    assert table(world, "other.example") == [("Prefix", "/y", "b")]


def test_the_same_regular_expression_in_two_ingresses_is_one_path() -> None:
    world = world_of(regex("a/one", "/x"), ingress("b/two", "/x", created=NEW))
    assert table(world) == [("Regex", "/x", "a")]
    assert [one[0] for one in told(world)] == ["PathClaimed", "PathsAreRegexes"]


# TLS.


def secret(world: World, name: str = SHOP) -> str:
    found = host(world, name).tls
    return "/".join(found[2:]) if found else ""


def tls(name: str, secret: str, **fields: Any) -> m.Manifest:
    return m.ingress(name, SHOP, "web", secret=secret, path=f"/{name}", **fields)


def certified(world: World) -> list[str]:
    return sorted(world.graph.values(world.pipeline.hosts.certificates))


def test_of_two_secrets_for_one_host_the_older_ingress_decides() -> None:
    world = world_of(tls("b/two", "t2", created=NEW), tls("a/one", "t1"))
    assert secret(world) == "a/t1"
    assert ("HostTlsClaimed", "b/two", "spec.tls") in told(world)


def test_a_secret_given_by_the_name_of_a_host_goes_before_one_of_an_older_wildcard() -> None:
    wide = m.ingress("a/wide", SHOP, "web", spec={"tls": [{"hosts": ["*.example"], "secretName": "wild"}]})
    world = world_of(wide, tls("b/own", "own", created=NEW))
    assert secret(world) == "b/own"
    assert "HostTlsClaimed" not in [one[0] for one in told(world)]


def test_a_wildcard_that_is_listed_for_the_hosts_under_it_needs_no_rule_of_its_own() -> None:
    wide = m.ingress("a/wide", SHOP, "web", spec={"tls": [{"hosts": ["*.example"], "secretName": "wild"}]})
    assert "HostHasNoRule" not in [one[0] for one in told(world_of(wide))]
    other = m.ingress("a/other", SHOP, "web", spec={"tls": [{"hosts": ["*.else"], "secretName": "wild"}]})
    assert "HostHasNoRule" in [one[0] for one in told(world_of(other))]


def test_a_wildcard_has_a_certificate_that_is_for_the_same_wildcard() -> None:
    wild = m.ingress("a/wild", "*.example", "web", secret="t")
    assert certified(world_of(wild, m.tls_secret("a/t", *c.host_pair("*.example")))) == ["*.example"]
    world = world_of(wild, m.tls_secret("a/t", *c.host_pair("a.example")))
    assert certified(world) == []
    assert told(world) == [("CertificateNotForHost", "a/wild", "spec.tls")]


def test_two_ingresses_may_give_a_host_the_same_secret() -> None:
    assert "HostTlsClaimed" not in [one[0] for one in told(world_of(tls("a/one", "t"), tls("a/two", "t")))]


def test_tls_of_one_ingress_is_for_the_rules_of_all() -> None:
    world = world_of(ingress("b/plain", "/b"), tls("a/tls", "t", created=NEW))
    assert (secret(world), len(host(world).rules)) == ("a/t", 2)


def test_a_host_that_no_ingress_has_a_rule_for_is_not_served_and_told() -> None:
    extra = [{"hosts": ["other.example"], "secretName": "t"}]
    world = world_of(m.ingress("a/one", SHOP, "web", spec={"tls": extra}))
    assert list(world.graph.values(world.pipeline.hosts.hosts)) == [SHOP]
    assert told(world) == [("HostHasNoRule", "a/one", "spec.tls")]


def test_a_host_named_for_tls_here_and_ruled_there_is_served() -> None:
    extra = [{"hosts": ["other.example"], "secretName": "t"}]
    world = world_of(m.ingress("a/one", SHOP, "web", spec={"tls": extra}), m.ingress("b/two", "other.example", "web"))
    assert secret(world, "other.example") == "a/t"


def test_a_default_backend_is_not_behind_a_host_that_is_named_for_tls_alone() -> None:
    extra = {**DEFAULT, "tls": [{"hosts": ["other.example"], "secretName": "t"}]}
    world = world_of(m.ingress("a/one", SHOP, "web", spec=extra), m.ingress("b/two", "other.example", "web", path="/b"))
    assert table(world, "other.example") == [("Prefix", "/b", "b")]


def test_a_host_whose_certificate_covers_it_has_one() -> None:
    world = world_of(tls("a/one", "t"), m.tls_secret("a/t", *c.host_pair("*.example")))
    assert certified(world) == [SHOP]
    assert world.findings() == []


def test_a_host_whose_secret_is_missing_keeps_its_tls_and_is_told_until_it_comes() -> None:
    world = world_of(tls("a/one", "t"))
    assert (secret(world), certified(world)) == ("a/t", [])
    assert told(world) == [("TlsSecretNotFound", "a/one", "spec.tls")]
    world.apply("alpha", m.tls_secret("a/t", *c.host_pair(SHOP)))
    world.step()
    assert (certified(world), world.findings()) == ([SHOP], [])


def test_a_host_whose_certificate_is_for_others_has_none_and_is_told() -> None:
    world = world_of(tls("a/one", "t"), m.tls_secret("a/t", *c.host_pair("other.example")))
    assert certified(world) == []
    assert told(world) == [("CertificateNotForHost", "a/one", "spec.tls")]


def test_a_secret_of_another_namespace_is_not_read() -> None:
    world = world_of(tls("a/one", "t"), m.tls_secret("b/t", *c.host_pair(SHOP)))
    assert certified(world) == []


def test_one_bad_secret_and_one_that_is_gone_cost_no_other_host() -> None:
    names = [f"h{number}.example" for number in range(32)]
    secrets = [m.tls_secret(f"a/s{number}", *c.host_pair(name)) for number, name in enumerate(names)]
    ingresses = [m.ingress(f"a/i{n}", name, "web", secret=f"s{n}") for n, name in enumerate(names)]
    world = world_of(*secrets, *ingresses)
    assert len(certified(world)) == 32
    world.apply("alpha", m.tls_secret("a/s7", c.host_pair(names[7])[0], c.host_pair(names[7])[1]))
    world.delete("alpha", secrets[9])
    world.step()
    assert set(names) - set(certified(world)) == {names[9]}
    assert told(world) == [("TlsSecretNotFound", "a/i9", "spec.tls"), ("SecretInvalid", "a/s7", "data")]


# Cost.


def test_one_more_ingress_runs_as_many_functions_beside_500_hosts_as_beside_20() -> None:
    def cost(beside: int) -> int:
        ingresses = [m.ingress(f"a/i{number}", f"h{number}.example", "web") for number in range(beside)]
        world = world_of(*ingresses)
        world.apply("alpha", m.ingress("a/new", "new.example", "web"))
        return world.step().evaluated

    assert cost(20) == cost(500) <= 10
