"""index, fold and pair: groups follow their members, one at a time."""

from __future__ import annotations

from typing import Any

import pytest

from aggregator.graph import Collection, Graph, Index, Outcome, Source, Withheld
from aggregator.graph.engine import Failure
from tests.kit.toy_graph import Inputs, run, snapshot


class Numbers:
    """Numbers by the letters of a word: `index`, and per letter the sum and count of them: `fold`."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.source: Source[int, tuple[str, int]] = self.graph.source("numbers")
        self.index: Index[str, int, tuple[str, int]] = self.graph.index(
            "by letter", self.source, lambda key, one: one[0]
        )
        self.fold = self.graph.fold(
            "sums",
            self.source,
            lambda key, one: [(letter, tag, n) for letter in one[0] for tag, n in (("sum", one[1]), ("count", 1))],
        )
        self.graph.publish("sums", self.fold)


@pytest.fixture
def numbers() -> Numbers:
    return Numbers()


# -- index ------------------------------------------------------------------------------------------------------------


def test_a_member_is_in_each_of_its_groups(numbers: Numbers) -> None:
    run(numbers.graph, {numbers.source: {1: ("xy", 5), 2: ("x", 6)}})
    assert numbers.graph.values(numbers.index) == {"x": {1: ("xy", 5), 2: ("x", 6)}, "y": {1: ("xy", 5)}}


def test_a_group_without_members_is_none(numbers: Numbers) -> None:
    run(numbers.graph, {numbers.source: {1: ("xy", 5), 2: ("x", 6)}})
    run(numbers.graph, {numbers.source: {1: ("x", 5)}})
    assert set(numbers.graph.values(numbers.index)) == {"x"}
    run(numbers.graph, {numbers.source: {1: None, 2: None}})
    assert numbers.graph.values(numbers.index) == {}


def test_a_member_keeps_its_group_and_gets_its_new_value(numbers: Numbers) -> None:
    run(numbers.graph, {numbers.source: {1: ("x", 5)}})
    run(numbers.graph, {numbers.source: {1: ("x", 6)}})
    assert numbers.graph.values(numbers.index) == {"x": {1: ("x", 6)}}


def test_naming_a_group_twice_is_naming_it_once(numbers: Numbers) -> None:
    run(numbers.graph, {numbers.source: {1: ("xx", 5)}})
    run(numbers.graph, {numbers.source: {1: ("xxy", 6)}})
    assert numbers.graph.values(numbers.index) == {"x": {1: ("xxy", 6)}, "y": {1: ("xxy", 6)}}
    run(numbers.graph, {numbers.source: {1: ("", 6)}})
    assert numbers.graph.values(numbers.index) == {}


def two_sources() -> tuple[Graph, Source[int, str], Source[int, str]]:
    graph = Graph()
    return graph, graph.source("first"), graph.source("second")


def test_an_index_of_several_collections_has_the_members_of_all() -> None:
    graph, first, second = two_sources()
    index = graph.index("by word", (first, second), lambda key, word: (word,))
    run(graph, {first: {1: "x"}, second: {2: "x"}})
    assert graph.values(index) == {"x": {1: "x", 2: "x"}}
    run(graph, {first: {1: None}})
    assert graph.values(index) == {"x": {2: "x"}}


def test_where_two_collections_hold_one_key_the_first_one_counts() -> None:
    graph, first, second = two_sources()
    index = graph.index("by word", (first, second), lambda key, word: (word,))
    fold = graph.fold("words", (first, second), lambda key, word: ((word, "count", 1),))
    steps: tuple[tuple[Inputs, dict[str, dict[int, str]]], ...] = (
        ({second: {1: "b"}}, {"b": {1: "b"}}),
        ({first: {1: "a"}}, {"a": {1: "a"}}),
        ({second: {1: "c"}}, {"a": {1: "a"}}),
        ({first: {1: "c"}}, {"c": {1: "c"}}),
        ({first: {1: None}}, {"c": {1: "c"}}),
        ({first: {1: "d"}, second: {1: None}}, {"d": {1: "d"}}),
        ({first: {1: None}}, {}),
    )
    for inputs, groups in steps:
        run(graph, inputs)
        assert graph.values(index) == groups
        assert graph.values(fold) == {group: {"count": 1} for group in groups}


def test_an_item_behind_another_of_its_key_changes_nothing() -> None:
    graph, first, second = two_sources()
    groups = graph.index("by word", (first, second), lambda key, word: ("all",))
    graph.derive("sizes", groups, lambda at, key, members: len(members))
    run(graph, {first: {1: "a"}, second: {1: "b"}})
    assert run(graph, {second: {1: "c"}}).evaluated == 0


def test_a_member_whose_groups_cannot_be_told_is_in_none_and_reported() -> None:
    graph = Graph()
    numbers: Source[int, int] = graph.source("numbers")
    index = graph.index("by inverse", numbers, lambda key, number: (10 // number,))
    done = run(graph, {numbers: {1: 0, 2: 5}})
    assert graph.values(index) == {2: {2: 5}}
    assert done.failures == (Failure("by inverse", 1, "ZeroDivisionError: integer division or modulo by zero"),)
    assert run(graph, {numbers: {1: 10}}).failures == ()
    assert graph.values(index) == {2: {2: 5}, 1: {1: 10}}


# -- fold -------------------------------------------------------------------------------------------------------------


def test_a_fold_sums_what_its_members_contribute(numbers: Numbers) -> None:
    run(numbers.graph, {numbers.source: {1: ("xy", 5), 2: ("x", 6)}})
    assert numbers.graph.values(numbers.fold) == {"x": {"sum": 11, "count": 2}, "y": {"sum": 5, "count": 1}}


def test_a_sum_of_zero_is_no_tag(numbers: Numbers) -> None:
    run(numbers.graph, {numbers.source: {1: ("x", 5), 2: ("x", -5)}})
    assert numbers.graph.values(numbers.fold) == {"x": {"count": 2}}


def test_a_group_without_tags_is_none(numbers: Numbers) -> None:
    run(numbers.graph, {numbers.source: {1: ("x", 5)}})
    assert run(numbers.graph, {numbers.source: {1: None}}).published == {"sums": {"x": None}}
    assert numbers.graph.values(numbers.fold) == {}


def test_an_equal_sum_is_no_change(numbers: Numbers) -> None:
    run(numbers.graph, {numbers.source: {1: ("x", 5), 2: ("x", 6)}})
    assert run(numbers.graph, {numbers.source: {1: ("x", 6), 2: ("x", 5)}}).published == {}


def test_a_sum_that_was_published_does_not_change_afterwards(numbers: Numbers) -> None:
    first = run(numbers.graph, {numbers.source: {1: ("x", 5)}}).published["sums"]["x"]
    run(numbers.graph, {numbers.source: {1: ("x", 6)}})
    assert first == {"sum": 5, "count": 1}


def test_only_the_changed_members_of_a_fold_are_asked() -> None:
    graph = Graph()
    numbers: Source[int, int] = graph.source("numbers")
    asked: list[int] = []

    def contributions(key: int, number: int) -> list[tuple[str, str, int]]:
        asked.append(key)
        return [("all", "sum", number)]

    graph.fold("sum", numbers, contributions)
    run(graph, {numbers: dict.fromkeys(range(100), 1)})
    asked.clear()
    run(graph, {numbers: {7: 2}})
    assert asked == [7, 7]


def test_a_member_whose_contribution_fails_contributes_nothing() -> None:
    graph = Graph()
    numbers: Source[int, int] = graph.source("numbers")
    fold = graph.fold("inverses", numbers, lambda key, number: (("all", "sum", 10 // number),))
    assert len(run(graph, {numbers: {1: 5, 2: 0}}).failures) == 1
    assert graph.values(fold) == {"all": {"sum": 2}}
    assert run(graph, {numbers: {2: None}}).failures == ()
    assert graph.values(fold) == {"all": {"sum": 2}}


# -- pair -------------------------------------------------------------------------------------------------------------


class Matches:
    """Views and things, each a word: they are paired by the letters they share."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.views: Source[str, str] = self.graph.source("views")
        self.things: Source[int, str] = self.graph.source("things")
        self.matched: list[tuple[str, int]] = []
        self.pairs: Collection[tuple[str, int], str] = self.graph.pair(
            "pairs",
            self.graph.index("views by letter", self.views, lambda key, word: word),
            self.graph.index("things by letter", self.things, lambda key, word: word),
            self._match,
        )
        self.graph.publish("pairs", self.pairs)

    def _match(self, view: str, ours: str, thing: int, theirs: str) -> Outcome[str]:
        self.matched.append((view, thing))
        if "!" in ours:
            raise ValueError("no match at all")
        return Withheld("Hidden") if "-" in ours else f"{ours}:{theirs}"


@pytest.fixture
def matches() -> Matches:
    return Matches()


def test_every_member_is_paired_with_every_other_of_its_group(matches: Matches) -> None:
    run(matches.graph, {matches.views: {"v": "x", "w": "xy"}, matches.things: {1: "x", 2: "y", 3: "z"}})
    assert matches.graph.values(matches.pairs) == {("v", 1): "x:x", ("w", 1): "xy:x", ("w", 2): "xy:y"}


@pytest.mark.parametrize("views_first", [True, False])
def test_it_does_not_matter_which_side_comes_first(matches: Matches, views_first: bool) -> None:
    inputs: list[dict[Any, Any]] = [{matches.views: {"v": "x"}}, {matches.things: {1: "x"}}]
    for one in inputs if views_first else reversed(inputs):
        run(matches.graph, one)
    assert matches.graph.values(matches.pairs) == {("v", 1): "x:x"}


def test_a_new_member_costs_its_own_matches_alone(matches: Matches) -> None:
    run(matches.graph, {matches.views: {"v": "x", "w": "x"}, matches.things: dict.fromkeys(range(100), "x")})
    matches.matched.clear()
    done = run(matches.graph, {matches.things: {100: "x"}})
    assert matches.matched == [("v", 100), ("w", 100)]
    assert done.evaluated == 2


def test_a_pair_in_which_both_have_changed_is_matched_once(matches: Matches) -> None:
    run(matches.graph, {matches.views: {"v": "x"}, matches.things: {1: "x"}})
    matches.matched.clear()
    run(matches.graph, {matches.views: {"v": "xy"}, matches.things: {1: "xz"}})
    assert matches.matched == [("v", 1)]
    assert matches.graph.values(matches.pairs) == {("v", 1): "xy:xz"}


@pytest.mark.parametrize("gone", ["views", "things", "both"])
def test_a_pair_goes_with_either_of_its_members(matches: Matches, gone: str) -> None:
    run(matches.graph, {matches.views: {"v": "x", "w": "x"}, matches.things: {1: "x", 2: "x"}})
    inputs: dict[Any, Any] = {}
    if gone != "things":
        inputs[matches.views] = {"v": None}
    if gone != "views":
        inputs[matches.things] = {1: None}
    changes = run(matches.graph, inputs).published["pairs"]
    expected = {"views": {("v", 1), ("v", 2)}, "things": {("v", 1), ("w", 1)}}
    assert set(changes) == expected.get(gone, expected["views"] | expected["things"])
    assert set(changes.values()) == {None}


def test_members_that_move_together_keep_their_pair(matches: Matches) -> None:
    run(matches.graph, {matches.views: {"v": "x", "w": "y"}, matches.things: {1: "x", 2: "y"}})
    # w and 2 put the group y before the group x among what has changed.
    run(matches.graph, {matches.views: {"w": "yy", "v": "y"}, matches.things: {2: "yy", 1: "y"}})
    assert matches.graph.values(matches.pairs)["v", 1] == "y:y"


def test_members_that_part_in_one_group_and_meet_in_another_keep_their_pair(matches: Matches) -> None:
    run(matches.graph, {matches.views: {"v": "xy"}, matches.things: {1: "xy"}})
    run(matches.graph, {matches.things: {1: "x"}})
    assert matches.graph.values(matches.pairs) == {("v", 1): "xy:x"}
    run(matches.graph, {matches.views: {"v": "yx"}})
    assert matches.graph.values(matches.pairs) == {("v", 1): "yx:x"}
    run(matches.graph, {matches.views: {"v": "y"}})
    assert matches.graph.values(matches.pairs) == {}


def test_a_withheld_pair_is_counted_and_not_stored(matches: Matches) -> None:
    run(matches.graph, {matches.views: {"v": "x"}, matches.things: {1: "x"}})
    assert run(matches.graph, {matches.views: {"v": "x-"}}).published == {"pairs": {("v", 1): None}}
    assert matches.graph.withheld == {("pairs", "Hidden"): 1}


def test_a_pair_that_raises_is_reported_and_its_neighbours_are_served(matches: Matches) -> None:
    done = run(matches.graph, {matches.views: {"v": "x!", "w": "x"}, matches.things: {1: "x"}})
    assert done.published == {"pairs": {("w", 1): "x:x"}}
    assert done.failures == (Failure("pairs", ("v", 1), "ValueError: no match at all"),)
    assert matches.graph.withheld == {("pairs", "InternalError"): 1}


def test_an_index_can_be_paired_with_itself() -> None:
    graph = Graph()
    words: Source[int, str] = graph.source("words")
    index = graph.index("by word", words, lambda key, word: (word,))
    pairs = graph.pair("pairs", index, index, lambda one, ours, other, theirs: ours + theirs)
    run(graph, {words: {1: "x", 2: "x", 3: "y"}})
    assert set(graph.values(pairs)) == {(1, 1), (1, 2), (2, 1), (2, 2), (3, 3)}
    run(graph, {words: {1: "y", 2: None}})
    assert graph.values(pairs) == dict.fromkeys([(1, 1), (1, 3), (3, 1), (3, 3)], "yy")


def test_nothing_is_kept_of_members_that_have_gone(matches: Matches, numbers: Numbers) -> None:
    run(matches.graph, {matches.views: {"v": "xy"}, matches.things: {1: "x", 2: "y"}})
    run(matches.graph, {matches.views: {"v": None}, matches.things: {1: None, 2: None}})
    assert snapshot(matches.graph) == snapshot(Matches().graph)
    run(numbers.graph, {numbers.source: {1: ("xy", 3)}})
    run(numbers.graph, {numbers.source: {1: None}})
    assert snapshot(numbers.graph) == snapshot(Numbers().graph)


# -- unless -----------------------------------------------------------------------------------------------------------


class Sparing:
    """Even numbers by their tens, and how many there are of each."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.numbers: Source[str, int] = self.graph.source("numbers")
        self.asked: list[str] = []
        self.index = self.graph.index("tens", self.numbers, self._tens, unless=self._odd)
        self.fold = self.graph.fold("counts", self.numbers, self._counts, unless=self._odd)
        self.graph.publish("counts", self.fold)

    def _odd(self, _key: str, number: int) -> bool:
        return number % 2 > 0

    def _tens(self, key: str, number: int) -> list[int]:
        self.asked.append(key)
        return [number // 10]

    def _counts(self, _key: str, number: int) -> list[tuple[int, str, int]]:
        return [(number // 10, "all", 1)]

    def run(self, **numbers: int | None) -> tuple[dict[int, list[str]], dict[int, int]]:
        """The members of each group, and the counts, after a pass over these."""
        run(self.graph, {self.numbers: numbers})
        groups = {ten: sorted(members) for ten, members in self.graph.values(self.index).items()}
        return groups, {ten: sums["all"] for ten, sums in self.graph.values(self.fold).items()}


def test_an_index_and_a_fold_are_without_those_they_are_not_asked_of() -> None:
    sparing = Sparing()
    assert sparing.run(one=1, two=2, twelve=12) == ({0: ["two"], 1: ["twelve"]}, {0: 1, 1: 1})
    assert set(sparing.asked) == {"two", "twelve"}


@pytest.mark.parametrize("last", [3, 4, 14, None])
@pytest.mark.parametrize("then", [1, 2, 12, None])
@pytest.mark.parametrize("first", [1, 2, 12, None])
def test_it_makes_no_difference_what_an_item_was_before(first: int | None, then: int | None, last: int | None) -> None:
    sparing = Sparing()
    for number in (first, then):
        sparing.run(other=8, one=number)
    assert sparing.run(one=last) == Sparing().run(other=8, one=last)


def test_what_stands_on_an_item_that_is_left_out_is_nothing() -> None:
    sparing = Sparing()
    sparing.run(one=1, two=2)
    assert sparing.graph.reached(sparing.numbers, "one") == {}
    assert sparing.graph.reached(sparing.numbers, "two") == {"counts": {0}}
