"""Whatever happens between a cluster and us, the table ends as the API server is, and nothing vanishes on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import looptime
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.kube_api import Cut, Hang, KubeCluster, Lines, Refuse, Scripted, error_event
from tests.kit.kube_mesh import DEAD, REMOTE_KINDS, KubeMesh
from tests.kit.manifests import namespace, pod
from watchers.facts import Fact, ObjectKey

FAULTS = (
    Refuse(503, "ServiceUnavailable"),
    Refuse(410, "Expired"),
    Refuse(429, "TooManyRequests", headers={"Retry-After": "3"}),
    Refuse(422, "Invalid"),
    Refuse(502, body=b"<html>bad gateway</html>"),
    Hang(),
    Cut(0),
    Cut(1),
    Lines(),
    Lines((b"<html>",)),
    Lines((error_event(410, "Expired"),)),
    Lines((error_event(500, "InternalError"),), "hang"),
)


class World:
    """Home `quay`, which registers `mesa` or not, and everything that may happen to them."""

    def __init__(self) -> None:
        self.quay, self.mesa = KubeCluster("quay"), KubeCluster("mesa")
        self.mesa.apply(namespace("shop"), pod("shop/pod-0"))
        self.mesh = KubeMesh(self.quay, self.mesa)
        self.registered = False
        self.vanished: list[str] = []
        self._pods = 1
        self._secrets: set[str] = set()
        self._scripted: list[Scripted] = []
        self._changes = self.mesh.table.cursor("mesa", self._hear)
        self.happen: Mapping[str, Callable[[int], None]] = {
            "register": self.register,
            "unregister": self.unregister,
            "lose the server": lambda _: self.point(DEAD),
            "revoke": lambda number: setattr(self.mesa, "tokens", {f"t{number}"}),
            "accept": lambda _: setattr(self.mesa, "tokens", None),
            "add": self.add,
            "delete": self.delete,
            "compact": lambda _: self.mesa.compact(),
            "freeze": lambda _: self.mesa.freeze(),
            "end": lambda _: self.mesa.end_watches(),
            "refuse connections": lambda number: setattr(self.mesa, "refuse_connections", number > 1),
            "stream lists": lambda number: setattr(self.mesa, "watch_list", number > 1),
            "fail": self.fail,
        }

    def _hear(self) -> None:
        for key, fact in self._changes.take().changes.items():
            if key[1] == "Pod" and fact is None and self.registered and key[3] in self.pods():
                self.vanished.append(key[3])

    def pods(self) -> list[str]:
        return [stored.name[1] for stored in self.mesa.store.objects("Pod")]

    def register(self, number: int) -> None:
        self.registered = True
        self._secrets.add(f"secret-{number % 2}")
        self.mesh.register(f"secret-{number % 2}", {"mesa": self.mesa}, f"t{number}")

    def unregister(self, number: int) -> None:
        name = f"secret-{number % 2}"
        if name in self._secrets:
            self._secrets.discard(name)
            # What is registered twice is still registered.
            self.registered = bool(self._secrets)
            self.mesh.unregister(name)

    def point(self, url: str) -> None:
        for name in self._secrets:
            self.mesh.register(name, {"mesa": url})

    def add(self, number: int) -> None:
        # Never the same name again, so that what vanishes can be told from what was deleted.
        names = [f"shop/pod-{self._pods + each}" for each in range(number + 1)]
        self._pods += len(names)
        self.mesa.apply(*map(pod, names))

    def delete(self, number: int) -> None:
        self.mesa.delete("Pod", *(f"shop/{name}" for name in self.pods()[: number + 1]))

    def fail(self, number: int) -> None:
        fault = FAULTS[number % len(FAULTS)]
        kind = ("Pod", "Service", None)[number % 3]
        self._scripted.append(self.mesa.script(fault, kind=kind, times=None if number % 2 else 2))

    def heal(self) -> None:
        for scripted in self._scripted:
            scripted.withdraw()
        self.mesa.refuse_connections = False
        self.mesa.tokens = None
        self.point(self.mesa.url)


Step = tuple[str, int, float]
NAMES = (
    "register", "register", "unregister", "lose the server", "revoke", "accept", "add", "add", "delete", "compact",
    "freeze", "end", "refuse connections", "stream lists", "fail", "fail",
)  # fmt: skip
STEPS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(0, 35), st.sampled_from([0.0, 0.01, 1.0, 20.0])), max_size=25
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_whatever_happens_the_table_ends_as_the_api_server_is_and_nothing_vanishes_on_the_way(
    steps: list[Step],
) -> None:
    async def live() -> None:
        world = World()
        async with world.mesh as mesh:
            for name, number, wait in steps:
                world.happen[name](number % 4 if name != "fail" else number)
                await asyncio.sleep(wait)
            world.heal()
            await asyncio.sleep(600)
            held: dict[ObjectKey, Fact] = dict(mesh.table.scan(("mesa",)))
            if world.registered:
                assert (mesh.state("mesa"), mesh.reason("mesa")) == ("synced", "")
                assert mesh.names("mesa") == sorted(world.pods())
                assert world.mesa.watches() == REMOTE_KINDS
            else:
                assert held == {}
                assert world.mesa.watches() == 0
            assert world.vanished == []
            assert mesh.state("quay") == "synced"

    with asyncio.Runner(loop_factory=lambda: looptime.new_event_loop(start=0)) as runner:
        runner.run(live())
