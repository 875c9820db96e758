"""A JSON value that is opened only where somebody looks.

When an object is refused, `kinds` and `invalid` follow one path through it, to say which object and field it is. To
build all its values for that would cost more than reading it did: a megabyte can hold half a million lists. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

_MAPPING = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SEQUENCE = msgspec.json.Decoder(list[msgspec.Raw])
_SCALAR = msgspec.json.Decoder(str | float | int | bool | None)
_BLANK = b" \t\n\r"


class OpenedMapping(Mapping[str, object]):
    """A JSON object, each of whose values is opened when it is asked for."""

    def __init__(self, entries: dict[str, msgspec.Raw]) -> None:
        self._entries = entries

    def __getitem__(self, key: str) -> object:
        return opened(self._entries[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class OpenedSequence(Sequence[object]):
    """A JSON list, each of whose values is opened when it is asked for."""

    def __init__(self, entries: list[msgspec.Raw]) -> None:
        self._entries = entries

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return OpenedSequence(self._entries[index])
        return opened(self._entries[index])

    def __len__(self) -> int:
        return len(self._entries)


def opened(data: bytes | msgspec.Raw) -> object:
    """The value: a mapping or a sequence whose entries are not opened yet, or what stands for itself.

    None for what cannot be read: no JSON, no text, or nested too deeply to be passed over.
    """
    view = memoryview(data)
    first = next((byte for byte in view if byte not in _BLANK), 0)
    try:
        if first == ord("{"):
            return OpenedMapping(_MAPPING.decode(view))
        if first == ord("["):
            return OpenedSequence(_SEQUENCE.decode(view))
        return _SCALAR.decode(view)
    except (msgspec.DecodeError, RecursionError):
        return None
