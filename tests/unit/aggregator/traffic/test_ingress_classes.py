"""Which Ingresses are served: by field, by annotation, by default, and never those of others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit import manifests as m
from tests.kit.world import World

OTHERS = "k8s.io/ingress-nginx"
HOST = "a.example"


def served(*classes: m.Manifest, annotation: str | None = None, **fields: Any) -> bool:
    """Whether an Ingress is served beside these classes."""
    world = World()
    ingress = m.ingress("shop/web", HOST, "web", **fields)
    if annotation is not None:
        ingress["metadata"]["annotations"] = {"kubernetes.io/ingress.class": annotation}
    world.apply("alpha", *classes, ingress)
    world.step()
    return HOST in world.graph.values(world.pipeline.hosts.hosts)


def test_the_class_isthmus_exists_unless_somebody_made_another_of_it() -> None:
    assert served(class_name="isthmus")
    assert not served(m.ingress_class("isthmus", OTHERS), class_name="isthmus")


@pytest.mark.parametrize(("controller", "ours"), [("isthmus.dev/ingress-controller", True), (OTHERS, False)])
def test_a_class_is_ours_by_its_controller(controller: str, ours: bool) -> None:
    assert served(m.ingress_class("edge", controller), class_name="edge") is ours


@pytest.mark.parametrize("in_its_place", [True, False])
def test_classes_of_istio_are_ours_only_in_its_place(in_its_place: bool) -> None:
    world = World(istio_classes=in_its_place)
    world.apply("alpha", m.ingress_class("istio", "istio.io/ingress-controller"))
    world.apply("alpha", m.ingress("shop/web", HOST, "web", class_name="istio"))
    world.step()
    assert (HOST in world.graph.values(world.pipeline.hosts.hosts)) is in_its_place


def test_a_class_nobody_made_is_not_ours() -> None:
    assert not served(class_name="edge")


def test_the_annotation_names_a_class_where_the_field_does_not() -> None:
    assert served(annotation="isthmus", class_name=None)
    assert not served(annotation="nginx", class_name=None)
    assert served(annotation="nginx", class_name="isthmus")
    assert not served(m.ingress_class("nginx", OTHERS), annotation="isthmus", class_name="nginx")


def test_without_a_class_it_is_ours_only_if_the_default_is() -> None:
    assert not served(class_name=None)
    assert not served(m.ingress_class("edge"), class_name=None)
    assert served(m.ingress_class("edge", is_default=True), class_name=None)
    assert not served(m.ingress_class("nginx", OTHERS, is_default=True), class_name=None)


def test_an_empty_annotation_names_no_class() -> None:
    assert served(m.ingress_class("edge", is_default=True), annotation="", class_name=None)


def test_of_several_defaults_the_newest_counts() -> None:
    old, new = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    theirs = m.ingress_class("nginx", OTHERS, is_default=True, created=old)
    assert served(theirs, m.ingress_class("edge", is_default=True, created=new), class_name=None)
    theirs = m.ingress_class("nginx", OTHERS, is_default=True, created=new)
    assert not served(theirs, m.ingress_class("edge", is_default=True, created=old), class_name=None)


def test_of_defaults_of_one_age_the_first_by_name_counts() -> None:
    assert served(m.ingress_class("a", is_default=True), m.ingress_class("b", OTHERS, is_default=True), class_name=None)
    assert not served(
        m.ingress_class("b", is_default=True), m.ingress_class("a", OTHERS, is_default=True), class_name=None
    )


def test_classes_of_other_clusters_say_nothing() -> None:
    world = World()
    world.apply("beta", m.ingress_class("edge"))
    world.apply("beta", m.ingress_class("isthmus", is_default=True))
    world.apply("alpha", m.ingress("shop/a", "a.example", "web", class_name="edge"))
    world.apply("alpha", m.ingress("shop/b", "b.example", "web", class_name=None))
    world.step()
    assert world.graph.values(world.pipeline.hosts.hosts) == {}


def test_ingresses_of_other_clusters_are_not_served() -> None:
    world = World()
    world.apply("alpha", m.namespace("shop"))
    world.apply("beta", m.ingress("shop/web", HOST, "web"))
    world.step()
    assert world.graph.values(world.pipeline.hosts.hosts) == {}


def test_an_ingress_comes_and_goes_with_its_class() -> None:
    world = World()
    world.apply("alpha", m.ingress("shop/web", HOST, "web", class_name="edge"))
    for controller, present in (("isthmus.dev/ingress-controller", True), (OTHERS, False)):
        world.apply("alpha", m.ingress_class("edge", controller))
        world.step()
        assert (HOST in world.graph.values(world.pipeline.hosts.hosts)) is present


def test_parameters_of_a_class_of_ours_are_told_to_be_ignored() -> None:
    def told(controller: str) -> list[tuple[str, str]]:
        world = World()
        edge = m.ingress_class("edge", controller)
        edge["spec"]["parameters"] = {"apiGroup": "example.com", "kind": "Options", "name": "x"}
        world.apply("alpha", edge)
        world.step()
        return [(one.code, one.field) for one in world.findings()]

    assert told("isthmus.dev/ingress-controller") == [("ClassParametersIgnored", "spec.parameters")]
    assert told(OTHERS) == []
