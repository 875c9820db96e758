"""What an Address says of where it is found and what it needs, read back from the bytes of its resource.

For those who are asked for a resource by another name than its own: only they need it, so nobody keeps it but they. The
names are those a ztunnel asks by: `<network>/<address>`, `<namespace>/<hostname>`, uids.
"""

from __future__ import annotations

from collections.abc import Iterable
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import Final

from msgspec import Struct

from xds import protos
from xds.encoded import Resource

_HOST_NETWORK: Final = 1  # NetworkMode.HOST_NETWORK
_HBONE: Final = 1  # TunnelProtocol.HBONE


class AddressEntry(Struct, frozen=True, gc=False):
    """A workload or (`is_service`) a service.

    `addresses` are names of the form `<network>/<address>` under which it is found, `ranges` those of a service that
    hold many, as (network, first address, bits). A workload that has its address from its node is not found by it.
    `needs` are the names of its gateway and its waypoints. `cluster`, `node` and `tunnel` are of workloads.
    """

    is_service: bool
    addresses: tuple[str, ...]
    ranges: tuple[tuple[str, bytes, int], ...]
    needs: tuple[str, ...]
    cluster: str = ""
    node: str = ""
    tunnel: bool = False


def address_name(network: str, address: bytes) -> str:
    """`<network>/<address>`, spelled as ztunnels do; "" for bytes that are no address."""
    if len(address) not in (4, 16):
        return ""
    return f"{network}/{inet_ntop(AF_INET if len(address) == 4 else AF_INET6, address)}"


def read_address_name(name: str) -> tuple[str, bytes] | None:
    """The network and the address of a name of that form, however it is spelled; None for another name."""
    network, separator, address = name.rpartition("/")
    if not separator:
        return None
    try:
        return network, inet_pton(AF_INET6 if ":" in address else AF_INET, address)
    except (OSError, ValueError):
        return None


def read_entry(resource: Resource) -> AddressEntry:
    """The entry of a resource of type ADDRESS_TYPE."""
    address = protos.istio.workload.Address.FromString(resource.body.tobytes())
    if address.HasField("service"):
        service = address.service
        single = [one for one in service.addresses if not one.HasField("length")]
        return AddressEntry(
            is_service=True,
            addresses=_names((one.network, one.address) for one in single),
            ranges=tuple(
                (one.network, one.address, one.length) for one in service.addresses if one.HasField("length")
            ),
            needs=tuple(
                _gateway(one)
                for one in (
                    *((service.waypoint,) if service.HasField("waypoint") else ()),
                    *(weighted.destination for weighted in service.weighted_waypoints),
                )
            ),
        )
    # Plain statements: this runs for every workload of the mesh.
    workload = address.workload
    needs: tuple[str, ...] = ()
    if workload.HasField("network_gateway"):
        needs = (_gateway(workload.network_gateway),)
    if workload.HasField("waypoint"):
        needs = (*needs, _gateway(workload.waypoint))
    addresses: tuple[str, ...] = ()
    if workload.network_mode != _HOST_NETWORK:
        network = workload.network
        addresses = tuple([name for one in workload.addresses if (name := address_name(network, one))])
    tunnel = workload.tunnel_protocol == _HBONE
    return AddressEntry(False, addresses, (), needs, workload.cluster_id, workload.node, tunnel)


def _names(addresses: Iterable[tuple[str, bytes]]) -> tuple[str, ...]:
    return tuple(name for network, address in addresses if (name := address_name(network, address)))


def _gateway(gateway: protos.istio.workload.GatewayAddress) -> str:
    if gateway.HasField("hostname"):
        return f"{gateway.hostname.namespace}/{gateway.hostname.hostname}"
    return address_name(gateway.address.network, gateway.address.address)
