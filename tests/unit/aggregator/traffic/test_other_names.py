"""Other names of hosts: which are served, what goes before them, and what is said of those that are not."""

from __future__ import annotations

from typing import Any

from aggregator.traffic.hosts import Host
from tests.kit import certificates as c
from tests.kit import manifests as m
from tests.kit.world import World

OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
CHALLENGE = "/.well-known/acme-challenge/token"
ALIAS = {"server-alias": "b.example"}
WWW = {"from-to-www-redirect": "true"}


def world_of(*manifests: m.Manifest) -> World:
    world = World()
    world.now = c.NOW.timestamp()
    world.apply("alpha", m.service("a/web"), m.service("b/web"), *manifests)
    world.step()
    return world


def ingress(name: str, host: str, annotations: dict[str, str] | None = None, **fields: Any) -> m.Manifest:
    return m.ingress(name, host, "web", annotations=annotations, **fields)


def hosts(world: World) -> dict[str, Host]:
    return dict(world.graph.values(world.pipeline.hosts.hosts))


def paths(world: World, host: str) -> list[tuple[str, str]]:
    """(namespace, path) of the rules of a host."""
    return [(rule.origin[2], rule.path) for rule in hosts(world)[host].rules]


def told(world: World, code: str = "HostSettingClaimed") -> list[str]:
    """Ingresses that have a finding."""
    return ["/".join(one.object[2:]) for one in world.findings() if one.code == code]


def certified(world: World) -> list[str]:
    return sorted(world.graph.values(world.pipeline.hosts.certificates))


def test_an_alias_has_the_rules_of_all_ingresses_of_its_host() -> None:
    world = world_of(ingress("a/one", "a.example", ALIAS), ingress("b/two", "a.example", path="/two"))
    assert paths(world, "b.example") == paths(world, "a.example") == [("b", "/two"), ("a", "/")]
    world.apply("alpha", ingress("b/three", "a.example", path="/three"))
    world.step()
    assert len(paths(world, "b.example")) == 3


def test_an_alias_goes_with_its_ingress_and_with_its_host() -> None:
    one = ingress("a/one", "a.example", ALIAS)
    world = world_of(one)
    world.apply("alpha", ingress("a/one", "a.example"))
    world.step()
    assert list(hosts(world)) == ["a.example"]
    world.apply("alpha", one)
    world.step()
    world.delete("alpha", one)
    world.step()
    assert hosts(world) == {}


def test_a_host_goes_before_an_alias_of_whatever_age() -> None:
    real = ingress("b/real", "b.example", path="/real", created=NEW)
    for order in ((real, ingress("a/one", "a.example", ALIAS)), (ingress("a/one", "a.example", ALIAS), real)):
        world = world_of(*order)
        assert paths(world, "b.example") == [("b", "/real")]
        assert told(world) == ["a/one"]
        world.delete("alpha", real)
        world.step()
        assert (paths(world, "b.example"), told(world)) == ([("a", "/")], [])


def test_of_two_hosts_with_one_alias_the_older_ingress_decides() -> None:
    world = world_of(ingress("b/two", "c.example", ALIAS, created=NEW), ingress("a/one", "a.example", ALIAS))
    assert paths(world, "b.example") == [("a", "/")]
    assert told(world) == ["b/two"]


def test_two_ingresses_of_a_host_may_want_the_same_alias() -> None:
    world = world_of(ingress("a/one", "a.example", ALIAS), ingress("b/two", "a.example", ALIAS, path="/two"))
    assert told(world) == []
    assert len(paths(world, "b.example")) == 2


def test_proofs_are_served_beside_what_a_name_is_for() -> None:
    solver = ingress("b/solver", "b.example", path=CHALLENGE, path_type="Exact")
    world = world_of(ingress("a/one", "a.example", ALIAS), solver)
    assert paths(world, "b.example") == [("b", CHALLENGE), ("a", "/")]
    assert told(world) == []
    sent = world_of(ingress("a/one", "a.example", WWW), ingress("b/solver", "www.a.example", path=CHALLENGE))
    found = hosts(sent)["www.a.example"]
    assert ([rule.path for rule in found.rules], found.sent_to) == ([CHALLENGE], "a.example")


def test_a_name_is_sent_to_its_host_unless_it_is_one_itself_which_is_no_flaw() -> None:
    world = world_of(ingress("a/one", "a.example", WWW))
    assert (hosts(world)["www.a.example"].sent_to, hosts(world)["www.a.example"].rules) == ("a.example", ())
    world.apply("alpha", ingress("b/real", "www.a.example"))
    world.step()
    assert hosts(world)["www.a.example"].sent_to == ""
    assert world.findings() == []


def test_two_ingresses_that_send_two_names_to_each_other_are_two_hosts() -> None:
    world = world_of(ingress("a/one", "a.example", WWW), ingress("b/two", "www.a.example", WWW))
    assert {name: host.sent_to for name, host in hosts(world).items()} == {"a.example": "", "www.a.example": ""}


def test_names_do_not_stand_for_names() -> None:
    world = world_of(
        ingress("a/one", "a.example", ALIAS),
        m.ingress("b/two", rules=[{"host": "c.example"}], annotations={"server-alias": "a.example"}),
    )
    assert sorted(hosts(world)) == ["a.example", "b.example", "c.example"]
    assert paths(world, "b.example") == [("a", "/")]


def test_an_alias_has_the_certificate_of_its_host_if_that_is_for_it_too() -> None:
    one = ingress("a/one", "a.example", ALIAS, secret="t")
    world = world_of(one, m.tls_secret("a/t", *c.host_pair("a.example", "b.example")))
    assert certified(world) == ["a.example", "b.example"]
    world.apply("alpha", m.tls_secret("a/t", *c.host_pair("a.example")))
    world.step()
    assert hosts(world)["b.example"].tls == hosts(world)["a.example"].tls
    assert told(world, "CertificateNotForHost") == ["a/one"]


def test_an_alias_with_a_certificate_of_its_own_has_that() -> None:
    tls = [{"hosts": ["a.example"], "secretName": "ta"}, {"hosts": ["b.example"], "secretName": "tb"}]
    world = world_of(
        ingress("a/one", "a.example", ALIAS, spec={"tls": tls}),
        m.tls_secret("a/ta", *c.host_pair("a.example")),
        m.tls_secret("a/tb", *c.host_pair("b.example")),
    )
    assert certified(world) == ["a.example", "b.example"]
    assert world.findings() == []


def test_a_canary_has_no_other_names() -> None:
    world = world_of(ingress("a/one", "a.example"), ingress("a/two", "a.example", {"canary": "true", **ALIAS, **WWW}))
    assert list(hosts(world)) == ["a.example"]


def test_requests_for_the_root_of_a_host_go_where_its_first_ingress_says() -> None:
    world = world_of(
        ingress("a/one", "a.example", {"app-root": "/one"}),
        ingress("a/three", "a.example", {"app-root": "/one"}, path="/three"),
        ingress("b/two", "a.example", {"app-root": "/two"}, path="/two", created=NEW),
    )
    assert hosts(world)["a.example"].root == "/one"
    assert told(world) == ["b/two"]


def test_whose_rule_is_for_the_root_says_where_it_is_sent_and_no_other_namespace() -> None:
    older = ingress("b/two", "a.example", {"app-root": "/two"}, path="/two", created=OLD)
    one = ingress("a/one", "a.example", created=NEW)
    world = world_of(older, one)
    assert (hosts(world)["a.example"].root, told(world)) == ("", ["b/two"])
    world.delete("alpha", one)
    world.step()
    assert (hosts(world)["a.example"].root, told(world)) == ("/two", [])


def test_of_two_paths_for_the_root_the_first_in_order_counts() -> None:
    first = ingress("a/one", "a.example", {"app-root": "/one"}, path="/one")
    world = world_of(first, ingress("a/two", "a.example", {"app-root": "/two"}, path="/two", created=NEW))
    assert (hosts(world)["a.example"].root, told(world)) == ("/one", ["a/two"])


# Cost.


def test_an_alias_costs_itself_however_many_hosts_there_are() -> None:
    def cost(beside: int) -> int:
        world = world_of(*(ingress(f"a/i{number}", f"h{number}.example") for number in range(beside)))
        world.apply("alpha", ingress("a/new", "a.example", ALIAS))
        return world.step().evaluated

    assert cost(20) == cost(300) <= 14
