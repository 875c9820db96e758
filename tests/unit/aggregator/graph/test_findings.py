"""Findings: noted by evaluations, told by subject, withdrawn when no evaluation stands behind them any more."""

from __future__ import annotations

import pytest

from aggregator.graph import At, Graph, Source
from tests.kit.toy_graph import run, snapshot


class Notes:
    """Items that note words on subjects: `{"subject": "word word"}`; the subject `x` is derived from twice."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.source: Source[int, tuple[tuple[str, str], ...]] = self.graph.source("notes")
        self.graph.derive("first", self.source, self._note)
        self.graph.expand("second", self.source, self._expand)

    @staticmethod
    def _note(at: At, key: int, notes: tuple[tuple[str, str], ...]) -> int:
        for subject, word in notes:
            at.note(subject, word)
        if ("x", "raise") in notes:
            raise ValueError("after the note")
        return key

    @staticmethod
    def _expand(at: At, key: int, notes: tuple[tuple[str, str], ...]) -> tuple[tuple[int, int], ...]:
        for subject, word in notes:
            if subject == "x":
                at.note(subject, word)
        return ()


@pytest.fixture
def notes() -> Notes:
    return Notes()


def test_findings_are_told_by_subject_sorted_and_without_repeats(notes: Notes) -> None:
    done = run(notes.graph, {notes.source: {1: (("x", "b"), ("x", "a"), ("y", "c")), 2: (("x", "a"),)}})
    assert done.published == {"findings": {"x": ("a", "b"), "y": ("c",)}}
    assert notes.graph.findings_of("x") == ("a", "b")
    assert notes.graph.findings_of("nobody") == ()


def test_a_finding_stands_as_long_as_one_evaluation_notes_it(notes: Notes) -> None:
    run(notes.graph, {notes.source: {1: (("x", "a"),), 2: (("x", "a"),)}})
    assert run(notes.graph, {notes.source: {1: ()}}).published == {}
    assert run(notes.graph, {notes.source: {2: ()}}).published == {"findings": {"x": None}}


def test_a_finding_goes_with_its_item(notes: Notes) -> None:
    run(notes.graph, {notes.source: {1: (("x", "a"), ("y", "b"))}})
    assert run(notes.graph, {notes.source: {1: None}}).published == {"findings": {"x": None, "y": None}}
    assert snapshot(notes.graph) == snapshot(Notes().graph)


def test_a_finding_may_move_to_another_subject(notes: Notes) -> None:
    run(notes.graph, {notes.source: {1: (("y", "a"), ("z", "a"))}})
    done = run(notes.graph, {notes.source: {1: (("w", "a"), ("z", "a"))}})
    assert done.published == {"findings": {"y": None, "w": ("a",)}}


def test_a_finding_that_passes_from_item_to_item_is_no_change(notes: Notes) -> None:
    run(notes.graph, {notes.source: {1: (("x", "a"),)}})
    assert run(notes.graph, {notes.source: {1: (), 2: (("x", "a"),)}}).published == {}


def test_what_was_noted_before_a_failure_is_told(notes: Notes) -> None:
    done = run(notes.graph, {notes.source: {1: (("x", "raise"),)}})
    assert done.published == {"findings": {"x": ("raise",)}}
    assert [failure.collection for failure in done.failures] == ["first"]


def test_what_raises_leaves_the_finding_it_is_blamed_with_for_as_long_as_it_raises() -> None:
    graph = Graph(failed=lambda collection, item, error: (item, f"{collection}: {error}"))
    numbers: Source[int, int] = graph.source("numbers")
    graph.derive("inverses", numbers, lambda _at, _key, number: 1 / number)
    failed = run(graph, {numbers: {1: 0, 2: 5}})
    assert failed.published == {"findings": {1: ("inverses: ZeroDivisionError: division by zero",)}}
    assert run(graph, {numbers: {1: 4}}).published == {"findings": {1: None}}
