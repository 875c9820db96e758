"""What is understood of snippets of nginx where they are let, and that nothing else of them counts."""

from __future__ import annotations

import pytest

from aggregator.traffic.annotations.headers import NONE, Changes
from aggregator.traffic.annotations.redirects import Elsewhere
from aggregator.traffic.annotations.settings import NO_SETTINGS, Settings, settings

KEY = "nginx.ingress.kubernetes.io/configuration-snippet"


def read(text: str) -> Settings:
    """The settings of an Ingress with a snippet of which all is understood."""
    found, problems = settings(((KEY, text),), snippets=True)
    assert problems == ()
    return found


def refused(text: str) -> tuple[Settings, list[str]]:
    """What is left of a snippet, and the directives that are told."""
    found, problems = settings(((KEY, text),), snippets=True)
    assert {(one.code, one.annotation) for one in problems} == {("AnnotationUnsupported", KEY)}
    return found, [one.detail.split("'")[1] for one in problems]


def test_unless_they_are_let_snippets_are_told_and_mean_nothing() -> None:
    found, (problem,) = settings(((KEY, "return 403;"),))
    assert found == NO_SETTINGS
    assert (problem.code, problem.annotation) == ("AnnotationUnsupported", KEY)


def test_headers_of_answers() -> None:
    found = read(
        'more_set_headers "X-A: one two" \'X-B: "3"\';\n'
        "# a comment; more_set_headers x;\n"
        "add_header X-C 4 always; add_header x-d '5;6';\n"
        'more_clear_headers Server; more_set_headers "X-E:";'
    ).headers
    assert found.request == NONE
    assert found.response == Changes(
        ("server", "x-e"), (("x-c", "4"), ("x-d", "5;6")), (("x-a", "one two"), ("x-b", '"3"'))
    )


def test_headers_of_requests() -> None:
    found = read('proxy_set_header X-A "one two"; proxy_set_header X-B ""; more_set_input_headers "x-c: 3";').headers
    assert found.request == Changes(("x-b",), (), (("x-a", "one two"), ("x-c", "3")))


def test_what_is_answered_in_place_of_a_backend() -> None:
    assert read("return 403;").answer == 403
    assert read("return 403; return 404;").answer == 403
    place = Elsewhere(308, "https", "to.example")
    assert read("return 308 https://to.example$request_uri;").redirects.elsewhere == place


def test_a_snippet_adds_to_what_other_annotations_say() -> None:
    labels = ((KEY, "add_header x-b 2;"), ("higress.io/response-header-control-add", "x-a 1"))
    found, problems = settings(labels, snippets=True)
    assert (found.headers.response.added, problems) == ((("x-a", "1"), ("x-b", "2")), ())


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("lua_code x;", ["lua_code"]),
        ("if ($host = x) { return 403; }", ["a block of if"]),
        ("location / { proxy_pass http://x; add_header a b; }", ["a block of location"]),
        ("proxy_set_header X-A $remote_addr;", ["proxy_set_header"]),
        ("proxy_set_header Host x;", ["proxy_set_header"]),
        ("proxy_set_header x-isthmus-host x;", ["proxy_set_header"]),
        ("more_set_headers -s 404 'X-A: 1';", ["more_set_headers"]),
        ("more_set_headers;", ["more_set_headers"]),
        ("add_header x-a;", ["add_header"]),
        ('return 200 "text";', ["return"]),
        ("return;", ["return"]),
        ("return 301;", ["return"]),
        ("return 999;", ["return"]),
        ("return 301 $scheme;", ["return"]),
        ("}", ["}"]),
        ('add_header "x', ["..."]),
        ("{}", []),
    ],
)
def test_what_is_not_understood_is_told_and_left_out(text: str, named: list[str]) -> None:
    if named:
        assert refused(text) == (NO_SETTINGS, named)
    else:
        assert read(text) == NO_SETTINGS


def test_a_directive_that_is_refused_costs_no_other() -> None:
    found, named = refused("set $x 1; add_header x-a 1; proxy_pass http://x; return 404;")
    assert named == ["set", "proxy_pass"]
    assert (found.headers.response.added, found.answer) == ((("x-a", "1"),), 404)


def test_there_are_so_many_directives_and_no_more() -> None:
    found, named = refused("add_header x-a 1;" * 70)
    assert len(found.headers.response.added) == 64
    assert named == ["add_header"]
