"""ztunnel's side of delta xDS without I/O: bytes of responses in, bytes of requests out.

`open_stream` gives the first requests of a connection, `receive` the acknowledgement of a response after its content
went through `validation` into the `State`, `demand` the request for one more name. What the machine holds survives
the stream: opened again, it names every resource it holds with its version. No clock, no retries: `client` and
`reconnect` have those.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from sys import intern
from typing import Any

from google.protobuf.message import DecodeError
from msgspec import Struct

from tests.kit.ztunnel.readings import Oddity, PolicyUpdate, ServiceUpdate, Trait, WorkloadUpdate
from tests.kit.ztunnel.state import State
from tests.kit.ztunnel.validation import ADDRESS_TYPE, AUTHORIZATION_TYPE, Rejected, Undecodable, read
from xds import protos

_HISTORY = 1000


class UnreadableResponse(Exception):
    """A response that is no DeltaDiscoveryResponse: ztunnel drops the stream with status INTERNAL."""


class Node(Struct, frozen=True):
    """How a ztunnel presents itself; everything may be empty. `metadata` are the ISTIO_META_ variables."""

    instance_ip: str = "1.1.1.1"
    pod_name: str = ""
    namespace: str = ""
    node_name: str = ""
    metadata: Mapping[str, str] = {}

    def message(self) -> Any:
        """The `node` of the first requests."""
        node = protos.envoy.config.core.v3.Node()
        node.id = f"ztunnel~{self.instance_ip}~{self.pod_name}.{self.namespace}~{self.namespace}.svc.cluster.local"
        node.metadata.update(
            {
                "NAME": self.pod_name,
                "NAMESPACE": self.namespace,
                "INSTANCE_IPS": self.instance_ip,
                "NODE_NAME": self.node_name,
                **self.metadata,
            }
        )
        return node


class Received(Struct, frozen=True):
    """One response and the answer to it; `error` is empty for an acknowledgement."""

    type_url: str
    nonce: str
    version: str
    resources: tuple[str, ...]
    removed: tuple[str, ...]
    size: int
    error: str


class ZtunnelMachine:
    """One ztunnel's subscription and what it learned by it.

    `state`     what the accepted resources say
    `ready`     whether the data plane may open: a response of each awaited type was acknowledged, not rejected
    `received`  the last thousand responses in order
    `oddities`  what was accepted in silence and should not have been sent
    """

    def __init__(self, node: Node | None = None, *, on_demand: bool = False) -> None:
        self.node = node or Node()
        self.on_demand = on_demand
        self.state = State()
        self.received: deque[Received] = deque(maxlen=_HISTORY)
        self.oddities: list[Oddity] = []
        self.awaited = {AUTHORIZATION_TYPE} if on_demand else {ADDRESS_TYPE, AUTHORIZATION_TYPE}
        self._held: dict[str, dict[str, str]] = {ADDRESS_TYPE: {}, AUTHORIZATION_TYPE: {}}
        self._demanded: set[str] = set()

    @property
    def ready(self) -> bool:
        """Whether the readiness gate has opened; it never closes again."""
        return not self.awaited

    @property
    def demanded(self) -> frozenset[str]:
        """Names asked for whose callers still wait: only a resource or removal of that very name wakes them."""
        return frozenset(self._demanded)

    def held(self, type_url: str) -> Mapping[str, str]:
        """Name to version of what a reconnect would claim; a name asked for and never answered has version ""."""
        return self._held[type_url]

    def open_stream(self) -> tuple[bytes, ...]:
        """The two requests that a new stream starts with, to be sent without waiting for anything."""
        node = self.node.message()
        requests: list[bytes] = []
        for type_url in (ADDRESS_TYPE, AUTHORIZATION_TYPE):
            request = _request(type_url)
            request.node.CopyFrom(node)
            if self.on_demand and type_url == ADDRESS_TYPE:
                request.resource_names_subscribe.append("*")
                request.resource_names_unsubscribe.append("*")
            request.initial_resource_versions.update(self._held[type_url])
            requests.append(request.SerializeToString())
        return tuple(requests)

    def demand(self, name: str) -> bytes:
        """The request for a workload or service on demand, by `network/ip`, `namespace/hostname` or uid."""
        self._demanded.add(name)
        self._held[ADDRESS_TYPE].setdefault(name, "")
        request = _request(ADDRESS_TYPE)
        request.resource_names_subscribe.append(name)
        return bytes(request.SerializeToString())

    def receive(self, data: bytes) -> bytes:
        """Takes in a response; returns the request that acknowledges or rejects it. Raises UnreadableResponse."""
        response = protos.envoy.service.discovery.v3.DeltaDiscoveryResponse()
        try:
            response.ParseFromString(data)
        except DecodeError as cause:
            raise UnreadableResponse(str(cause)) from None
        rejections = self._take(response) if response.type_url in self._held else {}
        error = "; ".join(rejections.values())
        self.received.append(
            Received(
                type_url=intern(response.type_url),
                nonce=response.nonce,
                version=response.system_version_info,
                resources=tuple(intern(resource.name) for resource in response.resources),
                removed=tuple(intern(name) for name in response.removed_resources),
                size=len(data),
                error=error,
            )
        )
        answer = _request(response.type_url)
        answer.response_nonce = response.nonce
        if rejections:
            answer.error_detail.message = error
        else:
            self.awaited.discard(response.type_url)
        return bytes(answer.SerializeToString())

    def _take(self, response: Any) -> Mapping[int, str]:
        """Applies what is good in a response; returns `name: reason` of the rest by position, in the NACK's order."""
        updates: list[tuple[str, WorkloadUpdate | ServiceUpdate | PolicyUpdate]] = []
        refused: dict[int, str] = {}
        undecodable: dict[int, str] = {}
        for position, resource in enumerate(response.resources):
            try:
                updates.append((resource.name, self._read(response.type_url, resource)))
            except Undecodable as error:
                undecodable[position] = f"{resource.name}: {error}"
            except Rejected as error:
                refused[position] = f"{resource.name}: {error}"
        removals = tuple(response.removed_resources)
        self._note_names([resource.name for resource in response.resources], removals)
        self._apply(response.type_url, updates, removals)
        rejections = {**refused, **undecodable}
        self._retain(response, rejections)
        return rejections

    def _read(self, type_url: str, resource: Any) -> WorkloadUpdate | ServiceUpdate | PolicyUpdate:
        if not resource.HasField("resource"):
            raise Undecodable("XDS payload without resource")
        reading = read(type_url, resource.resource.value)
        traits = list(reading.traits)
        if resource.resource.type_url != type_url:
            traits.append((Trait.OTHER_TYPE_INSIDE, resource.resource.type_url))
        if resource.name != reading.update.key:
            traits.append((Trait.NAME_IS_NOT_KEY, reading.update.key))
        self.oddities.extend(Oddity(resource.name, trait, detail) for trait, detail in traits)
        return reading.update

    def _apply(
        self,
        type_url: str,
        updates: Iterable[tuple[str, WorkloadUpdate | ServiceUpdate | PolicyUpdate]],
        removals: tuple[str, ...],
    ) -> None:
        if type_url == AUTHORIZATION_TYPE:
            policies = [(name, update) for name, update in updates if isinstance(update, PolicyUpdate)]
            self.state.apply_policies(policies, removals)
        else:
            addresses = [update for _, update in updates if not isinstance(update, PolicyUpdate)]
            self.oddities.extend(self.state.apply_addresses(addresses, removals))

    def _note_names(self, names: list[str], removals: tuple[str, ...]) -> None:
        for name, count in Counter(names).items():
            if count > 1:
                self.oddities.append(Oddity(name, Trait.NAME_TWICE, f"{count} times"))
        for name in set(names).intersection(removals):
            self.oddities.append(Oddity(name, Trait.UPSERT_AND_REMOVAL))

    def _retain(self, response: Any, rejections: Mapping[int, str]) -> None:
        """Updates the versions claimed on reconnect: removals first, then everything but the names rejected."""
        held = self._held[response.type_url]
        rejected = {response.resources[position].name for position in rejections}
        for name in response.removed_resources:
            held.pop(name, None)
            self._demanded.discard(name)
        for resource in response.resources:
            self._demanded.discard(resource.name)
            if resource.name not in rejected:
                held[intern(resource.name)] = intern(resource.version)


def _request(type_url: str) -> Any:
    request = protos.envoy.service.discovery.v3.DeltaDiscoveryRequest()
    request.type_url = type_url
    return request
