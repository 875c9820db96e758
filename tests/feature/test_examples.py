"""The examples that are shipped mean what they say."""

from __future__ import annotations

from pathlib import Path

from tests.kit.world import World, manifests_of

EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples"


def test_two_clusters_share_orders_and_nothing_is_wrong_with_them() -> None:
    world = World("west")
    for cluster in ("west", "east"):
        world.apply(cluster, *manifests_of(EXAMPLES / "two-clusters" / cluster))
    world.step()
    assert world.findings() == []
    reach = world.address(
        "net-east/SplitHorizonWorkload/istio-system/east-west/127.2.0.10/shop/orders.shop.svc.cluster.local"
    )
    assert reach["capacity"] == 2
    orders = world.address("shop/orders.shop.svc.cluster.local")
    assert orders["subject_alt_names"] == ["spiffe://cluster.local/ns/shop/sa/orders"]
