"""Whatever goes wrong and in whatever order: what is held was the server's content at some moment, never an earlier
one than before, and is its present content once the server behaves.

A toy server and a driver without I/O carry out what the machine says; time is a number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from watchers.facts import Fact, Namespace, ObjectKey
from watchers.facts.kinds import Page
from watchers.kubernetes.events import Events, Refusal
from watchers.kubernetes.listwatch import (
    Action,
    Apply,
    Discover,
    Failure,
    List,
    ListWatch,
    Pace,
    Replace,
    Report,
    Wait,
    Watch,
)

NAMES = "abcd"
PACE = Pace(limit=2)
Content = dict[ObjectKey, Fact]


class Write(msgspec.Struct, frozen=True):
    """An object is set to one of a few contents, or deleted (None)."""

    name: str
    value: int | None


class Compact(msgspec.Struct, frozen=True):
    """The server forgets its history."""


class Refuse(msgspec.Struct, frozen=True):
    """The next request is answered with a status, or the open watch told of it."""

    refusal: Refusal


class Fail(msgspec.Struct, frozen=True):
    """The next request, or the open watch, comes to nothing."""

    reason: Literal["connect", "timeout", "server", "decode"]


class Garble(msgspec.Struct, frozen=True):
    """The open watch says something that is no event."""


class End(msgspec.Struct, frozen=True):
    """The open watch ends."""


class Tell(msgspec.Struct, frozen=True):
    """The open watch tells of so many writes it has not told of yet, and perhaps its version."""

    most: int
    bookmark: bool


class Pass(msgspec.Struct, frozen=True):
    """Seconds pass."""

    seconds: float


Step = Write | Compact | Refuse | Fail | Garble | End | Tell | Pass
CODES = (400, 401, 403, 404, 405, 410, 422, 429, 500, 503)
REFUSALS = st.sampled_from(
    [*(Refusal(code) for code in CODES), Refusal(504, too_large=True), Refusal(429, retry_after=9)]
)
STEPS: st.SearchStrategy[Step] = st.one_of(
    st.builds(Write, st.sampled_from(NAMES), st.none() | st.integers(0, 3)),
    st.builds(Write, st.sampled_from(NAMES), st.none() | st.integers(0, 3)),
    st.builds(Tell, st.integers(0, 3), st.booleans()),
    st.just(Compact()),
    st.builds(Refuse, REFUSALS),
    st.builds(Fail, st.sampled_from(("connect", "timeout", "server", "decode"))),
    st.just(Garble()),
    st.just(End()),
    st.builds(Pass, st.sampled_from((0.0, 1.0, 12.0, 100.0))),
)


class Rig:
    """The machine, the server and what is held, with one request at a time."""

    def __init__(self, chances: Iterator[float], *, streams: bool) -> None:
        self.history: list[Content] = [{}]
        self.compacted = 0
        self.streams = streams
        self.machine = ListWatch(("/apis/x.example/v1/things",), chance=lambda: next(chances), pace=PACE)
        self.held: Content = {}
        # The first moment of the server at which its content was what is held, and not before the last such.
        self.moment = 0
        self.replaced = False
        self.state = ""
        self.now = 0.0
        self.told = 0
        self.initial = False
        self.lists: dict[str, tuple[int, list[ObjectKey]]] = {}
        self.starts: list[float] = []
        self.request: Action = Wait(0, "eof")
        self.take(self.machine.begin(0))

    @property
    def revision(self) -> int:
        return len(self.history) - 1

    def take(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Apply(changes, _, _):
                    for key, fact in changes.items():
                        self._hold(key, fact)
                    self.check()
                case Replace(items, _):
                    self.held = dict(items)
                    self.replaced = True
                    self.check()
                case Report(state, _):
                    self.state = state
                case _:
                    self.request = action
                    self.open()

    def _hold(self, key: ObjectKey, fact: Fact | None) -> None:
        if fact is None:
            self.held.pop(key, None)
        else:
            self.held[key] = fact

    def check(self) -> None:
        moments = [moment for moment in range(self.moment, len(self.history)) if self.history[moment] == self.held]
        assert moments, f"{self.held} was never what the server held since {self.moment}: {self.history}"
        self.moment = moments[0]

    def open(self) -> None:
        """A request has begun: a watch is accepted, or refused as a real server would."""
        match self.request:
            case List(_, _, "", _):
                self.starts.append(self.now)
            case Watch(_, version, initial, _, _):
                self.starts.append(self.now)
                if initial and not self.streams:
                    self.take(self.machine.refused(Refusal(422), self.now))
                    return
                self.initial = initial
                self.told = self.revision if initial else int(version)
                self.take(self.machine.opened(self.now))

    def step(self, step: Step) -> None:
        machine, now = self.machine, self.now
        match step:
            case Write(name, value):
                content = dict(self.history[-1])
                key = ("west", "Namespace", "", name)
                content.pop(key, None)
                if value is not None:
                    content[key] = Namespace((("value", str(value)),), ())
                self.history.append(content)
            case Compact():
                self.compacted = self.revision
            case Pass(seconds):
                self.now += seconds
                if isinstance(self.request, Wait):
                    self.take(machine.passed(self.now))
            case Refuse(refusal) if isinstance(self.request, Watch):
                self.take(machine.events(Events({}, {}, refusal=refusal), now))
            case Refuse(refusal) if isinstance(self.request, List | Discover):
                self.take(machine.refused(refusal, now))
            case Fail(reason) if not isinstance(self.request, Wait):
                self.take(machine.failed(Failure(reason, "scripted"), now))
            case Garble() if isinstance(self.request, Watch):
                self.take(machine.events(Events({}, {}, garbage=True), now))
            case End() if isinstance(self.request, Watch):
                self.take(machine.ended(now))
            case Tell(most, bookmark):
                self.behave(most, bookmark=bookmark)

    def behave(self, most: int, *, bookmark: bool) -> None:
        """The server does what it should, for one answer."""
        machine, now = self.machine, self.now
        match self.request:
            case Wait(seconds, _):
                self.now += seconds
                self.take(machine.passed(self.now))
            case Discover():
                self.take(machine.discovered(frozenset({"x.example/v1"}), now))
            case List(_, limit, token, _):
                revision, keys = self.lists.get(token) or (self.revision, sorted(self.history[-1]))
                if token and revision < self.compacted:
                    self.take(machine.refused(Refusal(410), now))
                    return
                chosen = keys[:limit] if limit else keys
                rest, following = keys[len(chosen) :], ""
                if rest:
                    following = f"{revision}.{len(self.lists)}"
                    self.lists[following] = revision, rest
                facts = [(key, self.history[revision][key]) for key in chosen]
                self.take(machine.page(Page(facts, [], str(revision + 1000), following), now))
            case Watch() if self.initial:
                # Half of it first, then the rest with its end.
                half = dict(list(self.history[self.told].items())[:most])
                self.take(machine.events(Events(dict(half), {}, len(half)), now))
                if bookmark:
                    self.initial = False
                    version = str(self.told + 1000)
                    end = Events(dict(self.history[self.told]), {}, 0, version, version, True)
                    self.take(machine.events(end, now))
            case Watch():
                self.tell(most, bookmark=bookmark)

    def tell(self, most: int, *, bookmark: bool) -> None:
        if self.told >= 1000:
            self.told -= 1000
        if self.told < self.compacted:
            self.take(self.machine.events(Events({}, {}, refusal=Refusal(410)), self.now))
            return
        until = min(self.revision, self.told + most)
        changes: dict[ObjectKey, Fact | None] = {}
        for revision in range(self.told + 1, until + 1):
            before, after = self.history[revision - 1], self.history[revision]
            changes |= {
                key: after.get(key) for key in before.keys() | after.keys() if before.get(key) != after.get(key)
            }
        self.told = until
        version = str(until + 1000) if changes or bookmark else ""
        self.take(
            self.machine.events(Events(changes, {}, len(changes), version, version if bookmark else ""), self.now)
        )


@given(st.lists(STEPS, max_size=60), st.lists(st.floats(0, 1), min_size=1, max_size=5), st.booleans())
@settings(max_examples=150, deadline=None)
def test_any_sequence_of_faults_ends_with_the_content_of_the_server(
    steps: list[Step], chances: list[float], streams: bool
) -> None:
    rig = Rig(iter_for_ever(chances), streams=streams)
    for step in steps:
        rig.step(step)
    # From here on the server behaves.
    for _ in range(30):
        rig.behave(3, bookmark=True)
    assert rig.replaced
    assert rig.held == rig.history[-1]
    assert rig.state == "synced"
    assert isinstance(rig.request, Watch)


@given(st.lists(STEPS, max_size=60), st.lists(st.floats(0, 1), min_size=1, max_size=5), st.booleans())
@settings(max_examples=100, deadline=None)
def test_no_server_is_asked_to_begin_more_than_six_times_in_ten_seconds(
    steps: list[Step], chances: list[float], streams: bool
) -> None:
    rig = Rig(iter_for_ever(chances), streams=streams)
    for step in steps:
        if isinstance(step, Pass):
            # A wait is never cut short.
            rig.now += step.seconds
        elif isinstance(rig.request, Wait):
            rig.behave(0, bookmark=False)
        rig.step(step) if not isinstance(step, Pass) else None
    assert all(sum(1 for other in rig.starts if start <= other < start + 10) <= 6 for start in rig.starts)


def iter_for_ever(chances: list[float]) -> Iterator[float]:
    while True:
        yield from chances
