"""What every journal does, shown on the one in memory: claims and fencing, appends as a whole, marks, gaps, flushes."""

from __future__ import annotations

import pytest

from aggregator.cache.journal import (
    DELETED,
    Entry,
    Fenced,
    Gap,
    MemoryJournal,
    Position,
    Records,
)

OWNER = "facts/west"
A = Entry(b"a", b"digest of 1", b"1")
A2 = Entry(b"a", b"digest of 2", b"2")
B = Entry(b"b", b"digest of 1", b"1")
NO_A = Entry(b"a", DELETED, None)


async def claimed(epoch: int = 1, retained: int = 1000) -> MemoryJournal:
    journal = MemoryJournal(retained)
    await journal.claim(OWNER, epoch)
    return journal


async def test_nobody_writes_before_a_claim() -> None:
    with pytest.raises(Fenced, match="facts/west: epoch 1 may not write: nobody has claimed this owner") as refused:
        await MemoryJournal().append(OWNER, 1, [A])
    assert refused.value.forgotten


async def test_an_older_epoch_neither_claims_nor_writes() -> None:
    journal = await claimed(epoch=2)
    with pytest.raises(Fenced, match="epoch 2 has claimed"):
        await journal.claim(OWNER, 1)
    with pytest.raises(Fenced) as refused:
        await journal.append(OWNER, 1, [A], complete=True)
    assert (refused.value.owner, refused.value.epoch, refused.value.newest) == (OWNER, 1, 2)
    assert not refused.value.forgotten
    snapshot = await journal.snapshot(OWNER)
    assert not snapshot.digests
    assert not snapshot.complete


async def test_an_epoch_that_did_not_claim_does_not_write() -> None:
    journal = await claimed(epoch=1)
    with pytest.raises(Fenced) as refused:
        await journal.append(OWNER, 2, [A])
    assert refused.value.forgotten


async def test_a_claim_keeps_rows_and_takes_back_log_and_mark() -> None:
    journal = await claimed(epoch=1)
    position = await journal.append(OWNER, 1, [A], complete=True)
    assert await journal.claim(OWNER, 2)
    snapshot = await journal.snapshot(OWNER)
    assert (snapshot.complete, dict(snapshot.digests)) == (False, {b"a": A.digest})
    assert snapshot.position.number == 0
    assert snapshot.position.incarnation != position.incarnation
    assert await journal.read(OWNER, position, limit=10) == Gap()
    assert not await journal.claim(OWNER, 2)


async def test_owners_know_nothing_of_each_other() -> None:
    journal = await claimed()
    await journal.claim("facts/east", 7)
    await journal.append(OWNER, 1, [A], complete=True)
    east = await journal.snapshot("facts/east")
    assert not east.complete
    assert not east.digests


async def test_an_append_advances_the_position_by_one_and_is_read_as_a_whole() -> None:
    journal = await claimed()
    start = (await journal.snapshot(OWNER)).position
    first = await journal.append(OWNER, 1, [A, B])
    second = await journal.append(OWNER, 1, [NO_A])
    assert second.number == first.number + 1 == start.number + 2
    assert await journal.read(OWNER, start, limit=10) == Records(
        second, complete=False, appends=(((b"a", A.digest), (b"b", B.digest)), ((b"a", DELETED),))
    )


async def test_an_append_of_nothing_checks_the_claim_and_sets_the_mark_only() -> None:
    journal = await claimed()
    before = await journal.append(OWNER, 1, [A])
    assert await journal.append(OWNER, 1, [], complete=True) == before
    assert (await journal.snapshot(OWNER)).complete
    with pytest.raises(Fenced):
        await journal.append(OWNER, 0, [])


async def test_the_mark_stays_over_later_appends() -> None:
    journal = await claimed()
    await journal.append(OWNER, 1, [A], complete=True)
    await journal.append(OWNER, 1, [B])
    assert (await journal.snapshot(OWNER)).complete


async def test_values_come_with_their_present_digest_in_the_order_asked_for() -> None:
    journal = await claimed()
    await journal.append(OWNER, 1, [A, B])
    await journal.append(OWNER, 1, [A2])
    assert await journal.values(OWNER, [b"b", b"none", b"a"]) == [(B.digest, b"1"), None, (A2.digest, b"2")]


async def test_reading_goes_on_from_the_position_of_the_last_records() -> None:
    journal = await claimed()
    position = (await journal.snapshot(OWNER)).position
    for number in range(5):
        await journal.append(OWNER, 1, [Entry(b"%d" % number, b"x", b"")])
    seen: list[bytes] = []
    for expected in (2, 2, 1, 0):
        records = await journal.read(OWNER, position, limit=2)
        assert isinstance(records, Records)
        assert len(records.appends) == expected
        seen += [key for append in records.appends for key, _ in append]
        position = records.position
    assert seen == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_log_that_was_trimmed_is_a_gap() -> None:
    journal = await claimed(retained=2)
    position = (await journal.snapshot(OWNER)).position
    for _ in range(2):
        await journal.append(OWNER, 1, [A])
    assert isinstance(await journal.read(OWNER, position, limit=10), Records)
    await journal.append(OWNER, 1, [A])
    assert await journal.read(OWNER, position, limit=10) == Gap()


async def test_a_position_the_log_has_not_reached_is_a_gap() -> None:
    journal = await claimed()
    position = await journal.append(OWNER, 1, [A])
    ahead = Position(position.incarnation, position.number + 1)
    assert await journal.read(OWNER, ahead, limit=10) == Gap()


async def test_a_flush_loses_claims_rows_and_mark_and_begins_another_incarnation() -> None:
    journal = await claimed()
    position = await journal.append(OWNER, 1, [A], complete=True)
    journal.flush()
    assert await journal.read(OWNER, position, limit=10) == Gap()
    assert await journal.values(OWNER, [b"a"]) == [None]
    with pytest.raises(Fenced, match="nobody"):
        await journal.append(OWNER, 1, [A])
    await journal.claim(OWNER, 1)
    snapshot = await journal.snapshot(OWNER)
    assert snapshot.position.incarnation not in {"", position.incarnation}
    assert (snapshot.complete, dict(snapshot.digests)) == (False, {})


async def test_before_any_claim_there_is_nothing_to_read_and_no_gap() -> None:
    journal = MemoryJournal()
    assert (await journal.snapshot(OWNER)).position == Position()
    assert await journal.read(OWNER, Position(), limit=10) == Records(Position(), complete=False, appends=())
