"""What a graph refuses: declarations and inputs that could not keep its promises."""

from __future__ import annotations

from typing import Any

import pytest

from aggregator.graph import Graph, GraphError, Source
from tests.kit.toy_graph import run


def by_value(key: int, value: int) -> tuple[int]:
    return (value,)


@pytest.fixture
def graph() -> Graph:
    return Graph()


@pytest.fixture
def numbers(graph: Graph) -> Source[int, int]:
    return graph.source("numbers")


def test_two_collections_cannot_have_one_name(graph: Graph, numbers: Source[int, int]) -> None:
    with pytest.raises(GraphError, match="two collections are called 'numbers'"):
        graph.source("numbers")


def test_a_collection_cannot_stand_on_one_of_another_graph(graph: Graph) -> None:
    stranger: Source[int, int] = Graph().source("stranger")
    with pytest.raises(GraphError, match="not of this graph"):
        graph.derive("copies", stranger, lambda at, key, value: value)


def test_a_collection_cannot_stand_on_one_twice(graph: Graph, numbers: Source[int, int]) -> None:
    with pytest.raises(GraphError, match="twice"):
        graph.index("groups", (numbers, numbers), by_value)


def test_only_a_derivation_can_be_latched(graph: Graph, numbers: Source[int, int]) -> None:
    with pytest.raises(GraphError, match="can be latched"):
        graph.latch("last good", numbers)


def test_a_group_cannot_be_folded_since_it_changes_in_place(graph: Graph, numbers: Source[int, int]) -> None:
    groups = graph.index("groups", numbers, by_value)
    with pytest.raises(GraphError, match="changes in place"):
        graph.fold("sums", groups, lambda key, members: ((key, "members", len(members)),))


def test_a_group_cannot_be_published_since_it_changes_in_place(graph: Graph, numbers: Source[int, int]) -> None:
    groups = graph.index("groups", numbers, by_value)
    with pytest.raises(GraphError, match="cannot be published"):
        graph.publish("groups", groups)


def test_a_pair_stands_on_indexes(graph: Graph, numbers: Source[int, int]) -> None:
    groups = graph.index("groups", numbers, by_value)
    not_an_index: Any = numbers
    with pytest.raises(GraphError, match="two indexes"):
        graph.pair("pairs", groups, not_an_index, lambda one, ours, other, theirs: ours)


def test_nothing_is_declared_after_the_first_pass(graph: Graph, numbers: Source[int, int]) -> None:
    run(graph, {})
    with pytest.raises(GraphError, match="static"):
        graph.source("late")
    with pytest.raises(GraphError, match="static"):
        graph.publish("late", numbers)


def test_a_collection_is_published_once(graph: Graph, numbers: Source[int, int]) -> None:
    graph.publish("first", numbers)
    with pytest.raises(GraphError, match="already published"):
        graph.publish("second", numbers)


def test_findings_are_published_by_the_engine_alone(graph: Graph, numbers: Source[int, int]) -> None:
    with pytest.raises(GraphError, match="by the engine"):
        graph.publish("findings", numbers)


def test_nothing_else_is_published_under_the_name_of_a_latch(graph: Graph, numbers: Source[int, int]) -> None:
    latch = graph.latch("last good", graph.derive("copies", numbers, lambda at, key, value: value))
    with pytest.raises(GraphError, match="last good"):
        graph.publish("last good", latch)


def test_only_a_latch_keeps(graph: Graph, numbers: Source[int, int]) -> None:
    with pytest.raises(GraphError, match="keeps nothing"):
        graph.kept(numbers)


def test_only_sources_take_input(graph: Graph, numbers: Source[int, int]) -> None:
    copies = graph.derive("copies", numbers, lambda at, key, value: value)
    with pytest.raises(GraphError, match="only sources take input"):
        graph.begin({copies: {1: 1}})
    assert not graph.under_way


def test_a_source_of_another_graph_is_refused(graph: Graph, numbers: Source[int, int]) -> None:
    stranger: Source[int, int] = Graph().source("stranger")
    with pytest.raises(GraphError, match="not of this graph"):
        graph.begin({stranger: {1: 1}})


def test_a_derivation_cannot_read_what_is_declared_later(graph: Graph, numbers: Source[int, int]) -> None:
    later: Source[int, int]
    graph.derive("early", numbers, lambda at, key, value: at.get(later, key))
    later = graph.source("later")
    graph.begin({numbers: {1: 1}})
    with pytest.raises(GraphError, match="'early'> may read only what is declared before it, not <source 'later'>"):
        graph.run()


def test_a_derivation_cannot_read_a_group_that_is_declared_later(graph: Graph, numbers: Source[int, int]) -> None:
    graph.derive("early", numbers, lambda at, key, value: len(at.group(groups, value)))
    groups = graph.index("groups", numbers, by_value)
    graph.begin({numbers: {1: 1}})
    with pytest.raises(GraphError, match="may read only what is declared before it"):
        graph.run()


def test_a_derivation_cannot_read_itself(graph: Graph, numbers: Source[int, int]) -> None:
    copies: Any = graph.derive("copies", numbers, lambda at, key, value: at.get(copies, key))
    graph.begin({numbers: {1: 1}})
    with pytest.raises(GraphError, match="may read only what is declared before it"):
        graph.run()
