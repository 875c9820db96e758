"""What AuthorizationPolicies are told, when, and what is left alone."""

from __future__ import annotations

from typing import Any

import pytest

from aggregator.views.rejections import Rejection
from tests.kit import manifests as m
from tests.kit.kube_writes import apply_status
from tests.kit.manifests import Manifest
from tests.unit.aggregator.writes.told import ToldWorld

NAME = "shop/p"
GOOD = {"ZtunnelAccepted": "True Accepted"}
METHODS: Any = {"to": [{"operation": {"methods": ["GET"]}}]}


def policy(name: str = NAME, *rules: Any, **more: Any) -> Manifest:
    document = m.authorization_policy(name, *rules, **more)
    document["metadata"]["generation"] = 4
    return document


def told(*documents: Manifest, istio_classes: bool = True, **settings: Any) -> ToldWorld:
    world = ToldWorld(istio_classes=istio_classes, **settings)
    world.apply(m.namespace("istio-system"), m.namespace("shop"), *documents)
    world.settle()
    return world


def condition(world: ToldWorld, name: str = NAME) -> Any:
    (found,) = world.status("AuthorizationPolicy", name)["conditions"]
    return found


def test_a_policy_that_node_proxies_enforce_is_accepted_at_its_generation() -> None:
    world = told(policy())
    assert world.conditions("AuthorizationPolicy", NAME) == GOOD
    assert condition(world)["observedGeneration"] == 4


@pytest.mark.parametrize("action", ["ALLOW", "DENY"])
def test_what_needs_a_waypoint_is_named_field_by_field_and_the_policy_is_enforced(action: str) -> None:
    world = told(policy(NAME, METHODS, {}, {"when": [{"key": "request.headers[a]", "values": ["b"]}]}, action=action))
    assert world.conditions("AuthorizationPolicy", NAME) == {"ZtunnelAccepted": "True UnsupportedValue"}
    message = condition(world)["message"]
    assert "spec.rules[0].to[0].operation: methods; spec.rules[2].when[0]: request.headers[a]" in message
    assert "refuses more than is asked for" in message


def test_a_value_that_cannot_be_read_is_told_beside_what_needs_a_waypoint() -> None:
    world = told(policy(NAME, METHODS, {"to": [{"operation": {"ports": ["http"]}}]}))
    assert world.conditions("AuthorizationPolicy", NAME) == {"ZtunnelAccepted": "True UnsupportedValue"}
    message = condition(world)["message"]
    assert "spec.rules[1].to[0].operation.ports[0]: 'http'" in message
    assert "cannot be read" in message and "only a waypoint can read" in message


def test_of_many_flaws_ten_are_named_and_the_others_counted() -> None:
    message = condition(told(policy(NAME, *[METHODS] * 14)))["message"]
    assert "spec.rules[9]" in message and "spec.rules[10]" not in message
    assert message.endswith("and 4 more.")


@pytest.mark.parametrize("action", ["AUDIT", "CUSTOM"])
def test_an_action_that_node_proxies_do_not_enforce_is_not_accepted(action: str) -> None:
    world = told(policy(action=action))
    assert world.conditions("AuthorizationPolicy", NAME) == {"ZtunnelAccepted": "False UnsupportedValue"}


def test_a_policy_on_trial_is_not_accepted() -> None:
    dry = policy()
    dry["metadata"]["annotations"] = {"istio.io/dry-run": "true"}
    assert told(dry).conditions("AuthorizationPolicy", NAME) == {"ZtunnelAccepted": "False UnsupportedValue"}


def test_a_policy_that_proxies_refused_is_not_accepted_until_it_changes() -> None:
    world = told(policy())
    ((view, version),) = [
        (where, resource.version)
        for (where, name), resource in world.world.resources.items()
        if name == NAME and "authorization" in where.lower()
    ]
    refused = Rejection((("alpha", "AuthorizationPolicy", "shop", "p"),), version, "ztunnel-1", "no")
    world.world.step({world.world.pipeline.rejections: {(view, NAME): refused}})
    world.settle()
    assert world.conditions("AuthorizationPolicy", NAME) == {"ZtunnelAccepted": "False Invalid"}
    world.apply(policy(NAME, {}))
    world.settle()
    assert world.conditions("AuthorizationPolicy", NAME) == GOOD


@pytest.mark.parametrize(
    "other",
    [
        policy(targetRefs=[{"kind": "Gateway", "group": "gateway.networking.k8s.io", "name": "w"}]),
        policy(labels={"istio.io/rev": "other"}),
    ],
)
def test_what_is_not_for_node_proxies_of_this_control_plane_is_told_nothing(other: Manifest) -> None:
    world = told(other)
    assert world.conditions("AuthorizationPolicy", NAME) == {}
    world.apply(policy())
    world.settle()
    world.apply(other)
    assert len(world.settle()) == 1
    assert world.conditions("AuthorizationPolicy", NAME) == {}


def test_beside_istiod_nothing_is_told() -> None:
    assert told(policy(), istio_classes=False).conditions("AuthorizationPolicy", NAME) == {}


def test_policies_of_remote_clusters_are_told_nothing() -> None:
    world = ToldWorld(istio_classes=True)
    world.world.apply("beta", m.namespace("shop"), policy())
    assert world.writes() == {}


def test_nothing_is_told_before_home_has_been_read() -> None:
    world = ToldWorld(istio_classes=True)
    world.world.cluster("alpha", "syncing")
    world.world.apply("alpha", m.namespace("shop"), policy())
    assert world.writes() == {}


def test_conditions_of_others_stay_though_the_list_is_one_value() -> None:
    world = ToldWorld(istio_classes=True)
    world.apply(m.namespace("shop"), policy())
    other = b'{"kind":"AuthorizationPolicy","status":{"conditions":[{"type":"Mine","status":"True","reason":"R"}]}}'
    apply_status(world.store, "AuthorizationPolicy", ("shop", "p"), other, "somebody", force=True)
    world.apply(policy())
    world.settle()
    assert world.conditions("AuthorizationPolicy", NAME) == {"Mine": "True R", **GOOD}
    world.apply(policy(labels={"istio.io/rev": "other"}))
    world.settle()
    assert world.conditions("AuthorizationPolicy", NAME) == {"Mine": "True R"}


def test_a_process_that_starts_anew_writes_nothing() -> None:
    world = told(policy(), policy("shop/q", METHODS))
    again = ToldWorld(istio_classes=True)
    again.store = world.store
    for kind, name in (
        ("Namespace", ("", "shop")),
        ("AuthorizationPolicy", ("shop", "p")),
        ("AuthorizationPolicy", ("shop", "q")),
    ):
        again._see(kind, name)
    assert again.writes() == {}
