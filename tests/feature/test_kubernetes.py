"""A whole control plane whose clusters are API servers: home by kubeconfig, remotes by Secret and by file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kit.eventually import eventually
from tests.kit.kube_api import KubeApi, KubeCluster, Refuse
from tests.kit.kubeconfigs import kubeconfig, remote_secret
from tests.kit.pages import page
from tests.kit.plane import Plane, learned, told
from tests.kit.two_clusters import CART, CART_1, CART_2, CLIENT, GATEWAY, WAY, TwoClusters
from tests.kit.ztunnel import ADDRESS_TYPE, Ztunnel

EVERYTHING = {CLIENT, CART_1, CART_2, CART, GATEWAY, WAY}


class ApiServers:
    """The two clusters behind API servers, TLS and tokens included; `files` is where kubeconfigs are."""

    def __init__(self, directory: Path) -> None:
        self.files = directory
        (directory / "manifests").mkdir()
        source = TwoClusters(directory / "manifests")
        self.alpha, self.beta = KubeCluster("alpha"), KubeCluster("beta")
        for cluster, path in ((self.alpha, source.alpha), (self.beta, source.beta)):
            for file in sorted(path.glob("*.yaml")):
                cluster.apply(*(each for each in yaml.safe_load_all(file.read_text()) if each))
            cluster.tokens = {"t1", "t2"}

    def write(self, cluster: KubeCluster, token: str = "t1", *, file: str = "") -> Path:
        """A kubeconfig in a file, written in one step."""
        place = self.files / (file or cluster.name)
        place.parent.mkdir(exist_ok=True)
        draft = place.with_name(f".{place.name}")
        draft.write_bytes(kubeconfig(cluster.url, token, cluster.ca))
        return draft.replace(place)

    def register(self, token: str = "t1") -> None:
        """A Secret of alpha registers beta."""
        self.alpha.apply(remote_secret("far", {"beta": kubeconfig(self.beta.url, token, self.beta.ca)}))

    def plane(self, **settings: Any) -> Plane:
        """A control plane of alpha."""
        return Plane(self.write(self.alpha), **settings)


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[ApiServers]:
    both = ApiServers(tmp_path)
    async with KubeApi(both.alpha, both.beta, tls=True):
        yield both


async def test_clusters_behind_api_servers_are_served_as_those_in_directories(servers: ApiServers) -> None:
    servers.register()
    async with servers.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        machine = await learned(client)
        assert set(machine.held(ADDRESS_TYPE)) >= EVERYTHING
        assert {name: state.state for name, state in plane.control.clusters.states()} == {
            "alpha": "synced",
            "beta": "synced",
        }


async def test_an_endpoint_that_changes_behind_an_api_server_reaches_the_proxy(servers: ApiServers) -> None:
    servers.register()
    async with servers.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        await learned(client)
        servers.beta.delete("Pod", "shop/cart-3")
        assert (await told(client, WAY)).resources == (WAY,)


async def test_no_proxy_sees_a_rotation(servers: ApiServers) -> None:
    servers.register("t1")
    async with servers.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        machine = await learned(client)
        seen = len(machine.received)
        servers.register("t2")
        await eventually(lambda: {request.token for request in servers.beta.watching()} == {"t2"})
        servers.beta.delete("Pod", "shop/cart-3")
        await told(client, WAY)
        assert [(each.resources, each.removed) for each in list(machine.received)[seen:]] == [((WAY,), ())]


async def test_a_cluster_whose_secret_goes_is_withdrawn(servers: ApiServers) -> None:
    servers.register()
    async with servers.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        await learned(client)
        servers.alpha.delete("Secret", "istio-system/far")
        assert WAY in (await told(client, WAY)).removed
        assert [name for name, _ in plane.control.clusters.states()] == ["alpha"]
        await eventually(lambda: servers.beta.watches() == 0)


async def test_a_dead_remote_delays_nobody_longer_than_its_limit(servers: ApiServers) -> None:
    servers.beta.script(Refuse(503, "ServiceUnavailable"), times=None)
    servers.register()
    async with servers.plane(remote_timeout=0.5) as plane, plane.connect(Ztunnel("net1")) as client:
        machine = await learned(client)
        assert set(machine.held(ADDRESS_TYPE)) >= EVERYTHING - {WAY, GATEWAY}
        assert plane.cluster("beta").state == "connecting"
        assert plane.cluster("beta").reason == "503 ServiceUnavailable scripted"
        assert plane.control.readiness().ready


async def test_remotes_come_from_a_directory_of_kubeconfigs_while_it_changes(servers: ApiServers) -> None:
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


async def test_a_remote_in_the_settings_is_read_by_its_kubeconfig_and_follows_it(servers: ApiServers) -> None:
    remote = servers.write(servers.beta, "t1")
    async with Plane(servers.write(servers.alpha), remote) as plane, plane.connect(Ztunnel("net1")) as client:
        assert WAY in (await learned(client)).held(ADDRESS_TYPE)
        servers.write(servers.beta, "t2")
        await eventually(lambda: {request.token for request in servers.beta.watching()} == {"t2"})
        assert plane.cluster("beta").state == "synced"


async def test_home_by_kubeconfig_follows_the_file(servers: ApiServers) -> None:
    async with servers.plane():
        servers.write(servers.alpha, "t2")
        await eventually(lambda: {request.token for request in servers.alpha.watching()} == {"t2"})


async def test_a_directory_as_home_and_an_api_server_as_remote_go_together(servers: ApiServers) -> None:
    home = servers.files / "manifests" / "alpha"
    async with (
        Plane(home, servers.write(servers.beta)) as plane,
        plane.connect(Ztunnel("net1")) as client,
    ):
        assert set((await learned(client)).held(ADDRESS_TYPE)) >= EVERYTHING


async def test_a_registration_that_does_not_count_is_a_finding(servers: ApiServers) -> None:
    servers.alpha.apply(remote_secret("far", {"alpha": kubeconfig(servers.beta.url, "t1", servers.beta.ca)}))
    async with servers.plane() as plane:
        await eventually(lambda: any("which is the home cluster" in line for line in plane.control.findings()))
        assert servers.beta.requests == []


async def test_no_page_log_or_finding_shows_a_credential(servers: ApiServers, caplog: pytest.LogCaptureFixture) -> None:
    servers.beta.tokens = {"hush-hush"}
    servers.register("hush-hush")
    async with servers.plane() as plane:
        await eventually(lambda: plane.cluster("beta").state == "synced")
        shown = [(await page(plane.control.admin.port, path)).text for path in ("/clusters", "/findings", "/metrics")]
        shown += [caplog.text, repr(list(plane.control.tables.facts.scan()))]
        assert "isthmus_watch_events" in shown[2]
        assert not any("hush-hush" in text for text in shown)
