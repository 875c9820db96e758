"""One type on one stream: what is asked, what is under way, what was answered. The part both variants share.

An Exchange turns content and interest into responses, and the client's answers into knowledge. It keeps to the protocol
within its type: one response under way, the newest content replaces what waits, rejections are isolated. When it may
send, seen from the other types, its machine says (xds.session.machine). What a response holds is up to the variant:
xds.session.delta sends differences, xds.session.sotw states of the world.

Moments are ticks, the numbers of polls: within one tick all content is of one state of the world.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from math import inf
from typing import Final, Generic, Protocol, TypeVar

from msgspec import Struct

from xds.encoded import Resource
from xds.session.actions import Accepted, Action, Rejected, Send
from xds.session.content import Changes, Releases, Subscription, Unserved
from xds.session.rejections import Bisection, Quarantine, culprits
from xds.session.subscription import Interest

KEPT_CAUSES: Final = 64
"""Causes that are kept for the next response, the newest."""


class Request(Protocol):
    """What both kinds of requests have."""

    @property
    def type_url(self) -> str:
        """The type it is about."""

    @property
    def response_nonce(self) -> str:
        """The response it answers, if any."""

    @property
    def error(self) -> str | None:
        """Why that was rejected; None if it was accepted."""


R_contra = TypeVar("R_contra", bound=Request, contravariant=True)


class Response(Struct, frozen=True):
    """What goes out, and stays known until it is answered.

    `resources` and `removed` are what it says. `news` are those of the resources the client does not hold yet: if it
    rejects the response, they are suspect. `held` is all that the client holds once it has accepted (state of the
    world only). `group`: it was sent to find a culprit.
    """

    resources: tuple[Resource, ...]
    removed: tuple[str, ...]
    news: tuple[Resource, ...]
    group: bool = False
    held: tuple[Resource, ...] = ()


class Exchange(ABC, Generic[R_contra]):
    """One type on one stream; `content` is None for a type this proxy is not served."""

    def __init__(self, type_url: str, content: Subscription | None) -> None:
        self.type_url = type_url
        self.served = content is not None
        self.content: Subscription = content if content is not None else Unserved()
        self.interest = Interest()
        self.quarantine = Quarantine()
        self.bisection = Bisection()
        self.opened = inf
        """When it was first polled, in the seconds of the machine's clock."""
        self.answered = False
        """Whether the first answer was sent, or found to be needless."""
        self.drained = 0
        """The last tick whose resources the client has answered for; removals are not counted."""
        self.revision = 0
        """The newest revision of the content that was taken."""
        self.acknowledged = 0
        """The newest revision the client holds completely, apart from rejected resources that were reported."""
        self._under_way: tuple[str, Response, bool] | None = None
        """Nonce and content of the response under way, and whether it was due whatever it holds."""
        self._taken = 0
        """The tick of the last take."""
        self._causes: tuple[object, ...] = ()
        self._answer_due = False
        """A response is to be sent even if there is nothing to say."""
        self._amends_due = False
        """A due response was rejected: one that can be accepted must follow, be it empty. A ztunnel is not ready before
        it has accepted a response of each type, whatever it took from those it rejected."""
        self._clean = False
        """Whether the client has accepted any response."""
        self._fresh_turn = True
        """While culprits are sought, groups of suspects and fresh content take turns: neither starves."""

    # What a variant says.

    @abstractmethod
    def ask(self, request: R_contra) -> None:
        """Take in what a request says about the subscription, which holds even if its nonce is stale.

        Raises ProtocolViolation.
        """

    @property
    def answerable(self) -> bool:
        """Whether the content is complete enough for this client to be told anything."""
        return self.content.state != "unknown"

    @property
    @abstractmethod
    def fresh(self) -> bool:
        """Whether there are resources or questions that could be sent or answered, suspects aside."""

    @property
    @abstractmethod
    def deferring(self) -> bool:
        """Whether updates are held back because the content is only partial."""

    @property
    @abstractmethod
    def removing(self) -> bool:
        """Whether removals wait, for whatever reason."""

    @abstractmethod
    def held(self, present: Mapping[str, Resource]) -> set[str]:
        """Of resources that are the present ones of their names, those that the client holds as they are, by name.

        Read from what is known of the client anyway; costs as much as there are, and what is under way.
        """

    @abstractmethod
    def _removable(self, released: int) -> bool:
        """Whether removals of ticks up to `released` wait."""

    @abstractmethod
    def _note(self, changes: Changes, tick: int) -> None:
        """Take in what changed in the content."""

    @abstractmethod
    def _compose(self, tick: int, released: int) -> Response | None:
        """The next response with fresh content and with removals of ticks up to `released`; None: nothing to say."""

    @abstractmethod
    def _compose_group(self, group: tuple[Resource, ...]) -> Response:
        """The response that offers a group of suspects and nothing else that is new."""

    @abstractmethod
    def _payload(self, response: Response, nonce: str) -> bytes:
        """The bytes of a response."""

    @abstractmethod
    def _accepted(self, response: Response) -> None:
        """The client took a response."""

    @abstractmethod
    def _refused(self, response: Response, *, named: bool) -> None:
        """The client refused a response; culprits are in quarantine by now, suspects in bisection.

        If it `named` the culprits, it has applied the rest, as far as the variant lets it; else nothing.
        """

    def _release(self, names: tuple[str, ...]) -> None:
        """The client has given names up: what the content keeps for them may go, unless it wants them all the same."""
        if names and isinstance(self.content, Releases):
            self.content.release([name for name in names if not self.interest.covers(name)])

    # What the machine asks and does.

    @property
    def waiting(self) -> bool:
        """Whether a response is under way."""
        return self._under_way is not None

    @property
    def due(self) -> bool:
        """Whether a response is to be sent though it may say nothing."""
        return self._answer_due or (self._amends_due and not self.bisection.suspects)

    @property
    def unsent(self) -> bool:
        """Whether there are, or may be, resources the client was not sent or does not hold for sure."""
        if self.interest.empty:
            return False
        return self.content.pending or self.fresh or bool(self.bisection.suspects)

    @property
    def stirred(self) -> bool:
        """Whether there may be something to send, whatever the other types say to it."""
        return self._under_way is None and (
            self.content.pending or self.fresh or self.due or self.bisection.waiting or self.removing or self.deferring
        )

    def ready(self, released: int) -> bool:
        """Whether there may be something to send now, as far as this type alone is concerned."""
        if self._under_way is not None or not self.answerable:
            return False
        return (
            self.content.pending
            or self.fresh
            or self.due
            or self.bisection.waiting
            or (self.removing and self._removable(released))
            or (self.deferring and self.content.state == "settled")
        )

    def look(self, now: float, tick: int) -> None:
        """Begin a poll. Who has nothing left to send or to hear is drained of everything there is in this tick."""
        self.opened = min(self.opened, now)
        if self._under_way is None and not self.unsent and not self.deferring:
            self.drained = tick

    def send(self, nonces: Iterator[str], tick: int, released: int) -> Send | None:
        """The next response, made of the content as it is now; None if there turns out to be nothing to say."""
        if self.content.pending or not self.answered:  # the first time for the revision, if for nothing else
            changes = self.content.take()
            self._taken, self.revision = tick, changes.revision
            self._causes = (*self._causes, *changes.causes)[-KEPT_CAUSES:]
            self._note(changes, tick)
        response = None if self.interest.empty else self._next(tick, released)
        causes: tuple[object, ...] = ()
        if response is None or not response.group:  # a group is old content: the causes are of what comes after it
            causes, self._causes = self._causes, ()
        if response is None:
            self.answered = self.answered or not self.interest.empty
            self._settle(tick)
            return None
        nonce = next(nonces)
        self._under_way = (nonce, response, not response.group and self.due)
        if not response.group:
            self._answer_due = self._amends_due = False
        self.answered = True
        return Send(
            type_url=self.type_url,
            nonce=nonce,
            payload=self._payload(response, nonce),
            resources=len(response.resources),
            removed=len(response.removed),
            causes=causes,
            revision=self.revision,
        )

    def reply(self, nonce: str, error: str | None) -> list[Action]:
        """The client's answer. One to anything but the response under way is stale and says nothing any more."""
        if self._under_way is None or self._under_way[0] != nonce:
            return []
        _, response, due = self._under_way
        self._under_way = None
        if error is not None:
            self._amends_due = self._amends_due or (due and bool(response.news))
            actions = self._reject(response, nonce, error)
            self._settle(self._taken)
            return actions
        self._clean = True
        self._amends_due = False
        self.quarantine.accept(response.news)
        self.bisection.clear(response.news)
        self._accepted(response)
        self._settle(self._taken)
        return [Accepted(self.type_url, nonce, self.acknowledged)]

    def _next(self, tick: int, released: int) -> Response | None:
        if self.bisection.waiting:
            if self._fresh_turn and self.fresh:
                self._fresh_turn = False
                response = self._compose(tick, released)
                if response is not None:
                    return response
            group = self.bisection.next_group()
            if group:
                self._fresh_turn = True
                return self._compose_group(group)
        return self._compose(tick, released)

    def _reject(self, response: Response, nonce: str, error: str) -> list[Action]:
        news = {resource.name: resource for resource in response.news}
        found = culprits(error, news)
        named = bool(found)
        if not named and len(news) == 1:
            found = dict.fromkeys(news, error)
        if not found:
            self.bisection.split(tuple(resource for resource in response.news if self.interest.covers(resource.name)))
            self._refused(response, named=False)
            return [Rejected(self.type_url, "", "", error, nonce)]
        actions: list[Action] = []
        for name, reason in found.items():
            self.quarantine.reject(news[name], reason, nonce)
            if not self.interest.covers(name):
                self.quarantine.lift(name)
            actions.append(Rejected(self.type_url, name, news[name].version, reason, nonce))
        self.bisection.clear(response.news)
        self.quarantine.accept(resource for name, resource in news.items() if name not in found)
        self._refused(response, named=named)
        return actions

    def _settle(self, tick: int) -> None:
        """With nothing under way: if nothing waits either, the client has answered for all there was in a tick."""
        if self.fresh or self.bisection.suspects or self.deferring:
            return
        self.drained = max(self.drained, tick)
        if not self.removing:
            self.acknowledged = self.revision
