"""The incremental variant of the protocol: differences, and names of what is gone.

A client is told what changed since it last heard; one that reconnects names what it holds and is told the difference to
that. What a client holds is known without a list of it: everything up to the last take, except what waits here, what it
rejected, and, while the content is only partial, what it claims to hold from an earlier stream. So a wildcard
subscription that is up to date keeps no name at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from xds.encoded import ADMITS_HEALTHY, Resource, delta_response
from xds.session.content import Changes, Subscription, Untaken
from xds.session.exchange import Exchange, Response
from xds.session.requests import MAX_NAMES, DeltaRequest, ProtocolViolation

CHUNK: Final = 2 << 20
"""Bytes of resources in one response to a client that named its versions: it works already, and smaller messages keep
the memory of a thousand reconnections low."""
WHOLE: Final = 100 << 20
"""Bytes of resources in any response. Below this an answer is never split, since a client that holds nothing begins to
work after the first; ztunnel takes messages of up to 200 MiB."""


class DeltaExchange(Exchange[DeltaRequest]):
    """One type of a DeltaAggregatedResources stream."""

    def __init__(self, type_url: str, content: Subscription | None, *, individual: bool = True) -> None:
        super().__init__(type_url, content)
        self._individual = individual
        """Whether the client applies what a rejection does not name (see ordering.Order)."""
        self._everything = False
        """The complete content is owed, apart from what the client claims to hold."""
        self._asked: dict[str, bool] = {}
        """Names that are owed an answer; true if the client holds nothing under it."""
        self._claims: dict[str, str] = {}
        """Versions the client holds from an earlier stream and was not told the difference to."""
        self._reconciled = True
        """Whether the claims were compared with settled content; those left then are of resources yet to be made."""
        self._joined_anew: set[str] = set()
        """What was sent to a client with claims that it did not hold, or not as it is: what joins it must come as well,
        whatever the client claims to hold (see Ties). Later on, the content itself repeats what must come again."""
        self._joining_due = False
        """Whether that has become more since what joins it was last looked for."""
        self._waiting: dict[str, Resource] = {}
        """Resources to be sent."""
        self._unheld: set[str] = set()
        """Names whose first answer the client has not accepted yet: if it refuses it, it still waits for one."""
        self._silent: set[str] = set()
        """Names asked for whose resource is only being made: if it comes to nothing, the client still waits."""
        self._absent: dict[str, None] = {}
        """Names asked for under which there is nothing: told at once, as the client holds nothing there either."""
        self._gone: dict[str, int] = {}
        """Removals to be sent, with the tick in which each was noticed."""
        self._limit = WHOLE

    def ask(self, request: DeltaRequest) -> None:
        """Take in what a request says about the subscription, which holds even if its nonce is stale."""
        claims: Mapping[str, str] = {}
        if self.served and not (self.interest.begun and request.response_nonce):
            claims = request.initial_resource_versions
        if len(claims) > MAX_NAMES:
            raise ProtocolViolation(f"initial versions of {len(claims)} resources; {MAX_NAMES} are the limit")
        asked = self.interest.change(request.subscribe, request.unsubscribe, claims)
        self._forget(asked.dropped)
        self._release(asked.dropped)
        if asked.narrowed:
            if self._everything:  # what is owed of all is owed of what stays named, which the client may have forgotten
                self._asked.update(dict.fromkeys(self.interest.names, False))
            mentioned = (*self._asked, *self._claims, *self._waiting, *self._gone, *self.bisection.suspects)
            self._forget(name for name in (*mentioned, *self.quarantine.current) if not self.interest.covers(name))
        for name in asked.names:
            self._asked[name] = name in asked.new
            self._claims.pop(name, None)
        everything = asked.everything or (bool(claims) and self.interest.wildcard)
        self._everything = (self._everything or everything) and self.interest.wildcard
        self._answer_due = self._answer_due or everything
        if self.interest.empty:
            self._answer_due = self._amends_due = False
        if claims:
            self._claim(claims)

    def _claim(self, claims: Mapping[str, str]) -> None:
        self._claims.update(claims)
        if "" in claims.values():
            for name, version in claims.items():
                if not version:  # asked for earlier and never answered
                    del self._claims[name]
                    self._asked[name] = True
        self._reconciled = not self._claims
        self._limit = CHUNK

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            self._asked.pop(name, None)
            self._claims.pop(name, None)
            self._waiting.pop(name, None)
            self._absent.pop(name, None)
            self._gone.pop(name, None)
            self._unheld.discard(name)
            self._silent.discard(name)
            self.bisection.drop(name)
            self.quarantine.lift(name)

    @property
    def fresh(self) -> bool:
        """See Exchange."""
        return self._everything or bool(self._waiting or self._asked or self._absent)

    @property
    def deferring(self) -> bool:
        """See Exchange."""
        return not self._reconciled

    @property
    def removing(self) -> bool:
        """See Exchange."""
        return bool(self._gone)

    def held(self, present: Mapping[str, Resource]) -> set[str]:
        """See Exchange. What the client does not hold is known by name; all else it has been told and has accepted."""
        if self._everything or not self.answered:
            return set()
        names = present.keys() - self._waiting.keys() - self._asked.keys()
        names -= self.bisection.suspects.keys()
        names -= self.quarantine.current.keys()
        if self._under_way is not None:
            names.difference_update([resource.name for resource in self._under_way[1].news])
        content, claims, covers = self.content, self._claims, self.interest.covers
        if content.pending:
            if not isinstance(content, Untaken):
                return set()
            names = {name for name in names if not content.untaken(name)}
        if claims:
            names = {name for name in names if claims.get(name, version := present[name].version) == version}
        return names if self.interest.wildcard else {name for name in names if covers(name)}

    def _removable(self, released: int) -> bool:
        return any(tick <= released for tick in self._gone.values())

    def _note(self, changes: Changes, tick: int) -> None:
        covers, suspects = self.interest.covers, self.bisection.suspects
        changed = changes.changes
        special = self._everything or self._claims or self._gone or self._absent or self._silent or suspects
        if self.interest.wildcard and not (special or self.quarantine.occupied):
            # As it nearly always is: whatever there is now is to be sent. Thousands may have changed, for every stream.
            self._waiting.update({name: resource for name, resource in changed.items() if resource is not None})
            changed = {name: None for name, resource in changed.items() if resource is None}
        for name, resource in changed.items():
            if not covers(name):
                continue
            if resource is None:
                claimed = self._claims.pop(name, None) is not None
                self._waiting.pop(name, None)
                self.bisection.drop(name)
                self.quarantine.lift(name)
                if name in self._silent:
                    self._silent.discard(name)
                    self._absent[name] = None
                elif self.answered or claimed:  # else the client has never heard of it
                    self._gone[name] = tick
                continue
            if name in self._silent:
                self._silent.discard(name)
                self._unheld.add(name)
            self._gone.pop(name, None)
            self._absent.pop(name, None)
            if suspects and not self.bisection.suspected(resource):
                self.bisection.drop(name)
            if not self._everything and self._offer(name, resource):  # else it comes with everything
                self._asked.pop(name, None)

    def _offer(self, name: str, resource: Resource) -> bool:
        """Send a resource, unless the client would refuse it, is not to be told yet, or (true) holds it."""
        claim = self._claims.get(name)
        if claim is not None:
            again = not self._joined_anew.isdisjoint(resource.ties.joins)
            untold = self.content.state != "settled" and not self.content.final(name)
            if untold and not (again and claim == resource.version):  # as it is held it may be sent at any time
                return False
            del self._claims[name]
            if not again and (claim == resource.version or self.content.current(name, claim)):
                return True
        # A claim does not tell what the client's version admitted: perhaps less.
        if not self._reconciled and resource.ties.admits and (claim is None or resource.ties.admits > ADMITS_HEALTHY):
            self._joined_anew.add(name)
            self._joining_due = True
        if self.quarantine.hold(resource):
            self._waiting.pop(name, None)
        elif not self.bisection.suspected(resource):
            self._waiting[name] = resource
        return False

    def _offer_joining(self) -> None:
        """Send what joins that which the client is given anew; its claims may have been taken for good before."""
        self._joining_due = False
        for name, resource in self.content.items():
            if (
                not self._joined_anew.isdisjoint(resource.ties.joins)
                and name not in self._waiting
                and self.interest.covers(name)
            ):
                self._offer(name, resource)
                # Were the stream to break between the two, the client would name both, and nobody know that it must.
                self._limit = WHOLE

    def _compose(self, tick: int, released: int) -> Response | None:
        if self._everything:
            self._gather()
        if self._asked:
            self._answer()
        if not self._reconciled and self.content.state == "settled":
            self._reconcile(tick)
        if self._joining_due:
            self._offer_joining()
        if self._joined_anew and self._reconciled:
            self._joined_anew = set()
        resources = self._chunk()
        removed = [*self._absent]
        self._absent.clear()
        if self._gone and not self._waiting:
            going = [name for name, noticed in self._gone.items() if noticed <= released]
            removed += going
            for name in going:
                del self._gone[name]
            if not self._gone:
                self._gone = {}
        if not (resources or removed or self.due):
            return None
        return Response(resources, tuple(removed), resources)

    def _compose_group(self, group: tuple[Resource, ...]) -> Response:
        return Response(group, (), group, group=True)

    def _gather(self) -> None:
        """All there is."""
        self._everything = False
        claims = self._claims
        if claims and self.content.state == "settled":
            # What every proxy of a fleet goes through when its control plane restarts: most of it is held already.
            for name, resource in self.content.items():
                claim = claims.get(name)
                if claim == resource.digest.hex() or (claim and self.content.current(name, claim)):
                    del claims[name]
                else:
                    self._offer(name, resource)
        elif claims or self.quarantine.occupied or self.bisection.suspects:
            for name, resource in self.content.items():
                self._offer(name, resource)
            for name in [name for name in claims if self.content.final(name) and not self.content.known(name)]:
                del claims[name]
                self._absent[name] = None
        else:
            self._waiting.update(self.content.items())

    def _answer(self) -> None:
        """The names asked for; those that exist but have no resource yet are answered when they have."""
        for name, new in self._asked.items():
            claim = self._claims.get(name)
            if claim is not None and self.content.current(name, claim):  # asked first: `get` may make another
                if self.content.state == "settled" or self.content.final(name):
                    del self._claims[name]
                continue
            resource = self.content.get(name)
            if resource is not None:
                self._gone.pop(name, None)
                self._offer(name, resource)
                if new and name in self._waiting:
                    self._unheld.add(name)
                if new and name not in self._claims and self.quarantine.hold(resource):
                    self._absent[name] = None  # there is nothing that this client could use
            elif name in self._gone:
                if new:  # The client waits for it, perhaps before it answers for what the removal waits for.
                    del self._gone[name]
                    self._absent[name] = None
            elif self.content.known(name):
                if new and claim is None:
                    self._silent.add(name)
            elif name not in self._claims or self.content.state == "settled":
                self._claims.pop(name, None)
                self._absent[name] = None
        self._asked.clear()

    def _reconcile(self, tick: int) -> None:
        """Compare with what the client claims to hold, now that absence means something."""
        for name, claim in list(self._claims.items()):
            if not self._joined_anew and self.content.current(name, claim):
                del self._claims[name]
                continue
            resource = self.content.get(name)
            if resource is not None:
                self._offer(name, resource)
            elif not self.content.known(name):
                del self._claims[name]
                self._gone[name] = tick
        self._reconciled = True
        self._claims = dict(self._claims)  # a dict keeps the size it once had

    def _chunk(self) -> tuple[Resource, ...]:
        """As much of what waits as one response may hold, and one resource at least."""
        resources = tuple(self._waiting.values())
        if len(resources) < 2 or sum([len(resource.frame) for resource in resources]) <= self._limit:
            self._waiting = {}
            if self._reconciled:
                self._limit = WHOLE
            return resources
        resources = tuple(sorted(resources, key=lambda resource: resource.ties.rank))
        size, count = len(resources[0].frame), 1
        while (size := size + len(resources[count].frame)) <= self._limit:
            count += 1
        resources = resources[:count]
        for resource in resources:
            del self._waiting[resource.name]
        return resources

    def _payload(self, response: Response, nonce: str) -> bytes:
        return delta_response(self.type_url, nonce, response.resources, response.removed, str(self.revision))

    def _accepted(self, response: Response) -> None:
        if self._unheld:
            self._unheld.difference_update([resource.name for resource in response.news])

    def _refused(self, response: Response, *, named: bool) -> None:
        for resource in response.news:
            # It may have been asked for again meanwhile.
            waiting = self._waiting.get(resource.name)
            if waiting is None:
                continue
            if self.quarantine.hold(waiting) or self.bisection.suspected(waiting):
                del self._waiting[resource.name]
            else:
                self.bisection.drop(resource.name)
        refused = [resource.name for resource in response.news if resource.name in self.quarantine.current]
        for name in self._unheld.intersection(refused):
            self._unheld.discard(name)
            if name not in self._waiting:
                self._absent[name] = None
        if response.news and not (named and self._individual):
            for name in response.removed:
                if self.interest.covers(name) and name not in self._waiting:
                    self._gone.setdefault(name, 0)
        if named and not self._individual:
            for resource in response.news:
                current = self.content.get(resource.name)
                if current is not None and self.interest.covers(resource.name) and not self.quarantine.hold(current):
                    self._waiting[resource.name] = current
