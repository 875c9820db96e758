"""Passes and slices: one revision at the end, whatever the slices; what is published, and under which name."""

from __future__ import annotations

import pytest

from aggregator.graph import At, Graph, GraphError, Pass, Source, Withheld
from aggregator.graph.engine import Failure
from tests.kit.toy_graph import run


class Doubles:
    """Numbers, doubled twice."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.numbers: Source[int, int] = self.graph.source("numbers")
        self.doubles = self.graph.derive("doubles", self.numbers, self._double)
        self.graph.publish("doubles", self.doubles)
        self.graph.publish("fours", self.graph.derive("fours", self.doubles, self._double))

    @staticmethod
    def _double(at: At, key: int, number: int) -> int:
        if number == 13:
            raise GraphError("a broken rule")
        return 2 * number


@pytest.fixture
def doubles() -> Doubles:
    return Doubles()


def test_a_pass_is_handed_out_only_when_everything_has_settled(doubles: Doubles) -> None:
    doubles.graph.begin({doubles.numbers: dict.fromkeys(range(10), 1)})
    slices: list[Pass | None] = []
    while not slices or slices[-1] is None:
        slices.append(doubles.graph.run(3))
    assert len(slices) > 5
    assert slices[-1] == Pass({"doubles": dict.fromkeys(range(10), 2), "fours": dict.fromkeys(range(10), 4)}, 20)


def test_a_slice_does_at_most_so_many_evaluations(doubles: Doubles) -> None:
    doubles.graph.begin({doubles.numbers: dict.fromkeys(range(50), 1)})
    done = None
    while done is None:
        before = sum(doubles.graph.evaluated_by)
        done = doubles.graph.run(7)
        assert sum(doubles.graph.evaluated_by) - before <= 7


def test_a_pass_is_under_way_from_begin_until_it_is_handed_out(doubles: Doubles) -> None:
    assert not doubles.graph.under_way
    doubles.graph.begin({doubles.numbers: {1: 1}})
    states = [doubles.graph.under_way]
    assert doubles.graph.run(1) is None
    states.append(doubles.graph.under_way)
    assert doubles.graph.run() is not None
    states.append(doubles.graph.under_way)
    assert states == [True, True, False]


def test_no_pass_begins_during_another(doubles: Doubles) -> None:
    doubles.graph.begin({doubles.numbers: {1: 1}})
    doubles.graph.run(1)
    with pytest.raises(GraphError, match="under way"):
        doubles.graph.begin({doubles.numbers: {1: 2}})
    done = doubles.graph.run()
    assert done is not None
    assert done.published["fours"] == {1: 4}


def test_there_is_nothing_to_run_between_passes(doubles: Doubles) -> None:
    with pytest.raises(GraphError, match="no pass is under way"):
        doubles.graph.run()


def test_a_slice_without_steps_is_refused(doubles: Doubles) -> None:
    doubles.graph.begin({})
    with pytest.raises(GraphError, match="never end"):
        doubles.graph.run(0)


def test_a_pass_without_changes_publishes_nothing(doubles: Doubles) -> None:
    assert run(doubles.graph, {}) == Pass({}, 0)


def test_a_pass_that_broke_off_is_not_followed_by_another(doubles: Doubles) -> None:
    doubles.graph.begin({doubles.numbers: {1: 13}})
    with pytest.raises(GraphError, match="a broken rule"):
        doubles.graph.run()
    with pytest.raises(GraphError, match="build the graph anew"):
        doubles.graph.begin({})


def test_functions_run_are_counted_by_collection(doubles: Doubles) -> None:
    run(doubles.graph, {doubles.numbers: {1: 1, 2: 2}})
    assert run(doubles.graph, {doubles.numbers: {1: 3}}).evaluated == 2
    assert doubles.graph.evaluated_by[doubles.doubles.number] == 3


# -- publications -----------------------------------------------------------------------------------------------------


def two_published() -> tuple[Graph, Source[int, str], Source[int, str]]:
    graph = Graph()
    first: Source[int, str] = graph.source("first")
    second: Source[int, str] = graph.source("second")
    graph.publish("both", second, first)
    return graph, first, second


def test_several_collections_are_published_as_one() -> None:
    graph, first, second = two_published()
    assert run(graph, {first: {1: "a"}, second: {2: "b"}}).published == {"both": {1: "a", 2: "b"}}
    assert run(graph, {second: {2: None}}).published == {"both": {2: None}}


def test_of_two_that_hold_one_key_the_first_is_published_and_that_is_reported() -> None:
    graph, first, second = two_published()
    done = run(graph, {first: {1: "a"}, second: {1: "b"}})
    assert done.published == {"both": {1: "a"}}
    assert done.failures == (Failure("second", 1, "'both' has one from <source 'first'> too"),)
    assert run(graph, {first: {1: None}}).published == {"both": {1: "b"}}


def test_the_first_is_the_one_declared_first_however_they_are_published() -> None:
    graph = Graph()
    first: Source[int, str] = graph.source("first")
    second: Source[int, str] = graph.source("second")
    graph.publish("both", second)
    graph.publish("both", first)
    assert run(graph, {first: {1: "a"}, second: {1: "b"}}).published == {"both": {1: "a"}}


def test_a_key_may_move_between_two_that_are_published_as_one() -> None:
    graph = Graph()
    words: Source[int, str] = graph.source("words")
    low = graph.derive("low", words, lambda at, key, word: word if word < "m" else Withheld("High"))
    high = graph.derive("high", words, lambda at, key, word: word if word > "m" else Withheld("Low"))
    graph.publish("all", low, high)
    for word in ("z", "a", "y"):
        assert run(graph, {words: {1: word}}) == Pass({"all": {1: word}}, 2)
    assert run(graph, {words: {1: None}}) == Pass({"all": {1: None}}, 0)
