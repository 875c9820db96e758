"""What a change costs in messages serialised, composed, hashed and wrapped, counted: the same beside few and many."""

from __future__ import annotations

import pytest

from aggregator.views import ingress_gateway
from tests.kit import certificates as c
from tests.kit import manifests as m
from tests.kit.world import World, changed_names
from xds.messages.assignment import ASSIGNMENT_TYPE
from xds.messages.cluster import CLUSTER_TYPE
from xds.messages.scope import SCOPED_ROUTE_TYPE
from xds.messages.secret import SECRET_TYPE
from xds.metrics import WORK, Work

SMALL, LARGE = 50, 500
CHAIN, KEY = c.host_pair("*.example.org")
"""One pair for all hosts, as making one takes its time; each host has a Secret of its own all the same."""


def told_to_gateways(hosts: int) -> World:
    """A world of so many hosts with a certificate and a service each, as ztunnels and ingress gateways are told it."""
    world = World("west")
    world.now = c.NOW.timestamp()
    types = (CLUSTER_TYPE, ASSIGNMENT_TYPE, SCOPED_ROUTE_TYPE, SECRET_TYPE)
    views = [ingress_gateway.view_of(one, lambda _: "") for one in types]
    world.apply("west", m.namespace("istio-system", network="near"), m.namespace("shop"))
    world.ask(*(view for view in views if view is not None))
    for number in range(hosts):
        world.apply("west", *host(number))
    world.step()
    return world


def host(number: int, *, ready: bool = True) -> list[m.Manifest]:
    name = f"h{number:05}"
    return [
        m.service(f"shop/{name}", selector={"app": name}),
        m.pod(f"shop/{name}-1", f"10.1.{number >> 8}.{number & 255}", labels={"app": name}, ready=ready),
        m.tls_secret(f"shop/{name}", CHAIN, KEY),
        m.ingress(f"shop/{name}", f"{name}.example.org", name, secret=name),
    ]


def work(world: World, *objects: m.Manifest) -> tuple[Work, set[str]]:
    """What it takes to take in these objects, and the resources that change."""
    world.apply("west", *objects)
    before = WORK.now()
    changed = changed_names(world.step())
    return WORK.now() - before, changed


@pytest.fixture(scope="module")
def small() -> World:
    return told_to_gateways(SMALL)


@pytest.fixture(scope="module")
def large() -> World:
    return told_to_gateways(LARGE)


def test_one_more_host_encodes_hashes_and_copies_the_same_beside_few_and_many(small: World, large: World) -> None:
    (few, changed), (many, _) = work(small, *host(600)), work(large, *host(600))
    assert few == many
    # Scope, cluster, endpoints (called as the cluster) and certificate for gateways, service and workload for ztunnels.
    assert len(changed) + 1 == few.wrapped == 6
    assert 0 < few.encoded < 10
    assert 0 < few.hashed < 4096


def test_a_host_that_goes_takes_no_work_at_all(large: World) -> None:
    *_, ingress = host(3)
    large.delete("west", ingress)
    assert work(large)[0] == Work()


def test_an_endpoint_that_comes_is_encoded_once_and_copied_into_one_assignment(small: World, large: World) -> None:
    for world in (small, large):
        work(world, *host(7, ready=False))
        done, changed = work(world, *host(7))
        assert changed == {"west//Pod/shop/h00007-1", "ing|shop|h00007|80"}
        assert (done.encoded, done.wrapped) == (2, 2)  # once as ztunnels are told it, once as gateways are
        assert done.composed == 2  # the locality and the assignment it is in


def test_an_endpoint_that_goes_is_left_out_of_one_assignment_and_not_encoded(large: World) -> None:
    done, changed = work(large, *host(8, ready=False))
    assert changed == {"west//Pod/shop/h00008-1", "ing|shop|h00008|80"}
    assert (done.encoded, done.wrapped) == (1, 2)  # ztunnels are told that it is unhealthy


def test_one_endpoint_of_many_copies_the_others_without_hashing_their_bytes() -> None:
    def one_more(pods: int) -> Work:
        world = told_to_gateways(0)
        many = [m.pod(f"shop/p{n}", f"10.2.{n >> 8}.{n & 255}", labels={"app": "h00000"}) for n in range(pods)]
        work(world, *host(0), *many)
        return work(world, *host(0, ready=False))[0]

    few, many = one_more(100), one_more(200)
    assert (few.encoded, few.composed, few.wrapped) == (many.encoded, many.composed, many.wrapped)
    assert (many.hashed - few.hashed) / 100 < 21  # a field number and a digest for each


def test_a_certificate_that_is_renewed_is_one_message(large: World) -> None:
    chain, key = c.host_pair("*.example.org")
    done, changed = work(large, m.tls_secret("shop/h00009", chain, key))
    assert changed == {"h00009.example.org"}
    assert (done.encoded, done.composed, done.wrapped) == (1, 0, 1)


def test_a_change_that_nobody_is_told_takes_no_work(large: World) -> None:
    again = m.ingress("shop/later", "h00010.example.org", "h00010", secret="h00010")
    assert work(large, again) == (Work(), set())  # the first Ingress has the path
