"""What one control plane and its Envoy do for domains, beside a number of them: from their start to one more domain.

In: how many domains, and whose way of serving them. Out: `Figures`. First it is started without any domain, which says
what memory it takes anyway. Then with all: how soon the last of them answers, and what that cost. Then come domains
that nobody has heard of (their Service and pod were there before): an API request creates a Secret and an Ingress, and
a visitor asks until it is answered. What one costs comes from others, whose visitor does not come too early: it waits
until neither process has anything to do. Last, domains change, and visitors see it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from tests.bench.api_servers import ApiServers
from tests.bench.hosting import (
    GATEWAY,
    HOME,
    OTHER,
    Algorithm,
    Hosting,
    Ports,
    Request,
    created,
    deleted,
    many_host,
    replaced,
)
from tests.bench.memory import used
from tests.bench.served import ISTIOD, MODES, Counts, Hosts, Served
from tests.bench.visitors import Activation, Place, Visitors
from tests.kit import certificates as c
from tests.kit.ports import free_port

WANTED: Final = {"backend": "port", "certificate": "certificate", "delete": "gone"}
"""Of each change of a domain what a visitor sees of it."""


class Amounts(msgspec.Struct, frozen=True):
    """How many domains of each algorithm are added before anything is measured, while caches are cold; how many for
    times, by algorithm; how many for costs, of each; how many domains change.
    """

    warming: int
    ec: int
    rsa: int
    costs: int
    changes: int


class Cost(msgspec.Struct, frozen=True):
    """What a change costs, on average: seconds of CPU of the control plane and of Envoy's main thread; bytes sent,
    functions run, objects hashed.
    """

    cpu: float
    envoy_cpu: float
    sent: float
    functions: float | None
    hashed: float | None

    @classmethod
    def each(cls, cpu: float, envoy_cpu: float, counts: Counts, count: int = 1) -> Cost:
        """Of `count` changes, by what all together cost."""
        functions, hashed = (None if one is None else one / count for one in (counts.functions, counts.hashed))
        return cls(cpu / count, envoy_cpu / count, counts.sent / count, functions, hashed)


class Start(msgspec.Struct, frozen=True):
    """From the start of the control plane, in seconds: until it says it is ready; until the last domain answers. Until
    nothing is left to do: seconds of CPU of both, bytes sent, functions run. Then bytes of memory of both, and how many
    of the control plane's are there because of domains.
    """

    ready: float
    served: float
    cost: Cost
    memory: int
    envoy_memory: int
    of_domains: int


class Change(msgspec.Struct, frozen=True):
    """Seconds until a visitor saw it, each time; and what it cost."""

    seconds: list[float]
    cost: Cost


class New(msgspec.Struct, frozen=True):
    """New domains of one algorithm."""

    visits: list[Activation]
    cost: Cost


class Figures(msgspec.Struct, frozen=True):
    """Everything beside so many domains, or what is known so far; `new` by algorithm, `changes` by what they are."""

    start: Start
    new: dict[str, New]
    changes: dict[str, Change]


Starting = Callable[[], AbstractContextManager[Served]]


class Rig:
    """A home cluster, its domains, and their visitors."""

    def __init__(self, servers: ApiServers, visitors: Visitors, hosting: Hosting, ports: Ports) -> None:
        self._servers = servers
        self._visitors = visitors
        self._hosting = hosting
        self._ports = ports
        self._backends = 0

    def measure(self, start: Starting, domains: int, amounts: Amounts) -> Iterator[Figures]:
        """Everything, of one control plane: more and more of it, as it is found."""
        with start() as served:
            served.gateway.ready()
            settle(served, 1.0)
            empty = used(served.plane.pid).resident
        self._servers.put(HOME, *self._hosting.many(domains))
        self._backends = domains
        with start() as served:
            figures = Figures(self._started(served, domains, empty), {}, {})
            yield figures
            numbers: dict[Algorithm, int] = {"ec": amounts.ec, "rsa": amounts.rsa}
            for algorithm, times in numbers.items():
                figures.new[algorithm] = self._added(served, algorithm, times, amounts)
                yield figures
            hosts = self._prepared(served, "changing", "ec", amounts.warming + amounts.changes)
            for host, requests in hosts:
                self._visitors.activate(host, requests)
            for change in WANTED:
                figures.changes[change] = self._changed(served, change, [host for host, _ in hosts], amounts.warming)
                yield figures

    def _started(self, served: Served, domains: int, empty: int) -> Start:
        ready = time.monotonic() - served.began
        at = self._visitors.served(many_host(domains - 1))
        settle(served, 1.0)
        cost = Cost.each(served.cpu, served.gateway.main_thread, served.counts())
        memory = used(served.plane.pid).resident
        return Start(ready, at - served.began, cost, memory, used(served.gateway.pid).resident, memory - empty)

    def _added(self, served: Served, algorithm: Algorithm, times: int, amounts: Amounts) -> New:
        """One domain after the other."""
        costs, measured = amounts.costs, amounts.warming + times
        some = self._prepared(served, f"{algorithm}new", algorithm, measured + costs)
        for host, requests in some[: amounts.warming]:
            self._visitors.activate(host, requests)
        visits = []
        for host, requests in some[amounts.warming : measured]:
            settle(served, 0.1)
            visits.append(self._visitors.activate(host, requests))
        with spending(served) as spent:
            for host, requests in some[measured:]:
                self._visitors.write(requests)
                patiently(lambda h=host: self._visitors.status(h) == 200, served)  # type: ignore[misc]
        return New(visits, spent(costs))

    def _changed(self, served: Served, change: str, hosts: Sequence[str], warming: int) -> Change:
        """One change of as many domains, the first of which are not measured."""
        wanted, word = WANTED[change], str(self._ports.other) if change == "backend" else ""
        changes = [(host, self._change(change, host)) for host in hosts]
        for host, requests in changes[:warming]:
            self._visitors.change(host, requests, wanted, word)
        seconds = []
        with spending(served) as spent:
            for host, requests in changes[warming:]:
                settle(served, 0.1)
                seconds.append(self._visitors.change(host, requests, wanted, word))
        return Change(seconds, spent(len(seconds)))

    def _prepared(
        self, served: Served, prefix: str, algorithm: Algorithm, count: int
    ) -> list[tuple[str, list[Request]]]:
        """New hosts and what creates them, once their Services are there and known."""
        some = []
        for number in range(count):
            name = f"{prefix}{number}"
            host = f"{name}.example"
            self._servers.put(HOME, *self._hosting.backend(name, self._backends))
            self._backends += 1
            secret = self._hosting.secret(name, self._hosting.pair(host, algorithm))
            some.append((host, [created(secret), created(self._hosting.ingress(name, host))]))
        settle(served, 0.5)
        return some

    def _change(self, change: str, host: str) -> list[Request]:
        name = host.partition(".")[0]
        secret = self._hosting.secret(name, self._hosting.pair(host, "ec"))
        if change == "backend":
            return [replaced(self._hosting.ingress(name, host, service=OTHER))]
        if change == "certificate":
            return [replaced(secret)]
        return [deleted(self._hosting.ingress(name, host)), deleted(secret)]


@contextmanager
def spending(served: Served) -> Iterator[Callable[[int], Cost]]:
    """Measures what is spent meanwhile, and until nothing is left to do; what is given tells it, by a count of it."""
    settle(served, 0.5)
    counts = served.counts()
    cpu, envoy = served.cpu, served.gateway.main_thread
    spent: list[tuple[float, float, Counts]] = []
    yield lambda count: Cost.each(*spent[0], count)
    settle(served, 0.5)
    spent.append((served.cpu - cpu, served.gateway.main_thread - envoy, served.counts().since(counts)))


def settle(served: Served, seconds: float, *, below: float = 0.06, deadline: float = 120.0) -> None:
    """Waits until both processes together have used less than `below` of a core for so many seconds."""
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        before = served.cpu + served.gateway.main_thread
        time.sleep(seconds)
        if served.cpu + served.gateway.main_thread - before < below * seconds:
            return


def patiently(holds: Callable[[], bool], served: Served, *, deadline: float = 90.0) -> None:
    """Waits until something holds, and asks only when both processes have nothing to do. Raises TimeoutError."""
    end = time.monotonic() + deadline
    while True:
        settle(served, 0.2)
        if holds():
            return
        if time.monotonic() > end:
            raise TimeoutError(f"not within {deadline:g} s")


def measured(name: str, domains: int, amounts: Amounts) -> Iterator[Figures]:
    """Of one of the modes, or of istiod: more and more of it."""
    issuer = c.Issuer("an authority")
    ports = Ports(*(free_port("0.0.0.0") for _ in range(4)))
    hosting = Hosting(issuer, ports)
    with ApiServers(protobuf=True) as servers, tempfile.TemporaryDirectory(prefix="isthmus-domains-") as scratch:
        servers.start(HOME, hosting.base())
        kubeconfig = servers.kubeconfig(HOME)
        hosts = Hosts(Path(scratch), kubeconfig, ports)
        place = Place((GATEWAY, ports.https), kubeconfig, c.pem(issuer.certificate), (ports.application, ports.other))

        def start() -> AbstractContextManager[Served]:
            return hosts.istiod() if name == ISTIOD else hosts.isthmus(MODES[name])

        with Visitors(place) as visitors:
            yield from Rig(servers, visitors, hosting, ports).measure(start, domains, amounts)
