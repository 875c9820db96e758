"""Listener of Envoy's LDS: where connections come in, and the chains of filters that take them.

A frozen record and its encoder. A listener is on a socket, or internal: connections then come from clusters of the same
Envoy. Filters and transport sockets are extensions, made by the modules that know them (xds.messages.filters,
xds.messages.hbone). Mind that most changes of a listener drain its connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from xds import protos
from xds.encoded import Encoded, concatenate, encode, merge
from xds.messages.extension import Extension, write_extension
from xds.messages.filters import AccessLog, write_access_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LISTENER_TYPE: Final = "type.googleapis.com/envoy.config.listener.v3.Listener"

_MATCHER: Final = 32  # Listener.filter_chain_matcher


class SocketAddress(Struct, frozen=True, gc=False):
    """An IP address as text, and a TCP port."""

    address: str
    port: int


class ListenerFilter(Struct, frozen=True, gc=False):
    """What looks at a connection before a chain is chosen; not at those to the ports in `disabled_on`."""

    extension: Extension
    disabled_on: tuple[int, ...] = ()


class FilterChain(Struct, frozen=True, gc=False):
    """What is done with a connection. `transport_socket` is what it comes in, None: plain bytes.

    `handshake_timeout` is how many seconds that may take to be set up, 0: for ever.
    """

    filters: tuple[Extension, ...]
    name: str = ""
    transport_socket: Extension | None = None
    handshake_timeout: int = 0


class Listener(Struct, frozen=True, gc=False):
    """One listener; without `address` it is internal.

    `matcher` is an encoded Matcher (xds.messages.matcher) that picks a chain by name; without one there is one chain,
    which takes all. `balanced`: new connections are spread over Envoy's threads evenly, for those that live long.
    `use_original_dst` False: a connection is never handed to another listener by the address it was to go to.
    """

    name: str
    filter_chains: tuple[FilterChain, ...]
    address: SocketAddress | None = None
    listener_filters: tuple[ListenerFilter, ...] = ()
    matcher: bytes = b""
    access_logs: tuple[AccessLog, ...] = ()
    inbound: bool = False
    balanced: bool = False
    use_original_dst: bool | None = None


def encode_listener(listener: Listener) -> Encoded:
    """The bytes of an envoy.config.listener.v3.Listener."""
    message = protos.envoy.config.listener.v3.Listener(name=listener.name)
    if listener.address is None:
        message.internal_listener.SetInParent()
    else:
        message.address.socket_address.address = listener.address.address
        message.address.socket_address.port_value = listener.address.port
    for listener_filter in listener.listener_filters:
        added = message.listener_filters.add()
        write_extension(added, listener_filter.extension)
        if listener_filter.disabled_on:
            _write_ports(added.filter_disabled, listener_filter.disabled_on)
    if listener.matcher:
        message.filter_chain_matcher.ParseFromString(listener.matcher)
    for chain in listener.filter_chains:
        _write_chain(message.filter_chains.add(), chain)
    for log in listener.access_logs:
        write_access_log(message.access_log.add(), log)
    if listener.inbound:
        message.traffic_direction = protos.envoy.config.core.v3.INBOUND
    if listener.balanced:
        message.connection_balance_config.exact_balance.SetInParent()
    if listener.use_original_dst is not None:
        message.use_original_dst.value = listener.use_original_dst
        message.use_original_dst.SetInParent()
    return encode(message)


def encode_chains(chains: Iterable[FilterChain]) -> Encoded:
    """Chains as a part of a listener (xds.encoded.merge), for `compose_listener`."""
    message = protos.envoy.config.listener.v3.Listener()
    for chain in chains:
        _write_chain(message.filter_chains.add(), chain)
    return encode(message)


def compose_listener(head: Listener, chains: Iterable[Encoded], matcher: Encoded) -> Encoded:
    """The bytes of a listener with chains and matcher that were encoded before, beside those of `head`."""
    return merge([encode_listener(head), *chains, concatenate(b"", [(_MATCHER, matcher)])])


def _write_chain(place: protos.envoy.config.listener.v3.FilterChain, chain: FilterChain) -> None:
    place.name = chain.name
    for one in chain.filters:
        write_extension(place.filters.add(), one)
    if chain.transport_socket is not None:
        write_extension(place.transport_socket, chain.transport_socket)
    if chain.handshake_timeout:
        place.transport_socket_connect_timeout.seconds = chain.handshake_timeout


def _write_ports(
    place: protos.envoy.config.listener.v3.ListenerFilterChainMatchPredicate, ports: Sequence[int]
) -> None:
    """A predicate that holds for any of these destination ports."""
    if len(ports) == 1:
        place.destination_port_range.start = ports[0]
        place.destination_port_range.end = ports[0] + 1  # not included
        return
    for port in ports:
        _write_ports(place.or_match.rules.add(), (port,))
