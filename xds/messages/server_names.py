"""A matcher of thousands of server names: which filter chain takes a TLS client that asks for a host.

The same message as that of xds.messages.matcher, composed of parts that were encoded before (xds.encoded.merge): a host
that is added costs its part and a copy of the rest. Exact names are looked up in a map, wildcards in a table of their
own behind it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from xds import protos
from xds.encoded import Encoded, concatenate, encode, merge
from xds.messages.extension import Extension, write_extension
from xds.messages.matcher import SERVER_NAME, write_then

_matcher = protos.xds.type.matcher.v3
_DOMAINS: Final = "type.googleapis.com/xds.type.matcher.v3.ServerNameMatcher"
# Field numbers, for composing by concatenation.
_TREE: Final = 2  # Matcher.matcher_tree
_EXACT: Final = 2  # MatcherTree.exact_match_map


def encode_names(cases: Iterable[tuple[str, str]]) -> Encoded:
    """Server names and the chain of each, as a part for `compose_names`."""
    message = _matcher.Matcher.MatcherTree.MatchMap()
    for name, chain in cases:
        write_then(message.map[name], chain)
    return encode(message)


def encode_wildcards(cases: Iterable[tuple[str, str]]) -> Encoded:
    """The same for names `*.parent`, where `*` stands for any number of labels and the longest parent counts."""
    message = _matcher.ServerNameMatcher()
    for name, chain in cases:
        write_then(message.domain_matchers.add(domains=(name,)).on_match, chain)
    return encode(message)


def compose_names(names: Iterable[Encoded], wildcards: Iterable[Encoded] = (), otherwise: str = "") -> Encoded:
    """The bytes of a Matcher: exact names, of which there must be one, go before wildcards, those before `otherwise`.

    What finds no chain ("") is hung up on.
    """
    tree = _matcher.Matcher.MatcherTree()
    write_extension(tree.input, SERVER_NAME)
    exact = concatenate(tree.SerializeToString(deterministic=True), [(_EXACT, merge(names))])
    behind = _matcher.Matcher()
    if domains := merge(wildcards).data:
        last = behind.on_no_match.matcher
        write_extension(last.matcher_tree.input, SERVER_NAME)
        write_extension(last.matcher_tree.custom_match, Extension("wildcards", _DOMAINS, domains))
    else:
        last = behind
    if otherwise:
        write_then(last.on_no_match, otherwise)
    return merge([concatenate(b"", [(_TREE, exact)]), encode(behind)])
