"""Rules of `watchers.kubernetes.quota`: what is taken of a cluster that has more objects than it may."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from watchers.facts import Fact, Namespace, ObjectKey
from watchers.kubernetes.quota import Holdings, Quota

FACT = Namespace((), ())


def key(number: int, kind: str = "Pod") -> ObjectKey:
    return ("west", kind, "shop", f"p{number:04}")


class Held:
    """A kind that is held under a quota."""

    def __init__(self, holdings: Holdings, kind: str = "Pod") -> None:
        self.kind = kind
        self.facts: dict[ObjectKey, Fact] = {}
        self.quota = Quota(holdings, lambda: self.facts, lambda key: key in self.facts)

    def apply(self, numbers: Iterable[int], *, gone: bool = False) -> None:
        changes = {key(number, self.kind): None if gone else FACT for number in numbers}
        for one, fact in self.quota.admit(changes).items():
            self.facts.pop(one, None)
            if fact is not None:
                self.facts[one] = fact

    def read(self, numbers: Iterable[int], page: int = 3) -> None:
        keyed = [(key(number, self.kind), FACT) for number in numbers]
        self.quota.begin()
        gathered: dict[ObjectKey, Fact] = {}
        for first in range(0, len(keyed), page):
            gathered.update(self.quota.gather(keyed[first : first + page], len(gathered)))
        self.facts = self.quota.admit_all(gathered)

    def numbers(self) -> list[int]:
        return sorted(int(one[3][1:]) for one in self.facts)


def test_what_comes_beyond_the_limit_is_not_taken_and_what_is_held_goes_on_changing() -> None:
    pods = Held(Holdings(5))
    pods.read(range(4))
    pods.apply([1, 4, 5, 6])
    assert (pods.numbers(), pods.quota.withheld) == ([0, 1, 2, 3, 4], 2)
    assert "holds 5 objects" in pods.quota.reason
    pods.apply([0, 5])
    assert (pods.numbers(), pods.quota.withheld) == ([0, 1, 2, 3, 4], 2)


def test_of_a_list_what_is_held_goes_first_whatever_its_order() -> None:
    pods = Held(Holdings(3))
    pods.read([7, 8, 9])
    pods.read(range(10))
    assert (pods.numbers(), pods.quota.withheld) == ([7, 8, 9], 7)
    pods.read(range(9))
    assert (pods.numbers(), pods.quota.withheld) == ([0, 7, 8], 6)


def test_there_is_room_again_once_something_goes() -> None:
    pods = Held(Holdings(5))
    pods.read(range(7))
    room = [pods.quota.has_room]
    pods.apply([0], gone=True)
    assert [*room, pods.quota.has_room] == [False, True]
    pods.read(range(1, 6))
    assert (pods.numbers(), pods.quota.withheld, pods.quota.reason) == ([1, 2, 3, 4, 5], 0, "")


def test_what_is_withheld_and_goes_is_withheld_no_more() -> None:
    pods = Held(Holdings(5))
    pods.read(range(6))
    pods.apply([5], gone=True)
    assert (pods.quota.withheld, pods.quota.has_room, pods.numbers()) == (0, False, [0, 1, 2, 3, 4])


def test_all_kinds_of_a_cluster_share_its_limit() -> None:
    holdings = Holdings(5)
    pods, services = Held(holdings), Held(holdings, "Service")
    pods.read(range(4))
    services.read(range(4))
    assert (pods.numbers(), services.numbers(), services.quota.withheld) == ([0, 1, 2, 3], [0], 3)
    pods.apply([0, 1, 2], gone=True)
    assert services.quota.has_room
    services.read(range(4))
    assert services.numbers() == [0, 1, 2, 3]


def test_far_from_the_limit_nothing_is_looked_at_object_by_object() -> None:
    def never(*_: object) -> Any:
        raise AssertionError

    quota = Quota(Holdings(100), never, never)
    changes = {key(number): FACT for number in range(40)}
    assert quota.admit(changes) is changes
    assert quota.admit(changes) is changes


def test_changes_of_what_is_held_do_not_add_up_to_the_limit() -> None:
    pods = Held(Holdings(100))
    pods.read(range(60))
    for _ in range(10):
        pods.apply(range(60))
    pods.apply(range(60, 100))
    assert (len(pods.facts), pods.quota.withheld) == (100, 0)


def test_a_list_without_end_takes_no_more_memory_than_twice_the_limit() -> None:
    quota = Quota(Holdings(10), list, lambda _: False)
    gathered = 0
    for first in range(0, 1000, 10):
        gathered += len(quota.gather([(key(number), FACT) for number in range(first, first + 10)], gathered))
    assert (gathered, quota.withheld) == (10, 990)


STEPS = st.lists(
    st.tuples(st.sampled_from(("apply", "gone", "list")), st.integers(0, 1), st.lists(st.integers(0, 15), max_size=12))
)


@given(STEPS, st.integers(1, 12))
@settings(max_examples=200, deadline=None)
def test_the_limit_is_never_passed_and_what_fits_is_held_after_the_next_list(
    steps: list[tuple[str, int, list[int]]], most: int
) -> None:
    holdings = Holdings(most)
    kinds = Held(holdings), Held(holdings, "Service")
    truth: tuple[set[int], set[int]] = set(), set()
    for step, which, numbers in steps:
        kind, true = kinds[which], truth[which]
        if step == "apply":
            true |= set(numbers)
            kind.apply(numbers)
        elif step == "gone":
            true -= set(numbers)
            kind.apply(numbers, gone=True)
        else:
            true.clear()
            true |= set(numbers)
            kind.read(sorted(true))
        assert sum(len(one.facts) for one in kinds) <= most
        for one, is_there in zip(kinds, truth, strict=True):
            assert set(one.numbers()) <= is_there
            if not one.quota.withheld:
                assert set(one.numbers()) == is_there
