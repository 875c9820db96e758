"""The allocation: every claim gets a value of its own and keeps it, whoever comes or goes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.graph import At, Claim, Graph, Outcome, Source, Withheld
from tests.kit.toy_graph import run

POOL = 4
START = {"a": 0, "b": 0, "c": 1, "d": 1, "e": 2}
"""Where each starts to look: a and b meet, and c and d."""


class Seats:
    """Guests of an age, who may name a seat, or wait; four seats in a round."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.guests: Source[str, tuple[int, int | None, bool]] = self.graph.source("guests")
        claims = self.graph.derive("claims", self.guests, self._claim)
        self.seats = self.graph.allocate("seats", claims, self._choices)
        self.graph.publish("seated", self.seats)
        self.kept = self.graph.kept(self.seats)

    def _claim(self, _at: At, key: str, guest: tuple[int, int | None, bool]) -> Outcome[Claim]:
        age, wanted, waits = guest
        return Withheld("Refused") if age < 0 else Claim((age, key), wanted, waits)

    def _choices(self, key: str) -> Iterable[int]:
        if key == "broken":
            raise ValueError(key)
        return [(START[key] + step) % POOL for step in range(POOL)]

    def come(self, *guests: str, age: int = 0, wanted: int | None = None, waits: bool = False) -> Any:
        return run(self.graph, {self.guests: dict.fromkeys(guests, (age, wanted, waits))})

    def go(self, *guests: str) -> Any:
        return run(self.graph, {self.guests: dict.fromkeys(guests)})

    @property
    def seated(self) -> dict[str, int]:
        return dict(self.graph.values(self.seats))


@pytest.fixture
def seats() -> Seats:
    return Seats()


def test_those_who_come_together_get_the_same_in_every_order(seats: Seats) -> None:
    answers = []
    for order in itertools.permutations("abcd"):
        seats = Seats()
        seats.come(*order)
        answers.append(seats.seated)
    assert answers == [{"a": 0, "b": 1, "c": 2, "d": 3}] * len(answers)


def test_of_those_who_come_together_the_first_in_the_order_chooses(seats: Seats) -> None:
    run(seats.graph, {seats.guests: {"a": (2, None, False), "b": (1, None, False)}})
    assert seats.seated == {"b": 0, "a": 1}


def test_who_comes_later_moves_nobody_however_early_in_the_order(seats: Seats) -> None:
    seats.come("b", age=2)
    assert seats.come("a", age=1).published == {"seats": {"a": 1}, "seated": {"a": 1}}
    assert seats.seated == {"b": 0, "a": 1}


def test_who_goes_frees_a_value_and_moves_nobody(seats: Seats) -> None:
    seats.come("a", "b")
    assert seats.go("a").published == {"seats": {"a": None}, "seated": {"a": None}}
    assert seats.seated == {"b": 1}
    seats.come("a")
    assert seats.seated == {"b": 1, "a": 0}


def test_a_claim_that_is_withheld_is_gone(seats: Seats) -> None:
    seats.come("a")
    seats.come("a", age=-1)
    assert seats.seated == dict(seats.graph.values(seats.kept)) == {}


def test_a_value_that_is_named_and_free_is_given(seats: Seats) -> None:
    seats.come("a", wanted=3)
    assert seats.seated == {"a": 3}


def test_those_who_name_a_value_come_before_those_who_do_not(seats: Seats) -> None:
    run(seats.graph, {seats.guests: {"a": (1, None, False), "e": (2, 0, False)}})
    assert seats.seated == {"e": 0, "a": 1}


def test_of_two_who_name_one_value_the_first_in_the_order_gets_it(seats: Seats) -> None:
    run(seats.graph, {seats.guests: {"a": (2, 3, False), "b": (1, 3, False)}})
    assert seats.seated == {"b": 3, "a": 0}


def test_a_named_value_that_another_holds_is_not_taken_away(seats: Seats) -> None:
    seats.come("a", age=2)
    seats.come("b", age=1, wanted=0)
    assert seats.seated == {"a": 0, "b": 1}


def test_who_names_another_value_later_moves_to_it(seats: Seats) -> None:
    seats.come("a")
    seats.come("a", wanted=3)
    assert seats.seated == {"a": 3}
    seats.come("b")
    assert seats.seated == {"a": 3, "b": 0}


def test_a_name_taken_back_moves_nobody(seats: Seats) -> None:
    seats.come("a", wanted=3)
    seats.come("a")
    assert seats.seated == {"a": 3}


def test_who_finds_nothing_free_is_without_until_somebody_goes(seats: Seats) -> None:
    seats.come("a", "b", "c", "d")
    seats.come("e")
    assert "e" not in seats.seated
    seats.go("b")
    assert seats.seated == {"a": 0, "c": 2, "d": 3, "e": 1}


def test_what_somebody_leaves_for_another_value_goes_to_who_is_without(seats: Seats) -> None:
    seats.come("a", "b", "c", "d")
    seats.come("e")
    run(seats.graph, {seats.guests: {"d": None, "c": (0, 3, False)}})
    assert seats.seated == {"a": 0, "b": 1, "c": 3, "e": 2}


def test_who_waits_gets_nothing_and_keeps_what_it_has(seats: Seats) -> None:
    seats.come("a", waits=True, wanted=2)
    assert seats.seated == {}
    seats.come("a")
    seats.come("a", waits=True, wanted=2)
    assert seats.seated == {"a": 0}


def test_what_was_kept_is_restored_at_the_start(seats: Seats) -> None:
    run(seats.graph, {seats.kept: {"a": 3, "b": 0}, seats.guests: {"a": (1, None, False), "b": (2, None, False)}})
    assert seats.seated == {"a": 3, "b": 0}


def test_what_was_kept_waits_for_its_claim_and_is_found_by_nobody_else(seats: Seats) -> None:
    run(seats.graph, {seats.kept: {"a": 0}})
    assert seats.seated == {}
    seats.come("b")
    seats.come("a", waits=True)
    assert seats.seated == {"b": 1, "a": 0}


def test_what_was_kept_for_nobody_goes_to_who_names_it_or_finds_nothing_else(seats: Seats) -> None:
    run(seats.graph, {seats.kept: {"x": 0, "y": 2}})
    seats.come("a", wanted=0)
    seats.come("b", "c", "d")
    assert seats.seated == {"a": 0, "b": 1, "c": 3, "d": 2}
    assert set(seats.graph.values(seats.kept)) == {"a", "b", "c", "d"}


def test_of_two_for_whom_one_value_was_kept_one_gets_another(seats: Seats) -> None:
    guests = {"a": (1, None, False), "b": (1, None, False)}
    run(seats.graph, {seats.kept: {"a": 2, "b": 2}, seats.guests: guests})
    assert sorted(seats.seated.values()) == [0, 2]


def test_choices_that_fail_cost_their_own_claim_alone(seats: Seats) -> None:
    done = seats.come("broken", "a")
    assert seats.seated == {"a": 0}
    assert [(one.collection, one.key) for one in done.failures] == [("seats", "broken")]


def test_what_a_fork_gives_stays_its_own(seats: Seats) -> None:
    seats.come("a")
    fork = seats.graph.fork()
    fork.begin({seats.guests: {"a": None, "b": (1, None, False)}})
    done = fork.run()
    assert done is not None
    assert done.published["seated"] == {"a": None, "b": 0}
    seats.come("b")
    assert seats.seated == {"a": 0, "b": 1}


def test_questions_pass_through_it(seats: Seats) -> None:
    seats.come("a")
    assert seats.graph.origins(seats.seats, "a") == {("guests", "a")}
    assert seats.graph.reached(seats.guests, "a") == {"seated": {"a"}, "seats": {"a"}}


EVENTS = st.lists(
    st.tuples(
        st.dictionaries(
            st.sampled_from("abcde"),
            st.one_of(st.none(), st.tuples(st.integers(-1, 2), st.none(), st.booleans())),
            max_size=3,
        ),
        st.integers(1, 5),
    ),
    max_size=25,
)


@given(EVENTS)
def test_whatever_comes_and_goes_no_two_have_one_value_and_nobody_is_moved(events: list[Any]) -> None:
    seats = Seats()
    for changes, steps in events:
        before = seats.seated
        seats.graph.begin({seats.guests: changes})
        while seats.graph.run(steps) is None:
            pass
        after = seats.seated
        assert len(set(after.values())) == len(after)
        assert all(after[guest] == before[guest] for guest in after.keys() & before.keys())
        assert dict(seats.graph.values(seats.kept)) == after
        standing = {key: one for key, one in seats.graph.values(seats.guests).items() if one[0] >= 0}
        willing = {key for key, one in standing.items() if not one[2]}
        assert after.keys() <= standing.keys()
        assert willing <= after.keys() or len(after) == POOL
