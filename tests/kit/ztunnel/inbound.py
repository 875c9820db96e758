"""What the ztunnel of a destination does with a connection that arrives: accept it and whereto, or refuse it and why.

Input is the state of that ztunnel, its network, the workload it stands for and the arrival (authority, client identity,
addresses); output an `Accepted` or an `Answer` with the HTTP status that goes back. Policies are asked last, with the
port that the application will see.
"""

from __future__ import annotations

from ipaddress import ip_address

from msgspec import Struct

from tests.kit.ztunnel.authorization import Connection, Verdict, evaluate
from tests.kit.ztunnel.records import (
    INBOUND_PORT,
    Identity,
    IPAddress,
    NetworkAddress,
    Service,
    TunnelMode,
    Workload,
)
from tests.kit.ztunnel.routes import socket_address, split_socket_address
from tests.kit.ztunnel.state import State

_OWN_PORTS = frozenset({15001, 15006, INBOUND_PORT, 15080})


class Accepted(Struct, frozen=True):
    """The connection goes on to `address`; `service` is the one asked for by name.

    `proxy_target` is the destination announced to an application tunnel in front of the data, if there is one.
    """

    address: str
    verdict: Verdict
    service: str = ""
    proxy_target: str = ""


class Answer(Struct, frozen=True):
    """The connection is refused. `status` is 0 where no HTTP answer is given: plaintext, or a failed handshake."""

    status: int
    message: str
    verdict: Verdict | None = None


class _Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.answer = Answer(status, message)


def accept(
    state: State,
    network: str,
    workload: Workload,
    *,
    authority: str,
    identity: str,
    source_ip: str,
    connected_ip: str,
) -> Accepted | Answer:
    """A CONNECT request to `authority` that reached `workload` at `connected_ip`, port 15008.

    `identity` is that of the client's certificate (of the inner tunnel, if it came through a gateway). Raises
    ValueError for addresses that are none.
    """
    client = Identity.parse(identity)
    if client is None or client.trust_domain != workload.trust_domain:
        return Answer(0, f"invalid peer certificate: {identity} is not of trust domain {workload.trust_domain}")
    connected = ip_address(connected_ip)
    host, port = split_socket_address(authority)
    try:
        service = None
        if isinstance(host, str):
            service, port = _service_port(state, workload, host, port)
        else:
            _check_destination(state, network, workload, host, connected)
        if port in _OWN_PORTS:
            raise _Refused(503, "attempted recursive call to ourselves")
        dialled, proxy_target = _application(workload, network, connected, port, service, authority)
    except _Refused as refused:
        return refused.answer
    dialled_ip, dialled_port = split_socket_address(dialled)
    assert not isinstance(dialled_ip, str)
    verdict = evaluate(state, workload, Connection(client, ip_address(source_ip), connected, dialled_port))
    if not verdict.allowed:
        return Answer(401, f"connection closed due to policy rejection: {verdict.reason}", verdict)
    if proxy_target:
        dialled = socket_address(ip_address("::1" if dialled_ip.version == 6 else "127.0.0.1"), dialled_port)
    return Accepted(dialled, verdict, str(service.key) if service is not None else "", proxy_target)


def accept_plaintext(state: State, workload: Workload, *, source_ip: str, destination: str) -> Accepted | Answer:
    """A connection without tunnel to `destination`, `ip:port` of the workload."""
    host, port = split_socket_address(destination)
    if isinstance(host, str):
        raise ValueError(f"no address: {destination}")
    if port in _OWN_PORTS:
        return Answer(0, "attempted recursive call to ourselves")
    verdict = evaluate(state, workload, Connection(None, ip_address(source_ip), host, port))
    if not verdict.allowed:
        return Answer(0, f"connection closed due to policy rejection: {verdict.reason}", verdict)
    return Accepted(destination, verdict)


def _service_port(state: State, workload: Workload, hostname: str, port: int) -> tuple[Service, int]:
    """The service meant by a name and the port that this workload serves it on."""
    service = state.services.best_by_host(hostname, workload.namespace)
    if service is None:
        raise _Refused(503, f"no service or workload for hostname: {hostname}")
    endpoint = service.endpoints.get(workload.uid)
    if endpoint is not None and port in endpoint.ports:
        return service, endpoint.ports[port]
    if service.ports.get(port):
        return service, service.ports[port]
    raise _Refused(503, f"no port {port} for service: {hostname}")


def _check_destination(state: State, network: str, workload: Workload, asked: IPAddress, connected: IPAddress) -> None:
    """An address other than the one connected to is for a waypoint only, and only if it is the target's own."""
    if asked == connected or workload.application_tunnel is not None:
        return
    target = state.find_address(NetworkAddress(network, asked), None)
    if target is not None and target.waypoint is not None:
        destination = target.waypoint.destination
        match (
            state.find_address(destination, None)
            if isinstance(destination, NetworkAddress)
            else state.find_hostname(destination)
        ):
            case Service(endpoints=endpoints) if workload.uid in endpoints:
                return
            case Workload(addresses=addresses) if connected in addresses:
                return
    raise _Refused(400, f"ip mismatch: {connected} != {asked}")


def _application(
    workload: Workload, network: str, connected: IPAddress, port: int, service: Service | None, authority: str
) -> tuple[str, str]:
    """Where the application is dialled, and the target announced to it if it takes PROXY."""
    tunnel = workload.application_tunnel
    if tunnel is None:
        return socket_address(connected, port), ""
    dialled = socket_address(connected, tunnel.port or port)
    if tunnel.mode is not TunnelMode.PROXY:
        return dialled, ""
    if service is None:
        return dialled, authority
    vips = sorted(service.vips, key=lambda vip: (vip.network != network, vip.address.version))
    if not vips:
        raise _Refused(503, f"no ip addresses found for service: {service.hostname}")
    return dialled, socket_address(vips[0].address, split_socket_address(authority)[1])
