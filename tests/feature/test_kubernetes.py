"""A whole control plane whose clusters are API servers: home by kubeconfig or by where it runs, remotes by all ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from aggregator.app import api_clusters
from tests.kit.eventually import eventually
from tests.kit.kube_api import Hold, Refuse
from tests.kit.kubeconfigs import kubeconfig, remote_secret
from tests.kit.pages import page
from tests.kit.plane import Plane, learned, told
from tests.kit.two_api_servers import TwoApiServers
from tests.kit.two_clusters import CART, CART_1, CART_2, CLIENT, GATEWAY, WAY
from tests.kit.ztunnel import ADDRESS_TYPE, Ztunnel
from watchers.kubernetes.kubeconfig import in_cluster
from watchers.watching import SourceError

EVERYTHING = {CLIENT, CART_1, CART_2, CART, GATEWAY, WAY}


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[TwoApiServers]:
    both = TwoApiServers(tmp_path)
    async with both.served():
        yield both


async def test_clusters_behind_api_servers_are_served_as_those_in_directories(servers: TwoApiServers) -> None:
    servers.register()
    async with servers.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        machine = await learned(client)
        assert set(machine.held(ADDRESS_TYPE)) >= EVERYTHING
        assert {name: state.state for name, state in plane.control.clusters.states()} == {
            "alpha": "synced",
            "beta": "synced",
        }


async def test_an_endpoint_that_changes_behind_an_api_server_reaches_the_proxy(servers: TwoApiServers) -> None:
    servers.register()
    async with servers.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        await learned(client)
        servers.beta.delete("Pod", "shop/cart-3")
        assert (await told(client, WAY)).resources == (WAY,)


async def test_no_proxy_sees_a_rotation(servers: TwoApiServers) -> None:
    servers.register("t1")
    async with servers.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        machine = await learned(client)
        seen = len(machine.received)
        servers.register("t2")
        await eventually(lambda: {request.token for request in servers.beta.watching()} == {"t2"})
        servers.beta.delete("Pod", "shop/cart-3")
        await told(client, WAY)
        assert [(each.resources, each.removed) for each in list(machine.received)[seen:]] == [((WAY,), ())]


async def test_a_cluster_whose_secret_goes_is_withdrawn(servers: TwoApiServers) -> None:
    servers.register()
    async with servers.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        await learned(client)
        servers.alpha.delete("Secret", "istio-system/far")
        assert WAY in (await told(client, WAY)).removed
        assert [name for name, _ in plane.control.clusters.states()] == ["alpha"]
        await eventually(lambda: servers.beta.watches() == 0)


async def test_a_dead_remote_delays_nobody_longer_than_its_limit(servers: TwoApiServers) -> None:
    servers.beta.script(Refuse(503, "ServiceUnavailable"), times=None)
    servers.register()
    async with servers.plane(remote_timeout=0.5) as plane, plane.connect(Ztunnel("net1")) as client:
        machine = await learned(client)
        assert set(machine.held(ADDRESS_TYPE)) >= EVERYTHING - {WAY, GATEWAY}
        assert plane.cluster("beta").state == "connecting"
        assert plane.cluster("beta").reason == "503 ServiceUnavailable scripted"
        assert plane.control.readiness().ready


async def test_remotes_come_from_a_directory_of_kubeconfigs_while_it_changes(servers: TwoApiServers) -> None:
    (servers.files / "remotes").mkdir()
    async with (
        servers.plane(remotes=servers.files / "remotes") as plane,
        plane.connect(Ztunnel("net1")) as client,
    ):
        assert WAY not in (await learned(client)).held(ADDRESS_TYPE)
        file = servers.write(servers.beta, file="remotes/beta.yaml")
        assert WAY in (await told(client, WAY)).resources
        file.unlink()
        assert WAY in (await told(client, WAY)).removed


async def test_a_remote_in_the_settings_is_read_by_its_kubeconfig_and_follows_it(servers: TwoApiServers) -> None:
    remote = servers.write(servers.beta, "t1")
    async with Plane(servers.write(servers.alpha), remote) as plane, plane.connect(Ztunnel("net1")) as client:
        assert WAY in (await learned(client)).held(ADDRESS_TYPE)
        servers.write(servers.beta, "t2")
        await eventually(lambda: {request.token for request in servers.beta.watching()} == {"t2"})
        assert plane.cluster("beta").state == "synced"


async def test_home_by_kubeconfig_follows_the_file(servers: TwoApiServers) -> None:
    async with servers.plane():
        servers.write(servers.alpha, "t2")
        await eventually(lambda: {request.token for request in servers.alpha.watching()} == {"t2"})


async def test_without_local_home_is_the_cluster_it_runs_in(
    servers: TwoApiServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = servers.files / "serviceaccount"
    account.mkdir()
    (account / "token").write_text("t1")
    (account / "ca.crt").write_bytes(servers.alpha.ca)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "localhost")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", servers.alpha.url.rpartition(":")[2])
    monkeypatch.setattr(api_clusters, "in_cluster", partial(in_cluster, service_account=account))
    servers.register()
    async with Plane(None, cluster_id="alpha") as plane, plane.connect(Ztunnel("net1")) as client:
        assert set((await learned(client)).held(ADDRESS_TYPE)) >= EVERYTHING


async def test_outside_of_a_cluster_home_has_to_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(SourceError, match="--local: KUBERNETES_SERVICE_HOST is not set: this is no pod"):
        Plane(None)


async def test_nobody_is_answered_before_home_has_been_listed_and_then_nothing_is_withdrawn(
    servers: TwoApiServers,
) -> None:
    until = asyncio.Event()
    servers.alpha.script(Hold(until), kind="Pod")
    servers.register()
    async with servers.plane(held=["nobody"]) as plane, plane.connect(Ztunnel("net1")) as client:
        states = plane.control.clusters.states
        await eventually(lambda: any((name, one.state) == ("beta", "synced") for name, one in states()))
        readiness = plane.control.readiness()
        assert (readiness.ready, readiness.waiting[0]) == (False, "cluster alpha is syncing")
        assert not client.machine.received
        until.set()
        machine = await learned(client)
        assert set(machine.held(ADDRESS_TYPE)) >= EVERYTHING
        assert not any(each.removed for each in machine.received)


async def test_a_directory_as_home_and_an_api_server_as_remote_go_together(servers: TwoApiServers) -> None:
    home = servers.files / "manifests" / "alpha"
    async with (
        Plane(home, servers.write(servers.beta)) as plane,
        plane.connect(Ztunnel("net1")) as client,
    ):
        assert set((await learned(client)).held(ADDRESS_TYPE)) >= EVERYTHING


async def test_a_registration_that_does_not_count_is_a_finding(servers: TwoApiServers) -> None:
    servers.alpha.apply(remote_secret("far", {"alpha": kubeconfig(servers.beta.url, "t1", servers.beta.ca)}))
    async with servers.plane() as plane:
        await eventually(lambda: any("which is the home cluster" in line for line in plane.control.findings()))
        assert servers.beta.requests == []


async def test_no_page_log_or_finding_shows_a_credential(
    servers: TwoApiServers, caplog: pytest.LogCaptureFixture
) -> None:
    servers.beta.tokens = {"hush-hush"}
    servers.register("hush-hush")
    async with servers.plane() as plane:
        assert plane.cluster("beta").state == "synced"
        shown = [(await page(plane.control.admin.port, path)).text for path in ("/clusters", "/findings", "/metrics")]
        shown += [caplog.text, repr(list(plane.control.tables.facts.scan()))]
        assert "isthmus_watch_events" in shown[2]
        assert not any("hush-hush" in text for text in shown)
