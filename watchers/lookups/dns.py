"""Looks up the DNS names that somebody needs, again and again, and writes down what they resolve to.

In: a Table of names. Out: a ResolvedName fact for each, as soon as there is something to say, gone with the name. One
task per name, few of them asking at once. What an answer means is decided in `names`; here is only what asks.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from watchers.facts.names import ResolvedName, name_key
from watchers.lookups.names import FAMILIES, Answer, Family, WatchedName
from watchers.metrics import LookupMetrics
from watchers.sink import Cause, Facts

log = logging.getLogger(__name__)

AT_ONCE = 8
"""Names that are asked for at the same time."""
LIMIT = 5.0
"""Seconds after which a question that nobody answered has failed."""

Resolve = Callable[[str, Family], Awaitable[Answer]]
"""Asks for the addresses of one family of a name; fails by an answer, not by raising."""


class Taken(Protocol):
    """What a cursor gives: names by key, None where a name is not wanted any more."""

    @property
    def changes(self) -> Mapping[tuple[str], object | None]:
        """The names that changed."""


class NameCursor(Protocol):
    """A place in the Table of names."""

    def take(self) -> Taken:
        """What has changed since the last time."""

    def close(self) -> None:
        """It is not read any more."""


class Names(Protocol):
    """The Table of names that are wanted: (name,) -> the objects that name it."""

    def cursor(self, *, bell: Callable[[], None]) -> NameCursor:
        """Rings the bell once there is something to take; at first that is all there is."""


class KnownFacts(Facts, Protocol):
    """A table of facts that can be asked."""

    def get(self, key: tuple[str, str, str, str], /) -> object | None:
        """The fact under a key."""


class Lookups:
    """Follows the names of a Table. A name without any answer is pending for `patience` seconds.

    A name that the facts know already (a process that has been started again) keeps its addresses until it is answered.
    """

    def __init__(
        self,
        names: Names,
        facts: KnownFacts,
        *,
        patience: float,
        metrics: LookupMetrics,
        resolve: Resolve | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._names = names
        self._facts = facts
        self._patience = patience
        self.metrics = metrics
        self._resolve = resolve or DnsResolver()
        self._chance = chance
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def unanswered(self) -> list[str]:
        """The names of which nothing is known yet, sorted."""
        facts = {name: self._facts.get(name_key(name)) for name in sorted(self._tasks)}
        return [name for name, fact in facts.items() if not isinstance(fact, ResolvedName) or fact.pending]

    async def run(self) -> None:
        """Looks up until cancelled."""
        bell = asyncio.Event()
        cursor = self._names.cursor(bell=bell.set)
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    bell.clear()
                    for (name,), wanted in cursor.take().changes.items():
                        if wanted is None:
                            self._forget(name)
                        elif name not in self._tasks:
                            self._tasks[name] = tasks.create_task(self._follow(name), name=f"look up {name}")
                    await bell.wait()
        finally:
            cursor.close()
            self._tasks.clear()

    def _forget(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
        self._facts.apply([(name_key(name), None)])
        self.metrics.forget(name)

    async def _follow(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        key = name_key(name)
        known = self._facts.get(key)
        told = known if isinstance(known, ResolvedName) else None
        watched = WatchedName(told.addresses if told else (), loop.time() + self._patience)
        while True:
            async with self._slots:
                answers = await asyncio.gather(*[self._ask(name, family) for family in FAMILIES])
            received = time.time_ns()
            fact = watched.answered(dict(zip(FAMILIES, answers, strict=True)), loop.time(), self._chance())
            self.metrics.answered(name, watched.outcome, resolved=bool(fact.addresses))
            if fact != told:
                self._facts.apply([(key, fact)], Cause(received, f"DNS name {name}", 1))
                _tell(name, told, fact)
                told = fact
            await asyncio.sleep(watched.pause)

    async def _ask(self, name: str, family: Family) -> Answer:
        try:
            return await self._resolve(name, family)
        except Exception as error:
            # Whatever a name server may bring about costs one name one answer, never the process.
            log.exception("lookup failed unexpectedly", extra={"object_name": name})
            return Answer("failed", cause=f"its lookup fails with {type(error).__name__}")


def _tell(name: str, before: ResolvedName | None, now: ResolvedName) -> None:
    extra: dict[str, object] = {"object_name": name, "addresses": list(now.addresses)}
    if before is not None and (before.addresses, before.reason) == (now.addresses, now.reason):
        return
    if now.reason:
        effect = "the addresses it had stand" if now.addresses else "nobody is sent there"
        log.warning("name not resolved", extra={**extra, "cause": now.reason, "effect": effect})
    else:
        log.info("name resolved", extra=extra)


class DnsResolver:
    """Asks the name servers of /etc/resolv.conf, or those given, on `port`.

    Names are absolute: search domains would make of a name that is gone one that somebody else may have created.
    Neither /etc/hosts nor any cache is asked, so a TTL is what the name server says is left of it.
    """

    def __init__(self, nameservers: tuple[str, ...] = (), port: int = 53) -> None:
        self._nameservers = nameservers
        self._port = port
        self._library: Any = None

    async def __call__(self, name: str, family: Family) -> Answer:
        """The answer of the first name server that has one, within LIMIT seconds."""
        if self._library is None:
            # 6 MB and 50 ms, which only those pay who have names to look up, and no stream waits for.
            self._library = await asyncio.to_thread(_library)
        dns = self._library
        try:
            # Read anew each time: the file may change, and it is small.
            resolver = dns.asyncresolver.Resolver(configure=not self._nameservers)
            if self._nameservers:
                resolver.nameservers = list(self._nameservers)
                resolver.port = self._port
            answer = await resolver.resolve(
                dns.name.from_text(name), family, search=False, lifetime=LIMIT, raise_on_no_answer=False
            )
        except dns.resolver.NXDOMAIN:
            return Answer("absent", cause="it does not exist (NXDOMAIN)")
        except dns.resolver.LifetimeTimeout:
            return Answer("failed", cause="no name server answers")
        except dns.resolver.NoNameservers as error:
            return Answer("failed", cause=_refusals(dns, error))
        except dns.resolver.NoResolverConfiguration:
            return Answer("failed", cause="/etc/resolv.conf names no name server")
        except dns.exception.DNSException as error:
            return Answer("failed", cause=f"its answer is not usable ({type(error).__name__})")
        if answer.rrset is None:
            return Answer("empty")
        addresses = tuple(record.address for record in answer.rrset)
        return Answer("found", addresses, float(answer.chaining_result.minimum_ttl))


def _library() -> Any:
    importlib.import_module("dns.asyncresolver")
    return importlib.import_module("dns")


def _refusals(dns: Any, error: Any) -> str:
    """How the name servers refused, in the same words whichever of them did."""
    codes = {dns.rcode.to_text(response.rcode()) for *_, response in error.kwargs["errors"] if response is not None}
    return f"name servers answer {' and '.join(sorted(codes))}" if codes else "no name server can be reached"
