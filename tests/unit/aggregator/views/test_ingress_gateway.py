"""What ingress gateways are told, as messages, and what one more host costs."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from aggregator.graph import Pass
from aggregator.pipeline import RESOURCES
from aggregator.views.ingress_gateway import view_of
from aggregator.views.ingress_routes import scope_name
from aggregator.views.view import View
from tests.kit import certificates as c
from tests.kit import manifests as m
from tests.kit.world import World
from xds.messages.assignment import ASSIGNMENT_TYPE
from xds.messages.cluster import CLUSTER_TYPE
from xds.messages.hbone import CONNECT_ORIGINATE, INNER_CONNECT_ORIGINATE, OUTER_CONNECT_ORIGINATE
from xds.messages.listener import LISTENER_TYPE
from xds.messages.scope import SCOPED_ROUTE_TYPE
from xds.messages.secret import SECRET_TYPE
from xds.messages.workload import ADDRESS_TYPE

Json = dict[str, Any]

TYPES = (LISTENER_TYPE, CLUSTER_TYPE, ASSIGNMENT_TYPE, SCOPED_ROUTE_TYPE, SECRET_TYPE)
TUNNELS = {CONNECT_ORIGINATE, INNER_CONNECT_ORIGINATE, OUTER_CONNECT_ORIGINATE}
ORDERS = "ing|shop|orders|80"
HOST = "orders.shop.svc.cluster.local"


def view(type_url: str, **claims: str) -> View:
    found = view_of(type_url, lambda name: claims.get(name, ""))
    assert found is not None
    return found


def world_of(*manifests: m.Manifest, ask: Iterable[View] = (), **settings: Any) -> World:
    """Home quay on net-quay, with these objects, and one gateway that asks for everything."""
    world = World("quay", **settings)
    world.now = c.NOW.timestamp()
    world.ask(*(ask or map(view, TYPES)))
    world.apply("quay", m.namespace("istio-system", network="net-quay"), m.namespace("shop"), *manifests)
    world.step()
    return world


def told(world: World, type_url: str, name: str) -> Json:
    return world.told(view(type_url))[name]


def changed(result: Pass) -> set[tuple[str, str]]:
    """(type, name) of what a pass changed for ingress gateways."""
    return {
        (where.split("|")[1].rpartition(".")[2], name)
        for where, name in result.published.get(RESOURCES, {})
        if where.startswith("ingress|")
    }


def orders(**fields: Any) -> m.Manifest:
    return m.service("shop/orders", "10.10.0.11", **{"selector": {"app": "orders"}, "is_global": True, **fields})


def pod(number: int, ip: str = "", **fields: Any) -> m.Manifest:
    own = {"labels": {"app": "orders"}, "account": "orders", **fields}
    return m.pod(f"shop/orders-{number}", ip or f"10.1.0.{number}", **own)


def ingress(host: str = "a.example", **fields: Any) -> m.Manifest:
    return m.ingress(f"shop/{host.partition('.')[0]}", host, "orders", **fields)


# Views.


def test_all_gateways_share_their_views_but_for_where_they_listen() -> None:
    for type_url in TYPES[1:]:
        assert view(type_url, ISTHMUS_BIND="127.0.0.1").features == ()
    listeners = view(LISTENER_TYPE, ISTHMUS_BIND="::1", ISTHMUS_HTTP_PORT="80", ISTHMUS_HTTPS_PORT="443")
    assert listeners.features == (("bind", "::1"), ("http-port", "80"), ("https-port", "443"))


@pytest.mark.parametrize("wrong", ["", "0", "65536", "-1", "1e3", "\u0663", "9" * 5000, "x"])
def test_claims_that_mean_nothing_are_not_heard(wrong: str) -> None:
    listeners = view(LISTENER_TYPE, ISTHMUS_BIND=wrong, ISTHMUS_HTTP_PORT=wrong, ISTHMUS_HTTPS_PORT=wrong)
    assert listeners.features == (("bind", "0.0.0.0"), ("http-port", "8080"), ("https-port", "8443"))


@pytest.mark.parametrize("type_url", [ADDRESS_TYPE, "", "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"])
def test_other_types_are_not_told(type_url: str) -> None:
    assert view_of(type_url, lambda _: "") is None


# Listeners and standing clusters.


def test_a_gateway_listens_where_it_says_and_originates_tunnels() -> None:
    claims = {"ISTHMUS_BIND": "127.0.0.5", "ISTHMUS_HTTP_PORT": "1080", "ISTHMUS_HTTPS_PORT": "1443"}
    listeners = view(LISTENER_TYPE, **claims)
    found = world_of(ask=[listeners]).told(listeners)
    places = {name: one.get("address", {}).get("socket_address") for name, one in found.items()}
    assert places == {
        "http": {"address": "127.0.0.5", "port_value": 1080},
        "https": {"address": "127.0.0.5", "port_value": 1443},
        "connect_originate": None,
        "inner_connect_originate": None,
        "outer_connect_originate": None,
    }


def test_a_listener_with_tls_has_one_chain_that_does_not_wait_for_ever() -> None:
    (chain,) = told(world_of(), LISTENER_TYPE, "https")["filter_chains"]
    assert (chain["name"], chain["transport_socket_connect_timeout"]) == ("default", "10s")
    assert chain["transport_socket"]["name"] == "envoy.transport_sockets.tls"


def test_nobody_is_shown_the_gateways_own_certificate_by_asking_for_its_name() -> None:
    matcher = told(world_of(), LISTENER_TYPE, "https")["filter_chain_matcher"]
    chains = {
        name: match["action"]["typed_config"]["value"]
        for name, match in matcher["matcher_tree"]["exact_match_map"]["map"].items()
    }
    assert chains == {"default": "refused", "rootca": "refused"}
    assert matcher["on_no_match"]["action"]["typed_config"]["value"] == "default"


def test_listeners_know_their_network_and_clusters_their_trust_domain() -> None:
    world = world_of(trust_domain="mesh.example")
    assert "net-quay" in str(told(world, LISTENER_TYPE, "inner_connect_originate"))
    assert "spiffe://mesh.example/" in str(told(world, CLUSTER_TYPE, "connect_originate"))
    world.apply("quay", m.mesh_config_map(trust_domain="other.example"))
    result = world.step()
    assert changed(result) == {("Cluster", name) for name in TUNNELS}


def test_standing_clusters_are_those_of_tunnels() -> None:
    assert set(world_of().told(view(CLUSTER_TYPE))) == TUNNELS


# Scopes.


def routes(world: World, host: str = "a.example") -> list[Json]:
    scope = told(world, SCOPED_ROUTE_TYPE, f"default|{host}")
    found: list[Json] = scope["route_configuration"]["virtual_hosts"][0]["routes"]
    return found


def test_a_host_is_a_scope_of_its_class_and_name() -> None:
    scope = told(world_of(ingress()), SCOPED_ROUTE_TYPE, "default|a.example")
    assert scope["key"]["fragments"] == [{"string_key": "default"}, {"string_key": "a.example"}]
    assert scope["route_configuration"]["request_headers_to_remove"] == ["x-isthmus-class", "x-isthmus-host"]


def test_a_scope_has_a_name_that_costs_little_and_is_nobody_elses() -> None:
    hosts = ["a.example", "a" * 14, "a" * 15, *(f"{letter * 30}.example" for letter in "abc")]
    names = [scope_name(host) for host in hosts]
    assert names[:2] == ["default|a.example", f"default|{'a' * 14}"]
    assert all(len(name) == 22 and name.startswith("#") for name in names[2:])
    assert len(set(names)) == len(names)
    assert scope_name("a" * 15) == "#2uIfeGuRK59XOzeXGgeP7"


def test_the_routes_of_a_host_are_called_by_its_whole_name() -> None:
    host = f"{'a' * 30}.example"
    world = world_of(ingress(host))
    assert told(world, SCOPED_ROUTE_TYPE, scope_name(host))["route_configuration"]["name"] == f"default|{host}"


def test_rules_become_routes_in_the_order_of_matching_and_what_is_left_is_not_found() -> None:
    rules = [m.ingress_rule("a.example", ("/api", "orders", 80), ("/api/v2/", "orders", "grpc"))]
    rules.append(m.ingress_rule("a.example", ("/login", "orders", 80), path_type="Exact"))
    assert [(one["name"], one["match"]) for one in routes(world_of(m.ingress("shop/a", rules=rules)))] == [
        ("Exact /login", {"path": "/login"}),
        ("Prefix /api/v2", {"path_separated_prefix": "/api/v2"}),
        ("Prefix /api", {"path_separated_prefix": "/api"}),
        ("not-found", {"prefix": "/"}),
    ]


def test_a_rule_for_all_paths_leaves_nothing_to_be_not_found() -> None:
    assert [(one["name"], one["match"], one["route"]) for one in routes(world_of(ingress()))] == [
        ("Prefix /", {"prefix": "/"}, {"cluster": ORDERS, "timeout": "0s"})
    ]


def test_a_host_with_tls_redirects_first_whether_its_certificate_is_there_or_not() -> None:
    assert [one["name"] for one in routes(world_of(ingress(secret="tls")))] == ["to-https", "Prefix /"]


def test_a_backend_that_is_no_service_is_unavailable() -> None:
    rule = {"host": "a.example", "http": {"paths": [{"path": "/", "backend": {"resource": {"name": "x"}}}]}}
    assert routes(world_of(m.ingress("shop/a", rules=[rule])))[0]["direct_response"] == {"status": 503}


# Certificates.


def test_a_certificate_has_the_name_of_its_host() -> None:
    chain, key = c.host_pair("a.example")
    world = world_of(ingress(secret="tls"), m.tls_secret("shop/tls", chain, key))
    secret = told(world, SECRET_TYPE, "a.example")["tls_certificate"]
    kept = {name: b64decode(secret[name]["inline_bytes"].removeprefix("base64:")) for name in secret}
    assert kept == {"certificate_chain": chain, "private_key": key}


def test_a_secret_that_no_host_has_is_not_told() -> None:
    world = world_of(ingress(), m.tls_secret("shop/tls", *c.host_pair("a.example")))
    assert world.told(view(SECRET_TYPE)) == {}


def test_a_new_certificate_changes_the_secrets_of_its_hosts_and_nothing_else() -> None:
    names = ("a.example", "b.example")
    world = world_of(*(ingress(name, secret="tls") for name in names), m.tls_secret("shop/tls", *c.host_pair(*names)))
    world.apply("quay", m.tls_secret("shop/tls", *c.host_pair(*names)))
    assert changed(world.step()) == {("Secret", name) for name in names}


def test_a_bad_renewal_changes_nothing() -> None:
    chain, key = c.host_pair("a.example")
    world = world_of(ingress(secret="tls"), m.tls_secret("shop/tls", chain, key))
    world.apply("quay", m.tls_secret("shop/tls", chain, c.host_pair("a.example")[1]))
    assert changed(world.step()) == set()


# Clusters.


def test_a_backend_is_a_cluster_whose_endpoints_are_discovered() -> None:
    cluster = told(world_of(orders(), ingress()), CLUSTER_TYPE, ORDERS)
    assert cluster["type"] == "EDS"
    assert [one["name"] for one in cluster["transport_socket"]["typed_config"]["passthrough_metadata"]] == [
        "envoy.filters.listener.original_dst",
        "istio",
    ]
    (options,) = cluster["typed_extension_protocol_options"].values()
    assert options["explicit_http_config"] == {"http_protocol_options": {}}


def test_no_connection_to_a_backend_is_used_for_long_since_a_gateway_elsewhere_has_chosen_its_pod_for_good() -> None:
    cluster = told(world_of(orders(), ingress()), CLUSTER_TYPE, ORDERS)
    (options,) = cluster["typed_extension_protocol_options"].values()
    assert options["common_http_protocol_options"] == {"max_connection_duration": "10s"}


@pytest.mark.parametrize("name", ["grpc", "http2"])
def test_a_port_that_speaks_http2_is_spoken_to_so(name: str) -> None:
    cluster = told(world_of(orders(ports={name: (80, 8080)}), ingress()), CLUSTER_TYPE, ORDERS)
    (options,) = cluster["typed_extension_protocol_options"].values()
    assert options["explicit_http_config"] == {"http2_protocol_options": {}}


def test_a_backend_that_does_not_exist_is_a_cluster_without_endpoints() -> None:
    world = world_of(ingress())
    assert told(world, CLUSTER_TYPE, ORDERS)["type"] == "EDS"
    assert told(world, ASSIGNMENT_TYPE, ORDERS) == {
        "@type": ASSIGNMENT_TYPE,
        "cluster_name": ORDERS,
    }


def test_a_backend_that_appears_changes_its_endpoints_alone() -> None:
    world = world_of(ingress(), pod(1))
    world.apply("quay", orders())
    assert changed(world.step()) == {("ClusterLoadAssignment", ORDERS)}


# Endpoints.


def groups(world: World, name: str = ORDERS) -> list[tuple[int, list[Json]]]:
    """(priority, endpoints) of each group."""
    found = told(world, ASSIGNMENT_TYPE, name).get("endpoints", [])
    assert all(group["load_balancing_weight"] == sum(map(weight, group["lb_endpoints"])) for group in found)
    return [(group.get("priority", 0), group["lb_endpoints"]) for group in found]


def weight(endpoint: Json) -> int:
    found: int = endpoint["load_balancing_weight"]
    return found


def places(endpoints: list[Json]) -> list[str]:
    """Where each endpoint is: a socket address, or the listener and id of an internal one."""
    found = []
    for one in endpoints:
        address = one["endpoint"]["address"]
        if "socket_address" in address:
            found.append("{address}:{port_value}".format(**address["socket_address"]))
        else:
            found.append("{server_listener_name}/{endpoint_id}".format(**address["envoy_internal_address"]))
    return found


def metadata(endpoint: Json) -> Mapping[str, Any]:
    found: Mapping[str, Any] = endpoint["metadata"]["filter_metadata"]
    return found


def test_a_pod_of_the_mesh_is_reached_by_a_tunnel_that_only_it_may_answer() -> None:
    ((priority, (endpoint,)),) = groups(world_of(orders(), ingress(), pod(1)))
    assert (priority, places([endpoint])) == (0, ["connect_originate/10.1.0.1:8080"])
    assert metadata(endpoint) == {
        "envoy.filters.listener.original_dst": {"local": "10.1.0.1:8080", "waypoint": "10.1.0.1:15008"},
        "istio": {"identities": "spiffe://cluster.local/ns/shop/sa/orders"},
    }


def test_a_pod_outside_of_the_mesh_is_reached_in_plain() -> None:
    ((_, endpoints),) = groups(world_of(orders(), ingress(), pod(1, ambient=False)))
    assert places(endpoints) == ["10.1.0.1:8080"]
    assert "metadata" not in endpoints[0]


def test_an_ipv6_address_is_in_brackets_where_there_is_a_port() -> None:
    world = world_of(orders(), ingress(), pod(1, "fd00::1"))
    ((_, (endpoint,)),) = groups(world)
    assert metadata(endpoint)["envoy.filters.listener.original_dst"] == {
        "local": "[fd00::1]:8080",
        "waypoint": "[fd00::1]:15008",
    }


def test_endpoints_of_slices_are_endpoints() -> None:
    slice_ = m.slice_("shop/orders-x", m.endpoint("192.0.2.7"), service="orders", ports={"http": 9090})
    ((_, endpoints),) = groups(world_of(orders(selector=None), ingress(), slice_))
    assert places(endpoints) == ["192.0.2.7:9090"]


def test_endpoints_serve_the_backends_port_or_are_left_out() -> None:
    service = orders(ports={"http": (80, 8080), "admin": (81, "admin")})
    world = world_of(service, ingress(port="admin"), pod(1, ports={"admin": 9000}), pod(2))
    ((_, endpoints),) = groups(world, "ing|shop|orders|admin")
    assert places(endpoints) == ["connect_originate/10.1.0.1:9000"]


def test_pods_that_are_not_ready_are_left_out_unless_the_service_wants_them() -> None:
    pods = (pod(1), pod(2, ready=False))
    ((_, endpoints),) = groups(world_of(orders(), ingress(), *pods))
    assert places(endpoints) == ["connect_originate/10.1.0.1:8080"]
    ((_, endpoints),) = groups(world_of(orders(spec={"publishNotReadyAddresses": True}), ingress(), *pods))
    assert len(endpoints) == 2


def remote(world: World, name: str, number: int, *ips: str, gateways: int = 1) -> None:
    """A cluster on a network of its own with orders pods, behind gateways."""
    addresses = [f"198.51.100.{number}{one}" for one in range(gateways)]
    world.apply(
        name,
        m.namespace("istio-system", network=f"net-{name}"),
        m.namespace("shop"),
        orders(),
        *(pod(one, ip, account=name) for one, ip in enumerate(ips)),
        *([m.east_west_gateway("istio-system/edge", *addresses, network=f"net-{name}")] if gateways else []),
    )


WAYPOINT = [
    m.gateway("shop/wp", addresses=[("Hostname", "wp.shop.svc.cluster.local")]),
    m.service("shop/wp", "10.10.0.9", ports={"mesh": 15008}, selector={"app": "wp"}),
    *(m.pod(f"shop/wp-{one}", f"10.1.9.{one}", labels={"app": "wp"}, account="wp", ambient=False) for one in (1, 2)),
]
THROUGH = {"istio.io/use-waypoint": "wp", "istio.io/ingress-use-waypoint": "true"}


def test_requests_go_through_the_waypoint_of_a_service_if_they_are_to() -> None:
    ((_, endpoints),) = groups(world_of(orders(labels=THROUGH), ingress(), pod(1), *WAYPOINT))
    assert places(endpoints) == ["connect_originate/10.1.9.1:15008", "connect_originate/10.1.9.2:15008"]
    assert metadata(endpoints[0]) == {
        "envoy.filters.listener.original_dst": {"local": "10.10.0.11:80", "waypoint": "10.1.9.1:15008"},
        "istio": {"identities": "spiffe://cluster.local/ns/shop/sa/wp"},
    }


@pytest.mark.parametrize(
    ("service", "gone"),
    [
        (orders(labels={"istio.io/use-waypoint": "wp"}), []),  # nothing says so
        (orders(labels=THROUGH), WAYPOINT[:1]),  # there is no such waypoint
        (m.service("shop/orders", None, selector={"app": "orders"}, labels=THROUGH), []),  # no address to ask for
    ],
)
def test_else_requests_go_straight_to_pods(service: m.Manifest, gone: list[m.Manifest]) -> None:
    world = world_of(service, ingress(), pod(1), *WAYPOINT)
    world.delete("quay", *gone)
    world.step()
    ((_, endpoints),) = groups(world)
    assert places(endpoints) == ["connect_originate/10.1.0.1:8080"]


def test_a_waypoint_without_ready_pods_is_not_passed_over() -> None:
    world = world_of(orders(labels=THROUGH), ingress(), pod(1), *WAYPOINT[:2])
    remote(world, "mesa", 2, "10.2.0.5")
    world.step()
    assert groups(world) == []


def test_a_service_whose_waypoint_has_no_service_is_told_so() -> None:
    world = world_of(orders(labels=THROUGH), ingress(), pod(1), WAYPOINT[0])
    assert groups(world) == []
    (finding,) = world.findings()
    assert (finding.object, finding.code) == (("quay", "Service", "shop", "orders"), "WaypointHasNoService")
    world.apply("quay", *WAYPOINT)
    world.step()
    assert world.findings() == []
    assert len(groups(world)) == 1


def test_a_waypoint_at_home_is_left_to_find_the_ways_to_other_networks() -> None:
    world = world_of(orders(labels=THROUGH), ingress(), pod(1), *WAYPOINT)
    remote(world, "mesa", 2, "10.2.0.5")
    world.step()
    assert [(priority, len(endpoints)) for priority, endpoints in groups(world)] == [(0, 2)]


def test_a_service_elsewhere_alone_is_left_to_the_gateway_there_which_knows_its_waypoint() -> None:
    world = world_of(ingress(), *WAYPOINT)
    remote(world, "mesa", 2, "10.2.0.5")
    world.apply("mesa", WAYPOINT[0], orders(labels=THROUGH))
    world.step()
    ((_, (way,)),) = groups(world)
    assert places([way]) == ["inner_connect_originate/198.51.100.20:15008"]
    assert metadata(way)["istio"]["double_hbone"]["inner"] == (
        "spiffe://cluster.local/ns/shop/sa/mesa,spiffe://cluster.local/ns/shop/sa/wp"
    )


def test_ways_to_other_networks_stand_behind_endpoints_at_home() -> None:
    world = world_of(orders(), ingress(), pod(1))
    remote(world, "mesa", 2, "10.2.0.5", "10.2.0.6")
    world.step()
    (_, local), (priority, (way,)) = groups(world)
    assert len(local) == 1
    assert (priority, places([way]), weight(way)) == (1, ["inner_connect_originate/198.51.100.20:15008"], 2)
    assert metadata(way) == {
        "envoy.filters.listener.original_dst": {"local": "198.51.100.20:15008"},
        "istio": {
            "double_hbone": {
                "hbone_target_address": f"{HOST}:80",
                "inner": "spiffe://cluster.local/ns/shop/sa/mesa",
                "outer": "spiffe://cluster.local/ns/istio-system/sa/edge",
            }
        },
    }


def test_with_no_endpoint_left_at_home_only_the_others_are_told() -> None:
    world = world_of(orders(), ingress(), pod(1))
    remote(world, "mesa", 2, "10.2.0.5")
    world.step()
    world.delete("quay", pod(1))
    assert changed(world.step()) == {("ClusterLoadAssignment", ORDERS)}
    assert [(priority, places(some)) for priority, some in groups(world)] == [
        (1, ["inner_connect_originate/198.51.100.20:15008"])
    ]


def test_capacity_is_the_weight_of_each_gateway_in_a_fixed_order() -> None:
    world = world_of(orders(), ingress())
    remote(world, "mesa", 2, "10.2.0.5", "10.2.0.6", "10.2.0.7", gateways=2)
    remote(world, "fjord", 3, "10.3.0.5")
    world.step()
    ((_, ways),) = groups(world)
    assert [(place, weight(one)) for place, one in zip(places(ways), ways, strict=True)] == [
        ("inner_connect_originate/198.51.100.30:15008", 1),
        ("inner_connect_originate/198.51.100.20:15008", 2),
        ("inner_connect_originate/198.51.100.21:15008", 1),
    ]


def test_a_gateway_on_a_port_of_its_own_is_dialled_there() -> None:
    world = world_of(orders(), ingress())
    remote(world, "mesa", 2, "10.2.0.5", gateways=0)
    own = m.listener(port=16008, tls_mode="Terminate")
    world.apply(
        "mesa", m.gateway("istio-system/edge", "istio-east-west", own, addresses=["198.51.100.20"], network="net-mesa")
    )
    world.step()
    ((_, ways),) = groups(world)
    assert places(ways) == ["inner_connect_originate/198.51.100.20:16008"]


def test_a_gateway_known_by_name_is_dialled_at_every_address_the_name_has() -> None:
    world = world_of(orders(), ingress())
    remote(world, "mesa", 2, "10.2.0.5", "10.2.0.6", "10.2.0.7", gateways=0)
    world.apply("mesa", m.east_west_gateway("istio-system/edge", ("Hostname", "lb.example"), network="net-mesa"))
    world.step()
    assert groups(world) == []
    world.resolve("lb.example", "198.51.100.20", "198.51.100.21")
    world.step()
    ((_, ways),) = groups(world)
    assert [(place, weight(one)) for place, one in zip(places(ways), ways, strict=True)] == [
        ("inner_connect_originate/198.51.100.20:15008", 2),
        ("inner_connect_originate/198.51.100.21:15008", 1),
    ]


def test_pods_of_a_flat_cluster_are_endpoints_at_home() -> None:
    world = world_of(orders(), ingress())
    world.apply("atoll", m.namespace("istio-system", network="net-quay"), m.namespace("shop"), orders(), pod(9))
    world.step()
    assert [(priority, places(some)) for priority, some in groups(world)] == [(0, ["connect_originate/10.1.0.9:8080"])]


def test_a_service_that_is_not_shared_stays_at_home() -> None:
    world = world_of(orders(is_global=False), ingress(), pod(1))
    remote(world, "mesa", 2, "10.2.0.5")
    world.step()
    assert [priority for priority, _ in groups(world)] == [0]


def test_a_service_that_only_others_have_is_reached_there() -> None:
    world = world_of(ingress())
    remote(world, "mesa", 2, "10.2.0.5")
    world.step()
    assert [priority for priority, _ in groups(world)] == [1]


def test_the_network_of_home_comes_late_and_endpoints_move_with_it() -> None:
    world = world_of(orders(), ingress(), pod(1))
    remote(world, "mesa", 2, "10.2.0.5")
    world.apply("quay", m.namespace("istio-system", network="net-mesa"))
    world.step()
    assert [(priority, len(some)) for priority, some in groups(world)] == [(0, 2)]


# Costs.


def busy(hosts: int) -> World:
    """A gateway that serves so many hosts, each with a service, a pod and a certificate of its own."""
    world = World("quay")
    world.now = c.NOW.timestamp()
    world.ask(*map(view, TYPES))
    chain, key = c.host_pair("*.example")
    world.apply("quay", m.namespace("istio-system", network="net-quay"), m.namespace("shop"))
    for number in range(hosts):
        world.apply("quay", *host(f"h{number}", number, chain, key))
    world.step()
    return world


def host(name: str, number: int, chain: bytes, key: bytes) -> list[m.Manifest]:
    return [
        m.service(f"shop/{name}", selector={"app": name}),
        m.pod(f"shop/{name}-1", f"10.{number >> 8}.{number & 255}.1", labels={"app": name}),
        m.tls_secret(f"shop/{name}", chain, key),
        m.ingress(f"shop/{name}", f"{name}.example", name, secret=name),
    ]


def test_a_new_host_costs_its_own_scope_cluster_endpoints_and_certificate_however_many_there_are() -> None:
    evaluated = []
    for hosts in (20, 500):
        world = busy(hosts)
        world.apply("quay", *host("new", 70_000, *c.host_pair("new.example")))
        result = world.step()
        assert changed(result) == {
            ("ScopedRouteConfiguration", "default|new.example"),
            ("Cluster", "ing|shop|new|80"),
            ("ClusterLoadAssignment", "ing|shop|new|80"),
            ("Secret", "new.example"),
        }
        evaluated.append(result.evaluated)
    assert evaluated[0] == evaluated[1] < 60


def test_a_host_that_goes_takes_its_own_with_it() -> None:
    world = busy(3)
    world.delete("quay", m.ingress("shop/h1", "h1.example", "h1"))
    result = world.step()
    assert len(changed(result)) == 4
    assert all(value is None for key, value in result.published[RESOURCES].items() if key[0].startswith("ingress|"))


def test_one_more_path_changes_its_hosts_scope() -> None:
    world = busy(3)
    world.apply("quay", m.ingress("shop/more", "h1.example", "h2", path="/more"))
    assert changed(world.step()) == {("ScopedRouteConfiguration", "default|h1.example")}


def test_one_endpoint_encodes_one_endpoint_however_many_there_are() -> None:
    def cost(pods: int) -> int:
        world = world_of(
            orders(), ingress(), *(pod(number, f"10.1.{number >> 8}.{number & 255}") for number in range(pods))
        )
        world.apply("quay", pod(0, "10.1.0.0", ready=False))
        result = world.step()
        assert changed(result) == {("ClusterLoadAssignment", ORDERS)}
        return result.evaluated

    assert cost(10) == cost(300)


def test_objects_no_gateway_needs_change_nothing() -> None:
    world = busy(3)
    world.apply("quay", m.service("shop/other", selector={"app": "other"}), m.pod("shop/other", "10.9.9.9"))
    assert changed(world.step()) == set()


def test_without_a_gateway_nothing_is_told() -> None:
    world = World("quay")
    world.apply("quay", *host("a", 1, *c.host_pair("a.example")))
    world.step()
    assert [key for key in world.resources if key[0].startswith("ingress|")] == []


def test_requests_are_logged_where_the_mesh_configuration_says_and_nowhere_unless_it_does() -> None:
    def logs(*manifests: m.Manifest) -> list[str]:
        listener = told(world_of(*manifests), LISTENER_TYPE, "https")
        config = listener["filter_chains"][0]["filters"][0]["typed_config"]
        return [log["name"] for log in config.get("access_log", [])]

    assert logs() == []
    mesh = {**m.mesh_config_map(), "data": {"mesh": "accessLogFile: /dev/stdout"}}
    assert logs(mesh) == ["envoy.access_loggers.stdout"]
