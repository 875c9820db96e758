"""Matchers: trees that pick one of several things by properties of a connection, as xds.type.matcher.v3.Matcher.

What is picked is a name: of a filter chain in a listener. Cost of a look-up does not depend on the number of entries.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Struct

from xds import protos
from xds.messages.extension import Extension, extension, write_extension

_inputs = protos.envoy.extensions.matching.common_inputs.network.v3


class ExactMatch(Struct, frozen=True, gc=False):
    """Picks by the exact value of an input; `otherwise` is for values that are not there, None picks nothing."""

    input: Extension
    matches: tuple[tuple[str, OnMatch], ...]
    otherwise: OnMatch | None = None


class AddressRange(Struct, frozen=True, gc=False):
    """An IP address as text and how many of its bits count."""

    address: str
    bits: int


class AddressMatch(Struct, frozen=True, gc=False):
    """Picks by the range that the destination address is in, the most specific one."""

    matches: tuple[tuple[tuple[AddressRange, ...], OnMatch], ...]
    otherwise: OnMatch | None = None


class ServerNameMatch(Struct, frozen=True, gc=False):
    """Picks by the host a TLS client asks for; `*.` and a name stands for all below that, of whatever depth.

    The exact name goes before the longest wildcard. Names of one choice are kept together, so that thousands of them
    are written at once.
    """

    matches: tuple[tuple[tuple[str, ...], OnMatch], ...]
    otherwise: OnMatch | None = None


class Unlike(Struct, frozen=True, gc=False):
    """Picks `then` for values of an input that are there and have, somewhere, what `pattern` (RE2) stands for."""

    input: Extension
    pattern: str
    then: OnMatch
    otherwise: OnMatch


Match: TypeAlias = ExactMatch | AddressMatch | ServerNameMatch | Unlike
OnMatch: TypeAlias = str | Match
"""What is picked, or how to go on."""


def filter_state_input(name: str, key: str) -> Extension:
    """The value of a filter state object."""
    return extension(name, _inputs.FilterStateInput(key=key))


SERVER_NAME: Final = extension("sni", _inputs.ServerNameInput())
"""The host a TLS client asks for, in lower case."""
DESTINATION_PORT: Final = extension("port", _inputs.DestinationPortInput())
_DESTINATION_IP: Final = extension("ip", _inputs.DestinationIPInput())


def encode_matcher(match: Match) -> bytes:
    """The bytes of a Matcher."""
    message = protos.xds.type.matcher.v3.Matcher()
    _write(message, match)
    return message.SerializeToString(deterministic=True)


def _write(message: protos.xds.type.matcher.v3.Matcher, match: Match) -> None:
    if isinstance(match, Unlike):
        _write_unlike(message, match)
        return
    tree = message.matcher_tree
    if isinstance(match, ServerNameMatch):
        write_extension(tree.input, SERVER_NAME)
        names = protos.xds.type.matcher.v3.ServerNameMatcher()
        for domains, then in match.matches:
            write_then(names.domain_matchers.add(domains=domains).on_match, then)
        write_extension(tree.custom_match, extension("names", names))
    elif isinstance(match, ExactMatch):
        write_extension(tree.input, match.input)
        tree.exact_match_map.SetInParent()
        for value, then in match.matches:
            write_then(tree.exact_match_map.map[value], then)
    else:
        write_extension(tree.input, _DESTINATION_IP)
        addresses = protos.xds.type.matcher.v3.IPMatcher()
        for ranges, then in match.matches:
            matcher = addresses.range_matchers.add()
            for one in ranges:
                matcher.ranges.add(address_prefix=one.address).prefix_len.value = one.bits
            write_then(matcher.on_match, then)
        write_extension(tree.custom_match, extension("ip", addresses))
    if match.otherwise is not None:
        write_then(message.on_no_match, match.otherwise)


def _write_unlike(message: protos.xds.type.matcher.v3.Matcher, match: Unlike) -> None:
    field = message.matcher_list.matchers.add()
    predicate = field.predicate.single_predicate
    write_extension(predicate.input, match.input)
    predicate.value_match.safe_regex.google_re2.SetInParent()
    predicate.value_match.safe_regex.regex = f".*{match.pattern}.*"
    write_then(field.on_match, match.then)
    write_then(message.on_no_match, match.otherwise)


def write_then(place: protos.xds.type.matcher.v3.Matcher.OnMatch, then: OnMatch) -> None:
    """Fill an empty message: what is picked, or how to go on."""
    if isinstance(then, str):
        write_extension(place.action, extension(then, protos.google.protobuf.StringValue(value=then)))
    else:
        _write(place.matcher, then)
