"""One more TLS domain beside many: how soon it is served, and what it costs the control plane, the wire and Envoy.

A control plane with N hosts and one real Envoy that serves them. Then, one after the other, hosts that nobody has heard
of: an Ingress and its Secret are written to the facts as a watcher would (their Service and pod were there before), and
a visitor, a process of its own, asks for the host until it is answered over TLS. Each host has a service, a pod and a
certificate of its own.

Times are by the clock of both processes, from before the write to the end of the answer. Costs come from hosts that
nobody asked for too early: the visitor comes once Envoy has acknowledged the routes. CPU is that of the control plane's
process, and that of Envoy's main thread, which takes in all configuration.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from aggregator.app import memory
from aggregator.app.records import Pass, Reader
from aggregator.demo import client
from tests.bench.results import Results, quantile
from tests.kit import certificates as c
from tests.kit import manifests as m
from tests.kit.envoy import binary
from tests.kit.eventually import eventually
from tests.kit.ingress_gateway import APPLICATION, IngressGateway, answer
from tests.kit.manifests import Manifest
from xds.messages.scope import SCOPED_ROUTE_TYPE
from xds.records import Ack, Push

SIZES: Final = {"small": (20, 2_000), "full": (100, 20_000)}
FIRST: Final = 5
"""Hosts added before anything is measured, while caches are cold."""
ADDED: Final = 40
"""Hosts added for times, and as many for costs."""
TRY_EVERY: Final = 0.003
"""Seconds between two attempts of a visitor who is not answered yet."""


class Figures(msgspec.Struct):
    """What was measured beside one number of hosts.

    Of the start: seconds of CPU until Envoy has acknowledged all routes, and bytes of resident memory for each host.
    Of one more host: seconds to its first answer, each; and means of bytes and responses sent, resources changed,
    functions run, and seconds of CPU.
    """

    start_cpu: float
    envoy_start_cpu: float
    memory: float
    answers: list[float]
    sent: float
    responses: float
    functions: float
    plane_cpu: float
    envoy_cpu: float


# The control plane and Envoy.


async def measure(hosts: int) -> Figures:
    """Everything beside so many hosts."""
    memory.prepare()
    with tempfile.TemporaryDirectory() as scratch:
        async with IngressGateway(Path(scratch), binary(), answering=False) as gateway:
            visitor = await Visitor.start(gateway, Path(scratch))
            try:
                start = await _fill(gateway, hosts)
                await visitor.visit("h0.many.example", once=False)
                memory.set_aside()
                names = [f"new{number}.example" for number in range(FIRST + 2 * ADDED)]
                gateway.apply(*(one for name in names for one in _behind(gateway, name)))
                await _settled(gateway)
                answers = [await _answered(gateway, visitor, name) for name in names[:-ADDED]][FIRST:]
                return Figures(*start, answers, *await _costs(gateway, visitor, names[-ADDED:]))
            finally:
                await visitor.stop()


def _behind(gateway: IngressGateway, host: str) -> Iterator[Manifest]:
    """The service and pod of a host; all pods are one process, on one address."""
    name = host.partition(".")[0]
    port = gateway.application.port
    yield m.service(f"shop/{name}", ports={"http": (80, port)}, selector={"app": name})
    yield m.pod(f"shop/{name}-1", APPLICATION, labels={"app": name}, ambient=False)


async def _fill(gateway: IngressGateway, hosts: int) -> tuple[float, float, float]:
    """All hosts at once, with one certificate for all, as it takes long to make 20,000."""
    pair = gateway.pair("*.many.example")
    objects = []
    for number in range(hosts):
        name = f"h{number}"
        objects += [*_behind(gateway, name), m.tls_secret(f"shop/{name}", *pair)]
        objects.append(m.ingress(f"shop/{name}", f"{name}.many.example", name, secret=name))
    gc.collect()
    resident, cpu, envoy = _resident(), time.process_time(), _main_thread(gateway)
    gateway.apply(*objects)
    del objects
    await eventually(lambda: _routed_hosts(gateway) >= hosts, deadline=300)
    spent, envoy_spent = time.process_time() - cpu, _main_thread(gateway) - envoy
    gc.collect()
    return spent, envoy_spent, (_resident() - resident) / hosts


def _routed_hosts(gateway: IngressGateway) -> int:
    """How many routes Envoy has been sent, if it has acknowledged them all."""
    records = gateway.plane.control.records.recent()
    sent = {one.nonce: one.resources for one in records if isinstance(one, Push) and one.type_url == SCOPED_ROUTE_TYPE}
    heard = {one.nonce for one in records if isinstance(one, Ack)}
    return sum(sent.values()) if sent.keys() <= heard else 0


async def _settled(gateway: IngressGateway) -> None:
    """Until nothing has happened for a while."""
    records, seen = gateway.plane.control.records, -1
    while seen != records.appended:
        seen = records.appended
        await asyncio.sleep(0.3)


async def _answered(gateway: IngressGateway, visitor: Visitor, host: str) -> float:
    began = time.time()
    gateway.apply(*gateway.secured(host, host.partition(".")[0]))
    return await visitor.visit(host, once=False) - began


async def _costs(
    gateway: IngressGateway, visitor: Visitor, names: list[str]
) -> tuple[float, float, float, float, float]:
    manifests = {name: gateway.secured(name, name.partition(".")[0]) for name in names}
    await _settled(gateway)
    records = gateway.plane.control.records.reader()
    seen: list[object] = []
    cpu, envoy = time.process_time(), _main_thread(gateway)
    for name in names:
        gateway.apply(*manifests[name])
        await _routed(records, seen)
        await visitor.visit(name, once=True)
    spent, envoy_spent = time.process_time() - cpu, _main_thread(gateway) - envoy
    await _settled(gateway)
    seen += records.take()
    records.close()
    sent = [one for one in seen if isinstance(one, Push)]
    count = len(names)
    return (
        sum(one.size for one in sent) / count,
        len(sent) / count,
        sum(one.evaluated for one in seen if isinstance(one, Pass)) / count,
        spent / count,
        envoy_spent / count,
    )


async def _routed(records: Reader, seen: list[object]) -> None:
    """Until Envoy has acknowledged routes. All records up to there are put into `seen`."""
    routed = False
    while not routed:
        await asyncio.sleep(TRY_EVERY)
        new = records.take()
        seen += new
        routed = any(isinstance(one, Ack) and one.type_url == SCOPED_ROUTE_TYPE for one in new)


def _main_thread(gateway: IngressGateway) -> float:
    """Seconds of CPU Envoy's main thread has used."""
    pid = gateway.envoy.pid
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# The visitor, and the application that answers.


class Visitor:
    """The other process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, gateway: IngressGateway, directory: Path) -> Visitor:
        """Starts it, with the application behind it."""
        trusted = directory / "trusted.pem"
        trusted.write_bytes(c.pem(gateway.issuer.certificate))
        places = (gateway.https.host, gateway.https.port, gateway.application.host, gateway.application.port)
        command = [sys.executable, "-m", "tests.bench.domains", "--visit", *map(str, places), str(trusted)]
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        visitor = cls(process)
        await visitor._read()
        return visitor

    async def visit(self, host: str, *, once: bool) -> float:
        """When the host's answer was there; tried until it is, or `once`."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{int(once)} {host}\n".encode())
        status, moment = (await self._read()).split()
        if status != "200":
            raise RuntimeError(f"{host} answered {status}")
        return float(moment)

    async def _read(self) -> str:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("the visitor has ended")
        return line.decode()

    async def stop(self) -> None:
        """Ends it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


async def visit(host: str, port: str, application: str, application_port: str, trusted: str) -> None:
    """Life of the visitor: a line in for each host, a line out for each answer."""
    server = await asyncio.start_server(answer, application, int(application_port))
    trust = ssl.create_default_context(cafile=trusted)
    trust.set_alpn_protocols(["http/1.1"])
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while line := (await lines.readline()).decode():
        once, wanted = line.split()
        end = loop.time() + 30
        status = 0
        while status != 200 and loop.time() < end:
            try:
                found = await client.get(wanted, "/", at=(host, int(port)), trust=trust)
                status, moment = found.status, found.answered
            except client.Unanswered:
                status, moment = 0, time.time()
            if status != 200:
                if once == "1":
                    break
                await asyncio.sleep(TRY_EVERY)
        sys.stdout.write(f"{status} {moment}\n")
        sys.stdout.flush()
    server.close()


# The figures.


def in_process(hosts: int) -> Figures:
    """Measure beside one number of hosts in a process of its own, which prints its figures last."""
    command = [sys.executable, "-m", "tests.bench.domains", "--hosts", str(hosts)]
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return msgspec.json.decode(ran.stdout.splitlines()[-1], type=Figures)


def add(results: Results, few: int, few_figures: Figures, many: int, many_figures: Figures) -> None:
    """Figures beside few hosts and beside many, and what they say of each other."""
    full = many >= 20_000
    for hosts, figures in ((few, few_figures), (many, many_figures)):
        name = f"domains.beside_{hosts}"
        results.add(f"{name}.first_answer.p50", quantile(figures.answers, 0.5) * 1e3, "ms")
        results.add(f"{name}.first_answer.p99", quantile(figures.answers, 0.99) * 1e3, "ms", goal=50)
        results.add(f"{name}.sent", figures.sent, "bytes", goal=4096)
        results.add(f"{name}.responses", figures.responses, "responses")
        results.add(f"{name}.functions", figures.functions, "functions")
        results.add(f"{name}.cpu", figures.plane_cpu * 1e3, "ms")
        results.add(f"{name}.envoy_cpu", figures.envoy_cpu * 1e3, "ms")
    for part in ("sent", "functions", "plane_cpu", "envoy_cpu"):
        ratio = getattr(many_figures, part) / getattr(few_figures, part)
        results.add(f"domains.flatness.{part}", ratio, "times", goal=1.3)
    results.add(f"domains.start_{many}.cpu", many_figures.start_cpu, "s", goal=15 if full else None)
    results.add(f"domains.start_{many}.envoy_cpu", many_figures.envoy_start_cpu, "s")
    results.add(f"domains.start_{many}.memory", many_figures.memory / 1e3, "KB/host", goal=25 if full else None)


def main(arguments: Iterable[str]) -> None:
    """Measure beside few and beside many hosts, and print what came of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=sorted(SIZES), default="small")
    parser.add_argument("--hosts", type=int)
    parser.add_argument("--visit", nargs=5)
    given: Any = parser.parse_args(list(arguments))
    if given.visit:
        asyncio.run(visit(*given.visit))
        return
    if given.hosts:
        figures = asyncio.run(measure(given.hosts))
        sys.stdout.write(msgspec.json.encode(figures).decode() + "\n")
        return
    few, many = SIZES[given.size]
    results = Results("domains", given.size)
    add(results, few, in_process(few), many, in_process(many))
    results.save()


if __name__ == "__main__":
    main(sys.argv[1:])
