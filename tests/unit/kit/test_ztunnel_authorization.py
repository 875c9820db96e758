"""Policies as the destination evaluates them."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest

from tests.kit import golden
from tests.kit.ztunnel import ZtunnelMachine
from tests.kit.ztunnel.authorization import Connection, Verdict, evaluate
from tests.kit.ztunnel.messages import Resource, authorization, response, workload, world_responses
from tests.kit.ztunnel.records import Identity

POD = "c//Pod/demo/echo"


def connection(
    identity: str = "spiffe://td/ns/shop/sa/front", source: str = "10.1.0.1", ip: str = "10.0.0.2", port: int = 8080
) -> Connection:
    return Connection(Identity.parse(identity), ip_address(source), ip_address(ip), port)


def verdict(*policies: Resource, named: tuple[str, ...] = (), to: Connection | None = None) -> Verdict:
    machine = ZtunnelMachine()
    machine.receive(response(workload(POD, authorization_policies=list(named))))
    machine.receive(world_responses(policies)[1])
    assert [received.error for received in machine.received] == ["", ""]
    return evaluate(machine.state, machine.state.workloads.by_uid[POD], to or connection())


def policy(name: str, *matches: dict[str, Any], namespace: str = "demo", **fields: Any) -> Resource:
    """A policy of one group with one rule; without matches it applies to everything."""
    groups = [{"rules": [{"matches": list(matches)}] if matches else []}]
    return authorization(name, namespace, **{"scope": "NAMESPACE", "groups": groups, **fields})


def matched(match: dict[str, Any], to: Connection | None = None) -> bool:
    return not verdict(policy("p", match, action="DENY"), to=to).allowed


class TestDecision:
    def test_without_policies_all_is_allowed(self) -> None:
        assert verdict() == Verdict(True)

    def test_matching_deny_decides(self) -> None:
        denied = verdict(policy("no", action="DENY"), policy("yes"))

        assert (denied.allowed, denied.reason, denied.policy) == (False, "explicitly denied by: demo/no", "demo/no")

    def test_matching_allow_allows(self) -> None:
        allowed = verdict(policy("yes"), policy("other", {"destination_ports": [1]}))

        assert (allowed.allowed, allowed.policy) == (True, "demo/yes")

    def test_allow_that_does_not_match_denies(self) -> None:
        assert verdict(policy("yes", {"destination_ports": [1]})) == Verdict(
            False, "allow policies exist, but none allowed"
        )

    def test_deny_that_does_not_match_leaves_all_allowed(self) -> None:
        assert verdict(policy("no", {"destination_ports": [1]}, action="DENY")).allowed

    def test_allow_without_groups_denies_everything(self) -> None:
        assert not verdict(policy("nothing", groups=[])).allowed


class TestScope:
    def test_mesh_policy_applies_everywhere(self) -> None:
        assert not verdict(policy("no", namespace="istio-system", scope="GLOBAL", action="DENY")).allowed

    def test_namespace_policy_applies_in_its_namespace_only(self) -> None:
        assert verdict(policy("no", namespace="other", action="DENY")).allowed

    def test_selector_policy_applies_when_named(self) -> None:
        selector = policy("no", scope="WORKLOAD_SELECTOR", action="DENY")

        assert verdict(selector).allowed
        assert not verdict(selector, named=("demo/no",)).allowed

    def test_unknown_policy_fails_open_and_is_reported(self) -> None:
        allowed = verdict(policy("known", scope="WORKLOAD_SELECTOR"), named=("demo/missing", "demo/known"))

        assert (allowed.allowed, allowed.fails_open, allowed.unknown) == (True, True, ("demo/missing",))

    def test_known_policies_do_not_fail_open(self) -> None:
        assert not verdict(policy("known", scope="WORKLOAD_SELECTOR"), named=("demo/known",)).fails_open


class TestDryRun:
    def test_deny_is_reported_and_not_enforced(self) -> None:
        allowed = verdict(policy("no", action="DENY", dry_run=True))

        assert (allowed.allowed, allowed.dry_run) == (True, ("demo/no",))

    def test_allow_does_not_make_others_forbidden(self) -> None:
        assert verdict(policy("yes", {"destination_ports": [1]}, dry_run=True)) == Verdict(True)


class TestStructure:
    def test_any_group_suffices(self) -> None:
        groups = [
            {"rules": [{"matches": [{"destination_ports": [1]}]}]},
            {"rules": [{"matches": [{"destination_ports": [8080]}]}]},
        ]

        assert not verdict(policy("no", action="DENY", groups=groups)).allowed

    def test_all_rules_of_a_group_must_match(self) -> None:
        rules = [{"matches": [{"destination_ports": [8080]}]}, {"matches": [{"destination_ports": [1]}]}]

        assert verdict(policy("no", action="DENY", groups=[{"rules": rules}])).allowed

    def test_any_match_of_a_rule_suffices(self) -> None:
        assert not verdict(
            policy("no", {"destination_ports": [1]}, {"destination_ports": [8080]}, action="DENY")
        ).allowed

    def test_rule_without_matches_always_matches(self) -> None:
        assert not verdict(policy("no", action="DENY", groups=[{"rules": [{}]}])).allowed

    def test_empty_match_never_matches(self) -> None:
        assert not matched({})

    def test_match_whose_only_range_is_unreadable_never_matches(self) -> None:
        assert not matched({"source_ips": [{"address": "base64:AQID", "length": 8}]})

    def test_all_fields_of_a_match_must_hold(self) -> None:
        assert matched({"destination_ports": [8080], "namespaces": [{"exact": "shop"}]})
        assert not matched({"destination_ports": [8080], "namespaces": [{"exact": "other"}]})


class TestConditions:
    @pytest.mark.parametrize(
        ("pattern", "expected"),
        [
            ({"exact": "td/ns/shop/sa/front"}, True),
            ({"exact": "spiffe://td/ns/shop/sa/front"}, False),
            ({"prefix": "td/ns/shop/"}, True),
            ({"prefix": "spiffe"}, False),
            ({"suffix": "/sa/front"}, True),
            ({"suffix": "/sa/back"}, False),
            ({"presence": {}}, True),
        ],
    )
    def test_principal_is_compared_without_its_scheme(self, pattern: dict[str, Any], expected: bool) -> None:
        assert matched({"principals": [pattern]}) is expected
        assert matched({"not_principals": [pattern]}) is not expected

    @pytest.mark.parametrize("pattern", [{"exact": ""}, {"prefix": ""}, {"suffix": ""}, {"presence": {}}])
    def test_plaintext_has_no_principal(self, pattern: dict[str, Any]) -> None:
        plaintext = connection(identity="")

        assert not matched({"principals": [pattern]}, plaintext)
        assert matched({"not_principals": [pattern]}, plaintext)

    def test_namespace_of_plaintext_is_empty(self) -> None:
        plaintext = connection(identity="")

        assert not matched({"namespaces": [{"presence": {}}]}, plaintext)
        assert matched({"not_namespaces": [{"exact": "shop"}]}, plaintext)

    @pytest.mark.parametrize("trust_domain", ["td", "other"])
    def test_service_account_matches_in_any_trust_domain(self, trust_domain: str) -> None:
        to = connection(identity=f"spiffe://{trust_domain}/ns/shop/sa/front")

        assert matched({"service_accounts": [{"namespace": "shop", "serviceAccount": "front"}]}, to)
        assert not matched({"service_accounts": [{"namespace": "shop", "serviceAccount": "back"}]}, to)
        assert matched({"not_service_accounts": [{"namespace": "shop", "serviceAccount": "back"}]}, to)

    @pytest.mark.parametrize(
        ("block", "expected"),
        [
            ({"address": "10.1.0.0", "length": 16}, True),
            ({"address": "10.1.9.9", "length": 16}, True),
            ({"address": "10.1.0.1", "length": 32}, True),
            ({"address": "10.2.0.0", "length": 16}, False),
            ({"address": "::", "length": 0}, False),
        ],
    )
    def test_range_covers_the_source(self, block: dict[str, Any], expected: bool) -> None:
        assert matched({"source_ips": [block]}) is expected
        assert matched({"not_source_ips": [block]}) is not expected

    def test_range_covers_the_destination(self) -> None:
        assert matched({"destination_ips": [{"address": "10.0.0.0", "length": 24}]})
        assert not matched({"not_destination_ips": [{"address": "10.0.0.0", "length": 24}]})

    def test_port_is_that_of_the_destination(self) -> None:
        assert matched({"destination_ports": [1, 8080]})
        assert not matched({"not_destination_ports": [8080]})
        assert matched({"not_destination_ports": [1]})


class TestRecordedPolicies:
    """A peer's policies for Pod cart-1, where STRICT PeerAuthentication exempts port 8081."""

    def judge(self, to: Connection) -> Verdict:
        machine = ZtunnelMachine()
        record = golden.load("09-authorization").record()
        resources = [(name, golden.from_json(body)) for section in record.values() for name, body in section.items()]
        for data in world_responses(resources):
            machine.receive(data)
        return evaluate(machine.state, machine.state.workloads.by_uid["alpha//Pod/shop/cart-1"], to)

    def test_account_of_an_allow_policy_is_let_in(self) -> None:
        front = connection("spiffe://cluster.local/ns/shop/sa/front", port=8080)

        assert self.judge(front).allowed
        assert not self.judge(front).fails_open

    def test_other_namespace_is_denied(self) -> None:
        other = connection("spiffe://cluster.local/ns/other/sa/x", port=8080)

        assert self.judge(other).reason == "explicitly denied by: shop/l7-deny"

    def test_plaintext_is_denied_by_strict_mode(self) -> None:
        plaintext = connection("", port=8080)

        assert self.judge(plaintext).policy == "shop/converted_peer_authentication_cart-ports"

    def test_port_denied_in_the_root_namespace_is_denied(self) -> None:
        assert self.judge(connection("spiffe://cluster.local/ns/shop/sa/front", port=9999)).policy == (
            "istio-system/root-deny"
        )
