"""A session: the pure state machine of one xDS stream, for both variants of the protocol.

In: requests (`receive`) and, at any time, the content its views show at a `poll`. Out: actions, in the order in which
they are to be carried out, and the moment at which it wants to be polled though nothing happened. No I/O, no clock, no
chance: moments and nonces are given. It is for one thread and never blocks; a poll that finds nothing to do costs some
attribute reads per type, and one that finds changes costs as much as they are.

Here are the rules between types (xds.session.ordering has the data): what may go out when. Rules within a type are in
xds.session.exchange.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from math import inf
from typing import Final, Generic, TypeVar

from xds.session.actions import Action
from xds.session.content import Subscription, Views
from xds.session.exchange import Exchange, Request
from xds.session.ordering import MAKE_BEFORE_BREAK, Order
from xds.session.rejections import Rejection
from xds.session.requests import ProtocolViolation

MAX_TYPES: Final = 64
"""Types one stream may ask for."""
NEVER: Final = 0
"""Before the first tick."""

R = TypeVar("R", bound=Request)


class Session(ABC, Generic[R]):
    """The machine of one stream; use DeltaSession or SotwSession.

    `views` is what this proxy may read, `nonces` yields texts that are never empty and never the same. The embedding
    calls `receive` for each request and `poll` after that, whenever a subscription it handed out has something pending
    or its state has changed, and at `next_moment`; and `close` at the end.
    """

    def __init__(self, views: Views, nonces: Iterator[str], order: Order = MAKE_BEFORE_BREAK) -> None:
        self._views = views
        self._nonces = nonces
        self._order = order
        self._exchanges: dict[str, Exchange[R]] = {}
        self._actions: list[Action] = []
        self._tick = 0
        self.next_moment: float | None = None
        """When to poll again, in the seconds given to `poll`, though nothing happens until then; None: not needed."""

    @property
    def rejected(self) -> Mapping[tuple[str, str], Rejection]:
        """The resources whose present version the client refuses, by type URL and name."""
        return {
            (type_url, name): rejection
            for type_url, exchange in self._exchanges.items()
            for name, rejection in exchange.quarantine.current.items()
        }

    @property
    def acknowledged(self) -> Mapping[str, int]:
        """For each type asked for, the newest revision of its content that the client holds completely.

        Resources it rejected are left out of account: they are in `rejected`. 0 as long as there is none.
        """
        return {type_url: exchange.acknowledged for type_url, exchange in self._exchanges.items()}

    @abstractmethod
    def _exchange(self, type_url: str, content: Subscription | None) -> Exchange[R]:
        """One type of this variant's streams."""

    def receive(self, request: R) -> None:
        """Take in a request. Raises ProtocolViolation if the stream must end because of it."""
        exchange = self._exchanges.get(request.type_url)
        if exchange is None:
            exchange = self._open(request.type_url)
        if request.response_nonce:
            self._actions += exchange.reply(request.response_nonce, request.error)
        exchange.ask(request)

    def poll(self, now: float) -> list[Action]:
        """What is to be done at this moment. `now` is in seconds of any clock that does not go back."""
        actions, self._actions = self._actions, []
        self._tick += 1
        self.next_moment = None
        exchanges = self._exchanges.values()
        for exchange in exchanges:
            exchange.look(now, self._tick)
        # What turns out to need nothing to be sent may have been all that another type waited for, and so on.
        for _ in range(len(exchanges)):
            drained = False
            for exchange in exchanges:
                if not exchange.stirred:
                    continue
                released = self._released(exchange, now)
                if not exchange.ready(released) or self._held_up(exchange, now):
                    continue
                send = exchange.send(self._nonces, self._tick, released)
                if send is not None:
                    actions.append(send)
                else:
                    drained = True
            if not drained:
                break
        return actions

    def close(self) -> None:
        """End the reading of all content."""
        for exchange in self._exchanges.values():
            exchange.content.close()

    def _open(self, type_url: str) -> Exchange[R]:
        if not type_url:
            raise ProtocolViolation("a request without type_url")
        if len(self._exchanges) == MAX_TYPES:
            raise ProtocolViolation(f"a request for one more type than {MAX_TYPES}, the limit of a stream: {type_url}")
        exchange = self._exchange(type_url, self._views.open(type_url))
        self._exchanges[type_url] = exchange
        by_rank = sorted(self._exchanges.items(), key=lambda item: self._order.ranks.get(item[0], inf))
        self._exchanges = dict(by_rank)
        return exchange

    def _held_up(self, exchange: Exchange[R], now: float) -> bool:
        """Whether the resources of other types must go first."""
        order = self._order
        if not exchange.answered and (before := order.first_after.get(exchange.type_url)) is not None:
            other = self._exchanges.get(before)
            if other is None:
                if self._patient(exchange, now):
                    return True
            elif not (other.answered or other.interest.empty):
                return True
        rank = order.ranks.get(exchange.type_url)
        if rank is None:
            return False
        for type_url, other in self._exchanges.items():
            if order.ranks.get(type_url, inf) >= rank:
                break
            if other.unsent and not (other.waiting and order.completing.get(exchange.type_url) == type_url):
                return True
        return False

    def _released(self, exchange: Exchange[R], now: float) -> int:
        """The tick up to which a type may remove: the client has answered for all that could refer to it by then."""
        released = self._tick
        for dependent in self._order.dependents.get(exchange.type_url, ()):
            other = self._exchanges.get(dependent)
            if other is not None:
                released = min(released, other.drained)
            elif dependent not in self._order.seldom and self._patient(exchange, now):
                return NEVER
        return released

    def _patient(self, exchange: Exchange[R], now: float) -> bool:
        """Whether a type still waits for the client to ask for another; if so, until when is the next moment."""
        end = exchange.opened + self._order.patience
        if now >= end:
            return False
        self.next_moment = end if self.next_moment is None else min(self.next_moment, end)
        return True
