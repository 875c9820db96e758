"""Whatever a watch tells twice, late or in another order: what is held goes forward only, and ends as it should.

Histories are real ones of the fake API server, mangled on their way; the machine asks for a list where it has to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.kube_store import RESOURCES, Store
from tests.kit.manifests import namespace
from watchers.facts import Fact, ObjectKey
from watchers.facts.kinds import KINDS, Page
from watchers.kubernetes.events import EventReader
from watchers.kubernetes.listwatch import Action, Apply, List, ListWatch, Replace, Wait
from watchers.kubernetes.sequence import in_order

NAMESPACE = next(kind for kind in KINDS if kind.name == "Namespace")
NAMES = "abc"
Write = tuple[str, bool]


def line(version: int | str, name: str = "a", change: str = "MODIFIED", **metadata: object) -> bytes:
    document = {"type": change, "object": {"metadata": {"name": name, "resourceVersion": str(version), **metadata}}}
    return json.dumps(document, separators=(",", ":")).encode()


def test_lines_in_order_are_taken_as_they_are() -> None:
    lines = [line(6), line(7), line(7, change="BOOKMARK"), line(9)]
    assert in_order(lines, "5") == (lines, False)


def test_lines_are_put_in_the_order_of_their_versions_and_bookmarks_behind_what_they_tell_of() -> None:
    lines = [line(8, change="BOOKMARK"), line(8), line(6), line(7)]
    assert in_order(lines, "5") == ([lines[2], lines[3], lines[1], lines[0]], False)


def test_the_last_version_once_more_is_nothing_and_an_earlier_one_is_old() -> None:
    assert in_order([line(5)], "5") == ([], False)
    assert in_order([line(4), line(6)], "5") == ([line(6)], True)


@pytest.mark.parametrize("after", ["", "abc", "5.1", "-5", "9" * 40])
def test_versions_that_are_no_numbers_are_not_compared(after: str) -> None:
    lines = [line(3), line(2)]
    assert in_order(lines, after) == (lines, False)
    assert in_order([line("x"), *lines], "5") == ([line("x"), *lines], False)


def test_versions_grow_in_length_too() -> None:
    lines = [line(99), line(100), line(1000), line(1001)]
    assert in_order(lines, "9") == (lines, False)
    assert in_order([line(100), line(99)], "9") == ([line(99), line(100)], False)


BROKEN_OFF = [b'{"resourceVersion":"', b'{"resourceVersion":"7', b'{"resourceVersion":"7x"', b'"', b""]


@pytest.mark.parametrize("odd", BROKEN_OFF)
def test_lines_that_break_off_are_left_to_whoever_reads_them(odd: bytes) -> None:
    assert in_order([line(6), odd, line(7)], "5") == ([line(6), odd, line(7)], False)


def test_what_ends_a_batch_ends_the_order() -> None:
    lines = [line(8), line(7), b"<html>", line(6)]
    assert in_order(lines, "5") == ([lines[1], lines[0], b"<html>", lines[3]], False)


def test_text_that_looks_like_a_version_is_none() -> None:
    plain = json.dumps({"metadata": {"resourceVersion": "1"}})
    odd = [
        line(7, annotations={"last-applied": plain, "resourceVersion": "2"}),
        line(8, labels={"resourceVersion": "3"}),
    ]
    assert in_order(odd, "6") == (odd, False)
    turned = [b'{"type":"ADDED","object":{"metadata":{"labels":{"resourceVersion":"2"},"resourceVersion":"7"}}}']
    assert in_order(turned, "6") == (turned, False)


class Server:
    """A history of Namespaces, each write of which has its number as a label."""

    def __init__(self, writes: list[Write]) -> None:
        self.store = Store([one for one in RESOURCES if one.kind == "Namespace"])
        self.contents: list[dict[ObjectKey, Fact]] = [{}]
        for place, (name, deletes) in enumerate(writes):
            if deletes and self.store.get("Namespace", ("", name)):
                self.store.delete("Namespace", name)
            elif not deletes:
                self.store.apply(namespace(name, labels={"write": str(place)}))
        events = list(self.store.events("Namespace", 1000, lambda _: True))
        self.lines = [b'{"type":"%s","object":%s}' % (change.encode(), stored.data) for change, stored in events]
        reader = EventReader(NAMESPACE, "west", "istio-system")
        for one in self.lines:
            content = dict(self.contents[-1])
            for key, fact in reader.read([one]).changes.items():
                content.pop(key, None)
                if fact is not None:
                    content[key] = fact
            self.contents.append(content)

    def mangled(self, data: st.DataObject) -> list[list[bytes]]:
        """Its lines in batches, with some told twice, some late, and parts of the history all over again."""
        lines = list(self.lines)
        for _ in range(data.draw(st.integers(0, 4))):
            at = data.draw(st.integers(0, max(len(lines) - 1, 0)))
            match data.draw(st.sampled_from(("twice", "late", "replay"))):
                case "twice":
                    lines[at:at] = lines[at : at + 1]
                case "late":
                    late = lines[at : at + 1]
                    del lines[at : at + 1]
                    to = at + data.draw(st.integers(1, 4))
                    lines[to:to] = late
                case "replay":
                    lines[at:at] = self.lines[: at + 1]
        cuts = sorted(data.draw(st.lists(st.integers(0, len(lines)), max_size=6)))
        return [lines[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(lines)], strict=True)]


class Holder:
    """The machine, carried out against a server; what is held of every key never goes back."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.machine = ListWatch(("/api/v1/namespaces",), chance=lambda: 0.5, streaming=False)
        self.reader = EventReader(NAMESPACE, "west", "istio-system")
        self.held: dict[ObjectKey, Fact] = {}
        self.moments: dict[ObjectKey, int] = {}
        self.told = 0
        self.now = 0.0
        self.lists = 0
        self.take(self.machine.begin(0))

    def take(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Apply(changes, _, _):
                    self.hold({**self.held, **changes})
                case Replace(items, _):
                    self.hold(dict(items))
                case Wait(seconds, _):
                    self.now += seconds
                    self.take(self.machine.passed(self.now))
                case List():
                    # The server has written at least what it has told of.
                    self.lists += 1
                    facts = list(self.server.contents[self.told].items())
                    self.take(self.machine.page(Page(facts, [], str(1000 + self.told), ""), self.now))

    def hold(self, content: Mapping[ObjectKey, Fact | None]) -> None:
        self.held = {key: fact for key, fact in content.items() if fact is not None}
        for key in {key for moment in self.server.contents for key in moment}:
            since = self.moments.get(key, 0)
            history = self.server.contents[since:]
            found = [number for number, moment in enumerate(history, since) if moment.get(key) == self.held.get(key)]
            assert found, f"{key} went back behind write {since}"
            self.moments[key] = found[0]

    def hear(self, lines: list[bytes]) -> None:
        told = [self.server.lines.index(one) + 1 for one in lines]
        self.told = max([self.told, *told])
        self.take(self.machine.events(self.reader.read(lines, self.machine.told_until), self.now))


@given(
    st.lists(st.tuples(st.sampled_from(NAMES), st.booleans()), max_size=12),
    st.data(),
)
@settings(max_examples=300, deadline=None)
def test_what_is_told_twice_late_or_again_ends_in_the_true_state_and_nothing_goes_back(
    writes: list[Write], data: st.DataObject
) -> None:
    server = Server(writes)
    holder = Holder(server)
    for batch in server.mangled(data):
        holder.hear(batch)
    assert holder.held == server.contents[-1]


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.booleans()), max_size=12), st.data())
@settings(max_examples=50, deadline=None)
def test_a_history_in_order_needs_no_second_list(writes: list[Write], data: st.DataObject) -> None:
    server = Server(writes)
    holder = Holder(server)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(server.lines)), max_size=6)))
    for begin, end in zip([0, *cuts], [*cuts, len(server.lines)], strict=True):
        holder.hear(server.lines[begin:end])
    assert (holder.held, holder.lists) == (server.contents[-1], 1)
