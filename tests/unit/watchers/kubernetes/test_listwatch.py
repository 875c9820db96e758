"""Rules of `watchers.kubernetes.listwatch`, one by one; time is a number."""

from __future__ import annotations

import pytest

from watchers.facts import Fact, Namespace, ObjectKey
from watchers.facts.invalid import InvalidObject
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

PODS = "/api/v1/pods"
GATEWAYS = ("/apis/gateway.networking.k8s.io/v1/gateways", "/apis/gateway.networking.k8s.io/v1beta1/gateways")
PACE = Pace()
FACT = Namespace((), ())
OTHER = Namespace((("a", "b"),), ())


def key(name: str) -> ObjectKey:
    return ("west", "Namespace", "", name)


def machine(*paths: str, chance: float = 1.0, streaming: bool = False) -> ListWatch:
    """A machine whose jitter is always the same; by default its waits are the longest possible."""
    return ListWatch(paths or (PODS,), chance=lambda: chance, streaming=streaming)


def page(*names: str, version: str = "10", following: str = "", invalid: tuple[str, ...] = ()) -> Page:
    return Page([(key(name), FACT) for name in names], [bad(name) for name in invalid], version, following)


def bad(name: str) -> InvalidObject:
    error = InvalidObject(("metadata",), "is odd", "mend it")
    error.subject, error.key = f"Namespace {name}", key(name)
    return error


def told(
    changes: dict[str, Fact | None] | None = None,
    version: str = "",
    *,
    bookmark: bool = False,
    initial_end: bool = False,
    invalid: tuple[str, ...] = (),
    refusal: Refusal | None = None,
    garbage: bool = False,
) -> Events:
    keyed = {key(name): fact for name, fact in (changes or {}).items()}
    errors = {key(name): bad(name) for name in invalid}
    return Events(keyed, errors, len(keyed), version, version if bookmark else "", initial_end, refusal, garbage)


def only(kind: type[Action], actions: list[Action]) -> list[Action]:
    return [action for action in actions if isinstance(action, kind)]


def wait(actions: list[Action]) -> Wait:
    last = actions[-1]
    assert isinstance(last, Wait)
    return last


def watching(*names: str, chance: float = 1.0, now: float = 0.0) -> ListWatch:
    """A machine whose list is complete at version 10, and whose watch is open."""
    made = machine(chance=chance)
    made.begin(now)
    made.page(page(*names), now)
    made.opened(now)
    return made


def test_it_begins_with_a_page_of_the_present_content() -> None:
    assert machine().begin(0) == [Report("connecting", ""), List(PODS, PACE.limit, "", PACE.list_silence)]


def test_pages_are_turned_and_the_content_counts_once_it_is_complete() -> None:
    lister = machine()
    lister.begin(0)
    assert lister.page(page("a", following="next"), 0) == [
        Report("syncing", ""),
        List(PODS, PACE.limit, "next", PACE.list_silence),
    ]
    complete = lister.page(page("b"), 0)
    assert complete[0] == Replace({key("a"): FACT, key("b"): FACT}, {})
    assert complete[1] == Report("synced", "")


def test_the_watch_begins_at_the_version_of_the_list_and_ends_by_chance() -> None:
    lister = machine(chance=0.5)
    lister.begin(0)
    assert lister.page(page(version="41"), 0)[-1] == Watch(PODS, "41", False, 450, PACE.silence)


@pytest.mark.parametrize(
    "interruption",
    [
        lambda lister: lister.failed(Failure("server", "cut"), 1),
        lambda lister: lister.failed(Failure("timeout", "silent"), 1),
        lambda lister: lister.failed(Failure("decode", "no list"), 1),
        lambda lister: lister.refused(Refusal(410, "Expired"), 1),
        lambda lister: lister.refused(Refusal(503), 1),
    ],
)
def test_a_list_that_broke_off_is_forgotten(interruption) -> None:  # type: ignore[no-untyped-def]
    lister = machine()
    lister.begin(0)
    lister.page(page("half", following="next"), 0)
    assert not only(Replace, interruption(lister))
    assert lister.passed(9) == [List(PODS, PACE.limit, "", PACE.list_silence)]
    assert lister.page(page("whole"), 9)[0] == Replace({key("whole"): FACT}, {})


def test_a_list_whose_pages_expire_twice_is_asked_for_in_one_piece() -> None:
    lister = machine()
    lister.begin(0)
    for now in (1, 5):
        lister.page(page("a", following="next"), now)
        lister.refused(Refusal(410, "Expired"), now)
        actions = lister.passed(now + 2)
    assert actions == [List(PODS, 0, "", PACE.list_silence)]


def test_a_list_without_a_version_is_none() -> None:
    lister = machine()
    lister.begin(0)
    assert wait(lister.page(page("a", version=""), 0)).reason == "decode"


def test_events_are_applied_and_move_the_version_on() -> None:
    watcher = watching("a")
    assert watcher.events(told({"a": None, "b": FACT}, "12"), 1) == [Apply({key("a"): None, key("b"): FACT}, {}, 2)]
    watcher.failed(Failure("server", "cut"), 2)
    assert watcher.passed(3)[0] == Watch(PODS, "12", False, 600, PACE.silence)


def test_a_bookmark_moves_the_version_on_and_changes_nothing() -> None:
    watcher = watching("a")
    assert watcher.events(told(version="99", bookmark=True), 1) == []
    watcher.ended(60)
    assert watcher.passed(60) == [Watch(PODS, "99", False, 600, PACE.silence)]


def test_a_watch_whose_time_was_up_goes_on_at_once() -> None:
    assert watching().ended(300) == [Wait(0.0, "eof")]


def test_an_invalid_object_is_handed_on_beside_the_others() -> None:
    actions = watching("a", "b").events(told({"a": OTHER}, "11", invalid=("b",)), 1)
    assert isinstance(actions[0], Apply)
    assert list(actions[0].invalid) == [key("b")]
    assert actions[0].changes == {key("a"): OTHER}


def test_silence_ends_a_watch_which_goes_on_from_its_version() -> None:
    watcher = watching()
    watcher.events(told({"a": FACT}, "15"), 1)
    assert wait(watcher.failed(Failure("timeout", "silent"), 91)).reason == "timeout"
    assert watcher.passed(92) == [Watch(PODS, "15", False, 600, PACE.silence)]


@pytest.mark.parametrize("as_event", [True, False])
def test_a_version_too_old_leads_to_a_list_that_replaces(as_event: bool) -> None:
    watcher = watching("a", "b")
    refusal = Refusal(410, "Expired")
    actions = watcher.events(told(refusal=refusal), 1) if as_event else watcher.refused(refusal, 1)
    assert wait(actions).reason == "gone"
    assert watcher.passed(2) == [List(PODS, PACE.limit, "", PACE.list_silence)]
    assert watcher.page(page("b", version="250"), 2)[0] == Replace({key("b"): FACT}, {})


def test_events_before_an_error_are_applied() -> None:
    actions = watching().events(told({"a": FACT}, "11", refusal=Refusal(410)), 1)
    assert isinstance(actions[0], Apply)
    assert wait(actions).reason == "gone"


def test_a_bookmark_that_goes_back_is_of_another_history() -> None:
    watcher = watching("a")
    actions = watcher.events(told({"b": FACT}, "9", bookmark=True), 1)
    assert not only(Apply, actions)
    assert isinstance(watcher.passed(5)[0], List)


def test_events_that_go_back_are_old_news_and_not_applied() -> None:
    watcher = watching("a")
    watcher.events(told({"a": OTHER}, "12"), 1)
    assert not only(Apply, watcher.events(told({"a": FACT}, "11"), 2))
    assert isinstance(watcher.passed(5)[0], List)


def test_events_told_twice_are_no_reason_to_list() -> None:
    watcher = watching("a")
    for now in (1, 2):
        assert only(Apply, watcher.events(told({"a": OTHER}, "12"), now))


def test_a_version_not_reached_yet_is_tried_again_and_then_given_up() -> None:
    watcher = watching()
    refusal = Refusal(504, "Timeout", "Too large resource version", retry_after=1.0, too_large=True)
    assert wait(watcher.refused(refusal, 1)).seconds >= 1.0
    assert isinstance(watcher.passed(3)[0], Watch)
    watcher.refused(refusal, 3)
    assert isinstance(watcher.passed(9)[0], List)


def test_a_watch_that_always_breaks_on_the_same_line_leads_to_a_list() -> None:
    watcher = watching()
    assert wait(watcher.events(told(garbage=True), 1)).reason == "decode"
    assert isinstance(watcher.passed(3)[0], Watch)
    watcher.events(told(garbage=True), 3)
    assert isinstance(watcher.passed(9)[0], List)


def test_retry_after_is_honoured_and_jitter_only_adds_to_it() -> None:
    for chance in (0.0, 1.0):
        waited = wait(watching(chance=chance).refused(Refusal(429, retry_after=20.0), 1))
        assert waited.reason == "throttled"
        assert 20.0 <= waited.seconds <= 25.0


def test_retry_after_is_bounded() -> None:
    assert wait(watching().refused(Refusal(503, retry_after=1e9), 1)).seconds <= 400


def test_a_throttled_watch_keeps_its_version() -> None:
    watcher = watching()
    watcher.refused(Refusal(429), 1)
    assert isinstance(watcher.passed(2)[0], Watch)


@pytest.mark.parametrize("code", [401, 403])
def test_a_refused_credential_is_reported_at_once_and_tried_again(code: int) -> None:
    watcher = watching("a")
    actions = watcher.refused(Refusal(code, "Forbidden", "not yours"), 1)
    assert actions[0] == Report("denied", f"{code} Forbidden not yours")
    assert wait(actions).reason == "auth"
    assert not only(Replace, actions)
    assert isinstance(watcher.passed(2)[0], Watch)
    assert watcher.opened(2) == [Report("synced", "")]


def test_one_failure_is_no_news_two_are() -> None:
    watcher = watching()
    assert not only(Report, watcher.failed(Failure("server", "cut"), 1))
    watcher.passed(2)
    assert watcher.failed(Failure("connect", "refused"), 2)[0] == Report("stale", "refused")
    watcher.passed(4)
    assert watcher.opened(4) == [Report("synced", "")]


def test_staleness_is_reported_within_five_seconds_of_the_break() -> None:
    watcher = watching()
    now = 1.0 + wait(watcher.failed(Failure("server", "cut"), 1)).seconds
    watcher.passed(now)
    assert only(Report, watcher.failed(Failure("connect", "refused"), now))
    assert now - 1.0 <= 5.0


def test_before_the_first_list_a_failure_is_told_with_its_reason() -> None:
    lister = machine()
    lister.begin(0)
    assert lister.failed(Failure("connect", "no route"), 0)[0] == Report("connecting", "no route")


def test_waits_grow_to_a_bound() -> None:
    lister = machine()
    lister.begin(0)
    waits, now = [], 0.0
    for _ in range(40):
        waits.append(wait(lister.failed(Failure("connect", "refused"), now)).seconds)
        now += waits[-1]
        lister.passed(now)
    assert waits[:4] == [0.8, 1.6, 3.2, 6.4]
    assert max(waits) == waits[-1] == 30.0


def test_waits_are_jittered_by_half() -> None:
    lister = machine(chance=0.0)
    lister.begin(0)
    assert wait(lister.failed(Failure("connect", "refused"), 0)).seconds == 0.4


def test_a_list_alone_does_not_shorten_the_waits() -> None:
    watcher = machine()
    watcher.begin(0)
    now, waits = 0.0, []
    for _ in range(6):
        watcher.page(page("a"), now)
        watcher.opened(now)
        waits.append(wait(watcher.events(told(refusal=Refusal(410)), now)).seconds)
        now += waits[-1]
        watcher.passed(now)
    assert waits[:2] == [0.8, 1.6]
    assert waits[-3:] == [6.4, 12.8, 25.6]


def test_a_watch_that_brought_something_shortens_the_waits() -> None:
    watcher = watching()
    for now in (1, 10, 30):
        watcher.failed(Failure("connect", "refused"), now)
        watcher.passed(now + 8)
    watcher.opened(40)
    watcher.events(told({"a": FACT}, "20"), 41)
    assert wait(watcher.failed(Failure("server", "cut"), 42)).seconds == 0.8


@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("fruitful", [False, True])
@pytest.mark.parametrize("streaming", [False, True])
def test_a_server_that_closes_at_once_is_asked_six_times_in_ten_seconds(
    chance: float, fruitful: bool, streaming: bool
) -> None:
    watcher = machine(chance=chance, streaming=streaming)
    now, version, connects = 0.0, 10, []
    actions = watcher.begin(now)
    while now < 60:
        request = actions[-1]
        match request:
            case Wait(seconds, _):
                now += seconds
                actions = watcher.passed(now)
            case Watch():
                connects.append(now)
                watcher.opened(now)
                version += 1
                if fruitful:
                    watcher.events(told({"a": FACT}, str(version), bookmark=True, initial_end=True), now)
                actions = watcher.ended(now)
            case List():
                connects.append(now)
                actions = watcher.page(page("a"), now)
    assert all(sum(1 for moment in connects if begin <= moment < begin + 10) <= 6 for begin in connects)
    assert len(connects) >= 5


def test_a_watch_that_never_says_anything_is_stale_and_stays_so() -> None:
    watcher = watching()
    reports: list[Action] = []
    for now in (1, 10, 30, 60):
        reports += only(Report, watcher.ended(now))
        watcher.passed(now + 5)
        reports += only(Report, watcher.opened(now + 5))
    assert reports == [Report("stale", "the server closes watches at once")]
    assert watcher.events(told(version="20", bookmark=True), 66) == [Report("synced", "")]


def test_a_streamed_list_counts_once_its_end_is_told() -> None:
    watcher = machine(streaming=True)
    assert watcher.begin(0)[-1] == Watch(PODS, "", True, 600, PACE.silence)
    assert watcher.opened(0) == [Report("syncing", "")]
    assert watcher.events(told({"a": FACT, "b": FACT}, "7"), 0) == []
    assert watcher.events(told({"b": None, "c": FACT}, "9", bookmark=True, initial_end=True), 0) == [
        Replace({key("a"): FACT, key("c"): FACT}, {}),
        Report("synced", ""),
    ]
    assert watcher.events(told({"d": FACT}, "11"), 1) == [Apply({key("d"): FACT}, {}, 1)]


def test_an_invalid_object_of_a_streamed_list_is_handed_on_unless_mended() -> None:
    watcher = machine(streaming=True)
    watcher.begin(0)
    watcher.opened(0)
    watcher.events(told(invalid=("a", "b")), 0)
    (replace, _) = watcher.events(told({"a": FACT}, "9", bookmark=True, initial_end=True), 0)
    assert isinstance(replace, Replace)
    assert list(replace.invalid) == [key("b")]


@pytest.mark.parametrize("code", [400, 422])
def test_where_streaming_is_refused_pages_are_asked_for_at_once_and_ever_after(code: int) -> None:
    watcher = machine(streaming=True)
    watcher.begin(0)
    assert watcher.refused(Refusal(code, "Invalid"), 0) == [Wait(0.0, "refused")]
    assert isinstance(watcher.passed(0)[0], List)
    watcher.page(page("a"), 0)
    watcher.refused(Refusal(410), 1)
    assert isinstance(watcher.passed(2)[0], List)


def test_a_server_that_takes_a_streamed_list_for_a_watch_is_asked_for_pages() -> None:
    watcher = machine(streaming=True)
    watcher.begin(0)
    watcher.opened(0)
    watcher.events(told({"a": FACT}, "9", bookmark=True), 60)
    assert isinstance(watcher.passed(60)[0], List)


def test_a_streamed_list_that_breaks_twice_gives_way_to_pages() -> None:
    watcher = machine(streaming=True)
    watcher.begin(0)
    watcher.opened(0)
    watcher.events(told({"half": FACT}, "9"), 0)
    watcher.ended(1)
    assert isinstance(watcher.passed(2)[0], Watch)
    watcher.opened(2)
    watcher.failed(Failure("timeout", "silent"), 92)
    assert isinstance(watcher.passed(94)[0], List)
    assert watcher.page(page("whole"), 94)[0] == Replace({key("whole"): FACT}, {})


def test_a_kind_that_is_not_served_is_empty_and_asked_for_again() -> None:
    lister = machine(*GATEWAYS)
    lister.begin(0)
    assert lister.refused(Refusal(404), 0) == [Wait(0.0, "absent")]
    assert lister.passed(0) == [List(GATEWAYS[1], PACE.limit, "", PACE.list_silence)]
    assert lister.refused(Refusal(404), 0) == [
        Replace({}, {}),
        Report("absent", "gateway.networking.k8s.io/v1beta1 is not served"),
        Wait(60.0, "absent"),
    ]
    assert lister.passed(60) == [List(GATEWAYS[0], PACE.limit, "", PACE.list_silence)]
    assert lister.page(page("a"), 60)[:2] == [Replace({key("a"): FACT}, {}), Report("synced", "")]


def test_a_kind_of_which_objects_are_held_is_gone_only_if_the_server_does_not_list_its_group() -> None:
    watcher = machine(*GATEWAYS)
    watcher.begin(0)
    watcher.page(page("a"), 0)
    assert watcher.refused(Refusal(404), 1) == [Discover("gateway.networking.k8s.io/v1")]
    kept = watcher.discovered(None, 1)
    assert not only(Replace, kept)
    watcher.passed(2)
    watcher.refused(Refusal(404), 2)
    kept = watcher.discovered(frozenset({"gateway.networking.k8s.io/v1"}), 2)
    assert not only(Replace, kept)
    watcher.passed(9)
    watcher.refused(Refusal(404), 9)
    watcher.discovered(frozenset({"apps/v1"}), 9)
    watcher.passed(9)
    watcher.refused(Refusal(404), 9)
    watcher.passed(9)
    assert watcher.refused(Refusal(404), 9)[0] == Replace({}, {})


def test_when_the_discovery_is_not_found_either_nothing_is_gone() -> None:
    watcher = machine(*GATEWAYS)
    watcher.begin(0)
    watcher.page(page("a"), 0)
    watcher.refused(Refusal(404), 1)
    assert not only(Replace, watcher.refused(Refusal(404), 1))
    assert isinstance(watcher.passed(3)[0], Watch)


def test_a_kind_of_the_core_is_never_absent() -> None:
    lister = machine(PODS)
    lister.begin(0)
    actions = lister.refused(Refusal(404, "", "page not found"), 0)
    assert not only(Replace, actions)
    assert actions[0] == Report("connecting", "404 page not found")
