"""Namespace, Node, Pod and Service: which fields of which objects become which facts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit import manifests
from tests.unit.watchers.recorded import recorded
from watchers.facts import Fact, Namespace, Node, Pod, Service, kinds, label
from watchers.facts.conditions import Condition
from watchers.facts.core import ContainerPort, ServicePort
from watchers.facts.invalid import InvalidObject


def fact(document: Any) -> Any:
    keyed = kinds.decode(document, "west", "istio-system")
    assert keyed is not None
    return keyed[1]


def refused(document: Any) -> InvalidObject:
    with pytest.raises(InvalidObject) as caught:
        kinds.decode(document, "west", "istio-system")
    return caught.value


# A whole object


def test_a_recorded_pod() -> None:
    assert kinds.decode(recorded("pod"), "west", "istio-system") == (
        ("west", "Pod", "shop", "cart-7d9f4c6b5-x2x1z"),
        Pod(
            labels=(("app", "cart"), ("pod-template-hash", "7d9f4c6b5"), ("version", "v3")),
            annotations=(("ambient.istio.io/redirection", "enabled"), ("istio.io/use-waypoint-canary-weight", "20")),
            created="2026-02-01T08:00:03Z",
            service_account="cart",
            node="node-1",
            host_network=True,
            phase="Running",
            ready=True,
            deleting=False,
            addresses=("10.10.1.7", "fd00:10::7"),
            ports=(
                ContainerPort("http", 8080, "TCP"),
                ContainerPort("metrics", 9090, "TCP"),
                ContainerPort("syslog", 5140, "UDP"),
            ),
            generate_name="cart-7d9f4c6b5-",
            owner_kind="ReplicaSet",
            owner_name="cart-7d9f4c6b5",
        ),
    )


def test_a_recorded_service() -> None:
    assert kinds.decode(recorded("service"), "west", "istio-system") == (
        ("west", "Service", "shop", "cart"),
        Service(
            labels=(("app", "cart"), ("istio.io/global", "true")),
            annotations=(
                ("istio.io/use-waypoint-canary-weight", "5"),
                ("networking.istio.io/traffic-distribution", "PreferClose"),
            ),
            created="2026-02-01T07:59:58Z",
            type="LoadBalancer",
            cluster_ips=("10.96.1.10", "fd00:96::10"),
            headless=False,
            selector=(("app", "cart"), ("version", "v3")),
            ports=(
                ServicePort("http", 80, 8080, "TCP", "kubernetes.io/h2c"),
                ServicePort("admin", 81, "metrics", "TCP", ""),
                ServicePort("dns", 53, 53, "UDP", ""),
            ),
            ip_families=("IPv4", "IPv6"),
            internal_traffic_policy="Local",
            traffic_distribution="PreferSameZone",
            publish_not_ready=True,
            external_name="",
            balancer=("192.0.2.7",),
            affinity="ClientIP",
            affinity_seconds=10800,
            # Conditions of no mesh are somebody else's business.
            conditions=(
                Condition(
                    "istio.io/WaypointBound",
                    "True",
                    "WaypointAccepted",
                    "Attached to waypoint shop/waypoint.",
                    0,
                    "2026-02-01T08:00:09Z",
                ),
            ),
            written=("conditions", "istio.io/WaypointBound"),
        ),
    )


def test_a_recorded_node() -> None:
    assert kinds.decode(recorded("node"), "west", "istio-system") == (
        ("west", "Node", "", "node-1"),
        Node("eu", "eu-1", "rack-7"),
    )


def test_a_recorded_namespace() -> None:
    assert kinds.decode(recorded("namespace"), "west", "istio-system") == (
        ("west", "Namespace", "", "shop"),
        Namespace(
            labels=(("istio.io/dataplane-mode", "ambient"), ("kubernetes.io/metadata.name", "shop")),
            annotations=(
                ("istio.io/use-waypoint-canary-weight", "30"),
                ("networking.istio.io/traffic-distribution", "PreferSameNode"),
            ),
        ),
    )


# Pods


def test_without_pod_ips_the_pod_ip_is_the_address() -> None:
    pod = recorded("pod")
    del pod["status"]["podIPs"]
    assert fact(pod).addresses == ("10.10.1.7",)


def test_a_pod_without_status_has_no_address_and_is_not_ready() -> None:
    pod = recorded("pod")
    del pod["status"]
    assert (fact(pod).addresses, fact(pod).ready, fact(pod).phase) == ((), False, "")


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_a_pod_is_ready_only_if_its_condition_says_true(status: str) -> None:
    pod = manifests.pod("shop/a", "10.0.0.1", status={"conditions": [{"type": "Ready", "status": status}]})
    assert not fact(pod).ready


def test_a_pod_with_a_deletion_timestamp_is_being_deleted() -> None:
    assert fact(manifests.pod("shop/a", deleting=True)).deleting


def test_an_owner_that_is_not_the_controller_does_not_count() -> None:
    pod = recorded("pod")
    del pod["metadata"]["ownerReferences"][1]
    assert (fact(pod).owner_kind, fact(pod).owner_name) == ("", "")


def test_an_object_without_a_namespace_is_in_default() -> None:
    pod = manifests.pod("shop/a")
    del pod["metadata"]["namespace"]
    keyed = kinds.decode(pod, "west", "istio-system")
    assert keyed is not None
    assert keyed[0] == ("west", "Pod", "default", "a")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("metadata", "managedFields"), []),
        (("metadata", "resourceVersion"), "99999"),
        (("metadata", "generation"), 7),
        (("metadata", "annotations", "example.com/restarted"), "again"),
        (("status", "conditions", 0, "lastProbeTime"), "2026-02-01T09:00:00Z"),
        (("status", "containerStatuses"), []),
        (("spec", "containers", 0, "image"), "registry.example/cart:4"),
    ],
)
def test_what_is_not_used_never_changes_a_pod(path: tuple[str | int, ...], value: object) -> None:
    assert fact(_changed(recorded("pod"), path, value)) == fact(recorded("pod"))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("metadata", "resourceVersion"), "99999"),
        (("metadata", "labels", "example.com/kernel"), "6.1"),
        (("status", "conditions", 0, "lastHeartbeatTime"), "2026-02-01T09:00:00Z"),
        (("status", "images"), []),
    ],
)
def test_a_heartbeat_never_changes_a_node(path: tuple[str | int, ...], value: object) -> None:
    assert fact(_changed(recorded("node"), path, value)) == fact(recorded("node"))


def test_labels_are_sorted_whatever_order_they_come_in() -> None:
    one = manifests.pod("shop/a", labels={"b": "2", "a": "1"})
    other = manifests.pod("shop/a", labels={"a": "1", "b": "2"})
    assert fact(one) == fact(other)
    assert fact(one).labels == (("a", "1"), ("b", "2"))


def test_pods_of_equal_labels_share_them() -> None:
    one = fact(manifests.pod("shop/a", labels={"b": "2", "a": "1"}))
    other = fact(manifests.pod("shop/b", labels={"a": "1", "b": "2"}))
    assert one.labels is other.labels


def test_a_label_of_null_is_an_empty_one() -> None:
    pod = fact(manifests.pod("shop/a", labels={"a": None}))
    assert pod.labels == (("a", ""),)
    assert label(pod.labels, "a") == ""


# Services


@pytest.mark.parametrize(
    ("spec", "addresses", "headless"),
    [
        ({"clusterIP": "10.96.0.1"}, ("10.96.0.1",), False),
        ({"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::1"]}, ("10.96.0.1", "fd00::1"), False),
        ({"clusterIP": "None", "clusterIPs": ["None"]}, (), True),
        ({"clusterIP": "None"}, (), True),
        ({"clusterIP": ""}, (), False),
        ({"clusterIPs": []}, (), False),
    ],
)
def test_cluster_ips(spec: dict[str, Any], addresses: tuple[str, ...], headless: bool) -> None:
    service = fact(manifests.service("shop/cart", spec=spec))
    assert (service.cluster_ips, service.headless) == (addresses, headless)


def test_an_unset_target_port_is_zero() -> None:
    service = manifests.service("shop/cart", ports={"http": {"port": 80}})
    assert fact(service).ports == (ServicePort("http", 80, 0, "TCP", ""),)


def test_a_target_port_in_quotes_is_refused_as_no_port_has_such_a_name() -> None:
    error = refused(manifests.service("shop/cart", ports={"http": (80, "8080")}))
    assert error.path == ("spec", "ports", 0, "targetPort")
    assert error.cure == "write the number without quotes: 8080"


@pytest.mark.parametrize("port", [-1, 0, 65536, 2**70])
def test_ports_out_of_range_are_refused(port: int) -> None:
    error = refused(manifests.service("shop/cart", ports={"http": {"port": port}}))
    assert error.path == ("spec", "ports", 0, "port")
    assert error.cure == "use a port number from 1 to 65535"


@pytest.mark.parametrize("target", [-1, 65536])
def test_target_ports_out_of_range_are_refused(target: int) -> None:
    assert refused(manifests.service("shop/cart", ports={"http": (80, target)})).path[-1] == "targetPort"


@pytest.mark.parametrize(
    ("field", "default"),
    [("type", "ClusterIP"), ("internalTrafficPolicy", "Cluster"), ("publishNotReadyAddresses", False)],
)
def test_a_default_that_is_written_out_is_the_same_service(field: str, default: object) -> None:
    silent = manifests.service("shop/cart", "10.96.0.1")
    silent["spec"].pop(field, None)
    assert fact(silent) == fact(manifests.service("shop/cart", "10.96.0.1", spec={field: default}))


def test_the_protocol_of_a_port_is_tcp_by_default() -> None:
    silent = manifests.service("shop/cart", ports={"http": {"port": 80, "protocol": None}})
    assert fact(silent).ports[0].protocol == "TCP"


def test_an_external_name() -> None:
    service = fact(manifests.service("shop/cart", spec={"type": "ExternalName", "externalName": "cart.example"}))
    assert (service.type, service.external_name) == ("ExternalName", "cart.example")


# Names that reach resource names


@pytest.mark.parametrize("name", ["", "a/b", "../a", "A", "a_b", "-a", "a-", ".a", "a..b", "a\n", "é", "a" * 254])
def test_names_that_are_no_subdomain_are_refused(name: str) -> None:
    assert refused(manifests.pod("shop/a", metadata={"name": name})).path == ("metadata", "name")


@pytest.mark.parametrize("namespace", ["a/b", "a.b", "A", "a" * 64])
def test_namespaces_that_are_no_dns_label_are_refused(namespace: str) -> None:
    assert refused(manifests.pod("shop/a", metadata={"namespace": namespace})).path == ("metadata", "namespace")


def test_the_name_of_a_service_is_one_dns_label() -> None:
    assert refused(manifests.service("shop/cart", metadata={"name": "cart.v1"})).path == ("metadata", "name")


def test_the_name_of_a_namespace_is_one_dns_label() -> None:
    assert refused(manifests.namespace("shop.v1")).path == ("metadata", "name")


@pytest.mark.parametrize(("field", "value"), [("serviceAccountName", "a/sa/b"), ("nodeName", "node 1")])
def test_names_a_pod_mentions_are_checked(field: str, value: str) -> None:
    assert refused(manifests.pod("shop/a", spec={field: value})).path == ("spec", field)


@pytest.mark.parametrize("value", ["a/b", "-a", "a b", "a" * 64, "a\n"])
def test_values_no_label_can_have_are_refused(value: str) -> None:
    error = refused(manifests.namespace("shop", labels={"topology.istio.io/network": value}))
    assert error.path == ("metadata", "labels", "topology.istio.io/network")


@pytest.mark.parametrize("key", ["", "a/b/c", "/a", "a/", "-a", "a" * 64])
def test_keys_no_label_can_have_are_refused(key: str) -> None:
    assert refused(manifests.namespace("shop", labels={key: "x"})).path == ("metadata", "labels", key)


# Creation times


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("2026-02-01T08:00:03Z", "2026-02-01T08:00:03Z"),
        ("2026-02-01T10:00:03+02:00", "2026-02-01T08:00:03Z"),
        ("2026-02-01T08:00:03.25Z", "2026-02-01T08:00:03Z"),
        (None, ""),
    ],
)
def test_creation_times_are_kept_in_one_form(given: str | None, kept: str) -> None:
    assert fact(manifests.pod("shop/a", metadata={"creationTimestamp": given})).created == kept


@pytest.mark.parametrize("given", ["yesterday", "2026-02-01", "2026-02-01T08:00:03", "0001-01-01T00:00:00+23:00"])
def test_what_is_no_time_is_refused(given: str) -> None:
    error = refused(manifests.pod("shop/a", metadata={"creationTimestamp": given}))
    assert error.path == ("metadata", "creationTimestamp")


def _changed(document: Any, path: tuple[str | int, ...], value: object) -> Any:
    place = document
    for part in path[:-1]:
        place = place[part]
    assert place.get(path[-1]) != value
    place[path[-1]] = value
    return document


def test_every_kind_here_has_its_own_tag() -> None:
    tags = {type(fact(recorded(name))) for name in ("pod", "service", "node", "namespace")}
    assert tags == {Pod, Service, Node, Namespace}
    assert all(tag in Fact.__args__ for tag in tags)
