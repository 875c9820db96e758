"""Time is an input: what asks whether a moment has passed is evaluated again when it has."""

from __future__ import annotations

import pytest

from aggregator.graph import Graph, Source
from tests.kit.toy_graph import run


class Deadlines:
    """Items that are late once their deadline has passed."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.source: Source[str, float] = self.graph.source("deadlines")
        self.late = self.graph.derive("late", self.source, lambda at, key, deadline: at.passed(deadline))
        self.graph.publish("late", self.late)


@pytest.fixture
def deadlines() -> Deadlines:
    return Deadlines()


def test_a_moment_has_passed_when_it_is_reached(deadlines: Deadlines) -> None:
    run(deadlines.graph, {deadlines.source: {"a": 5.0, "b": 5.5}}, now=5.0)
    assert deadlines.graph.values(deadlines.late) == {"a": True, "b": False}


def test_only_those_who_wait_for_a_moment_are_evaluated_when_it_comes(deadlines: Deadlines) -> None:
    run(deadlines.graph, {deadlines.source: {"a": 5.0, "b": 6.0, "c": 7.0}}, now=1.0)
    done = run(deadlines.graph, {}, now=6.5)
    assert done.published == {"late": {"a": True, "b": True}}
    assert done.evaluated == 2
    assert run(deadlines.graph, {}, now=6.6).evaluated == 0


def test_the_next_moment_is_the_first_that_somebody_waits_for(deadlines: Deadlines) -> None:
    assert deadlines.graph.next_moment() is None
    run(deadlines.graph, {deadlines.source: {"a": 5.0, "b": 6.0}}, now=1.0)
    assert deadlines.graph.next_moment() == 5.0
    run(deadlines.graph, {deadlines.source: {"a": None}})
    assert deadlines.graph.next_moment() == 6.0
    run(deadlines.graph, {}, now=6.0)
    assert deadlines.graph.next_moment() is None


def test_asking_for_the_next_moment_during_a_pass_loses_none(deadlines: Deadlines) -> None:
    run(deadlines.graph, {deadlines.source: {"a": 5.0}}, now=1.0)
    deadlines.graph.begin({}, now=6.0)
    deadlines.graph.next_moment()
    done = deadlines.graph.run()
    assert done is not None
    assert done.published == {"late": {"a": True}}


def test_time_does_not_run_backwards(deadlines: Deadlines) -> None:
    run(deadlines.graph, {deadlines.source: {"a": 5.0}}, now=6.0)
    assert run(deadlines.graph, {deadlines.source: {"b": 5.0}}, now=4.0).published == {"late": {"b": True}}
    assert deadlines.graph.now == 6.0


def test_a_pass_without_time_keeps_the_time_there_was(deadlines: Deadlines) -> None:
    run(deadlines.graph, {}, now=6.0)
    assert run(deadlines.graph, {deadlines.source: {"a": 5.0}}).published == {"late": {"a": True}}


def test_asking_why_wakes_nobody(deadlines: Deadlines) -> None:
    run(deadlines.graph, {deadlines.source: {"a": 5.0}}, now=1.0)
    before = list(deadlines.graph.moments)
    deadlines.graph.why(deadlines.late, "a")
    assert deadlines.graph.moments == before


def test_moments_nobody_waits_for_any_more_do_not_pile_up(deadlines: Deadlines) -> None:
    run(deadlines.graph, {deadlines.source: {"a": 1e9}}, now=1.0)
    for i in range(1_000):
        run(deadlines.graph, {deadlines.source: {"b": 1e9 + i}})
        run(deadlines.graph, {deadlines.source: {"b": None}})
    assert len(deadlines.graph.moments) < 30
    assert deadlines.graph.next_moment() == 1e9


def test_a_moment_is_kept_however_often_its_reader_comes_and_goes(deadlines: Deadlines) -> None:
    for _ in range(100):
        run(deadlines.graph, {deadlines.source: {"a": 5.0}}, now=1.0)
        run(deadlines.graph, {deadlines.source: {"a": None}})
    run(deadlines.graph, {deadlines.source: {"a": 5.0}})
    assert run(deadlines.graph, {}, now=5.0).published == {"late": {"a": True}}
