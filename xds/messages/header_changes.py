"""Changes of headers on the way: what a route removes, adds and sets of a request's or an answer's.

Values are taken as they are: Envoy would read a `%` as the beginning of a command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from xds import protos

if TYPE_CHECKING:
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

_core = protos.envoy.config.core.v3


class HeaderChanges(Struct, frozen=True, gc=False):
    """What is done to headers, in this order. Names and values are `removed`, `added` to those there are, and `put` in
    the place of those there are; so are those in `formatted`, in whose values Envoy's commands (`%...%`) count.
    """

    removed: tuple[str, ...] = ()
    added: tuple[tuple[str, str], ...] = ()
    put: tuple[tuple[str, str], ...] = ()
    formatted: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.removed or self.added or self.put or self.formatted)


UNCHANGED: Final = HeaderChanges()


def write_headers(
    place: RepeatedCompositeFieldContainer[protos.envoy.config.core.v3.HeaderValueOption], changes: HeaderChanges
) -> None:
    """Add what is added and put; names to remove have a field of their own."""
    for pairs, action in (
        (changes.added, _core.HeaderValueOption.APPEND_IF_EXISTS_OR_ADD),
        (changes.put, _core.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD),
    ):
        for name, value in pairs:
            added = place.add(append_action=action)
            added.header.key, added.header.value = name, value.replace("%", "%%")
    for name, value in changes.formatted:
        added = place.add(append_action=_core.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD)
        added.header.key, added.header.value = name, value
