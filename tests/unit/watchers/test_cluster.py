"""One cluster: credentials take over from each other without a gap, and what is removed stays removed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest

from aggregator.cache.table import Table
from tests.kit.clock import virtual_time
from watchers.cluster import ClusterWatch, Turns
from watchers.facts import Cluster, Fact, Namespace, ObjectKey
from watchers.generation import Health, Report, Unidentified, Unusable
from watchers.staging import Sink
from watchers.status import Access

STATE = ("mesa", "Cluster", "", "mesa")
DEADLINE = 30.0


class Kind(msgspec.Struct, frozen=True):
    fact: str
    required: bool = True


NAMESPACES, NODES, EXTRAS = Kind("Namespace"), Kind("Node"), Kind("Extra", required=False)


class Scripted:
    """A connection that says what the test lets it say."""

    def __init__(self, token: str, uid: str | Exception = "uid-mesa") -> None:
        self.token = token
        self.uid: str | Exception = uid
        self.asked = 0
        self.closed = False
        self.sinks: dict[str, Sink] = {}
        self.reports: dict[str, Report] = {}
        self.health = Health()
        self.access = Access("mesa.example:6443", 1.0, 2.0, 3.0)
        self.changed: Callable[[], None] = lambda: None
        self.confirms: list[float] = []
        self.last_heard = 0.0

    async def identify(self) -> str:
        self.asked += 1
        if isinstance(self.uid, Exception):
            raise self.uid
        return self.uid

    async def reflect(self, kind: Kind, facts: Sink, report: Report) -> None:
        self.sinks[kind.fact], self.reports[kind.fact] = facts, report
        await asyncio.Event().wait()

    async def attend(self, changed: Callable[[], None]) -> None:
        self.changed = changed
        await asyncio.Event().wait()

    async def confirm(self, seconds: float) -> None:
        self.confirms.append(seconds)

    def heard(self, kind: Kind) -> float:
        return self.last_heard

    def is_now(self, health: Health) -> None:
        """Questions have shown this."""
        self.health = health
        self.changed()

    async def close(self) -> None:
        self.closed = True

    def holds(self, kind: str, *names: str) -> None:
        """The whole of a kind has been read."""
        self.sinks[kind].replace(("mesa", kind), [fact(kind, name) for name in names])
        self.reports[kind]("synced", "")


def fact(kind: str, name: str, value: str = "") -> tuple[ObjectKey, Fact]:
    return ("mesa", kind, "", name), Namespace((("value", value),) if value else (), ())


class Stage:
    """A watch of mesa, and the connections it makes, by token."""

    def __init__(
        self,
        *kinds: Kind,
        home: bool = False,
        identified: Callable[[str, str], None] = lambda _token, _uid: None,
        turns: Turns | None = None,
    ) -> None:
        self.table: Table[ObjectKey, Fact] = Table("facts")
        self.changes = self.table.cursor("mesa")
        self.made: dict[str, Scripted] = {}
        self.prepared: dict[str, Scripted | Exception] = {}
        self.now = 0.0
        self.watch: ClusterWatch[str, Kind] = ClusterWatch(
            "mesa",
            self.table,
            home=home,
            deadline=DEADLINE,
            kinds=[(kind, self.table) for kind in kinds or (NAMESPACES,)],
            connect=self._connect,
            delays=self._delays,
            now=lambda: int(self.now * 1e9),
            identified=identified,
            turns=turns,
        )

    def _connect(self, token: str) -> Scripted:
        made = self.prepared.get(token) or Scripted(token)
        if isinstance(made, Exception):
            raise made
        self.made[token] = made
        return made

    def _delays(self) -> Iterator[float]:
        while True:
            yield 10.0

    @property
    def state(self) -> tuple[str, str]:
        found = self.table.get(STATE)
        assert isinstance(found, Cluster)
        return found.state, found.reason

    @property
    def moments(self) -> tuple[float, float]:
        """Since when it is in its state, and since when unconfirmed."""
        found = self.table.get(STATE)
        assert isinstance(found, Cluster)
        return found.since, found.unconfirmed

    def names(self, kind: str = "Namespace") -> Sequence[str]:
        return sorted(key[3] for key, _ in self.table.scan(("mesa", kind)))


async def settle() -> None:
    """Everything that can go on goes on."""
    for _ in range(12):
        await asyncio.sleep(0)


@asynccontextmanager
async def running(stage: Stage, token: str = "t1") -> AsyncIterator[Scripted]:
    task = asyncio.create_task(stage.watch.run())
    stage.watch.use(token)
    await settle()
    try:
        yield stage.made.get(token) or Scripted(token)
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled()


async def test_a_cluster_is_synced_once_every_kind_has_been_read() -> None:
    stage = Stage(NAMESPACES, NODES)
    assert stage.table.get(STATE) == Cluster("connecting", False, DEADLINE, "")
    async with running(stage) as first:
        first.holds("Namespace", "shop")
        assert (stage.state, stage.names()) == (("syncing", ""), ["shop"])
        first.holds("Node", "n1")
        assert stage.state == ("synced", "")


async def test_a_kind_that_is_not_served_or_may_be_missing_and_not_read_holds_nothing_up() -> None:
    stage = Stage(NAMESPACES, NODES, EXTRAS)
    async with running(stage) as first:
        first.holds("Namespace", "shop")
        first.reports["Node"]("absent", "not served")
        first.reports["Extra"]("denied", "403 Forbidden")
        assert stage.state == ("synced", "Extra: 403 Forbidden")


async def test_a_required_kind_that_may_not_be_read_makes_the_cluster_denied() -> None:
    stage = Stage(NAMESPACES, EXTRAS)
    async with running(stage) as first:
        first.reports["Namespace"]("denied", "403 Forbidden")
        assert stage.state == ("denied", "Namespace: 403 Forbidden")


async def test_a_stale_kind_makes_the_cluster_stale_and_takes_nothing_away() -> None:
    stage = Stage()
    async with running(stage) as first:
        first.holds("Namespace", "shop")
        first.reports["Namespace"]("stale", "connection refused")
        assert (stage.state, stage.names()) == (("stale", "Namespace: connection refused"), ["shop"])


async def test_home_that_is_denied_after_it_was_read_is_stale_so_that_its_proxies_are_still_served() -> None:
    stage = Stage(home=True)
    async with running(stage) as first:
        first.holds("Namespace", "shop")
        first.reports["Namespace"]("denied", "401 Unauthorized")
        assert stage.state == ("stale", "Namespace: 401 Unauthorized")


async def test_rotation_is_one_revision_with_the_difference_only() -> None:
    stage = Stage(NAMESPACES, NODES)
    async with running(stage) as first:
        first.holds("Namespace", "shop", "old")
        first.holds("Node", "n1")
        stage.watch.use("t2")
        await settle()
        stage.changes.take()
        revision = stage.table.revision
        second = stage.made["t2"]
        second.holds("Namespace", "shop", "new")
        assert (stage.names(), stage.table.revision) == (["old", "shop"], revision)
        second.holds("Node", "n1")
        assert stage.table.revision == revision + 1
        assert {key[3]: value is None for key, value in stage.changes.take().changes.items()} == {
            "old": True,
            "new": False,
        }
        await settle()
        assert (first.closed, second.closed) == (True, False)


async def test_an_old_credential_goes_on_until_the_new_one_has_read_everything() -> None:
    stage = Stage()
    async with running(stage) as first:
        first.holds("Namespace", "shop")
        stage.watch.use("t2")
        await settle()
        first.sinks["Namespace"].apply([fact("Namespace", "late")])
        assert stage.names() == ["late", "shop"]
        stage.made["t2"].reports["Namespace"]("denied", "401 Unauthorized")
        assert stage.state == ("synced", "the new credential: Namespace: 401 Unauthorized")
        assert not first.closed


async def test_after_a_takeover_nothing_is_heard_of_the_old_credential() -> None:
    stage = Stage()
    async with running(stage) as first:
        first.holds("Namespace", "shop")
        stage.watch.use("t2")
        await settle()
        stage.made["t2"].holds("Namespace", "shop")
        first.sinks["Namespace"].apply([fact("Namespace", "ghost")])
        first.sinks["Namespace"].replace(("mesa", "Namespace"), [])
        first.reports["Namespace"]("denied", "401 Unauthorized")
        assert (stage.state, stage.names()) == (("synced", ""), ["shop"])
        stage.made["t2"].sinks["Namespace"].apply([fact("Namespace", "next")])
        assert stage.names() == ["next", "shop"]


async def test_a_corrected_credential_ends_the_failing_attempt_at_once() -> None:
    stage = Stage()
    wrong = stage.prepared["wrong"] = Scripted("wrong", Unidentified("connection refused", denied=False))
    async with running(stage, "wrong"):
        assert stage.state == ("connecting", "connection refused")
        stage.watch.use("t1")
        await settle()
        assert wrong.closed
        stage.made["t1"].holds("Namespace", "shop")
        assert (stage.state, stage.names()) == (("synced", ""), ["shop"])


async def test_a_newer_credential_replaces_one_that_was_half_way_without_leaving_its_remains() -> None:
    stage = Stage(NAMESPACES, NODES)
    async with running(stage) as first:
        first.holds("Namespace", "half")
        stage.watch.use("t2")
        await settle()
        second = stage.made["t2"]
        second.holds("Namespace", "shop")
        assert stage.names() == ["half"]
        second.holds("Node", "n1")
        assert stage.names() == ["shop"]


async def test_what_a_new_credential_may_not_read_is_kept_as_it_was() -> None:
    stage = Stage(NAMESPACES, EXTRAS)
    async with running(stage) as first:
        first.holds("Namespace", "shop")
        first.holds("Extra", "gateway")
        stage.watch.use("t2")
        await settle()
        stage.made["t2"].holds("Namespace", "shop")
        stage.made["t2"].reports["Extra"]("denied", "403 Forbidden")
        assert (stage.state, stage.names("Extra")) == (("synced", "Extra: 403 Forbidden"), ["gateway"])


async def test_the_same_credential_again_changes_nothing() -> None:
    stage = Stage()
    async with running(stage) as first:
        first.holds("Namespace", "shop")
        stage.watch.use("t1")
        await settle()
        assert (stage.made["t1"] is first, first.closed) == (True, False)


async def test_a_credential_that_cannot_be_used_says_why_and_ends_nothing() -> None:
    stage = Stage()
    stage.prepared["broken"] = Unusable("client-key-data is no key")
    async with running(stage) as first:
        first.holds("Namespace", "shop")
        stage.watch.refuse("Secret istio-system/a: it would start a program")
        assert stage.state == ("synced", "Secret istio-system/a: it would start a program")
        stage.watch.use("broken")
        await settle()
        assert stage.state == ("synced", "the new credential: client-key-data is no key")
        assert not first.closed


async def test_a_cluster_without_any_credential_that_can_be_used_is_denied() -> None:
    stage = Stage()
    stage.watch.refuse("it would start a program")
    assert stage.state == ("denied", "it would start a program")


@virtual_time
async def test_an_api_server_that_cannot_be_reached_is_tried_for_ever() -> None:
    stage = Stage()
    first = stage.prepared["t1"] = Scripted("t1", Unidentified("503 Service Unavailable", denied=False))
    async with running(stage):
        await asyncio.sleep(7205)
        assert (stage.state[0], first.asked) == ("connecting", 721)
        first.uid = "uid-mesa"
        await asyncio.sleep(10)
        first.holds("Namespace", "shop")
        assert stage.state == ("synced", "")


@virtual_time
async def test_so_many_clusters_read_everything_at_a_time_and_a_slow_one_holds_nobody_up() -> None:
    turns = Turns(1)
    slow, quick, last = (Stage(turns=turns) for _ in range(3))
    async with running(slow), running(quick) as second, running(last) as third:
        assert (second.sinks, third.sinks) == ({}, {})
        await asyncio.sleep(11)
        assert (list(second.sinks), third.sinks) == (["Namespace"], {})
        second.holds("Namespace", "shop")
        await settle()
        assert list(third.sinks) == ["Namespace"]


@virtual_time
async def test_a_cluster_that_goes_gives_its_turn_back() -> None:
    turns = Turns(1)
    first, second = Stage(turns=turns), Stage(turns=turns)
    async with running(first), running(second) as waiting:
        first.watch.remove()
        await settle()
        assert list(waiting.sinks) == ["Namespace"]


async def test_a_credential_that_comes_while_the_watch_ends_begins_nothing() -> None:
    stage = Stage()

    class Late(Scripted):
        async def close(self) -> None:
            stage.watch.use("t2")
            await super().close()

    first = stage.prepared["t1"] = Late("t1")
    async with running(stage):
        pass
    assert ([*stage.made], first.closed) == (["t1"], True)


async def test_each_change_of_state_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    stage = Stage()
    async with running(stage) as first:
        first.holds("Namespace", "shop")
        first.reports["Namespace"]("synced", "")
        first.reports["Namespace"]("stale", "connection refused")
        first.reports["Namespace"]("stale", "connection refused again")
    assert [(record.levelname, vars(record)["state"]) for record in caplog.records] == [
        ("INFO", "connecting"),
        ("INFO", "synced"),
        ("WARNING", "stale"),
    ]


async def test_a_removed_cluster_is_gone_at_once_and_late_events_die() -> None:
    stage = Stage()
    async with running(stage) as first:
        first.holds("Namespace", "shop")
        stage.watch.remove()
        assert [*stage.table.scan(("mesa",))] == []
        first.sinks["Namespace"].apply([fact("Namespace", "ghost")])
        first.reports["Namespace"]("stale", "late")
        stage.watch.use("t2")
        await settle()
        assert ([*stage.table.scan(("mesa",))], [*stage.made], first.closed) == ([], ["t1"], True)


async def test_nothing_is_read_of_an_api_server_that_is_one_too_many() -> None:
    stage = Stage(identified=lambda _token, _uid: stage.watch.remove())
    async with running(stage) as first:
        assert (first.sinks, first.closed) == ({}, True)
        assert [*stage.table.scan(("mesa",))] == []


async def test_a_credential_that_is_refused_makes_a_cluster_denied_though_its_watches_go_on() -> None:
    stage = Stage()
    async with running(stage) as first:
        first.holds("Namespace", "shop")
        first.is_now(Health("denied", "401 Unauthorized", confirmed=1.0, lost=3.0))
        assert (stage.state, stage.names()) == (("denied", "401 Unauthorized"), ["shop"])
        first.is_now(Health(confirmed=5.0))
        assert stage.state == ("synced", "")


async def test_a_server_that_does_not_answer_makes_a_cluster_stale_until_it_does() -> None:
    stage = Stage()
    async with running(stage) as first:
        first.holds("Namespace", "shop")
        first.is_now(Health("silent", "no answer", confirmed=1.0, lost=3.0))
        assert (stage.state, stage.names()) == (("stale", "no answer"), ["shop"])
        first.is_now(Health(confirmed=5.0))
        assert stage.state == ("synced", "")


async def test_a_silence_before_everything_was_read_is_not_the_state_of_what_is_held() -> None:
    stage = Stage(NAMESPACES, NODES)
    async with running(stage) as first:
        first.holds("Namespace", "shop")
        first.is_now(Health("silent", "no answer", lost=3.0))
        assert stage.state == ("syncing", "no answer")


async def test_a_new_credential_that_is_refused_never_takes_over_though_it_read_everything() -> None:
    stage = Stage()
    async with running(stage) as first:
        first.holds("Namespace", "shop")
        stage.watch.use("t2")
        await settle()
        second = stage.made["t2"]
        second.is_now(Health("denied", "401 Unauthorized", lost=3.0))
        second.holds("Namespace", "shop", "more")
        assert (stage.state, stage.names()) == (("synced", "the new credential: 401 Unauthorized"), ["shop"])
        second.is_now(Health(confirmed=9.0))
        assert (stage.state, stage.names()) == (("synced", ""), ["more", "shop"])


async def test_the_moments_of_a_cluster_change_with_its_state_alone() -> None:
    stage = Stage()
    async with running(stage) as first:
        stage.now = 100.0
        first.holds("Namespace", "shop")
        assert stage.moments == (100.0, 0.0)
        stage.now = 110.0
        first.is_now(Health("silent", "no answer", confirmed=105.0, lost=107.0))
        assert stage.moments == (110.0, 107.0)
        stage.now, revision = 120.0, stage.table.revision
        first.is_now(Health("silent", "no answer", confirmed=105.0, lost=107.0))
        assert (stage.moments, stage.table.revision) == ((110.0, 107.0), revision)
        first.is_now(Health("denied", "401 Unauthorized", confirmed=105.0, lost=107.0))
        assert stage.moments == (120.0, 107.0)
        stage.now = 130.0
        first.is_now(Health(confirmed=130.0))
        assert stage.moments == (130.0, 0.0)


async def test_a_kind_that_cannot_be_read_leaves_the_cluster_unconfirmed_from_then_on() -> None:
    stage = Stage(NAMESPACES, NODES)
    async with running(stage) as first:
        first.holds("Namespace", "shop")
        first.holds("Node", "n1")
        stage.now = 50.0
        first.is_now(Health(confirmed=49.0))
        first.reports["Node"]("stale", "503")
        stage.now = 70.0
        first.is_now(Health(confirmed=69.0))
        assert stage.moments == (50.0, 50.0)
        nodes = next(kind for kind in stage.watch.status().kinds if kind.kind == "Node")
        assert (nodes.state, nodes.reason, nodes.confirmed, nodes.objects) == ("stale", "503", 49.0, 1)


async def test_a_cluster_that_was_never_read_has_nothing_to_confirm_and_no_lag() -> None:
    stage = Stage()
    stage.prepared["t1"] = Scripted("t1", Unidentified("connection refused", denied=False))
    async with running(stage):
        stage.now = 60.0
        status = stage.watch.status()
        assert (status.state, status.lag, status.since, stage.moments) == ("Connecting", -1.0, 0.0, (0.0, 0.0))


async def test_the_lag_counts_from_the_last_proof_that_what_is_held_is_current() -> None:
    stage = Stage()
    async with running(stage) as first:
        first.holds("Namespace", "shop")
        first.is_now(Health(confirmed=100.0))
        stage.now = 101.5
        assert stage.watch.status().lag == pytest.approx(1.5)


async def test_the_lag_of_a_lost_cluster_counts_from_between_the_last_proof_and_the_first_question_in_vain() -> None:
    stage = Stage()
    async with running(stage) as first:
        first.holds("Namespace", "shop")
        first.is_now(Health("silent", "no answer", confirmed=100.0, lost=102.0))
        stage.now = 195.0
        status = stage.watch.status()
        assert (status.state, status.reason) == ("Stale", "no answer")
        assert status.lag == pytest.approx(94.0)


async def test_people_are_told_of_a_question_that_is_open_for_long_before_any_proxy_is() -> None:
    stage = Stage()
    async with running(stage) as first:
        first.holds("Namespace", "shop")
        first.is_now(Health(confirmed=100.0, asked=102.0))
        stage.now = 103.0
        status = stage.watch.status()
        assert (status.state, status.reason, status.since) == ("Stale", "no answer for 1.0 s", 102.0)
        assert stage.state == ("synced", "")


async def test_a_question_that_is_open_for_long_means_nothing_while_a_watch_talks() -> None:
    stage = Stage()
    async with running(stage) as first:
        first.holds("Namespace", "shop")
        first.is_now(Health(confirmed=100.0, asked=102.0))
        stage.now, first.last_heard = 103.0, 102.5
        assert stage.watch.status().state == "Synced"


async def test_a_status_tells_where_the_cluster_is_and_how_long_its_credentials_last() -> None:
    stage = Stage(NAMESPACES, EXTRAS)
    async with running(stage) as first:
        first.holds("Namespace", "shop", "bank")
        first.reports["Extra"]("denied", "403 Forbidden")
        first.last_heard = 7.0
        status = stage.watch.status()
        assert (status.cluster, status.home, status.uid) == ("mesa", False, "uid-mesa")
        assert (status.server, status.token_expires) == ("mesa.example:6443", 1.0)
        assert (status.certificate_expires, status.server_certificate_expires) == (2.0, 3.0)
        assert [(kind.kind, kind.state, kind.objects, kind.heard) for kind in status.kinds] == [
            ("Namespace", "synced", 2, 7.0),
            ("Extra", "denied", 0, 7.0),
        ]


async def test_an_update_is_pending_while_the_old_credential_serves_and_the_new_one_does_not_work() -> None:
    stage = Stage()
    async with running(stage) as first:
        first.holds("Namespace", "shop")
        stage.watch.use("t2")
        await settle()
        assert stage.watch.status().state == "Synced"
        stage.made["t2"].reports["Namespace"]("denied", "401 Unauthorized")
        assert stage.watch.status().state == "UpdatePending"
        stage.made["t2"].holds("Namespace", "shop")
        assert stage.watch.status().state == "Synced"
        stage.watch.refuse("it would start a program")
        status = stage.watch.status()
        assert (status.state, status.reason) == ("UpdatePending", "it would start a program")


async def test_an_old_credential_that_fails_too_is_what_people_are_told() -> None:
    stage = Stage()
    async with running(stage) as first:
        first.holds("Namespace", "shop")
        stage.watch.refuse("it would start a program")
        first.is_now(Health("denied", "401 Unauthorized", confirmed=1.0, lost=3.0))
        assert stage.watch.status().state == "Denied"


async def test_confirming_asks_the_connection_that_serves() -> None:
    stage = Stage()
    await stage.watch.confirm(1.0)
    async with running(stage) as first:
        first.holds("Namespace", "shop")
        await stage.watch.confirm(1.0)
        assert first.confirms == [1.0]
