"""Which policies ztunnels are told, and which of them workloads refer to."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit import manifests as m
from tests.kit.world import World

CART = {"app": "cart"}
NO_IDENTITY: dict[str, Any] = {"not_principals": [{"presence": {}}]}
STATIC = "istio-system/istio_converted_static_strict"
CONVERTED = "shop/converted_peer_authentication_w"
STATUS = "alpha//Pod/shop/cart-1"


def world(*objects: m.Manifest, labels: Any = CART, **settings: Any) -> World:
    made = World(**settings)
    made.apply("alpha", m.namespace("istio-system", network="net-a"), m.namespace("shop"))
    made.apply("alpha", m.pod("shop/cart-1", "10.1.0.5", labels=labels), *objects)
    made.step()
    return made


def references(made: World, pod: str = STATUS) -> list[str]:
    found = made.address(pod).get("authorization_policies", [])
    assert isinstance(found, list)
    return found


def rule(**source: Any) -> Any:
    return {"from": [{"source": source}]}


def test_a_policy_with_a_selector_is_referred_to_by_the_workloads_it_selects() -> None:
    made = world(
        m.authorization_policy("shop/b", selector=CART),
        m.authorization_policy("shop/a", selector={"app": "cart"}),
        m.authorization_policy("shop/other", selector={"app": "pay"}),
        m.authorization_policy("elsewhere/cart", selector=CART),
        m.pod("shop/none", "10.1.0.6"),
    )
    assert references(made) == ["shop/a", "shop/b"]
    assert references(made, "alpha//Pod/shop/none") == []
    assert made.authorizations()["shop/a"]["scope"] == "WORKLOAD_SELECTOR"


def test_a_selector_in_the_root_namespace_selects_in_all_namespaces() -> None:
    assert references(world(m.authorization_policy("istio-system/all", selector=CART))) == ["istio-system/all"]


def test_a_policy_without_selector_is_for_its_namespace_or_from_the_root_for_all_and_is_not_named() -> None:
    made = world(m.authorization_policy("shop/here"), m.authorization_policy("istio-system/everywhere"))
    told = made.authorizations()
    assert told["shop/here"] == {"name": "here", "namespace": "shop", "scope": "NAMESPACE"}
    assert told["istio-system/everywhere"] == {"name": "everywhere", "namespace": "istio-system"}
    assert references(made) == []


def test_the_root_namespace_is_the_mesh_configurations() -> None:
    made = world(
        m.mesh_config_map(rootNamespace="policies"),
        m.authorization_policy("policies/everywhere"),
        m.authorization_policy("istio-system/here"),
    )
    assert "scope" not in made.authorizations()["policies/everywhere"]
    assert made.authorizations()["istio-system/here"]["scope"] == "NAMESPACE"


@pytest.mark.parametrize("settings", [{}, {"revision": "canary"}])
def test_a_policy_for_another_revision_is_not_ours(settings: Any) -> None:
    made = world(m.authorization_policy("shop/cart", labels={"istio.io/rev": "stable"}, selector=CART), **settings)
    assert made.authorizations() == {}
    assert references(made) == []


def test_a_policy_for_this_revision_is_ours() -> None:
    made = world(m.authorization_policy("shop/cart", labels={"istio.io/rev": "canary"}), revision="canary")
    assert list(made.authorizations()) == ["shop/cart"]


def test_policies_of_remote_clusters_count_for_nothing() -> None:
    made = world()
    made.apply("beta", m.authorization_policy("shop/cart", selector=CART), m.peer_authentication("shop/w", "STRICT"))
    made.step()
    assert made.authorizations() == {}
    assert references(made) == []


NOT_SENT = [
    (m.authorization_policy("shop/p", selector=CART, action="AUDIT"), "PolicyActionNotEnforced"),
    (m.authorization_policy("shop/p", selector=CART, action="CUSTOM"), "PolicyActionNotEnforced"),
    (m.authorization_policy("shop/p", annotations={"istio.io/dry-run": "true"}, selector=CART), "PolicyIsDryRun"),
    (m.authorization_policy("shop/p", targetRef={"kind": "Gateway", "name": "w"}), None),
    (m.authorization_policy("shop/p", targetRefs=[{"kind": "Service", "name": "w"}], selector=CART), None),
]


@pytest.mark.parametrize(("policy", "finding"), NOT_SENT)
def test_what_node_proxies_do_not_enforce_is_neither_sent_nor_referred_to(policy: Any, finding: str | None) -> None:
    made = world(policy)
    assert made.authorizations() == {}
    assert references(made) == []
    assert [one.code for one in made.findings()] == ([finding] if finding else [])


def test_patterns_become_the_comparisons_a_ztunnel_knows() -> None:
    values = ["*", "*/sa/front", "cluster.local/ns/*", "cluster.local/ns/a/sa/b"]
    told = world(m.authorization_policy("shop/p", rule(principals=values))).authorizations()["shop/p"]
    assert told["groups"][0]["rules"][0]["matches"][0]["principals"] == [
        {"presence": {}},
        {"suffix": "/sa/front"},
        {"prefix": "cluster.local/ns/"},
        {"exact": "cluster.local/ns/a/sa/b"},
    ]


def test_a_reference_goes_with_its_policy_in_one_pass() -> None:
    policy = m.authorization_policy("shop/cart", selector=CART)
    made = world(policy)
    made.apply("alpha", {**policy, "spec": {**policy["spec"], "action": "AUDIT"}})
    made.step()
    assert (made.authorizations(), references(made)) == ({}, [])


# PeerAuthentication


def peer(mode: str = "", ports: Any = None, name: str = "shop/w", **more: Any) -> m.Manifest:
    return m.peer_authentication(name, mode, selector=CART, ports=ports, **more)


MESH_STRICT = m.peer_authentication("istio-system/default", "STRICT")


def rules(made: World, name: str = CONVERTED) -> Any:
    """Of each group its matches, one per rule."""
    return [
        [row["matches"][0] for row in group["rules"]] for group in made.authorizations()[name].get("groups", [])
    ]


def test_a_mesh_that_is_strict_refuses_everybody_without_identity_everywhere() -> None:
    made = world(MESH_STRICT)
    assert made.authorizations()[STATIC] == {
        "name": "istio_converted_static_strict",
        "namespace": "istio-system",
        "scope": "WORKLOAD_SELECTOR",
        "action": "DENY",
        "groups": [{"rules": [{"matches": [NO_IDENTITY]}]}],
    }
    assert references(made) == [STATIC]


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DISABLE"])
def test_a_namespace_goes_before_the_mesh_and_a_selector_before_the_namespace(mode: str) -> None:
    namespace = m.peer_authentication("shop/default", mode)
    assert references(world(MESH_STRICT, namespace)) == []
    assert references(world(MESH_STRICT, namespace, peer("STRICT"))) == [STATIC]
    assert references(world(MESH_STRICT, peer(mode))) == []


@pytest.mark.parametrize("level", ["namespace", "selector"])
def test_unset_is_what_the_level_above_says(level: str) -> None:
    unset = m.peer_authentication("shop/default", "UNSET") if level == "namespace" else peer("UNSET")
    assert references(world(MESH_STRICT, unset)) == [STATIC]
    assert references(world(unset)) == []


def test_of_several_the_oldest_counts() -> None:
    younger = m.peer_authentication("shop/a", "STRICT", created="2026-03-01T00:00:00Z")
    older = m.peer_authentication("shop/b", "PERMISSIVE", created="2026-02-01T00:00:00Z")
    assert references(world(younger, older)) == []
    assert references(world(peer("STRICT", name="shop/x", created="2026-02-01T00:00:00Z"), peer("PERMISSIVE"))) == []


def test_a_strict_workload_with_open_ports_refuses_on_all_others() -> None:
    made = world(peer("STRICT", {8080: "PERMISSIVE", 8081: "DISABLE", 8082: "STRICT"}))
    assert rules(made) == [[NO_IDENTITY, {"not_destination_ports": [8080]}, {"not_destination_ports": [8081]}]]
    assert references(made) == [CONVERTED]


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DISABLE"])
@pytest.mark.parametrize("namespace", ["", "UNSET"])
def test_open_ports_of_a_workload_that_inherits_strict_stay_open_and_no_others(mode: str, namespace: str) -> None:
    between = [m.peer_authentication("shop/default", namespace)] if namespace else []
    made = world(MESH_STRICT, *between, peer("UNSET", {8080: mode}))
    assert rules(made) == [[{"not_destination_ports": [8080]}, NO_IDENTITY]]
    assert references(made) == [CONVERTED]


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DISABLE", "UNSET", ""])
def test_strict_ports_of_an_open_workload_refuse_and_no_others(mode: str) -> None:
    made = world(peer(mode, {9090: "STRICT", 8080: "STRICT"}))
    assert rules(made) == [[{**NO_IDENTITY, "destination_ports": [port]}] for port in (8080, 9090)]
    assert references(made) == [CONVERTED]


@pytest.mark.parametrize(
    ("mode", "ports", "expected"),
    [
        ("STRICT", {8080: "STRICT"}, [STATIC]),
        ("PERMISSIVE", {8080: "PERMISSIVE"}, []),
        ("STRICT", {8080: "UNSET"}, [STATIC]),
    ],
)
def test_ports_that_say_nothing_new_need_no_policy(mode: str, ports: Any, expected: list[str]) -> None:
    made = world(peer(mode, ports))
    assert set(made.authorizations()) == {STATIC}
    assert references(made) == expected


def test_a_selector_in_the_root_namespace_is_for_nobody() -> None:
    made = world(
        m.pod("istio-system/cart-2", "10.1.0.6", labels=CART),
        peer("STRICT", {8080: "PERMISSIVE"}, name="istio-system/w"),
    )
    assert references(made) == references(made, "alpha//Pod/istio-system/cart-2") == []
    assert set(made.authorizations()) == {STATIC}


@pytest.mark.parametrize("first", ["AuthorizationPolicy", "PeerAuthentication"])
def test_whatever_exists_every_reference_is_to_a_policy_that_is_sent(first: str) -> None:
    objects = [
        MESH_STRICT,
        peer("UNSET", {8080: "DISABLE"}),
        m.peer_authentication("shop/default", "UNSET"),
        m.authorization_policy("shop/cart", selector=CART),
        m.authorization_policy("istio-system/cart", selector=CART, action="DENY"),
    ]
    made = world(*sorted(objects, key=lambda one: one["kind"] != first))
    for gone in objects:
        assert set(references(made)) <= set(made.authorizations())
        made.delete("alpha", gone)
        made.step()
    assert references(made) == []
