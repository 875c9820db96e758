"""One request through everything, and what each hop has written down of it.

In: a running data plane and a request. Out: a Journey: the answer, who gave it, and a Hop for each process on the way,
with the time at which it saw the request by its own access log. All are on one machine, so that their clocks are one.
Tunnels are pooled: a request that found one open has no hop that says it was opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from aggregator.demo import client
from aggregator.demo.client import Answer
from aggregator.demo.dataplane import DataPlane
from aggregator.demo.echo import Echo
from aggregator.demo.envoy import Envoy
from aggregator.demo.stage import HTTPS_PORT, Stage

# What access logs call the moments at which a tunnel stands, and at which its bytes have found their endpoint
# (envoy.data.accesslog.v3.AccessLogType).
OPENED = "DownstreamTunnelSuccessfullyEstablished"
CONNECTED = "TcpUpstreamConnected"


class Hop(msgspec.Struct, frozen=True):
    """What one process saw: `at` in seconds since the epoch, `line` what its access log says, {} if it has none."""

    name: str
    what: str
    at: float
    line: dict[str, Any] = {}


class Journey(msgspec.Struct, frozen=True):
    """A request that was answered: `hops` in the order of their times; `echo` is what the application says."""

    answer: Answer
    echo: Echo
    hops: tuple[Hop, ...]

    @property
    def way_in(self) -> str:
        """Where the ingress gateway sent it: `<step>/<address>` of an endpoint, or a plain address."""
        upstream: str = next(hop.line["upstream"] for hop in self.hops if hop.line.get("path"))
        return upstream.removeprefix("envoy://")


class Refused(Exception):
    """A request that was answered, but not by an application; the text says how."""


class Traveller:
    """Sends requests from outside to west's ingress gateway."""

    def __init__(self, stage: Stage, plane: DataPlane) -> None:
        self._stage = stage
        self._plane = plane
        self._trust = stage.credentials.trust()
        (self.ingress,) = (proxy for proxy in stage.gateways(stage.west) if proxy.role == "ingress")

    async def get(
        self, host: str, path: str, *, headers: dict[str, str] | None = None, timeout: float = 10.0
    ) -> Answer:
        """A request over HTTPS and its answer, whatever it is. Raises Unanswered."""
        at = (self.ingress.bind, HTTPS_PORT)
        return await client.get(host, path, at=at, trust=self._trust, headers=headers, timeout=timeout)

    async def ask(self, host: str, path: str) -> tuple[Answer, Echo]:
        """A request and who answered it. Raises Unanswered, Refused."""
        answer = await self.get(host, path)
        if answer.status != 200:
            said = answer.body[:200].decode(errors="replace").strip()
            raise Refused(f"GET https://{host}{path} was answered {answer.status}: {said or 'nothing more'}")
        return answer, msgspec.json.decode(answer.body, type=Echo)

    async def follow(self, host: str, path: str, *, tunnels: Sequence[str] = ()) -> Journey:
        """A request and every hop of it. `tunnels` names those that have to open one, and so to write it down.

        Raises Unanswered, Refused, and ChildFailed where an access log lacks a line.
        """
        before = {name: envoy.log_end() for name, envoy in self._plane.envoys.items()}
        answer, echo = await self.ask(host, path)
        ingress = self._plane.envoys[f"{self.ingress.cluster}-{self.ingress.pod}"]
        line = await ingress.logged(lambda line: line.get("host") == host, start=before[ingress.name])
        for name in tunnels:
            await self._plane.envoys[name].logged(lambda line: line.get("event") == OPENED, start=before[name])
        hops = [
            Hop("visitor", f"connects to {self.ingress.bind}:{HTTPS_PORT}", answer.asked),
            Hop("visitor", f"has verified the certificate of {', '.join(answer.certificate)}", answer.secured),
            Hop(ingress.name, f"{line['method']} {line['path']} -> {line['upstream']}", float(line["start"]), line),
            *[hop for envoy in self._plane.envoys.values() for hop in _tunnels(envoy, before[envoy.name])],
            Hop(f"{echo.cluster}-{echo.app}", f"{echo.method} {echo.path} answered", echo.received),
            Hop("visitor", f"has the answer: {answer.status}", answer.answered),
        ]
        return Journey(answer, echo, tuple(sorted(hops, key=lambda hop: hop.at)))


def _tunnels(envoy: Envoy, start: int) -> list[Hop]:
    """The tunnels an Envoy has opened since."""
    hops = []
    for line in envoy.access_log(start):
        if line.get("event") == OPENED:
            hops.append(Hop(envoy.name, f"CONNECT {line['authority']} from {line['peer']}", float(line["start"]), line))
        elif line.get("event") == CONNECTED:
            hops.append(Hop(envoy.name, f"passes it on to {line['upstream']}", float(line["start"]), line))
    return hops
