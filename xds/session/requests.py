"""Requests of proxies as records: the one place where bytes from a stream are parsed.

Sessions take these records and never see a protobuf object. Whatever a proxy sends is checked for form here; what it
means is decided by the sessions, whom it is believed by the server. Unknown fields are ignored, bytes that are no such
message raise ProtocolViolation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from google.protobuf.message import DecodeError, Message
from msgspec import Struct

from xds import protos

if TYPE_CHECKING:
    from google.protobuf.internal.containers import MessageMap

Metadata = dict[str, object]
"""A google.protobuf.Struct as Python objects: None, bool, float, str, lists and dicts."""


HASHABLE_STRING: Final = "envoy.hashable_string"
"""Filter state that enters the key of upstream connection pools: stock Envoy has it, istio-proxy one of its own."""
ON_DEMAND_SECRETS: Final = "envoy.tls.certificate_selectors.on_demand_secret"
"""Certificates that are fetched when a client asks for their host."""
KNOWN_EXTENSIONS: Final = frozenset({HASHABLE_STRING, ON_DEMAND_SECRETS})
"""The extensions of an Envoy that are looked at, of the five hundred it lists."""


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


def parse_delta(data: bytes) -> DeltaRequest:
    """The request in a message of DeltaAggregatedResources; raises ProtocolViolation."""
    message = _parse(protos.envoy.service.discovery.v3.DeltaDiscoveryRequest, data)
    return DeltaRequest(
        type_url=message.type_url,
        subscribe=tuple(message.resource_names_subscribe),
        unsubscribe=tuple(message.resource_names_unsubscribe),
        initial_resource_versions=dict(message.initial_resource_versions),
        response_nonce=message.response_nonce,
        error=message.error_detail.message if message.HasField("error_detail") else None,
        node=_node(message.node) if message.HasField("node") else None,
    )


def parse_sotw(data: bytes) -> SotwRequest:
    """The request in a message of StreamAggregatedResources; raises ProtocolViolation."""
    message = _parse(protos.envoy.service.discovery.v3.DiscoveryRequest, data)
    return SotwRequest(
        type_url=message.type_url,
        names=tuple(message.resource_names),
        version_info=message.version_info,
        response_nonce=message.response_nonce,
        error=message.error_detail.message if message.HasField("error_detail") else None,
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


def _node(node: protos.envoy.config.core.v3.Node) -> Node:
    extensions = KNOWN_EXTENSIONS.intersection([extension.name for extension in node.extensions])
    return Node(node.id, node.cluster, _struct(node.metadata.fields), extensions)


def _struct(fields: MessageMap[str, protos.google.protobuf.Value]) -> Metadata:
    return {key: _value(value) for key, value in fields.items()}


def _value(value: protos.google.protobuf.Value) -> object:
    # Deep nesting is no danger: protobuf's parser refuses more than a hundred levels.
    match value.WhichOneof("kind"):
        case "string_value":
            return value.string_value
        case "number_value":
            return value.number_value
        case "bool_value":
            return value.bool_value
        case "struct_value":
            return _struct(value.struct_value.fields)
        case "list_value":
            return [_value(element) for element in value.list_value.values]
        case _:
            return None
