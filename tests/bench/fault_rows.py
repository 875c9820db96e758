"""Rows of the list of faults, as scripts on a rig: what breaks, and what is looked at.

Numbers and expectations are those of the list; what has no bound there is seen for comparison. All is seen from
outside: what ztunnels are sent, what the control plane's own page of clusters says, what the API servers are asked,
what the process uses.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import msgspec

from tests.bench.beside import HOME, Event, Rig, latencies, seconds
from tests.bench.fleet import Fleet, Heard, Receipt
from tests.bench.memory import used
from tests.bench.peers import ControlPlane, Starter, quiet
from tests.bench.results import quantile

FIRST, SECOND = ("c1", "n1"), ("c2", "n2")
"""The remote clusters and their networks."""


class Seen(msgspec.Struct, frozen=True):
    """One thing that is looked at; `goal` is the most it may be, with `least` the least."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    least: bool = False


class Row(msgspec.Struct, frozen=True):
    """A fault; `soon`: it is seen within seconds."""

    number: int
    fault: str
    happens: Callable[[Rig, Starter], list[Seen]]
    soon: bool = True


class Scene:
    """A control plane that serves all clusters, and its ztunnels."""

    def __init__(self, rig: Rig, plane: ControlPlane, fleet: Fleet) -> None:
        self.rig = rig
        self.plane = plane
        self.fleet = fleet
        self.size = rig.size

    def calm(self) -> None:
        """Until nothing is under way."""
        quiet(self.plane, seconds=self.size.calm, deadline=20)

    def disturbed(self, network: str) -> tuple[int, int]:
        """Of what the first client was sent since it was last asked: responses with names of a network, and how many
        names were taken away.
        """
        mine = [touching(receipt, network) for receipt in self.fleet.heard()[0]]
        return sum(1 for names, removed in mine if names + removed), sum(removed for _, removed in mine)

    def kept(self, network: str) -> float:
        """Percent of a network's services that the first client holds."""
        return 100 * self.fleet.counts().get(network, 0) / self.size.services

    def told(self, event: Event, within: float = 60.0, since: int = 0) -> float:
        """The event happens (unless `since`, in ns: then it has); seconds until the first client is told."""
        at = [since or self.rig.happen([event], [0.0])[0]]
        heard: list[Receipt] = []
        end = time.monotonic() + within
        while time.monotonic() < end:
            heard += self.fleet.heard()[0]
            (late,) = latencies(at, [event], [heard])
            if late is not None:
                return late / 1e3
            time.sleep(0.005)
        return math.inf

    def flagged(self, cluster: str, within: float) -> float:
        """Seconds until operators are told that a cluster cannot be read."""
        return after(lambda: self.plane.troubled(cluster), within)

    def open(self, cluster: str) -> int:
        """Watches of a cluster."""
        return self.rig.servers.stats()[cluster]["open"]

    def memory(self) -> float:
        """MB, once what is not needed was collected and time has passed."""
        self.plane.collect_garbage()
        time.sleep(self.size.rest)
        self.plane.collect_garbage()
        return used(self.plane.pid).resident / 1e6


def touching(receipt: Receipt, network: str) -> tuple[int, int]:
    """How many names of a network a response brings and takes away."""
    names, removed = (
        sum(1 for name in some if name.startswith(f"{network}/")) for some in (receipt.names, receipt.removed)
    )
    return names, removed


def after(there: Callable[[], bool], within: float) -> float:
    """Seconds until something is so; infinite if it is not in time."""
    began = time.monotonic()
    while not there():
        if time.monotonic() > began + within:
            return math.inf
        time.sleep(0.02)
    return time.monotonic() - began


@contextmanager
def serving(
    rig: Rig, start: Starter, clients: int = 1, *, narrow: bool = False, remotes: bool = True
) -> Iterator[Scene]:
    """A scene, with all clusters told and quiet."""
    if remotes:
        rig.register(*rig.remotes)
    with start(HOME[0], rig.home()) as plane:
        plane.ready()
        with Fleet(plane.xds, clients, HOME, narrow=narrow) as fleet:
            fleet.joined()
            scene = Scene(rig, plane, fleet)
            if remotes:
                assert fleet.holds(rig.networks, rig.size.services), f"not all is told: {fleet.counts()}"
            scene.calm()
            fleet.heard()
            yield scene


def killed(rig: Rig, start: Starter) -> list[Seen]:
    """Row 1: the API server of a remote cluster is killed while it is watched, and comes back."""
    cluster, network = FIRST
    with serving(rig, start) as scene:
        watches = scene.open(cluster)
        rig.servers.down(cluster, on=True)
        flagged = scene.flagged(cluster, 10)
        time.sleep(rig.size.seconds)
        kept, (pushed, removed) = scene.kept(network), scene.disturbed(network)
        beside = scene.told(rig.event(2, 0))
        missed = rig.event(1, 0)
        rig.happen([missed], [0.0])
        back = time.monotonic_ns()
        rig.servers.down(cluster, on=False)
        resumed = scene.told(missed, 120, since=back)
        cleared = after(lambda: not scene.plane.troubled(cluster), 30) if flagged < math.inf else math.inf
        scene.calm()
        scene.fleet.heard()
        rig.servers.down(cluster, on=True)
        time.sleep(2)
        rig.servers.down(cluster, on=False)
        after(lambda: scene.open(cluster) >= watches, 60)
        scene.calm()
        again, _ = scene.disturbed(network)
    return [
        Seen("operators_are_told_after", flagged, "s", 5),
        Seen("services_still_served", kept, "%", 100, least=True),
        Seen("responses_while_it_is_down", pushed, "", 0),
        Seen("names_removed", removed, "", 0),
        Seen("event_elsewhere_told_after", beside, "s"),
        Seen("what_was_missed_told_after_it_is_back", resumed, "s"),
        Seen("operators_are_told_that_it_is_back_after", cleared, "s"),
        Seen("responses_when_it_comes_back_and_nothing_changed", again, "", 0),
    ]


def absent(rig: Rig, start: Starter) -> list[Seen]:
    """Row 2: the API server of a remote cluster is down when the control plane starts."""
    (first, network), (second, missing) = FIRST, SECOND
    rig.servers.down(second, on=True)
    rig.register(first, second)
    began = time.monotonic()
    with start(HOME[0], rig.home()) as plane:
        plane.ready()
        ready = time.monotonic() - began
        with Fleet(plane.xds, 1, HOME) as fleet:
            scene = Scene(rig, plane, fleet)
            assert fleet.holds([network], rig.size.services), f"the cluster that is there is not told: {fleet.counts()}"
            flagged = scene.flagged(second, 10)
            scene.calm()
            fleet.heard()
            back = time.monotonic_ns()
            rig.servers.down(second, on=False)
            there = fleet.holds([missing], rig.size.services, 100)
            scene.calm()
            responses, _ = scene.disturbed(missing)
            rebuilt = scene.kept(network)
    return [
        Seen("ready_after", ready, "s", 35),
        Seen("operators_are_told_after", flagged, "s", 5),
        Seen("told_once_it_is_back_after", seconds(back, there), "s"),
        Seen("responses_that_tell_it", responses, "", 1),
        Seen("services_of_the_other_still_served", rebuilt, "%", 100, least=True),
    ]


def revoked(rig: Rig, start: Starter) -> list[Seen]:
    """Row 9: the token of a remote cluster is revoked; later its Secret gets another."""
    cluster, network = FIRST
    with serving(rig, start) as scene:
        rig.servers.deny(cluster, "token", on=True)
        flagged = scene.flagged(cluster, 10)
        time.sleep(rig.size.seconds)
        kept, (pushed, removed) = scene.kept(network), scene.disturbed(network)
        missed = rig.event(1, 0)
        rig.happen([missed], [0.0])
        changed = rig.register(cluster, token="another")
        recovered = scene.told(missed, since=changed)
        scene.calm()
        _, lost = scene.disturbed(network)
    rig.servers.deny(cluster, "token", on=False)
    return [
        Seen("operators_are_told_after", flagged, "s", 5),
        Seen("services_still_served", kept, "%", 100, least=True),
        Seen("responses_meanwhile", pushed, "", 0),
        Seen("current_again_after_the_secret_has_a_new_one", recovered, "s"),
        Seen("names_removed", removed + lost, "", 0),
    ]


def rotated(rig: Rig, start: Starter) -> list[Seen]:
    """Row 10: the Secret of a remote cluster gets a new token, again and again; the old one is good no more."""
    cluster, network = FIRST
    responses = removed = missing = 0
    late: list[float] = []
    tokens = ["token", *(f"token-{number}" for number in range(rig.size.joins + 1))]
    with serving(rig, start) as scene:
        watches, before = scene.open(cluster), 0.0
        for number, (old, new) in enumerate(itertools.pairwise(tokens)):
            lists = rig.servers.stats()[cluster]["lists"]
            rig.register(cluster, token=new)
            after(lambda: rig.servers.stats()[cluster]["lists"] > lists, 20)  # noqa: B023 - called at once
            scene.calm()
            told, gone = scene.disturbed(network)
            responses, removed = responses + told, removed + gone
            missing += scene.kept(network) < 100
            rig.servers.deny(cluster, old, on=True)
            scene.calm()
            late.append(scene.told(rig.event(1, number), 15))
            scene.calm()
            scene.fleet.heard()
            if number == 0:
                before = scene.memory()
        grown = (scene.memory() - before) / rig.size.joins
        after(lambda: scene.open(cluster) <= watches, 10)
        left = scene.open(cluster) - watches
    for old in tokens:
        rig.servers.deny(cluster, old, on=False)
    told_ones = [one for one in late if not math.isinf(one)]
    return [
        Seen("responses_because_of_rotations", responses, "", 0),
        Seen("names_removed", removed, "", 0),
        Seen("share_of_rotations_after_which_services_were_missing", 100 * missing / len(late), "%", 0),
        Seen("share_of_events_after_one_not_told_in_15_s", 100 * (len(late) - len(told_ones)) / len(late), "%", 0),
        Seen("longest_an_event_took_that_was_told", max(told_ones, default=math.inf), "s"),
        Seen("watches_left_over", left, "", 0),
        Seen("memory_for_each_rotation", grown, "MB"),
    ]


def deleted(rig: Rig, start: Starter) -> list[Seen]:
    """Row 12: the Secrets of the remote clusters are deleted."""
    with serving(rig, start, remotes=False) as scene:
        alone = scene.memory()
        rig.register(*rig.remotes)
        assert scene.fleet.holds(rig.networks, rig.size.services), f"not all is told: {scene.fleet.counts()}"
        scene.calm()
        joined = scene.memory()
        scene.fleet.heard()
        at = rig.forget(FIRST[0])
        missed = scene.fleet.misses([FIRST[1]], 60)
        scene.calm()
        responses, _ = scene.disturbed(FIRST[1])
        kept = scene.kept(SECOND[1])
        rig.forget(SECOND[0])
        scene.fleet.misses([SECOND[1]], 60)
        scene.calm()
        left = scene.memory()
        watches = scene.open(FIRST[0]) + scene.open(SECOND[0])
    return [
        Seen("withdrawn_after", seconds(at, missed), "s"),
        Seen("responses_that_say_so", responses, "", 1),
        Seen("services_of_the_other_still_served", kept, "%", 100, least=True),
        Seen("watches_left_over", watches, "", 0),
        Seen("memory_with_both", joined, "MB"),
        Seen("memory_over_that_before_they_joined", 100 * (left / alone - 1), "%", 10),
    ]


def slow(rig: Rig, start: Starter) -> list[Seen]:
    """Row 23: all ztunnels but one read nothing while endpoints come and go, then go on."""
    size = rig.size
    with serving(rig, start, size.clients, narrow=True) as scene:
        before = used(scene.plane.pid).resident
        scene.fleet.hold(on=True)
        count = int(90 * size.seconds)
        events = rig.events(count)
        at = rig.happen(events, [1 / 90] * count)
        scene.calm()
        grown = used(scene.plane.pid).resident - before
        first, *held = scene.fleet.heard()
        quick = list(latencies(at, events, [first]))
        told = [one for one in quick if one is not None]
        closed = sum(len(one.ended) for one in scene.fleet.streams())
        scene.fleet.hold(on=False)
        released = time.monotonic_ns()
        scene.calm()
        time.sleep(1)
        later = scene.fleet.heard()[1:]
        missing = lost(at, events, [one + more for one, more in zip(held, later, strict=True)])
        caught_up = max((one[-1].at for one in later if one), default=released)
        responses = sum(len(one) for one in (*held, *later)) / len(held)
    return [
        Seen("memory_more_than_before", grown / 1e6, "MB"),
        Seen("events_told_to_the_quick_one_p99", quantile(told, 0.99), "ms"),
        Seen("events_not_told_to_the_quick_one", len(quick) - len(told), "", 0),
        Seen("streams_closed", closed, ""),
        Seen("responses_to_a_slow_one_for_100_events", 100 * responses / count, ""),
        Seen("events_lost_to_slow_ones", missing, "", 0),
        Seen("all_caught_up_after", (caught_up - released) / 1e9, "s"),
    ]


def lost(at: Sequence[int], events: Sequence[Event], heard: Heard) -> int:
    """How many events no later response told, over all clients."""
    return sum(1 for one in latencies(at, events, heard) if one is None)


def terminated(rig: Rig, start: Starter) -> list[Seen]:
    """Row 27: one of two replicas is told to end while endpoints come and go."""
    size = rig.size
    rig.register(*rig.remotes)
    with ExitStack() as planes:
        leaving, staying = (planes.enter_context(start(HOME[0], rig.home())) for _ in range(2))
        leaving.ready()
        staying.ready()
        with Fleet([leaving.xds, staying.xds], size.clients, HOME) as fleet:
            fleet.joined()
            assert fleet.holds(rig.networks, size.services), f"not all is told: {fleet.counts()}"
            quiet(leaving, seconds=size.calm, deadline=20)
            fleet.heard()
            count = int(30 * 2 * size.seconds)
            events, at = rig.events(count), []
            load = threading.Thread(target=lambda: at.extend(rig.happen(events, [1 / 30] * count)))
            load.start()
            time.sleep(size.seconds / 3)
            told = time.monotonic()
            told_ns = time.monotonic_ns()
            leaving.terminate()
            unready = after(lambda: not leaving.is_ready(), 40)
            after(leaving.ended, 60)
            ended = time.monotonic() - told if leaving.ended() else math.inf
            load.join()
            quiet(staying, seconds=size.calm, deadline=20)
            heard, streams = fleet.heard(), fleet.streams()
        ends = [min(one.ended, default=0) for one in streams]
        gaps = [
            min((receipt.at for receipt in each if receipt.at > end), default=math.inf) - end
            for end, each in zip(ends, heard, strict=True)
        ]
        cut = sum(one.cut for one in streams)
        names_lost = lost(at, events, heard)
    return [
        Seen("not_ready_after", unready, "s", 1),
        Seen("first_stream_ended_after", (min(ends) - told_ns) / 1e9, "s"),
        Seen("last_stream_ended_after", (max(ends) - told_ns) / 1e9, "s", 30),
        Seen("streams_cut_without_a_word", cut, "", 0),
        Seen("longest_a_client_was_without_answer", max(gaps) / 1e9, "s"),
        Seen("events_lost", names_lost, "", 0),
        Seen("process_ended_after", ended, "s", 35),
    ]


ROWS = (
    Row(1, "remote API server killed mid-watch", killed, soon=False),
    Row(2, "remote API server down at our start", absent, soon=False),
    Row(9, "token revoked (401)", revoked),
    Row(10, "Secret rotated, same cluster", rotated, soon=False),
    Row(12, "Secret deleted", deleted),
    Row(23, "slow consumers stop reading", slow, soon=False),
    Row(27, "SIGTERM under load", terminated, soon=False),
)
