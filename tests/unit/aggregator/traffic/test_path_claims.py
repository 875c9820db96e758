"""Which Ingress has a path that several want, under different conditions or in different spellings."""

from __future__ import annotations

import pytest

from tests.kit import manifests as m
from tests.kit.world import World

OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
GET = {"match-method": "GET"}
ANY = {"ignore-path-case": "true"}


def world_of(*manifests: m.Manifest) -> World:
    world = World()
    world.apply("alpha", m.service("a/web"), m.service("b/web"), *manifests)
    world.step()
    return world


def ingress(name: str, path: str = "/x", annotations: dict[str, str] | None = None, created: str = OLD) -> m.Manifest:
    return m.ingress(name, "a.example", "web", path=path, annotations=annotations, created=created)


def rules(world: World) -> list[tuple[str, str]]:
    """(Ingress, path) in the order of matching."""
    host = world.graph.values(world.pipeline.hosts.hosts)["a.example"]
    return [("/".join(rule.origin[2:]), rule.path) for rule in host.rules]


def told(world: World) -> list[tuple[str, str]]:
    return [(one.code, "/".join(one.object[2:])) for one in world.findings()]


def test_conditions_part_a_path_among_ingresses_of_a_namespace() -> None:
    world = world_of(ingress("a/all"), ingress("a/get", annotations=GET, created=NEW))
    assert rules(world) == [("a/get", "/x"), ("a/all", "/x")]
    assert told(world) == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ingress("a/all"), ingress("b/get", annotations=GET, created=NEW)),
        (ingress("a/get", annotations=GET), ingress("b/all", created=NEW)),
        (ingress("a/all"), ingress("b/any", annotations=ANY, created=NEW)),
        (ingress("a/all"), ingress("b/any", "/X", annotations=ANY, created=NEW)),
        (ingress("a/any", annotations=ANY), ingress("b/all", "/X", created=NEW)),
    ],
)
def test_nobody_takes_a_part_of_a_path_of_another_namespace(first: m.Manifest, second: m.Manifest) -> None:
    name = f"b/{second['metadata']['name']}"
    for order in ((first, second), (second, first)):
        world = world_of(*order)
        assert [origin for origin, _ in rules(world)] == [f"a/{first['metadata']['name']}"]
        assert told(world) == [("PathClaimed", name)]
    world.delete("alpha", first)
    world.step()
    assert ([origin for origin, _ in rules(world)], told(world)) == ([name], [])


def test_spellings_are_different_paths_unless_one_is_in_any_case() -> None:
    world = world_of(ingress("a/lower"), ingress("b/upper", "/X"))
    assert sorted(rules(world)) == [("a/lower", "/x"), ("b/upper", "/X")]
    assert told(world) == []


def test_a_path_in_any_case_comes_after_its_spellings() -> None:
    world = world_of(ingress("a/any", "/X", ANY), ingress("a/lower", "/x"))
    assert rules(world) == [("a/lower", "/x"), ("a/any", "/X")]
