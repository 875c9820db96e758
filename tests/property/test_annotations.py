"""Whatever Ingresses ask for by annotations, gateways are told what they take, and neighbours are told the same."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.traffic.annotations.settings import settings as settings_of
from aggregator.views.ingress_gateway import view_of
from aggregator.views.view import View
from tests.kit import manifests as m
from tests.kit.acceptable import acceptable
from tests.kit.annotation_values import SOUND, annotated
from tests.kit.manifests import Manifest
from tests.kit.world import World
from xds import protos
from xds.messages.assignment import ASSIGNMENT_TYPE
from xds.messages.cluster import CLUSTER_TYPE
from xds.messages.scope import SCOPED_ROUTE_TYPE

VIEWS: list[View] = [
    view
    for type_url in (SCOPED_ROUTE_TYPE, CLUSTER_TYPE, ASSIGNMENT_TYPE)
    if (view := view_of(type_url, lambda _: ""))
]
PEOPLE = m.secret("shop/people", auth=b"ann:{SHA}" + b"A" * 27 + b"=")
HOSTS = ("a.example", "www.a.example", "c.example", "*.example", "")
PATHS = ("/", "/x", "/X/y", "/re(/|$)(.*)", "/[x-z]+/(.*)")


@st.composite
def ingresses(draw: st.DrawFn) -> Manifest:
    kind = draw(st.sampled_from(("Prefix", "Exact", "ImplementationSpecific")))
    paths = [(draw(st.sampled_from(PATHS)), draw(st.sampled_from(("one", "two"))), 80) for _ in range(2)]
    host = draw(st.sampled_from(HOSTS))
    return m.ingress(
        f"shop/{draw(st.sampled_from('abcd'))}",
        rules=[m.ingress_rule(host, *paths, path_type=kind)],
        annotations=draw(annotated()),
        created=draw(st.sampled_from(("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"))),
        spec=draw(st.sampled_from(({}, {"tls": [{"hosts": [host or "a.example"], "secretName": "t"}]}))),
    )


def world(*manifests: Manifest) -> World:
    one = World()
    one.ask(*VIEWS)
    one.apply("alpha", m.namespace("shop"), m.service("shop/one"), m.service("shop/two"), PEOPLE, *manifests)
    assert not one.step().failures
    return one


@settings(max_examples=150, deadline=None)
@given(st.lists(ingresses(), min_size=1, max_size=4))
def test_gateways_take_what_they_are_told_and_know_all_it_names(some: list[Manifest]) -> None:
    one = world(*some)
    clusters = set(one.told(VIEWS[1]))
    for (where, name), resource in one.resources.items():
        if where != VIEWS[0].name:
            continue
        scope = protos.envoy.config.route.v3.ScopedRouteConfiguration.FromString(bytes(resource.body))
        assert scope.name == name
        acceptable(scope)
        (host,) = scope.route_configuration.virtual_hosts
        for route in host.routes:
            action = route.route
            named = {action.cluster, *(each.name for each in action.weighted_clusters.clusters)} - {""}
            assert named | {each.cluster for each in action.request_mirror_policies} <= clusters


@settings(max_examples=75, deadline=None)
@given(st.lists(ingresses(), min_size=1, max_size=4), annotated())
def test_annotations_of_an_ingress_change_no_byte_of_a_host_it_has_no_part_in(
    some: list[Manifest], more: dict[str, Any]
) -> None:
    neighbour = m.ingress("shop/neighbour", "neighbour.test", "one", annotations={"server-alias": "also.test"})
    one = world(neighbour)
    before = one.versions(VIEWS[0])
    one.apply("alpha", *some, m.ingress("shop/e", "e.example", "two", annotations=more))
    one.step()
    after = one.versions(VIEWS[0])
    assert {name: after[name] for name in before} == before


@settings(max_examples=200, deadline=None)
@given(annotated())
def test_every_value_that_is_refused_is_told_by_the_name_of_its_annotation(given_ones: dict[str, Any]) -> None:
    ingress = m.ingress("shop/a", "a.example", "one", annotations=given_ones)
    one = world(ingress)
    _, problems = settings_of(tuple(sorted(given_ones.items())))
    told = {(found.code, found.field) for found in one.findings()}
    assert {(each.code, f'metadata.annotations["{each.annotation}"]') for each in problems} <= told
    assert all(found.entry.cure for found in one.findings())


@given(annotated(hostile=False))
def test_values_that_mean_something_are_no_problem(given_ones: dict[str, Any]) -> None:
    _, problems = settings_of(tuple(sorted(given_ones.items())))
    # But for what says nothing without another.
    assert [each for each in problems if "/canary-" not in each.annotation] == []


def test_each_annotation_that_takes_part_here_is_one_that_is_read() -> None:
    for name, values in SOUND.items():
        for value in values:
            _, problems = settings_of(((f"isthmus.io/{name}", value),))
            assert [each for each in problems if each.code == "AnnotationUnknown"] == []
