"""A storm of changes and a slow client: what is newer takes the place of what waits, and nothing else is disturbed.

A gateway takes a while to accept each response while the endpoints of one service flap between none and three. It must
never be sent a second response of a type before it has answered the first, hear of that service alone, and have the
last state soon after the storm.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.kit import manifests as m
from tests.kit.eventually import eventually
from tests.kit.manifests import write_manifests
from tests.kit.plane import Plane, write_identities
from tests.kit.world import fact
from xds.client import Response
from xds.messages.assignment import ASSIGNMENT_TYPE
from xds.messages.cluster import CLUSTER_TYPE
from xds.messages.listener import LISTENER_TYPE
from xds.session.requests import FOR_ON_DEMAND

TOKEN = "gateway-token"
NODE = "router~10.10.1.200~ingress-1.istio-system~istio-system.svc.cluster.local"
FLAPPING = "ing|shop|s0|80"
SERVICES, CHANGES, EVERY, SLOWNESS = 50, 400, 0.005, 0.07


def pods(ready: bool) -> list[m.Manifest]:
    return [
        m.pod(f"shop/s0-{number}", f"10.10.2.{number + 1}", labels={"app": "s0"}, ready=ready) for number in range(3)
    ]


def shop(directory: Path) -> Path:
    home = directory / "alpha"
    labels = {"gateway.istio.io/managed": "isthmus.dev-ingress-gateway"}
    served: list[m.Manifest] = []
    for number in range(SERVICES):
        name = f"s{number}"
        served += [
            m.service(f"shop/{name}", f"10.96.2.{number + 1}", selector={"app": name}),
            m.ingress(f"shop/{name}", f"{name}.example", name),
        ]
        if number:
            served.append(m.pod(f"shop/{name}-0", f"10.10.3.{number}", labels={"app": name}))
    write_manifests(
        home,
        m.namespace("istio-system", network="net-a"),
        m.namespace("shop"),
        m.pod("istio-system/ingress-1", "10.10.1.200", labels=labels, account="ingress", node="alpha-1"),
        *served,
        *pods(ready=True),
    )
    return home


async def test_a_storm_of_flapping_endpoints_is_told_by_its_newest_state_to_a_slow_gateway(tmp_path: Path) -> None:
    home = shop(tmp_path)
    identities = write_identities(tmp_path / "identities.json", {TOKEN: ("istio-system/ingress", "alpha-1")})
    async with Plane(home, identities=identities) as plane, plane.client(TOKEN, NODE) as client:
        for extension in sorted(FOR_ON_DEMAND):
            client.node.extensions.add(name=extension)
        async with client.delta() as stream:
            heard: dict[str, list[set[str]]] = {CLUSTER_TYPE: [], LISTENER_TYPE: [], ASSIGNMENT_TYPE: []}
            unanswered: dict[str, int] = dict.fromkeys(heard, 0)
            writing = asyncio.Lock()
            most = 0
            last: dict[str, bytes] = {}

            async def answer(type_url: str, response: Response) -> None:
                await asyncio.sleep(SLOWNESS)
                unanswered[type_url] -= 1
                async with writing:
                    await stream.ack(response)

            async def listen(answers: asyncio.TaskGroup) -> None:
                nonlocal most
                async for response in stream:
                    unanswered[response.type_url] += 1
                    most = max(most, *unanswered.values())
                    heard[response.type_url].append({one.name for one in response.resources} | set(response.removed))
                    last.update({one.name: one.body for one in response.resources})
                    answers.create_task(answer(response.type_url, response))

            async with asyncio.TaskGroup() as tasks:
                listening = tasks.create_task(listen(tasks))
                for type_url in heard:
                    async with writing:
                        await stream.subscribe(type_url)
                await eventually(lambda: all(heard.values()) and not any(unanswered.values()))
                calm = last[FLAPPING]
                before = {type_url: len(of_type) for type_url, of_type in heard.items()}
                facts = plane.control.tables.facts
                for number in range(CHANGES):
                    facts.apply([fact("alpha", one) for one in pods(ready=number % 2 == 1)])
                    await asyncio.sleep(EVERY)
                told = len(heard[ASSIGNMENT_TYPE]) - before[ASSIGNMENT_TYPE]
                # The last change made all ready again, as it was in the beginning.
                await eventually(lambda: last[FLAPPING] == calm and not any(unanswered.values()), deadline=5)
                listening.cancel()
            assert most == 1
            assert set().union(*heard[ASSIGNMENT_TYPE][before[ASSIGNMENT_TYPE] :]) == {FLAPPING}
            assert len(heard[CLUSTER_TYPE]) == before[CLUSTER_TYPE]
            assert len(heard[LISTENER_TYPE]) == before[LISTENER_TYPE]
            assert 1 <= told < CHANGES / 5
