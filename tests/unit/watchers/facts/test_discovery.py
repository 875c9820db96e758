"""EndpointSlices: what an unset condition means, and that order means nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit import manifests
from tests.unit.watchers.recorded import recorded
from watchers.facts import kinds
from watchers.facts.discovery import Endpoint, EndpointSlice, SlicePort
from watchers.facts.invalid import InvalidObject


def fact(document: Any) -> Any:
    keyed = kinds.decode(document, "west", "istio-system")
    assert keyed is not None
    return keyed[1]


def test_a_recorded_slice() -> None:
    assert kinds.decode(recorded("endpoint_slice"), "west", "istio-system") == (
        ("west", "EndpointSlice", "shop", "cart-4xq8z"),
        EndpointSlice(
            service="cart",
            created="2026-02-01T07:59:59Z",
            address_type="IPv4",
            ports=(SlicePort("http", 8080, "TCP", "kubernetes.io/h2c"), SlicePort("any", 0, "UDP", "")),
            endpoints=(Endpoint(("192.0.2.99",), True),),
            pods=("cart-7d9f4c6b5-aaaaa", "cart-7d9f4c6b5-x2x1z"),
        ),
    )


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [(None, True), ({}, True), ({"ready": None}, True), ({"ready": False}, False), ({"ready": True}, True)],
)
def test_unset_conditions(conditions: dict[str, bool | None] | None, ready: bool) -> None:
    endpoint = {"addresses": ["10.0.0.1"], "conditions": conditions}
    (found,) = fact(manifests.slice_("shop/cart-1", endpoint, service="cart")).endpoints
    assert found.ready == ready


@pytest.mark.parametrize("ready", [True, False, None])
@pytest.mark.parametrize("address", ["10.0.0.7", "10.0.0.8"])
def test_a_slice_stays_the_same_fact_while_its_pods_change(address: str, ready: bool | None) -> None:
    def slice_(*endpoint: Any) -> Any:
        return fact(manifests.slice_("shop/cart-1", *endpoint, service="cart"))

    before = slice_(manifests.endpoint("10.0.0.7", pod="shop/cart-a", ready=True))
    assert slice_(manifests.endpoint(address, pod="shop/cart-a", ready=ready, node="node-2")) == before
    assert before.pods == ("cart-a",)


def test_an_address_that_is_told_twice_is_ready_if_it_is_once() -> None:
    twice = [manifests.endpoint("10.0.0.7", ready=ready) for ready in (False, True)]
    found = fact(manifests.slice_("shop/cart-1", *twice, service="cart")).endpoints
    assert [endpoint.ready for endpoint in found] == [True, False]


def test_the_order_of_endpoints_means_nothing() -> None:
    endpoints = [manifests.endpoint(f"10.0.0.{number}") for number in range(3)]
    one = manifests.slice_("shop/cart-1", *endpoints, service="cart")
    other = manifests.slice_("shop/cart-1", *reversed(endpoints), service="cart")
    assert fact(one) == fact(other)


def test_the_order_of_one_endpoints_addresses_is_kept() -> None:
    slice_ = manifests.slice_("shop/cart-1", manifests.endpoint("10.0.0.2", "10.0.0.1"), service="cart")
    assert fact(slice_).endpoints[0].addresses == ("10.0.0.2", "10.0.0.1")


def test_a_slice_of_no_service() -> None:
    assert fact(manifests.slice_("shop/cart-1")).service == ""


def test_a_slice_with_nothing_in_it() -> None:
    slice_ = manifests.slice_("shop/cart-1", service="cart")
    slice_["endpoints"] = slice_["ports"] = None
    assert (fact(slice_).endpoints, fact(slice_).ports) == ((), ())


def test_a_trigger_time_that_moves_changes_nothing() -> None:
    moved = recorded("endpoint_slice")
    moved["metadata"]["annotations"]["endpoints.kubernetes.io/last-change-trigger-time"] = "2026-02-01T09:00:00Z"
    moved["metadata"]["generation"] = 13
    assert fact(moved) == fact(recorded("endpoint_slice"))


def test_the_older_version_of_slices_is_refused_as_its_fields_differ() -> None:
    old = {**recorded("endpoint_slice"), "apiVersion": "discovery.k8s.io/v1beta1"}
    with pytest.raises(InvalidObject) as caught:
        kinds.decode(old, "west", "istio-system")
    assert caught.value.cure == "use discovery.k8s.io/v1"
