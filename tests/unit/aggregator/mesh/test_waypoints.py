"""Who goes through which waypoint: labels, what a waypoint admits and is for, canaries, other clusters."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.kit import manifests as m
from tests.kit.world import World

USE = {"istio.io/use-waypoint": "wp"}
CART = "shop/cart.shop.svc.cluster.local"
POD = "alpha//Pod/shop/cart-1"
APP = {"app": "cart"}


def waypoint(name: str = "shop/wp", *addresses: Any, **fields: Any) -> m.Manifest:
    """A waypoint's Gateway, known by the hostname of its Service unless it is given addresses."""
    namespace, _, own = name.partition("/")
    given = addresses or (("Hostname", f"{own}.{namespace}.svc.cluster.local"),)
    return m.gateway(name, "istio-waypoint", m.listener(**fields.pop("mesh", {})), addresses=given, **fields)


def cart(labels: Any = None, vip: str = "10.96.0.10", **fields: Any) -> m.Manifest:
    return m.service("shop/cart", vip, selector=APP, labels=labels, **fields)


def world(*objects: m.Manifest, namespace: Any = None, **settings: Any) -> World:
    """Home with the namespaces shop (with these labels) and web, and one pod of cart."""
    made = World(**settings)
    made.apply("alpha", m.namespace("istio-system", network="net-a"))
    made.apply("alpha", m.namespace("shop", labels=namespace), m.namespace("web", labels={"team": "web"}))
    made.apply("alpha", m.pod("shop/cart-1", "10.1.0.5", labels=APP), *objects)
    made.step()
    return made


def through(made: World, name: str = CART) -> str:
    """The waypoint that a service or workload is told with: its hostname or address, "" for none."""
    told = made.address(name).get("waypoint", {})
    found = told.get("hostname", {}).get("hostname") or told.get("address", {}).get("address") or ""
    assert isinstance(found, str)
    return found


def codes(made: World) -> list[str]:
    return [one.code for one in made.findings()]


WP = "wp.shop.svc.cluster.local"


# Who asks


def test_a_service_goes_through_the_waypoint_its_own_label_names() -> None:
    assert through(world(waypoint(), cart(USE))) == WP


def test_without_a_label_nobody_goes_through_a_waypoint() -> None:
    assert through(world(waypoint(), cart())) == ""


def test_a_namespace_asks_for_all_its_services() -> None:
    assert through(world(waypoint(), cart(), namespace=USE)) == WP


def test_a_services_own_label_goes_before_its_namespaces() -> None:
    made = world(waypoint(), waypoint("shop/own"), cart({"istio.io/use-waypoint": "own"}), namespace=USE)
    assert through(made) == "own.shop.svc.cluster.local"


@pytest.mark.parametrize(
    ("other", "code"),
    [
        ([], "WaypointIsNotReady"),
        ([m.gateway("shop/own")], "WaypointIsNotReady"),
        ([waypoint("shop/own", labels={"istio.io/waypoint-for": "workload"})], "UnsupportedTrafficType"),
    ],
)
def test_what_a_service_says_itself_decides_alone_even_if_it_cannot_be_had(other: Any, code: str) -> None:
    made = world(waypoint(), *other, cart({"istio.io/use-waypoint": "own"}), namespace=USE)
    assert through(made) == ""
    assert codes(made) == [code]


@pytest.mark.parametrize("where", ["service", "namespace"])
def test_none_is_no_waypoint_and_nothing_is_amiss(where: str) -> None:
    none = {"istio.io/use-waypoint": "none"}
    made = world(waypoint(), cart(none), namespace=USE) if where == "service" else world(cart(), namespace=none)
    assert through(made) == ""
    assert codes(made) == []


def test_a_service_follows_its_waypoint_as_that_comes_and_goes() -> None:
    made = world(cart(USE))
    for addresses in ((("Hostname", WP),), (), (("Hostname", WP),)):
        made.apply("alpha", m.gateway("shop/wp", addresses=addresses))
        made.step()
        assert through(made) == (WP if addresses else "")
        assert codes(made) == ([] if addresses else ["WaypointIsNotReady"])
    made.delete("alpha", m.gateway("shop/wp"))
    made.step()
    assert through(made) == ""


MANAGED = {"gateway.istio.io/managed": "istio.io-mesh-controller"}


def test_managed_services_and_pods_never_have_a_waypoint() -> None:
    made = world(
        waypoint(labels={"istio.io/waypoint-for": "all"}),
        m.service("shop/wp", "10.96.0.9", labels={**MANAGED, **USE}),
        m.pod("shop/wp-1", "10.1.0.9", labels={**MANAGED, **USE}),
        namespace=USE,
    )
    assert through(made, "shop/wp.shop.svc.cluster.local") == ""
    assert through(made, "alpha//Pod/shop/wp-1") == ""
    assert through(made, POD) == WP


# Which Gateway


def test_a_waypoint_is_looked_for_in_the_namespace_of_who_asks() -> None:
    assert through(world(waypoint("web/wp", mesh={"allowed_from": "All"}), cart(USE))) == ""


@pytest.mark.parametrize("where", ["service", "namespace"])
def test_a_waypoint_may_be_in_another_namespace(where: str) -> None:
    labels = {**USE, "istio.io/use-waypoint-namespace": "web"}
    other = waypoint("web/wp", mesh={"allowed_from": "All"})
    made = world(other, cart(labels)) if where == "service" else world(other, cart(), namespace=labels)
    assert through(made) == "wp.web.svc.cluster.local"


def test_a_gateway_of_any_class_is_a_waypoint() -> None:
    gateway = m.gateway("shop/wp", "somebody-elses", addresses=[("Hostname", WP)])
    assert through(world(gateway, cart(USE))) == WP


def test_a_hostname_goes_before_an_address() -> None:
    assert through(world(waypoint("shop/wp", "10.96.0.9", ("Hostname", WP)), cart(USE))) == WP


def test_a_waypoint_without_hostname_is_its_first_address_in_its_network() -> None:
    made = world(waypoint("shop/wp", ("NamedAddress", "x"), "10.96.0.8", "10.96.0.9"), cart(USE))
    assert made.address(CART)["waypoint"] == {
        "address": {"address": "10.96.0.8", "network": "net-a"},
        "hbone_mtls_port": 15008,
    }


@pytest.mark.parametrize("address", [("Hostname", "no_name"), ("IPAddress", "nowhere"), ("NamedAddress", "x")])
def test_a_waypoint_without_an_address_that_can_be_used_is_not_ready(address: Any) -> None:
    made = world(waypoint("shop/wp", address), cart(USE))
    assert through(made) == ""
    assert codes(made) == ["WaypointIsNotReady"]


# What it admits


@pytest.mark.parametrize(
    ("mesh", "admitted"),
    [
        ({}, False),
        ({"allowed_from": "Same"}, False),
        ({"allowed_from": "All"}, True),
        ({"allowed_from": "None"}, False),
        ({"allowed_from": "Selector"}, False),
        ({"allowed_from": "Selector", "selector": {"matchLabels": {"team": "web"}}}, True),
        ({"allowed_from": "Selector", "selector": {"matchLabels": {"team": "shop"}}}, False),
        ({"allowed_from": "Selector", "selector": {}}, True),
    ],
)
def test_objects_of_other_namespaces_come_in_as_its_listener_allows(mesh: Any, admitted: bool) -> None:
    labels = {**USE, "istio.io/use-waypoint-namespace": "shop"}
    made = world(waypoint(mesh=mesh), m.service("web/site", "10.96.0.20", labels=labels))
    assert through(made, "web/site.web.svc.cluster.local") == (WP if admitted else "")
    assert codes(made) == ([] if admitted else ["AttachmentDenied"])


@pytest.mark.parametrize(
    ("mesh", "admitted"),
    [
        ({}, True),
        ({"allowed_from": "Same"}, True),
        ({"allowed_from": "All"}, True),
        ({"allowed_from": "None"}, False),
        ({"allowed_from": "Selector", "selector": {"matchLabels": {"team": "web"}}}, False),
    ],
)
def test_objects_of_its_own_namespace_come_in_unless_its_listener_selects_others(mesh: Any, admitted: bool) -> None:
    assert through(world(waypoint(mesh=mesh), cart(USE))) == (WP if admitted else "")


def test_only_the_listener_for_tunnels_says_who_comes_in() -> None:
    labels = {**USE, "istio.io/use-waypoint-namespace": "shop"}
    listeners = (
        m.listener("web", 80, "HTTP", allowed_from="All"),
        m.listener("other", 15009, allowed_from="All"),
        m.listener("mesh", 15008, allowed_from="Same"),
    )
    gateway = m.gateway("shop/wp", "istio-waypoint", *listeners, addresses=[("Hostname", WP)])
    made = world(gateway, m.service("web/site", "10.96.0.20", labels=labels))
    assert through(made, "web/site.web.svc.cluster.local") == ""


@pytest.mark.parametrize("visibility", ["PUBLIC", "NAMESPACE"])
def test_what_only_its_namespace_sees_does_not_go_through_a_waypoint_of_another(visibility: str) -> None:
    labels = {**USE, "istio.io/use-waypoint-namespace": "web"}
    made = world(
        m.mesh_config_map(serviceEntryVisibility={"defaultVisibility": visibility}),
        waypoint("web/wp", mesh={"allowed_from": "All"}),
        m.service_entry("shop/db", "db.example", labels=labels, addresses=["240.0.0.1"]),
    )
    public = visibility == "PUBLIC"
    assert through(made, "shop/db.example") == ("wp.web.svc.cluster.local" if public else "")
    assert codes(made) == ([] if public else ["CrossNamespaceWaypointForbidden"])


# What it is for


@pytest.mark.parametrize(
    ("kind", "service", "pod"),
    [
        ("", True, False),
        ("service", True, False),
        ("workload", False, True),
        ("all", True, True),
        ("none", False, False),
    ],
)
@pytest.mark.parametrize("where", ["gateway", "class"])
def test_a_waypoint_is_for_services_workloads_both_or_none(kind: str, service: bool, pod: bool, where: str) -> None:
    labels = {"istio.io/waypoint-for": kind} if kind else None
    gateway = waypoint(labels=labels if where == "gateway" else None)
    declared = m.gateway_class("istio-waypoint", labels=labels if where == "class" else None)
    made = world(gateway, declared, cart(), namespace=USE)
    assert (through(made), through(made, POD)) == (WP if service else "", WP if pod else "")
    assert codes(made) == []


def test_a_gateways_label_goes_before_its_class() -> None:
    made = world(
        waypoint(labels={"istio.io/waypoint-for": "workload"}),
        m.gateway_class("istio-waypoint", labels={"istio.io/waypoint-for": "service"}),
        cart(),
        namespace=USE,
    )
    assert (through(made), through(made, POD)) == ("", WP)


def test_a_service_that_asks_itself_for_one_that_is_for_workloads_is_told_so() -> None:
    made = world(waypoint(labels={"istio.io/waypoint-for": "workload"}), cart(USE))
    assert codes(made) == ["UnsupportedTrafficType"]


def test_a_pod_goes_through_the_waypoint_its_own_label_names() -> None:
    made = world(
        waypoint(labels={"istio.io/waypoint-for": "workload"}),
        m.pod("shop/cart-2", "10.1.0.6", labels={**APP, **USE}),
        m.pod("shop/cart-3", "10.1.0.7", labels={**APP, "istio.io/use-waypoint": "none"}),
    )
    assert [through(made, f"alpha//Pod/shop/cart-{number}") for number in (1, 2, 3)] == ["", WP, ""]


# Canaries


def canary(weight: str | None, name: str = "wp2", **more: str) -> m.Manifest:
    annotations = {} if weight is None else {"istio.io/use-waypoint-canary-weight": weight}
    return cart({**USE, "istio.io/use-waypoint-canary": name, **more}, annotations=annotations)


def weights(made: World) -> list[tuple[str, int]]:
    """The weighted waypoints of cart."""
    told = made.address(CART).get("weighted_waypoints", [])
    return [(one["destination"]["hostname"]["hostname"].partition(".")[0], one.get("weight", 0)) for one in told]


@pytest.mark.parametrize(("weight", "share"), [("20", 20), ("0", 0), ("100", 100), (None, 0), ("007", 7)])
def test_a_canary_has_its_weight_of_a_hundred_and_the_waypoint_the_rest(weight: str | None, share: int) -> None:
    made = world(waypoint(), waypoint("shop/wp2"), canary(weight))
    assert weights(made) == [("wp", 100 - share), ("wp2", share)]
    assert through(made) == WP
    assert codes(made) == []


@pytest.mark.parametrize("weight", ["101", "120", "-1", "1.5", "half", "٣", "9999999999"])
def test_a_weight_that_is_no_percentage_leaves_all_traffic_on_the_waypoint(weight: str) -> None:
    made = world(waypoint(), waypoint("shop/wp2"), canary(weight))
    assert weights(made) == []
    assert through(made) == WP
    assert codes(made) == ["CanaryInvalidWeight"]


@pytest.mark.parametrize(
    ("name", "code"),
    [("wp", "CanarySameAsPrimary"), ("missing", "WaypointIsNotReady"), ("pods", "UnsupportedTrafficType")],
)
def test_a_canary_that_cannot_be_had_leaves_all_traffic_on_the_waypoint(name: str, code: str) -> None:
    made = world(waypoint(), waypoint("shop/pods", labels={"istio.io/waypoint-for": "workload"}), canary("20", name))
    assert weights(made) == []
    assert through(made) == WP
    assert codes(made) == [code]


def test_a_canary_may_be_in_another_namespace() -> None:
    more = {"istio.io/use-waypoint-canary-namespace": "web"}
    made = world(waypoint(), waypoint("web/wp2", mesh={"allowed_from": "All"}), canary("20", **more))
    assert weights(made) == [("wp", 80), ("wp2", 20)]


def test_a_canary_comes_from_where_the_waypoint_comes_from() -> None:
    annotations = {"istio.io/use-waypoint-canary-weight": "30"}
    named = {"istio.io/use-waypoint-canary": "wp2"}
    made = world(waypoint(), waypoint("shop/wp2"), cart(USE))
    made.apply("alpha", m.namespace("shop", labels={**USE, **named}, annotations=annotations))
    made.step()
    assert weights(made) == []
    made.apply("alpha", cart())
    made.step()
    assert weights(made) == [("wp", 70), ("wp2", 30)]


def test_without_a_waypoint_there_is_no_canary() -> None:
    made = world(waypoint("shop/wp2"), canary("20"))
    assert (weights(made), through(made)) == ([], "")


# Ingress gateways


@pytest.mark.parametrize(
    ("service", "namespace", "expected"),
    [
        ("true", "", True),
        ("", "true", True),
        ("false", "true", False),
        ("true", "false", True),
        ("", "", False),
        ("nonsense", "", False),
    ],
)
def test_ingress_gateways_go_through_it_if_the_service_or_else_the_namespace_says_so(
    service: str, namespace: str, expected: bool
) -> None:
    key = "istio.io/ingress-use-waypoint"
    made = world(waypoint(), cart({**USE, **({key: service} if service else {})}), namespace={key: namespace})
    assert made.address(CART).get("ingress_use_waypoint", False) is expected


def test_without_a_waypoint_ingress_gateways_are_told_of_none() -> None:
    made = world(cart({**USE, "istio.io/ingress-use-waypoint": "true"}))
    assert "ingress_use_waypoint" not in made.address(CART)


# The waypoint's own pods


@pytest.mark.parametrize(
    ("binding", "tunnel"),
    [
        ("PROXY", {"protocol": "PROXY"}),
        ("PROXY/15088", {"protocol": "PROXY", "port": 15088}),
        ("PROXY/99999", {"protocol": "PROXY"}),
        ("NONE", None),
        ("", None),
    ],
)
@pytest.mark.parametrize("where", ["gateway", "class"])
def test_a_waypoint_may_take_the_proxy_protocol_in_place_of_tunnels(binding: str, tunnel: Any, where: str) -> None:
    annotations = {"ambient.istio.io/waypoint-inbound-binding": binding}
    declared = m.gateway_class("istio-waypoint")
    if where == "class":
        declared["metadata"]["annotations"] = annotations
    made = world(
        waypoint(annotations=annotations if where == "gateway" else None),
        declared,
        m.pod("shop/wp-1", "10.1.0.9", labels={**MANAGED, "gateway.networking.k8s.io/gateway-name": "wp"}),
    )
    assert made.address("alpha//Pod/shop/wp-1").get("application_tunnel") == tunnel
    assert "application_tunnel" not in made.address(POD)


# Several clusters


def join(made: World, cluster: str, network: str, number: int, *objects: m.Manifest) -> None:
    """Another cluster with one pod of cart behind an east-west gateway."""
    made.apply(cluster, m.namespace("istio-system", network=network), m.namespace("shop"))
    made.apply(cluster, m.east_west_gateway("istio-system/edge", f"203.0.113.{number}", network=network))
    made.apply(cluster, m.pod("shop/cart-1", f"10.{number}.0.5", labels=APP, account=f"cart-{cluster}"), *objects)


def shared(number: int, labels: Any = None) -> m.Manifest:
    return cart(labels, f"10.9{number}.0.10", is_global=True)


def identities(made: World) -> list[str]:
    return [one.removeprefix("spiffe://cluster.local/ns/") for one in made.address(CART).get("subject_alt_names", [])]


ACCOUNT = "gateway.istio.io/service-account"


def test_the_waypoint_of_another_network_may_answer_for_the_service() -> None:
    made = world(shared(1))
    join(made, "beta", "net-b", 2, shared(2, USE), waypoint(annotations={ACCOUNT: "wp-acct"}))
    made.step()
    assert identities(made) == ["shop/sa/cart-beta", "shop/sa/wp-acct"]


def test_without_the_annotation_a_waypoint_runs_as_its_own_name() -> None:
    made = world(shared(1))
    join(made, "beta", "net-b", 2, shared(2, USE), waypoint())
    made.step()
    assert identities(made) == ["shop/sa/cart-beta", "shop/sa/wp"]


def test_a_canary_of_another_network_may_answer_too() -> None:
    made = world(shared(1))
    labels = {"istio.io/global": "true", "istio.io/use-waypoint-canary": "wp2", **USE}
    weight = {"istio.io/use-waypoint-canary-weight": "10"}
    join(made, "beta", "net-b", 2, cart(labels, annotations=weight), waypoint(), waypoint("shop/wp2"))
    made.step()
    assert identities(made) == ["shop/sa/cart-beta", "shop/sa/wp", "shop/sa/wp2"]


def test_waypoints_of_homes_network_answer_under_their_own_service() -> None:
    made = world(waypoint(annotations={ACCOUNT: "home-wp"}), shared(1, USE))
    join(made, "gamma", "net-a", 3, shared(3, USE), waypoint(annotations={ACCOUNT: "flat-wp"}))
    join(made, "beta", "net-b", 2, shared(2))
    made.step()
    assert identities(made) == ["shop/sa/cart-beta"]


def test_identities_are_sorted_and_the_same_bytes_in_any_order_of_arrival() -> None:
    rng = random.Random(12)
    seen = set()
    for _ in range(12):
        made = World()
        parts = [
            ("alpha", m.namespace("istio-system", network="net-a")),
            ("alpha", m.namespace("shop")),
            ("alpha", shared(1)),
        ]
        for number, cluster in ((2, "beta"), (3, "delta")):
            network = f"net-{cluster[0]}"
            parts += [
                (cluster, m.namespace("istio-system", network=network)),
                (cluster, m.namespace("shop")),
                (cluster, shared(number, USE)),
                (cluster, waypoint(annotations={ACCOUNT: f"wp-{cluster}"})),
                (cluster, m.pod("shop/cart-1", f"10.{number}.0.5", labels=APP, account=f"z-{cluster}")),
                (cluster, m.pod("shop/cart-2", f"10.{number}.0.6", labels=APP, account=f"a-{cluster}")),
            ]
        rng.shuffle(parts)
        for cluster, manifest in parts:
            made.apply(cluster, manifest)
            made.step()
        assert identities(made) == sorted(identities(made))
        assert len(identities(made)) == 6
        seen.add(made.versions()[CART])
    assert len(seen) == 1


def test_objects_of_a_cluster_name_gateways_of_their_own_cluster_judged_by_homes_classes() -> None:
    made = world(m.gateway_class("istio-waypoint", labels={"istio.io/waypoint-for": "workload"}))
    join(made, "gamma", "net-a", 3, waypoint("shop/theirs"))
    made.apply("gamma", m.gateway_class("istio-waypoint", labels={"istio.io/waypoint-for": "service"}))
    made.apply("gamma", m.pod("shop/cart-2", "10.3.0.6", labels={"istio.io/use-waypoint": "theirs"}))
    made.apply("alpha", m.pod("shop/cart-2", "10.1.0.6", labels={"istio.io/use-waypoint": "theirs"}))
    made.step()
    assert through(made, "gamma//Pod/shop/cart-2") == "theirs.shop.svc.cluster.local"
    assert through(made, "alpha//Pod/shop/cart-2") == ""


def test_homes_object_says_for_everybody_at_home_that_there_is_no_waypoint() -> None:
    made = world(shared(1))
    join(made, "beta", "net-b", 2, shared(2, {**USE, "istio.io/ingress-use-waypoint": "true"}), waypoint())
    made.step()
    assert through(made) == ""
    assert "ingress_use_waypoint" not in made.address(CART)
    assert codes(made) == []


def test_homes_waypoint_is_before_endpoints_of_clusters_that_have_none() -> None:
    made = world(waypoint(), shared(1, {**USE, "istio.io/ingress-use-waypoint": "true"}))
    join(made, "beta", "net-b", 2, shared(2))
    made.step()
    assert through(made) == WP
    assert made.address(CART)["ingress_use_waypoint"] is True
    assert identities(made) == ["shop/sa/cart-beta"]


def test_the_ingress_flag_of_another_cluster_says_nothing_of_homes_waypoint() -> None:
    made = world(waypoint(), shared(1, USE))
    join(made, "beta", "net-b", 2, shared(2, {**USE, "istio.io/ingress-use-waypoint": "true"}), waypoint())
    made.step()
    assert through(made) == WP
    assert "ingress_use_waypoint" not in made.address(CART)


def elsewhere(*objects: m.Manifest) -> World:
    """Cart exists in beta alone, which asks for a waypoint there."""
    made = world(*objects)
    join(made, "beta", "net-b", 2, shared(2, USE), waypoint())
    made.step()
    return made


def test_a_service_that_exists_elsewhere_goes_through_its_waypoint_if_home_knows_that_ones_service() -> None:
    made = elsewhere()
    made.apply("beta", m.service("shop/wp", "10.92.0.99", is_global=True, labels=MANAGED))
    made.step()
    assert through(made) == WP


def test_a_waypoint_elsewhere_that_home_does_not_know_is_left_to_the_gateway_there() -> None:
    made = elsewhere()
    made.apply("beta", m.service("shop/wp", "10.92.0.99", labels=MANAGED))
    made.step()
    assert through(made) == ""
    assert identities(made) == ["shop/sa/cart-beta", "shop/sa/wp"]


@pytest.mark.parametrize("known", [True, False])
def test_a_waypoint_elsewhere_by_address_is_known_by_its_service(known: bool) -> None:
    made = elsewhere()
    made.apply("beta", waypoint("shop/wp", "10.92.0.99"))
    made.apply("beta", m.service("shop/wp", "10.92.0.99" if known else "10.92.0.98", is_global=True, labels=MANAGED))
    made.step()
    assert through(made) == ("10.92.0.99" if known else "")


def test_a_canary_elsewhere_that_home_does_not_know_is_left_out() -> None:
    made = world()
    labels = {"istio.io/global": "true", "istio.io/use-waypoint-canary": "wp2", **USE}
    weight = {"istio.io/use-waypoint-canary-weight": "10"}
    join(made, "beta", "net-b", 2, cart(labels, annotations=weight), waypoint(), waypoint("shop/wp2"))
    made.apply("beta", m.service("shop/wp", "10.92.0.99", is_global=True, labels=MANAGED))
    made.step()
    assert (through(made), weights(made)) == (WP, [])
    made.apply("beta", m.service("shop/wp2", "10.92.0.98", is_global=True, labels=MANAGED))
    made.step()
    assert weights(made) == [("wp", 90), ("wp2", 10)]


@pytest.mark.parametrize("asks", ["beta", "gamma"])
def test_without_a_home_object_one_of_homes_network_says_it(asks: str) -> None:
    made = world()
    join(made, "beta", "net-b", 2, shared(2, USE if asks == "beta" else None), waypoint())
    join(made, "gamma", "net-a", 3, shared(3, USE if asks == "gamma" else None), waypoint())
    made.step()
    assert through(made) == (WP if asks == "gamma" else "")


@pytest.mark.parametrize("home", [True, False])
def test_a_waypoint_of_homes_network_that_is_passed_by_is_a_finding(home: bool) -> None:
    made = world(shared(1)) if home else world()
    join(made, "delta", "net-a", 2, shared(2))
    join(made, "gamma", "net-a", 3, shared(3, USE), waypoint())
    made.step()
    assert through(made) == ""
    [finding] = made.findings()
    assert finding.code == "WaypointsDiffer"
    assert finding.detail == "clients at home go through none; gamma asks for shop/wp"
    made.apply("gamma", shared(3))
    made.step()
    assert made.findings() == []


def test_clusters_of_homes_network_that_ask_for_one_waypoint_agree() -> None:
    made = world(waypoint(), shared(1, USE))
    join(made, "gamma", "net-a", 3, shared(3, USE), waypoint())
    made.step()
    assert codes(made) == []
