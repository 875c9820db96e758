"""JSON that is opened where somebody looks: the same values, at any place, and nothing built beside the way there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchers.facts.opened import opened

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def whole(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: whole(entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [whole(entry) for entry in value]
    return value


@given(VALUES, st.sampled_from([None, 1]))
def test_it_holds_what_the_json_says(value: Any, indent: int | None) -> None:
    assert whole(opened(json.dumps(value, indent=indent).encode())) == value


@pytest.mark.parametrize("data", [b"", b" ", b"{", b"[1", b'{"a":}', b"nonsense", b'"\xff"', b"[" * 100_000])
def test_what_cannot_be_read_is_none(data: bytes) -> None:
    assert opened(data) is None


def test_a_fault_in_one_place_leaves_the_others_readable() -> None:
    document = opened(b'{"metadata": {"name": "cart"}, "spec": "\xff"}')
    assert isinstance(document, Mapping)
    assert whole(document["metadata"]) == {"name": "cart"}
    assert document["spec"] is None


def test_positions_and_slices_of_lists() -> None:
    value = opened(b'[1, [2], "3"]')
    assert isinstance(value, Sequence)
    assert (value[0], value[-1], whole(value[:2])) == (1, "3", [1, [2]])
    with pytest.raises(IndexError):
        value[3]
