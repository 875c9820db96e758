from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.app import setting_values as values
from aggregator.app.setting_values import Address, ClusterSource, ObjectName, ServiceAccount, ValueProblem
from watchers.facts import keys

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0.0.0.0:15012", Address("0.0.0.0", 15012)),
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        ("localhost:80", Address("localhost", 80)),
        ("[::1]:8080", Address("::1", 8080)),
        ("[0:0::1]:1", Address("::1", 1)),
    ],
)
def test_an_address_is_an_ip_and_a_port(text: str, address: Address) -> None:
    assert values.address(text) == address


@pytest.mark.parametrize(
    "text", ["::1:80", "15012", "host", "1.2.3.4:", "1.2.3.4:65536", "1.2.3.4:-1", "a.b:80", ":80"]
)
def test_what_is_no_address_says_how_to_write_one(text: str) -> None:
    with pytest.raises(ValueProblem, match=r"write IP:PORT"):
        values.address(text)


def test_a_port_of_very_many_digits_is_refused_like_any_other() -> None:
    with pytest.raises(ValueProblem, match="no port between"):
        values.address("1.2.3.4:" + "9" * 10_000)


@given(st.ip_addresses(), st.integers(0, 65535))
def test_an_address_is_read_back_from_its_text(ip: object, port: int) -> None:
    address = Address(str(ip), port)
    assert values.address(str(address)) == address


@pytest.mark.parametrize("text", ["127.0.0.1:1", "127.8.8.8:1", "[::1]:1", "localhost:1"])
def test_loopback_addresses_are_those_of_this_machine(text: str) -> None:
    assert values.loopback_address(text).loopback


@pytest.mark.parametrize("text", ["0.0.0.0:1", "10.0.0.1:1", "[::]:1"])
def test_an_address_others_can_reach_is_refused_where_nobody_is_asked_who_he_is(text: str) -> None:
    with pytest.raises(ValueProblem, match="write a loopback address"):
        values.loopback_address(text)


def test_a_cluster_source_is_split_at_the_first_equals_sign() -> None:
    assert values.cluster_source("west=/data/a=b") == ClusterSource("west", Path("/data/a=b"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("west", "has no '='"),
        ("=dir", "is no cluster name"),
        ("we/st=dir", "is no cluster name"),
        ("-west=dir", "is no cluster name"),
        (f"{'w' * 64}=dir", "is no cluster name"),
        ("west=", "has no source"),
        ("west=https://10.0.0.1:6443", "is a URL, which says nothing of credentials"),
    ],
)
def test_a_cluster_source_that_cannot_be_used_says_why(text: str, problem: str) -> None:
    with pytest.raises(ValueProblem, match=problem):
        values.cluster_source(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30.0), ("500ms", 0.5), ("5m", 300.0), ("1m30s", 90.0), ("2h", 7200.0), ("0s", 0.0), ("1.5s", 1.5)],
)
def test_a_duration_is_numbers_with_units(text: str, seconds: float) -> None:
    assert values.duration(text) == seconds


@pytest.mark.parametrize("text", ["30", "", "5 m", "-5s", "s", "1d", "5parsecs"])
def test_a_number_without_a_known_unit_is_no_duration(text: str) -> None:
    with pytest.raises(ValueProblem, match="such as 500ms, 30s or 5m"):
        values.duration(text)


@given(st.integers(0, 10**9))
def test_a_duration_is_read_back_from_its_text(milliseconds: int) -> None:
    seconds = milliseconds / 1000
    assert values.duration(values.show_duration(seconds)) == pytest.approx(seconds)


def test_a_duration_is_shown_in_the_largest_whole_unit() -> None:
    shown = [values.show_duration(seconds) for seconds in (0.0, 0.5, 30.0, 90.0, 300.0, 7200.0)]
    assert shown == ["0s", "500ms", "30s", "90s", "5m", "2h"]


@pytest.mark.parametrize(
    ("parse", "good"),
    [
        (values.namespace, "istio-system"),
        (values.revision, "1-30.Canary_2"),
        (values.trust_domain, "td_1.example"),
        (values.domain, "cluster.local"),
        (values.certificate_name, "istiod.istio-system.svc"),
        (values.certificate_name, "*.example.com"),
        (values.certificate_name, "10.0.0.5"),
        (values.certificate_name, "::1"),
        (values.one_of("text", "json"), "json"),
    ],
)
def test_a_good_name_is_taken_as_it_is(parse: Callable[[str], str], good: str) -> None:
    assert parse(good) == good


@pytest.mark.parametrize(
    ("parse", "bad"),
    [
        (values.namespace, "Istio"),
        (values.namespace, "a.b"),
        (values.namespace, "n" * 64),
        (values.revision, "a/b"),
        (values.revision, "-a"),
        (values.revision, "n" * 64),
        (values.trust_domain, "Cluster.Local"),
        (values.trust_domain, ""),
        (values.trust_domain, "td-"),
        (values.trust_domain, "spiffe://td"),
        (values.domain, ".local"),
        (values.domain, "cluster.local."),
        (values.certificate_name, "a b"),
        (values.certificate_name, "a.*.b"),
        (values.certificate_name, ""),
        (values.service_account, "ztunnel"),
        (values.service_account, "istio-system/"),
        (values.service_account, "a/b/c"),
        (values.object_name, "gateway"),
        (values.object_name, "istio-system/Gateway"),
        (values.published_address, "*.example.com"),
        (values.published_address, "192.0.2.1:80"),
        (values.rate, "0"),
        (values.rate, "-1"),
        (values.rate, "fast"),
        (values.rate, "1e9"),
        (values.one_of("text", "json"), "xml"),
    ],
)
def test_a_name_of_the_wrong_form_is_refused_with_a_cure(parse: Callable[[str], object], bad: str) -> None:
    with pytest.raises(ValueProblem) as refused:
        parse(bad)
    assert refused.value.cure.startswith(("use ", "write "))


def test_names_in_certificates_are_lower_case() -> None:
    assert values.certificate_name("Istiod.SVC") == "istiod.svc"


def test_an_object_is_namespace_and_name() -> None:
    assert values.object_name("istio-system/gateway.v2") == ObjectName("istio-system", "gateway.v2")


def test_a_published_address_is_an_ip_address_or_a_name() -> None:
    given = ("LB.example.com", "192.0.2.1", "2001:DB8::1")
    assert [values.published_address(one) for one in given] == ["lb.example.com", "192.0.2.1", "2001:db8::1"]


def test_a_rate_is_read_back_from_its_text() -> None:
    assert [values.show_rate(values.rate(text)) for text in ("20", "0.5", "100000")] == ["20", "0.5", "100000"]


def test_a_service_account_is_namespace_and_name() -> None:
    assert values.service_account("istio-system/ztunnel") == ServiceAccount("istio-system", "ztunnel")


@given(st.integers(1, 1 << 40))
def test_every_size_is_read_back_as_it_was_shown(size: int) -> None:
    shown = values.show_size(size)
    assert len(shown) <= len(str(size)) + 2
    if len(shown.rstrip("KMGi")) < 10:
        assert values.size(shown) == size


def test_sizes_are_written_as_kubernetes_writes_them() -> None:
    assert [values.show_size(size) for size in (1000, 1 << 10, 16 << 20, 3 << 30)] == ["1000", "1Ki", "16Mi", "3Gi"]
    assert values.size("1500") == 1500


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5Mi", "16M", "16 Mi", "16mi", "Mi", "1" * 20])
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueProblem, match="16Mi"):
        values.size(text)


@pytest.mark.parametrize("text", ["", "0", "-1", "1e3", "01", "1_000", "٣", "1" * 20])
def test_what_is_no_count_is_refused(text: str) -> None:
    with pytest.raises(ValueProblem, match="digits only"):
        values.count(text)


@pytest.mark.parametrize("text", ["td", "td-1.x_y", "td-", "-td", "a" * 255, "a" * 256, "Td", "td/x", "td\n", "é"])
def test_a_trust_domain_is_one_exactly_if_it_is_one_in_the_mesh_configuration(text: str) -> None:
    def accepted(read: Callable[[str], str]) -> bool:
        try:
            return bool(read(text))
        except ValueError:
            return False

    assert accepted(values.trust_domain) == accepted(keys.trust_domain)
