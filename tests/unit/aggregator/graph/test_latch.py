"""The latch: the last good value stands in for a withheld one, for as long as the object behind it exists."""

from __future__ import annotations

import pytest

from aggregator.graph import At, Graph, Outcome, Source, Withheld
from tests.kit.toy_graph import run


class Certificates:
    """Certificates derived from secrets, unless they are bad; latched, and published twice: as served and as kept."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.secrets: Source[str, str] = self.graph.source("secrets")
        self.trusted: Source[str, bool] = self.graph.source("trusted")
        self.good = self.graph.derive("good", self.secrets, self._good)
        self.latch = self.graph.latch("last good", self.good)
        self.graph.publish("served", self.latch)
        self.kept = self.graph.kept(self.latch)

    def _good(self, at: At, key: str, text: str) -> Outcome[str]:
        if text == "broken":
            raise ValueError(text)
        return Withheld("Bad") if text == "bad" or at.get(self.trusted, key) is False else text


@pytest.fixture
def certificates() -> Certificates:
    return Certificates()


def test_a_good_value_passes_and_is_kept(certificates: Certificates) -> None:
    done = run(certificates.graph, {certificates.secrets: {"a": "one"}})
    assert done.published == {"served": {"a": "one"}, "last good": {"a": "one"}}


@pytest.mark.parametrize("bad", ["bad", "broken"])
def test_the_last_good_value_stands_in(certificates: Certificates, bad: str) -> None:
    run(certificates.graph, {certificates.secrets: {"a": "one"}})
    assert run(certificates.graph, {certificates.secrets: {"a": bad}}).published == {}
    assert certificates.graph.values(certificates.latch) == {"a": "one"}
    assert run(certificates.graph, {certificates.secrets: {"a": "two"}}).published == {
        "served": {"a": "two"},
        "last good": {"a": "two"},
    }


def test_it_stands_in_as_well_when_only_what_was_read_has_changed(certificates: Certificates) -> None:
    run(certificates.graph, {certificates.secrets: {"a": "one"}})
    run(certificates.graph, {certificates.trusted: {"a": False}})
    assert certificates.graph.values(certificates.latch) == {"a": "one"}


def test_what_never_was_good_is_not_served(certificates: Certificates) -> None:
    assert run(certificates.graph, {certificates.secrets: {"a": "bad"}}).published == {}


def test_an_object_that_goes_takes_its_last_good_value_along(certificates: Certificates) -> None:
    run(certificates.graph, {certificates.secrets: {"a": "one"}})
    run(certificates.graph, {certificates.secrets: {"a": "bad"}})
    done = run(certificates.graph, {certificates.secrets: {"a": None}})
    assert done.published == {"served": {"a": None}, "last good": {"a": None}}
    run(certificates.graph, {certificates.secrets: {"a": "bad"}})
    assert certificates.graph.values(certificates.latch) == {}


def test_what_was_kept_is_restored_at_the_start(certificates: Certificates) -> None:
    run(certificates.graph, {certificates.kept: {"a": "one"}, certificates.secrets: {"a": "bad"}})
    assert certificates.graph.values(certificates.latch) == {"a": "one"}


def test_what_was_kept_waits_for_its_object(certificates: Certificates) -> None:
    done = run(certificates.graph, {certificates.kept: {"a": "one"}})
    assert done.published == {"last good": {"a": "one"}}
    assert certificates.graph.values(certificates.latch) == {}
    assert run(certificates.graph, {certificates.secrets: {"a": "bad"}}).published == {"served": {"a": "one"}}


def test_a_good_value_comes_before_what_was_kept(certificates: Certificates) -> None:
    run(certificates.graph, {certificates.kept: {"a": "one"}, certificates.secrets: {"a": "two"}})
    assert certificates.graph.values(certificates.kept) == {"a": "two"}


def test_what_was_kept_can_be_taken_back_from_outside(certificates: Certificates) -> None:
    run(certificates.graph, {certificates.kept: {"a": "one"}, certificates.secrets: {"a": "bad"}})
    done = run(certificates.graph, {certificates.kept: {"a": None}})
    assert done.published == {"served": {"a": None}, "last good": {"a": None}}


def test_what_is_kept_can_be_read_like_any_other_source() -> None:
    graph = Graph()
    secrets: Source[str, str] = graph.source("secrets")
    good = graph.derive("good", secrets, lambda at, key, text: Withheld("Bad") if text == "bad" else text)
    latch = graph.latch("last good", good)
    kept = graph.kept(latch)
    seen = graph.derive("seen", secrets, lambda at, key, text: (text, at.get(kept, key)))
    run(graph, {secrets: {"a": "one"}})
    run(graph, {secrets: {"a": "bad"}})
    assert graph.values(seen) == {"a": ("bad", "one")}
