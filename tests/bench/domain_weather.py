"""Weather for domains: thousands of them on a real Envoy, most of which change all the time, while visitors come.

`python -m tests.bench.domain_weather --seconds N --domains N`. A control plane in a process of its own reads an API
server, on which 50 changes happen a second, of all kinds: domains come and go, paths, backends and annotations are
edited, certificates rotate, endpoints are ready or not. Nine of ten domains are in the weather; visitors come to some
of these as well, so that what is asked for on demand changes too. Nobody may fail at the tenth that is left in peace.

After a first spell everything is put back and counted, after the rest it is put back again. Then nothing may be left
behind: the same graph, tasks and files, hardly more memory of the control plane and of Envoy, and visitors may not wait
longer than in the beginning. The exit code is 1 if something is wrong; the seed of the weather is printed and can be
given.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.bench.api_servers import ApiServers, Write
from tests.bench.hosting import GATEWAY, HOME, NAMESPACE, OTHER, Hosting, Pair, Ports, many_host
from tests.bench.memory import used
from tests.bench.plane import process, received, serve
from tests.bench.request_load import Load, Report, Target
from tests.bench.results import Results, quantile
from tests.bench.served import Gateway, Hosts
from tests.bench.soak import FIRST_SPELL, Counting, Counts, differing
from tests.kit import certificates as c
from tests.kit.manifests import Manifest
from tests.kit.ports import free_port
from watchers.facts.keys import ObjectKey

RATE: Final = 50
"""Changes a second."""
PEACEFUL: Final = 0.1
"""The share of domains that are left in peace."""
VISITED: Final = 40
"""Domains in the weather that visitors come to, and as many that come and go."""
CALM: Final = 60.0
"""Seconds in which all is as before once it was put back."""
GROWTH: Final = 12.0
"""MB that the control plane's memory may have grown: what is read and sent fills a ring of records, some 3 MB, and what
was asked for on demand is kept for a while.
"""
ENVOY_GROWTH: Final = 0.1
"""The share by which Envoy's may have: it gives back to the system only what lies together."""
SLOWER: Final = 2.0
"""Times the first third's that the p99 of the last third may be, above what a shared machine does by itself."""
NOISE: Final = 25.0
"""Milliseconds that are the machine's, whose cores others share."""


class Weather:
    """What changes: some of the domains from `first` to `last`, and others that come and go."""

    def __init__(self, hosting: Hosting, chance: random.Random, first: int, last: int) -> None:
        self._hosting = hosting
        self._chance = chance
        self._numbers = range(first, last)
        self._pairs: list[Pair] = [hosting.pair("*.many.example", "ec") for _ in range(8)]
        self._changed: dict[ObjectKey, Write] = {}
        self._there: set[int] = set()
        self.changes = 0

    def visited(self) -> list[str]:
        """Hosts that visitors come to, when all is as it was first."""
        return [many_host(number) for number in self._numbers[:VISITED]]

    def guests(self) -> list[str]:
        """Those that come and go."""
        return [_guest(number) for number in range(VISITED)]

    def backends(self) -> Iterator[Manifest]:
        """The Services of those that come and go, which are always there."""
        for number in range(VISITED):
            yield from self._hosting.backend(f"c{number}", self._numbers.stop + number)

    def change(self) -> list[Write]:
        """Something happens."""
        self.changes += 1
        happens = self._chance.choice(
            (self._come_or_go, self._delete, self._path, self._backend, self._annotate, self._rotate, self._flip)
        )
        return happens()

    def restore(self) -> list[Write]:
        """Everything as it was first."""
        writes, self._changed = list(self._changed.values()), {}
        self._there.clear()
        return writes

    def _number(self) -> int:
        """One of those that are visited as often as one of all the others."""
        some = self._numbers if self._chance.random() < 0.5 else self._numbers[:VISITED]
        return self._chance.choice(some)

    def _put(self, now: Manifest, first: Manifest) -> list[Write]:
        self._changed[_key(first)] = (HOME, first)
        return [(HOME, now)]

    def _come_or_go(self) -> list[Write]:
        number = self._chance.randrange(VISITED)
        name = f"c{number}"
        secret = self._hosting.secret(name, self._chance.choice(self._pairs))
        some = (secret, self._hosting.ingress(name, _guest(number)))
        self._there ^= {number}
        if number in self._there:
            self._changed |= {_key(one): (HOME, _key(one)) for one in some}
            return [(HOME, one) for one in some]
        for one in some:
            del self._changed[_key(one)]
        return [(HOME, _key(one)) for one in some]

    def _delete(self) -> list[Write]:
        """Or it comes back: what is deleted already is created as it was first."""
        first = self._ingress(self._number())
        if _key(first) in self._changed:
            del self._changed[_key(first)]
            return [(HOME, first)]
        self._changed[_key(first)] = (HOME, first)
        return [(HOME, _key(first))]

    def _path(self) -> list[Write]:
        number = self._number()
        return self._put(self._ingress(number, path=f"/v{self._chance.randrange(9)}"), self._ingress(number))

    def _backend(self) -> list[Write]:
        number = self._number()
        return self._put(self._ingress(number, service=OTHER), self._ingress(number))

    def _annotate(self) -> list[Write]:
        number = self._number()
        annotations = {
            "nginx.ingress.kubernetes.io/ssl-redirect": self._chance.choice(("true", "false")),
            "nginx.ingress.kubernetes.io/proxy-read-timeout": str(self._chance.randrange(1, 600)),
        }
        return self._put(self._ingress(number, annotations=annotations), self._ingress(number))

    def _rotate(self) -> list[Write]:
        number = self._number()
        name = f"h{number}"
        first = self._hosting.secret(name, self._hosting.kept_pair(number))
        return self._put(self._hosting.secret(name, self._chance.choice(self._pairs)), first)

    def _flip(self) -> list[Write]:
        number = self._number()
        first = self._hosting.endpoints(f"h{number}", number)
        ready = self._chance.random() < 0.5
        return self._put(self._hosting.endpoints(f"h{number}", number, ready=ready), first)

    def _ingress(self, number: int, **fields: Any) -> Manifest:
        return self._hosting.ingress(f"h{number}", many_host(number), **fields)


def _guest(number: int) -> str:
    return f"c{number}.many.example"


def _key(manifest: Manifest) -> ObjectKey:
    return (HOME, manifest["kind"], NAMESPACE, manifest["metadata"]["name"])


# -- the control plane's process


class CountingByTls(Counting):
    """Says by which port proxies reach it with tokens."""

    def ready(self) -> object:
        """That port."""
        assert self.plane.ports is not None
        return self.plane.ports.tls


def control_plane(pipe: Connection, kubeconfig: Path, cacerts: Path) -> None:
    """The process of the control plane."""
    serve(pipe, [(HOME, kubeconfig)], CountingByTls, cacerts=cacerts, istio_classes=True)


# -- the measuring process


class Left(msgspec.Struct, frozen=True):
    """What there is once everything was put back: in the control plane; bytes of Envoy's memory; hosts that do not
    answer.
    """

    counts: Counts
    envoy: int
    silent: list[str]


class Soak(msgspec.Struct):
    """The weather over one control plane, and what it leaves."""

    servers: ApiServers
    weather: Weather
    load: Load
    plane: Connection
    gateway: Gateway

    def spell(self, seconds: float) -> None:
        """Changes for that long, a second's worth at a time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            changes = [self.weather.change() for _ in range(RATE)]
            gaps = [gap for writes in changes for gap in (1 / RATE, *[0.0] * (len(writes) - 1))]
            self.servers.change([write for writes in changes for write in writes], gaps)

    def settle(self) -> Left:
        """Everything is put back, and answers again."""
        self.servers.change(self.weather.restore())
        silent = self.load.visit(self.weather.visited(), CALM)
        return Left(self._count(), used(self.gateway.pid).resident, silent)

    def _count(self) -> Counts:
        """What there is, once it does not change from one second to the next."""
        last: Counts = self._ask("count")
        for _ in range(20):
            time.sleep(1)
            now: Counts = self._ask("count")
            if (now.tasks, now.files, now.graph) == (last.tasks, last.files, last.graph):
                return now
            last = now
        return last

    def _ask(self, command: str) -> Any:
        self.plane.send((command,))
        return received(self.plane)


def soak(seconds: float, domains: int, chance: random.Random, results: Results) -> list[str]:
    """Everything that is wrong after that many seconds."""
    issuer = c.Issuer("an authority")
    ports = Ports(*(free_port("0.0.0.0") for _ in range(4)))
    hosting = Hosting(issuer, ports)
    peaceful = [many_host(number) for number in range(max(1, int(domains * PEACEFUL)))]
    weather = Weather(hosting, chance, len(peaceful), domains)
    with ApiServers() as servers, tempfile.TemporaryDirectory(prefix="isthmus-weather-") as scratch:
        servers.start(HOME, [*hosting.base(), *weather.backends(), *hosting.many(domains)])
        kubeconfig = Path(scratch, "kubeconfig")
        kubeconfig.write_bytes(servers.kubeconfig(HOME))
        hosts = Hosts(Path(scratch), kubeconfig.read_bytes(), ports)
        target = Target((GATEWAY, ports.https), c.pem(issuer.certificate), (ports.application, ports.other))
        with process(control_plane, kubeconfig, hosts.cacerts) as plane:
            port = received(plane)
            with Gateway(hosts.bootstrap(port)) as gateway, Load(target) as load:
                gateway.ready()
                over = Soak(servers, weather, load, plane, gateway)
                if silent := load.visit([*peaceful, *weather.visited()], CALM):
                    raise RuntimeError(f"{len(silent)} domains are not served in the first place, such as {silent[0]}")
                load.begin(peaceful, [*weather.visited(), *weather.guests()])
                over.spell(FIRST_SPELL * seconds)
                before = over.settle()
                over.spell((1 - FIRST_SPELL) * seconds)
                report = load.end()
                after = over.settle()
            plane.send(("stop",))
    results.add("weather.domains", domains, "domains")
    results.add("weather.changes", weather.changes, "changes")
    return [*failures(report, results), *left_behind(before, after, results)]


def failures(report: Report, results: Results) -> list[str]:
    """What visitors of domains that were left in peace had to bear, in words; prints all figures."""
    results.add("weather.requests", len(report.kept) + len(report.new) + len(report.failures), "requests")
    results.add("weather.requests.others", report.others, "requests")
    results.add("weather.failures", len(report.failures), "requests", goal=0)
    wrong = [f"{len(report.failures)} requests have failed, such as: {one}" for one in report.failures[:1]]
    for name, some in (("kept", report.kept), ("new", report.new)):
        first, last = thirds([one.seconds * 1e3 for one in some])
        bound = SLOWER * first + NOISE
        results.add(f"weather.latency.{name}.first", first, "ms")
        results.add(f"weather.latency.{name}.last", last, "ms", goal=bound)
        if last > bound:
            wrong.append(f"requests on {name} connections: p99 {first:.1f} ms in the beginning, {last:.1f} in the end")
    return wrong


def thirds(values: list[float]) -> tuple[float, float]:
    """The 99th percentiles of the first third and of the last."""
    third = max(1, len(values) // 3)
    return quantile(values[:third], 0.99), quantile(values[-third:], 0.99)


def left_behind(before: Left, after: Left, results: Results) -> list[str]:
    """What there is more of, or less, in words; prints all figures."""
    growth = (after.counts.bytes - before.counts.bytes) / 1e6
    envoy = after.envoy / before.envoy - 1
    results.add("weather.memory", after.counts.bytes / 1e6, "MB")
    results.add("weather.memory.growth", growth, "MB", goal=GROWTH)
    results.add("weather.envoy_memory", after.envoy / 1e6, "MB")
    results.add("weather.envoy_memory.growth", 100 * envoy, "%", goal=100 * ENVOY_GROWTH)
    for name in ("graph", "tables"):
        rows, rows_before = (sum(getattr(one.counts, name).values()) for one in (after, before))
        results.add(f"weather.{name}", rows, "entries", goal=rows_before)
    wrong = [f"{len(some)} domains do not answer, such as {some[0]}" for some in (before.silent, after.silent) if some]
    if growth > GROWTH:
        wrong.append(f"the control plane's memory grew by {growth:.1f} MB")
    if envoy > ENVOY_GROWTH:
        wrong.append(f"Envoy's memory grew by {100 * envoy:.0f} %")
    return wrong + differing(before.counts, after.counts)


def main() -> int:
    """Run it; 1 if anything is left behind or wrong."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--seconds", type=float, default=60.0)
    arguments.add_argument("--domains", type=int, default=2_000)
    arguments.add_argument("--seed", type=int, default=int(time.time()))
    given = arguments.parse_args()
    print(f"seed {given.seed}", flush=True)
    results = Results("weather", f"{given.domains} domains, {given.seconds:g}s")
    wrong = soak(given.seconds, given.domains, random.Random(given.seed), results)
    results.save()
    for one in wrong:
        print(f"WRONG {one}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
