"""The incremental variant for clients that are told only what they ask for, by any name a resource has.

A ztunnel in on-demand mode begins with a subscription to nothing, and asks for a destination when a connection needs
it: by `<network>/<address>`, by `<namespace>/<hostname>`, by uid. It is told what is there with all that goes with it
(endpoints, gateways, waypoints), and from then on whatever changes or comes to be of that. What it has to know without
asking, it is told unasked.

Its waiting lookup ends only with a resource or a removal of exactly the name that was asked. So where the answer has
another name, the asked one is among the removals of the response that completes the answer: in the client there is
nothing under it to be removed, and the next lookup finds the resource by its address. (Sending the resource a second
time, under the asked name, does the same, but leaves the client with a name it would hold for ever.)

For a client that asks for everything this is DeltaExchange and no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from xds.encoded import delta_response, with_aliases
from xds.session.content import Changes, Directory, Subscription
from xds.session.delta import WHOLE, DeltaExchange
from xds.session.exchange import Response
from xds.session.requests import DeltaRequest

KEPT_QUESTIONS: Final = 4096
"""Asked names that are not those of resources which are followed, the newest: who asks for every address of the world
it connects to is told of changes to these alone, and asks again for others."""


class DirectoryExchange(DeltaExchange):
    """One type of a stream, of which resources are found by several names; `content` is the `directory`, too."""

    def __init__(
        self, type_url: str, content: Subscription, directory: Directory, *, individual: bool = True
    ) -> None:
        super().__init__(type_url, content, individual=individual)
        self._directory = directory
        self._consulted = False
        self._beginning = False
        """What is told unasked, and what goes with the names the client holds, is still to be looked up."""
        self._questions: dict[str, None] = {}

    def ask(self, request: DeltaRequest) -> None:
        """See DeltaExchange."""
        super().ask(request)
        if self.interest.wildcard:
            self.interest.implied = None
            return
        if not self._consulted:
            self._consulted = True
            self._directory.consult()
        if self.interest.implied is None:
            self.interest.implied = set()
            self._beginning = True
        # The response with the asked name ends a lookup, so the answer must be whole.
        self._limit = WHOLE

    @property
    def answerable(self) -> bool:
        """See Exchange."""
        return self.content.state != "unknown" and (self.interest.implied is None or self._directory.ready)

    @property
    def fresh(self) -> bool:
        """See Exchange."""
        return self._everything or self._beginning or bool(self._waiting or self._asked or self._absent)

    def _forget(self, names: Iterable[str]) -> None:
        names = tuple(names)
        super()._forget(names)
        for name in names:
            self._questions.pop(name, None)

    def _note(self, changes: Changes, tick: int) -> None:
        implied = self.interest.implied
        if implied is None:
            super()._note(changes, tick)
            return
        told = []
        for name, resource in changes.changes.items():
            if resource is None:
                continue
            if not self.interest.covers(name):
                if not self._wanted(name):
                    continue
                implied.add(name)
            told.append(name)
        super()._note(changes, tick)
        for name in told:
            for needed in self._directory.needs(name):
                self._imply(needed)

    def _compose(self, tick: int, released: int) -> Response | None:
        if self._beginning:
            self._beginning = False
            if self.interest.implied is not None:
                self._begin()
        return super()._compose(tick, released)

    def _answer(self) -> None:
        if self.interest.implied is None:
            super()._answer()
            return
        settled = self.content.state == "settled"
        for asked in self._asked:
            found = self._directory.find(asked)
            for name in found:
                self._tell(name)
            if asked not in found:
                self._keep_question(asked)
            if found and asked not in found:
                self._gone[asked] = 0  # after all that waits
            elif not found:
                if asked not in self._gone and (asked not in self._claims or settled):
                    self._claims.pop(asked, None)
                    self._absent[asked] = None
            elif (resource := self.content.get(asked)) is not None and self.quarantine.hold(resource):
                self._absent[asked] = None  # there is nothing that this client could use
        self._asked.clear()

    def _accepted(self, response: Response) -> None:
        super()._accepted(response)
        if self.interest.implied:
            self.interest.implied.difference_update(
                name for name in response.removed if self.content.get(name) is None
            )

    def _payload(self, response: Response, nonce: str) -> bytes:
        if self.interest.implied is None:
            return super()._payload(response, nonce)
        resources = [with_aliases(one, self._directory.aliases(one.name)) for one in response.resources]
        return delta_response(self.type_url, nonce, resources, response.removed, str(self.revision))

    def _begin(self) -> None:
        """Look up what is told unasked, and what goes with what the client names."""
        for name in self._directory.standing():
            self._imply(name)
        for asked in tuple(self.interest.names):
            for name in self._directory.find(asked):
                self._imply(name)
                self._imply_company(name)

    def _wanted(self, name: str) -> bool:
        """Whether a resource that came to be, or is another now, is one the client would have been told."""
        directory = self._directory
        return (
            directory.stands(name)
            or any(self.interest.covers(key) for key in directory.sought(name))
            or (directory.spans(name) and any(name in directory.find(asked) for asked in self._questions))
        )

    def _tell(self, name: str) -> None:
        """Send a resource that was asked for, whether the client was told it before or not, with what goes with it."""
        if not self.interest.covers(name):
            self._imply(name)
            return
        self._offer_anew(name)
        self._imply_company(name)

    def _imply_company(self, name: str) -> None:
        for member in self._directory.members(name):
            self._imply(member)
        for needed in self._directory.needs(name):
            self._imply(needed)

    def _imply(self, name: str) -> None:
        """Tell the client of a resource from now on, and what goes with it, unless it is told of it already."""
        implied = self.interest.implied
        names = [name]
        while names:
            name = names.pop()
            if implied is None or self.interest.covers(name):
                continue
            implied.add(name)
            self._offer_anew(name)
            names += self._directory.members(name)
            names += self._directory.needs(name)

    def _offer_anew(self, name: str) -> None:
        """Offer what is there under a name, whose removal may still be waiting."""
        resource = self.content.get(name)
        if resource is not None:
            self._gone.pop(name, None)
            self._offer(name, resource)

    def _keep_question(self, asked: str) -> None:
        self._questions.pop(asked, None)
        self._questions[asked] = None
        if len(self._questions) > KEPT_QUESTIONS:
            oldest = next(iter(self._questions))
            del self._questions[oldest]
            self.interest.names.discard(oldest)
