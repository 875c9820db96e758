"""A small mesh as resources in the real Tables, and ztunnel stand-ins on sessions over them, without I/O between.

`ToldWorld` publishes what it is given, revision by revision, always complete in itself: nothing that is published names
a policy, gateway or waypoint that is not. `ToldStream` is one stream of a stand-in, which answers when it is told to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import count

import msgspec

from aggregator.app.address_books import SharedBook
from aggregator.app.aggregate import Tables
from aggregator.app.subscriptions import Interest as ViewInterest
from aggregator.app.subscriptions import Surroundings, TableViews
from aggregator.views import ztunnel
from tests.kit.ztunnel import ADDRESS_TYPE, AUTHORIZATION_TYPE, ZtunnelMachine
from tests.kit.ztunnel.records import GatewayAddress, NamespacedHostname, NetworkAddress
from tests.kit.ztunnel.state import State
from xds.encoded import ADMITS_ALL, ADMITS_HEALTHY, Resource, Ties, wrap
from xds.messages import addressing, authorization, service, workload
from xds.server.authority_in_force import AuthorityInForce
from xds.server.certificate_authority import CertificateAuthority
from xds.server.proxies import Proxy
from xds.session.actions import Send
from xds.session.delta_session import DeltaSession
from xds.session.requests import parse_delta
from xds.session.subscription import Interest

HOME = "home"
NODE = "node-1"
GATEWAY = "NetworkGateway/far/203.0.113.1/0"
_AUTHORITY = AuthorityInForce(CertificateAuthority.self_signed("cluster.local"))


class Pod(msgspec.Struct, frozen=True):
    """A workload of home, or (`behind`) of a network behind the gateway."""

    services: frozenset[str] = frozenset()
    healthy: bool = True
    policies: frozenset[str] = frozenset()
    behind: bool = False
    node: str = ""


class Backend(msgspec.Struct, frozen=True):
    """A service; `text` is whatever else changes about it, `ranges` are of its addresses those that are prefixes."""

    admits_all: bool = False
    waypoint: str = ""
    text: str = ""
    ranges: tuple[int, ...] = ()


class Mesh(msgspec.Struct, frozen=True):
    """All there is, by short name; what is named and does not exist is left out of what names it."""

    pods: Mapping[str, Pod] = {}
    services: Mapping[str, Backend] = {}
    policies: Mapping[str, str] = {}
    gateway: bool = False


def service_name(name: str) -> str:
    """`<namespace>/<hostname>` of a service."""
    return f"shop/{name}.shop.svc.cluster.local"


def pod_uid(name: str, *, behind: bool = False) -> str:
    """The uid of a pod, or of what is behind the gateway."""
    return f"far/SplitHorizonWorkload/edge/{name}" if behind else f"{HOME}//Pod/shop/{name}"


def pod_address(name: str) -> str:
    """The address of a pod, with its network."""
    return f"near/10.0.0.{_number(name)}"


def service_address(name: str) -> str:
    """The virtual address of a service, with its network."""
    return f"near/10.96.0.{_number(name)}"


def _number(name: str) -> int:
    return sum(name.encode()) % 250 + 1


def resources_of(mesh: Mesh) -> dict[tuple[str, str], Resource]:
    """What a ztunnel is told of a mesh, as rows of the resources Table."""
    rows: dict[tuple[str, str], Resource] = {}

    def put(type_url: str, resource: Resource) -> None:
        view = ztunnel.ADDRESSES if type_url == ADDRESS_TYPE else ztunnel.AUTHORIZATIONS
        rows[view.name, resource.name] = resource

    for name, text in mesh.policies.items():
        policy = authorization.Authorization(
            name, "shop", authorization.Scope.WORKLOAD_SELECTOR, authorization.Action.DENY
        )
        encoded = authorization.encode_authorization(msgspec.structs.replace(policy, name=name + text))
        put(AUTHORIZATION_TYPE, wrap(AUTHORIZATION_TYPE, f"shop/{name}", encoded))
    if mesh.gateway:
        gateway = workload.Workload(GATEWAY, "edge", "edge", (bytes((203, 0, 113, 1)),), network="far")
        put(ADDRESS_TYPE, wrap(ADDRESS_TYPE, GATEWAY, workload.encode_workload(gateway)))
    for name, backend in mesh.services.items():
        waypoint = None
        if backend.waypoint in mesh.services and backend.waypoint != name:
            hostname = service_name(backend.waypoint).partition("/")[2]
            waypoint = addressing.GatewayAddress(addressing.NamespacedHostname("shop", hostname), 15008)
        policy_of = service.HealthPolicy.ALLOW_ALL if backend.admits_all else service.HealthPolicy.ONLY_HEALTHY
        message = service.Service(
            name=name,
            namespace="shop",
            hostname=service_name(name).partition("/")[2],
            addresses=(
                addressing.NetworkAddress("near", bytes((10, 96, 0, _number(name)))),
                *(addressing.NetworkAddress("near", bytes((10, 97, 0, 0)), length) for length in backend.ranges),
            ),
            subject_alt_names=(backend.text,) if backend.text else (),
            waypoint=waypoint,
            load_balancing=service.LoadBalancing((), service.Mode.UNSPECIFIED, policy_of),
        )
        ties = Ties(admits=ADMITS_ALL if backend.admits_all else ADMITS_HEALTHY, rank=2 if waypoint else 0)
        put(ADDRESS_TYPE, wrap(ADDRESS_TYPE, service_name(name), service.encode_service(message), ties=ties))
    for name, pod in mesh.pods.items():
        if pod.behind and not mesh.gateway:
            continue
        joined = tuple(service_name(one) for one in sorted(pod.services))
        far = addressing.NetworkAddress("far", bytes((203, 0, 113, 1)))
        uid = pod_uid(name, behind=pod.behind)
        one = workload.Workload(
            uid=uid,
            name=name,
            namespace="shop",
            addresses=() if pod.behind else (bytes((10, 0, 0, _number(name))),),
            network="far" if pod.behind else "near",
            network_gateway=addressing.GatewayAddress(far, 15008) if pod.behind else None,
            services=tuple((one, ()) for one in joined),
            authorization_policies=tuple(f"shop/{one}" for one in sorted(pod.policies) if one in mesh.policies),
            status=workload.WorkloadStatus.HEALTHY if pod.healthy else workload.WorkloadStatus.UNHEALTHY,
            node=pod.node,
            cluster_id=HOME,
        )
        ties = Ties(joined, rank=3 if pod.behind or not pod.healthy else 1)
        put(ADDRESS_TYPE, wrap(ADDRESS_TYPE, uid, workload.encode_workload(one), ties=ties))
    return rows


def endpoints_of(mesh: Mesh) -> dict[str, set[str]]:
    """The endpoints a ztunnel should hold that knows all of a mesh: uids by name of the service."""
    there = {name: pod for name, pod in mesh.pods.items() if mesh.gateway or not pod.behind}
    return {
        service_name(name): {
            pod_uid(pod, behind=one.behind)
            for pod, one in there.items()
            if name in one.services and (one.healthy or backend.admits_all)
        }
        for name, backend in mesh.services.items()
    }


def endpoints_held(state: State) -> dict[str, set[str]]:
    """The endpoints a stand-in holds, likewise."""
    return {f"{one.namespace}/{one.hostname}": set(one.endpoints) for one in state.services}


def held_names(machine: ZtunnelMachine) -> set[str]:
    """The workloads and services a stand-in holds, by name."""
    state = machine.state
    return {*state.workloads.by_uid, *(f"{one.namespace}/{one.hostname}" for one in state.services)}


def standing_in(mesh: Mesh) -> set[str]:
    """What a ztunnel of NODE has to know without asking."""
    pods = {pod_uid(name) for name, pod in mesh.pods.items() if pod.node == NODE and not pod.behind}
    return pods | ({GATEWAY} if mesh.gateway else set())


def names_in(mesh: Mesh, asked: str) -> set[str]:
    """What is there by a name that one may ask by, of which a ztunnel must be told all."""
    pods = {pod_uid(name): pod_address(name) for name, pod in mesh.pods.items() if not pod.behind}
    found = {uid for uid, address in pods.items() if asked in (uid, address)}
    for name, backend in mesh.services.items():
        around = {"near/10.97.0.9"} if backend.ranges else set()
        if asked in {service_name(name), service_address(name), *around}:
            found.add(service_name(name))
    return found


def dangling(state: State) -> list[str]:
    """What a stand-in holds that names something it does not."""
    found = []
    for one in state.workloads.by_uid.values():
        found += [f"{one.uid}: {name}" for name in one.authorization_policies if name not in state.policies.by_name]
        if one.network_gateway is not None and not _knows(state, one.network_gateway):
            found.append(f"{one.uid}: {one.network_gateway}")
    for backend in state.services:
        if backend.waypoint is not None and not _knows(state, backend.waypoint):
            found.append(f"{backend.key}: {backend.waypoint}")
    return found


def _knows(state: State, gateway: GatewayAddress) -> bool:
    match gateway.destination:
        case NamespacedHostname() as hostname:
            return state.find_hostname(hostname) is not None
        case NetworkAddress() as address:
            return state.find_address(address, None) is not None


class ToldWorld:
    """A control plane's Tables. `restart` makes them anew: empty, with views that are only partial for a while."""

    def __init__(self) -> None:
        self.mesh = Mesh()
        self.restart()
        self.settle()

    def restart(self) -> None:
        """Forget everything that was published, and who reads it."""
        self.tables = Tables.empty()
        interest = ViewInterest(self.tables)
        interest.keep(*ztunnel.VIEWS)
        self.addresses = SharedBook(self.tables, HOME, later=lambda work: work())
        self._around = Surroundings(self.tables, interest, _AUTHORITY, 3600.0, HOME, self.addresses)
        self.mesh = Mesh()
        self.tables.settled.apply([(view.key, "partial") for view in ztunnel.VIEWS])

    def settle(self) -> None:
        """All there is has been read."""
        self.tables.settled.apply([(view.key, "settled") for view in ztunnel.VIEWS])

    def publish(self, mesh: Mesh) -> None:
        """Make this all there is, as one revision."""
        self.mesh = mesh
        wanted: dict[tuple[str, str], Resource | None] = {**resources_of(mesh)}
        gone = {key: None for key, _ in self.tables.resources.scan() if key not in wanted}
        self.tables.resources.apply([*gone.items(), *wanted.items()])

    def views(self, node: str) -> TableViews:
        """What a ztunnel on a node may read."""
        proxy = Proxy("z", "127.0.0.1:1", None, ztunnel.ROLE, "istio-system", "", HOME, node)
        return TableViews(self._around, proxy, lambda: None)


class ToldStream:
    """One stream of a stand-in, from the requests it opens with."""

    def __init__(self, world: ToldWorld, machine: ZtunnelMachine) -> None:
        self.machine = machine
        self._session = DeltaSession(world.views(machine.node.node_name), (f"n{number}" for number in count(1)))
        self.under_way: deque[bytes] = deque()
        self._now = 0.0
        for request in machine.open_stream():
            self._session.receive(parse_delta(request))

    def interest(self, type_url: str) -> Interest:
        """What the session takes it to be interested in."""
        return self._session._exchanges[type_url].interest

    def poll(self, advance: float = 0.0) -> None:
        """The control plane sends what it wants to."""
        self._now += advance
        for action in self._session.poll(self._now):
            if isinstance(action, Send):
                self.under_way.append(action.payload)

    def deliver(self) -> bool:
        """The stand-in takes the oldest response and answers it; False if there is none."""
        if not self.under_way:
            return False
        self._session.receive(parse_delta(self.machine.receive(self.under_way.popleft())))
        return True

    def ask(self, name: str) -> None:
        """The stand-in asks for a name."""
        self._session.receive(parse_delta(self.machine.demand(name)))

    def rest(self) -> None:
        """Everything is sent and answered."""
        for _ in range(200):
            self.poll(advance=0.1)
            if not self.deliver():
                self.poll(advance=1.0)
                if not self.under_way:
                    return
        raise AssertionError("no end of responses")

    def close(self) -> None:
        """The stream is lost, with what was under way."""
        self._session.close()
