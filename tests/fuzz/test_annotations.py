"""Whatever Ingresses say in annotations: it is understood, or told by name with a cure, and gateways take the rest."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st

from aggregator.findings import CATALOGUE
from aggregator.traffic.annotations.given import LONGEST, Given
from aggregator.traffic.annotations.refused import WITHOUT_EFFECT
from aggregator.traffic.annotations.settings import NO_SETTINGS, read, settings
from aggregator.views.ingress_gateway import view_of
from aggregator.views.view import View
from tests.kit import manifests as m
from tests.kit.acceptable import acceptable
from tests.kit.annotation_values import HOSTILE, NAMES, SOUND
from tests.kit.fuzzing import bounded, fuzz
from tests.kit.hostile import damaged
from tests.kit.world import World
from watchers.facts.networking import ANNOTATION_PREFIXES
from xds import protos
from xds.messages.scope import SCOPED_ROUTE_TYPE

pytestmark = pytest.mark.slow

VALUES = (
    HOSTILE
    | st.text(max_size=LONGEST + 10)
    | damaged(st.sampled_from([value.encode() for values in SOUND.values() for value in values])).map(
        lambda data: data.decode("utf-8", "replace")
    )
)
KEYS = st.tuples(st.sampled_from(ANNOTATION_PREFIXES), NAMES).map("".join)
ANNOTATIONS = st.dictionaries(KEYS, VALUES, max_size=12)

ALONE = (
    "permanent-redirect",
    "temporal-redirect",
    "app-root",
    "rewrite-target",
    "upstream-vhost",
    "x-forwarded-prefix",
    "request-header-control-add",
    "response-header-control-remove",
    "match-method",
    "match-header-regex-x",
    "match-query-prefix-q",
    "server-alias",
    "mirror-target-service",
    "destination",
    "timeout",
    "proxy-read-timeout",
    "proxy-next-upstream",
)
"""Annotations that change something whatever they say, if they say anything that has a meaning."""


def all_acceptable(world: World, view: View) -> None:
    """Fails if an Envoy would refuse a scope."""
    for (where, _), resource in world.resources.items():
        if where == view.name:
            acceptable(protos.envoy.config.route.v3.ScopedRouteConfiguration.FromString(bytes(resource.body)))


def test_any_annotations_are_settings_and_problems_that_name_them() -> None:
    def one(annotations: dict[str, str]) -> None:
        labels = tuple(sorted(annotations.items()))
        size = sum(len(key) + len(value) for key, value in labels)
        _, problems = bounded(lambda: settings(labels), size)
        for problem in problems:
            assert problem.annotation in annotations
            assert 0 < len(problem.detail) < 1000
            assert CATALOGUE[problem.code].cure
        told = {problem.annotation for problem in problems}
        given = Given(labels)
        read(given)
        assert {key for name, key in given.unread() if name not in WITHOUT_EFFECT} <= told

    fuzz(one, ANNOTATIONS, share=0.3)


def test_any_value_changes_something_or_is_told() -> None:
    def one(name: str, value: str) -> None:
        found, problems = bounded(lambda: settings(((f"higress.io/{name}", value),)))
        assert found != NO_SETTINGS or problems

    fuzz(one, st.sampled_from(ALONE), VALUES, share=0.2)


SNIPPET = b"""
more_set_headers "X-A: one" 'X-B: "two"'; # and more
add_header X-C 3 always; more_clear_headers Server; proxy_set_header X-D "4%";
if ($host = a) { return 403; }
return 301 https://to.example$request_uri;
"""


def test_gateways_take_what_any_snippet_makes_of_a_host() -> None:
    view = view_of(SCOPED_ROUTE_TYPE, lambda _: "")
    assert view is not None

    def one(text: str) -> None:
        world = World(ingress_snippets=True)
        world.ask(view)
        world.apply("alpha", m.ingress("shop/a", "a.example", "one", annotations={"configuration-snippet": text}))
        assert not bounded(world.step).failures
        all_acceptable(world, view)

    texts = damaged(st.just(SNIPPET)).map(lambda data: data.decode("utf-8", "replace"))
    fuzz(one, texts | st.text("a \n;{}'\"$#\\"), share=0.2)


def test_gateways_take_what_any_ingresses_make_of_their_hosts() -> None:
    view = view_of(SCOPED_ROUTE_TYPE, lambda _: "")
    assert view is not None

    def one(first: dict[str, Any], second: dict[str, Any], path: str, kind: str) -> None:
        world = World()
        world.ask(view)
        world.apply(
            "alpha",
            m.service("shop/one"),
            m.ingress("shop/a", "a.example", "one", annotations=first, path=path, path_type=kind),
            m.ingress("shop/b", "a.example", "two", annotations=second, path=path, path_type=kind),
        )
        assert not bounded(world.step).failures
        all_acceptable(world, view)

    paths = st.sampled_from(["/", "/x", "/re(/|$)(.*)", "/((a))", "/(?:a)(b)?"])
    kinds = st.sampled_from(["Prefix", "Exact", "ImplementationSpecific"])
    fuzz(one, ANNOTATIONS, ANNOTATIONS, paths, kinds, share=0.3)
