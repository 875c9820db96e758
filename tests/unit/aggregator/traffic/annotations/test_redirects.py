"""Redirects that annotations ask for."""

from __future__ import annotations

import pytest

from aggregator.traffic.annotations.redirects import Elsewhere, Redirects
from tests.kit.annotations import asked, left, told

LONG = "/" + "x" * 2000


def test_plain_http_goes_to_https_where_there_is_tls_unless_the_ingress_says_otherwise() -> None:
    assert asked().redirects == Redirects(to_https=True, forced=False)
    assert asked(ssl_redirect="false", force_ssl_redirect="True").redirects == Redirects(to_https=False, forced=True)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("https://to.example", Elsewhere(301, "https", "to.example", 0, "/")),
        ("http://To.Example:8080/a/b?c=d#e", Elsewhere(301, "http", "to.example", 8080, "/a/b?c=d#e")),
        ("/only/a/path", Elsewhere(301, path="/only/a/path")),
        ("https://to.example$request_uri", Elsewhere(301, "https", "to.example")),
        ("https://to.example/a/$request_uri", Elsewhere(301, "https", "to.example", before="/a")),
        ("/a$request_uri", Elsewhere(301, before="/a")),
        ("$scheme://to.example/x", Elsewhere(301, "", "to.example", 0, "/x")),
        ("https://$host:8443$request_uri", Elsewhere(301, "https", "", 8443)),
    ],
)
def test_where_a_redirect_leads(url: str, place: Elsewhere) -> None:
    assert asked(permanent_redirect=url).redirects.elsewhere == place


@pytest.mark.parametrize(
    "url",
    [
        "",
        "to.example",
        "ftp://to.example",
        "https://",
        "https:///x",
        "https://to_example",
        "https://to.example:99999",
        "https://to.example/a b",
        "https://to.example/\r\nx-a: b",
        "https://to.example/ä",
        "https://u:p@to.example/",
        "https://[::1]/",
        "$request_uri",
        "$scheme://$host$request_uri",
        "/a?b$request_uri",
        "https://to.example/$1",
        "https://$http_x/",
        LONG,
    ],
)
def test_what_is_no_url_redirects_nobody(url: str) -> None:
    assert left(permanent_redirect=url).redirects.elsewhere is None
    assert told(permanent_redirect=url) == [("AnnotationInvalid", "permanent-redirect")]


@pytest.mark.parametrize("code", ["301", "302", "303", "307", "308"])
def test_the_status_of_a_redirect(code: str) -> None:
    place = asked(temporal_redirect="/x", temporal_redirect_code=code).redirects.elsewhere
    assert place is not None
    assert place.status == int(code)


@pytest.mark.parametrize("code", ["200", "300", "304", "306", "309", "x", "", "3 01", "٣٠١"])
def test_a_status_that_redirects_nobody_is_that_of_the_default(code: str) -> None:
    place = left(temporal_redirect="/x", temporal_redirect_code=code).redirects.elsewhere
    assert place is not None
    assert place.status == 302


def test_a_temporal_redirect_goes_before_a_permanent_one_unless_it_means_nothing() -> None:
    both = asked(permanent_redirect="/a", temporal_redirect="/b").redirects
    assert both.elsewhere == Elsewhere(302, path="/b")
    one = left(permanent_redirect="/a", temporal_redirect="b").redirects
    assert one.elsewhere == Elsewhere(301, path="/a")


@pytest.mark.parametrize("path", ["/", "app", "//app", "/a b", "/\n", "https://a.example/", LONG])
def test_a_root_that_is_no_other_path_is_none(path: str) -> None:
    assert left(app_root=path).redirects.root == ""


def test_a_root_and_the_name_with_www() -> None:
    found = asked(app_root="/app?x=1", from_to_www_redirect="true").redirects
    assert (found.root, found.www) == ("/app?x=1", True)
