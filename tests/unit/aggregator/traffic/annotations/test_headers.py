"""Headers that annotations change."""

from __future__ import annotations

import pytest

from aggregator.traffic.annotations.headers import NONE, Changes
from tests.kit.annotations import asked, left


def test_lines_of_names_and_values() -> None:
    found = asked(
        request_header_control_add='X-A one two\n\n  x-b  "three 3"  ',
        request_header_control_update="x-c '%REQ(x)%'",
        request_header_control_remove="X-D, x-e",
        response_header_control_update="x-f",
    ).headers
    assert found.request == Changes(("x-d", "x-e"), (("x-a", "one two"), ("x-b", "three 3")), (("x-c", "%REQ(x)%"),))
    assert found.response == Changes(put=(("x-f", ""),))


@pytest.mark.parametrize(
    "name",
    [
        ":path",
        "Host",
        "content-length",
        "transfer-encoding",
        "connection",
        "te",
        "upgrade",
        "x-envoy-retry-on",
        "x-isthmus-class",
        "a:b",
        "ä",
        "x" * 200,
    ],
)
def test_what_belongs_to_connections_and_proxies_is_not_changed(name: str) -> None:
    for action in ("add", "update"):
        assert left(**{f"request_header_control_{action}": f"x-a 1\n{name} 2"}).headers.request == NONE
    assert left(response_header_control_remove=f"x-a, {name}").headers.response == NONE


@pytest.mark.parametrize("value", ["", " \n ", "x-a a\x00b", "x-a \u00e4", "x-a " + "y" * 2000])
def test_what_is_no_header_changes_none(value: str) -> None:
    assert left(response_header_control_add=value).headers.response == NONE


def test_an_annotation_names_so_many_headers_and_no_more() -> None:
    lines = [f"x-{number} 1" for number in range(65)]
    assert len(asked(request_header_control_add="\n".join(lines[:64])).headers.request.added) == 64
    assert left(request_header_control_add="\n".join(lines)).headers.request == NONE
