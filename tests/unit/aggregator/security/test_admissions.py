"""Which accounts proxies may connect as, told from pods alone."""

from __future__ import annotations

from typing import Any

import pytest

from aggregator.security.admissions import Account
from tests.kit import manifests as m
from tests.kit.world import World


def accounts(*pods: m.Manifest, cluster: str = "alpha", **settings: Any) -> dict[str, Account]:
    """Accounts by `namespace/name`, with home alpha on net-a."""
    world = World(**settings)
    world.apply("alpha", m.namespace("istio-system", network="net-a"))
    world.apply(cluster, *pods)
    world.step()
    return {f"{key[1]}/{key[2]}": account for key, account in world.published.get("admissions", {}).items()}


def gateway_pod(
    name: str = "infra/edge-1", account: str = "edge", managed: str = "istio.io-eastwest-controller"
) -> m.Manifest:
    """A pod that a gateway controller manages."""
    labels = {"gateway.istio.io/managed": managed, "gateway.networking.k8s.io/gateway-name": "edge"}
    return m.pod(name, "10.0.0.9", labels=labels, account=account, node="n1")


def test_an_account_of_plain_pods_has_no_role_and_lists_their_nodes() -> None:
    found = accounts(
        m.pod("shop/a", "10.0.0.1", account="web", node="n2"),
        m.pod("shop/b", "10.0.0.2", account="web", node="n1"),
        m.pod("shop/c", "10.0.0.3", account="web", node="n3", phase="Succeeded"),
    )
    assert found["shop/web"] == Account("", ("n1", "n2"))


@pytest.mark.parametrize(
    ("managed", "role"),
    [
        ("istio.io-eastwest-controller", "east-west"),
        ("isthmus.dev-east-west-gateway", "east-west"),
        ("istio.io-gateway-controller", "ingress"),
        ("isthmus.dev-ingress-gateway", "ingress"),
        ("istio.io-mesh-controller", ""),
    ],
)
def test_an_account_takes_its_role_gateway_and_network_from_the_pods_a_controller_manages(
    managed: str, role: str
) -> None:
    found = accounts(gateway_pod(managed=managed))["infra/edge"]
    assert found == (Account(role, ("n1",), "edge", "net-a") if role else Account("", ("n1",)))


def test_a_pod_says_by_its_label_in_which_mode_its_proxy_is_served() -> None:
    one = gateway_pod()
    one["metadata"]["labels"]["isthmus.io/ingress-mode"] = "compatible"
    world = World()
    world.apply("alpha", one, gateway_pod("infra/edge-2"))
    world.step()
    admitted = world.published["admissions"]
    assert [admitted["pod", "infra", name].mode for name in ("edge-1", "edge-2")] == ["compatible", ""]


def test_the_accounts_of_node_proxies_are_admitted_before_a_pod_of_theirs_is_seen() -> None:
    world = World(ztunnel_accounts=(("kube", "zt"),))
    world.step({world.pipeline.node_proxies: {("account", "kube", "zt"): True}})
    assert world.published["admissions"] == {("account", "kube", "zt"): Account("ztunnel", (), "", "")}


def test_pods_of_other_clusters_admit_nobody() -> None:
    assert "infra/edge" not in accounts(gateway_pod(), m.pod("shop/x", "10.0.0.1"), cluster="beta")


def test_an_account_with_several_roles_has_none_and_a_finding() -> None:
    world = World()
    world.apply("alpha", gateway_pod(), gateway_pod("infra/door-1", managed="istio.io-gateway-controller"))
    world.step()
    assert world.published["admissions"]["account", "infra", "edge"].role == ""
    assert [finding.code for finding in world.findings()] == ["AccountHasSeveralRoles"]
