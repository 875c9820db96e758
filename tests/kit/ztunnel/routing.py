"""Where a ztunnel sends a connection of one of its workloads, and which identities it will accept there.

`routes` gives every outcome a connection may have with its probability, since ztunnel draws endpoints, waypoints and
gateways by weight; `connect` gives the likeliest. Input is the state, the proxy's network, the source workload and the
address asked for; nothing is dialled. The order of the steps is ztunnel's: service waypoint, endpoint of the service or
workload at the address, gateway if that is on another network, workload waypoint, direct.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from msgspec import Struct

from tests.kit.ztunnel.balancing import Candidate, candidates
from tests.kit.ztunnel.names import resolve
from tests.kit.ztunnel.records import (
    INBOUND_PORT,
    GatewayAddress,
    Identity,
    IPAddress,
    NamespacedHostname,
    NetworkAddress,
    Protocol,
    Service,
    Workload,
)
from tests.kit.ztunnel.routes import (
    Reason,
    Refusal,
    Route,
    Share,
    Tunnel,
    baggage,
    socket_address,
    split_socket_address,
)
from tests.kit.ztunnel.state import State


class _Upstream(Struct, frozen=True):
    """A workload chosen as next hop. `ip` None: it has no address of its own and is behind a gateway."""

    workload: Workload
    ip: IPAddress | str | None
    port: int
    service: Service | None

    @property
    def socket(self) -> str | None:
        return None if self.ip is None else socket_address(self.ip, self.port)

    @property
    def service_identities(self) -> tuple[str, ...]:
        names = self.service.subject_alt_names if self.service is not None else ()
        return tuple(name for name in names if Identity.parse(name) is not None)

    @property
    def identities(self) -> tuple[str, ...]:
        return (*self.service_identities, str(self.workload.identity))


def connect(state: State, network: str, source: Workload, destination: str) -> Route | Refusal:
    """The likeliest outcome of `routes`; among equally likely ones the first by workload uid."""
    return routes(state, network, source, destination)[0].outcome


def routes(state: State, network: str, source: Workload, destination: str) -> tuple[Share, ...]:
    """Every outcome of a connection from `source`, a workload of a proxy in `network`, likeliest first.

    `destination` is `ip:port` or `[ipv6]:port`, or `hostname:port` with the full name of a service, which stands for
    the first address that ztunnel's DNS would answer with. Equal outcomes are one share.
    """
    host, port = split_socket_address(destination)
    if isinstance(host, str):
        resolved = resolve(state, source, host)
        if not resolved:
            return (Share(Fraction(1), Refusal(Reason.UNKNOWN_HOSTNAME, f"no addresses for hostname: {host}")),)
        host = resolved[0]
    shares: dict[Route | Refusal, Fraction] = {}
    for probability, outcome in _Connection(state, network, source, host, port).outcomes():
        shares[outcome] = shares.get(outcome, Fraction(0)) + probability
    ordered = sorted(shares.items(), key=lambda share: (-share[1], _sort_key(share[0])))
    return tuple(Share(probability, outcome) for outcome, probability in ordered)


_Outcomes = Iterable[tuple[Fraction, Route | Refusal]]


class _Connection:
    """The decisions about one connection."""

    def __init__(self, state: State, network: str, source: Workload, ip: IPAddress, port: int) -> None:
        self._state = state
        self._network = network
        self._source = source
        self._ip = ip
        self._port = port
        self._target = socket_address(ip, port)

    def outcomes(self) -> _Outcomes:
        service = self._state.find_address(NetworkAddress(self._network, self._ip), self._source.namespace)
        if not isinstance(service, Service):
            yield from self._to_endpoint(None)
            return
        waypoints = _service_waypoints(service)
        if not waypoints:
            yield from self._to_endpoint(service)
        for weight, gateway in waypoints:
            for probability, outcome in self._to_waypoint(service, gateway):
                yield weight * probability, outcome

    def _to_waypoint(self, service: Service, gateway: GatewayAddress) -> _Outcomes:
        for probability, upstream in self._at_gateway(gateway, Reason.UNKNOWN_WAYPOINT):
            if isinstance(upstream, Refusal):
                yield probability, upstream
            elif upstream.workload.network != self._source.network:
                for inner, outcome in self._through_gateway(upstream, service, waypoint=True):
                    yield probability * inner, outcome
            else:
                yield probability, self._hop_to_waypoint(upstream, service)

    def _to_endpoint(self, service: Service | None) -> _Outcomes:
        """Traffic that no service waypoint takes."""
        for probability, upstream in self._upstreams(self._source.network, self._ip, self._port, waypoint=False):
            if isinstance(upstream, Refusal):
                yield probability, upstream
            elif upstream is None:
                yield probability, self._without_upstream(service)
            elif upstream.workload.network != self._source.network:
                for inner, outcome in self._to_other_network(upstream, service):
                    yield probability * inner, outcome
            else:
                for inner, outcome in self._within_network(upstream, service):
                    yield probability * inner, outcome

    def _without_upstream(self, service: Service | None) -> Route | Refusal:
        if service is not None and not service.passthrough:
            return Refusal(Reason.NO_HEALTHY_UPSTREAM, f"no healthy upstream: {self._target}")
        return Route(Tunnel.NONE, self._target)

    def _to_other_network(self, upstream: _Upstream, service: Service | None) -> _Outcomes:
        if service is None:
            yield Fraction(1), Refusal(Reason.NO_SERVICE, f"no service for target address: {self._target}")
        else:
            yield from self._through_gateway(upstream, service, waypoint=False)

    def _through_gateway(self, upstream: _Upstream, service: Service, *, waypoint: bool) -> _Outcomes:
        """Two tunnels: the outer ends at the gateway of the upstream's network, the inner behind it.

        Whoever ends the inner one must show a name of the service through which the upstream was chosen; the upstream's
        own account does not count.
        """
        gateway = upstream.workload.network_gateway
        if gateway is None:
            yield Fraction(1), _no_valid_destination(upstream.workload)
            return
        for probability, hop in self._at_gateway(gateway, Reason.UNKNOWN_GATEWAY):
            if isinstance(hop, Refusal):
                yield probability, hop
            elif hop.socket is None:
                yield probability, _no_valid_destination(hop.workload)
            else:
                yield (
                    probability,
                    Route(
                        Tunnel.DOUBLE_HBONE,
                        hop.socket,
                        authority=f"{service.hostname}:{self._port}",
                        identities=hop.identities,
                        inner_identities=upstream.service_identities,
                        source=str(self._source.identity),
                        workload=hop.workload.uid,
                        endpoint=upstream.workload.uid,
                        service=str(service.key),
                        waypoint=waypoint,
                        baggage=baggage(self._source),
                        forwarded_host=service.hostname,
                        forwarded_network=self._network,
                    ),
                )

    def _within_network(self, upstream: _Upstream, service: Service | None) -> _Outcomes:
        workload = upstream.workload
        if service is None and workload.waypoint is not None and not self._comes_from(workload.waypoint):
            for probability, hop in self._at_gateway(workload.waypoint, Reason.UNKNOWN_WAYPOINT):
                yield probability, hop if isinstance(hop, Refusal) else self._hop_to_waypoint(hop, upstream.service)
        elif upstream.ip is None:
            yield Fraction(1), _no_valid_destination(workload)
        else:
            yield Fraction(1), self._direct(upstream, upstream.ip)

    def _direct(self, upstream: _Upstream, ip: IPAddress | str) -> Route:
        """To the workload itself: plain, or by its proxy with the application's address as authority."""
        application = socket_address(ip, upstream.port)
        if upstream.workload.protocol is Protocol.HBONE:
            proxy = socket_address(ip, INBOUND_PORT)
            return self._hbone(upstream, proxy, application, upstream.service, waypoint=False)
        return Route(
            Tunnel.NONE,
            application,
            workload=upstream.workload.uid,
            endpoint=upstream.workload.uid,
            service=str(upstream.service.key) if upstream.service is not None else "",
        )

    def _hop_to_waypoint(self, upstream: _Upstream, service: Service | None) -> Route | Refusal:
        """The tunnel to a waypoint of the same network asks for the original address, not for an endpoint."""
        if upstream.socket is None:
            return _no_valid_destination(upstream.workload)
        return self._hbone(upstream, upstream.socket, self._target, service, waypoint=True)

    def _hbone(
        self, upstream: _Upstream, address: str, authority: str, service: Service | None, *, waypoint: bool
    ) -> Route:
        return Route(
            Tunnel.HBONE,
            address,
            authority=authority,
            identities=upstream.identities,
            source=str(self._source.identity),
            workload=upstream.workload.uid,
            endpoint=upstream.workload.uid,
            service=str(service.key) if service is not None else "",
            waypoint=waypoint,
            baggage=baggage(self._source),
            forwarded_host=service.hostname if service is not None else "",
        )

    def _comes_from(self, waypoint: GatewayAddress) -> bool:
        """Whether the source is itself a workload of that waypoint."""
        if isinstance(waypoint.destination, NamespacedHostname):
            found = self._state.find_hostname(waypoint.destination)
        else:
            found = self._state.find_address(waypoint.destination, None)
        if isinstance(found, Service):
            members = [self._state.workloads.by_uid.get(uid) for uid in found.endpoints]
        else:
            members = [found]
        addresses = set(self._source.addresses)
        return any(
            member is not None
            and member.identity == self._source.identity
            and not addresses.isdisjoint(member.addresses)
            for member in members
        )

    def _at_gateway(self, gateway: GatewayAddress, reason: Reason) -> Sequence[tuple[Fraction, _Upstream | Refusal]]:
        """Who answers at a waypoint or network gateway; a reference to something unknown fails the connection."""
        waypoint = reason is Reason.UNKNOWN_WAYPOINT
        what = "waypoint" if waypoint else "network gateway"
        found: Sequence[tuple[Fraction, _Upstream | Refusal | None]]
        if isinstance(gateway.destination, NetworkAddress):
            address = gateway.destination
            found = self._upstreams(address.network, address.address, gateway.port, waypoint=waypoint)
            missing = f"unknown {what}: {what} GatewayAddress {{{address}:{gateway.port}}} not found"
        else:
            missing = f"unknown {what}: {what} {gateway.destination.hostname} not found"
            match self._state.find_hostname(gateway.destination):
                case Service() as service:
                    found = self._of_service(service, gateway.port, self._ip, waypoint=waypoint)
                case Workload() as workload:
                    found = [(Fraction(1), self._finish(workload, gateway.port, None, self._ip))]
                case _:
                    found = []
        return [
            (probability, Refusal(reason, missing) if upstream is None else upstream)
            for probability, upstream in found or [(Fraction(1), None)]
        ]

    def _upstreams(
        self, network: str, ip: IPAddress, port: int, *, waypoint: bool
    ) -> Sequence[tuple[Fraction, _Upstream | Refusal | None]]:
        """Next hops for an address: as a virtual address first, then as a workload's. None: there is none."""
        address = NetworkAddress(network, ip)
        service = self._state.services.best_by_vip(address, self._source.namespace)
        if service is not None:
            return (
                [(Fraction(1), None)] if service.passthrough else self._of_service(service, port, ip, waypoint=waypoint)
            )
        workload = self._state.workloads.find_address(address)
        return [(Fraction(1), None if workload is None else self._finish(workload, port, None, ip))]

    def _of_service(
        self, service: Service, port: int, asked: IPAddress, *, waypoint: bool
    ) -> Sequence[tuple[Fraction, _Upstream | Refusal | None]]:
        found = candidates(self._state, self._source, service, port, waypoint=waypoint)
        total = sum(candidate.weight for candidate in found)
        if not total:
            return [(Fraction(1), None)]
        return [
            (Fraction(candidate.weight, total), self._finish_candidate(candidate, service, asked))
            for candidate in found
            if candidate.weight
        ]

    def _finish_candidate(self, candidate: Candidate, service: Service, asked: IPAddress) -> _Upstream | Refusal | None:
        if candidate.port is None:
            return None
        return self._finish(candidate.workload, candidate.port, service, asked)

    def _finish(self, workload: Workload, port: int, service: Service | None, asked: IPAddress) -> _Upstream | Refusal:
        """Picks the address: the one asked for, else one of the asked one's family that the service permits."""
        if asked in workload.addresses:
            return _Upstream(workload, asked, port, service)
        family = service.ip_family if service is not None else None
        usable = [address for address in workload.addresses if family is None or family.accepts(address)]
        for address in sorted(usable, key=lambda address: address.version != asked.version):
            return _Upstream(workload, address, port, service)
        if workload.hostname:
            return _Upstream(workload, workload.hostname, port, service)
        if workload.network_gateway is None:
            return _no_valid_destination(workload)
        return _Upstream(workload, None, port, service)


def _service_waypoints(service: Service) -> list[tuple[Fraction, GatewayAddress]]:
    """Waypoints of a service by share: the weighted ones, unless none has a weight; then the single one, if any."""
    total = sum(entry.weight for entry in service.weighted_waypoints)
    if total:
        return [
            (Fraction(entry.weight, total), entry.destination) for entry in service.weighted_waypoints if entry.weight
        ]
    return [(Fraction(1), service.waypoint)] if service.waypoint is not None else []


def _no_valid_destination(workload: Workload) -> Refusal:
    return Refusal(Reason.NO_VALID_DESTINATION, f"no valid routing destination for workload: {workload.name}")


def _sort_key(outcome: Route | Refusal) -> tuple[str, str]:
    return ("", outcome.message) if isinstance(outcome, Refusal) else (outcome.endpoint, outcome.address)
