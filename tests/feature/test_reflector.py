"""A reflector against a fake API server: what the table holds, whatever the server does. Hours pass in no time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.cache.table import Table
from tests.kit.clock import virtual_time
from tests.kit.eventually import eventually
from tests.kit.kube_api import Cut, Hang, KubeApi, KubeCluster, Lines, Refuse, Trickle, error_event
from tests.kit.kube_session import MemorySession
from tests.kit.manifests import Manifest, gateway, pod
from tests.kit.running import running
from watchers.facts import Fact, ObjectKey, Pod, SourceFault
from watchers.kubernetes.budget import Limits
from watchers.kubernetes.flow import Flow, Rounds
from watchers.kubernetes.kubeconfig import ApiServer
from watchers.kubernetes.listwatch import Pace
from watchers.kubernetes.quota import Holdings
from watchers.kubernetes.reflector import Reflector
from watchers.kubernetes.resources import Resource, resources
from watchers.kubernetes.session import Requests, Session
from watchers.metrics import WatchMetrics

BY_FACT = {resource.kind.fact: resource for resource in resources("istio-system")}
# Watches that end only when a test says so.
PACE = Pace(limit=2, silence=15.0, watch=7200.0)


class Reading:
    """What a reflector wrote and reported."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.facts: Table[ObjectKey, Fact] = Table("facts")
        self.metrics = WatchMetrics()
        self.reports: list[tuple[str, str]] = []

    @property
    def names(self) -> set[str]:
        """The names of all objects held."""
        return {key[3] for key, _ in self.facts.scan(("west", self.kind))}

    @property
    def state(self) -> str:
        """The state reported last."""
        return self.reports[-1][0]

    @property
    def faults(self) -> dict[str, SourceFault]:
        """The objects that cannot be used."""
        return {key[3]: fact for key, fact in self.facts.scan(("west", "SourceFault")) if isinstance(fact, SourceFault)}

    def restarts(self, reason: str) -> float:
        """How often a watch began again for this reason."""
        return self.metrics.restarts.values.get(("west", reason), 0)


@asynccontextmanager
async def reading(
    requests: Requests,
    kind: str = "Pod",
    *,
    pace: Pace = PACE,
    chance: float = 0.5,
    resource: Resource | None = None,
) -> AsyncIterator[Reading]:
    """A reflector at work."""
    read = Reading(kind)
    reflector = Reflector(
        resource or BY_FACT[kind],
        "west",
        requests,
        read.facts,
        system_namespace="istio-system",
        report=lambda state, reason: read.reports.append((state, reason)),
        metrics=read.metrics,
        flow=Flow("west", Limits(), Rounds(), read.metrics, asyncio.get_running_loop().time),
        holdings=Holdings(Limits().objects),
        chance=lambda: chance,
        pace=pace,
        now=asyncio.get_running_loop().time,
    )
    async with running(reflector.run()):
        yield read


def cluster(*pods: str, watch_list: bool = True) -> KubeCluster:
    made = KubeCluster("west")
    made.watch_list = watch_list
    made.bookmark_every = 10.0
    made.apply(*(pod(f"shop/{name}", "10.0.0.1") for name in pods))
    return made


async def settled(seconds: float = 1.0) -> None:
    """All that is to happen in this (virtual) time has happened."""
    await asyncio.sleep(seconds)


@pytest.mark.parametrize("watch_list", [True, False])
def test_the_table_follows_the_server(watch_list: bool) -> None:
    @virtual_time
    async def run() -> None:
        west = cluster("a", "b", "c", "d", "e", watch_list=watch_list)
        async with reading(MemorySession(west)) as read:
            await settled()
            assert read.names == {"a", "b", "c", "d", "e"}
            revision = read.facts.revision
            west.apply(pod("shop/f", "10.0.0.6"))
            west.delete("Pod", "shop/a")
            await settled()
            assert read.names == {"b", "c", "d", "e", "f"}
            assert read.facts.revision > revision
            assert [state for state, _ in read.reports] == ["connecting", "syncing", "synced"]
            assert west.count("list") == (0 if watch_list else 3)

    run()


@pytest.mark.parametrize("watch_list", [True, False])
def test_what_went_while_the_version_grew_too_old_is_gone_after_the_next_list(watch_list: bool) -> None:
    @virtual_time
    async def run() -> None:
        west = cluster("a", "b", watch_list=watch_list)
        async with reading(MemorySession(west)) as read:
            await settled()
            held = read.facts.get(("west", "Pod", "shop", "a"))
            west.script(Refuse(503), times=1)
            west.end_watches()
            west.delete("Pod", "shop/b")
            west.apply(pod("shop/c", "10.0.0.3"))
            west.compact()
            await settled(10)
            assert read.names == {"a", "c"}
            assert read.facts.get(("west", "Pod", "shop", "a")) is held
            assert read.restarts("gone") == 1
            assert read.state == "synced"

    run()


@virtual_time
async def test_a_silent_watch_is_replaced_from_the_version_seen_last() -> None:
    west = cluster("a", "b")
    async with reading(MemorySession(west)) as read:
        await settled()
        west.apply(pod("shop/c", "10.0.0.3"))
        await settled()
        revision = west.store.revision
        west.freeze()
        west.delete("Pod", "shop/b")
        await settled(14)
        assert read.names == {"a", "b", "c"}
        await settled(3)
        assert read.names == {"a", "c"}
        assert read.restarts("timeout") == 1
        assert west.requests[-1].query["resourceVersion"] == str(revision)
        assert west.count("watch") == 2


@virtual_time
async def test_bookmarks_keep_a_quiet_watch_alive() -> None:
    west = cluster("a")
    async with reading(MemorySession(west)) as read:
        await settled(600)
        assert west.count() == 1
        assert read.metrics.restarts.values == {}


@virtual_time
async def test_a_watch_goes_on_from_a_bookmark_although_nothing_of_its_kind_changed() -> None:
    west = cluster("a")
    async with reading(MemorySession(west)):
        await settled()
        west.apply({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "other"}})
        west.bookmark()
        await settled()
        west.compact()
        west.end_watches()
        await settled(10)
        assert [request.query.get("resourceVersion") for request in west.requests] == [None, str(west.store.revision)]


@virtual_time
async def test_a_server_that_closes_every_watch_at_once_is_not_stormed() -> None:
    west = cluster("a", watch_list=False)
    west.script(Lines(), verb="watch", times=None)
    async with reading(MemorySession(west)) as read:
        await settled(10)
        assert west.count() <= 7  # The refusal of a streamed list is one of them.
        assert read.names == {"a"}
        await settled(600)
        assert west.count() < 60


@virtual_time
async def test_the_servers_word_for_when_to_come_back_is_kept() -> None:
    west = cluster("a")
    west.script(Refuse(429, headers={"Retry-After": "20"}))
    async with reading(MemorySession(west)) as read:
        await settled(19)
        assert west.count() == 1
        await settled(8)
        assert read.names == {"a"}
        assert read.restarts("throttled") == 1


@virtual_time
async def test_after_a_long_outage_it_is_back_within_one_wait() -> None:
    west = cluster("a", "b")
    outage = west.script(Refuse(503), times=None)
    async with reading(MemorySession(west)) as read:
        await settled(900)
        assert read.state == "connecting"
        assert west.count() < 60
        outage.withdraw()
        await settled(30)
        assert (read.state, read.names) == ("synced", {"a", "b"})


@virtual_time
async def test_an_outage_takes_nothing_away_and_is_told() -> None:
    west = cluster("a")
    async with reading(MemorySession(west)) as read:
        await settled(20)
        outage = west.script(Refuse(500, message="etcd is ill"), times=None)
        west.end_watches()
        await settled(5)
        assert read.reports[-1] == ("stale", "500 etcd is ill")
        assert read.names == {"a"}
        outage.withdraw()
        await settled(30)
        assert read.reports[-1] == ("synced", "")


@virtual_time
async def test_an_expired_token_is_told_and_nothing_is_taken_away() -> None:
    west = cluster("a")
    west.tokens = {"token"}
    async with reading(MemorySession(west)) as read:
        await settled(20)
        west.tokens = set()
        west.end_watches()
        await settled(1)
        assert read.state == "denied"
        assert read.names == {"a"}
        west.tokens = {"token"}
        await settled(30)
        assert read.state == "synced"


@virtual_time
async def test_a_forbidden_kind_says_what_is_forbidden() -> None:
    west = cluster("a")
    west.forbidden.add("Pod")
    async with reading(MemorySession(west)) as read:
        await settled()
        assert read.state == "denied"
        assert "pods is forbidden" in read.reports[-1][1]


@virtual_time
async def test_a_kind_that_is_not_installed_is_found_once_it_is() -> None:
    west = cluster()
    west.absent.add("Gateway")
    async with reading(MemorySession(west), "Gateway") as read:
        await settled(300)
        assert read.state == "absent"
        assert west.count() < 30
        west.absent.clear()
        west.apply(gateway("istio-system/east-west"))
        await settled(61)
        assert (read.state, read.names) == ("synced", {"east-west"})


@virtual_time
async def test_objects_of_a_kind_that_was_uninstalled_are_gone_but_not_for_a_404_alone() -> None:
    west = cluster()
    west.apply(gateway("istio-system/east-west"))
    async with reading(MemorySession(west), "Gateway") as read:
        await settled(20)
        west.script(Refuse(404, body=b"default backend - 404"), times=3)
        west.end_watches()
        await settled(30)
        assert (read.state, read.names) == ("synced", {"east-west"})
        west.absent |= {"Gateway", "GatewayClass", "HTTPRoute", "ReferenceGrant"}
        west.end_watches()
        await settled(30)
        assert (read.state, read.names) == ("absent", set())


@pytest.mark.parametrize(
    "page",
    [b"<html>502 Bad Gateway</html>", b'{"type":"ADDED","object":', b"null", error_event(500, "InternalError")],
)
def test_what_a_proxy_or_a_sick_server_says_in_a_watch_takes_nothing_away(page: bytes) -> None:
    @virtual_time
    async def run() -> None:
        west = cluster("a", "b")
        async with reading(MemorySession(west)) as read:
            await settled(20)
            west.script(Lines((page,)), verb="watch", times=5)
            west.end_watches()
            west.delete("Pod", "shop/b")
            await settled(120)
            assert (read.state, read.names) == ("synced", {"a"})

    run()


@virtual_time
async def test_an_error_page_in_place_of_a_list_takes_nothing_away() -> None:
    west = cluster("a", watch_list=False)
    async with reading(MemorySession(west)) as read:
        await settled(20)
        west.script(Refuse(200, body=b"<html>please log in</html>"), verb="list", times=2)
        west.script(Lines((error_event(410, "Expired"),)), verb="watch")
        west.end_watches()
        await settled(60)
        assert (read.state, read.names) == ("synced", {"a"})
        assert read.restarts("decode") == 2


@pytest.mark.parametrize("watch_list", [True, False])
def test_half_a_list_is_none(watch_list: bool) -> None:
    @virtual_time
    async def run() -> None:
        west = cluster("a", "b", "c", watch_list=watch_list)
        west.script(Cut(after=1), verb="watch" if watch_list else "list")
        west.script(Hang(), times=1)
        async with reading(MemorySession(west)) as read:
            await settled(0.1)
            assert read.names == set()
            await settled(120)
            assert read.names == {"a", "b", "c"}

    run()


@pytest.mark.parametrize("watch_list", [True, False])
def test_a_slow_list_is_waited_for_as_long_as_it_moves(watch_list: bool) -> None:
    @virtual_time
    async def run() -> None:
        west = cluster("a", "b", "c", "d", watch_list=watch_list)
        west.script(Trickle(pause=10), times=None, verb="watch" if watch_list else "list")
        async with reading(MemorySession(west)) as read:
            await settled(20)
            assert read.names == set()
            await settled(42)
            assert read.names == {"a", "b", "c", "d"}
            assert read.restarts("timeout") == 0

    run()


def broken(name: str) -> dict[str, object]:
    made = pod(f"shop/{name}", "10.0.0.9")
    return {**made, "metadata": {**made["metadata"], "labels": {"app": "not a label!"}}}


@virtual_time
async def test_an_object_that_cannot_be_used_keeps_its_last_good_version_and_spoils_no_other() -> None:
    west = cluster("a", "b")
    async with reading(MemorySession(west)) as read:
        await settled()
        good = read.facts.get(("west", "Pod", "shop", "b"))
        west.apply(broken("b"), broken("new"), pod("shop/c", "10.0.0.3"))
        await settled()
        assert read.facts.get(("west", "Pod", "shop", "b")) is good
        assert read.names == {"a", "b", "c"}
        assert sorted(read.faults) == ["Pod shop/b", "Pod shop/new"]
        # The same after a new list.
        west.script(Lines((error_event(410, "Expired"),)), verb="watch")
        west.end_watches()
        await settled(20)
        assert read.facts.get(("west", "Pod", "shop", "b")) is good
        assert read.metrics.lists.values == {("west", "Pod"): 2}
        assert sorted(read.faults) == ["Pod shop/b", "Pod shop/new"]
        # Mended, and gone.
        west.apply(pod("shop/b", "10.0.0.2"))
        west.delete("Pod", "shop/new")
        await settled()
        assert read.faults == {}
        assert read.metrics.invalid.values == {("west", "Pod"): 0}


@virtual_time
async def test_a_huge_object_passes_like_any_other() -> None:
    west = cluster("a")
    async with reading(MemorySession(west)) as read:
        await settled()
        west.apply(pod("shop/huge", "10.0.0.9", annotations={"padding": "x" * 3_000_000}))
        await settled()
        assert read.names == {"a", "huge"}


@virtual_time
async def test_a_list_equal_to_what_is_held_changes_nothing() -> None:
    west = cluster("a", "b")
    async with reading(MemorySession(west)) as read:
        await settled()
        revision = read.facts.revision
        west.script(Lines((error_event(410, "Expired"),)), verb="watch")
        west.end_watches()
        await settled(20)
        assert read.metrics.lists.values == {("west", "Pod"): 2}
        assert read.facts.revision == revision


@virtual_time
async def test_only_what_may_become_a_fact_is_asked_for() -> None:
    west = cluster()
    async with AsyncExitStack() as stack:
        for fact in ("MeshConfig", "RootCertificates", "TLSSecret"):
            await stack.enter_async_context(reading(MemorySession(west), fact))
        await settled()
        asked = {(request.kind, request.namespace, request.query["fieldSelector"]) for request in west.requests}
        assert asked == {
            ("ConfigMap", "istio-system", "metadata.name=istio"),
            ("ConfigMap", "", "metadata.name=istio-ca-root-cert"),
            ("Secret", "", "type=kubernetes.io/tls"),
        }


@virtual_time
async def test_objects_of_another_namespace_than_asked_for_are_not_believed() -> None:
    west = KubeCluster("west")
    line = b'{"type":"ADDED","object":{"metadata":{"name":"cart","namespace":"%s","resourceVersion":"1"}}}'
    end = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"2","annotations":{%s}}}}'
    end %= b'"k8s.io/initial-events-end":"true"'
    lines = (line % b"shop", line % b"bank", end, line.replace(b'"1"', b'"3"') % b"farm")
    west.script(Lines(lines, then="hang"))
    shop = Resource(BY_FACT["Pod"].kind, namespace="shop")
    async with reading(MemorySession(west), resource=shop) as read:
        await settled()
        assert {key[2:] for key, _ in read.facts.scan()} == {("shop", "cart")}


FAULTS = st.sampled_from(
    [
        Refuse(401),
        Refuse(404, body=b"404 page not found"),
        Refuse(410, "Expired"),
        Refuse(429, headers={"Retry-After": "7"}),
        Refuse(500),
        Refuse(503, body=b"<html>"),
        Refuse(200, body=b"<html>"),
        Hang(),
        Cut(after=1),
        Trickle(pause=9),
        Lines(),
        Lines(then="hang"),
        Lines((b"<html>",)),
        Lines((error_event(410, "Expired"),)),
        Lines((error_event(500, "InternalError"),), then="hang"),
    ]
)
WRITES = st.tuples(st.sampled_from(("apply", "delete", "break")), st.sampled_from("abcd"))
EVENTS = st.sampled_from(("compact", "freeze", "end", "pass"))


@given(st.lists(FAULTS | WRITES | EVENTS, max_size=15), st.booleans(), st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_whatever_happens_the_table_ends_as_the_server(steps: list[Any], watch_list: bool, chance: float) -> None:
    @virtual_time
    async def run() -> None:
        west = cluster("a", "b", "c", watch_list=watch_list)
        async with reading(MemorySession(west), chance=chance) as read:
            for number, step in enumerate(steps):
                match step:
                    case ("apply", name):
                        west.apply(pod(f"shop/{name}", f"10.0.1.{number}"))
                    case ("break", name):
                        west.apply(broken(name))
                    case ("delete", name) if west.store.get("Pod", ("shop", name)):
                        west.delete("Pod", f"shop/{name}")
                    case "compact":
                        west.compact()
                    case "freeze":
                        west.freeze()
                    case "end":
                        west.end_watches()
                    case "pass":
                        await settled(7)
                    case Refuse() | Hang() | Cut() | Trickle() | Lines():
                        west.script(step)
                await settled(0.01)
            # All faults have been met after some minutes, and from then on the server behaves.
            await settled(1200)
            assert read.state == "synced"
            addresses = {fact.addresses for _, fact in read.facts.scan(("west", "Pod")) if isinstance(fact, Pod)}
            good = [one.document for one in west.store.objects("Pod") if is_good(one.document)]
            assert {(document["status"]["podIP"],) for document in good} <= addresses
            assert read.names >= {document["metadata"]["name"] for document in good}
            # What cannot be used is held as it was, or not at all; what was deleted is not.
            assert read.names <= {one.name[1] for one in west.store.objects("Pod")}

    run()


def is_good(document: Manifest) -> bool:
    """Whether a pod is none of the broken ones."""
    return " " not in "".join(document["metadata"].get("labels", {}).values())


async def test_over_tls_a_killed_server_is_found_again_and_its_watch_goes_on() -> None:
    west = cluster("a", "b")
    async with KubeApi(west, tls=True) as api:
        server = ApiServer(west.url, ca_data=west.ca.decode(), token="token")
        async with Session(server) as session, reading(session, pace=Pace(first_wait=0.05)) as read:
            await eventually(lambda: read.names == {"a", "b"})
            await api.stop(west)
            await eventually(lambda: read.state == "stale")
            assert read.names == {"a", "b"}
            west.delete("Pod", "shop/b")
            await api.start(west)
            await eventually(lambda: read.names == {"a"})
            await eventually(lambda: read.state == "synced")
            assert read.metrics.lists.values == {("west", "Pod"): 1}
        await eventually(lambda: api.connections(west) == 0)
    assert west.tokens_seen() == {"token": west.count()}


async def test_a_server_of_another_authority_is_told_what_is_wrong_and_no_token() -> None:
    west, other = cluster("a"), cluster("a")
    async with KubeApi(west, tls=True), KubeApi(other, tls=True):
        server = ApiServer(west.url, ca_data=other.ca.decode(), token="token")
        async with Session(server) as session, reading(session) as read:
            await eventually(lambda: len(read.reports) > 1)
            assert read.state == "connecting"
            assert "certificate" in read.reports[-1][1]
    assert west.requests == []
