"""Requests of proxies as records: the one place where bytes from a stream are parsed.

Sessions take these records and never see a protobuf object. Whatever a proxy sends is checked for form here; what it
means is decided by the sessions, whom it is believed by the server. Unknown fields are ignored, bytes that are no such
message raise ProtocolViolation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message
from msgspec import Struct

from xds import protos
from xds.messages.http_filters import extensions_of_filters

Metadata = Mapping[str, str | None]
"""The entries of a node's metadata that are looked at, as far as they are there; None for one that is no text."""
KNOWN_METADATA: Final = (
    "CLUSTER_ID",
    "INSTANCE_IPS",
    "ISTHMUS_BIND",
    "ISTHMUS_HTTPS_PORT",
    "ISTHMUS_HTTP_PORT",
    "ISTHMUS_INGRESS_MODE",
    "NAME",
    "NAMESPACE",
    "NODE_NAME",
    "SERVICE_ACCOUNT",
)
"""Their names. Nothing else of the metadata is ever turned into Python objects: that would cost 150 ms a megabyte."""

HASHABLE_STRING: Final = "envoy.hashable_string"
"""Filter state that enters the key of upstream connection pools: stock Envoy has it, istio-proxy one of its own."""
ON_DEMAND_SECRETS: Final = "envoy.tls.certificate_selectors.on_demand_secret"
"""Certificates that are fetched when a client asks for their host."""
SERVER_NAME_MAPPER: Final = "envoy.tls.certificate_mappers.sni"
"""What makes the name of such a certificate of the host."""
FOR_ON_DEMAND: Final = frozenset({ON_DEMAND_SECRETS, SERVER_NAME_MAPPER}) | extensions_of_filters()
"""What an ingress gateway has to be built with to be served on demand; one that lacks a filter refuses listeners."""
KNOWN_EXTENSIONS: Final = FOR_ON_DEMAND | {HASHABLE_STRING}
"""The extensions of an Envoy that are looked at, of the five hundred it lists."""
MAX_EXTENSIONS: Final = 10_000
"""Extensions a node may list."""
MAX_NAMES: Final = 250_000
"""Names a client may hold or ask for, of one type."""
MAX_ERROR: Final = 1 << 20
"""Characters of a rejection's text that are read."""


class ProtocolViolation(Exception):
    """A client broke the protocol, or a limit that keeps one client from hurting the others; its stream must end."""


class Node(Struct, frozen=True):
    """Who the client says it is. Claims, all of them.

    `extensions` are those of the extensions built into it that make a difference to what it can be sent.
    """

    id: str
    cluster: str
    metadata: Metadata
    extensions: frozenset[str] = frozenset()


class DeltaRequest(Struct, frozen=True):
    """An envoy.service.discovery.v3.DeltaDiscoveryRequest.

    `error` is the message of a rejection, None without one. `node` is there on the first request of a stream at least.
    """

    type_url: str
    subscribe: tuple[str, ...] = ()
    unsubscribe: tuple[str, ...] = ()
    initial_resource_versions: Mapping[str, str] = {}
    response_nonce: str = ""
    error: str | None = None
    node: Node | None = None

    @property
    def held(self) -> bool:
        """Whether the client names what an earlier stream gave it."""
        return bool(self.initial_resource_versions)


class SotwRequest(Struct, frozen=True):
    """An envoy.service.discovery.v3.DiscoveryRequest (state of the world).

    `version_info` is the version the client holds, empty if none; the rest as in DeltaRequest.
    """

    type_url: str
    names: tuple[str, ...] = ()
    version_info: str = ""
    response_nonce: str = ""
    error: str | None = None
    node: Node | None = None

    @property
    def held(self) -> bool:
        """Whether the client names what this or an earlier stream gave it."""
        return bool(self.version_info)


def parse_delta(data: bytes) -> DeltaRequest:
    """The request in a message of DeltaAggregatedResources; raises ProtocolViolation."""
    message = _parse(protos.envoy.service.discovery.v3.DeltaDiscoveryRequest, data)
    _check_count("names to subscribe to", message.resource_names_subscribe, MAX_NAMES)
    _check_count("names to unsubscribe from", message.resource_names_unsubscribe, MAX_NAMES)
    _check_count("initial versions", message.initial_resource_versions, MAX_NAMES)
    return DeltaRequest(
        type_url=message.type_url,
        subscribe=tuple(message.resource_names_subscribe),
        unsubscribe=tuple(message.resource_names_unsubscribe),
        initial_resource_versions=dict(message.initial_resource_versions),
        response_nonce=message.response_nonce,
        error=message.error_detail.message[:MAX_ERROR] if message.HasField("error_detail") else None,
        node=_node(message.node) if message.HasField("node") else None,
    )


def parse_sotw(data: bytes) -> SotwRequest:
    """The request in a message of StreamAggregatedResources; raises ProtocolViolation."""
    message = _parse(protos.envoy.service.discovery.v3.DiscoveryRequest, data)
    _check_count("names", message.resource_names, MAX_NAMES)
    return SotwRequest(
        type_url=message.type_url,
        names=tuple(message.resource_names),
        version_info=message.version_info,
        response_nonce=message.response_nonce,
        error=message.error_detail.message[:MAX_ERROR] if message.HasField("error_detail") else None,
        node=_node(message.node) if message.HasField("node") else None,
    )


M = TypeVar("M", bound=Message)


def _parse(message_class: type[M], data: bytes) -> M:
    try:
        return message_class.FromString(data)
    except DecodeError as error:
        raise ProtocolViolation(
            f"a message of {len(data)} bytes is no {message_class.DESCRIPTOR.name}: {error}"
        ) from error


def _check_count(what: str, given: Sized, most: int) -> None:
    """Counts what the parser has found before any Python object is made of it."""
    if len(given) > most:
        raise ProtocolViolation(f"{len(given)} {what} in one request; {most} are the limit")


def _node(node: protos.envoy.config.core.v3.Node) -> Node:
    _check_count("extensions", node.extensions, MAX_EXTENSIONS)
    extensions = KNOWN_EXTENSIONS.intersection([extension.name for extension in node.extensions])
    fields = node.metadata.fields
    metadata: dict[str, str | None] = {}
    for key in KNOWN_METADATA:
        if key in fields:  # The map would make an entry of a name that is looked up.
            value = fields[key]
            metadata[key] = value.string_value if value.HasField("string_value") else None
    return Node(node.id, node.cluster, metadata, extensions)
