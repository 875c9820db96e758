"""Which pages of other origins may read answers, as annotations want it."""

from __future__ import annotations

import pytest

from tests.kit.annotations import asked, left, told


def test_without_annotations_and_without_being_enabled_no_page_is_told_anything() -> None:
    assert asked().cors is None
    assert asked(cors_allow_origin="https://a.example").cors is None


def test_all_origins_may_without_credentials() -> None:
    found = asked(enable_cors="true").cors
    assert found is not None
    assert (found.origins, found.credentials, found.max_age) == (("*",), False, 1728000)
    assert found.methods == "GET, PUT, POST, DELETE, PATCH, OPTIONS"


def test_credentials_for_all_origins_are_refused() -> None:
    assert told(enable_cors="true", cors_allow_credentials="true") == [("AnnotationInvalid", "cors-allow-credentials")]
    for origins in ("*", "https://a.example, *"):
        found = left(enable_cors="true", cors_allow_credentials="true", cors_allow_origin=origins).cors
        assert found is not None
        assert not found.credentials


def test_origins_that_are_listed_may_with_credentials_unless_the_ingress_says_otherwise() -> None:
    origins = "https://A.example, http://*.b.example:8080"
    found = asked(enable_cors="true", cors_allow_origin=origins).cors
    assert found is not None
    assert (found.origins, found.credentials) == (("https://a.example", "http://*.b.example:8080"), True)
    found = asked(enable_cors="true", cors_allow_origin=origins, cors_allow_credentials="false").cors
    assert found is not None
    assert not found.credentials


@pytest.mark.parametrize(
    "origins",
    [
        "",
        "a.example",
        "https://",
        "https://a.example/",
        "https://*",
        "https://a.*.example",
        "https://(a|b).example",
        "https://a.example:x",
        ",".join(f"https://a{number}.example" for number in range(65)),
    ],
)
def test_origins_that_are_none_are_told_and_get_no_credentials(origins: str) -> None:
    assert ("AnnotationInvalid", "cors-allow-origin") in told(enable_cors="true", cors_allow_origin=origins)
    found = left(enable_cors="true", cors_allow_origin=origins).cors
    assert found is not None
    assert not found.credentials


def test_lists_are_of_names() -> None:
    found = asked(enable_cors="true", cors_allow_methods="GET,PUT", cors_expose_headers="*, X-A", cors_max_age="0").cors
    assert found is not None
    assert (found.methods, found.exposed, found.max_age) == ("GET, PUT", "*, X-A", 0)
    assert told(enable_cors="true", cors_allow_headers="a\r\nb: c") == [("AnnotationInvalid", "cors-allow-headers")]
