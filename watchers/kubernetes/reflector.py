"""Keeps the facts of one kind of objects equal to what one API server holds: `listwatch` with hands.

In: a session and a machine that says what to ask. Out: facts in a store under (cluster, kind), or (cluster, kind,
namespace) of a kind that is read in one namespace; SourceFaults for objects that cannot be used; the state, by a call.
Of kinds that are in namespaces only the selected ones are read: nothing else is kept, not even by its name.
One task, nothing per event: what arrives together is one revision. No slice of work is longer than what fits into the
connection's buffer, but for the answer to a list that came in one piece, which a thread decodes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping

import msgspec

from watchers.facts import Fact, ObjectKey
from watchers.facts.invalid import InvalidObject
from watchers.kubernetes.budget import SHARE
from watchers.kubernetes.events import EventReader, refusal
from watchers.kubernetes.flow import Flow
from watchers.kubernetes.kept import Kept
from watchers.kubernetes.lines import Lines, batches
from watchers.kubernetes.listwatch import (
    USUAL,
    Action,
    Apply,
    Discover,
    Failure,
    List,
    ListWatch,
    Pace,
    Replace,
    Report,
    State,
    Wait,
    Watch,
)
from watchers.kubernetes.quota import Holdings
from watchers.kubernetes.resources import Resource
from watchers.kubernetes.session import Broken, Requests, Response
from watchers.metrics import WatchMetrics
from watchers.selection import Selection
from watchers.sink import Cause
from watchers.staging import Sink

_LONGEST_BODY = 512 << 20
_LONGEST_REFUSAL = 64 << 10
_DECODED_INLINE = 4 << 20
_DISCOVERY_SECONDS = 30.0
_DROPPED_AT_ONCE = 1000
_ASKED_AGAIN_SECONDS = 30.0
_ENTERED_AT_ONCE = 2000

_OF_SYSTEM_NAMESPACE = frozenset({"Gateway"})
"""Kinds that are read of the system namespace in any case: what leads into a network may be there."""

Request = List | Watch | Discover | Wait


class Reflector:
    """One resource of one cluster. ``report`` is called with every change of state and its reason.

    ``flow`` has it wait where its cluster says too much, ``holdings`` is what is held of the cluster altogether.
    ``selection`` are the namespaces that are read (None: all), for which it is waited a little, and which may change.
    ``chance`` gives numbers from 0 to 1, for jitter; ``now`` and ``wall`` are the time in seconds, one that only grows
    and Unix time.
    """

    def __init__(
        self,
        resource: Resource,
        cluster: str,
        requests: Requests,
        store: Sink,
        *,
        system_namespace: str,
        report: Callable[[State, str], None],
        metrics: WatchMetrics,
        flow: Flow,
        holdings: Holdings,
        selection: Selection | None = None,
        chance: Callable[[], float],
        pace: Pace = USUAL,
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._resource = resource
        self._kind = resource.kind.apart()
        self._selection = selection if resource.selective else None
        self._narrowed = False
        self._asking: asyncio.Timeout | None = None
        self._cluster = cluster
        self._requests = requests
        self._system_namespace = system_namespace
        self._tell = report
        self._metrics = metrics
        self._now = now
        self._wall = wall
        self._source = f"cluster {cluster}"
        self._labels = (cluster, resource.kind.fact)
        self._machine = ListWatch(resource.paths, chance=chance, pace=pace)
        self._flow = flow
        self._most_bytes = flow.limits.object_bytes
        self._reader = EventReader(self._kind, cluster, system_namespace, most_bytes=self._most_bytes)
        self._kept = Kept(
            resource.prefix(cluster),
            store,
            holdings,
            kind=self._kind,
            namespace=resource.namespace,
            metrics=metrics,
            labels=self._labels,
        )
        self._withheld = ""
        self._asked_again = 0.0
        self._received = 0.0

    async def run(self) -> None:
        """Keeps the facts up to date until cancelled. They stay: to remove them is up to who cancels."""
        if self._selection is None:
            await self._keep()
            return
        await self._selection.settled()
        with self._selection.heard_by(self._select):
            self._select()
            # Nothing is held yet that would have to be dropped.
            self._narrowed = False
            await self._keep()

    async def _keep(self) -> None:
        actions = self._machine.begin(self._now())
        while True:
            request = self._carry_out(actions)
            if request is None:
                # Only while a watch is being read is there nothing to ask for.
                raise RuntimeError(f"{self._source}: nothing to do after {actions}")
            try:
                async with asyncio.timeout(None) as asking:
                    self._asking = asking
                    actions = await self._ask(request)
            except TimeoutError:
                if not asking.expired():
                    raise
                actions = self._machine.left(self._now())
            finally:
                self._asking = None
            if self._narrowed:
                await self._drop_unselected()

    def _select(self) -> None:
        """Other namespaces may be selected than before: from the next object on they decide."""
        before, after = self._kind.namespaces, self._selection.namespaces if self._selection is not None else None
        if after is not None and self._kind.name in _OF_SYSTEM_NAMESPACE:
            after |= {self._system_namespace}
        if after == before:
            return
        self._kind.namespaces = after
        leave = False
        if after is not None and (before is None or not before <= after):
            self._narrowed = True
            # A list goes on: what it brings is looked at once more before it is written.
            leave = self._machine.watching
        if before is not None and (after is None or not after <= before):
            leave = self._machine.widen(None if after is None else sorted(after - before)) or leave
        if leave and self._asking is not None and not self._asking.expired():
            self._asking.reschedule(asyncio.get_running_loop().time())

    async def _drop_unselected(self) -> None:
        """What is held of namespaces that are not selected any more goes, some of it at a time."""
        self._narrowed = False
        counts, held = self._kind.counts, self._kept.unselected()
        cause = Cause(int(self._wall() * 1e9), self._source, len(held))
        for first in range(0, len(held), _DROPPED_AT_ONCE):
            # Meanwhile they may have been selected again.
            gone = [key for key in held[first : first + _DROPPED_AT_ONCE] if not counts(key[2])]
            self._kept.drop(gone, cause)
            await asyncio.sleep(0)
        self._kept.drop_faults(cause)

    def _carry_out(self, actions: Iterable[Action]) -> Request | None:
        """Does what can be done at once; returns the request, if there is one to make."""
        for action in actions:
            match action:
                case Apply(changes, invalid, objects):
                    self._apply(changes, invalid, objects)
                case Replace(items, invalid):
                    self._replace(items, invalid)
                case Report():
                    self._report(action)
                case _:
                    return action
        return None

    async def _ask(self, request: Request) -> list[Action]:
        try:
            match request:
                case Wait(seconds, reason):
                    self._metrics.restarts.add(self._cluster, reason)
                    await asyncio.sleep(seconds)
                    return self._machine.passed(self._now())
                case List():
                    return await self._list(request)
                case Watch():
                    return await self._watch(request)
                case Discover():
                    return await self._discover()
        except Broken as error:
            return self._machine.failed(Failure(error.reason, str(error)), self._now())

    async def _list(self, request: List) -> list[Action]:
        query = self._selectors()
        if request.limit:
            query["limit"] = str(request.limit)
        # Without a resourceVersion the answer is the newest there is: a server that lags behind must not take us back.
        if request.continue_token:
            query["continue"] = request.continue_token
        async with self._requests.get(request.path, query, silence=request.silence) as response:
            if response.status != 200:
                return await self._refused(response)
            body = await _body(response, _LONGEST_BODY)
        self._received = self._wall()
        if not request.continue_token and not self._machine.told_until:
            # The list of a namespace that has just been selected says nothing of what is withheld elsewhere.
            self._kept.quota.begin()
        decode, cluster, system_namespace = self._kind.decode_page, self._cluster, self._system_namespace
        try:
            if len(body) <= _DECODED_INLINE:
                page = decode(body, cluster, system_namespace, self._most_bytes)
            else:
                page = await asyncio.to_thread(decode, body, cluster, system_namespace, self._most_bytes)
        except InvalidObject as error:
            return self._machine.failed(Failure("decode", str(error)), self._now())
        await self._flow.passed(len(body), len(page.facts))
        facts = self._kept.gather(page.facts, self._machine.gathered)
        if not page.continue_token:
            await self._enter()
        return self._machine.page(msgspec.structs.replace(page, facts=facts), self._now())

    async def _watch(self, request: Watch) -> list[Action]:
        query = self._selectors()
        query |= {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(request.seconds)}
        if request.initial_events:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        if request.resource_version:
            query["resourceVersion"] = request.resource_version
        machine, lines = self._machine, Lines(self._most_bytes)
        async with self._requests.get(request.path, query, silence=request.silence) as response:
            if response.status != 200:
                return await self._refused(response)
            self._carry_out(machine.opened(self._now()))
            if request.initial_events:
                self._kept.quota.begin()
            async for chunk in response.chunks():
                self._received = self._wall()
                try:
                    complete = lines.feed(chunk)
                except ValueError as error:
                    return machine.failed(Failure("decode", str(error)), self._now())
                if not complete:
                    await self._flow.passed(len(chunk), 0)
                for batch in batches(complete, SHARE):
                    following = await self._hear(batch)
                    await self._flow.passed(sum(map(len, batch)), len(batch))
                    if following is not None:
                        return [following]
        return machine.ended(self._now())

    async def _hear(self, lines: list[bytes]) -> Request | None:
        """Takes lines of the watch; returns what is to be asked for instead of more of them."""
        machine, quota = self._machine, self._kept.quota
        events = self._reader.read(lines, machine.told_until)
        if not machine.told_until:
            events.changes = dict(self._kept.gather(events.changes.items(), machine.gathered))
            if events.initial_end:
                await self._enter()
        self._metrics.events.add(*self._labels, amount=events.objects)
        self._metrics.heard.set(*self._labels, value=self._received)
        following = self._carry_out(machine.events(events, self._now()))
        if following is None and quota.has_room and self._now() - self._asked_again > _ASKED_AGAIN_SECONDS:
            self._asked_again = self._now()
            following = self._carry_out(machine.again(self._now()))
        return following

    async def _discover(self) -> list[Action]:
        async with self._requests.get("/apis", {}, silence=_DISCOVERY_SECONDS) as response:
            if response.status != 200:
                return await self._refused(response)
            body = await _body(response, _LONGEST_BODY)
        return self._machine.discovered(_group_versions(body), self._now())

    async def _refused(self, response: Response) -> list[Action]:
        status, headers = response.status, response.headers
        body = await _body(response, _LONGEST_REFUSAL)
        return self._machine.refused(refusal(status, body, headers), self._now())

    def _selectors(self) -> dict[str, str]:
        fields, labels, namespaces = self._resource.field_selector, self._resource.label_selector, self._kind.namespaces
        if namespaces is not None and len(namespaces) == 1:
            # Selectors of fields know no "or", so that of several namespaces everything is asked for.
            (only,) = namespaces
            fields = f"{fields},metadata.namespace={only}".lstrip(",")
        selectors = {"fieldSelector": fields, "labelSelector": labels}
        return {name: value for name, value in selectors.items() if value}

    async def _enter(self) -> None:
        """Writes a long first list some of it at a time, so that it holds nobody up: it replaces nothing yet."""
        first = () if self._resource.namespace else self._machine.first()
        if len(first) <= _ENTERED_AT_ONCE:
            return
        for begin in range(0, len(first), _ENTERED_AT_ONCE):
            self._apply(dict(first[begin : begin + _ENTERED_AT_ONCE]), {}, _ENTERED_AT_ONCE)
            await asyncio.sleep(0)

    def _replace(self, items: dict[ObjectKey, Fact], invalid: Mapping[ObjectKey, InvalidObject]) -> None:
        self._kept.replace(items, invalid, int(self._received * 1e9), self._source)
        self._tell_withheld()

    def _apply(
        self, changes: Mapping[ObjectKey, Fact | None], invalid: Mapping[ObjectKey, InvalidObject], objects: int
    ) -> None:
        self._kept.apply(changes, invalid, Cause(int(self._received * 1e9), self._source, objects))
        self._tell_withheld()

    def _tell_withheld(self) -> None:
        """Objects that are withheld are no fault of the watch, but people have to know."""
        reason = self._kept.quota.reason
        if reason != self._withheld:
            self._withheld = reason
            self._report(self._machine.report)

    def _report(self, report: Report) -> None:
        self._tell(report.state, report.reason or self._withheld)


class _GroupVersion(msgspec.Struct):
    group_version: str = msgspec.field(name="groupVersion")


class _Group(msgspec.Struct):
    versions: list[_GroupVersion]


class _Groups(msgspec.Struct):
    groups: list[_Group]
    kind: str = ""


async def _body(response: Response, most: int) -> bytes:
    """The whole body; raises Broken if there is more of it than can be meant well."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.chunks():
        chunks.append(chunk)
        size += len(chunk)
        if size > most:
            raise Broken("server", f"an answer is longer than {most} bytes")
    return b"".join(chunks)


def _group_versions(body: bytes) -> frozenset[str] | None:
    """The API groups in a list of them; None if the body is none."""
    try:
        groups = msgspec.json.decode(body, type=_Groups)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if groups.kind != "APIGroupList":
        return None
    return frozenset(version.group_version for group in groups.groups for version in group.versions)
