"""Two clusters as files: what most tests of a whole control plane need, and small enough to be read by eye.

`cart` is a global service with two pods in alpha (home, network net1) and three in beta (net2); `client-1` in alpha is
who connects to it. Every pod has a file of its own, so that tests edit, break and delete them one by one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.kit import manifests as m
from tests.kit.manifests import write_manifests
from tests.kit.plane import Plane, write_identities

CART = "shop/cart.shop.svc.cluster.local"
CLIENT = "alpha//Pod/shop/client-1"
CART_1, CART_2, CART_3 = (f"alpha//Pod/shop/cart-{number}" for number in (1, 2, 3))
"""Uids of pods of `cart` at home, the last of which is not there at first."""
GATEWAY = "NetworkGateway/net2/192.0.2.20/0"
WAY = f"net2/SplitHorizonWorkload/istio-system/east-west/192.0.2.20/{CART}"
"""The way from home to the pods of `cart` in beta."""

TOKEN = "ztunnel-token"
"""The token of the ztunnel on the first node of alpha; `cart-token` is that of a plain workload."""


class TwoClusters:
    """The files below a directory: `alpha` and `beta` are the clusters, `identities` the token file."""

    def __init__(self, directory: Path) -> None:
        self.alpha = directory / "alpha"
        self.beta = directory / "beta"
        self.identities = write_identities(
            directory / "identities.json",
            {TOKEN: ("istio-system/ztunnel", "alpha-1"), "cart-token": ("shop/cart", "alpha-2")},
        )
        for number, path in enumerate((self.alpha, self.beta), start=1):
            write_manifests(
                path,
                m.namespace("istio-system", network=f"net{number}"),
                m.namespace("shop"),
                *(m.node(f"{path.name}-{node}", region=f"r{number}") for node in (1, 2)),
                m.east_west_gateway("istio-system/east-west", f"192.0.2.{number}0", network=f"net{number}"),
                file="cluster.yaml",
            )
            cart = m.service("shop/cart", f"10.{95 + number}.1.10", selector={"app": "cart"}, is_global=True)
            write_manifests(path, cart, file="cart.yaml")
        self.client()
        self.cart_pod(self.alpha, 1)
        self.cart_pod(self.alpha, 2)
        for number in (1, 2, 3):
            self.cart_pod(self.beta, number)

    def cart_pod(self, cluster: Path, number: int, **fields: Any) -> Path:
        """A file for one pod of `cart`, the odd ones on the first node."""
        network = 10 if cluster == self.alpha else 20
        pod = m.pod(
            f"shop/cart-{number}",
            f"10.{network}.1.{number}",
            labels={"app": "cart"},
            account="cart",
            node=f"{cluster.name}-{2 - number % 2}",
            **fields,
        )
        return write_manifests(cluster, pod, file=f"cart-{number}.yaml")

    def client(self, **labels: str) -> Path:
        """The pod that connects to `cart`, on the first node of alpha."""
        pod = m.pod("shop/client-1", "10.10.1.100", labels=labels, account="client", node="alpha-1")
        return write_manifests(self.alpha, pod, file="client.yaml")

    def plane(self, **settings: Any) -> Plane:
        """A control plane of alpha that reads beta."""
        return Plane(self.alpha, self.beta, identities=self.identities, **settings)
