"""Clusters behind API servers that fail: what is served stays right, and what is broken heals by itself.

In virtual time, without sockets; what needs real ones is in test_kubernetes_sockets.py.
"""

from __future__ import annotations

import asyncio

import pytest

from aggregator.cache.table import Table
from tests.kit.clock import virtual_time
from tests.kit.kube_api import Cut, Hang, Hold, KubeCluster, Lines, Refuse, error_event
from tests.kit.kube_mesh import DEAD, REMOTE_KINDS, KubeMesh
from tests.kit.manifests import CREATED, namespace, pod, service
from watchers.facts import Cluster, Fact, ObjectKey
from watchers.kubernetes.listwatch import Pace


def far(name: str = "mesa") -> KubeCluster:
    cluster = KubeCluster(name)
    cluster.apply(namespace("shop"), service("shop/orders", is_global=True))
    cluster.apply(pod("shop/orders-1", "10.2.0.5"), pod("shop/orders-2", "10.2.0.6"))
    return cluster


class Removals:
    """Which facts of a cluster were ever taken away from the table."""

    def __init__(self, table: Table[ObjectKey, Fact], cluster: str) -> None:
        self._cursor = table.cursor(cluster, self._take, from_start=False)
        self.names: list[str] = []

    def _take(self) -> None:
        self.names += [key[3] for key, fact in self._cursor.take().changes.items() if fact is None]


@virtual_time
async def test_clusters_registered_by_secrets_are_read() -> None:
    quay, mesa = KubeCluster("quay"), far()
    quay.apply(pod("shop/cart-1", "10.1.0.5"))
    async with KubeMesh(quay, mesa) as mesh:
        mesh.register("far", {"mesa": mesa})
        await asyncio.sleep(1)
        assert (mesh.state("quay"), mesh.names("quay")) == ("synced", ["cart-1"])
        assert (mesh.state("mesa"), mesh.names("mesa")) == ("synced", ["orders-1", "orders-2"])
        mesa.delete("Pod", "shop/orders-2")
        await asyncio.sleep(0.1)
        assert mesh.names("mesa") == ["orders-1"]


@virtual_time
async def test_the_trust_domain_that_a_secret_names_is_that_of_its_cluster_and_follows_it() -> None:
    quay, mesa = KubeCluster("quay"), far()
    async with KubeMesh(quay, mesa) as mesh:

        async def named(text: str) -> str:
            mesh.register("far", {"mesa": mesa}, annotations={"isthmus.io/trust-domain": text} if text else None)
            await asyncio.sleep(5)
            fact = mesh.table.get(("mesa", "Cluster", "", "mesa"))
            assert isinstance(fact, Cluster)
            assert (fact.state, mesh.names("mesa")) == ("synced", ["orders-1", "orders-2"])
            return fact.trust_domain

        removals = Removals(mesh.table, "mesa")
        assert await named("harbour.example") == "harbour.example"
        assert await named("other.example") == "other.example"
        assert await named("No Such Thing") == "other.example"
        assert await named("") == ""
        assert removals.names == []


@virtual_time
async def test_a_remote_is_known_before_home_is_synced_so_that_no_view_settles_without_it() -> None:
    quay, mesa = KubeCluster("quay"), far()
    until = asyncio.Event()
    quay.script(Hold(until), kind="Pod")
    async with KubeMesh(quay, mesa) as mesh:
        mesh.register("far", {"mesa": DEAD})
        await asyncio.sleep(1)
        assert (mesh.state("quay"), mesh.state("mesa")) == ("syncing", "connecting")
        until.set()
        await asyncio.sleep(1)
        assert mesh.state("quay") == "synced"


@virtual_time
async def test_a_remote_is_read_with_the_reader_role_alone() -> None:
    quay, mesa = KubeCluster("quay"), far()
    mesa.forbidden = {"Secret", "ConfigMap", "Ingress", "IngressClass", "GatewayClass"}
    async with KubeMesh(quay, mesa) as mesh:
        mesh.register("far", {"mesa": mesa})
        await asyncio.sleep(1)
        assert mesh.state("mesa") == "synced"
        assert mesa.count(status=403) == 0


@virtual_time
async def test_rotation_is_invisible_and_what_was_deleted_meanwhile_is_gone_afterwards() -> None:
    quay, mesa = KubeCluster("quay"), far()
    mesa.tokens = {"t1", "t2"}
    async with KubeMesh(quay, mesa) as mesh:
        mesh.register("far", {"mesa": mesa}, "t1")
        await asyncio.sleep(1)
        removals, until = Removals(mesh.table, "mesa"), asyncio.Event()
        mesa.script(Hold(until), kind="Pod")
        mesh.register("far", {"mesa": mesa}, "t2")
        await asyncio.sleep(1)
        mesa.delete("Pod", "shop/orders-2")
        until.set()
        await asyncio.sleep(1)
        assert (removals.names, mesh.names("mesa"), mesh.state("mesa")) == (["orders-2"], ["orders-1"], "synced")
        assert (mesa.watches(), mesh.sessions[1].closed, mesh.sessions[2].closed) == (REMOTE_KINDS, True, False)
        asked = mesa.tokens_seen()["t1"]
        await asyncio.sleep(3600)
        assert mesa.tokens_seen()["t1"] == asked
        mesa.apply(pod("shop/orders-3", "10.2.0.7"))
        await asyncio.sleep(1)
        assert mesh.names("mesa") == ["orders-1", "orders-3"]


@virtual_time
async def test_a_renewed_token_reaches_every_watch_before_the_old_one_ends() -> None:
    quay, mesa = KubeCluster("quay"), far()
    mesa.tokens = {"t1", "t2"}
    async with KubeMesh(quay, mesa) as mesh:
        mesh.register("far", {"mesa": mesa}, "t1")
        await asyncio.sleep(10)
        removals = Removals(mesh.table, "mesa")
        mesh.register("far", {"mesa": mesa}, "t2")
        await asyncio.sleep(10)
        mesa.tokens = {"t2"}
        mesa.end_watches()
        await asyncio.sleep(3600)
        assert (mesa.count(status=401), removals.names, mesh.state("mesa")) == (0, [], "synced")


@virtual_time
async def test_a_corrected_secret_cancels_the_failing_attempt_at_once() -> None:
    quay, mesa = KubeCluster("quay"), far()
    async with KubeMesh(quay, mesa) as mesh:
        mesh.register("far", {"mesa": DEAD})
        await asyncio.sleep(600)
        assert (mesh.state("mesa"), mesh.reason("mesa")) == ("connecting", "Connection refused")
        mesh.register("far", {"mesa": mesa})
        await asyncio.sleep(2)
        assert (mesh.state("mesa"), mesh.names("mesa")) == ("synced", ["orders-1", "orders-2"])


@virtual_time
async def test_a_revoked_token_is_denied_keeps_what_was_read_and_heals_by_the_secret() -> None:
    quay, mesa = KubeCluster("quay"), far()
    mesa.tokens = {"t1"}
    async with KubeMesh(quay, mesa) as mesh:
        mesh.register("far", {"mesa": mesa}, "t1")
        await asyncio.sleep(1)
        mesa.tokens = {"t2"}
        mesa.end_watches()
        await asyncio.sleep(5)
        assert (mesh.state("mesa"), mesh.names("mesa")) == ("denied", ["orders-1", "orders-2"])
        mesh.register("far", {"mesa": mesa}, "t2")
        await asyncio.sleep(2)
        assert (mesh.state("mesa"), mesh.reason("mesa")) == ("synced", "")


@virtual_time
async def test_a_cluster_that_answers_503_is_tried_for_ever_with_a_capped_delay_while_others_are_served() -> None:
    quay, mesa, fjord = KubeCluster("quay"), far(), far("fjord")
    outage = mesa.script(Refuse(503, "ServiceUnavailable"), times=None)
    async with KubeMesh(quay, mesa, fjord) as mesh:
        mesh.register("far", {"mesa": mesa, "fjord": fjord})
        await asyncio.sleep(7200)
        assert (mesh.state("mesa"), mesh.state("fjord")) == ("connecting", "synced")
        assert mesh.names("fjord") == ["orders-1", "orders-2"]
        assert 7200 / 30 <= mesa.count(status=503) <= 7200 / 15
        outage.withdraw()
        await asyncio.sleep(30)
        assert (mesh.state("mesa"), mesh.names("mesa")) == ("synced", ["orders-1", "orders-2"])


@virtual_time
async def test_removal_is_complete_and_late_events_of_a_removed_cluster_die() -> None:
    quay, mesa = KubeCluster("quay"), far()
    async with KubeMesh(quay, mesa) as mesh:
        mesh.register("far", {"mesa": mesa})
        await asyncio.sleep(1)
        tasks = len(asyncio.all_tasks())

        async def storm() -> None:
            for number in range(400):
                mesa.apply(pod(f"shop/storm-{number % 7}", f"10.2.1.{number % 250}"))
                await asyncio.sleep(0.005)

        blowing = asyncio.create_task(storm())
        await asyncio.sleep(1)
        assert "storm-1" in mesh.names("mesa")
        mesh.unregister("far")
        await asyncio.sleep(0.01)
        gone = mesh.table.cursor("mesa", from_start=False)
        assert [*mesh.table.scan(("mesa",))] == []
        await blowing
        await asyncio.sleep(60)
        assert ([*mesh.table.scan(("mesa",))], gone.pending) == ([], False)
        assert (mesa.watches(), mesh.sessions[1].closed) == (0, True)
        assert len(asyncio.all_tasks()) < tasks
        assert not any("mesa" in labels for metric in mesh.metrics.all() for labels in metric.values)


@virtual_time
async def test_the_oldest_secret_owns_a_cluster_and_the_next_takes_over_without_a_dip() -> None:
    quay, mesa = KubeCluster("quay"), far()
    async with KubeMesh(quay, mesa) as mesh:
        mesh.register("b", {"mesa": mesa}, "tb", created="2026-02-01T00:00:00Z")
        mesh.register("a", {"mesa": mesa}, "ta", created="2026-01-01T00:00:00Z")
        await asyncio.sleep(1)
        cause = "claims the cluster 'mesa', which Secret istio-system/a owns as the older claim"
        assert mesh.refused() == {"Secret istio-system/b: mesa": cause}
        removals, before = Removals(mesh.table, "mesa"), mesa.tokens_seen()["tb"]
        mesh.unregister("a")
        await asyncio.sleep(1)
        assert (removals.names, mesh.names("mesa"), mesh.refused()) == ([], ["orders-1", "orders-2"], {})
        assert mesa.tokens_seen()["tb"] > before


@virtual_time
async def test_with_a_grace_a_secret_that_is_made_anew_makes_no_difference_and_one_that_is_not_is_withdrawn() -> None:
    quay, mesa = KubeCluster("quay"), far()
    async with KubeMesh(quay, mesa, grace=5.0) as mesh:
        mesh.register("far", {"mesa": mesa}, "t1")
        await asyncio.sleep(1)
        removals = Removals(mesh.table, "mesa")
        for token, created in (("t1", CREATED), ("t2", "2026-03-01T00:00:00Z")):
            mesh.unregister("far")
            await asyncio.sleep(4)
            assert mesh.reason("mesa") == "it is not registered any more, and is withdrawn after 5s"
            mesa.apply(pod("shop/orders-1", f"10.2.0.{len(token) + int(token[1])}"))
            mesh.register("far", {"mesa": mesa}, token, created=created)
            await asyncio.sleep(30)
            assert (removals.names, mesh.state("mesa"), mesh.reason("mesa")) == ([], "synced", "")
        assert {request.token for request in mesa.watching()} == {"t2"}
        mesh.unregister("far")
        await asyncio.sleep(4.9)
        assert removals.names == []
        await asyncio.sleep(0.2)
        assert ([*mesh.table.scan(("mesa",))], mesa.watches()) == ([], 0)


@virtual_time
async def test_the_grace_of_a_cluster_ends_once_its_api_server_is_read_under_another_id() -> None:
    quay, mesa = KubeCluster("quay"), far()
    async with KubeMesh(quay, mesa, grace=60.0) as mesh:
        mesh.register("far", {"mesa": mesa})
        await asyncio.sleep(1)
        mesh.unregister("far")
        await asyncio.sleep(1)
        mesh.register("new", {"mesa-2": mesa})
        await asyncio.sleep(5)
        assert (mesh.state("mesa"), mesh.state("mesa-2")) == ("", "synced")
        assert mesh.names("mesa-2") == ["orders-1", "orders-2"]


@virtual_time
async def test_a_refused_registration_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    quay, mesa = KubeCluster("quay"), far()
    async with KubeMesh(quay, mesa) as mesh:
        mesh.register("far", {"quay": mesa})
        await asyncio.sleep(1)
        mesh.register("other", {"mesa": mesa})
        await asyncio.sleep(1)
    assert [record.message for record in caplog.records] == ["registration refused"]


@virtual_time
async def test_the_id_of_home_is_refused_and_reported() -> None:
    quay, mesa = KubeCluster("quay"), far()
    async with KubeMesh(quay, mesa) as mesh:
        mesh.register("far", {"quay": mesa})
        await asyncio.sleep(1)
        assert mesh.refused() == {"Secret istio-system/far: quay": "claims the id 'quay', which is the home cluster"}
        assert (mesh.names("quay"), mesa.requests) == ([], [])


@virtual_time
async def test_one_api_server_under_two_ids_counts_once() -> None:
    quay, mesa = KubeCluster("quay"), far()
    async with KubeMesh(quay, mesa) as mesh:
        mesh.register("a", {"mesa": mesa})
        mesh.register("b", {"twin": mesa})
        mesh.register("c", {"mirror": quay})
        await asyncio.sleep(5)
        assert (mesh.names("mesa"), mesh.names("twin"), mesh.state("twin")) == (["orders-1", "orders-2"], [], "")
        assert [*mesh.refused()] == ["Secret istio-system/b: twin", "Secret istio-system/c: mirror"]
        mesh.unregister("a")
        await asyncio.sleep(5)
        assert (mesh.names("twin"), mesh.state("mesa")) == (["orders-1", "orders-2"], "")


@virtual_time
async def test_a_hostile_kubeconfig_is_refused_with_its_reason_and_the_last_good_one_stays() -> None:
    quay, mesa = KubeCluster("quay"), far()
    async with KubeMesh(quay, mesa) as mesh:
        mesh.register("far", {"mesa": mesa})
        await asyncio.sleep(1)
        mesh.register("far", {"mesa": "https://169.254.169.254"})
        await asyncio.sleep(1)
        assert (mesh.state("mesa"), mesh.names("mesa")) == ("synced", ["orders-1", "orders-2"])
        assert mesh.reason("mesa").startswith("Secret istio-system/far: cluster 'cluster': server names a host")


@virtual_time
async def test_a_silent_watch_is_given_up_and_goes_on_from_its_last_version() -> None:
    quay, mesa = KubeCluster("quay"), far()
    async with KubeMesh(quay, mesa, pace=Pace(silence=15.0)) as mesh:
        quay.bookmark_every = mesa.bookmark_every = 10.0
        mesh.register("far", {"mesa": mesa})
        await asyncio.sleep(1)
        lists = mesa.count("list") + mesh.metrics.lists.values["mesa", "Pod"]
        mesa.freeze("Pod")
        mesa.delete("Pod", "shop/orders-2")
        await asyncio.sleep(14)
        assert mesh.names("mesa") == ["orders-1", "orders-2"]
        await asyncio.sleep(4)
        assert (mesh.names("mesa"), mesh.state("mesa")) == (["orders-1"], "synced")
        assert mesh.metrics.restarts.values["mesa", "timeout"] == 1
        assert mesa.count("list") + mesh.metrics.lists.values["mesa", "Pod"] == lists


@virtual_time
async def test_bookmarks_keep_a_quiet_watch_alive() -> None:
    quay, mesa = KubeCluster("quay"), far()
    quay.bookmark_every = mesa.bookmark_every = 10.0
    async with KubeMesh(quay, mesa, pace=Pace(silence=15.0, watch=3600.0)) as mesh:
        mesh.register("far", {"mesa": mesa})
        await asyncio.sleep(5)
        asked = len(mesa.requests)
        await asyncio.sleep(600)
        assert (len(mesa.requests), mesh.state("mesa")) == (asked, "synced")


@virtual_time
async def test_a_version_that_is_too_old_leads_to_a_list_of_which_only_the_difference_counts() -> None:
    quay, mesa = KubeCluster("quay"), far()
    async with KubeMesh(quay, mesa) as mesh:
        mesh.register("far", {"mesa": mesa})
        await asyncio.sleep(1)
        removals = Removals(mesh.table, "mesa")
        mesa.script(Refuse(410, "Expired"), verb="watch", kind="Pod")
        mesa.delete("Pod", "shop/orders-2")
        mesa.script(Lines((error_event(410, "Expired"),)), verb="watch", kind="Service")
        mesa.end_watches()
        await asyncio.sleep(30)
        assert (removals.names, mesh.names("mesa"), mesh.state("mesa")) == (["orders-2"], ["orders-1"], "synced")


@virtual_time
async def test_a_server_that_closes_watches_at_once_is_asked_six_times_in_ten_seconds_at_most() -> None:
    quay, mesa = KubeCluster("quay"), far()
    async with KubeMesh(quay, mesa) as mesh:
        mesh.register("far", {"mesa": mesa})
        await asyncio.sleep(1)
        mesa.script(Lines(), verb="watch", kind="Pod", times=None)
        asked = mesa.count(kind="Pod")
        mesa.end_watches("Pod")
        await asyncio.sleep(10)
        assert mesa.count(kind="Pod") - asked <= 6
        assert mesh.names("mesa") == ["orders-1", "orders-2"]


@virtual_time
async def test_an_api_server_that_is_black_holed_takes_nothing_away() -> None:
    quay, mesa = KubeCluster("quay"), far()
    async with KubeMesh(quay, mesa) as mesh:
        mesh.register("far", {"mesa": mesa})
        await asyncio.sleep(1)
        removals, silence = Removals(mesh.table, "mesa"), mesa.script(Hang(), times=None)
        mesa.freeze()
        await asyncio.sleep(3600)
        assert (removals.names, mesh.names("mesa"), mesh.state("mesa")) == ([], ["orders-1", "orders-2"], "stale")
        silence.withdraw()
        await asyncio.sleep(120)
        assert (removals.names, mesh.state("mesa")) == ([], "synced")


@virtual_time
async def test_half_a_list_is_never_applied() -> None:
    quay, mesa = KubeCluster("quay"), far()
    mesa.watch_list = False
    async with KubeMesh(quay, mesa) as mesh:
        mesh.register("far", {"mesa": mesa})
        await asyncio.sleep(5)
        removals = Removals(mesh.table, "mesa")
        mesa.script(Cut(1), verb="list", kind="Pod")
        mesa.script(Refuse(410, "Expired"), verb="watch", kind="Pod")
        mesa.end_watches("Pod")
        await asyncio.sleep(60)
        assert (removals.names, mesh.names("mesa"), mesh.state("mesa")) == ([], ["orders-1", "orders-2"], "synced")
        assert mesa.count("list", "Pod") == 3


@virtual_time
async def test_a_new_credential_of_home_that_may_not_read_secrets_unregisters_nobody() -> None:
    quay, mesa = KubeCluster("quay"), far()
    async with KubeMesh(quay, mesa) as mesh:
        mesh.register("far", {"mesa": mesa})
        await asyncio.sleep(1)
        removals = Removals(mesh.table, "mesa")
        quay.forbidden = {"Secret"}
        mesh.use("weaker")
        await asyncio.sleep(60)
        assert {request.token for request in quay.watching()} == {"weaker"}
        assert (removals.names, mesh.state("quay"), mesh.state("mesa")) == ([], "synced", "synced")
        assert "RemoteSecret: 403" in mesh.reason("quay")


@virtual_time
async def test_a_home_whose_api_server_goes_still_has_remote_changes_flowing() -> None:
    quay, mesa = KubeCluster("quay"), far()
    async with KubeMesh(quay, mesa) as mesh:
        mesh.register("far", {"mesa": mesa})
        await asyncio.sleep(1)
        quay.script(Refuse(503), times=None)
        quay.end_watches()
        mesa.delete("Pod", "shop/orders-2")
        await asyncio.sleep(300)
        assert (mesh.state("quay"), mesh.state("mesa"), mesh.names("mesa")) == ("stale", "synced", ["orders-1"])
