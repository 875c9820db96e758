"""Annotations about TLS: what they ask for, and that a slip in a demand lets nobody in."""

from __future__ import annotations

import pytest

from aggregator.traffic.annotations.connections import DEFAULT
from aggregator.traffic.annotations.given import Given, Problem
from aggregator.traffic.annotations.settings import settings
from aggregator.traffic.annotations.tls import CLOSED, NO_TLS_SETTINGS, Tls, TlsSettings, tls

PREFIX = "nginx.ingress.kubernetes.io/"


def read(**annotations: str) -> tuple[Tls, list[Problem]]:
    given = Given(tuple((f"{PREFIX}{name.replace('_', '-')}", value) for name, value in sorted(annotations.items())))
    return tls(given), given.problems


def test_an_ingress_that_says_nothing_asks_for_nothing() -> None:
    found, problems = read()
    assert found is NO_TLS_SETTINGS
    assert problems == []


def test_certificates_of_clients_are_required_unless_they_are_optional_or_off() -> None:
    assert read(auth_tls_secret="a/ca")[0].settings == TlsSettings("a/ca", "on", 1)
    assert read(auth_tls_secret="ca", auth_tls_verify_client="optional")[0].settings.verify == "optional"
    found, problems = read(auth_tls_secret="ca", auth_tls_verify_client="off", auth_tls_match_cn="CN=x")
    assert (found, problems) == (NO_TLS_SETTINGS, [])


def test_equal_settings_are_equal_however_they_are_written() -> None:
    one = read(auth_tls_secret="a/ca", auth_tls_match_cn="CN=(b|a)", ssl_ciphers="AES128-SHA:AES256-SHA")[0]
    two = read(auth_tls_secret="a/ca", auth_tls_match_cn="CN=a|b|a", ssl_ciphers="AES128-SHA, AES256-SHA:AES128-SHA")[0]
    assert one == two


@pytest.mark.parametrize(
    "annotations",
    [
        {"auth_tls_secret": "a/b/c"},
        {"auth_tls_secret": "A/ca"},
        {"auth_tls_secret": "a/"},
        {"auth_tls_secret": ""},
        {"auth_tls_secret": "a/ca", "auth_tls_verify_client": "yes"},
        {"auth_tls_secret": "a/ca", "auth_tls_verify_depth": "0"},
        {"auth_tls_secret": "a/ca", "auth_tls_match_cn": "CN=.*"},
        {"auth_tls_secret": "a/ca", "auth_tls_match_cn": "CN=a,O=b"},
        {"auth_tls_secret": "a/ca", "auth_tls_match_cn": "CN=(|a)"},
        {"auth_tls_secret": "a/ca", "auth_tls_match_cn": "CN=\\d"},
        {"auth_tls_secret": "a/ca", "auth_tls_match_cn": f"CN={'|'.join(f'n{number}' for number in range(33))}"},
        {"auth_tls_verify_client": "on"},
        {"auth_tls_match_cn": "CN=a"},
    ],
)
def test_a_demand_that_cannot_be_read_closes_the_host_and_is_told_of(annotations: dict[str, str]) -> None:
    found, problems = read(**annotations)
    assert found == CLOSED
    assert problems
    assert {one.code for one in problems} == {"AnnotationInvalid"}


@pytest.mark.parametrize(
    ("annotations", "found"),
    [
        ({"ssl_ciphers": "NO-SUCH"}, NO_TLS_SETTINGS),
        ({"tls_min_protocol_version": "TLSv1.4"}, NO_TLS_SETTINGS),
        ({"tls_chain": "dynamic"}, NO_TLS_SETTINGS),
        ({"ssl_passthrough": "yes"}, NO_TLS_SETTINGS),
        ({"tls_max_protocol_version": "TLSv1.1"}, NO_TLS_SETTINGS),
        (
            {"tls_min_protocol_version": "TLSv1.3", "tls_max_protocol_version": "TLSv1.2"},
            Tls(TlsSettings(least="TLSv1.3")),
        ),
    ],
)
def test_a_wish_that_cannot_be_read_is_left_out_and_told_of(annotations: dict[str, str], found: Tls) -> None:
    assert read(**annotations)[0] == found
    assert len(read(**annotations)[1]) == 1


def test_of_ciphers_those_that_gateways_know_are_taken() -> None:
    assert read(ssl_ciphers="DHE-RSA-AES128-SHA:AES128-SHA")[0].settings.ciphers == ("AES128-SHA",)


def test_dots_of_common_names_are_dots() -> None:
    assert read(auth_tls_secret="ca", auth_tls_match_cn=r"CN=^a\.example$")[0].settings.names == ("a.example",)


def test_what_is_passed_through_is_not_spoken_to_and_other_tls_settings_are_told_to_have_no_effect() -> None:
    asked = ((f"{PREFIX}backend-protocol", "HTTPS"), (f"{PREFIX}ssl-passthrough", "true"))
    found, problems = settings(asked)
    assert (found.connections, found.tls, problems) == (DEFAULT, Tls(passthrough=True), ())
    assert read(ssl_passthrough="true", auth_tls_secret="ca")[1][0].annotation == f"{PREFIX}ssl-passthrough"
