"""What annotations say of canaries."""

from __future__ import annotations

import pytest

from aggregator.traffic.annotations.canary import Canary
from tests.kit.annotations import asked, left, told


def test_an_ingress_is_a_canary_only_if_it_says_so() -> None:
    assert asked(canary_weight="20").canary is None
    assert asked(canary="false", canary_by_header="X-A").canary is None
    assert asked(canary="true").canary == Canary()


def test_what_leads_to_a_canary() -> None:
    weight = {"canary_weight": "3", "canary_weight_total": "7"}
    found = asked(canary="true", canary_by_header="X-A", canary_by_cookie="c", **weight).canary
    assert found == Canary(header="x-a", cookie="c", weight=3, total=7)


def test_a_value_goes_before_a_pattern() -> None:
    found = asked(canary="true", canary_by_header="x", canary_by_header_value="v", canary_by_header_pattern="p").canary
    assert found == Canary(header="x", value="v")
    found = asked(canary="true", canary_by_header="x", canary_by_header_pattern="p+").canary
    assert found == Canary(header="x", pattern="p+")


@pytest.mark.parametrize(("what", "value"), [("pattern", "("), ("pattern", ""), ("value", ""), ("value", "a\nb")])
def test_a_value_or_pattern_that_means_nothing_leads_nobody_to_the_canary(what: str, value: str) -> None:
    found = left(canary="true", canary_by_header="x", canary_weight="5", **{f"canary_by_header_{what}": value}).canary
    assert found == Canary(weight=5)


def test_a_value_without_a_header_says_nothing_and_is_told() -> None:
    assert told(canary="true", canary_by_header_value="v") == [("AnnotationInvalid", "canary-by-header-value")]


@pytest.mark.parametrize("weight", ["101", "-1", "x", "", "1.5", "10001"])
def test_a_weight_that_is_no_share_is_none(weight: str) -> None:
    assert left(canary="true", canary_weight=weight).canary == Canary()


def test_a_weight_is_a_share_of_the_total() -> None:
    assert asked(canary="true", canary_weight="101", canary_weight_total="200").canary == Canary(weight=101, total=200)
    assert told(canary="true", canary_weight="5", canary_weight_total="4") == [("AnnotationInvalid", "canary-weight")]


@pytest.mark.parametrize("name", ["a b", "a;b", "a=b", "", "a,b", "ä", "x" * 200])
def test_a_cookie_has_a_name(name: str) -> None:
    assert left(canary="true", canary_by_cookie=name).canary == Canary()
