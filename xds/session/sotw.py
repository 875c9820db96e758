"""The state-of-the-world variant of the protocol: complete sets, and one version for all of a set.

Under a wildcard every response holds all there is, and what is missing from it is thereby removed; for named
subscriptions it holds what is new to the client. What the client has accepted is kept as a tuple of references to the
shared resources: last good versions and removals that must wait are put back into the next set from there. The version
is a digest of what the client holds after accepting, equal on every replica, so a client that comes back with the
version of the present state is sent nothing.

Anything here costs as much as the set is large; proxies that can speak the incremental variant.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter

from xxhash import xxh3_128

from xds.encoded import Resource, discovery_response
from xds.session.content import Changes, Subscription
from xds.session.exchange import Exchange, Response
from xds.session.machine import Session
from xds.session.requests import SotwRequest

_by_name = attrgetter("name")


class SotwExchange(Exchange[SotwRequest]):
    """One type of a StreamAggregatedResources stream."""

    def __init__(
        self, type_url: str, content: Subscription | None, nothing: Callable[[str], Resource] | None = None
    ) -> None:
        """`nothing` makes what stands for a name that does not exist, for types whose clients wait for every name."""
        super().__init__(type_url, content)
        self._nothing = nothing
        self._open: set[str] = set()
        """Names that nothing is known of yet, for a client that waits for them."""
        self._held: tuple[Resource, ...] = ()
        """What the client has accepted on this stream, or said it holds, in the order of names."""
        self._claim = ""
        """The version the client holds from an earlier stream, until it is known whether that is the present one."""
        self._stale = False
        """Whether the content may differ from what is held in more than removals that wait."""
        self._gone: dict[str, int] = {}
        """Removals that wait under a wildcard, with the tick in which each was noticed."""
        self._doubtful: set[str] = set()
        """Names given up or asked for while a response was under way: that one proves nothing about them."""
        self._widened = False
        """Whether a wildcard was asked for while a response was under way that was none: the client may take that for
        everything there is."""
        self._uncertain: set[str] = set()
        """Names in rejected responses, applied or not: the client is to be told what it should hold of them."""

    def ask(self, request: SotwRequest) -> None:
        """See Exchange."""
        first, wildcard = not self.interest.begun, self.interest.wildcard
        asked = self.interest.replace(request.names)
        self._widened = self.waiting and (self._widened or (self.interest.wildcard and not wildcard))
        if first and self.served:
            self._claim = request.version_info
        anew = self._clean and not request.response_nonce and not request.version_info
        if anew:  # as on a new stream: the client has lost what it held
            self._held = ()
        if asked.dropped or asked.new or asked.narrowed:
            self._forget(asked.new)
            self._release(asked.dropped)
        if first or anew or asked.everything or asked.names:
            self._stale = True
        self._answer_due = self._answer_due or first or anew or asked.everything
        if self.interest.empty:
            self._stale = self._answer_due = self._amends_due = False

    def _forget(self, new: frozenset[str]) -> None:
        """What is given up, and what is asked for by name, is not taken as held."""
        if self.interest.wildcard:
            return
        covers = self.interest.covers
        if self.waiting:
            self._doubtful |= new
        self._held = tuple(resource for resource in self._held if covers(resource.name) and resource.name not in new)
        self._gone.clear()
        for name in [name for name in (*self.bisection.suspects, *self.quarantine.current) if not covers(name)]:
            self.bisection.drop(name)
            self.quarantine.lift(name)

    @property
    def answerable(self) -> bool:
        """See Exchange. Who holds a set already must not be sent one that is smaller only because it is partial."""
        return self.content.state == "settled" or (self.content.state == "partial" and not self._claim)

    @property
    def fresh(self) -> bool:
        """See Exchange."""
        return self._stale or (bool(self._open) and self.content.state == "settled")

    @property
    def deferring(self) -> bool:
        """See Exchange. Nothing is deferred: such a client is not answered at all before."""
        return False

    @property
    def removing(self) -> bool:
        """See Exchange."""
        return bool(self._gone)

    def held(self, present: Mapping[str, Resource]) -> set[str]:
        """See Exchange. What the client has accepted is kept in the order of names."""
        held = self._held
        found = set()
        for name, resource in present.items():
            place = bisect_left(held, name, key=_by_name)
            if place < len(held) and held[place] == resource and name not in self._uncertain:
                found.add(name)
        return found

    def _removable(self, released: int) -> bool:
        return any(tick <= released for tick in self._gone.values())

    def _note(self, changes: Changes, tick: int) -> None:
        for name, resource in changes.changes.items():
            if not self.interest.covers(name):
                continue
            self._stale = True
            if resource is None:
                self.bisection.drop(name)
                self.quarantine.lift(name)
                if self.interest.wildcard:
                    self._gone[name] = tick
            else:
                self._gone.pop(name, None)
                if not self.quarantine.hold(resource):
                    self.quarantine.lift(name)  # it may be what the client holds, so that no answer will tell
                if self.bisection.suspects and not self.bisection.suspected(resource):
                    self.bisection.drop(name)

    def _compose(self, tick: int, released: int) -> Response | None:
        self._stale = self._widened = False
        held = {resource.name: resource for resource in self._held}
        wanted = dict(self._content(held))
        if self.quarantine.occupied or self.bisection.suspects:
            for name, resource in tuple(wanted.items()):
                if self.quarantine.hold(resource) or self.bisection.suspected(resource):
                    if (last_good := held.get(name)) is not None:
                        wanted[name] = last_good
                    else:
                        del wanted[name]
        self._gone = {name: noticed for name, noticed in self._gone.items() if noticed > released and name in held}
        for name in self._gone:
            wanted[name] = held[name]
        held_then = tuple(sorted(wanted.values(), key=_by_name))
        if self._claim:
            claim, self._claim = self._claim, ""
            if claim == _version(held_then):
                self._held = held_then
                self._answer_due = False
                return None
        news = tuple(
            [
                resource
                for resource in held_then
                if (had := held.get(resource.name)) is not resource and had != resource  # mostly it is the same object
            ]
        )
        if self.interest.wildcard:
            removed = tuple(name for name in held if name not in wanted)
            return Response(held_then, removed, news, held=held_then) if news or removed or self.due else None
        self._held = tuple(resource for resource in self._held if resource.name in wanted)
        names = self._uncertain.union(resource.name for resource in news)
        told = tuple(resource for resource in held_then if resource.name in names)
        return Response(told, (), news, held=held_then) if told or self.due else None

    def _compose_group(self, group: tuple[Resource, ...]) -> Response:
        wanted = {resource.name: resource for resource in (*self._held, *group)}
        held_then = tuple(sorted(wanted.values(), key=_by_name))
        return Response(held_then if self.interest.wildcard else group, (), group, group=True, held=held_then)

    def _content(self, held: Mapping[str, Resource]) -> Iterable[tuple[str, Resource]]:
        if self.interest.wildcard:
            return self.content.items()
        found = [(name, self.content.get(name)) for name in self.interest.names]
        there = [(name, resource) for name, resource in found if resource is not None]
        if self._nothing is not None and len(there) < len(found):
            settled, self._open = self.content.state == "settled", set()
            for name in [name for name, resource in found if resource is None and not self.content.known(name)]:
                nothing = self._nothing(name)
                # What the client has of a name that is gone stays until what refers to it has gone as well.
                if settled and held.get(name, nothing) == nothing:
                    there.append((name, nothing))
                elif not settled:
                    self._open.add(name)
        return there

    def _payload(self, response: Response, nonce: str) -> bytes:
        return discovery_response(self.type_url, nonce, _version(response.held), response.resources)

    def _accepted(self, response: Response) -> None:
        self._keep(response.held)
        if self.interest.wildcard:
            self._uncertain.clear()
        else:
            self._uncertain.difference_update(resource.name for resource in response.resources)
        if response.group:
            self._stale = True

    def _refused(self, response: Response, *, named: bool) -> None:
        if response.news:
            # It may have applied all of it but the culprits, or nothing: what is not to blame is offered again.
            self._uncertain.update(resource.name for resource in response.news if not self.quarantine.hold(resource))
            self._uncertain.update(response.removed)
            self._amends_due = self._amends_due or bool(self._uncertain)
            self._stale = True
            self._doubtful.clear()
            if self._widened:
                self._held = ()
        else:
            self._keep(response.held)

    def _keep(self, held: tuple[Resource, ...]) -> None:
        if not self.interest.wildcard:
            covers, doubtful = self.interest.covers, self._doubtful
            held = tuple(resource for resource in held if covers(resource.name) and resource.name not in doubtful)
        self._doubtful.clear()
        self._held = () if self._widened else held


def _version(held: Iterable[Resource]) -> str:
    """The version of a set, given in the order of names. Frames are self-delimiting, so this is unambiguous."""
    digest = xxh3_128()
    for resource in held:
        digest.update(resource.frame)
    return digest.hexdigest()


class SotwSession(Session[SotwRequest]):
    """A stream of StreamAggregatedResources."""

    def _exchange(self, type_url: str, content: Subscription | None) -> SotwExchange:
        return SotwExchange(type_url, content, self._order.nothing.get(type_url))
