"""Statuses on home's real API server, by the role of home: who owns which field, and that writing comes to rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.kit import manifests as m
from tests.kit.eventually import eventually_awaited
from tests.kit.kube_binaries import istio_crds
from tests.kit.manifests import Manifest
from tests.kit.plane import Plane
from tests.kit.three_servers import SYSTEM, ThreeServers

INGRESS = "/apis/networking.k8s.io/v1/namespaces/shop/ingresses/shown"
GATEWAY = f"/apis/gateway.networking.k8s.io/v1/namespaces/{SYSTEM}/gateways/told"
SERVICE = "/api/v1/namespaces/shop/services/shown"
CLASS = "/apis/gateway.networking.k8s.io/v1/gatewayclasses/isthmus-told"
ADDRESS = "192.0.2.9"
POLICY = "/apis/security.istio.io/v1/namespaces/shop/authorizationpolicies/shown"
ENTRY = "/apis/networking.istio.io/v1/namespaces/shop/serviceentries/shown"
ISTIO = ("authorizationpolicies.security.istio.io", "serviceentries.networking.istio.io")
THEN = "2026-01-01T00:00:00Z"


def ingress(class_name: str = "isthmus") -> Manifest:
    return m.ingress("shop/shown", "shown.example", "cart", class_name=class_name)


async def read(world: ThreeServers, path: str) -> dict[str, Any]:
    status, document = await world.alpha.ask("GET", path)
    assert status == 200, document
    return dict(document)


async def shown(world: ThreeServers) -> list[str]:
    status = (await read(world, INGRESS)).get("status", {})
    return [one.get("ip", "") for one in status.get("loadBalancer", {}).get("ingress", ())]


def conditions(status: dict[str, Any]) -> dict[str, str]:
    return {one["type"]: one["status"] for one in status.get("conditions", ())}


def done(plane: Plane) -> float:
    assert plane.control.writing is not None
    found = {metric.name: metric.values for metric in plane.control.writing.metrics()}
    return found["isthmus.writes"].get(("done",), 0)


async def given_roots(world: ThreeServers) -> int:
    """How many namespaces have root certificates."""
    query = "fieldSelector=metadata.name%3Distio-ca-root-cert"
    return len((await read(world, f"/api/v1/configmaps?{query}"))["items"])


async def at_rest(plane: Plane) -> bool:
    return len(plane.control.tables.writes) == 0


async def test_an_ingress_shows_an_address_while_it_is_served_and_what_was_written_is_taken_back(
    world: ThreeServers,
) -> None:
    await world.alpha.apply(ingress())

    async def is_shown(*addresses: str) -> bool:
        return await shown(world) == list(addresses)

    async with world.plane(ingress_address=(ADDRESS,), leader_elect=False) as plane:
        await eventually_awaited(lambda: is_shown(ADDRESS), 20.0, interval=0.05)
        managers = (await read(world, INGRESS))["metadata"]["managedFields"]
        assert [one["operation"] for one in managers if one["manager"] == "isthmus"] == ["Apply"]
        await world.alpha.apply(ingress("another"))
        await eventually_awaited(is_shown, 20.0, interval=0.05)
        await eventually_awaited(lambda: at_rest(plane), 20.0, interval=0.05)
        # Twice the Ingress, and `cart`, which is global.
        assert done(plane) == 3
    managers = (await read(world, INGRESS))["metadata"]["managedFields"]
    assert "isthmus" not in {one["manager"] for one in managers}


async def test_a_gateway_and_its_class_are_told_their_conditions_once(world: ThreeServers) -> None:
    await world.alpha.apply(m.gateway_class("isthmus-told", "isthmus.dev/east-west-gateway"))
    mesh = m.listener()
    mesh["tls"] = {"mode": "Terminate", "options": {"gateway.istio.io/tls-terminate-mode": "ISTIO_MUTUAL"}}
    await world.alpha.apply(m.gateway(f"{SYSTEM}/told", "isthmus-told", mesh, network="net1"))

    async def is_told() -> bool:
        status = (await read(world, GATEWAY)).get("status", {})
        accepted = conditions((await read(world, CLASS)).get("status", {})).get("Accepted")
        return accepted == "True" and conditions(status) == {"Accepted": "True", "Programmed": "False"}

    async with world.plane(leader_elect=False) as plane:
        await eventually_awaited(is_told, 20.0, interval=0.05)
        status = (await read(world, GATEWAY))["status"]
        assert {one["observedGeneration"] for one in status["conditions"]} == {1}
        (listener,) = status["listeners"]
        assert conditions(listener)["Accepted"] == "True"
        # What the server makes of it is what was meant, else it would be written for ever.
        await eventually_awaited(lambda: at_rest(plane), 20.0, interval=0.05)
        # Both, and `cart`, which is global.
        assert done(plane) == 3
    async with world.plane(leader_elect=False) as again:
        await eventually_awaited(lambda: at_rest(again), 20.0, interval=0.05)
        assert done(again) == 0
    await world.alpha.delete("GatewayClass", "isthmus-told", api_version="gateway.networking.k8s.io/v1")


async def test_a_service_is_told_conditions_beside_those_of_others_and_loses_ours_alone(
    world: ThreeServers, cacerts: Path
) -> None:
    def service(**labels: str) -> Manifest:
        return m.service("shop/shown", "10.96.7.7", is_global=True, labels=labels)

    async def are(expected: dict[str, str]) -> bool:
        return conditions((await read(world, SERVICE)).get("status", {})) == expected

    await world.alpha.apply(service(**{"istio.io/use-waypoint": "nowhere"}))
    other = {"type": "example.com/Other", "status": "True", "reason": "Other", "message": ""}
    head = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "shown", "namespace": "shop"}}
    status, said = await world.alpha.ask(
        "PATCH",
        f"{SERVICE}/status?fieldManager=somebody",
        {**head, "status": {"conditions": [{**other, "lastTransitionTime": THEN}]}},
        content_type="application/apply-patch+yaml",
    )
    assert status == 200, said
    others = {"example.com/Other": "True"}
    async with world.plane(leader_elect=False, istio_classes=True, cacerts=cacerts) as plane:
        told = {**others, "isthmus.dev/Global": "True", "istio.io/WaypointBound": "False"}
        await eventually_awaited(lambda: are(told), 20.0, interval=0.05)
        await eventually_awaited(lambda: at_rest(plane), 20.0, interval=0.05)
        await world.alpha.apply(service())
        await eventually_awaited(lambda: are({**others, "isthmus.dev/Global": "True"}), 20.0, interval=0.05)
        await eventually_awaited(lambda: at_rest(plane), 20.0, interval=0.05)
    async with world.plane(leader_elect=False, istio_classes=True, cacerts=cacerts) as again:
        await eventually_awaited(lambda: at_rest(again), 20.0, interval=0.05)
        assert done(again) == 0
        await world.alpha.apply(m.service("shop/shown", "10.96.7.7"))
        await eventually_awaited(lambda: are(others), 20.0, interval=0.05)


async def test_istios_kinds_are_told_theirs_and_keep_those_of_others_in_the_one_list(
    world: ThreeServers, cacerts: Path
) -> None:
    definitions = istio_crds(*ISTIO)
    assert len(definitions) == len(ISTIO)
    await world.alpha.apply(*definitions)
    use = {"istio.io/use-waypoint": "nowhere"}
    await world.alpha.apply(
        m.authorization_policy("shop/shown", {"to": [{"operation": {"methods": ["GET"]}}]}),
        m.service_entry("shop/shown", "a.ext", resolution="DNS", labels=use),
    )
    head = {"apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy"}
    # As Istio writes them, generations are text.
    other = {"type": "Other", "status": "True", "reason": "Other", "observedGeneration": "1"}
    status, said = await world.alpha.ask(
        "PATCH",
        f"{POLICY}/status?fieldManager=somebody",
        {**head, "metadata": {"name": "shown", "namespace": "shop"}, "status": {"conditions": [other]}},
        content_type="application/apply-patch+yaml",
    )
    assert status == 200, said

    async def are(policy: dict[str, str], entry: dict[str, str], addresses: int) -> bool:
        of_entry = (await read(world, ENTRY)).get("status", {})
        given = len(of_entry.get("addresses", ()))
        of_policy = conditions((await read(world, POLICY)).get("status", {}))
        return (of_policy, conditions(of_entry), given) == (policy, entry, addresses)

    others = {"Other": "True"}
    told = {**others, "ZtunnelAccepted": "True"}, {"istio.io/WaypointBound": "False"}, 2
    async with world.plane(leader_elect=False, istio_classes=True, cacerts=cacerts) as plane:
        await eventually_awaited(lambda: are(*told), 20.0, interval=0.05)
        await eventually_awaited(lambda: at_rest(plane), 20.0, interval=0.05)
        before = done(plane)
    async with world.plane(leader_elect=False, istio_classes=True, cacerts=cacerts) as again:
        await eventually_awaited(lambda: at_rest(again), 20.0, interval=0.05)
        # Both, and what two clusters have: a Gateway, and `cart`, which is global; and in Istio's place the roots.
        assert (before, done(again)) == (4 + await given_roots(world), 0)
    # Beside an istiod its conditions are its own business, addresses are not.
    async with world.plane(leader_elect=False) as beside:
        await eventually_awaited(lambda: are(others, {}, 2), 20.0, interval=0.05)
        await eventually_awaited(lambda: at_rest(beside), 20.0, interval=0.05)
    for name in ISTIO:
        await world.alpha.delete("CustomResourceDefinition", name, api_version="apiextensions.k8s.io/v1")
