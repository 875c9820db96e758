"""Certificates by name, and a gateway that asks for them: the content of a view that a test changes at will, a clock
that it moves, and a client that keeps what an Envoy would keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any

from xds import protos
from xds.encoded import Resource, wrap
from xds.messages.secret import SECRET_TYPE, KeyPair, encode_key_pair
from xds.session.actions import Send
from xds.session.content import Changes, State, Subscription
from xds.session.delta_session import DeltaSession
from xds.session.ordering import Order
from xds.session.requests import DeltaRequest
from xds.session.server_names import MOST_LIVE, ServerNames

_Response = protos.envoy.service.discovery.v3.DeltaDiscoveryResponse
_Secret = protos.envoy.extensions.transport_sockets.tls.v3.Secret


def secret(name: str, text: str) -> Resource:
    """A certificate whose chain is `text`."""
    return wrap(SECRET_TYPE, name, encode_key_pair(KeyPair(name, text.encode(), b"key")))


class Secrets:
    """The content of a view; satisfies `xds.session.content.Subscription` for its one reader."""

    def __init__(self, **content: str) -> None:
        self.content: dict[str, Resource] = {}
        self.changed: dict[str, Resource | None] = {}
        self.state: State = "settled"
        self.closed = False
        self.change(content)
        self.changed = {}

    def change(self, texts: Mapping[str, str | None]) -> None:
        """Set certificates, or delete those given None."""
        for name, text in texts.items():
            self.changed[name] = None if text is None else secret(name, text)
            if text is None:
                self.content.pop(name, None)
            else:
                self.content[name] = secret(name, text)

    @property
    def pending(self) -> bool:
        return bool(self.changed)

    def take(self) -> Changes:
        changes, self.changed = self.changed, {}
        return Changes(changes)

    def get(self, name: str) -> Resource | None:
        return self.content.get(name)

    def items(self) -> Iterable[tuple[str, Resource]]:
        return self.content.items()

    def known(self, name: str) -> bool:
        return name in self.content

    def final(self, name: str) -> bool:
        del name
        return False

    def current(self, name: str, version: str) -> bool:
        found = self.content.get(name)
        return found is not None and found.version == version

    def close(self) -> None:
        self.closed = True


class Ordered:
    """Something that was ordered for later."""

    def __init__(self, at: float, work: Callable[[], None]) -> None:
        self.at = at
        self.work = work
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Gateway:
    """An Envoy on a stream of its own: asks when a visitor comes, keeps what it is told, forgets what is removed."""

    def __init__(self, view: Secrets, *, awaited: Iterable[str] = (), most: int = MOST_LIVE) -> None:
        self.view = view
        self.awaited = set(awaited)
        self.most = most
        self.now = 0.0
        self.orders: list[Ordered] = []
        self.unknown = 0
        self.held: dict[str, str] = {}
        self.versions: dict[str, str] = {}
        self.asking: set[str] = set()
        self.refusing: set[str] = set()
        """Texts of certificates that it takes for bad."""
        self.sent: list[tuple[dict[str, str], list[str]]] = []
        self._streams = count(1)
        self.connect()

    def connect(self) -> None:
        """A new stream; what it holds it keeps."""
        stream = next(self._streams)
        self.view.changed = {}  # it reads what there is
        nonces = (f"{stream}-{number}" for number in count())
        self.session = DeltaSession(self, nonces, Order())
        names = sorted({*self.held, *self.asking})
        if names:
            self._send(DeltaRequest(SECRET_TYPE, tuple(names), (), dict(self.versions)))

    def open(self, type_url: str) -> Subscription | None:
        assert type_url == SECRET_TYPE
        self.names = ServerNames(
            self.view, self.awaited.__contains__, lambda: None, self._later, self._count, most=self.most
        )
        return self.names

    def visit(self, *names: str) -> list[str | None]:
        """Visitors ask for names; what each is shown, None where nothing is known yet, "" for a refusal."""
        new = [name for name in names if name not in self.held and name not in self.asking]
        self.asking.update(new)
        if new:
            self._send(DeltaRequest(SECRET_TYPE, tuple(new)))
        return [self.held.get(name, None if name in self.asking else "") for name in names]

    def poll(self, advance: float = 0.0) -> None:
        """Time passes, and the session is polled. The rest of what an Envoy asks for is asked for elsewhere."""
        self.now += advance
        for order in [one for one in self.orders if one.at <= self.now]:
            self.orders.remove(order)
            if not order.cancelled:
                order.work()
        self._read()

    def _later(self, seconds: float, work: Callable[[], None]) -> Ordered:
        self.orders.append(Ordered(self.now + seconds, work))
        return self.orders[-1]

    def _count(self) -> None:
        self.unknown += 1

    def _send(self, request: DeltaRequest) -> None:
        self.session.receive(request)
        self._read()

    def _read(self) -> None:
        sends: list[Any] = [one for one in self.session.poll(self.now) if isinstance(one, Send)]
        for send in sends:
            message = _Response.FromString(send.payload)
            told = {one.name: _Secret.FromString(one.resource.value) for one in message.resources}
            assert all(found.name == name for name, found in told.items())
            texts = {name: one.tls_certificate.certificate_chain.inline_bytes.decode() for name, one in told.items()}
            self.sent.append((texts, list(message.removed_resources)))
            if self.refusing.intersection(texts.values()):
                self._send(DeltaRequest(SECRET_TYPE, response_nonce=message.nonce, error="it is bad"))
                continue
            self.held.update(texts)
            self.versions.update({one.name: one.version for one in message.resources})
            self.asking.difference_update(texts)
            gone = [name for name in message.removed_resources if name in self.held or name in self.asking]
            for name in gone:
                self.held.pop(name, None)
                self.versions.pop(name, None)
                self.asking.discard(name)
            self._send(DeltaRequest(SECRET_TYPE, (), tuple(gone), response_nonce=message.nonce))
