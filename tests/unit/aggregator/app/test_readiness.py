from __future__ import annotations

import msgspec
import pytest

from aggregator.app.readiness import readiness

LISTENERS = {"--xds": True, "--admin": True}


class Cluster(msgspec.Struct, frozen=True):
    state: str = "synced"
    home: bool = True
    reason: str = ""


HOME = [("west", Cluster())]


def test_ready_with_home_read_a_pass_published_and_listeners_open() -> None:
    now = readiness(HOME, passed=True, settled=True, listeners=LISTENERS)
    assert (now.ready, now.waiting, now.unsettled) == (True, (), ())


@pytest.mark.parametrize("state", ["connecting", "syncing"])
def test_waits_for_the_home_cluster_and_says_why(state: str) -> None:
    now = readiness(
        [("west", Cluster(state, reason="connection refused"))], passed=True, settled=True, listeners=LISTENERS
    )
    assert (now.ready, now.waiting) == (False, (f"cluster west is {state}: connection refused",))


def test_waits_while_the_home_cluster_is_not_known() -> None:
    now = readiness([("east", Cluster(home=False))], passed=True, settled=True, listeners=LISTENERS)
    assert now.waiting == ("the home cluster is not known yet",)


def test_waits_for_the_first_complete_pass() -> None:
    now = readiness(HOME, passed=False, settled=False, listeners=LISTENERS)
    assert (now.ready, now.waiting) == (False, ("the first complete pass is not published yet",))


def test_waits_for_each_listener() -> None:
    now = readiness(HOME, passed=True, settled=True, listeners={"--xds": False, "--admin": True})
    assert (now.ready, now.waiting) == (False, ("listener --xds is not open yet",))


@pytest.mark.parametrize("state", ["connecting", "syncing"])
def test_waits_for_a_remote_cluster_within_its_limit_and_says_which(state: str) -> None:
    clusters = [*HOME, ("east", Cluster(state, home=False))]
    now = readiness(clusters, passed=True, settled=False, listeners=LISTENERS)
    assert (now.ready, now.waiting) == (False, (f"cluster east is {state}",))


def test_a_remote_cluster_past_its_limit_is_reported_and_holds_nothing_back() -> None:
    clusters = [*HOME, ("east", Cluster("connecting", home=False))]
    now = readiness(clusters, passed=True, settled=True, listeners=LISTENERS)
    assert (now.ready, now.unsettled) == (True, ("cluster east is connecting",))


def test_a_home_cluster_that_fails_after_it_was_read_does_not_take_readiness_away() -> None:
    assert readiness([("west", Cluster("unreachable"))], passed=True, settled=True, listeners=LISTENERS).ready


def test_a_process_that_is_stopping_is_not_ready() -> None:
    assert readiness(HOME, passed=True, settled=True, listeners=LISTENERS, stopping=True).waiting == (
        "the process is stopping",
    )


def test_a_cluster_that_has_been_lost_for_too_long_is_reported_and_holds_nothing_back() -> None:
    lost, denied = Cluster("stale", home=False, reason="no answer"), Cluster("denied", home=False)
    clusters = [*HOME, ("east", lost), ("lab", denied)]
    now = readiness(clusters, passed=True, settled=True, listeners=LISTENERS, past_limit={"east"})
    assert (now.ready, now.unsettled) == (True, ("cluster east is stale: no answer (for longer than --stale-after)",))


def test_waits_for_the_name_of_a_gateway_and_says_which() -> None:
    now = readiness(HOME, passed=True, settled=False, listeners=LISTENERS, unanswered=["ew.example"])
    assert (now.ready, now.waiting) == (False, ("DNS name ew.example of a gateway is being looked up",))


def test_a_name_that_is_looked_up_later_holds_nothing_back() -> None:
    assert readiness(HOME, passed=True, settled=True, listeners=LISTENERS, unanswered=["ew.example"]).ready
