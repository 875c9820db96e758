"""Extensions of Envoy: what is plugged in by name, with its configuration as a google.protobuf.Any.

Made by the module that knows the configuration, kept as bytes, and put into its parent as it is: filters, transport
sockets, access logs and inputs of matchers are all of this form. Records that hold them stay free of protobuf.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from xds import protos

if TYPE_CHECKING:
    from google.protobuf.message import Message

_PREFIX: Final = "type.googleapis.com/"


class Extension(Struct, frozen=True, gc=False):
    """A configured extension. Envoy finds it by the type of its configuration; the name is for people."""

    name: str
    type_url: str
    data: bytes


class Extended(Protocol):
    """A message with a place for an extension."""

    name: str

    @property
    def typed_config(self) -> protos.google.protobuf.Any:
        """The configuration."""


def extension(name: str, message: Message) -> Extension:
    """The extension that `message` configures."""
    return Extension(name, _PREFIX + message.DESCRIPTOR.full_name, message.SerializeToString(deterministic=True))


def write_extension(place: Extended, one: Extension) -> None:
    """Fill an empty place."""
    place.name = one.name
    write_any(place.typed_config, one)


def write_any(place: protos.google.protobuf.Any, one: Extension) -> None:
    """Fill a place that takes no name."""
    place.type_url = one.type_url
    place.value = one.data


def write_ads(source: protos.envoy.config.core.v3.ConfigSource) -> None:
    """Fill an empty message: what is there is fetched over the stream that everything comes over."""
    source.ads.SetInParent()
    source.resource_api_version = protos.envoy.config.core.v3.V3
