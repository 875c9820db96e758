"""What can be enforced of a rule without reading HTTP, and which way it errs: never towards letting through."""

from __future__ import annotations

from typing import Any

import pytest

from aggregator.security.layer4 import Group, Match, groups_of
from watchers.facts.istio_security import Condition, Operation, Rule, Source

BAD = Match(namespaces=("bad",))


def groups(*rules: Rule, deny: bool = False) -> tuple[Group, ...]:
    return groups_of(rules, "shop", deny=deny)[0]


def flaws(*rules: Rule, deny: bool = False) -> list[str]:
    return [f"{flaw.code} {flaw.field} {flaw.detail}" for flaw in groups_of(rules, "shop", deny=deny)[1]]


def source(**fields: Any) -> Rule:
    return Rule(sources=(Source(**fields),))


def operation(**fields: Any) -> Rule:
    return Rule(operations=(Operation(**fields),))


def when(key: str, *values: str, without: tuple[str, ...] = ()) -> Rule:
    return Rule(conditions=(Condition(key, values, without),))


def test_a_rule_asks_for_an_operation_and_a_source_and_every_condition() -> None:
    rule = Rule(
        sources=(Source(namespaces=("web",)), Source(namespaces=("ops",))),
        operations=(Operation(ports=("80",)), Operation(ports=("81",))),
        conditions=(Condition("source.ip", ("10.0.0.0/8",)), Condition("destination.port", (), ("82",))),
    )
    assert groups(rule) == (
        (
            (Match(ports=(80,)), Match(ports=(81,))),
            (Match(namespaces=("web",)), Match(namespaces=("ops",))),
            (Match(source_ranges=((b"\n\0\0\0", 8),)),),
            (Match(not_ports=(82,)),),
        ),
    )


@pytest.mark.parametrize("deny", [True, False])
def test_a_rule_with_nothing_in_it_matches_everything(deny: bool) -> None:
    assert groups(Rule(), deny=deny) == ((),)


@pytest.mark.parametrize("deny", [True, False])
def test_without_rules_nothing_matches(deny: bool) -> None:
    assert groups(deny=deny) == ()


@pytest.mark.parametrize(
    "rule",
    [
        operation(http=("methods",)),
        source(http=("requestPrincipals",)),
        when("request.headers[x]", "y"),
        operation(ports=("80",), http=("paths",)),
        source(principals=("x",), http=("remoteIpBlocks",)),
    ],
    ids=["operation", "source", "condition", "operation with a port", "source with a principal"],
)
def test_what_only_a_waypoint_can_check_is_not_met_where_it_would_allow(rule: Rule) -> None:
    assert groups(rule) == ()
    assert [flaw.split()[0] for flaw in flaws(rule)] == ["PolicyNeedsWaypoint"]


def test_only_the_alternative_that_cannot_be_checked_is_left_out_of_what_is_allowed() -> None:
    rule = Rule(sources=(Source(http=("requestPrincipals",)), Source(namespaces=("bad",))))
    assert groups(rule) == (((BAD,),),)


@pytest.mark.parametrize("unchecked", [Operation(http=("paths",)), Operation()])
def test_what_only_a_waypoint_can_check_is_met_where_it_denies(unchecked: Operation) -> None:
    rule = Rule(sources=(Source(namespaces=("bad",)),), operations=(unchecked,))
    assert groups(rule, deny=True) == (((BAD,),),)


def test_a_denial_by_path_alone_denies_everything() -> None:
    assert groups(operation(http=("paths",)), deny=True) == ((),)


def test_of_alternatives_that_deny_one_that_cannot_be_checked_makes_the_others_needless() -> None:
    rule = Rule(operations=(Operation(ports=("80",)), Operation(http=("paths",))))
    assert groups(rule, deny=True) == ((),)


def test_a_denial_keeps_what_stands_beside_what_cannot_be_checked() -> None:
    assert groups(operation(ports=("80",), http=("methods",)), deny=True) == (((Match(ports=(80,)),),),)


UNREADABLE = [
    (source(ip_blocks=("10.0.0.0/33",)), "from[0].source.ipBlocks[0] '10.0.0.0/33'"),
    (source(ip_blocks=("cart",)), "from[0].source.ipBlocks[0] 'cart'"),
    (operation(ports=("http",)), "to[0].operation.ports[0] 'http'"),
    (operation(ports=("0",)), "to[0].operation.ports[0] '0'"),
    (operation(ports=("65536",)), "to[0].operation.ports[0] '65536'"),
    (operation(ports=("٨٠",)), "to[0].operation.ports[0] '٨٠'"),
    (source(principals=("",)), "from[0].source.principals[0] ''"),
    (source(principals=("spiffe://",)), "from[0].source.principals[0] 'spiffe://'"),
    (source(service_accounts=("a/b/c",)), "from[0].source.serviceAccounts[0] 'a/b/c'"),
    (source(service_accounts=("a/",)), "from[0].source.serviceAccounts[0] 'a/'"),
    (when("destination.port", "x"), "when[0].values[0] 'x'"),
]


@pytest.mark.parametrize(("rule", "where"), UNREADABLE, ids=[where for _, where in UNREADABLE])
def test_a_field_of_which_no_value_can_be_read_is_met_by_a_denial_and_not_met_by_what_allows(
    rule: Rule, where: str
) -> None:
    assert groups(rule) == ()
    assert groups(rule, deny=True) == ((),)
    assert flaws(rule) == flaws(rule, deny=True) == [f"PolicyValueInvalid spec.rules[0].{where}"]


@pytest.mark.parametrize("deny", [True, False])
def test_of_several_values_those_stand_that_can_be_read(deny: bool) -> None:
    assert groups(operation(ports=("x", "80")), deny=deny) == (((Match(ports=(80,)),),),)


def test_an_exception_that_cannot_be_read_allows_nothing() -> None:
    # It might have been for whoever asks.
    assert groups(source(not_ip_blocks=("x", "10.0.0.0/8"))) == ()
    assert groups(when("source.ip", without=("x",))) == ()


def test_an_exception_that_cannot_be_read_exempts_nobody_from_a_denial() -> None:
    assert groups(source(not_ip_blocks=("x", "10.0.0.0/8")), deny=True) == (
        ((Match(not_source_ranges=((b"\n\0\0\0", 8),)),),),
    )
    assert groups(source(not_ip_blocks=("x",)), deny=True) == ((),)


def test_a_principal_is_understood_with_its_scheme() -> None:
    # ztunnel compares without it: as it stands it would be equal to none, and deny nobody.
    assert groups(source(principals=("spiffe://td/ns/web/sa/front",)), deny=True) == (
        ((Match(principals=("td/ns/web/sa/front",)),),),
    )


def test_a_service_account_without_a_namespace_is_of_the_policys() -> None:
    assert groups(source(service_accounts=("front", "web/back"))) == (
        ((Match(accounts=(("shop", "front"), ("web", "back"))),),),
    )


def test_ranges_are_brought_to_their_prefix_and_told_once() -> None:
    given = ("10.1.2.3/8", "10.0.0.0/8", "192.0.2.7", "2001:db8::1/32")
    assert groups(source(ip_blocks=given)) == (
        (
            (
                Match(
                    source_ranges=(
                        (b"\n\0\0\0", 8),
                        (b"\xc0\0\x02\x07", 32),
                        (b"\x20\x01\x0d\xb8" + bytes(12), 32),
                    )
                ),
            ),
        ),
    )


def test_values_that_come_to_the_same_exception_are_all_read() -> None:
    assert groups(source(not_ip_blocks=("10.1.2.3/8", "10.0.0.0/8"))) == (
        ((Match(not_source_ranges=((b"\n\0\0\0", 8),)),),),
    )


def test_no_row_ever_holds_an_alternative_without_conditions() -> None:
    # A ztunnel takes one for "never".
    for deny in (True, False):
        for rule in (source(), operation(), when("source.ip")):
            assert all(Match() not in row for group in groups(rule, deny=deny) for row in group)
