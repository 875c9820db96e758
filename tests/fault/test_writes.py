"""Writing back under faults: slow and many writes, several processes, a loop that is blocked, a process told to stop.

Rows of the list of faults: 27, SIGTERM under load; 31, a blocked event loop. Row 21, clocks that differ, is tested with
the Lease: unit/watchers/test_leases.py::test_wrong_clocks_do_no_harm.
"""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from aggregator.app.setting_values import ObjectName
from tests.kit import manifests as m
from tests.kit.eventually import eventually
from tests.kit.kube_api import KubeApi, KubeCluster, Slow
from tests.kit.kubeconfigs import kubeconfig
from tests.kit.pages import page
from tests.kit.plane import Plane, learned, told
from tests.kit.process import Isthmus, run_arguments, running
from tests.kit.two_api_servers import TwoApiServers
from tests.kit.two_clusters import CART_2, WAY
from tests.kit.ztunnel import ADDRESS_TYPE, Ztunnel, ZtunnelClient
from tests.kit.ztunnel.grpc_transport import GrpcDialer
from watchers.kubernetes.kubeconfig import ApiServer
from watchers.kubernetes.session import Session
from watchers.leases import Leadership
from watchers.metrics import WriteMetrics

MANY = 8_000
ADDRESS = "192.0.2.9"


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[TwoApiServers]:
    both = TwoApiServers(tmp_path)
    async with both.served():
        yield both


def add_ingresses(cluster: KubeCluster, count: int) -> None:
    cluster.apply(*(m.ingress(f"shop/i{number}", f"i{number}.example", "cart") for number in range(count)))


def patches(cluster: KubeCluster, token: str = "") -> Counter[str]:
    """How often the status of which Ingress was written, with that token."""
    return Counter(
        request.name[1]
        for request in cluster.requests
        if request.verb == "patch" and request.name and token in ("", request.token)
    )


def unanswered(cluster: KubeCluster) -> Counter[str]:
    """How many writes of which Ingress are under way."""
    writes = [request for request in cluster.requests if request.verb == "patch" and not request.status]
    return Counter(request.name[1] for request in writes if request.name)


def shown(cluster: KubeCluster, name: str) -> Any:
    stored = cluster.store.get("Ingress", ("shop", name))
    assert stored is not None
    return (stored.document.get("status") or {}).get("loadBalancer", {}).get("ingress")


def lease(cluster: KubeCluster) -> dict[str, Any]:
    stored = cluster.store.get("Lease", ("istio-system", "isthmus-leader"))
    return stored.document["spec"] if stored is not None else {}


def leads(plane: Plane) -> bool:
    assert plane.control.writing is not None
    return plane.control.writing.leads()


async def test_eight_thousand_slow_writes_delay_no_endpoint(servers: TwoApiServers) -> None:
    """The change of an endpoint is in the next pass, whatever is still to be written, and in the next response."""
    add_ingresses(servers.alpha, MANY)
    servers.alpha.script(Slow(2.0), verb="patch", times=None)
    servers.register()
    async with servers.plane(ingress_address=(ADDRESS,)) as plane, plane.connect(Ztunnel("net1")) as client:
        machine = await learned(client)
        await eventually(lambda: sum(unanswered(servers.alpha).values()), 30.0)
        for number in range(5):
            seen, passes = len(machine.received), len(plane.passes())
            ready = number % 2 == 1
            servers.alpha.apply(
                m.pod("shop/cart-2", "10.10.1.2", labels={"app": "cart"}, account="cart", node="alpha-2", ready=ready)
            )
            await told(client, CART_2)
            assert len(plane.passes()) == passes + 1
            (received,) = list(machine.received)[seen:]
            assert received.resources == (CART_2,)
        under_way = unanswered(servers.alpha)
        assert sum(under_way.values()) <= 4
        assert set(under_way.values()) <= {1}
        assert len(plane.control.tables.writes) > MANY - 200


async def test_a_follower_writes_nothing_and_takes_over_where_the_leader_stopped(servers: TwoApiServers) -> None:
    add_ingresses(servers.alpha, 50)
    async with servers.plane(ingress_address=(ADDRESS,), write_rate=5.0) as first:
        await eventually(lambda: leads(first))
        second = Plane(servers.write(servers.alpha, "t2", file="second/alpha"), ingress_address=(ADDRESS,))
        async with second:
            await eventually(lambda: len(patches(servers.alpha)) >= 10)
            assert not leads(second)
            assert not patches(servers.alpha, "t2")
            await first.stop()
            before = patches(servers.alpha)
            await eventually(lambda: all(shown(servers.alpha, f"i{number}") for number in range(50)), 15.0)
            # What the first had written is not written again, but for what was under way.
            assert sum((patches(servers.alpha) - before).values()) <= 50 - len(before) + 4
            assert patches(servers.alpha, "t2").keys() >= {f"i{n}" for n in range(50)} - before.keys()


async def test_one_that_stops_without_draining_lets_go_all_the_same(servers: TwoApiServers) -> None:
    async with servers.plane() as plane:
        await eventually(lambda: leads(plane))
        servers.alpha.script(Slow(0.2), verb="update", times=None)
        await plane.stop()
        assert lease(servers.alpha)["holderIdentity"] == ""


async def test_a_process_that_starts_anew_writes_nothing_that_is_there(servers: TwoApiServers) -> None:
    add_ingresses(servers.alpha, 20)
    async with servers.plane(ingress_address=(ADDRESS,)):
        await eventually(lambda: all(shown(servers.alpha, f"i{number}") for number in range(20)))
    before = patches(servers.alpha)
    async with servers.plane(ingress_address=(ADDRESS,)) as plane:
        await eventually(lambda: leads(plane))
        servers.alpha.apply(m.ingress("shop/new", "new.example", "cart"))
        await eventually(lambda: shown(servers.alpha, "new"))
    assert patches(servers.alpha) - before == Counter({"new": 1})


async def test_the_addresses_of_the_gateways_service_follow_its_load_balancer(servers: TwoApiServers) -> None:
    service = m.service("istio-system/gateway", "10.96.0.99")
    servers.alpha.apply(service, m.ingress("shop/i0", "i0.example", "cart"))
    async with servers.plane(ingress_service=ObjectName("istio-system", "gateway")) as plane:
        await eventually(lambda: leads(plane))
        for address in ("192.0.2.1", "192.0.2.2"):
            servers.alpha.apply({**service, "status": {"loadBalancer": {"ingress": [{"ip": address}]}}})
            wanted = [{"ip": address}]
            await eventually(lambda: shown(servers.alpha, "i0") == wanted)  # noqa: B023 - it is awaited here


async def test_without_status_nothing_is_written(servers: TwoApiServers) -> None:
    add_ingresses(servers.alpha, 5)
    async with servers.plane(ingress_address=(ADDRESS,), write_status=False) as plane:
        await eventually(lambda: leads(plane))
        # The Ingresses, and `cart`, which is global.
        await eventually(lambda: len(plane.control.tables.writes) == 6)
        shown_page = (await plane.admin("/writes")).json()
        assert (shown_page["leading"], shown_page["count"]) == (True, 6)
        assert shown_page["pending"][0] == "Ingress shop/i0"
    assert not patches(servers.alpha)


# Row 31


class Elsewhere:
    """An API server, and another candidate for its Lease, in a thread with a loop of its own."""

    def __init__(self) -> None:
        self.cluster = KubeCluster("home")
        self.serving = threading.Event()
        self.led = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), name="elsewhere")

    def __enter__(self) -> Elsewhere:
        self._thread.start()
        assert self.serving.wait(20)
        return self

    def __exit__(self, *error: object) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(20)

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with KubeApi(self.cluster):
            self.serving.set()
            await eventually(lambda: lease(self.cluster), 30.0)
            async with Session(ApiServer(self.cluster.url, token="t")) as session:
                candidate = asyncio.create_task(self._candidate(session))
                await self._over.wait()
                candidate.cancel()
                await asyncio.wait((candidate,))

    async def _candidate(self, session: Session) -> None:
        leadership = Leadership(
            session,
            "istio-system",
            "isthmus-leader",
            "another",
            metrics=WriteMetrics(),
            clock=time.monotonic,
            wall=time.time,
            chance=lambda: 0.0,
        )
        await leadership.run(self._lead)

    async def _lead(self) -> None:
        self.led = True
        await asyncio.Event().wait()


def blocks_the_loop(seconds: float) -> None:
    """What no code of a loop should do."""
    time.sleep(seconds)


async def test_row_31_a_blocked_event_loop_is_told_with_its_stack_and_loses_no_lease(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "home"
    with Elsewhere() as elsewhere:
        home.write_bytes(kubeconfig(elsewhere.cluster.url, "t"))
        async with Plane(home, kubeconfig_allow=("plain-http",)) as plane:
            await eventually(lambda: leads(plane))
            reads = elsewhere.cluster.count("get", "Lease")
            await eventually(lambda: elsewhere.cluster.count("get", "Lease") > reads)
            with caplog.at_level(logging.WARNING, "aggregator.app.loop_watch"):
                asyncio.get_running_loop().call_soon(blocks_the_loop, 2.0)
                await eventually(lambda: plane.control.loop_watch.blocked.values[()] == 1)
            assert leads(plane)
            renewed = lease(elsewhere.cluster)["renewTime"]
            await eventually(lambda: lease(elsewhere.cluster)["renewTime"] != renewed)
            assert lease(elsewhere.cluster)["leaseTransitions"] == 0
            assert not elsewhere.led
            told = {record.message: vars(record) for record in caplog.records}
            assert "blocks_the_loop" in told["event loop is blocked"]["stack"]
            assert "event loop answers again" in told
            metrics = (await plane.admin("/metrics")).text
            lag = re.search(r"^isthmus_event_loop_lag_seconds (\S+)$", metrics, re.MULTILINE)
            assert lag is not None
            assert float(lag[1]) > 1.7
            assert "isthmus_event_loop_blocked_total 1.0" in metrics
            assert "isthmus_leader 1.0" in metrics


# Row 27


@asynccontextmanager
async def connected(process: Isthmus, client: ZtunnelClient) -> AsyncIterator[asyncio.Task[Any]]:
    """A stream of a ztunnel to the plaintext port of a process."""
    dialer = GrpcDialer(process.target("xds plaintext"))
    stream = asyncio.create_task(client.run(await dialer.open()))
    try:
        yield stream
    finally:
        await dialer.close()
        await asyncio.wait((stream,))


async def flapping(servers: TwoApiServers) -> None:
    """Pods of both clusters come and go without a pause that anybody would notice."""
    number = 0
    while True:
        number += 1
        ready = number % 2 == 0
        for cluster, network in ((servers.alpha, 10), (servers.beta, 20)):
            cluster.apply(
                m.pod(
                    "shop/cart-1",
                    f"10.{network}.1.1",
                    labels={"app": "cart", "version": f"v{number}"},
                    account="cart",
                    node=f"{cluster.name}-1",
                    ready=ready,
                )
            )
        await asyncio.sleep(0.005)


async def test_row_27_a_process_told_to_stop_under_load_drains_and_another_takes_over_without_a_lost_update(
    servers: TwoApiServers,
) -> None:
    servers.register()
    add_ingresses(servers.alpha, 1)
    arguments = run_arguments(f"alpha={servers.write(servers.alpha)}", plaintext=True)
    arguments = [*arguments, "--ingress-address", ADDRESS, "--drain", "4s"]
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(running(*arguments))
        await first.ready()
        await eventually(lambda: lease(servers.alpha).get("holderIdentity"), 10.0)
        second = await stack.enter_async_context(running(*arguments))
        await second.ready()
        leader = lease(servers.alpha)["holderIdentity"]
        client, beside = (ZtunnelClient(Ztunnel("net1").machine) for _ in range(2))
        async with connected(first, client) as stream, connected(first, beside) as other:
            machine = await learned(client)
            await learned(beside)
            load = asyncio.create_task(flapping(servers))
            await client.until(lambda machine: len(machine.received) > 20)
            first.signal(signal.SIGTERM)
            # They end one by one, over the time there is.
            await asyncio.wait((stream, other), timeout=20, return_when=asyncio.FIRST_COMPLETED)
            ready = await page(first.ports["health"], "/ready")
            assert (ready.status, ready.json()["waiting"]) == (503, ["the process is stopping"])
            await asyncio.wait_for(asyncio.gather(stream, other), 20)
        assert await first.ended() == 0
        # As the server says: a client that is just acknowledging something is told of its own failure by its library.
        ends = re.findall(r"code=(\w+) cause=\"server is draining", first.said)
        assert ends == ["UNAVAILABLE"] * 2, first.said
        assert not re.search(r"lease not let go of| error ", first.said), first.said
        async with connected(second, client) as stream:
            await client.until(lambda machine: len(machine.received) > 40, 20.0)
            load.cancel()
            await asyncio.wait((load,))
            newcomer = ZtunnelClient(Ztunnel("net1").machine)
            servers.beta.delete("Pod", "shop/cart-2")
            await client.until(lambda machine: WAY in machine.held(ADDRESS_TYPE))
            async with connected(second, newcomer):
                await eventually(lambda: machine.held(ADDRESS_TYPE) == newcomer.machine.held(ADDRESS_TYPE))
        # Let go of, the Lease was had by the other at its next look.
        await eventually(lambda: lease(servers.alpha)["holderIdentity"] not in ("", leader), 10.0)
        servers.alpha.apply(m.ingress("shop/new", "new.example", "cart"))
        await eventually(lambda: shown(servers.alpha, "new"), 10.0)
