"""Matchers and listeners that are composed of parts: the message is that of one that was made at once."""

from __future__ import annotations

from xds import protos
from xds.encoded import encode
from xds.messages.filters import tls_inspector
from xds.messages.listener import (
    FilterChain,
    Listener,
    ListenerFilter,
    SocketAddress,
    compose_listener,
    encode_chains,
    encode_listener,
)
from xds.messages.matcher import SERVER_NAME, ExactMatch, encode_matcher
from xds.messages.server_names import compose_names, encode_names, encode_wildcards

Matcher = protos.xds.type.matcher.v3.Matcher


def test_a_matcher_of_parts_is_the_matcher_of_all_names() -> None:
    parts = [encode_names([("b", "2"), ("a", "1")]), encode_names([("c", "1")])]
    whole = encode_matcher(ExactMatch(SERVER_NAME, (("a", "1"), ("b", "2"), ("c", "1")), "rest"))
    assert Matcher.FromString(compose_names(parts, otherwise="rest").data) == Matcher.FromString(whole)


def test_wildcards_are_asked_behind_exact_names_and_before_the_rest() -> None:
    found = Matcher.FromString(
        compose_names(
            [encode_names([("a.x", "1")])], [encode_wildcards([("*.x", "2")]), encode_wildcards([("*.y", "3")])], "4"
        ).data
    )
    behind = found.on_no_match.matcher
    domains = protos.xds.type.matcher.v3.ServerNameMatcher.FromString(
        behind.matcher_tree.custom_match.typed_config.value
    )
    assert [(list(one.domains), one.on_match.action.name) for one in domains.domain_matchers] == [
        (["*.x"], "2"),
        (["*.y"], "3"),
    ]
    assert behind.on_no_match.action.name == "4"


def test_without_wildcards_and_rest_what_is_no_name_finds_nothing() -> None:
    found = Matcher.FromString(compose_names([encode_names([("a", "1")])], [encode_wildcards(())]).data)
    assert not found.HasField("on_no_match")


def test_the_order_of_names_in_a_part_does_not_show() -> None:
    assert encode_names([("a", "1"), ("b", "2")]) == encode_names([("b", "2"), ("a", "1")])


def test_a_listener_of_parts_is_the_listener_of_all_chains() -> None:
    chains = [FilterChain((tls_inspector(),), name, handshake_timeout=3) for name in "abc"]
    matcher = encode_names([("a", "1")])
    composed = compose_names([matcher])
    address, inspect = SocketAddress("127.0.0.1", 1), (ListenerFilter(tls_inspector()),)
    parts = compose_listener(
        Listener("x", (chains[0],), address=address, listener_filters=inspect),
        [encode_chains(chains[1:2]), encode_chains(chains[2:])],
        composed,
    )
    whole = Listener("x", tuple(chains), address=address, listener_filters=inspect, matcher=composed.data)
    proto = protos.envoy.config.listener.v3.Listener
    assert proto.FromString(parts.data) == proto.FromString(encode_listener(whole).data)


def test_what_differs_in_one_part_has_another_digest() -> None:
    one, other = ([encode_names([("a", chain)]), encode(Matcher.MatcherTree.MatchMap())] for chain in "12")
    assert compose_names(one).digest != compose_names(other).digest
