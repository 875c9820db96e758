"""Memory follows what is selected and used, not what is in the clusters.

Measured in processes of their own: what a process has interned and freed before would count, too.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import msgspec

from aggregator.cache.table import Table
from tests.bench.memory import resident
from tests.kit import manifests as m
from tests.kit.eventually import eventually
from tests.kit.kube_pages import Made, PagesSession
from tests.kit.manifests import Manifest
from watchers.facts import Fact, ObjectKey, keys
from watchers.kubernetes.budget import Limits
from watchers.kubernetes.flow import Flow, Rounds
from watchers.kubernetes.quota import Holdings
from watchers.kubernetes.reflector import Reflector
from watchers.kubernetes.resources import resources
from watchers.metrics import WatchMetrics
from watchers.selection import Selection

ROOT = Path(__file__).parents[4]
PADDING = 20_000
MIB = 1 << 20
WANTED = ("team-1", "team-2")


def pod(number: int) -> Manifest:
    """Pods of three hundred Deployments, of which two in a hundred are in the wanted namespaces."""
    namespace = WANTED[number % 2] if number % 50 == 0 else f"unwanted-{number % 97}"
    return _pod(namespace, number)


def _pod(namespace: str, number: int) -> Manifest:
    name = f"{namespace}-cart{number % 300}"
    return m.pod(
        f"{namespace}/{name}-5d8f7c9b6-{number:05x}",
        f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
        labels={"app": name, "version": "v1"},
        account=name,
        node=f"node-{number % 50}",
        ports={"http": 8080},
        deployment=name,
    )


def used_pod(number: int) -> Manifest:
    """Pods all of which count."""
    return _pod(f"team-{number % 30}", number)


def service(number: int) -> Manifest:
    """A service of each Deployment."""
    name = f"team-{number % 30}-cart{number}"
    return m.service(f"team-{number % 30}/{name}", f"10.96.{number >> 8}.{number & 255}", selector={"app": name})


class Reading:
    """A remote cluster of which pods and services are read."""

    def __init__(self, session: PagesSession, selected: Iterable[str] | None) -> None:
        self.facts: Table[ObjectKey, Fact] = Table("facts")
        self.states: dict[str, str] = {}
        selection = Selection()
        selection.set(selected)
        metrics, now = WatchMetrics(), asyncio.get_running_loop().time
        flow, holdings = Flow("west", Limits(), Rounds(), metrics, now), Holdings(Limits().objects)
        self.reflectors = [
            Reflector(
                resource,
                "west",
                session,
                self.facts,
                system_namespace="istio-system",
                report=lambda state, _reason, kind=resource.kind.name: self.states.update({kind: state}),  # type: ignore[misc]
                metrics=metrics,
                flow=flow,
                holdings=holdings,
                selection=selection,
                chance=lambda: 0.5,
                now=now,
            )
            for resource in resources("istio-system")
            if resource.kind.name in ("Pod", "Service")
        ]
        self._tasks = [asyncio.create_task(reflector.run()) for reflector in self.reflectors]

    async def complete(self) -> None:
        """Everything has been read."""
        await eventually(lambda: set(self.states.values()) == {"synced"}, deadline=100.0)

    async def end(self) -> None:
        """Nothing is read any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def growth(padding: int) -> float:
    """Bytes by which a remote of 300 services and 4,000 endpoints makes a process grow that has read one before."""
    session = PagesSession({"pods": Made(4000, used_pod), "services": Made(300, service)}, padding)
    first = Reading(PagesSession({"pods": Made(100, used_pod), "services": Made(10, service)}, padding), None)
    await first.complete()
    await first.end()
    before = resident(trimmed=True)
    reading = Reading(session, None)
    await reading.complete()
    grown = resident(trimmed=True) - before
    assert len(reading.facts) == 4300
    await reading.end()
    return grown


async def leftovers() -> list[str]:
    """What is held after reading 5,000 pods of which two in a hundred are selected: how many facts, then whatever names
    a namespace that is not.
    """
    session = PagesSession({"pods": Made(5000, pod), "services": Made(0, service)}, PADDING)
    reading = Reading(session, WANTED)
    await reading.complete()
    gc.collect()
    held = {text for text in strings([reading.reflectors, reading.facts, vars(keys)]) if "unwanted-" in text}
    facts = len(reading.facts)
    await reading.end()
    return [str(facts), *sorted(held)[:10]]


def strings(roots: list[Any]) -> Iterator[str]:
    """Every string that can be reached."""
    seen: set[int] = set()
    todo: list[Any] = list(roots)
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, (type, ModuleType, PagesSession)):
            continue
        seen.add(id(one))
        if isinstance(one, str):
            yield one
        elif isinstance(one, msgspec.Struct):
            todo += [getattr(one, name) for name in one.__struct_fields__]
        elif not isinstance(one, FunctionType) or one.__closure__:
            todo += [part for part in gc.get_referents(one) if part is not globals()]


def in_a_process(call: str) -> Any:
    """What an async call comes to."""
    program = f"import asyncio, json; from {__name__} import *; print(json.dumps(asyncio.run({call})))"
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True)
    return json.loads(ran.stdout)


def test_a_remote_takes_no_more_for_what_nobody_uses_of_its_objects() -> None:
    plain, padded = in_a_process("growth(0)"), in_a_process(f"growth({PADDING})")
    assert plain < 20 * MIB
    assert padded < 20 * MIB
    # 86 MB of padding have passed through.
    assert padded - plain < 6 * MIB


def test_nothing_that_names_an_unselected_namespace_can_be_reached() -> None:
    facts, *unwanted = in_a_process("leftovers()")
    assert facts == "100"
    assert not unwanted


def test_such_names_would_be_found() -> None:
    assert "unwanted-1" in strings([{"a": [Table("facts"), ("unwanted-1",)]}])
