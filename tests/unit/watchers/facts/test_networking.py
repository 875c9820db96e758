"""Ingresses and IngressClasses: what is written is kept as it is written; only what no API server takes is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit import manifests
from tests.unit.watchers.recorded import recorded
from watchers.facts import kinds
from watchers.facts.invalid import InvalidObject
from watchers.facts.networking import Ingress, IngressBackend, IngressClass, IngressPath, IngressRule, IngressTLS


def fact(document: Any) -> Any:
    keyed = kinds.decode(document, "west", "istio-system")
    assert keyed is not None
    return keyed[1]


def refused(document: Any) -> InvalidObject:
    with pytest.raises(InvalidObject) as caught:
        kinds.decode(document, "west", "istio-system")
    return caught.value


def path(**fields: Any) -> Any:
    """An Ingress with one path, of these fields beside a backend."""
    entry = {"backend": {"service": {"name": "cart", "port": {"number": 80}}}, **fields}
    return manifests.ingress("shop/cart", rules=[{"host": "shop.example", "http": {"paths": [entry]}}])


def backend(service: Any) -> Any:
    return path(backend={"service": service})


def test_a_recorded_ingress() -> None:
    assert kinds.decode(recorded("ingress"), "west", "istio-system") == (
        ("west", "Ingress", "shop", "cart"),
        Ingress(
            annotations=(("kubernetes.io/ingress.class", "isthmus"),),
            created="2026-02-01T08:10:00Z",
            class_name="isthmus",
            default_backend=IngressBackend("landing", 80),
            rules=(
                IngressRule(
                    "cart.shop.example",
                    (
                        IngressPath("/", "Prefix", IngressBackend("cart", 80)),
                        IngressPath("/admin", "Exact", IngressBackend("cart", "admin")),
                        IngressPath("/assets", "ImplementationSpecific", IngressBackend("", 0)),
                    ),
                ),
                IngressRule("*.shop.example", ()),
            ),
            tls=(IngressTLS(("cart.shop.example",), "cart-tls"),),
            addresses=("192.0.2.10", "lb.example.com"),
            told=True,
        ),
    )


def test_a_recorded_ingress_class() -> None:
    assert kinds.decode(recorded("ingress_class"), "west", "istio-system") == (
        ("west", "IngressClass", "", "isthmus"),
        IngressClass(
            "isthmus.dev/ingress-controller", is_default=True, created="2026-01-30T10:00:00Z", parameters=True
        ),
    )


def test_an_ingress_that_says_nothing() -> None:
    document = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "empty"}}
    assert fact(document) == Ingress((), "", "", None, (), ())


def test_a_path_without_path_or_type_is_everything() -> None:
    assert fact(path()).rules[0].paths[0] == IngressPath("/", "ImplementationSpecific", IngressBackend("cart", 80))


def test_hosts_and_paths_stay_as_they_are_written() -> None:
    document = manifests.ingress("shop/cart", "Cart.Shop.Example.", "cart", path="/A//b/")
    assert (fact(document).rules[0].host, fact(document).rules[0].paths[0].path) == ("Cart.Shop.Example.", "/A//b/")


def test_what_is_no_path_is_refused_with_its_place() -> None:
    error = refused(path(path="cart"))
    assert str(error) == "Ingress shop/cart: spec.rules[0].http.paths[0].path is 'cart', which is no path"


def test_a_type_of_path_that_does_not_exist_is_refused() -> None:
    assert refused(path(pathType="Regex")).path == ("spec", "rules", 0, "http", "paths", 0, "pathType")


@pytest.mark.parametrize(
    "service",
    [
        {"name": "cart"},
        {"name": "cart", "port": {}},
        {"name": "cart", "port": {"number": 0}},
        {"name": "cart", "port": {"number": 65536}},
        {"name": "cart", "port": {"name": "a|b"}},
        {"name": "cart", "port": {"name": "\ud800"}},
        {"name": "cart/x", "port": {"number": 80}},
        {"name": "", "port": {"number": 80}},
    ],
)
def test_a_backend_that_could_forge_the_name_of_another_is_refused(service: Any) -> None:
    assert refused(backend(service)).path[:7] == ("spec", "rules", 0, "http", "paths", 0, "backend")


def test_a_port_has_a_number_before_it_has_a_name() -> None:
    found = fact(backend({"name": "cart", "port": {"number": 80, "name": "http"}}))
    assert found.rules[0].paths[0].backend == IngressBackend("cart", 80)


def test_a_default_backend_that_is_a_resource_spoils_nothing() -> None:
    document = manifests.ingress("shop/cart", "a.example", "cart", spec={"defaultBackend": {"resource": {"name": "x"}}})
    assert (fact(document).default_backend, len(fact(document).rules)) == (IngressBackend("", 0), 1)


def test_tls_for_every_host_and_tls_without_a_secret() -> None:
    document = manifests.ingress("shop/cart", "a.example", "cart", spec={"tls": [{"secretName": "all"}, {}]})
    assert fact(document).tls == (IngressTLS((), "all"), IngressTLS((), ""))


@pytest.mark.parametrize("value", ["false", "True", "yes", ""])
def test_only_true_makes_a_default_class(value: str) -> None:
    document = manifests.ingress_class("isthmus")
    document["metadata"]["annotations"] = {"ingressclass.kubernetes.io/is-default-class": value}
    assert not fact(document).is_default


def test_a_class_without_a_controller() -> None:
    document = {**manifests.ingress_class("isthmus"), "spec": None}
    assert fact(document).controller == ""


def test_the_ports_and_the_order_of_a_load_balancer_change_nothing() -> None:
    moved = recorded("ingress")
    moved["status"] = {"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}, {"ip": "192.0.2.10"}]}}
    moved["metadata"]["resourceVersion"] = "51003"
    assert fact(moved) == fact(recorded("ingress"))


@pytest.mark.parametrize("status", [None, {}, {"loadBalancer": None}, {"loadBalancer": {"ingress": [{}]}}])
def test_an_ingress_without_addresses(status: Any) -> None:
    assert fact({**recorded("ingress"), "status": status}).addresses == ()


@pytest.mark.parametrize("entry", [{"manager": "isthmus"}, {"manager": "nginx", "subresource": "status"}])
def test_only_what_we_wrote_into_the_status_is_told_by_us(entry: dict[str, str]) -> None:
    document = recorded("ingress")
    document["metadata"]["managedFields"] = [entry]
    assert not fact(document).told


def test_the_removed_version_of_ingresses_is_refused() -> None:
    error = refused({**recorded("ingress"), "apiVersion": "networking.k8s.io/v1beta1"})
    assert error.cure == "use networking.k8s.io/v1"
