"""ADS streams in memory: the handler's own read and write, a peer that can be slow, silent or gone, and its content.

`Peer` is one end of a stream that `Streams` serves in the same loop; `Content` is what there is to serve. Nothing here
sleeps or polls: what a test waits for, it awaits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any

from tests.kit.accounts import NODE_ID, ZTUNNEL
from xds import protos
from xds.encoded import Resource
from xds.server.authentication import Caller, Identity
from xds.server.dialogue import Disconnected, Variant
from xds.server.proxies import Proxy
from xds.server.streams import Streams
from xds.session.content import Changes, State, Subscription

discovery = protos.envoy.service.discovery.v3


class MemoryTransport:
    """Both directions of a stream. `room` is how many responses fit between the server and a peer that does not read.

    Set `fail` to have writes raise it.
    """

    def __init__(self, room: int = 1) -> None:
        self.fail: Exception | None = None
        self.requests: asyncio.Queue[bytes | type[Disconnected] | None] = asyncio.Queue()
        self.responses: asyncio.Queue[bytes] = asyncio.Queue(room)

    async def read(self) -> bytes | None:
        """The next request; None after the peer's last one."""
        request = await self.requests.get()
        if isinstance(request, type):
            raise request
        return request

    async def write(self, message: bytes) -> None:
        """Waits until there is room."""
        if self.fail is not None:
            raise self.fail
        await self.responses.put(message)


class Peer:
    """The client of one stream, which begins at once and is cancelled when the context ends."""

    def __init__(
        self,
        streams: Streams,
        variant: Variant = "delta",
        *,
        identity: Identity | None = ZTUNNEL,
        room: int = 1,
        node_id: str = NODE_ID,
    ) -> None:
        self.transport = MemoryTransport(room)
        self._variant = variant
        self._node = protos.envoy.config.core.v3.Node(id=node_id)
        self._first = True
        caller = Caller("10.0.0.1:1000", identity, "west")
        self.served = asyncio.ensure_future(streams.serve(variant, self.transport, caller))

    async def __aenter__(self) -> Peer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.served.cancel()
        await asyncio.wait((self.served,))
        if not self.served.cancelled():
            self.served.exception()  # A test that minds has awaited it.

    def ask(self, type_url: str, **fields: Any) -> None:
        """Sends a request; the first one carries the node."""
        request: Any = (discovery.DeltaDiscoveryRequest if self._variant == "delta" else discovery.DiscoveryRequest)(
            type_url=type_url, **fields
        )
        if self._first:
            request.node.CopyFrom(self._node)
            self._first = False
        self.send(request.SerializeToString())

    def ack(self, response: Any) -> None:
        """Accepts a response."""
        fields = {} if self._variant == "delta" else {"version_info": response.version_info}
        self.ask(response.type_url, response_nonce=response.nonce, **fields)

    def nack(self, response: Any, message: str) -> None:
        """Rejects a response."""
        status = protos.google.rpc.Status(code=3, message=message)
        self.ask(response.type_url, response_nonce=response.nonce, error_detail=status)

    def send(self, request: bytes) -> None:
        """Sends bytes as they are."""
        self.transport.requests.put_nowait(request)

    def half_close(self) -> None:
        """Sends no more."""
        self.transport.requests.put_nowait(None)

    def disconnect(self) -> None:
        """Is gone."""
        self.transport.requests.put_nowait(Disconnected)

    async def response(self) -> Any:
        """The next response, decoded; raises what the stream ends with if there comes none."""
        arrival = asyncio.ensure_future(self.transport.responses.get())
        await asyncio.wait((arrival, self.served), timeout=5, return_when=asyncio.FIRST_COMPLETED)
        if not arrival.done():
            arrival.cancel()
            assert self.served.done(), "no response within 5 s"
            await self.served
            raise AssertionError("the stream has ended")
        response = discovery.DeltaDiscoveryResponse if self._variant == "delta" else discovery.DiscoveryResponse
        return response.FromString(arrival.result())

    @property
    def silent(self) -> bool:
        """Whether no response has arrived that was not read."""
        return self.transport.responses.empty()


async def turns(count: int = 20) -> None:
    """Lets everything that is ready run, over and over: after it, what has not happened needs an event to happen."""
    for _ in range(count):
        await asyncio.sleep(0)


class Content:
    """The content of all types for all proxies, and the readings that are open. A Views factory for Streams."""

    def __init__(self, state: State = "settled") -> None:
        self.state: State = state
        self.resources: dict[str, dict[str, Resource]] = {}
        self.readings: list[Reading] = []
        self.proxies: list[Proxy] = []
        self.unserved: set[str] = set()
        self.revision = 0

    def views_for(self, proxy: Proxy, bell: Callable[[], None]) -> ProxyViews:
        """The views of a proxy."""
        self.proxies.append(proxy)
        return ProxyViews(self, bell)

    def apply(self, type_url: str, *changed: Resource, removed: Iterable[str] = (), cause: object = None) -> None:
        """Changes content, and rings."""
        self.revision += 1
        held = self.resources.setdefault(type_url, {})
        held.update((resource.name, resource) for resource in changed)
        changes: dict[str, Resource | None] = {resource.name: resource for resource in changed}
        for name in removed:
            del held[name]
            changes[name] = None
        for reading in self.readings:
            if reading.type_url == type_url:
                reading.note(changes, cause)

    def become(self, state: State) -> None:
        """Changes how complete the content is, and rings."""
        self.state = state
        for reading in self.readings:
            reading.bell()


class ProxyViews:
    """What one proxy may read."""

    def __init__(self, content: Content, bell: Callable[[], None]) -> None:
        self._content = content
        self._bell = bell

    def open(self, type_url: str) -> Subscription | None:
        """Begins to read a type."""
        if type_url in self._content.unserved:
            return None
        reading = Reading(self._content, type_url, self._bell)
        self._content.readings.append(reading)
        return reading


class Reading:
    """One subscription."""

    def __init__(self, content: Content, type_url: str, bell: Callable[[], None]) -> None:
        self.type_url = type_url
        self.bell = bell
        self._content = content
        self._changes: dict[str, Resource | None] = {}
        self._causes: list[object] = []

    @property
    def state(self) -> State:
        """How complete the content is."""
        return self._content.state

    @property
    def pending(self) -> bool:
        """Whether anything has changed."""
        return bool(self._changes)

    def note(self, changes: Mapping[str, Resource | None], cause: object) -> None:
        """Something changed."""
        rings = not self._changes
        self._changes.update(changes)
        if cause is not None:
            self._causes.append(cause)
        if rings:
            self.bell()

    def take(self) -> Changes:
        """What changed since last time."""
        changes = Changes(self._changes, tuple(self._causes), self._content.revision)
        self._changes, self._causes = {}, []
        return changes

    def get(self, name: str) -> Resource | None:
        """One resource."""
        return self._content.resources.get(self.type_url, {}).get(name)

    def items(self) -> Iterator[tuple[str, Resource]]:
        """All resources."""
        return iter(self._content.resources.get(self.type_url, {}).items())

    def final(self, name: str) -> bool:
        return False

    def current(self, name: str, version: str) -> bool:
        """Whether that is the version there is."""
        resource = self.get(name)
        return resource is not None and resource.version == version

    def known(self, name: str) -> bool:
        """Whether there is such a resource."""
        return self.get(name) is not None

    def close(self) -> None:
        """Ends the reading."""
        self._content.readings.remove(self)
