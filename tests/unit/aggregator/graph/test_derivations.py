"""derive and expand: what is evaluated again and what is not, what is read, withheld, produced twice, or fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from aggregator.graph import At, Collection, Graph, Outcome, Source, Withheld
from aggregator.graph.engine import Failure
from tests.kit.toy_graph import run, snapshot

POSITIVE = Withheld("NotPositive", "it must be")


class Reading:
    """`values` derived over `keys`: the number that a key names, in `numbers`."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.numbers: Source[str, int] = self.graph.source("numbers")
        self.keys: Source[int, str] = self.graph.source("keys")
        self.evaluated: list[int] = []
        self.values = self.graph.derive("values", self.keys, self._value)
        self.graph.publish("values", self.values)

    def _value(self, at: At, key: int, name: str) -> Outcome[int]:
        self.evaluated.append(key)
        number = at.get(self.numbers, name)
        return POSITIVE if number is None or number < 0 else number

    def readers(self, name: str) -> list[int]:
        """The items whose last evaluation read one number."""
        state = self.graph.state
        listed = state.readers[self.numbers.number].get(name, ())
        return [item for derivation, reads in listed for item in state.records[derivation][reads]]


@pytest.fixture
def reading() -> Reading:
    return Reading()


def test_an_item_is_derived_under_its_own_key(reading: Reading) -> None:
    done = run(reading.graph, {reading.numbers: {"one": 1}, reading.keys: {7: "one"}})
    assert done.published == {"values": {7: 1}}
    assert reading.graph.values(reading.values) == {7: 1}


def test_an_item_that_goes_takes_its_derivation_along(reading: Reading) -> None:
    run(reading.graph, {reading.numbers: {"one": 1}, reading.keys: {7: "one"}})
    done = run(reading.graph, {reading.keys: {7: None}})
    assert done.published == {"values": {7: None}}
    assert reading.graph.values(reading.values) == {}


def test_equal_input_evaluates_nothing(reading: Reading) -> None:
    run(reading.graph, {reading.numbers: {"one": 1}, reading.keys: {7: "one"}})
    done = run(reading.graph, {reading.numbers: {"one": 1}, reading.keys: {7: "one"}})
    assert (done.evaluated, done.published) == (0, {})


def test_only_what_read_a_changed_item_is_evaluated_again(reading: Reading) -> None:
    run(reading.graph, {reading.numbers: {"one": 1, "two": 2}, reading.keys: {7: "one", 8: "two", 9: "one"}})
    reading.evaluated.clear()
    done = run(reading.graph, {reading.numbers: {"one": 11}})
    assert sorted(reading.evaluated) == [7, 9]
    assert done.published == {"values": {7: 11, 9: 11}}
    assert done.evaluated == 2


def test_an_item_is_evaluated_once_however_much_it_read_has_changed() -> None:
    graph = Graph()
    numbers: Source[str, int] = graph.source("numbers")
    items: Source[int, str] = graph.source("items")
    graph.derive("sums", items, lambda at, key, names: sum(at.get(numbers, name) or 0 for name in names))
    run(graph, {numbers: {"a": 1, "b": 2}, items: {1: "ab"}})
    assert run(graph, {numbers: {"a": 3, "b": 4}, items: {1: "aba"}}).evaluated == 1


def test_absence_is_read_as_well(reading: Reading) -> None:
    run(reading.graph, {reading.keys: {7: "one"}})
    done = run(reading.graph, {reading.numbers: {"one": 1}})
    assert done.published == {"values": {7: 1}}


def test_an_equal_result_stops_there() -> None:
    graph = Graph()
    numbers: Source[int, int] = graph.source("numbers")
    parity = graph.derive("parity", numbers, lambda at, key, number: number % 2)
    after = graph.derive("after", parity, lambda at, key, odd: "odd" if odd else "even")
    graph.publish("after", after)
    run(graph, {numbers: {1: 3}})
    done = run(graph, {numbers: {1: 5}})
    assert (done.evaluated, done.published) == (1, {})


def test_an_equal_result_keeps_the_object_there_was() -> None:
    graph = Graph()
    numbers: Source[int, int] = graph.source("numbers")
    copies = graph.derive("copies", numbers, lambda at, key, number: (number % 2, [number % 2]))
    run(graph, {numbers: {1: 3}})
    first = graph.values(copies)[1]
    run(graph, {numbers: {1: 5}})
    assert graph.values(copies)[1] is first


def test_a_value_that_returns_within_the_pass_is_no_change(reading: Reading) -> None:
    graph = Graph()
    claims: Source[int, str] = graph.source("claims")
    # 2 produces the key until 1, the first in order, takes it over with an equal value: removed and set again.
    produced = graph.expand("produced", claims, lambda at, key, names: ((name, "same") for name in names))
    graph.publish("produced", produced)
    run(graph, {claims: {2: "x"}})
    assert run(graph, {claims: {2: "", 1: "x"}}).published == {}


def test_reads_are_those_of_the_last_evaluation(reading: Reading) -> None:
    run(reading.graph, {reading.numbers: {"one": 1, "two": 2}, reading.keys: {7: "one"}})
    assert reading.readers("one") == [7]
    run(reading.graph, {reading.keys: {7: "two"}})
    assert (reading.readers("one"), reading.readers("two")) == ([], [7])


def test_reads_are_released_with_their_item(reading: Reading) -> None:
    run(reading.graph, {reading.numbers: {"one": 1}, reading.keys: {7: "one"}})
    run(reading.graph, {reading.keys: {7: None}, reading.numbers: {"one": None}})
    assert snapshot(reading.graph) == snapshot(Reading().graph)


def test_items_that_read_the_same_share_one_record(reading: Reading) -> None:
    run(reading.graph, {reading.numbers: {"one": 1}, reading.keys: dict.fromkeys(range(100), "one")})
    number = reading.values.number
    assert len(reading.graph.state.records[number]) == 1
    reads = reading.graph.state.reads[number]
    assert len(reads) == 100
    assert len({id(record) for record in reads.values()}) == 1


def test_a_shared_record_outlives_the_item_that_brought_it(reading: Reading) -> None:
    run(reading.graph, {reading.numbers: {"one": 1}, reading.keys: {1: "one", 2: "one"}})
    run(reading.graph, {reading.keys: {1: None}})
    run(reading.graph, {reading.keys: {3: "one"}})
    assert len({id(record) for record in reading.graph.state.reads[reading.values.number].values()}) == 1
    assert run(reading.graph, {reading.numbers: {"one": 5}}).published == {"values": {2: 5, 3: 5}}


def test_repeated_reads_are_recorded_once() -> None:
    graph = Graph()
    numbers: Source[int, int] = graph.source("numbers")
    twice = graph.derive("twice", numbers, lambda at, key, _: (at.get(numbers, 1), at.get(numbers, 1)))
    run(graph, {numbers: {1: 3}})
    assert graph.state.reads[twice.number] == {1: ((numbers.number, 1),)}


def test_a_read_group_is_read_member_by_member() -> None:
    graph = Graph()
    numbers: Source[int, int] = graph.source("numbers")
    names: Source[str, int] = graph.source("names")
    by_parity = graph.index("by parity", numbers, lambda key, number: (number % 2,))
    sums = graph.derive("sums", names, lambda at, key, parity: sum(at.group(by_parity, parity).values()))
    graph.publish("sums", sums)
    assert run(graph, {names: {"odd": 1, "even": 0}}).published == {"sums": {"odd": 0, "even": 0}}
    assert run(graph, {numbers: {1: 3, 2: 5}}).published == {"sums": {"odd": 8}}
    assert run(graph, {numbers: {1: 4}}).published == {"sums": {"odd": 5, "even": 4}}
    assert run(graph, {numbers: {2: 7}}).published == {"sums": {"odd": 7}}
    assert run(graph, {numbers: {2: None}}).published == {"sums": {"odd": 0}}


def test_a_group_can_be_derived_from_as_an_item() -> None:
    graph = Graph()
    claims: Source[int, str] = graph.source("claims")
    by_host = graph.index("by host", claims, lambda key, host: (host,))
    first = graph.derive("first", by_host, lambda at, host, members: min(members))
    graph.publish("first", first)
    run(graph, {claims: {2: "a", 3: "a"}})
    assert run(graph, {claims: {1: "a"}}).published == {"first": {"a": 1}}
    assert run(graph, {claims: {2: None}}).published == {}
    assert run(graph, {claims: {1: None, 3: None}}).published == {"first": {"a": None}}


def test_the_withheld_is_counted_and_not_stored(reading: Reading) -> None:
    run(reading.graph, {reading.numbers: {"one": -1}, reading.keys: {7: "one", 8: "two"}})
    assert reading.graph.values(reading.values) == {}
    assert reading.graph.withheld == {("values", "NotPositive"): 2}


def test_withholding_takes_back_what_was_there(reading: Reading) -> None:
    run(reading.graph, {reading.numbers: {"one": 1}, reading.keys: {7: "one"}})
    assert run(reading.graph, {reading.numbers: {"one": -1}}).published == {"values": {7: None}}
    assert run(reading.graph, {reading.numbers: {"one": 2}}).published == {"values": {7: 2}}


# -- failures ---------------------------------------------------------------------------------------------------------


def inverses() -> tuple[Graph, Source[int, int], Collection[int, float]]:
    graph = Graph()
    numbers: Source[int, int] = graph.source("numbers")
    values = graph.derive("inverses", numbers, lambda at, key, number: 10 / (at.get(numbers, key) or number))
    graph.publish("inverses", values)
    return graph, numbers, values


def test_what_raises_is_reported_and_its_neighbours_are_served() -> None:
    graph, numbers, _ = inverses()
    done = run(graph, {numbers: {1: 0, 2: 5}})
    assert done.published == {"inverses": {2: 2.0}}
    assert done.failures == (Failure("inverses", 1, "ZeroDivisionError: division by zero"),)
    assert graph.withheld == {("inverses", "InternalError"): 1}


def test_a_failure_takes_back_what_was_there() -> None:
    graph, numbers, _ = inverses()
    run(graph, {numbers: {1: 5}})
    assert run(graph, {numbers: {1: 0}}).published == {"inverses": {1: None}}


def test_failures_are_those_of_the_pass() -> None:
    graph, numbers, _ = inverses()
    run(graph, {numbers: {1: 0}})
    assert run(graph, {numbers: {2: 1}}).failures == ()


def test_what_was_read_before_a_failure_heals_it() -> None:
    graph = Graph()
    limits: Source[str, int] = graph.source("limits")
    numbers: Source[int, int] = graph.source("numbers")
    graph.publish(
        "shares", graph.derive("shares", numbers, lambda at, key, number: number // (at.get(limits, "x") or 0))
    )
    assert len(run(graph, {numbers: {1: 8}}).failures) == 1
    assert run(graph, {limits: {"x": 4}}).published == {"shares": {1: 2}}


def test_an_expansion_that_raises_half_way_yields_nothing() -> None:
    graph = Graph()
    numbers: Source[int, int] = graph.source("numbers")

    def parts(at: At, key: int, number: int) -> Iterator[tuple[int, int]]:
        yield key, number
        yield key + 1, 10 // number

    produced = graph.expand("parts", numbers, parts)
    done = run(graph, {numbers: {1: 0}})
    assert graph.values(produced) == {}
    assert [failure.collection for failure in done.failures] == ["parts"]


# -- expand -----------------------------------------------------------------------------------------------------------


class Expanding:
    """`letters` expanded from `words`: each letter with its word, vowels withheld."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.words: Source[int, str] = self.graph.source("words")
        self.letters = self.graph.expand("letters", self.words, self._letters)
        self.graph.publish("letters", self.letters)

    @staticmethod
    def _letters(at: At, key: int, word: str) -> Iterator[tuple[str, Outcome[str]]]:
        return ((letter, Withheld("Vowel") if letter in "aeiou" else word) for letter in word)


@pytest.fixture
def expanding() -> Expanding:
    return Expanding()


def test_an_item_expands_to_any_number(expanding: Expanding) -> None:
    assert run(expanding.graph, {expanding.words: {1: "xyz", 2: ""}}).published == {
        "letters": dict.fromkeys("xyz", "xyz")
    }


def test_what_an_item_no_longer_expands_to_goes(expanding: Expanding) -> None:
    run(expanding.graph, {expanding.words: {1: "xy"}})
    assert run(expanding.graph, {expanding.words: {1: "yz"}}).published == {
        "letters": {"x": None, "y": "yz", "z": "yz"}
    }
    assert run(expanding.graph, {expanding.words: {1: None}}).published == {"letters": {"y": None, "z": None}}
    assert snapshot(expanding.graph) == snapshot(Expanding().graph)


def test_the_withheld_of_an_expansion_leaves_the_rest(expanding: Expanding) -> None:
    assert run(expanding.graph, {expanding.words: {1: "ax"}}).published == {"letters": {"x": "ax"}}
    assert expanding.graph.withheld == {("letters", "Vowel"): 1}


def test_a_key_may_move_from_item_to_item_in_one_pass(expanding: Expanding) -> None:
    run(expanding.graph, {expanding.words: {1: "x1", 2: "y2"}})
    done = run(expanding.graph, {expanding.words: {1: "y1", 2: "x2"}})
    assert done.published == {"letters": {"x": "x2", "y": "y1", "1": "y1", "2": "x2"}}
    assert done.failures == ()


def test_a_key_that_two_items_produce_is_the_first_ones_and_reported(expanding: Expanding) -> None:
    for order in ((1, 2), (2, 1)):
        expanding = Expanding()
        words = {1: "xa", 2: "xb"}
        done = run(expanding.graph, {expanding.words: {key: words[key] for key in order}})
        assert expanding.graph.values(expanding.letters)["x"] == "xa"
        assert [(failure.collection, "'x' is produced twice" in failure.error) for failure in done.failures] == [
            ("letters", True)
        ]


def test_a_rival_inherits_the_key(expanding: Expanding) -> None:
    run(expanding.graph, {expanding.words: {1: "x1", 2: "x2", 3: "x3"}})
    done = run(expanding.graph, {expanding.words: {1: "1"}})
    assert done.published == {"letters": {"x": "x2", "1": "1"}}
    run(expanding.graph, {expanding.words: {3: None}})
    assert run(expanding.graph, {expanding.words: {2: None}}).published == {"letters": {"x": None, "2": None}}
    assert not expanding.graph.state.rivals[expanding.letters.number]


def test_a_key_that_one_item_produces_twice_keeps_its_first_value() -> None:
    graph = Graph()
    words: Source[int, str] = graph.source("words")
    produced = graph.expand("produced", words, lambda at, key, word: (("same", letter) for letter in word))
    done = run(graph, {words: {1: "xy"}})
    assert graph.values(produced) == {"same": "x"}
    assert [failure.error for failure in done.failures] == ["'same' is produced twice by one item"]


def test_none_is_a_value_like_any_other() -> None:
    graph = Graph()
    words: Source[int, str] = graph.source("words")
    letters: Collection[Any, None] = graph.expand("letters", words, lambda at, key, word: ((one, None) for one in word))
    by_letter = graph.index("by letter", letters, lambda key, _: (key,))
    run(graph, {words: {1: "x"}})
    fork = graph.fork()
    run(fork, {words: {1: "y"}})
    assert graph.values(by_letter) == {"x": {"x": None}}
    assert dict(fork.state.values[by_letter.number]) == {"y": {"y": None}}


# -- unless -----------------------------------------------------------------------------------------------------------


class Sparing:
    """`doubles` expanded from `numbers`, of odd ones nothing, which need not be evaluated for that."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.numbers: Source[str, int] = self.graph.source("numbers")
        self.evaluated: list[str] = []
        self.doubles = self.graph.expand("doubles", self.numbers, self._double, unless=lambda _, number: number % 2 > 0)
        self.graph.publish("doubles", self.doubles)

    def _double(self, _at: At, key: str, number: int) -> list[tuple[str, Outcome[int]]]:
        self.evaluated.append(key)
        return [(key, 2 * number if number % 2 == 0 else Withheld("Odd", str(number)))]

    def run(self, **numbers: int | None) -> dict[str, int | None]:
        """What a pass over these published; `evaluated` is what it ran for."""
        self.evaluated = []
        return dict(run(self.graph, {self.numbers: numbers}).published.get("doubles", {}))


def test_what_nothing_comes_of_is_not_evaluated() -> None:
    sparing = Sparing()
    assert sparing.run(one=1, two=2, three=3) == {"two": 4}
    assert sparing.evaluated == ["two"]


def test_an_item_that_something_comes_of_now_is_evaluated() -> None:
    sparing = Sparing()
    sparing.run(one=1)
    assert sparing.run(one=4) == {"one": 8}


@pytest.mark.parametrize("now", [3, None])
def test_what_came_of_an_item_goes_when_nothing_does_any_more(now: int | None) -> None:
    sparing = Sparing()
    sparing.run(two=2)
    assert sparing.run(two=now) == {"two": None}
    assert snapshot(sparing.graph)["values"][sparing.doubles.number] == {}


def test_an_item_of_which_nothing_came_goes_without_being_evaluated() -> None:
    sparing = Sparing()
    sparing.run(one=1)
    assert (sparing.run(one=None), sparing.evaluated) == ({}, [])


def test_who_asks_why_nothing_came_of_an_item_is_told() -> None:
    sparing = Sparing()
    sparing.run(one=1)
    found = sparing.graph.why(sparing.doubles, "one")
    assert found is not None
    assert found.withheld == (Withheld("Odd", "1"),)
