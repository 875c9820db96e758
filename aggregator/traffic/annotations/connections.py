"""Connections to a backend, as annotations want them: what is spoken there.

Two Ingresses that want one backend spoken to differently have two backends. So that a backend is known by its key
alone, what is unlike the default stands in the key (`Connections.text`), and is read from there (`of_text`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from aggregator.traffic.annotations.given import Given, Refused

ANNOTATIONS: Final[Mapping[str, str]] = {
    "backend-protocol": "What is spoken to the backend: HTTP, HTTPS, GRPC or GRPCS.",
}

_PROTOCOLS: Final = {"HTTP": "", "HTTPS": "https", "GRPC": "grpc", "GRPCS": "grpcs"}


class Connections(msgspec.Struct, frozen=True, gc=False):
    """How a backend is spoken to. `protocol` is https, grpc or grpcs, "" what its Service says."""

    protocol: str = ""

    def text(self) -> str:
        """The same as a part of a key: "" for what all have, else words between commas."""
        return self.protocol


DEFAULT: Final = Connections()


def of_text(text: str) -> Connections:
    """What `Connections.text` gave."""
    return Connections(text) if text else DEFAULT


def connections(given: Given) -> Connections:
    """What an Ingress says of the connections to its backends."""

    def protocol(text: str) -> str:
        if text.upper() not in _PROTOCOLS:
            raise Refused(f"must be one of {', '.join(_PROTOCOLS)}")
        return _PROTOCOLS[text.upper()]

    return Connections(given.value("backend-protocol", protocol, ""))
