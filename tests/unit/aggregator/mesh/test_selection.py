"""Rules of discovery selectors: whose labels they read, what counts, and what watchers are told."""

from __future__ import annotations

from typing import Any

import pytest

from aggregator.mesh.selection import Selected
from aggregator.pipeline import SELECTIONS
from tests.kit import manifests as m
from tests.kit.world import World
from watchers.facts.cluster import Answered

MESH = [{"matchLabels": {"mesh": "on"}}]
ON = {"mesh": "on"}
REACH = "net-b/SplitHorizonWorkload/istio-system/edge/198.51.100.20/shop/orders.shop.svc.cluster.local"
ORDERS = "shop/orders.shop.svc.cluster.local"


def select(*selectors: Any) -> Any:
    return m.mesh_config_map(discoverySelectors=list(selectors))


def mesh(*selectors: Any, home: dict[str, str] = ON, remote: dict[str, str] = ON) -> World:
    """A service in both clusters, whose namespaces have these labels."""
    world = World()
    world.apply(
        "alpha",
        m.namespace("istio-system", network="net-a"),
        m.namespace("shop", labels=home),
        m.service("shop/orders", "10.10.0.11", selector={"app": "orders"}, is_global=True),
        m.pod("shop/orders-1", "10.1.0.5", labels={"app": "orders"}),
    )
    world.apply(
        "beta",
        m.namespace("istio-system", network="net-b"),
        m.namespace("shop", labels=remote),
        m.service("shop/orders", "10.20.0.11", selector={"app": "orders"}, is_global=True),
        m.pod("shop/orders-1", "10.2.0.5", labels={"app": "orders"}),
        m.pod("shop/orders-2", "10.2.0.6", labels={"app": "orders"}),
        m.east_west_gateway("istio-system/edge", "198.51.100.20", network="net-b"),
    )
    if selectors:
        world.apply("alpha", select(*selectors))
    world.step()
    return world


def chosen(world: World, cluster: str) -> tuple[str, ...] | None:
    told = world.published[SELECTIONS][(cluster,)]
    assert isinstance(told, Selected)
    return told.namespaces


def why(world: World, collection: Any, key: Any) -> str:
    (reason,) = world.graph.why(collection, key).withheld
    return str(reason.code)


def test_without_selectors_every_namespace_counts() -> None:
    world = mesh(home={}, remote={})
    assert world.address(REACH)["capacity"] == 2
    assert chosen(world, "beta") is None


def test_an_empty_list_of_selectors_selects_every_namespace() -> None:
    world = mesh(home={}, remote={})
    world.apply("alpha", m.mesh_config_map(discoverySelectors=[]))
    world.step()
    assert world.address(REACH)["capacity"] == 2


def test_an_empty_selector_selects_every_namespace_that_is_there() -> None:
    world = mesh({}, home={}, remote={})
    assert world.address(REACH)["capacity"] == 2
    assert chosen(world, "beta") == ("istio-system", "shop")


def test_a_null_among_the_selectors_selects_nothing() -> None:
    assert chosen(mesh(None), "beta") == ()


def test_what_is_in_an_unselected_namespace_does_not_count() -> None:
    world = mesh(*MESH, home={}, remote={})
    told = world.addresses()
    assert ORDERS not in told
    assert REACH not in told
    assert not any("10.1.0.5" in str(one) for one in told.values())


def test_each_cluster_is_judged_by_its_own_labels() -> None:
    only_home, only_remote = mesh(*MESH, remote={}), mesh(*MESH, home={})
    assert (ORDERS in only_home.addresses(), REACH in only_home.addresses()) == (True, False)
    assert ORDERS in only_remote.addresses()
    assert not any("10.1.0.5" in str(one) for one in only_remote.addresses().values())


def test_a_namespace_counts_that_any_selector_selects() -> None:
    world = mesh({"matchLabels": {"other": "x"}}, {"matchExpressions": [{"key": "mesh", "operator": "Exists"}]})
    assert world.address(REACH)["capacity"] == 2
    assert chosen(world, "beta") == ("shop",)


def test_the_selectors_of_a_remote_do_not_count() -> None:
    world = mesh(home={}, remote={})
    world.apply("beta", select(*MESH))
    world.step()
    assert world.address(REACH)["capacity"] == 2


def test_a_remotes_network_and_gateways_come_from_its_system_namespace_in_any_case() -> None:
    world = mesh(*MESH)
    assert chosen(world, "beta") == ("shop",)
    assert world.address(REACH)["capacity"] == 2


def test_a_gateway_in_another_unselected_namespace_leads_nowhere() -> None:
    world = mesh(*MESH)
    gone, edge = (
        m.east_west_gateway(f"{place}/edge", "198.51.100.20", network="net-b") for place in ("istio-system", "edges")
    )
    world.delete("beta", gone)
    world.apply("beta", m.namespace("edges"), edge)
    world.step()
    assert REACH.replace("istio-system", "edges") not in world.addresses()
    world.apply("beta", m.namespace("edges", labels=ON))
    world.step()
    assert world.address(REACH.replace("istio-system", "edges"))["capacity"] == 2


def test_homes_system_namespace_counts_in_any_case() -> None:
    world = mesh(*MESH)
    world.apply("alpha", m.pod("istio-system/ztunnel-x", "10.1.0.9", labels={"app": "ztunnel"}))
    world.step()
    assert any("ztunnel-x" in name for name in world.addresses())
    assert chosen(world, "alpha") == ("istio-system", "shop")


@pytest.mark.parametrize(("root", "counts"), [("policies", True), ("", False)])
def test_homes_root_namespace_counts_in_any_case(root: str, counts: bool) -> None:
    world = mesh()
    world.apply("alpha", m.mesh_config_map(root_namespace=root, discoverySelectors=MESH))
    world.apply("alpha", m.namespace("policies"), m.authorization_policy("policies/all", {}, action="DENY"))
    world.step()
    assert bool(world.authorizations()) is counts


def test_a_label_that_comes_and_goes_adds_and_removes_what_is_there() -> None:
    world = mesh(*MESH, remote={})
    selected = mesh(*MESH)
    world.apply("beta", m.namespace("shop", labels=ON))
    world.step()
    assert world.resources == selected.resources
    world.apply("beta", m.namespace("shop"))
    world.step()
    assert REACH not in world.addresses()


def test_selectors_that_come_and_go_are_followed() -> None:
    world = mesh(home={}, remote={})
    everything = dict(world.resources)
    world.apply("alpha", select(*MESH))
    world.step()
    assert REACH not in world.addresses()
    world.delete("alpha", select(*MESH))
    world.step()
    assert world.resources == everything


def test_why_something_is_withheld_is_told() -> None:
    world = mesh(*MESH, home={}, remote={})
    pods, *_ = world.pipeline.workloads.collections
    assert why(world, pods, ("beta", "Pod", "shop", "orders-1")) == "NamespaceNotSelected"


def test_a_pod_without_labels_is_withheld_as_any_other() -> None:
    world = mesh(*MESH, remote={})
    world.apply("beta", m.pod("shop/plain", "10.2.0.9"))
    world.step()
    pods, *_ = world.pipeline.workloads.collections
    assert why(world, pods, ("beta", "Pod", "shop", "plain")) == "NamespaceNotSelected"


def test_nothing_is_said_of_what_is_wrong_in_an_unselected_namespace() -> None:
    world = mesh(*MESH)
    world.apply("alpha", m.namespace("attic"), m.pod("attic/odd", "nowhere"), m.service("attic/odd", "no address"))
    world.step()
    assert world.findings() == mesh(*MESH).findings()


def test_a_namespace_that_is_not_known_is_not_selected() -> None:
    world = mesh(*MESH)
    world.apply("beta", m.service("new/orders", "10.20.0.12", is_global=True))
    world.step()
    assert not any("new" in name for name in world.addresses())


@pytest.mark.parametrize("state", ["connecting", "syncing"])
def test_watchers_are_told_once_what_it_stands_on_has_been_read(state: str) -> None:
    world = World()
    world.cluster("alpha", state)
    world.cluster("beta", state)
    world.apply("beta", m.namespace("shop", labels=ON))
    world.apply("alpha", select(*MESH))
    world.step()
    assert world.published.get(SELECTIONS, {}) == {}
    world.facts.apply([(("alpha", "Answered", "", "alpha"), Answered(("MeshConfig",)))])
    world.step()
    assert world.published.get(SELECTIONS, {}) == {}
    world.facts.apply([(("beta", "Answered", "", "beta"), Answered(("Namespace",)))])
    world.step()
    assert chosen(world, "beta") == ("shop",)


def test_without_selectors_no_cluster_waits_for_its_own_namespaces() -> None:
    world = World()
    world.cluster("alpha", "syncing")
    world.cluster("beta", "connecting")
    world.facts.apply([(("alpha", "Answered", "", "alpha"), Answered(("MeshConfig",)))])
    world.step()
    assert chosen(world, "beta") is None


def test_a_change_that_selects_nothing_else_tells_watchers_nothing() -> None:
    world = mesh(*MESH)
    world.apply("beta", m.namespace("shop", labels={**ON, "other": "label"}))
    assert SELECTIONS not in world.step().published
