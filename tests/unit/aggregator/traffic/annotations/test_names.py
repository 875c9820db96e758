"""Other names of hosts, as annotations want them."""

from __future__ import annotations

import pytest

from aggregator.traffic.annotations.names import OtherName, wanted
from tests.kit.annotations import asked, left


def test_further_names() -> None:
    assert asked(server_alias="A.example, b.example.,a.example").names == ("a.example", "b.example")


@pytest.mark.parametrize(
    "names", ["", "*.example", "~^x", "a_b", "a.example b.example", ",".join(f"a{n}" for n in range(65))]
)
def test_what_are_no_names_are_none(names: str) -> None:
    assert left(server_alias=names).names == ()


def test_further_names_are_for_the_first_host_that_is_one() -> None:
    found = wanted(["", "*.example", "a.example", "b.example"], ("c.example", "b.example"), www=False)
    assert found == {"c.example": OtherName("a.example")}


NAMES = {"www.a.example": "a.example", "b.example": "www.b.example"}


def test_the_name_with_or_without_www_is_sent_to_each_host() -> None:
    found = wanted(["a.example", "www.b.example"], (), www=True)
    assert found == {name: OtherName(host, sent=True) for name, host in NAMES.items()}
    assert wanted(["a.example", "www.a.example", "www.com", "*.example"], (), www=True) == {}


def test_without_a_host_there_is_no_other_name() -> None:
    assert wanted(["", "*.example"], ("a.example",), www=True) == {}
