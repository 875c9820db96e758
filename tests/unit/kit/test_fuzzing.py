"""The means of fuzzing: that a fault is found, shrunk and told with its seed, and that slowness is a fault."""

from __future__ import annotations

import time

import pytest
from hypothesis import strategies as st

from tests.kit import fuzzing
from tests.kit.fuzzing import bounded, fuzz
from tests.kit.hostile import (
    BYTES,
    VARINT,
    damaged,
    damaged_der,
    damaged_message,
    damaged_value,
    der,
    elements_of,
    field_bytes,
    fields_of,
)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzing, "SECONDS", 0.2)


def test_an_input_that_fails_is_shrunk_and_told_with_the_seed_of_its_round() -> None:
    smallest = []

    def check(number: int) -> None:
        if number >= 1000:
            smallest.append(number)
            raise RuntimeError("found")

    with pytest.raises(RuntimeError, match="found") as caught:
        fuzz(check, st.integers(0, 10**6), share=20)
    assert smallest[-1] == 1000
    assert any(note.startswith("To run this round again: ISTHMUS_FUZZ_SEED=") for note in caught.value.__notes__)


def test_the_seed_of_a_round_makes_the_same_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzing, "_SEED", "7")
    rounds: list[list[bytes]] = [[], []]
    for seen in rounds:
        fuzz(seen.append, damaged(st.just(b"some bytes")))
    assert rounds[0] == rounds[1]
    assert len(rounds[0]) > 10


def test_two_runs_try_the_same_inputs_unless_random_ones_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzing, "SECONDS", 0)
    runs: list[list[bytes]] = [[], [], []]
    for seen, chance in zip(runs, (False, False, True), strict=True):
        monkeypatch.setattr(fuzzing, "_RANDOM", chance)
        fuzz(seen.append, damaged(st.just(b"some bytes")))
    assert runs[0] == runs[1] != runs[2]


def test_an_input_that_is_too_large_to_be_shown_fails_as_itself() -> None:
    def check(data: bytes) -> None:
        raise RuntimeError(len(data))

    with pytest.raises(RuntimeError, match="100000"):
        fuzz(check, st.just(b"x" * 100_000))


def test_it_goes_on_until_the_time_is_over() -> None:
    begun = time.monotonic()
    assert fuzz(lambda _: None, st.integers()) > 50
    assert time.monotonic() - begun >= fuzzing.SECONDS


def test_what_takes_too_long_is_a_fault_whatever_its_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzing, "_slowness", lambda: 1.0)

    def busy(fail: bool) -> None:
        end = time.thread_time() + 2 * fuzzing.MOST_SECONDS
        while time.thread_time() < end:
            pass
        if fail:
            raise ValueError

    for fail in (False, True):
        with pytest.raises(AssertionError, match="ms of CPU"):
            bounded(lambda fail=fail: busy(fail))  # type: ignore[misc]

    monkeypatch.setattr(fuzzing, "_slowness", lambda: 20.0)
    bounded(lambda: busy(False))


def test_what_is_quick_has_its_outcome() -> None:
    assert bounded(lambda: 5) == 5
    with pytest.raises(ValueError, match="refused"):
        bounded(lambda: int("refused"))


def test_messages_are_taken_apart_and_put_together_the_same() -> None:
    fields = [(1, BYTES, b"\xff" * 300), (1000, VARINT, b"\x80\x01"), (2, BYTES, b"")]
    data = b"".join(field_bytes(*field) for field in fields)
    assert fields_of(data) == fields
    assert fields_of(data[:-1]) is None


def test_elements_are_taken_apart_and_put_together_the_same() -> None:
    data = der(0x30, der(0x02, b"\1"), der(0x04, b"x" * 300)) + der(0x05)
    elements = elements_of(data)
    assert elements is not None
    assert b"".join(der(*element) for element in elements) == data
    assert elements_of(data[:-1]) is None


def test_damage_changes_most_inputs_and_leaves_what_it_was_given() -> None:
    value = {"a": [1, {"b": "c"}], "d": None}
    message = field_bytes(1, BYTES, field_bytes(2, BYTES, b"text"))
    changed = []

    def check(one: object, two: bytes, three: bytes, four: bytes) -> None:
        changed.append((one != value) + (two != message) + (three != b"some bytes") + (four != der(0x30, der(0x05))))

    sound = damaged_value(st.just(value)), damaged_message(st.just(message))
    fuzz(check, *sound, damaged(st.just(b"some bytes")), damaged_der(st.just(der(0x30, der(0x05)))))
    assert value == {"a": [1, {"b": "c"}], "d": None}
    assert sum(changed) > 2 * len(changed)
