"""Whole control planes whose mesh config selects namespaces, and clusters whose network is known late."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit import manifests as m
from tests.kit.eventually import eventually
from tests.kit.kube_api import KubeCluster, Refuse
from tests.kit.plane import Plane, learned, told
from tests.kit.two_api_servers import TwoApiServers
from tests.kit.two_clusters import CART, CART_1, CLIENT, GATEWAY, WAY
from tests.kit.ztunnel import ADDRESS_TYPE, Ztunnel

ON = {"mesh": "on"}
SELECTED = m.mesh_config_map(discoverySelectors=[{"matchLabels": ON}])
EVERYTHING = {CLIENT, CART_1, CART, GATEWAY, WAY}


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[TwoApiServers]:
    both = TwoApiServers(tmp_path)
    async with both.served():
        both.register()
        yield both


def label(cluster: KubeCluster, *, on: bool) -> None:
    cluster.apply(m.namespace("shop", labels=ON if on else None))


def held(plane: Plane, cluster: str) -> set[str]:
    """The namespaces of which the control plane holds anything."""
    return {key[2] for key, _ in plane.control.tables.facts.scan((cluster,)) if key[2]}


async def test_without_selectors_everything_is_read(servers: TwoApiServers) -> None:
    async with servers.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        assert set((await learned(client)).held(ADDRESS_TYPE)) >= EVERYTHING


async def test_of_unselected_namespaces_nothing_is_held_and_nothing_is_told(servers: TwoApiServers) -> None:
    servers.alpha.apply(SELECTED)
    label(servers.alpha, on=True)
    async with servers.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        machine = await learned(client)
        assert {CLIENT, CART} <= set(machine.held(ADDRESS_TYPE))
        assert WAY not in machine.held(ADDRESS_TYPE)
        assert held(plane, "beta") == {"istio-system"}
        assert held(plane, "alpha") == {"istio-system", "shop"}


async def test_a_namespace_that_is_selected_later_is_told_and_goes_when_it_is_not_any_more(
    servers: TwoApiServers,
) -> None:
    servers.alpha.apply(SELECTED)
    label(servers.alpha, on=True)
    async with servers.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        await learned(client)
        label(servers.beta, on=True)
        assert WAY in (await told(client, WAY)).resources
        label(servers.beta, on=False)
        assert WAY in (await told(client, WAY)).removed
        await eventually(lambda: held(plane, "beta") == {"istio-system"})


async def test_selectors_that_come_and_go_are_followed_by_every_cluster(servers: TwoApiServers) -> None:
    async with servers.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        await learned(client)
        servers.alpha.apply(SELECTED)
        assert WAY in (await told(client, WAY)).removed
        await eventually(lambda: held(plane, "beta") == {"istio-system"})
        servers.alpha.delete("ConfigMap", "istio-system/istio")
        assert WAY in (await told(client, WAY)).resources


@pytest.mark.parametrize("kind", ["ConfigMap", "Namespace"])
async def test_nothing_is_waited_for_that_may_not_be_read(servers: TwoApiServers, kind: str) -> None:
    cluster = servers.alpha if kind == "ConfigMap" else servers.beta
    cluster.forbidden.add(kind)
    async with servers.plane(remote_timeout=1.0) as plane:
        await eventually(lambda: ("beta", "Pod", "shop", "cart-1") in dict(plane.control.tables.facts.scan(("beta",))))


async def test_home_that_does_not_tell_its_mesh_config_keeps_no_remote_from_being_read(servers: TwoApiServers) -> None:
    script: Any = servers.alpha.script(Refuse(503), kind="ConfigMap", times=None)
    remotes = servers.write(servers.beta)
    async with Plane(servers.write(servers.alpha), remotes, held=("nobody",)) as plane:
        await eventually(lambda: plane.cluster("beta").state == "synced", deadline=20.0)
        script.withdraw()


async def test_a_network_that_is_named_late_is_where_the_endpoints_are_from_then_on(servers: TwoApiServers) -> None:
    servers.beta.apply(m.namespace("istio-system"))
    servers.beta.apply(m.pod("shop/odd", "10.20.1.9", labels={"app": "cart", "topology.istio.io/network": "net3"}))
    servers.beta.apply(m.east_west_gateway("istio-system/third", "192.0.2.30", network="net3"))
    third = WAY.replace("net2", "net3").replace("east-west", "third").replace("192.0.2.20", "192.0.2.30")
    async with servers.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        machine = await learned(client)
        # Where the local network has a name, a network without one is not reachable.
        assert WAY not in machine.held(ADDRESS_TYPE)
        assert third in machine.held(ADDRESS_TYPE)
        assert not any(name.startswith("beta//Pod") for name in machine.held(ADDRESS_TYPE))
        servers.beta.apply(m.namespace("istio-system", network="net2"))
        assert WAY in (await told(client, WAY)).resources
        assert third in machine.held(ADDRESS_TYPE)


async def test_clusters_without_any_network_are_one_flat_network(servers: TwoApiServers) -> None:
    for cluster in (servers.alpha, servers.beta):
        cluster.apply(m.namespace("istio-system"))
    async with servers.plane() as plane, plane.connect(Ztunnel("")) as client:
        machine = await learned(client)
        assert {f"beta//Pod/shop/cart-{number}" for number in (1, 2, 3)} <= set(machine.held(ADDRESS_TYPE))
        assert WAY not in machine.held(ADDRESS_TYPE)
