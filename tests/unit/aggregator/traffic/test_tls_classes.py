"""Filter chains by classes of TLS settings: equal settings share one, ordinary hosts appear in none."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from aggregator.traffic import tls_classes
from aggregator.traffic.annotations.tls import NO_DEMANDS, TlsSettings
from aggregator.traffic.tls_classes import COMMON, REFUSED, Chains, class_name
from aggregator.views.ingress_gateway import view_of
from tests.kit import certificates as c
from tests.kit import manifests as m
from tests.kit.world import World, changed_names
from xds.messages.fallback import AGAIN
from xds.messages.listener import LISTENER_TYPE
from xds.messages.scope import SCOPED_ROUTE_TYPE
from xds.messages.secret import SECRET_TYPE

NGINX = "nginx.ingress.kubernetes.io/"
OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
ROOTS = c.pem(c.Issuer("clients").certificate)


def ingress(name: str, host: str, *, created: str = OLD, secret: str = "", **annotations: str) -> m.Manifest:
    made = m.ingress(name, host, "web", created=created, secret=secret)
    given = {f"{NGINX}{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {**made, "metadata": {**made["metadata"], "annotations": given}}


def roots(name: str = "a/ca", content: bytes = ROOTS) -> m.Manifest:
    return m.secret(name, ca_crt=content)


def world_of(*manifests: m.Manifest, **settings: Any) -> World:
    world = World(**settings)
    world.now = c.NOW.timestamp()
    world.ask(*filter(None, (view_of(kind, lambda _: "") for kind in (LISTENER_TYPE, SCOPED_ROUTE_TYPE, SECRET_TYPE))))
    world.apply("alpha", m.service("a/web", "10.96.0.1"), m.service("b/web", "10.96.0.2"), *manifests)
    world.step()
    return world


def chains(world: World) -> Chains:
    found = [one for one in world.graph.collections if one.name == "chains"]
    value: Chains = world.graph.values(found[0]).get("all", Chains())
    return value


def names(world: World) -> dict[str, tuple[str, ...]]:
    return dict(chains(world).names)


def codes(world: World) -> list[tuple[str, str]]:
    return [(one.code, "/".join(one.object[2:])) for one in world.findings()]


def scopes(world: World) -> dict[tuple[str, str], list[str]]:
    """(class, host) -> names of the routes."""
    view = view_of(SCOPED_ROUTE_TYPE, lambda _: "")
    assert view is not None
    found = {}
    for name, one in world.told(view).items():
        if name == AGAIN:
            continue
        scope_class, host = (part["string_key"] for part in one["key"]["fragments"])
        found[scope_class, host] = [
            route["name"] for route in one["route_configuration"]["virtual_hosts"][0]["routes"]
        ]
    return found


def test_hosts_that_ask_for_nothing_are_in_no_chain_and_change_no_listener() -> None:
    closed = ingress("a/closed", "closed.example", auth_tls_secret="ca")
    world = world_of(ingress("a/one", "one.example"), closed, roots())
    assert set(itertools.chain(*names(world).values())) == {"closed.example"}
    world.apply("alpha", ingress("a/two", "two.example"))
    assert changed_names(world.step()) == {"default|two.example"}


def test_equal_settings_are_one_chain_whoever_asks_for_them() -> None:
    world = world_of(
        ingress("a/one", "one.example", auth_tls_secret="a/ca"),
        ingress("a/two", "two.example", auth_tls_secret="ca"),
        ingress("a/three", "three.example", auth_tls_secret="ca", auth_tls_verify_depth="2"),
        roots(),
    )
    assert sorted(names(world).values()) == [("one.example", "two.example"), ("three.example",)]
    assert len(chains(world).chains) == 2


def test_a_host_of_another_class_has_its_routes_there_and_in_the_common_one_none() -> None:
    world = world_of(
        ingress("a/one", "one.example", auth_tls_secret="ca"),
        m.ingress("a/proof", "one.example", "web", path="/.well-known/acme-challenge/token", created=NEW),
        roots(),
    )
    (chain,) = chains(world).chains
    proof = "Prefix /.well-known/acme-challenge/token"
    assert scopes(world) == {
        (COMMON, "one.example"): ["to-https", proof, "misdirected"],
        (chain.scope_class, "one.example"): [proof, "Prefix /"],
    }


def test_roots_that_are_not_there_close_the_host_and_it_alone() -> None:
    world = world_of(ingress("a/one", "one.example", auth_tls_secret="ca"), ingress("a/two", "two.example"))
    assert names(world) == {REFUSED: ("one.example",)}
    assert codes(world) == [("ClientRootsNotFound", "a/one")]
    world.apply("alpha", roots())
    world.step()
    assert REFUSED not in names(world)
    assert world.findings() == []
    world.apply("alpha", roots(content=b"no roots"))
    world.step()
    assert REFUSED not in names(world)  # the last good ones
    world.delete("alpha", roots())
    world.step()
    assert names(world) == {REFUSED: ("one.example",)}


def test_other_roots_change_their_secret_alone() -> None:
    world = world_of(ingress("a/one", "one.example", auth_tls_secret="ca"), roots())
    world.apply("alpha", roots(content=c.pem(c.Issuer("others").certificate)))
    assert changed_names(world.step()) == {"roots/a/ca"}


def test_roots_of_another_namespace_close_the_host() -> None:
    world = world_of(ingress("a/one", "one.example", auth_tls_secret="b/ca"), roots("b/ca"))
    assert names(world) == {REFUSED: ("one.example",)}
    assert codes(world) == [("ClientRootsNotAllowed", "a/one")]


@pytest.mark.parametrize("order", [0, 1])
def test_the_first_ingress_of_the_namespace_that_has_a_host_says_how_tls_is_spoken_there(order: int) -> None:
    both = [
        ingress("a/one", "one.example", auth_tls_secret="ca"),
        ingress("a/two", "one.example", created=NEW, auth_tls_secret="other"),
        roots(),
        roots("a/other"),
    ]
    world = world_of(*(both if order else reversed(both)))
    assert [one.settings.roots for one in chains(world).chains] == ["a/ca"]
    assert ("HostTlsSettingsClaimed", "a/two") in codes(world)


def test_another_namespace_cannot_say_how_tls_is_spoken_and_what_it_protects_is_not_served() -> None:
    theirs = ingress("b/two", "one.example", created=NEW, auth_tls_secret="ca")
    theirs["spec"]["rules"] = [m.ingress_rule("one.example", ("/theirs", "web", 80))]
    world = world_of(ingress("a/one", "one.example"), theirs, roots("b/ca"))
    assert names(world) == {}
    assert scopes(world) == {(COMMON, "one.example"): ["Prefix /"]}
    assert ("HostTlsSettingsClaimed", "b/two") in codes(world)
    taken = ingress("b/two", "one.example", created=NEW, ssl_passthrough="true")
    world.apply("alpha", taken)
    world.step()
    assert names(world) == {}


def test_what_is_passed_through_shares_a_chain_by_its_backend() -> None:
    world = world_of(
        ingress("a/one", "one.example", ssl_passthrough="true"),
        ingress("a/two", "two.example", ssl_passthrough="true", backend_protocol="HTTPS"),
    )
    (chain,) = chains(world).chains
    assert chain.backend == "ing|a|web|80"
    assert names(world) == {chain.name: ("one.example", "two.example")}
    assert scopes(world)[COMMON, "one.example"] == ["to-https", "misdirected"]


@pytest.mark.parametrize(
    "asked",
    [
        {"whitelist_source_range": "10.0.0.0/8"},
        {"auth_type": "basic", "auth_secret": "people"},
        {"auth_url": "http://web.a.svc/"},
        {"auth_url": "http://169.254.169.254/"},
        {"auth_type": "digest"},
    ],
)
def test_who_asks_for_a_protection_is_not_passed_through(asked: dict[str, str]) -> None:
    world = world_of(ingress("a/one", "one.example", ssl_passthrough="true", **asked))
    assert names(world) == {REFUSED: ("one.example",)}
    assert set(codes(world)) >= {("ProtectionInvalid", "a/one")}


def test_a_backend_that_another_ingress_protects_is_not_what_ends_tls() -> None:
    passed = m.ingress("a/one", "one.example", "other", path="/x", created=OLD)
    passed["metadata"]["annotations"] = {"isthmus.io/ssl-passthrough": "true"}
    kept = ingress("a/two", "one.example", created=NEW, denylist_source_range="10.0.0.0/8")
    world = world_of(passed, kept)
    (chain,) = chains(world).chains
    assert chain.backend == "ing|a|other|80"


def test_without_a_backend_nothing_is_passed_through() -> None:
    bare = {**ingress("a/one", "one.example", ssl_passthrough="true")}
    bare["spec"] = {**bare["spec"], "rules": [{"host": "one.example"}]}
    world = world_of(bare)
    assert names(world) == {REFUSED: ("one.example",)}
    assert codes(world) == [("PassthroughNotServed", "a/one")]


def test_a_host_gets_a_chain_of_its_own_while_it_has_a_certificate() -> None:
    secret = m.tls_secret("a/tls", *c.host_pair("one.example"))
    hot = ingress("a/one", "one.example", secret="tls")
    hot["metadata"]["annotations"] = {"isthmus.io/tls-chain": "static"}
    world = world_of(hot, secret)
    (chain,) = chains(world).chains
    assert (chain.certificate, chain.scope_class) == ("one.example", COMMON)
    world.delete("alpha", secret)
    world.step()
    assert chains(world).chains == ()


def test_the_oldest_chains_are_served_and_hosts_of_others_that_demand_something_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tls_classes, "MOST_CHAINS", 2)
    many = [
        ingress(
            f"a/i{number}",
            f"h{number}.example",
            created=f"2026-01-0{number}T00:00:00Z",
            auth_tls_secret=f"ca{number}",
        )
        for number in range(1, 5)
    ]
    sound = [roots(f"a/ca{number}") for number in range(1, 5)]
    for order in (many, many[::-1]):
        world = world_of(*order, *sound)
        assert names(world)[REFUSED] == ("h3.example", "h4.example")
        assert codes(world) == [("TlsChainsExceeded", "a/i3"), ("TlsChainsExceeded", "a/i4")]
        world.delete("alpha", many[0])
        world.step()
        assert names(world)[REFUSED] == ("h4.example",)


def test_the_name_of_a_class_is_the_same_in_every_process() -> None:
    settings = TlsSettings("a/ca")
    assert class_name(settings) == "tls|89e0f46c9b4cedb1"
    assert class_name(NO_DEMANDS) == COMMON
