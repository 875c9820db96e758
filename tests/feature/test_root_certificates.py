"""Root certificates that a control plane writes into home's namespaces, and what it does when it may not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kit import manifests as m
from tests.kit.eventually import eventually
from tests.kit.kube_api import KubeCluster
from tests.kit.plane import Plane, learned
from tests.kit.two_api_servers import TwoApiServers
from tests.kit.two_clusters import GATEWAY
from tests.kit.ztunnel import ADDRESS_TYPE, Ztunnel

NAME = "istio-ca-root-cert"


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[TwoApiServers]:
    both = TwoApiServers(tmp_path)
    async with both.served():
        yield both


def text(cluster: KubeCluster, namespace: str) -> str:
    stored = cluster.store.get("ConfigMap", (namespace, NAME))
    return str(stored.document["data"]["root-cert.pem"]) if stored is not None else ""


def asked_for(cluster: KubeCluster) -> bool:
    return any(NAME in one.query.get("fieldSelector", "") for one in cluster.requests)


def roots(plane: Plane) -> str:
    return plane.control.authority.root_certificates


@pytest.mark.parametrize("setting", ["distribute_roots", "istio_classes"])
async def test_namespaces_of_home_have_the_roots_and_no_others(servers: TwoApiServers, setting: str) -> None:
    servers.register()
    async with servers.plane(leader_elect=False, **{setting: True}) as plane:
        await eventually(lambda: text(servers.alpha, "shop") == roots(plane))
        servers.alpha.apply(m.namespace("new"))
        await eventually(lambda: text(servers.alpha, "new") == roots(plane))
        await eventually(lambda: len(plane.control.tables.writes) == 0)
        assert text(servers.alpha, "kube-system") == ""
        assert servers.beta.count("patch") == 0
        assert not asked_for(servers.beta)


async def test_unless_it_is_asked_for_nothing_is_read_or_written(servers: TwoApiServers) -> None:
    async with servers.plane(leader_elect=False) as plane:
        await eventually(lambda: len(plane.control.tables.writes) == 0)
        assert not asked_for(servers.alpha)
        assert text(servers.alpha, "shop") == ""


async def test_a_control_plane_that_may_not_read_or_write_them_serves_all_the_same(servers: TwoApiServers) -> None:
    servers.alpha.forbidden.add("ConfigMap")
    async with servers.plane(leader_elect=False, distribute_roots=True) as plane, plane.connect(Ztunnel("net1")) as one:
        machine = await learned(one)
        assert GATEWAY not in machine.held(ADDRESS_TYPE)
        servers.register()
        await one.until(lambda machine: GATEWAY in machine.held(ADDRESS_TYPE), 20.0)
        # What is there is not known, so nothing is to be written.
        assert [key for key, _ in plane.control.tables.writes.scan() if key[1] == "ConfigMap"] == []
        assert servers.alpha.count("patch", "ConfigMap") == 0
