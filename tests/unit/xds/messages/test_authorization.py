"""What each part of an Authorization becomes on the wire, emptiness included."""

from __future__ import annotations

from xds import protos
from xds.messages.authorization import (
    AUTHORIZATION_TYPE,
    Action,
    AddressRange,
    Authorization,
    Comparison,
    Group,
    Match,
    Rules,
    Scope,
    ServiceAccountMatch,
    StringMatch,
    encode_authorization,
)

proto = protos.istio.security


def decoded(authorization: Authorization) -> protos.istio.security.Authorization:
    return proto.Authorization.FromString(encode_authorization(authorization).data)


def with_match(match: Match) -> Authorization:
    return Authorization("p", "shop", Scope.NAMESPACE, Action.DENY, (Group((Rules((match,)),)),))


def test_the_type_url_names_the_message() -> None:
    assert AUTHORIZATION_TYPE.removeprefix("type.googleapis.com/") == proto.Authorization.DESCRIPTOR.full_name


def test_a_policy_in_full() -> None:
    match = Match(
        namespaces=(StringMatch(Comparison.EXACT, "shop"),),
        not_namespaces=(StringMatch(Comparison.PREFIX, "kube-"),),
        principals=(StringMatch(Comparison.SUFFIX, "/sa/cart"), StringMatch(Comparison.PRESENCE)),
        not_principals=(StringMatch(Comparison.PRESENCE),),
        source_ips=(AddressRange(bytes((10, 0, 0, 0)), 8),),
        not_source_ips=(AddressRange(bytes((10, 1, 0, 0)), 16),),
        destination_ips=(AddressRange(bytes(16), 0),),
        not_destination_ips=(AddressRange(bytes((10, 2, 0, 1)), 32),),
        destination_ports=(80, 443),
        not_destination_ports=(9999,),
        service_accounts=(ServiceAccountMatch("shop", "cart"),),
        not_service_accounts=(ServiceAccountMatch("shop", "intruder"),),
    )
    expected_match = proto.Match(
        namespaces=[proto.StringMatch(exact="shop")],
        not_namespaces=[proto.StringMatch(prefix="kube-")],
        principals=[proto.StringMatch(suffix="/sa/cart"), proto.StringMatch(presence=protos.google.protobuf.Empty())],
        not_principals=[proto.StringMatch(presence=protos.google.protobuf.Empty())],
        source_ips=[proto.Address(address=bytes((10, 0, 0, 0)), length=8)],
        not_source_ips=[proto.Address(address=bytes((10, 1, 0, 0)), length=16)],
        destination_ips=[proto.Address(address=bytes(16), length=0)],
        not_destination_ips=[proto.Address(address=bytes((10, 2, 0, 1)), length=32)],
        destination_ports=[80, 443],
        not_destination_ports=[9999],
        service_accounts=[proto.ServiceAccountMatch(namespace="shop", serviceAccount="cart")],
        not_service_accounts=[proto.ServiceAccountMatch(namespace="shop", serviceAccount="intruder")],
    )
    policy = Authorization(
        "p", "shop", Scope.WORKLOAD_SELECTOR, Action.DENY, (Group((Rules((match,)), Rules())), Group()), dry_run=True
    )
    assert decoded(policy) == proto.Authorization(
        name="p",
        namespace="shop",
        scope=proto.WORKLOAD_SELECTOR,
        action=proto.DENY,
        groups=[
            proto.Group(rules=[proto.Rules(matches=[expected_match]), proto.Rules()]),
            proto.Group(),
        ],
        dry_run=True,
    )


def test_a_policy_that_matches_nothing_has_no_groups() -> None:
    assert not decoded(Authorization("p", "shop", Scope.GLOBAL, Action.ALLOW)).groups


def test_a_group_that_matches_everything_is_there_without_rules() -> None:
    message = decoded(Authorization("p", "shop", Scope.GLOBAL, Action.ALLOW, (Group(),)))
    assert len(message.groups) == 1
    assert not message.groups[0].rules


def test_a_match_that_never_matches_is_there_without_fields() -> None:
    message = decoded(with_match(Match()))
    assert list(message.groups[0].rules[0].matches) == [proto.Match()]


def test_an_empty_string_to_compare_with_keeps_its_comparison() -> None:
    message = decoded(with_match(Match(principals=(StringMatch(Comparison.EXACT, ""),))))
    assert message.groups[0].rules[0].matches[0].principals[0].WhichOneof("match_type") == "exact"
