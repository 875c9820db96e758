"""What a backend sees of requests, as annotations want it."""

from __future__ import annotations

import pytest

from aggregator.traffic.annotations.rewrites import host_of, replacement
from tests.kit.annotations import asked, left, told


@pytest.mark.parametrize("path", ["/", "/new", "/$1", "/$2", "$1", "/a/$1/b$2", "/a%20b/\\1"])
def test_a_path_that_takes_the_place_of_another(path: str) -> None:
    found = asked(rewrite_target=path)
    assert found.rewrites.path == path
    assert found.matching.regex


@pytest.mark.parametrize(
    "path", ["", "new", "/a?b", "/a#b", "/$0", "/$x", "/a$", "/a b", "/ä", "https://a.example/", "/" * 2000]
)
def test_what_is_no_path_takes_the_place_of_none(path: str) -> None:
    found = left(rewrite_target=path)
    assert found.rewrites.path == ""
    assert not found.matching.regex
    assert told(rewrite_target=path) == [("AnnotationInvalid", "rewrite-target")]


def test_paths_that_are_rewritten_are_regular_expressions_unless_the_ingress_says_otherwise() -> None:
    assert not asked(rewrite_target="/", use_regex="false").matching.regex
    assert asked(use_regex="true").matching.regex


@pytest.mark.parametrize(
    ("path", "groups", "written"),
    [
        ("/$2", 2, r"/\2"),
        ("/$2", 1, "/"),
        ("/$1$3x", 3, r"/\1\3x"),
        (r"/\1\x", 1, r"/\\1\\x"),
        ("/plain", 0, "/plain"),
    ],
)
def test_a_replacement_names_groups_that_there_are_and_nothing_else(path: str, groups: int, written: str) -> None:
    assert replacement(path, groups) == written


@pytest.mark.parametrize("host", ["a.example", "a.example:8080", "$service_name.$namespace.svc:$service_port"])
def test_the_host_a_backend_sees(host: str) -> None:
    assert asked(upstream_vhost=host).rewrites.host == host


def test_the_host_is_made_of_the_backends_own() -> None:
    assert host_of("$service_name.$namespace.svc:$service_port", "shop", "web", "80") == "web.shop.svc:80"


@pytest.mark.parametrize(
    "host", ["", "a_b", "a.example:", "a.example:x", "a b", "$host", "$service_name_x", "a.example/x", "%HOST%"]
)
def test_what_is_no_host_is_not_seen(host: str) -> None:
    assert left(upstream_vhost=host).rewrites.host == ""


def test_the_prefix_that_was_cut_off() -> None:
    assert asked(x_forwarded_prefix="/foo").rewrites.prefix == "/foo"
    assert left(x_forwarded_prefix="").rewrites.prefix == ""
    assert told(x_forwarded_prefix="/a\nb") == [("AnnotationInvalid", "x-forwarded-prefix")]
