"""Which requests an Ingress is for beside its paths, as annotations want it."""

from __future__ import annotations

import pytest

from aggregator.traffic.annotations.conditions import Condition, Conditions
from tests.kit.annotations import asked, left, told


def test_without_annotations_there_are_none() -> None:
    assert asked().conditions == Conditions()
    assert asked().conditions.count == 0


def test_methods_headers_and_parameters() -> None:
    found = asked(
        match_method="PUT GET PUT",
        match_header_exact_X_A="1",
        match_header_regex_x_b="[a-z]+",
        match_query_prefix_Q="v",
        ignore_path_case="true",
    ).conditions
    assert found == Conditions(
        ("GET", "PUT"),
        (Condition("x-a", "exact", "1"), Condition("x-b", "regex", "[a-z]+")),
        (Condition("Q", "prefix", "v"),),
        any_case=True,
    )
    assert found.count == 4


def test_conditions_are_the_same_in_any_order() -> None:
    one = asked(match_header_exact_a="1", match_header_prefix_b="2").conditions
    assert one == asked(match_header_prefix_b="2", match_header_exact_a="1").conditions


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("match_method", ""),
        ("match_method", "GET,POST"),
        ("match_method", " ".join(f"M{number}" for number in range(17))),
        ("match_header_regex_x", "("),
        ("match_header_regex_x", "(?=a)"),
        ("match_header_regex_x", ""),
        ("match_header_prefix_x", ""),
        ("match_header_exact_:path", "/"),
        ("match_query_exact_", "1"),
        ("match_query_regex_x", "a" * 600),
    ],
)
def test_a_condition_that_means_nothing_holds_for_no_request(name: str, value: str) -> None:
    assert left(**{name: value, "match_header_exact_ok": "1"}).conditions == Conditions(unknown=True)
    assert told(**{name: value}) == [("ConditionInvalid", name.replace("_", "-"))]


def test_there_are_so_many_conditions_and_no_more() -> None:
    some = {f"match_header_exact_h{number}": "1" for number in range(17)}
    assert left(**some).conditions.unknown
    some.popitem()
    assert asked(**some).conditions.count == 16
