"""What to ask an API server next, to hold what it holds of one kind of objects: a state machine without I/O.

In: what came back (pages, events, refusals, failures, the end of a stream) and the time, as a number of seconds. Out:
Actions for `watchers.kubernetes.reflector` to carry out in order, of which the last is the next request, or the wait
before it; none means to go on reading. The rules are those of the Kubernetes API concepts ("efficient detection of
changes", "streaming lists") and of what API servers do in trouble:

- The present content comes as a streamed list, or in pages where a server refuses that; it counts once it is complete.
- A watch goes on from the last version it told, whatever broke it. Only a server that no longer knows that version, or
  another history than the one read before, leads to a new list, of which the difference counts.
- What counts may become more: a few namespaces are listed by themselves, before the watch goes on from where it was, so
  that nothing they are told since is missed; many lead to a new list.
- What cannot be read is not gone: content is replaced by a complete list alone.
- Waits grow and are jittered; a watch that brought something, or lasted, resets them, a list or an answer does not.
  No server is ever asked to begin more than six times in ten seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from watchers.facts import Fact, ObjectKey
from watchers.facts.invalid import InvalidObject
from watchers.facts.kinds import Page
from watchers.kubernetes.events import Events, Refusal

State = Literal["connecting", "syncing", "synced", "stale", "denied", "absent"]
"""What is known of a kind: not reached yet; being read; held as the server has it; held as it was, while it cannot be
read; refused to this credential; not served by this cluster, which is to hold none of it."""

Reason = Literal[
    "eof", "timeout", "gone", "auth", "throttled", "server", "connect", "decode", "absent", "refused", "selection",
    "room",
]
"""Why a list or a watch has to begin again."""

_STARTS = 4
_STARTS_SECONDS = 10.0
# So many requests may have begun in those seconds before a list and the watch that follows it at once.

_MOST_PARTS = 8
_MOST_PAGES = 20_000
_MOST_RETRY_AFTER = 300.0
_NO_WATCH_LIST = frozenset({400, 405, 406, 415, 422})


class Pace(msgspec.Struct, frozen=True):
    """How long things may take and how often they are tried; seconds, but for ``limit``, the objects of a page.

    ``silence`` is after how long without a line a watch is taken for broken: API servers send a bookmark every minute.
    A watch asks the server to end it after ``watch`` to twice as long, so that an expired credential or a lopsided load
    does not last. ``steady`` is how long a watch must live to count as a success of its own.
    """

    limit: int = 250
    silence: float = 90.0
    list_silence: float = 60.0
    watch: float = 300.0
    steady: float = 10.0
    first_wait: float = 0.8
    longest_wait: float = 30.0
    absent: float = 60.0


USUAL = Pace()


class List(msgspec.Struct, frozen=True):
    """Ask for a page of ``limit`` objects (0: everything at once), the first one if there is no ``continue_token``."""

    path: str
    limit: int
    continue_token: str
    silence: float


class Watch(msgspec.Struct, frozen=True):
    """Open a watch from a version; with ``initial_events`` it begins with all there is (WatchList).

    The server is asked to end it after ``seconds``, and it is broken after ``silence``.
    """

    path: str
    resource_version: str
    initial_events: bool
    seconds: int
    silence: float


class Discover(msgspec.Struct, frozen=True):
    """Ask which API groups there are (GET /apis), to know whether ``group_version`` is gone."""

    group_version: str


class Wait(msgspec.Struct, frozen=True):
    """Leave the request, and come back (`passed`) after so many seconds, because of the reason."""

    seconds: float
    reason: Reason


class Apply(msgspec.Struct, frozen=True):
    """Facts changed; None is a deletion. Of ``invalid`` objects the last good fact stays."""

    changes: Mapping[ObjectKey, Fact | None]
    invalid: Mapping[ObjectKey, InvalidObject]
    objects: int


class Replace(msgspec.Struct, frozen=True):
    """These are all facts there are. Of ``invalid`` objects the last good fact stays, if there is one."""

    items: dict[ObjectKey, Fact]
    invalid: Mapping[ObjectKey, InvalidObject]


class Report(msgspec.Struct, frozen=True):
    """The state has changed, or the reason for it, which is for people."""

    state: State
    reason: str


Action = List | Watch | Discover | Wait | Apply | Replace | Report


class Failure(msgspec.Struct, frozen=True):
    """A request that ended without an answer, or an answer that did not arrive whole or is none."""

    reason: Literal["connect", "timeout", "server", "decode"]
    message: str


class ListWatch:
    """One kind of objects of one server.

    ``paths`` are those of the kind in the versions of its API that can be read, the best first; ``chance`` gives
    numbers from 0 to 1. Every method takes ``now`` and returns actions; `begin` is called first, once.
    """

    def __init__(
        self, paths: Sequence[str], *, chance: Callable[[], float], pace: Pace = USUAL, streaming: bool = True
    ) -> None:
        self._paths = paths
        self._chance = chance
        self._pace = pace
        self._path = 0
        self._phase: Literal["wait", "list", "initial", "watch", "discover", "part"] = "wait"
        self._may_stream = streaming
        self._resource_version = ""
        # The complete content was told once, so there is something to lose.
        self._complete = False
        self._gone_confirmed = False
        # Namespaces that are still to be listed, and whether everything is.
        self._parts: dict[str, None] = {}
        self._part = ""
        self._again = False
        self._pending: dict[ObjectKey, Fact] = {}
        self._invalid: dict[ObjectKey, InvalidObject] = {}
        self._pages = 0
        self._expired_lists = 0
        self._broken_streams = 0
        self._fruitless = 0
        self._failures = 0
        self._opened = 0.0
        self._is_open = False
        self._heard = False
        self._advanced = False
        # Watches in a row that were accepted and then said nothing.
        self._hollow = 0
        self._starts: deque[float] = deque(maxlen=_STARTS + 1)
        self._report = Report("connecting", "")

    @property
    def report(self) -> Report:
        """The state as it was reported last."""
        return self._report

    @property
    def told_until(self) -> str:
        """The version up to which everything was told; "" while the content is being listed."""
        return self._resource_version

    @property
    def watching(self) -> bool:
        """Whether a watch is what is being asked for, or read."""
        return self._phase == "watch"

    @property
    def gathered(self) -> int:
        """Objects of the list that is being read, so far."""
        return len(self._pending)

    def first(self) -> Sequence[tuple[ObjectKey, Fact]]:
        """The objects so far of the first list there is, which replaces nothing; none if it is a later one."""
        return () if self._complete else tuple(self._pending.items())

    def again(self, now: float) -> list[Action]:
        """Everything is to be read anew: there is room for what was not taken."""
        self._again = True
        return [self._wait(0.0, "room", now)]

    def begin(self, now: float) -> list[Action]:
        """The first request."""
        return [self._report, *self.passed(now)]

    def passed(self, now: float) -> list[Action]:
        """The wait is over."""
        self._starts.append(now)
        self._is_open = self._heard = self._advanced = False
        path = self._paths[self._path]
        pace = self._pace
        seconds = int(pace.watch * (1 + self._chance()))
        if self._again:
            self._resource_version = ""
        if self._resource_version and self._parts:
            self._phase = "part"
            self._pending, self._invalid, self._pages = {}, {}, 0
            self._part = next(iter(self._parts))
            return [List(_within(path, self._part), pace.limit, "", pace.list_silence)]
        if self._resource_version:
            self._phase = "watch"
            return [Watch(path, self._resource_version, False, seconds, pace.silence)]
        self._parts, self._again = {}, False
        self._pending, self._invalid, self._pages = {}, {}, 0
        # What cuts a streamed list off twice may let pages through.
        if self._may_stream and self._broken_streams < 2:
            self._phase = "initial"
            return [Watch(path, "", True, seconds, pace.silence)]
        self._phase = "list"
        # A server that compacts faster than we can turn its pages is asked for everything at once.
        return [List(path, 0 if self._expired_lists > 1 else pace.limit, "", pace.list_silence)]

    def widen(self, namespaces: Iterable[str] | None) -> bool:
        """What is in these namespaces (None: in all) counts from now on, too, and is to be read.

        Returns whether to leave the request under way for it at once, see `left`.
        """
        if namespaces is not None:
            self._parts.update(dict.fromkeys(namespaces))
        if namespaces is None or len(self._parts) > _MOST_PARTS:
            self._parts, self._again = {}, True
        # A list goes on, unless it is in vain, and what it lacks is read after it.
        return self._phase == "watch" or (self._again and self._phase in ("list", "initial", "part"))

    def left(self, now: float) -> list[Action]:
        """The request was left, since there is something else to be read."""
        return [self._wait(0.0, "selection", now)]

    def opened(self, now: float) -> list[Action]:
        """The watch was accepted: what comes now are its events."""
        self._opened = now
        self._is_open = True
        if self._phase == "initial":
            return self._reported("syncing")
        return self._reported("synced") if self._hollow < 2 else []

    def page(self, page: Page, now: float) -> list[Action]:
        """A page of the list has arrived whole."""
        self._pending.update(page.facts)
        for error in page.invalid:
            self._invalid[error.key or ("", "", "", error.subject)] = error
        self._pages += 1
        if page.continue_token:
            if self._pages >= _MOST_PAGES:
                return self._failed("server", f"a list does not end after {_MOST_PAGES} pages", now)
            actions = self._reported("syncing") if not self._complete else []
            path = self._paths[self._path]
            if self._phase == "part":
                path = _within(path, self._part)
            return [*actions, List(path, self._pace.limit, page.continue_token, self._pace.list_silence)]
        if self._phase == "part":
            self._parts.pop(self._part, None)
            # Whatever has changed since is told by the watch, though it may begin with what has changed before.
            return [Apply(self._pending, self._invalid, len(self._pending)), *self.passed(now)]
        if not page.resource_version:
            return self._failed("decode", "a list came without a resourceVersion", now)
        self._resource_version = page.resource_version
        # The watch goes on from the list; it is no new beginning, and nothing to wait for.
        return [*self._completed(), *self.passed(now)]

    def events(self, events: Events, now: float) -> list[Action]:
        """Events of the watch have arrived."""
        if events.resource_version:
            self._heard = True
            self._hollow = 0
        if self._phase == "initial":
            actions = self._initial(events, now)
            if not self._resource_version:
                return actions
        else:
            for told in (events.bookmark, events.resource_version):
                if _goes_back(self._resource_version, told):
                    # Restored from a backup, or telling old news again: what is between it will never tell.
                    return self._relist("gone", f"the server went back to version {told}", now)
            actions = self._reported("synced") if events.resource_version else []
            if events.changes or events.invalid:
                actions.append(Apply(events.changes, events.invalid, events.objects))
            self._advance(events.resource_version)
        if events.old:
            # Whether it was told once more, or late, cannot be known.
            return [*actions, *self._relist("gone", "the server tells of versions before those it told already", now)]
        if events.refusal is not None:
            return [*actions, *self._refused(events.refusal, now, told=True)]
        if events.garbage:
            return [*actions, *self._without_fruit("decode", "a line of the watch is no event", now)]
        if self._parts or self._again:
            return [*actions, *self.left(now)]
        return actions

    def ended(self, now: float) -> list[Action]:
        """The stream of the watch has ended as it should."""
        if self._phase == "initial":
            return self._stream_broke("eof", "the streamed list ended before it was complete", now)
        if now - self._opened >= self._pace.steady:
            self._failures = 0
            return [self._wait(0.0, "eof", now)]
        return self._failed("eof", "the server closes watches at once", now)

    def failed(self, failure: Failure, now: float) -> list[Action]:
        """The request or its answer came to nothing."""
        if self._phase == "initial" and failure.reason != "connect":
            return self._stream_broke(failure.reason, failure.message, now)
        if failure.reason == "decode":
            return self._without_fruit("decode", failure.message, now)
        return self._failed(failure.reason, failure.message, now)

    def refused(self, refusal: Refusal, now: float) -> list[Action]:
        """The request was answered with a status other than 200."""
        return self._refused(refusal, now, told=False)

    def discovered(self, group_versions: frozenset[str] | None, now: float) -> list[Action]:
        """The API groups of the server, as in apiVersion; None if it did not tell."""
        group_version = _group_version(self._paths[self._path])
        if group_versions is None or group_version in group_versions:
            return self._failed("server", f"the server lists {group_version}, but does not serve it", now)
        self._gone_confirmed = True
        self._path = 0
        self._resource_version = ""
        return [self._wait(0.0, "absent", now)]

    def _initial(self, events: Events, now: float) -> list[Action]:
        for key, fact in events.changes.items():
            # A later version is told as it is, whether the one before could be used or not.
            self._invalid.pop(key, None)
            if fact is None:
                self._pending.pop(key, None)
            else:
                self._pending[key] = fact
        self._invalid.update(events.invalid)
        if not events.initial_end:
            if events.refusal is not None:
                return self._refused(events.refusal, now, told=True)
            if events.garbage:
                return self._stream_broke("decode", "a line of the streamed list is no event", now)
            if events.bookmark:
                # It takes the request for an ordinary watch.
                return self._without_streaming(now)
            return []
        if not events.resource_version:
            return self._stream_broke("decode", "the streamed list ended without a resourceVersion", now)
        self._phase = "watch"
        self._resource_version = events.resource_version
        return self._completed()

    def _completed(self) -> list[Action]:
        """The content that was gathered is complete."""
        items, invalid = self._pending, self._invalid
        self._pending, self._invalid = {}, {}
        self._complete = True
        self._gone_confirmed = False
        self._expired_lists = self._broken_streams = self._fruitless = 0
        return [Replace(items, invalid), *self._reported("synced")]

    def _advance(self, resource_version: str) -> None:
        if resource_version and resource_version != self._resource_version:
            self._resource_version = resource_version
            self._advanced = True
            self._failures = self._fruitless = 0

    def _refused(self, refusal: Refusal, now: float, *, told: bool) -> list[Action]:
        """``told`` is whether it was an ERROR event of a watch that had been accepted."""
        code = refusal.code
        if code in (401, 403):
            return self._failed("auth", str(refusal), now, state="denied")
        if code == 404:
            return self._not_found(refusal, now)
        if code == 410:
            return self._gone(refusal, now)
        if code == 429:
            return self._failed("throttled", str(refusal), now, retry_after=refusal.retry_after)
        if self._phase == "initial" and code in _NO_WATCH_LIST:
            return self._without_streaming(now)
        if self._phase == "watch" and (told or refusal.too_large or code in (400, 422)):
            return self._without_fruit("server", str(refusal), now, retry_after=refusal.retry_after)
        if self._phase == "initial":
            self._broken_streams += 1
        return self._failed("server", str(refusal), now, retry_after=refusal.retry_after)

    def _gone(self, refusal: Refusal, now: float) -> list[Action]:
        if self._phase == "list":
            self._expired_lists += 1
        return self._relist("gone", str(refusal), now)

    def _not_found(self, refusal: Refusal, now: float) -> list[Action]:
        group_version = _group_version(self._paths[self._path])
        if not group_version or self._phase == "discover":
            # The core API is always served: something else than an API server has answered.
            return self._failed("server", str(refusal), now)
        if self._complete and not self._gone_confirmed and self._report.state != "absent":
            # We hold objects of it. Whoever answered may be a proxy that has lost its way.
            self._phase = "discover"
            return [Discover(group_version)]
        if self._path + 1 < len(self._paths):
            self._path += 1
            return [self._wait(0.0, "absent", now)]
        self._path = 0
        self._pending, self._invalid = {}, {}
        wait = self._pace.absent * (1 + self._chance()) / 2
        self._failures = 0
        actions = self._completed()[:1]
        return [*actions, *self._reported("absent", f"{group_version} is not served"), self._wait(wait, "absent", now)]

    def _without_streaming(self, now: float) -> list[Action]:
        self._may_stream = False
        return [self._wait(0.0, "refused", now)]

    def _stream_broke(self, reason: Reason, message: str, now: float) -> list[Action]:
        """A streamed list did not arrive whole."""
        self._broken_streams += 1
        return self._failed(reason, message, now)

    def _without_fruit(
        self, reason: Reason, message: str, now: float, *, retry_after: float | None = None
    ) -> list[Action]:
        """The server answers this version with an error: the second time a list gets around it."""
        self._fruitless += 1
        if self._fruitless > 1:
            self._fruitless = 0
            return self._relist(reason, message, now, retry_after=retry_after)
        return self._failed(reason, message, now, retry_after=retry_after)

    def _relist(self, reason: Reason, message: str, now: float, *, retry_after: float | None = None) -> list[Action]:
        self._resource_version = ""
        return self._failed(reason, message, now, retry_after=retry_after)

    def _failed(
        self,
        reason: Reason,
        message: str,
        now: float,
        *,
        state: State | None = None,
        retry_after: float | None = None,
    ) -> list[Action]:
        if self._phase == "watch" and self._lasted(now):
            self._failures = 0
        if self._phase == "watch" and self._is_open and not self._heard:
            self._hollow += 1
        self._failures += 1
        pace = self._pace
        wait = min(pace.longest_wait, pace.first_wait * 2.0 ** min(self._failures - 1, 16))
        wait *= (1 + self._chance()) / 2
        if retry_after is not None:
            # Jitter only adds to it: whoever was told to come back at one moment should not come together.
            wait = max(wait, min(retry_after, _MOST_RETRY_AFTER) * (1 + self._chance() / 4))
        # A watch that ends soon has still told what there was to tell, unless it never tells anything.
        held = self._failures < 2 if reason != "eof" else self._hollow < 2
        if state is None and self._complete and not held:
            state = "stale"
        elif state is None and not self._complete:
            state = "connecting"
        actions = self._reported(state, message) if state else []
        return [*actions, self._wait(wait, reason, now)]

    def _lasted(self, now: float) -> bool:
        """Whether the watch that broke was one: it brought something new, or lived long and not in silence."""
        return self._advanced or (self._heard and now - self._opened >= self._pace.steady)

    def _wait(self, seconds: float, reason: Reason, now: float) -> Wait:
        self._phase = "wait"
        self._pending, self._invalid = {}, {}
        if len(self._starts) > _STARTS:
            seconds = max(seconds, self._starts[0] + _STARTS_SECONDS - now)
        return Wait(seconds, reason)

    def _reported(self, state: State, reason: str = "") -> list[Action]:
        report = Report(state, reason)
        if report == self._report or (state == "syncing" and self._complete):
            return []
        self._report = report
        return [report]


def _within(path: str, namespace: str) -> str:
    """The path of the same objects in one namespace."""
    root, _, plural = path.rpartition("/")
    return f"{root}/namespaces/{namespace}/{plural}"


def _group_version(path: str) -> str:
    """``group/version`` of a path under /apis, "" for one of the core API."""
    parts = path.split("/")
    return "/".join(parts[2:4]) if parts[1] == "apis" else ""


def _goes_back(held: str, told: str) -> bool:
    """Whether a version lies before the one held: those of a server are numbers that grow (KEP-5504)."""
    if not (held.isascii() and held.isdigit() and told.isascii() and told.isdigit()):
        return False
    return (len(told), told) < (len(held), held)
