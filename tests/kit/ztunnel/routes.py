"""What `routing` answers with: a route or a refusal, and the forms in which addresses and workloads are written.

Records only; they hold text, so that a test can state a whole route and compare.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from fractions import Fraction
from ipaddress import ip_address

from msgspec import Struct

from tests.kit.ztunnel.records import IPAddress, Workload


class Tunnel(StrEnum):
    """How a connection travels."""

    NONE = "none"
    """Plain TCP."""
    HBONE = "hbone"
    """One mTLS tunnel to the destination's proxy or to a waypoint."""
    DOUBLE_HBONE = "double-hbone"
    """A tunnel to a network gateway, and within it one to the destination's proxy or waypoint."""


class Reason(StrEnum):
    """Why a connection fails before it is dialled."""

    UNKNOWN_SOURCE = "unknown-source"
    UNKNOWN_HOSTNAME = "unknown-hostname"
    NO_HEALTHY_UPSTREAM = "no-healthy-upstream"
    NO_VALID_DESTINATION = "no-valid-destination"
    UNKNOWN_WAYPOINT = "unknown-waypoint"
    UNKNOWN_GATEWAY = "unknown-gateway"
    NO_SERVICE = "no-service"


class Refusal(Struct, frozen=True, gc=False):
    """The connection fails; `message` is worded as in ztunnel's access log."""

    reason: Reason
    message: str


class Route(Struct, frozen=True, gc=False):
    """A connection as it leaves.

    `address`           what is dialled, `ip:port`; `hostname:port` if the name is left to DNS
    `authority`         of the CONNECT request, the same in both tunnels; empty without tunnel
    `identities`        one of these must be in the certificate of whoever answers at `address`
    `inner_identities`  the same for the inner tunnel of two; empty means that every handshake fails
    `source`            the identity shown to both; None without tunnel
    `workload`, `service`  uid of the next hop and key of the service asked for, where there are such
    `waypoint`          whether the next hop (or the end of the inner tunnel) is a waypoint
    `baggage`, `forwarded_host`, `forwarded_network`  headers of the request; the last is in the inner one only
    """

    tunnel: Tunnel
    address: str
    authority: str = ""
    identities: tuple[str, ...] = ()
    inner_identities: tuple[str, ...] = ()
    source: str | None = None
    workload: str = ""
    endpoint: str = ""
    service: str = ""
    waypoint: bool = False
    baggage: str = ""
    forwarded_host: str = ""
    forwarded_network: str = ""


class Share(Struct, frozen=True):
    """One possible outcome of a connection and how often it comes; the shares of a destination add up to 1."""

    probability: Fraction
    outcome: Route | Refusal


def certificate_error(accepted: Iterable[str], presented: str) -> str:
    """Why the handshake fails when a peer presents an identity and these are accepted; empty when it succeeds.

    With nothing accepted every handshake fails.
    """
    wanted = tuple(accepted)
    if presented in wanted:
        return ""
    return f"invalid peer certificate: peer did not present the expected SAN ({', '.join(wanted)}), got {presented}"


def socket_address(host: IPAddress | str, port: int) -> str:
    """`host:port` as ztunnel writes it."""
    return f"[{host}]:{port}" if isinstance(host, IPAddress) and host.version == 6 else f"{host}:{port}"


def split_socket_address(text: str) -> tuple[IPAddress | str, int]:
    """Host and port of `host:port`; the host is an address if it is one. Raises ValueError."""
    host, _, port = text.rpartition(":")
    try:
        return ip_address(host.strip("[]")), int(port)
    except ValueError:
        if not host or ":" in host:
            raise ValueError(f"no socket address: {text}") from None
        return host, int(port)


def baggage(workload: Workload) -> str:
    """The baggage header with which a workload describes itself."""
    parts = (
        ("k8s.cluster.name", workload.cluster_id),
        ("k8s.namespace.name", workload.namespace),
        (f"k8s.{workload.workload_type}.name", workload.workload_name),
        ("service.name", workload.canonical_name),
        ("service.version", workload.canonical_revision),
        ("cloud.region", workload.locality.region),
        ("cloud.availability_zone", workload.locality.zone),
    )
    return ",".join(f"{key}={value}" for key, value in parts if value)
