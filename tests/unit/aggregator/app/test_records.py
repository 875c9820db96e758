from __future__ import annotations

from aggregator.app.records import Reader, Records


def test_a_reader_sees_what_is_appended_after_it_came_in_order() -> None:
    records = Records()
    records.append("before")
    reader = records.reader()
    records.append(1)
    records.append(2)
    assert reader.take() == [1, 2]
    assert reader.take() == []


def test_readers_do_not_take_from_each_other() -> None:
    records = Records()
    first, second = records.reader(), records.reader()
    records.append(1)
    assert first.take() == [1]
    records.append(2)
    assert second.take() == [1, 2]
    assert first.take() == [2]


def test_the_ring_keeps_the_newest_and_the_reader_counts_what_it_missed() -> None:
    records = Records(size=4)
    reader = records.reader()
    for number in range(10):
        records.append(number)
    assert reader.take() == [6, 7, 8, 9]
    assert reader.missed == 6
    assert reader.unread == 0


def test_recent_shows_all_that_is_kept_and_moves_no_reader() -> None:
    records = Records(size=3)
    reader = records.reader()
    for number in range(4):
        records.append(number)
    assert records.recent() == [1, 2, 3]
    assert reader.unread == 4


def test_a_reader_that_takes_at_the_bell_misses_nothing() -> None:
    records = Records(size=8)
    taken: list[object] = []
    reader: Reader = records.reader(bell=lambda: taken.extend(reader.take()))
    for number in range(1000):
        records.append(number)
    taken += reader.take()
    assert taken == list(range(1000))
    assert reader.missed == 0


def test_the_bell_is_rung_once_when_half_the_ring_is_unread() -> None:
    records = Records(size=8)
    rung: list[int] = []
    reader = records.reader(bell=lambda: rung.append(records.appended))
    for _ in range(20):
        records.append(None)
    assert rung == [4]
    reader.take()
    for _ in range(4):
        records.append(None)
    assert rung == [4, 24]


def test_each_reader_is_rung_by_its_own_backlog() -> None:
    records = Records(size=8)
    rung: list[str] = []
    first = records.reader(bell=lambda: rung.append("first"))
    records.append(1)
    records.append(2)
    records.reader(bell=lambda: rung.append("second"))
    first.take()
    records.append(3)
    assert rung == []
    for number in range(3):
        records.append(number)
    assert rung == ["first", "second"]


def test_a_closed_reader_is_not_rung() -> None:
    records = Records(size=4)
    rung: list[int] = []
    reader = records.reader(bell=lambda: rung.append(1))
    reader.close()
    for _ in range(10):
        records.append(None)
    assert rung == []
