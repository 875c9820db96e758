"""The loop that turns changed facts into published resources, pass by pass.

In: the Tables of facts, interest, rejections and roots, through cursors. Out: resources, completeness, admissions,
selections of namespaces and findings, each applied in one revision per pass, so that nobody ever sees a reference
before its target. Leading edge: an idle pipeline works at once; under load it pauses in proportion to the last pass. A
pass is cut into slices so short that streams are served between them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from aggregator.app.activations import Activations
from aggregator.app.records import Batch, Pass, Records
from aggregator.cache.table import Table
from aggregator.findings import Finding
from aggregator.graph import Pass as Result
from aggregator.mesh.selection import Selected
from aggregator.mesh.standing import PastLimit
from aggregator.pipeline import (
    ADMISSIONS,
    AWAITED,
    DOMAINS,
    HOSTNAMES,
    PAST_LIMIT,
    RESOURCES,
    REVIEWS,
    SELECTIONS,
    SETTLED,
    TRUST_DOMAIN,
    WANTED,
    WRITES,
    Pipeline,
)
from aggregator.security.admissions import Account, ProxyPod
from aggregator.views.rejections import Rejection
from aggregator.views.view import Completeness, View, joining_again
from watchers.facts import Fact
from watchers.facts.keys import ObjectKey
from watchers.facts.named import WantedKey
from watchers.writes import Write, WriteKey
from xds.encoded import Resource
from xds.metrics import NO_WORK, WORK

log = logging.getLogger(__name__)

MOST_KEYS = 2000
"""How many changed facts one pass takes at most, give or take the rest of a revision."""
SLICE = 0.005
"""Seconds after which a slice of a pass ends."""
SHORT_PAUSE = 0.010
LONGEST_PAUSE = 0.250
ALLOWANCE = 0.500
"""Seconds of work that passes may be ahead of a quarter of a core: a burst is worked off at once, a flood is not. No
more than twice as much is held against them, so that three seconds of quiet make up for anything."""
_STEPS = 20
"""Steps of the graph between two looks at the clock. Most take 20 us, those of services that many clusters have 200."""


class Tables(msgspec.Struct, frozen=True):
    """The Tables around the graph.

    Each has one writer: watchers for facts, the server for interest and rejections, whoever has the certificate
    authority for the roots (PEM of all that are trusted), the loop for all others.
    """

    facts: Table[ObjectKey, Fact]
    interest: Table[tuple[str], View]
    rejections: Table[tuple[str, str], Rejection]
    roots: Table[tuple[str], str]
    resources: Table[tuple[str, str], Resource]
    settled: Table[tuple[str], Completeness]
    admissions: Table[tuple[str, str, str], Account | ProxyPod]
    findings: Table[ObjectKey, tuple[Finding, ...]]
    selections: Table[tuple[str], Selected]
    hostnames: Table[tuple[str], tuple[ObjectKey, ...]]
    awaited: Table[tuple[str], bool]
    wanted: Table[WantedKey, tuple[str, ...]]
    reviews: Table[tuple[str, str], bool]
    writes: Table[WriteKey, Write]
    past_limit: Table[ObjectKey, PastLimit]
    trust_domain: Table[tuple[str], str]

    @classmethod
    def empty(cls) -> Tables:
        """New Tables with nothing in them."""
        return cls(
            facts=Table("facts"),
            interest=Table("interest"),
            rejections=Table("rejections"),
            roots=Table("roots"),
            resources=Table("resources", digest=_digest, repeats=joining_again),
            settled=Table("settled"),
            admissions=Table("admissions"),
            findings=Table("findings"),
            selections=Table("selections"),
            hostnames=Table("hostnames"),
            awaited=Table("hosts that await a certificate"),
            wanted=Table("objects to read by name"),
            reviews=Table("accounts to review"),
            writes=Table("writes"),
            past_limit=Table("clusters past their limit"),
            trust_domain=Table("trust domain"),
        )


class Taken(NamedTuple):
    """How many facts a pass took, and whether there are more that had changed before it began."""

    keys: int
    left_some: bool


def _digest(resource: Resource) -> bytes:
    return resource.digest


class Aggregator:
    """Runs the graph over the Tables. `run` is to be a task of its own and never ends by itself."""

    def __init__(
        self,
        pipeline: Pipeline,
        tables: Tables,
        records: Records,
        *,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._pipeline = pipeline
        self._tables = tables
        self._records = records
        self._now = now
        self._monotonic = monotonic
        self._bell = asyncio.Event()
        self._facts = tables.facts.cursor(bell=self._bell.set)
        self._interest = tables.interest.cursor(bell=self._bell.set)
        self._rejections = tables.rejections.cursor(bell=self._bell.set)
        self._roots = tables.roots.cursor(bell=self._bell.set)
        self.activations = Activations(tables.interest, records)
        self.complete = asyncio.Event()
        """Set once a pass that includes the whole of home has been published."""
        self.settled = asyncio.Event()
        """Set once a pass has been published since every remote cluster has answered or passed its limit."""
        self.longest_slice = 0.0
        """Seconds of the longest slice so far, publication not included."""
        self._work = NO_WORK
        """What messages of the pass under way took; between its slices others make some, too."""

    async def run(self) -> None:
        """Work for ever, with pauses between passes, in which changes gather: as long as the last pass and its push
        took, but short; three times the pass while passes have taken more than their share. What a pass left behind,
        and what comes after a single change, is taken without pause.
        """
        accounts = self._pipeline.home.ztunnel_accounts
        trusted = {("account", namespace, name): True for namespace, name in accounts}
        await self._pass({self._pipeline.node_proxies: trusted}, ())
        ahead, ended, pause = 0.0, self._monotonic(), 0.0
        while True:
            await self._something_to_do()
            # In quiet times the pause is long over, and no timer was needed for it.
            if (left := ended + pause - self._monotonic()) > 0:
                await asyncio.sleep(left)
            began = self._monotonic()
            ahead = max(0.0, ahead - (began - ended) / 3)
            taken = await self.one_pass()
            took = self._monotonic() - began
            # Streams that have something to send have their turn now: the more of them, the more is to be gathered.
            await asyncio.sleep(0)
            ended = self._monotonic()
            ahead = min(ahead + took, 2 * ALLOWANCE)
            if taken.left_some:
                pause = 0.0
            elif ahead < ALLOWANCE:
                pause = min(ended - began, SHORT_PAUSE) if taken.keys > 1 else 0.0
            else:
                pause = min(3 * took, LONGEST_PAUSE)

    async def one_pass(self) -> Taken:
        """Take what changed and publish what follows from it."""
        self._bell.clear()
        batch = self._facts.take(MOST_KEYS)
        left_some = self._facts.pending
        if left_some:
            self._bell.set()
        if batch.causes:
            self._records.append(Batch(batch.revision, len(batch.changes), batch.causes, batch.dropped, time.time_ns()))
        inputs: dict[Any, Any] = dict(self._pipeline.facts(batch.changes))
        if self._interest.pending:
            inputs[self._pipeline.interest] = self._interest.take().changes
        if self._rejections.pending:
            inputs[self._pipeline.rejections] = self._rejections.take().changes
        if self._roots.pending:
            inputs[self._pipeline.roots] = self._roots.take().changes
        await self._pass(inputs, batch.causes)
        return Taken(len(batch.changes), left_some)

    async def _something_to_do(self) -> None:
        """Until a Table rings, or a moment the graph waits for has passed."""
        moment = self._pipeline.graph.next_moment()
        if moment is None:
            await self._bell.wait()
            return
        try:
            async with asyncio.timeout(max(0.0, moment - self._now())):
                await self._bell.wait()
        except TimeoutError:
            pass

    async def _pass(self, inputs: dict[Any, Any], causes: tuple[object, ...]) -> None:
        graph = self._pipeline.graph
        started = time.time_ns()
        graph.begin(inputs, self._now())
        while (result := self._slice()) is None:  # noqa: ASYNC110 - nothing is waited for: streams get their turn
            await asyncio.sleep(0)
        self._publish(result, causes, started)

    def _slice(self) -> Result | None:
        """One slice. Steps differ in cost by a hundred times, so the clock decides how many fit in."""
        began, before = self._monotonic(), WORK.now()
        result, took = None, 0.0
        while result is None and took < SLICE:
            result = self._pipeline.graph.run(_STEPS)
            took = self._monotonic() - began
        self.longest_slice = max(self.longest_slice, took)
        self._work += WORK.now() - before
        return result

    def _publish(self, result: Result, causes: tuple[object, ...], started: int) -> None:
        """Apply a pass to the Tables, all before anyone else runs; resources first, then what speaks of them."""
        for failure in result.failures:
            extra = {"collection": failure.collection, "item": failure.key, "cause": failure.error}
            log.error("derivation failed, its item is withheld", extra=extra)
        tables, published = self._tables, result.published
        changed = sum(len(changes) for changes in published.values())
        done = Pass(
            revision=tables.resources.revision + 1,
            causes=causes,
            started_ns=started,
            ended_ns=time.time_ns(),
            evaluated=result.evaluated,
            changed=changed,
            published=len(published.get(RESOURCES, ())),
            work=self._work,
        )
        self._work = NO_WORK
        self._records.append(done)
        in_order: tuple[tuple[str, Table[Any, Any]], ...] = (
            (RESOURCES, tables.resources),
            (TRUST_DOMAIN, tables.trust_domain),
            (ADMISSIONS, tables.admissions),
            ("findings", tables.findings),
            (SETTLED, tables.settled),
            (PAST_LIMIT, tables.past_limit),
            (SELECTIONS, tables.selections),
            (HOSTNAMES, tables.hostnames),
            (AWAITED, tables.awaited),
            (WANTED, tables.wanted),
            (REVIEWS, tables.reviews),
            (WRITES, tables.writes),
        )
        for name, table in in_order:
            if name in published:
                table.apply(published[name].items(), done)
        if DOMAINS in published:
            self.activations.note(published[DOMAINS], published.get(RESOURCES, {}), done)
        self._note_progress()

    def _note_progress(self) -> None:
        """Once set, both stay: a cluster that is registered later unsettles views, not the process."""
        if not self.settled.is_set():
            states = [state for _, state in self._tables.settled.scan()]
            if states:
                self.complete.set()
            if states and all(state == "settled" for state in states):
                self.settled.set()
