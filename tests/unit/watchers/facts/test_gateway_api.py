"""Gateways and GatewayClasses: listeners, and only those addresses that are in the status."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit import manifests
from tests.unit.watchers.recorded import recorded
from watchers.facts import kinds
from watchers.facts.conditions import Condition, ListenerStatus
from watchers.facts.gateway_api import CertificateRef, Gateway, GatewayAddress, GatewayClass, Listener
from watchers.facts.invalid import InvalidObject
from watchers.facts.selectors import LabelSelector, Requirement


def fact(document: Any) -> Any:
    keyed = kinds.decode(document, "west", "istio-system")
    assert keyed is not None
    return keyed[1]


def refused(document: Any) -> InvalidObject:
    with pytest.raises(InvalidObject) as caught:
        kinds.decode(document, "west", "istio-system")
    return caught.value


def test_a_recorded_gateway() -> None:
    selector = LabelSelector((("exposed", "true"),), (Requirement("team", "In", ("pay", "shop")),))
    assert kinds.decode(recorded("gateway"), "west", "istio-system") == (
        ("west", "Gateway", "istio-system", "east-west"),
        Gateway(
            labels=(("app", "gateways"), ("topology.istio.io/network", "net1")),
            annotations=(
                ("ambient.istio.io/waypoint-inbound-binding", "PROXY/15088"),
                ("gateway.istio.io/service-account", "east-west"),
            ),
            created="2026-01-31T09:00:00Z",
            class_name="istio-east-west",
            listeners=(
                Listener("mesh", 15008, "HBONE", "", "Terminate", "Same"),
                Listener(
                    "https",
                    443,
                    "HTTPS",
                    "*.shop.example",
                    "Terminate",
                    "Selector",
                    selector,
                    (
                        CertificateRef("", "Secret", "", "shop"),
                        CertificateRef("", "Secret", "certificates", "shop"),
                    ),
                ),
            ),
            addresses=(GatewayAddress("IPAddress", "192.0.2.10"), GatewayAddress("Hostname", "lb.example.com")),
            generation=2,
            conditions=(
                Condition("Programmed", "True", "Programmed", "Resource programmed", 2, "2026-01-31T09:00:02Z"),
            ),
            listener_status=(
                ListenerStatus("mesh", (Condition("Accepted", "True", "Accepted", "", 2, "2026-01-31T09:00:01Z"),)),
            ),
            told=True,
        ),
    )


def test_a_recorded_gateway_class() -> None:
    assert kinds.decode(recorded("gateway_class"), "west", "istio-system") == (
        ("west", "GatewayClass", "", "istio-waypoint"),
        GatewayClass(
            labels=(("istio.io/waypoint-for", "all"),),
            annotations=(("ambient.istio.io/waypoint-inbound-binding", "PROXY"),),
            controller="istio.io/mesh-controller",
            generation=1,
            conditions=(Condition("Accepted", "True", "Accepted", "", 0),),
            told=True,
        ),
    )


def test_wished_addresses_are_not_addresses() -> None:
    gateway = recorded("gateway")
    del gateway["status"]
    assert fact(gateway).addresses == ()


def test_an_address_without_a_type_is_an_ip_address() -> None:
    gateway = manifests.gateway("shop/waypoint")
    gateway["status"] = {"addresses": [{"value": "10.0.0.1"}]}
    assert fact(gateway).addresses == (GatewayAddress("IPAddress", "10.0.0.1"),)


@pytest.mark.parametrize("address", ["10.0.0.1/15008", "", "a b", "lb\n.example"])
def test_addresses_that_would_forge_resource_names_are_refused(address: str) -> None:
    error = refused(manifests.gateway("shop/waypoint", addresses=[("Hostname", address)]))
    assert error.path == ("status", "addresses", 0, "value")


def test_an_address_of_another_type_is_kept_as_it_is() -> None:
    gateway = manifests.gateway("shop/waypoint", addresses=[("example.com/pool", "pools/blue")])
    assert fact(gateway).addresses == (GatewayAddress("example.com/pool", "pools/blue"),)


def test_a_service_account_that_would_forge_an_identity_is_refused() -> None:
    error = refused(manifests.gateway("shop/waypoint", annotations={"gateway.istio.io/service-account": "a/sa/b"}))
    assert error.path == ("metadata", "annotations", "gateway.istio.io/service-account")


def test_the_beta_version_reads_alike() -> None:
    beta = {**recorded("gateway"), "apiVersion": "gateway.networking.k8s.io/v1beta1"}
    assert fact(beta) == fact(recorded("gateway"))


def test_a_listener_says_nothing_of_namespaces_by_default() -> None:
    assert fact(manifests.gateway("shop/waypoint")).listeners == (Listener("mesh", 15008, "HBONE", "", "", ""),)


def test_a_selector_of_a_listener_is_checked_and_its_error_is_located() -> None:
    bad = manifests.listener(allowed_from="Selector", selector={"matchLabels": {"a": "b/c"}})
    error = refused(manifests.gateway("shop/waypoint", "istio-waypoint", manifests.listener(), bad))
    assert error.path == (
        "spec", "listeners", 1, "allowedRoutes", "namespaces", "selector", "matchLabels", "a"
    )  # fmt: skip


def test_an_operator_that_does_not_exist_is_refused() -> None:
    bad = manifests.listener(allowed_from="Selector", selector={"matchExpressions": [{"key": "a", "operator": "Like"}]})
    error = refused(manifests.gateway("shop/waypoint", "istio-waypoint", bad))
    assert error.path[-2:] == (0, "operator")
    assert "Like" in error.cause


def test_requirements_are_a_set() -> None:
    entries = [{"key": "b", "operator": "Exists"}, {"key": "a", "operator": "In", "values": ["2", "1", "1"]}]
    one, other = (
        fact(
            manifests.gateway(
                "shop/w", "c", manifests.listener(allowed_from="Selector", selector={"matchExpressions": given})
            )
        )
        for given in (entries, entries[::-1])
    )
    assert one == other
    assert one.listeners[0].allowed_selector.expressions == (
        Requirement("a", "In", ("1", "2")),
        Requirement("b", "Exists", ()),
    )
