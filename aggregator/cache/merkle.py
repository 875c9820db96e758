"""Proof that two tables hold the same rows, in any process, at any age, whatever the order the rows arrived in.

A row is hashed to 128 bits (xxh3) with its key; a partition has 256 buckets chosen by key, each the sum of its rows'
hashes modulo 2^128, so that a row enters and leaves without looking at its neighbours; a partition's root is the hash
of the 256 sums and a table's root that of its partitions' roots. Buckets show where two copies of a partition differ.

Nothing is computed until somebody asks. The sums resist accidents, not attackers: they are for comparing copies of our
own content, never for deciding whether content of different owners may be shared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec
from xxhash import xxh3_64_intdigest, xxh3_128_digest, xxh3_128_intdigest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

K = TypeVar("K", bound="tuple[str, ...]")
V = TypeVar("V")

BUCKETS = 256
"""Buckets of a partition."""

_MODULUS = 1 << 128

_DIRTY_KEYS = 1024
"""Changed keys a tree may leave unhashed; beyond this and half the partition it is thrown away and made anew."""

_encoder = msgspec.msgpack.Encoder(order="deterministic")


def content_digest(value: object) -> bytes:
    """The 16-byte xxh3-128 of a value as msgspec writes it: equal records have equal digests in every process.

    Raises TypeError for what msgspec cannot write; tables of such values are given a digest function of their own.
    """
    return xxh3_128_digest(_encoder.encode(value))


def encode_key(key: tuple[str, ...]) -> bytes:
    """A key as bytes (MessagePack: every part is framed by its length, so no two keys are written alike)."""
    try:
        return _encoder.encode(key)
    except UnicodeEncodeError:  # a lone surrogate, from a source that was not UTF-8; written as bytes, not as text
        return _encoder.encode([part.encode("utf-8", "surrogatepass") for part in key])


def bucket_of(key: tuple[str, ...]) -> int:
    """The bucket (0 to 255) a key belongs to, the same in every process."""
    return xxh3_64_intdigest(encode_key(key)) % BUCKETS


def difference(ours: Sequence[int], theirs: Sequence[int]) -> tuple[int, ...]:
    """The numbers of the buckets in which two copies of a partition differ; () when they hold the same."""
    return tuple(number for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)) if mine != other)


def table_root(roots: Iterable[tuple[str, bytes]]) -> bytes:
    """The root over (partition, its root); in no particular order, partitions without rows left out by the caller."""
    return xxh3_128_digest(b"".join(encode_key((name,)) + root for name, root in sorted(roots)))


class Tree(Generic[K, V]):
    """The bucket sums of one partition, brought up to date when they are asked for.

    The partition calls `note` before it changes a key. Until the next question the tree holds the value the key had
    when it was last hashed; `stale` tells the partition when that is too much and the tree should be thrown away.
    """

    __slots__ = ("_before", "_digest", "_sums")

    def __init__(self, rows: Mapping[K, V], digest: Callable[[V], bytes]) -> None:
        self._digest = digest
        self._sums: dict[int, int] = {}
        self._before: dict[K, V | None] = dict.fromkeys(rows)

    def note(self, key: K, before: V | None) -> None:
        """Remember what `key` held (None: nothing) unless it has changed already since the sums were made."""
        self._before.setdefault(key, before)

    def stale(self, rows: int) -> bool:
        """True when so many keys wait that a new tree of `rows` rows costs less than this one holds on to."""
        return len(self._before) > max(_DIRTY_KEYS, rows // 2)

    def buckets(self, rows: Mapping[K, V]) -> tuple[int, ...]:
        """The 256 sums of `rows`, which must be the rows that every `note` so far was about."""
        self._refresh(rows)
        return tuple(self._sums.get(number, 0) for number in range(BUCKETS))

    def root(self, rows: Mapping[K, V]) -> bytes:
        """The 16-byte root of `rows`; see `buckets`."""
        return xxh3_128_digest(b"".join(total.to_bytes(16, "big") for total in self.buckets(rows)))

    def _refresh(self, rows: Mapping[K, V]) -> None:
        sums, waiting = self._sums, self._before
        while waiting:
            key, before = waiting.popitem()
            frame = encode_key(key)
            try:
                delta = self._row(frame, rows.get(key)) - self._row(frame, before)
            except BaseException:
                waiting[key] = before
                raise
            number = xxh3_64_intdigest(frame) % BUCKETS
            total = (sums.get(number, 0) + delta) % _MODULUS
            if total:
                sums[number] = total
            else:
                sums.pop(number, None)

    def _row(self, frame: bytes, value: V | None) -> int:
        if value is None:
            return 0
        # The frame of a key says where it ends, so no byte of it can be read as part of the digest.
        return xxh3_128_intdigest(frame + self._digest(value))
