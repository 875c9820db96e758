"""The examples that are shipped mean what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.world import World, manifests_of

EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples"


@pytest.fixture
def world() -> World:
    """Both clusters, seen from west."""
    world = World("west")
    for cluster in ("west", "east"):
        world.apply(cluster, *manifests_of(EXAMPLES / "two-clusters" / cluster))
    world.step()
    return world


def test_the_certificate_of_the_host_is_all_that_is_missing(world: World) -> None:
    (finding,) = world.findings()
    assert (finding.code, finding.object) == ("TlsSecretNotFound", ("west", "Ingress", "shop", "shop"))


def test_two_clusters_share_orders(world: World) -> None:
    reach = world.address(
        "net-east/SplitHorizonWorkload/istio-system/east-west/127.2.0.10/shop/orders.shop.svc.cluster.local"
    )
    assert reach["capacity"] == 2
    orders = world.address("shop/orders.shop.svc.cluster.local")
    assert orders["subject_alt_names"] == ["spiffe://cluster.local/ns/shop/sa/orders"]


def test_what_only_east_has_is_reached_through_its_gateway(world: World) -> None:
    reach = world.address(
        "net-east/SplitHorizonWorkload/istio-system/east-west/127.2.0.10/shop/catalog.shop.svc.cluster.local"
    )
    assert reach["capacity"] == 3
