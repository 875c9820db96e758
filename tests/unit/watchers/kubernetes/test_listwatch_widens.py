"""Rules of `watchers.kubernetes.listwatch` when more namespaces count than before."""

from __future__ import annotations

import pytest

from tests.unit.watchers.kubernetes.test_listwatch import FACT, PACE, PODS, key, machine, page, told, watching
from watchers.kubernetes.events import Refusal
from watchers.kubernetes.listwatch import Apply, List, Replace, Wait, Watch

SHOP = "/api/v1/namespaces/shop/pods"
BANK = "/api/v1/namespaces/bank/pods"


def test_a_namespace_is_listed_by_itself_before_the_watch_goes_on_from_where_it_was() -> None:
    lister = watching("a")
    assert lister.widen(["shop"])
    assert lister.left(1) == [Wait(0.0, "selection")]
    assert lister.passed(1) == [List(SHOP, PACE.limit, "", PACE.list_silence)]
    read = lister.page(page("b", version="17", invalid=("c",)), 1)
    assert read[0] == Apply({key("b"): FACT}, {key("c"): read[0].invalid[key("c")]}, 1)  # type: ignore[union-attr]
    assert isinstance(read[1], Watch)
    assert (read[1].resource_version, read[1].initial_events) == ("10", False)


def test_its_pages_are_turned_and_each_namespace_has_its_turn() -> None:
    lister = watching()
    lister.widen(["bank", "shop"])
    lister.left(1)
    lister.passed(1)
    assert lister.page(page("b", following="next"), 1) == [List(BANK, PACE.limit, "next", PACE.list_silence)]
    (applied, following) = lister.page(page("c"), 1)
    assert applied == Apply({key("b"): FACT, key("c"): FACT}, {}, 2)
    assert following == List(SHOP, PACE.limit, "", PACE.list_silence)


def test_many_namespaces_are_read_with_everything_else() -> None:
    lister = watching("a")
    lister.widen([f"n{number}" for number in range(9)])
    lister.left(1)
    assert lister.passed(1) == [List(PODS, PACE.limit, "", PACE.list_silence)]


def test_if_all_count_everything_is_listed_anew() -> None:
    lister = watching("a")
    lister.widen(["shop"])
    assert lister.widen(None)
    lister.left(1)
    assert lister.passed(1) == [List(PODS, PACE.limit, "", PACE.list_silence)]
    assert lister.page(page("a", "b", version="20"), 1)[0] == Replace({key("a"): FACT, key("b"): FACT}, {})


def test_a_list_under_way_goes_on_and_what_it_lacks_is_read_after_it() -> None:
    lister = machine()
    lister.begin(0)
    lister.page(page("a", following="next"), 0)
    assert not lister.widen(["shop"])
    (replaced, _, following) = lister.page(page("b", version="12"), 0)
    assert replaced == Replace({key("a"): FACT, key("b"): FACT}, {})
    assert following == List(SHOP, PACE.limit, "", PACE.list_silence)
    watch = lister.page(page("c"), 0)[-1]
    assert isinstance(watch, Watch)
    assert watch.resource_version == "12"


def test_a_streamed_list_goes_on_and_its_stream_is_left_when_it_is_complete() -> None:
    lister = machine(streaming=True)
    lister.begin(0)
    lister.opened(0)
    assert not lister.widen(["shop"])
    assert lister.events(told({"a": FACT}), 0) == []
    complete = lister.events(told(version="12", bookmark=True, initial_end=True), 0)
    assert complete[0] == Replace({key("a"): FACT}, {})
    assert complete[-1] == Wait(0.0, "selection")
    assert lister.passed(0) == [List(SHOP, PACE.limit, "", PACE.list_silence)]


def test_a_list_in_vain_is_left() -> None:
    lister = machine()
    lister.begin(0)
    assert lister.widen(None)
    lister.left(0)
    assert lister.passed(0) == [List(PODS, PACE.limit, "", PACE.list_silence)]


def test_a_wait_is_never_cut_short() -> None:
    lister = watching()
    lister.refused(Refusal(500), 1)
    assert not lister.widen(["shop"])
    assert lister.passed(2) == [List(SHOP, PACE.limit, "", PACE.list_silence)]


@pytest.mark.parametrize("code", [429, 500, 503])
def test_a_namespace_that_could_not_be_read_is_tried_again(code: int) -> None:
    lister = watching()
    lister.widen(["shop"])
    lister.left(1)
    lister.passed(1)
    assert isinstance(lister.refused(Refusal(code), 1)[-1], Wait)
    assert lister.passed(3) == [List(SHOP, PACE.limit, "", PACE.list_silence)]


def test_pages_that_have_expired_lead_to_a_list_of_everything() -> None:
    lister = watching()
    lister.widen(["shop"])
    lister.left(1)
    lister.passed(1)
    lister.page(page("b", following="next"), 1)
    lister.refused(Refusal(410), 1)
    assert lister.passed(3) == [List(PODS, PACE.limit, "", PACE.list_silence)]
    assert isinstance(lister.page(page("b", version="30"), 3)[-1], Watch)


def test_changes_told_while_the_watch_is_being_left_count() -> None:
    lister = watching("a")
    lister.widen(["shop"])
    actions = lister.events(told({"b": FACT}, "14"), 1)
    assert Apply({key("b"): FACT}, {}, 1) in actions
    assert actions[-1] == Wait(0.0, "selection")
    lister.passed(1)
    watch = lister.page(page("c", version="20"), 1)[-1]
    assert isinstance(watch, Watch)
    assert watch.resource_version == "14"


def test_flapping_selections_do_not_flood_the_server() -> None:
    lister = watching()
    asked = 0
    now = 0.0
    while now < 10:
        lister.widen([f"n{asked}"])
        (pause,) = lister.left(now)
        assert isinstance(pause, Wait)
        now += max(pause.seconds, 0.001)
        lister.passed(now)
        lister.page(page(), now)
        lister.opened(now)
        asked += 1
    assert asked <= 6
