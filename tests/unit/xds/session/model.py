"""The two ends of a session, for its tests: content that can be changed at will, and clients that keep to the protocol.

A View is the content of one type; World hands out its subscriptions. Clients drive a session as a server would and keep
what a proxy would keep; what they hold is read from the bytes on the wire. Content is written as name and text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from xds import protos
from xds.encoded import ADMITS_ALL, ADMITS_HEALTHY, NO_TIES, Resource, Ties, encode, wrap
from xds.messages.workload import ADDRESS_TYPE
from xds.session.actions import Accepted, Action, Rejected, Send
from xds.session.content import Changes, State
from xds.session.delta_session import DeltaSession
from xds.session.machine import Session
from xds.session.ordering import MAKE_BEFORE_BREAK, Order
from xds.session.requests import DeltaRequest, SotwRequest
from xds.session.sotw import SotwSession

discovery = protos.envoy.service.discovery.v3


def resource(name: str, text: str) -> Resource:
    """A resource of any type: a workload whose uid is the name and whose network is the text.

    A text can speak of ties: "joins a b", "admits healthy" and "admits all", each with more words behind a semicolon.
    """
    message = protos.istio.workload.Address()
    message.workload.uid = name
    message.workload.network = text
    return wrap(ADDRESS_TYPE, name, encode(message), ties=ties_of(text))


def ties_of(text: str) -> Ties:
    verb, _, rest = text.partition(";")[0].partition(" ")
    if verb == "joins":
        return Ties(joins=tuple(rest.split()), rank=1)
    if verb == "admits":
        return Ties(admits=ADMITS_ALL if rest == "all" else ADMITS_HEALTHY)
    return NO_TIES


def version(name: str, text: str) -> str:
    return resource(name, text).version


class Reading:
    """One subscription to a View."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.changed: dict[str, Resource | None] = dict(view.content)
        self.causes: list[object] = []
        self.takes = 0
        self.closed = False

    @property
    def state(self) -> State:
        return self.view.state

    @property
    def pending(self) -> bool:
        return bool(self.changed)

    def take(self) -> Changes:
        assert not self.closed
        changes = Changes(self.changed, tuple(self.causes), self.view.revision)
        self.changed, self.causes = {}, []
        self.takes += 1
        return changes

    def get(self, name: str) -> Resource | None:
        return self.view.content.get(name)

    def items(self) -> Iterable[tuple[str, Resource]]:
        return self.view.content.items()

    def final(self, name: str) -> bool:
        return name in self.view.final

    def current(self, name: str, version: str) -> bool:
        present = self.view.content.get(name)
        return (name, version) in self.view.good or (present is not None and present.version == version)

    def known(self, name: str) -> bool:
        return name in self.view.content or name in self.view.latent

    def untaken(self, name: str) -> bool:
        return name in self.changed

    def close(self) -> None:
        self.closed = True


class View:
    """The content of one type."""

    def __init__(self, content: Mapping[str, str] | None = None, state: State = "settled") -> None:
        self.content = {name: resource(name, text) for name, text in (content or {}).items()}
        self.state: State = state
        self.latent: set[str] = set()
        self.final: set[str] = set()
        self.good: set[tuple[str, str]] = set()
        """Names and versions that are as good as the present ones."""
        self.revision = 1
        self.readings: list[Reading] = []

    def change(self, changes: Mapping[str, str | None] | None = None, cause: object = None, **more: str | None) -> None:
        """Set texts, or delete names given None, as one revision; as everywhere, equal content changes nothing, but
        for what joins that which comes to be.
        """
        done: dict[str, Resource | None] = {}
        admitting: set[str] = set()
        for name, text in {**(changes or {}), **more}.items():
            new = None if text is None else resource(name, text)
            if new == self.content.get(name):
                continue
            done[name] = new
            if new is not None and new.admits_more(self.content.get(name)):
                admitting.add(name)
            if new is None:
                del self.content[name]
            else:
                self.content[name] = new
                self.latent.discard(name)
        joining = {name: one for name, one in self.content.items() if not admitting.isdisjoint(one.ties.joins)}
        done = {**joining, **done}
        if done:
            self.revision += 1
            for reading in self.readings:
                reading.changed |= done
                if cause is not None:
                    reading.causes.append(cause)

    def vanish(self, name: str) -> None:
        """There will be no resource of a latent name."""
        self.latent.discard(name)
        self.revision += 1
        for reading in self.readings:
            reading.changed[name] = None

    @property
    def texts(self) -> dict[str, str]:
        return {name: text_of(resource.body.tobytes()) for name, resource in self.content.items()}


class World:
    """The views of one proxy."""

    def __init__(self, views: Mapping[str, View]) -> None:
        self.views = views

    def open(self, type_url: str) -> Reading | None:
        view = self.views.get(type_url)
        if view is None:
            return None
        reading = Reading(view)
        view.readings.append(reading)
        return reading


def text_of(data: bytes) -> str:
    return protos.istio.workload.Address.FromString(data).workload.network


@dataclass
class Answer:
    """A response as a client reads it."""

    type_url: str
    nonce: str
    texts: dict[str, str]
    removed: list[str]
    versions: dict[str, str]
    version: str
    action: Send


@dataclass
class Held:
    """What a client holds of one type."""

    texts: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    version: str = ""


class Client(ABC):
    """A client and the driver of its session. Every call polls; `inbox` are responses that were not answered yet."""

    def __init__(self, world: World, order: Order = MAKE_BEFORE_BREAK, now: float = 0.0) -> None:
        self.world = world
        self.order = order
        self.now = now
        self.held: dict[str, Held] = {}
        self.inbox: list[Answer] = []
        self.heard: list[Accepted | Rejected] = []
        self.all: list[Answer] = []
        self._streams = count(1)
        self.connect()

    def connect(self) -> None:
        """A new stream; what is held stays, what was not answered is lost."""
        stream = next(self._streams)
        nonces = (f"s{stream}-{number}" for number in count(1))
        self.session: Session[Any] = self._session(nonces_of=nonces)
        self.inbox = []
        self.named: dict[str, list[str]] = {}

    def poll(self, advance: float = 0.0) -> list[Answer]:
        """The responses sent now."""
        self.now += advance
        return self._take(self.session.poll(self.now))

    def _take(self, actions: list[Action]) -> list[Answer]:
        sent = []
        for action in actions:
            if isinstance(action, Send):
                answer = self._decode(action)
                assert all(other.type_url != answer.type_url for other in self.inbox), "two under way for a type"
                self.inbox.append(answer)
                self.all.append(answer)
                sent.append(answer)
            else:
                self.heard.append(action)
        return sent

    def send(self, request: DeltaRequest | SotwRequest) -> None:
        """Let the session have a request, and no more."""
        self.session.receive(request)

    def ack(self, answer: Answer | None = None) -> list[Answer]:
        """Accept a response, by default the one response that waits; returns what is sent upon that."""
        answer = self._answer(answer)
        self._apply(answer, set())
        self.send(self.request(answer.type_url, nonce=answer.nonce))
        return self.poll()

    def nack(self, message: str, answer: Answer | None = None, *, bad: Sequence[str] = ()) -> list[Answer]:
        """Reject a response; all of it but `bad` is applied, as a ztunnel does, if `bad` is given."""
        answer = self._answer(answer)
        self._apply(answer, set(bad) if bad else set(answer.texts), removals=bool(bad))
        self.send(self.request(answer.type_url, nonce=answer.nonce, error=message))
        return self.poll()

    def ack_all(self) -> list[Answer]:
        """Accept until nothing is sent any more; returns all that was sent."""
        sent: list[Answer] = []
        while self.inbox:
            sent += self.ack(self.inbox[0])
        return sent

    def _answer(self, answer: Answer | None) -> Answer:
        if answer is None:
            (answer,) = self.inbox
        self.inbox.remove(answer)
        return answer

    def of(self, type_url: str) -> Held:
        return self.held.setdefault(type_url, Held())

    @abstractmethod
    def _session(self, nonces_of: Iterable[str]) -> Session[Any]: ...

    @abstractmethod
    def _decode(self, action: Send) -> Answer: ...

    @abstractmethod
    def _apply(self, answer: Answer, bad: set[str], *, removals: bool = True) -> None: ...

    @abstractmethod
    def request(self, type_url: str, nonce: str = "", error: str | None = None) -> DeltaRequest | SotwRequest: ...

    @abstractmethod
    def subscribe(self, type_url: str, *names: str) -> list[Answer]:
        """Ask for names, or as the first request without names for all; a client that holds something says so."""

    @abstractmethod
    def unsubscribe(self, type_url: str, *names: str) -> list[Answer]:
        """Give up names."""


class DeltaClient(Client):
    def _session(self, nonces_of: Iterable[str]) -> DeltaSession:
        return DeltaSession(self.world, iter(nonces_of), self.order)

    def _decode(self, action: Send) -> Answer:
        message = discovery.DeltaDiscoveryResponse.FromString(action.payload)
        assert (message.type_url, message.nonce) == (action.type_url, action.nonce)
        texts = {entry.name: text_of(entry.resource.value) for entry in message.resources}
        versions = {entry.name: entry.version for entry in message.resources}
        removed = list(message.removed_resources)
        assert (action.resources, action.removed) == (len(message.resources), len(removed))
        assert len(texts) == len(message.resources), "a name twice in one response"
        assert not texts.keys() & set(removed), "a name sent and removed in one response"
        return Answer(message.type_url, message.nonce, texts, removed, versions, message.system_version_info, action)

    def _apply(self, answer: Answer, bad: set[str], *, removals: bool = True) -> None:
        held = self.of(answer.type_url)
        for name in answer.texts.keys() - bad:
            held.texts[name] = answer.texts[name]
            held.versions[name] = answer.versions[name]
        for name in answer.removed if removals else ():
            held.texts.pop(name, None)
            held.versions.pop(name, None)

    def request(self, type_url: str, nonce: str = "", error: str | None = None) -> DeltaRequest:
        return DeltaRequest(type_url, response_nonce=nonce, error=error)

    def subscribe(self, type_url: str, *names: str, nonce: str = "") -> list[Answer]:
        first = type_url not in self.named
        known = self.named.setdefault(type_url, [])
        known += [name for name in names if name not in known]
        versions = dict(self.of(type_url).versions) if first else {}
        self.send(DeltaRequest(type_url, names, (), versions, nonce))
        return self.poll()

    def unsubscribe(self, type_url: str, *names: str, nonce: str = "") -> list[Answer]:
        self.named[type_url] = [name for name in self.named.get(type_url, []) if name not in names]
        self.send(DeltaRequest(type_url, (), names, {}, nonce))
        return self.poll()


class SotwClient(Client):
    def _session(self, nonces_of: Iterable[str]) -> SotwSession:
        self.nonces: dict[str, str] = {}
        return SotwSession(self.world, iter(nonces_of), self.order)

    def _decode(self, action: Send) -> Answer:
        message = discovery.DiscoveryResponse.FromString(action.payload)
        assert (message.type_url, message.nonce) == (action.type_url, action.nonce)
        assert action.resources == len(message.resources)
        found = [protos.istio.workload.Address.FromString(entry.value).workload for entry in message.resources]
        texts = {workload.uid: workload.network for workload in found}
        assert len(texts) == len(found), "a name twice in one response"
        versions = {name: version(name, text) for name, text in texts.items()}
        held = self.of(action.type_url).texts
        removed = [name for name in held if name not in texts] if self._wild(action.type_url) else []
        return Answer(action.type_url, action.nonce, texts, removed, versions, message.version_info, action)

    def _wild(self, type_url: str) -> bool:
        names = self.named.get(type_url, [])
        return not names or "*" in names

    def _apply(self, answer: Answer, bad: set[str], *, removals: bool = True) -> None:
        held = self.of(answer.type_url)
        if removals and self._wild(answer.type_url):
            for name in [name for name in held.texts if name not in answer.texts]:
                del held.texts[name], held.versions[name]
        for name in answer.texts.keys() - bad:
            held.texts[name] = answer.texts[name]
            held.versions[name] = answer.versions[name]
        self.nonces[answer.type_url] = answer.nonce
        if not bad:
            held.version = answer.version

    def request(self, type_url: str, nonce: str = "", error: str | None = None) -> SotwRequest:
        names = tuple(self.named.get(type_url, ()))
        return SotwRequest(type_url, names, self.of(type_url).version, nonce, error)

    def subscribe(self, type_url: str, *names: str) -> list[Answer]:
        known = self.named.setdefault(type_url, [])
        known += [name for name in names if name not in known]
        self.send(self.request(type_url, nonce=self.nonces.get(type_url, "")))
        return self.poll()

    def unsubscribe(self, type_url: str, *names: str) -> list[Answer]:
        self.named[type_url] = [name for name in self.named.get(type_url, []) if name not in names]
        self.send(self.request(type_url, nonce=self.nonces.get(type_url, "")))
        return self.poll()
