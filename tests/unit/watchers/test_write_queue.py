"""Rules of `watchers.write_queue`: what is sent when, whatever comes of it."""

from __future__ import annotations

import pytest

from watchers.write_queue import Manner, WriteQueue
from watchers.writes import IngressStatus, Write, WriteKey

MANNER = Manner(rate=10, burst=3, first_pause=1, longest_pause=8, forbidden_pause=60, calm=600)
A, B = IngressStatus(("192.0.2.1",)), IngressStatus(("192.0.2.2",))


def key(name: str, kind: str = "Ingress") -> WriteKey:
    return ("home", kind, "shop", name, "status")


class Queue:
    """A queue over a table that the test changes."""

    def __init__(self, *names: str, manner: Manner = MANNER) -> None:
        self.table: dict[WriteKey, Write] = {}
        self.queue = WriteQueue(manner, self.table.get, now=0.0, chance=lambda: 1.0)
        for name in names:
            self.set(key(name))

    def set(self, key: WriteKey, write: Write = A) -> None:
        self.table[key] = write
        self.queue.add(key)

    def drop(self, key: WriteKey) -> None:
        del self.table[key]
        self.queue.add(key)

    def next(self, now: float) -> str:
        """The name of what is to be sent, "" if nothing is."""
        found = self.queue.next(now)
        return found[0][3] if found else ""

    def all(self, now: float) -> list[str]:
        names = []
        while name := self.next(now):
            names.append(name)
        return names


def test_keys_take_their_turn() -> None:
    assert Queue("a", "b", "c").all(0) == ["a", "b", "c"]


def test_more_than_a_burst_waits_for_the_rate() -> None:
    queue = Queue("a", "b", "c", "d", "e")
    assert queue.all(0) == ["a", "b", "c"]
    assert queue.queue.moment(0) == pytest.approx(0.1)
    assert queue.all(0.1) == ["d"]
    assert queue.all(0.2) == ["e"]


def test_the_newest_is_sent_and_what_is_needless_by_then_is_not() -> None:
    queue = Queue("a", "b")
    queue.set(key("a"), B)
    queue.drop(key("b"))
    assert queue.queue.next(0) == (key("a"), B)
    assert queue.next(0) == ""


def test_of_one_object_there_is_one_write_under_way_and_what_came_meanwhile_follows() -> None:
    queue = Queue("a")
    assert queue.next(0) == "a"
    queue.set(key("a"), B)
    assert queue.next(0) == ""
    queue.queue.done(key("a"), 1, A)
    assert queue.queue.next(1) == (key("a"), B)


def test_a_write_that_only_fails_itself_waits_longer_and_longer_and_holds_nobody_up() -> None:
    queue = Queue("a", "b")
    now, pauses = 0.0, list[float]()
    assert queue.next(0) == "a"
    for _ in range(5):
        queue.queue.again(key("a"), now)
        moment = queue.queue.moment(now)
        if not pauses:
            assert queue.next(0) == "b"
            queue.queue.done(key("b"), 0, A)
            moment = queue.queue.moment(now)
        assert moment is not None
        pauses.append(moment - now)
        assert queue.next(moment - 0.01) == ""
        now = moment
        assert queue.next(now) == "a"
    assert pauses == [1, 2, 4, 8, 8]


def test_other_content_is_not_made_to_wait_for_the_failures_of_the_old() -> None:
    queue = Queue("a")
    queue.next(0)
    queue.queue.again(key("a"), 0)
    queue.set(key("a"), B)
    assert queue.next(0) == "a"


def test_a_server_in_trouble_is_left_alone_by_all() -> None:
    queue = Queue("a", "b")
    queue.next(0)
    queue.queue.trouble(key("a"), 0)
    assert queue.next(0.9) == ""
    assert queue.queue.moment(0.9) == 1
    assert queue.next(1) == "b"
    queue.queue.trouble(key("b"), 1)
    assert queue.queue.moment(1) == 3
    assert queue.next(3) == "a"
    queue.queue.done(key("a"), 3, A)
    assert queue.next(3) == "b"
    queue.queue.trouble(key("b"), 3)
    assert queue.queue.moment(3) == 4


def test_failures_that_come_together_are_one_trouble() -> None:
    queue = Queue("a", "b", "c")
    queue.all(0)
    for name in "abc":
        queue.queue.trouble(key(name), 0)
    assert queue.queue.moment(0) == 1


def test_a_server_says_itself_how_long_but_not_for_ever() -> None:
    queue = Queue("a")
    queue.next(0)
    queue.queue.trouble(key("a"), 0, 3)
    assert queue.queue.moment(0) == 3
    queue.next(3)
    queue.queue.trouble(key("a"), 3, 1e9)
    assert queue.queue.moment(3) == 3 + MANNER.longest_pause


def test_of_a_forbidden_kind_one_is_tried_a_minute_and_others_go_on() -> None:
    queue = Queue("a", "b")
    queue.set(key("gateway", "Gateway"))
    assert queue.next(0) == "a"
    queue.queue.forbidden(key("a"), 0)
    queue.set(key("c"))
    assert queue.all(0) == ["gateway"]
    queue.queue.done(key("gateway", "Gateway"), 0, A)
    assert queue.queue.moment(0) == 60
    assert len(queue.all(60)) == 1
    queue.queue.forbidden(key("b"), 60)
    assert queue.queue.moment(60) == 120
    assert len(queue.all(120)) == 1


def test_what_is_forbidden_no_more_is_all_written() -> None:
    queue = Queue("a", "b", "c")
    first = queue.next(0)
    queue.queue.forbidden(key(first), 0)
    tried = queue.next(60)
    queue.queue.done(key(tried), 60, A)
    assert sorted([tried, *queue.all(60)]) == ["a", "b", "c"]


def test_where_what_was_to_be_tried_has_become_needless_another_one_is() -> None:
    queue = Queue("a", "b")
    queue.next(0)
    queue.queue.forbidden(key("a"), 0)
    del queue.table[key("b")]
    assert queue.all(60) == ["a"]


def test_a_write_that_somebody_undoes_is_repeated_more_and_more_seldom() -> None:
    queue = Queue("a")
    now, pauses = 0.0, list[float]()
    for _ in range(5):
        assert queue.next(now) == "a"
        queue.queue.done(key("a"), now, A)
        queue.set(key("a"))
        assert queue.next(now) == ""
        moment = queue.queue.moment(now)
        assert moment is not None
        pauses.append(moment - now)
        now = moment
    assert pauses == [1, 2, 4, 8, 8]


def test_a_write_undone_long_after_is_repeated_at_once() -> None:
    queue = Queue("a")
    queue.next(0)
    queue.queue.done(key("a"), 0, A)
    queue.set(key("a"))
    assert queue.next(2) == "a"


def test_where_nothing_waits_there_is_no_moment() -> None:
    assert Queue().queue.moment(0) is None
