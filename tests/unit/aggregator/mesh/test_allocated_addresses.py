"""Which services are given an address, which one, and for how long."""

from __future__ import annotations

import itertools
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.mesh import allocated_addresses
from aggregator.mesh.allocated_addresses import ALLOCATIONS, POOLS
from tests.kit import golden
from tests.kit import manifests as m
from tests.kit.world import NEVER, World
from tests.kit.ztunnel import Route, Tunnel, Ztunnel
from tests.kit.ztunnel.messages import response
from xds import protos

A = "shop/a.ext"
ADS = "shop/ads.shop.svc.cluster.local"


def home(*objects: m.Manifest, **settings: Any) -> World:
    """A world with only home, on net-a, with the namespace shop."""
    world = World(**settings)
    world.apply("alpha", m.namespace("istio-system", network="net-a"), m.namespace("shop"), *objects)
    world.step()
    return world


def entry(name: str = "shop/a", *hosts: str, **more: Any) -> m.Manifest:
    return m.service_entry(name, *(hosts or ("a.ext",)), **{"resolution": "DNS", **more})


def given_to(world: World, service: str = A, network: str = "net-a") -> list[str]:
    """The addresses of a service in home's network, IPv4 first."""
    told = world.address(service).get("addresses", [])
    found = sorted(one["address"] for one in told if one.get("network", "") == network)
    return sorted(found, key=lambda one: ":" in one)


def codes(world: World) -> list[str]:
    return [finding.code for finding in world.findings()]


# Hosts of ServiceEntries.


def test_a_host_without_address_is_given_one_of_each_family_at_one_place() -> None:
    four, six = map(ip_address, given_to(home(entry())))
    assert four in POOLS["IPv4"]
    assert six in POOLS["IPv6"]
    assert int(four) - int(POOLS["IPv4"][0]) == int(six) - int(POOLS["IPv6"][0])


def test_every_host_is_given_its_own() -> None:
    world = home(entry("shop/a", "a.ext", "b.ext"))
    assert not set(given_to(world)) & set(given_to(world, "shop/b.ext"))


NOT_GIVEN = [
    (entry(addresses=["10.1.2.3"]), ["10.1.2.3"]),
    (entry(addresses=["nowhere"]), []),
    (entry(resolution="NONE"), []),
    (entry(labels={"networking.istio.io/enable-autoallocate-ip": "false"}), []),
]


@pytest.mark.parametrize(("made", "addresses"), NOT_GIVEN)
def test_what_names_an_address_or_needs_none_is_given_none(made: m.Manifest, addresses: list[str]) -> None:
    assert given_to(home(made)) == addresses


@pytest.mark.parametrize(("resolution", "number"), [("DNS", 0), ("STATIC", 0), ("DYNAMIC_DNS", 2)])
def test_a_wildcard_is_given_an_address_only_where_the_name_is_resolved_as_it_is_asked_for(
    resolution: str, number: int
) -> None:
    assert len(given_to(home(entry("shop/a", "*.ext", resolution=resolution)), "shop/*.ext")) == number


def test_what_the_status_says_is_kept() -> None:
    world = home(entry(allocated={"a.ext": ["240.240.0.1", "2001:2::9"]}))
    assert given_to(world) == ["240.240.0.1", "2001:2::9"]


def test_the_status_may_come_later() -> None:
    world = home(entry())
    world.apply("alpha", entry(allocated={"a.ext": ["240.240.0.1"]}))
    world.step()
    assert "240.240.0.1" in given_to(world)
    world.apply("alpha", entry())
    world.step()
    assert "240.240.0.1" in given_to(world)


@pytest.mark.parametrize("address", ["10.0.0.1", "nowhere", "240.241.0.1", ""])
def test_what_the_status_says_outside_the_pools_is_not_kept(address: str) -> None:
    assert given_to(home(entry(allocated={"a.ext": [address]}))) == given_to(home(entry()))


def test_the_address_of_one_host_is_not_that_of_another() -> None:
    world = home(entry("shop/a", "a.ext", "b.ext", allocated={"b.ext": ["240.240.0.1"]}))
    assert "240.240.0.1" in given_to(world, "shop/b.ext")
    assert "240.240.0.1" not in given_to(world)


def test_of_two_whose_status_says_the_same_the_older_keeps_it() -> None:
    both = {"a.ext": ["240.240.0.1"], "b.ext": ["240.240.0.1"]}
    older = entry("shop/z", "b.ext", allocated=both, created="2026-01-01T00:00:00Z")
    younger = entry("shop/a", "a.ext", allocated=both, created="2026-01-02T00:00:00Z")
    world = home(younger, older)
    assert "240.240.0.1" in given_to(world, "shop/b.ext")
    assert len(given_to(world)) == 2
    assert "240.240.0.1" not in given_to(world)


def test_an_address_stays_while_the_entry_changes_and_is_free_when_it_goes() -> None:
    world = home(entry())
    before = given_to(world)
    world.apply("alpha", entry(resolution="STATIC", endpoints=["1.1.1.1"]))
    world.step()
    assert given_to(world) == before
    world.delete("alpha", entry())
    world.step()
    assert world.published[ALLOCATIONS] == {}


def test_a_host_that_comes_to_another_entry_keeps_its_address() -> None:
    older, younger = entry("shop/z", created="2026-01-01T00:00:00Z"), entry(created="2026-01-02T00:00:00Z")
    world = home(older, younger)
    before = given_to(world)
    world.delete("alpha", older)
    world.step()
    assert given_to(world) == before != []


def test_what_was_given_before_is_restored_at_the_start() -> None:
    world = home()
    world.apply("alpha", entry())
    kept = world.graph.kept(world.pipeline.allocated.addresses)
    world.step({kept: {(A, "IPv4"): "240.240.7.7"}})
    assert "240.240.7.7" in given_to(world)


def test_nothing_is_given_before_home_has_been_read_so_that_its_first_page_gets_no_preference() -> None:
    world = World()
    world.cluster("alpha", "syncing")
    world.apply("alpha", m.namespace("istio-system", network="net-a"), m.namespace("shop"), entry())
    world.step()
    assert given_to(world) == []
    world.cluster("alpha")
    world.step()
    assert len(given_to(world)) == 2


@pytest.fixture
def one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pools in which all services look for one and the same place."""
    monkeypatch.setattr(allocated_addresses, "_PLACES", 1)


@pytest.mark.usefixtures("one_place")
def test_who_finds_no_address_is_told_and_gets_the_first_that_becomes_free() -> None:
    world = home(entry("shop/a", "a.ext"), entry("shop/b", "b.ext"))
    assert (len(given_to(world)), given_to(world, "shop/b.ext")) == (2, [])
    assert [(one.object[3], one.code, one.field) for one in world.findings()] == [
        ("b", "AddressPoolExhausted", "spec.hosts")
    ] * 2
    world.delete("alpha", entry())
    world.step()
    assert len(given_to(world, "shop/b.ext")) == 2
    assert codes(world) == []


NAMES = st.lists(st.sampled_from("abcdefgh"), unique=True, min_size=1)


@settings(max_examples=40, deadline=None)
@given(NAMES, st.data())
def test_those_who_are_there_at_first_get_the_same_in_any_order_and_later_ones_move_nobody(
    names: list[str], data: st.DataObject
) -> None:
    def made(name: str) -> m.Manifest:
        status = {f"{name}.ext": ["240.240.0.1"]} if name in "ab" else None
        return entry(f"shop/{name}", f"{name}.ext", allocated=status)

    at_first = names[: data.draw(st.integers(0, len(names)))]
    answers = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(allocated_addresses, "_PLACES", 5)  # so that they meet
        for order in (at_first, sorted(at_first), sorted(at_first, reverse=True)):
            world = World()
            world.cluster("alpha", "syncing")
            world.apply("alpha", m.namespace("istio-system", network="net-a"), m.namespace("shop"))
            for name in order:
                world.apply("alpha", made(name))
                world.step()
            world.cluster("alpha")
            world.step()
            answers.append(dict(world.published.get(ALLOCATIONS, {})))
        assert answers[0] == answers[1] == answers[2]
        before = answers[0]
        for name in names[len(at_first) :]:
            world.apply("alpha", made(name))
            world.step()
        after = world.published.get(ALLOCATIONS, {})
        assert {key: after[key] for key in before} == before
        assert len(set(after.values())) == len(after)


# Services that exist in other networks alone.


def beta(*objects: m.Manifest, network: str = "net-b") -> list[m.Manifest]:
    gateway = m.east_west_gateway("istio-system/edge", "203.0.113.9", network=network)
    return [m.namespace("istio-system", network=network), m.namespace("shop"), gateway, *objects]


def ads(address: str | None = "10.97.0.30", **more: Any) -> m.Manifest:
    return m.service("shop/ads", address, **{"selector": {"app": "ads"}, "is_global": True, **more})


POD = m.pod("shop/ads-1", "10.2.0.5", labels={"app": "ads"})


def two(*remote: m.Manifest, at_home: tuple[m.Manifest, ...] = (), network: str = "net-b", **settings: Any) -> World:
    world = home(*at_home, **settings)
    world.apply("beta", *beta(*remote, network=network))
    world.step()
    return world


def test_a_service_that_exists_in_another_network_alone_is_given_an_address_of_homes() -> None:
    world = two(ads(spec={"ipFamilies": ["IPv4"]}), POD)
    (address,) = given_to(world, ADS)
    assert ip_address(address) in POOLS["IPv4"]
    assert given_to(world, ADS, "net-b") == ["10.97.0.30"]
    reach = f"net-b/SplitHorizonWorkload/istio-system/edge/203.0.113.9/{ADS}"
    assert list(world.address(reach)["services"]) == [ADS]


def test_it_is_given_one_of_each_of_its_families() -> None:
    assert len(given_to(two(ads(spec={"ipFamilies": ["IPv4", "IPv6"]})), ADS)) == 2


def test_a_headless_one_is_given_an_address_too_since_its_pods_cannot_be_reached_one_by_one() -> None:
    assert given_to(two(ads(None), POD), ADS) != []


@pytest.mark.parametrize("address", ["10.96.0.30", None])
def test_one_that_home_has_as_well_is_given_none_be_it_headless(address: str | None) -> None:
    world = two(ads(), POD, at_home=(ads(address),))
    assert given_to(world, ADS) == ([] if address is None else [address])


def test_one_that_another_cluster_of_homes_network_has_is_given_none() -> None:
    world = two(ads(), POD)
    world.apply("gamma", *beta(ads("10.98.0.30"), network="net-a"))
    world.step()
    assert given_to(world, ADS) == ["10.98.0.30"]


def test_one_that_is_not_shared_is_given_none() -> None:
    world = two(ads(is_global=False))
    assert world.published.get(ALLOCATIONS, {}) == {}


def test_the_address_goes_when_home_has_the_service_and_comes_again() -> None:
    world = two(ads())
    before = given_to(world, ADS)
    world.apply("alpha", ads("10.96.0.30"))
    world.step()
    assert given_to(world, ADS) == ["10.96.0.30"]
    world.delete("alpha", ads("10.96.0.30"))
    world.step()
    assert given_to(world, ADS) == before


def test_a_service_keeps_its_address_whichever_cluster_has_it() -> None:
    world = two(ads())
    before = given_to(world, ADS)
    world.apply("gamma", *beta(ads("10.98.0.30"), network="net-c"))
    world.step()
    world.leave("beta")
    world.step()
    assert given_to(world, ADS) == before


def test_new_ones_wait_until_every_cluster_has_answered_or_passed_its_limit() -> None:
    world = home()
    world.cluster("gamma", "syncing", deadline=world.now + 10.0)
    world.apply("beta", *beta(ads()))
    world.step()
    assert given_to(world, ADS) == []
    world.wait(10.0)
    assert given_to(world, ADS) != []


def test_a_cluster_that_joins_takes_no_address_away() -> None:
    world = two(ads())
    before = given_to(world, ADS)
    world.cluster("gamma", "syncing", deadline=NEVER)
    world.step()
    assert given_to(world, ADS) == before != []


def test_the_order_in_which_clusters_answer_changes_nothing() -> None:
    answers = []
    for order in itertools.permutations(("beta", "gamma", "delta")):
        world = home()
        for cluster in order:
            world.cluster(cluster, "syncing")
        for number, cluster in enumerate(order):
            services = [m.service(f"shop/{cluster}-{one}", "10.9.0.1", is_global=True) for one in "ab"]
            world.apply(cluster, *beta(*services))
            world.cluster(cluster)
            world.step()
            assert bool(world.published.get(ALLOCATIONS)) == (number == 2)
        answers.append(world.published[ALLOCATIONS])
    assert len(answers[0]) == 6
    assert all(answer == answers[0] for answer in answers)


@pytest.mark.usefixtures("one_place")
def test_a_service_for_which_no_address_is_left_has_a_finding() -> None:
    world = two(ads(), at_home=(entry(),))
    assert given_to(world, ADS) == []
    assert [(one.object, one.code) for one in world.findings()] == [
        (("beta", "Service", "shop", "ads"), "AddressPoolExhausted")
    ]


def test_an_entry_of_another_network_is_given_an_address_whatever_it_names_there() -> None:
    shared = entry(is_global=True, addresses=["240.1.2.3"], endpoints=["1.1.1.1"])
    world = two(shared, remote_entries=True)
    assert len(given_to(world)) == 2
    assert given_to(world, A, "net-b") == ["240.1.2.3"]


def test_gateways_of_home_do_not_listen_for_what_only_home_knows() -> None:
    world = two(ads())
    (exposed,) = world.graph.values(world.pipeline.exposed.services).values()
    assert exposed.addresses == (("net-b", "10.97.0.30"),)


@pytest.mark.parametrize("address", ["10.97.0.30", None])
def test_a_ztunnel_resolves_its_name_and_goes_through_the_gateway_of_the_other_network(address: str | None) -> None:
    world = two(ads(address), POD, at_home=(m.pod("shop/client", "10.1.0.5"),))
    ztunnel = Ztunnel("net-a")
    resources = [
        (name, golden.from_json({kind: one[kind]}, protos.istio.workload.Address()))
        for name, one in world.addresses().items()
        for kind in ("workload", "service")
        if kind in one
    ]
    ztunnel.machine.receive(response(*resources))
    route = ztunnel.connect("alpha//Pod/shop/client", "ads.shop.svc.cluster.local:80")
    assert isinstance(route, Route), route
    assert (route.tunnel, route.address) == (Tunnel.DOUBLE_HBONE, "203.0.113.9:15008")
