"""Backends: which services and ports Ingresses lead to, whether they exist, and who is told where they do not."""

from __future__ import annotations

from typing import Any

import pytest

from aggregator.traffic.backends import Backend
from tests.kit import manifests as m
from tests.kit.world import World

WEB = "shop/web.shop.svc.cluster.local"


def world_of(*manifests: m.Manifest, cluster: str = "alpha") -> World:
    world = World()
    world.cluster("alpha")
    world.apply(cluster, *manifests)
    world.step()
    return world


def backends(world: World) -> dict[str, Backend]:
    found: dict[str, Backend] = world.graph.values(world.pipeline.backends)
    return found


def to(port: int | str = 80, name: str = "shop/web", **fields: Any) -> m.Manifest:
    return m.ingress(name, f"{name.replace('/', '.')}.example", "web", port=port, **fields)


def test_a_port_is_found_by_number_and_by_name() -> None:
    service = m.service("shop/web", ports={"http": (80, 8080), "admin": (81, "admin")})
    found = backends(world_of(service, to(80), to("admin", "shop/other")))
    assert found == {
        "ing|shop|web|80": Backend("ing|shop|web|80", WEB, 80, "HTTP11", found=True),
        "ing|shop|web|admin": Backend("ing|shop|web|admin", WEB, 81, "", found=True),
    }


@pytest.mark.parametrize(
    "service",
    [
        None,
        m.service("shop/web", ports={"http": (8080, 8080)}),
        m.service("shop/web", ports={"http": {"port": 80, "protocol": "UDP"}}),
        m.service("shop/web", spec={"type": "ExternalName", "externalName": "web.example"}),
        m.service("other/web"),
    ],
    ids=["no service", "no port", "a UDP port", "an external name", "another namespace"],
)
def test_a_backend_that_does_not_exist_is_a_backend_all_the_same_and_told(service: m.Manifest | None) -> None:
    world = world_of(to(80), *([service] if service else []))
    assert backends(world) == {"ing|shop|web|80": Backend("ing|shop|web|80", WEB, 0, "", found=False)}
    (finding,) = world.findings()
    assert (finding.code, finding.object, finding.field) == (
        "BackendNotFound",
        ("alpha", "Ingress", "shop", "web"),
        "spec.rules[0].http.paths[0]",
    )


def test_a_backend_that_appears_is_found_and_the_finding_goes() -> None:
    world = world_of(to(80))
    world.apply("alpha", m.service("shop/web"))
    world.step()
    assert backends(world)["ing|shop|web|80"].found
    assert world.findings() == []


def test_a_service_that_exists_elsewhere_alone_is_found() -> None:
    world = world_of(to(80))
    world.apply("beta", m.namespace("shop"), m.service("shop/web", is_global=True))
    world.step()
    assert backends(world)["ing|shop|web|80"].found


def test_every_ingress_that_names_a_missing_backend_is_told() -> None:
    world = world_of(to(80), to(80, "shop/other"))
    assert [one.object[3] for one in world.findings()] == ["other", "web"]


def test_a_backend_lives_as_long_as_some_ingress_names_it() -> None:
    one, other = to(80), to(80, "shop/other")
    world = world_of(m.service("shop/web"), one, other)
    world.delete("alpha", one)
    world.step()
    assert list(backends(world)) == ["ing|shop|web|80"]
    world.delete("alpha", other)
    world.step()
    assert backends(world) == {}


def test_a_backend_is_one_service_in_the_domain_of_the_mesh() -> None:
    world = World(domain_suffix="corp.example")
    world.apply("alpha", m.service("shop/web"), to(80))
    world.step()
    assert backends(world)["ing|shop|web|80"].service == "shop/web.shop.svc.corp.example"
    assert backends(world)["ing|shop|web|80"].found


def test_a_change_of_endpoints_runs_no_function_of_ingresses() -> None:
    world = world_of(m.service("shop/web", selector={"app": "web"}), to(80))
    pod = m.pod("shop/web-1", "10.0.0.1", labels={"app": "web"})
    world.apply("alpha", pod)
    world.step()
    before = world.graph.evaluated_by[world.pipeline.backends.number]
    world.apply("alpha", m.pod("shop/web-1", "10.0.0.1", labels={"app": "web"}, ready=False))
    world.step()
    assert world.graph.evaluated_by[world.pipeline.backends.number] == before
