"""What the demo does, in steps, each of which says what it expects and fails if it sees something else.

In: a stage that is set, and an Envoy binary. Out: what happens, told to a Show as it happens; StepFailed names the step
and the reason. After `run` everything is up and stays so until `close`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from aggregator.demo import changes, control
from aggregator.demo.client import Answer, Unanswered
from aggregator.demo.control import ControlPlane
from aggregator.demo.dataplane import DataPlane
from aggregator.demo.echo import Echo
from aggregator.demo.journey import OPENED, Journey, Refused, Traveller
from aggregator.demo.ports import check_free
from aggregator.demo.processes import Child, ChildFailed
from aggregator.demo.stage import HOST, Stage, StageError
from aggregator.operate.bootstrap import SocketAddress

PATIENCE: Final = 15.0
"""Seconds a change may take to show."""
REQUESTS: Final = 60
NEW_HOST: Final = "new.example"


class Show(Protocol):
    """What somebody is shown."""

    def step(self, title: str) -> None:
        """A step begins."""

    def tell(self, text: str) -> None:
        """Something happened."""

    def journey(self, journey: Journey) -> None:
        """A request went its way."""

    def log_line(self, name: str, line: dict[str, Any]) -> None:
        """A line that a process wrote into its access log."""


class StepFailed(Exception):
    """A step showed something else than it should; the text names the step, what was seen and what was expected."""


class Scenario:
    """The demo. `traveller` is the visitor of west's ingress gateway, once `run` has started one."""

    def __init__(self, stage: Stage, binary: Path, show: Show) -> None:
        self.stage = stage
        self.plane = DataPlane(stage, binary)
        self.traveller = Traveller(stage, self.plane)
        self._show = show
        self._controls: list[ControlPlane] = []

    def check_addresses(self) -> None:
        """Raises Taken if somebody is where the demo wants to be."""
        stage = self.stage
        check_free([address for site in stage.sites for address in control.addresses(site)])
        check_free([*self.plane.addresses(), SocketAddress(stage.east.address("0.11"), changes.SECOND_GATEWAY_PORT)])

    async def run(self) -> None:
        """All steps. Raises StepFailed."""
        for title, step in (
            ("Two clusters start", self._start),
            ("A request for a service that is only in east", self._cross),
            ("A pod is no longer ready", self._lose_a_pod),
            ("A second gateway into east, on another port", self._share),
            ("A new host", self._open_a_host),
        ):
            self._show.step(title)
            with _named(title):
                await step()

    async def first_death(self) -> str:
        """Waits until a process has ended that was not told to; returns which, and its last words."""
        while True:
            for child in self._children():
                if not child.running:
                    return await child.ended()
            await asyncio.sleep(0.2)

    async def close(self) -> None:
        """Ends everything that was started."""
        await self.plane.close()
        controls, self._controls = self._controls, []
        await asyncio.gather(*(one.stop() for one in controls))

    def _children(self) -> list[Child]:
        return [*self._controls, *self.plane.envoys.values()]

    async def _start(self) -> None:
        west, east = self.stage.sites
        for site, other in ((west, east), (east, west)):
            self._controls.append(await ControlPlane.launch(self.stage, site, other))
        for one in self._controls:
            self._show.tell(f"{one.name}: {await one.serving()}")
        for site in self.stage.sites:
            ztunnel = await self.plane.start_pods(site, self.stage.destinations(site))
            self._show.tell(f"{ztunnel.name}: an Envoy in place of a ztunnel, for the pods of {site.name}")
        for site in self.stage.sites:
            for proxy in self.stage.gateways(site):
                began = time.monotonic()
                gateway = await self.plane.start_gateway(proxy)
                await gateway.ready()
                elapsed = time.monotonic() - began
                self._show.tell(f"{gateway.name}: {proxy.role} gateway at {proxy.bind}, ready after {elapsed:.2f} s")

    async def _cross(self) -> None:
        stage = self.stage
        outer_end, inner_end = "east-east-west-1", "east-ztunnel"
        journey = await self.traveller.follow(HOST, "/", tunnels=(outer_end, inner_end))
        self._show.journey(journey)
        _expect(journey.echo.cluster == "east", f"an answer from east, not from {journey.echo.cluster}")
        lines = {hop.name: hop.line for hop in journey.hops if hop.line.get("event") == OPENED}
        outer, inner = lines[outer_end], lines[inner_end]
        self._show.tell("The outer tunnel ends at east's gateway, which sees who calls for what, and no more:")
        self._show.log_line(outer_end, outer)
        self._show.tell("The inner one ends at the pod:")
        self._show.log_line(inner_end, inner)
        network = inner["network"]
        _expect(network == stage.west.network, f"a tunnel from {stage.west.network}, not from {network}")
        _expect(inner["peer"] == outer["peer"], f"one caller on both tunnels, not {outer['peer']} and {inner['peer']}")
        again, _ = await self.traveller.ask(HOST, "/")
        self._show.tell(f"The next request takes {again.seconds * 1000:.1f} ms: its tunnels are there.")

    async def _lose_a_pod(self) -> None:
        _, echo = await self.traveller.ask(HOST, "/orders")
        self._show.tell(f"https://{HOST}/orders is answered by {_name(echo)}: a service that is in both clusters.")
        _expect(echo.cluster == "west", "an answer from the cluster that was asked, as long as it has a ready pod")
        since = changes.set_ready(self.stage.west, echo.app, ready=False)
        self._show.tell(f"{echo.app} of west is no longer ready: its manifest says so.")
        answer, other = await self._until(
            HOST, "/orders", lambda echo: echo.cluster != "west", "an answer of another cluster", may_fail=False
        )
        self._show.tell(
            f"{_name(other)} answers, {(answer.asked - since) * 1000:.0f} ms after the change; no request failed."
        )

    async def _share(self) -> None:
        before = await self._ways(REQUESTS // 3)
        self._show.tell(f"{sum(before.values())} requests go {_listed(before)}.")
        proxy = changes.add_gateway(self.stage)
        gateway = await self.plane.start_gateway(proxy)
        await gateway.ready()
        since = changes.announce_gateway(self.stage)
        way = f"{proxy.bind}:{changes.SECOND_GATEWAY_PORT}"
        self._show.tell(f"{gateway.name} runs, and its Gateway now has an address: {way}.")
        end = time.monotonic() + PATIENCE
        while way not in await self._ways(2):
            if time.monotonic() > end:
                raise StepFailed(f"a request through {way} within {PATIENCE:g} s")
        self._show.tell(f"The first request went through it {(time.time() - since) * 1000:.0f} ms later.")
        after = await self._ways(REQUESTS)
        self._show.tell(f"{REQUESTS} requests went {_listed(after)}: of three pods they are given two and one.")
        share = after[way] / REQUESTS
        _expect(0.2 < share < 0.5, f"about a third of the requests through {way}, not {share:.0%}")

    async def _open_a_host(self) -> None:
        since = changes.add_host(self.stage, NEW_HOST, "catalog")
        self._show.tell(f"An Ingress and a Secret for {NEW_HOST} were written.")
        answer, echo = await self._until(NEW_HOST, "/", lambda _: True, "an answer", may_fail=True)
        self._show.tell(
            f"https://{NEW_HOST}/ was answered by {_name(echo)} {(answer.answered - since) * 1000:.0f} ms later, "
            f"with a certificate of {', '.join(answer.certificate)}."
        )

    async def _ways(self, requests: int) -> Counter[str]:
        """Sends requests; how many went which way, by what the ingress gateway wrote down."""
        ingress = self.plane.envoys[f"west-{self.traveller.ingress.pod}"]
        began = time.time()
        for _ in range(requests):
            await self.traveller.ask(HOST, "/")
        lines: list[dict[str, Any]] = []

        async def written() -> bool:
            lines[:] = [
                line for line in ingress.access_log() if line.get("host") == HOST and float(line["start"]) > began
            ]
            return len(lines) == requests

        await ingress.until(written, f"seen to write {requests} lines of its access log", PATIENCE)
        return Counter(line["upstream"].rpartition("/")[2] for line in lines)

    async def _until(
        self, host: str, path: str, wanted: Callable[[Echo], bool], what: str, *, may_fail: bool
    ) -> tuple[Answer, Echo]:
        """Asks again and again until an answer is wanted."""
        end = time.monotonic() + PATIENCE
        last = "nothing"
        while time.monotonic() < end:
            try:
                answer, echo = await self.traveller.ask(host, path)
                if wanted(echo):
                    return answer, echo
                last = f"an answer of {_name(echo)}"
            except (Unanswered, Refused) as error:
                if not may_fail:
                    raise
                last = str(error)
            await asyncio.sleep(0.002)
        raise StepFailed(f"{what} within {PATIENCE:g} s; the last was {last}")


@contextmanager
def _named(title: str) -> Iterator[None]:
    """Names the step in what goes wrong in it."""
    try:
        yield
    except StepFailed as error:
        raise StepFailed(f"{title}: expected {error}") from None
    except (Unanswered, Refused, ChildFailed, StageError) as error:
        raise StepFailed(f"{title}: {error}") from None


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise StepFailed(what)


def _name(echo: Echo) -> str:
    return f"{echo.app} of {echo.cluster}"


def _listed(ways: Counter[str]) -> str:
    return ", ".join(f"{count} through {way}" for way, count in sorted(ways.items()))
