"""Root certificates on home's real API server, by the role of home: who owns a ConfigMap, and who gives way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from aggregator.writes.root_certificates import ROOTS
from tests.kit import manifests as m
from tests.kit.eventually import eventually_awaited
from tests.kit.kube_apiserver import KubeServer
from tests.kit.plane import Plane
from tests.kit.three_servers import SYSTEM, ThreeServers
from watchers.facts.core import Namespace
from watchers.owned_objects import DistributedRoots
from watchers.writes import request

SHOP, TAKEN, NEW, ENDING = "shop", "roots-taken", "roots-new", "roots-ending"
ENTRY = "root-cert.pem"
MERGE = "application/merge-patch+json"


def path(namespace: str, manager: str = "") -> str:
    query = f"?fieldManager={manager}" if manager else ""
    return f"/api/v1/namespaces/{namespace}/configmaps/istio-ca-root-cert{query}"


async def found(server: KubeServer, namespace: str) -> dict[str, Any]:
    """The ConfigMap of a namespace; empty if it has none."""
    status, document = await server.ask("GET", path(namespace))
    return dict(document) if status == 200 else {}


async def has(server: KubeServer, namespace: str, text: str) -> None:
    async def has_it() -> bool:
        return (await found(server, namespace)).get("data") == {ENTRY: text}

    await eventually_awaited(has_it, 20.0, interval=0.05)


async def patch(server: KubeServer, namespace: str, manager: str, text: str | None) -> None:
    status, said = await server.ask("PATCH", path(namespace, manager), {"data": {ENTRY: text}}, content_type=MERGE)
    assert status == 200, said


async def create(server: KubeServer, namespace: str, manager: str, text: str) -> None:
    """As another control plane makes it."""
    document = m.root_certificates(namespace, text)
    document["metadata"].pop("uid")
    where = f"/api/v1/namespaces/{namespace}/configmaps?fieldManager={manager}"
    status, said = await server.ask("POST", where, document)
    assert status == 201, said


def outcomes(plane: Plane) -> dict[tuple[str, ...], float]:
    """How many writes ended how."""
    assert plane.control.writing is not None
    return dict({one.name: one.values for one in plane.control.writing.metrics()}["isthmus.writes"])


async def rest(plane: Plane) -> None:
    async def at_rest() -> bool:
        return len(plane.control.tables.writes) == 0

    await eventually_awaited(at_rest, 20.0, interval=0.05)


@pytest.fixture
async def home(world: ThreeServers) -> AsyncIterator[KubeServer]:
    """The server of home, without ConfigMaps of earlier tests."""
    for namespace in (TAKEN, ENDING):
        await world.alpha.apply(m.namespace(namespace))
    await remove_all(world.alpha)
    yield world.alpha
    for namespace in (TAKEN, NEW, ENDING):
        await world.alpha.delete("Namespace", namespace)
    await remove_all(world.alpha)


async def remove_all(server: KubeServer) -> None:
    """Without controllers they do not go with their namespaces."""
    _, found = await server.ask("GET", "/api/v1/configmaps?fieldSelector=metadata.name%3Distio-ca-root-cert")
    for one in found["items"]:
        await server.ask("DELETE", path(one["metadata"]["namespace"]))


def roots(plane: Plane) -> str:
    return plane.control.authority.root_certificates


async def test_namespaces_are_given_the_roots_and_keep_them_whatever_people_do(
    world: ThreeServers, home: KubeServer, cacerts: Path
) -> None:
    async with world.plane(leader_elect=False, distribute_roots=True, cacerts=cacerts) as plane:
        await has(home, SHOP, roots(plane))
        document = await found(home, SHOP)
        assert document["metadata"]["labels"] == {"istio.io/config": "true"}
        (owner,) = document["metadata"]["managedFields"]
        assert (owner["manager"], owner["operation"]) == ("isthmus", "Apply")
        # Kubernetes' own are given none.
        assert await found(home, "kube-system") == {}

        await home.apply(m.namespace(NEW))
        await has(home, NEW, roots(plane))
        await home.ask("DELETE", path(NEW))
        await has(home, NEW, roots(plane))
        for manager in ("kubectl-edit", "kubectl-patch"):
            for text in ("changed", None):
                await patch(home, NEW, manager, text)
                await has(home, NEW, roots(plane))
        await rest(plane)
    # Who starts anew, and signs with the same, has nothing to write.
    async with world.plane(leader_elect=False, distribute_roots=True, cacerts=cacerts) as again:
        await rest(again)
        assert outcomes(again) == {}


async def test_other_roots_reach_every_namespace(world: ThreeServers, home: KubeServer, cacerts: Path) -> None:
    async with world.plane(leader_elect=False, distribute_roots=True, cacerts=cacerts) as plane:
        await has(home, TAKEN, roots(plane))
        both = roots(plane) + "-----BEGIN CERTIFICATE-----\nanother\n-----END CERTIFICATE-----\n"
        plane.control.tables.roots.apply([(ROOTS, both)])
        for namespace in ("default", SHOP, TAKEN):
            await has(home, namespace, both)
        await rest(plane)


async def test_what_another_control_plane_keeps_is_left_to_it_and_comes_over_when_it_goes(
    world: ThreeServers, home: KubeServer, cacerts: Path
) -> None:
    await create(home, TAKEN, "pilot-discovery", "of istiod")
    async with world.plane(leader_elect=False, distribute_roots=True, cacerts=cacerts) as plane:
        await has(home, SHOP, roots(plane))
        await rest(plane)
        before = await found(home, TAKEN)
        assert (before["data"], len(before["metadata"]["managedFields"])) == ({ENTRY: "of istiod"}, 1)
        assert [one for one in plane.control.findings() if f"ConfigMap {TAKEN}/istio-ca-root-cert" in one]
        # One of ours that istiod takes over is its own from then on.
        await patch(home, SHOP, "pilot-discovery", "of istiod")
        told = f"ConfigMap {SHOP}/istio-ca-root-cert"

        async def is_told() -> bool:
            return any(told in one for one in plane.control.findings())

        await eventually_awaited(is_told, 20.0, interval=0.05)
        await rest(plane)
        assert (await found(home, SHOP))["data"] == {ENTRY: "of istiod"}
        await home.ask("DELETE", path(TAKEN))
        await has(home, TAKEN, roots(plane))


async def test_one_that_somebody_makes_in_the_meantime_is_not_taken(home: KubeServer) -> None:
    """What was on its way when the object was made by somebody else is refused."""
    await create(home, TAKEN, "pilot-discovery", "of istiod")
    asked = request(("alpha", "ConfigMap", TAKEN, "istio-ca-root-cert", "object"), DistributedRoots("late"), "")
    where = f"{asked.path}?{urlencode(asked.query)}"
    status, said = await home.ask("PATCH", where, msgspec.json.decode(asked.body), content_type=asked.content_type)
    assert (status, said["reason"]) == (409, "Conflict")
    assert (await found(home, TAKEN))["data"] == {ENTRY: "of istiod"}


async def test_a_namespace_that_is_being_deleted_is_left_alone(
    world: ThreeServers, home: KubeServer, cacerts: Path
) -> None:
    async with world.plane(leader_elect=False, distribute_roots=True, cacerts=cacerts) as plane:
        await has(home, ENDING, roots(plane))
        # Without controllers it stays so until its finalizers are taken.
        await home.ask("DELETE", f"/api/v1/namespaces/{ENDING}")

        async def ends() -> bool:
            fact = plane.control.tables.facts.get(("alpha", "Namespace", "", ENDING))
            return isinstance(fact, Namespace) and fact.deleting

        await eventually_awaited(ends, 20.0, interval=0.05)
        await home.ask("DELETE", path(ENDING))
        await home.apply(m.namespace(NEW))
        await has(home, NEW, roots(plane))
        await rest(plane)
        assert await found(home, ENDING) == {}
        assert outcomes(plane).keys() == {("done",)}


async def test_the_role_of_home_allows_no_other_config_map(world: ThreeServers, home: KubeServer) -> None:
    token = await home.create_token(f"{SYSTEM}/isthmus")
    apply = "application/apply-patch+yaml"
    for name, expected in (("istio-ca-root-cert", 201), ("other", 403)):
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}}
        where = f"/api/v1/namespaces/{TAKEN}/configmaps/{name}"
        status, _ = await home.ask("PATCH", f"{where}?fieldManager=isthmus", document, token=token, content_type=apply)
        assert status == expected
        assert (await home.ask("GET", where, token=token))[0] == (200 if expected == 201 else 403)
    everywhere = "/api/v1/configmaps"
    assert (await home.ask("GET", everywhere, token=token))[0] == 403
    named = f"{everywhere}?fieldSelector=metadata.name%3Distio-ca-root-cert"
    assert (await home.ask("GET", named, token=token))[0] == 200
