"""What a ztunnel is told does not depend on where the manifests stand: the cases once more, behind API servers.

Home's API server registers the others by a Secret, as in a mesh; the records are those of `test_ztunnel.py`.
"""

from __future__ import annotations

import asyncio
import json

import pytest
import yaml

from aggregator.views import ztunnel
from tests.golden.test_ztunnel import CASES
from tests.kit import golden
from tests.kit.clock import virtual_time
from tests.kit.kube_api import KubeCluster
from tests.kit.kube_mesh import KubeMesh
from tests.kit.world import World


def api_servers(scenario: golden.Scenario) -> dict[str, KubeCluster]:
    """The clusters of a scenario, each holding its manifests."""
    servers = {}
    for name, directory in scenario.directories.items():
        server = servers[name] = KubeCluster(name)
        for path in sorted(directory.glob("**/*.yaml")):
            documents = [each for each in yaml.safe_load_all(path.read_text()) if each]
            server.apply(*(each for each in documents if each["kind"] in server.store.resources))
    return servers


@pytest.mark.parametrize("name", CASES)
@virtual_time
async def test_clusters_behind_api_servers_lead_to_the_bytes_of_those_in_directories(name: str) -> None:
    scenario = golden.load(name)
    remotes = api_servers(scenario)
    home = remotes.pop(scenario.local_cluster)
    async with KubeMesh(home, *remotes.values()) as mesh:
        mesh.register("remotes", remotes)
        await asyncio.sleep(1)
        assert {cluster: mesh.state(cluster) for cluster in scenario.networks} == dict.fromkeys(
            scenario.networks, "synced"
        )
        world = World(home.name, facts=mesh.table)
        world.step()
    recorded = json.loads((scenario.directory / "isthmus" / "ztunnel.json").read_text())
    assert world.versions() | world.versions(ztunnel.AUTHORIZATIONS) == recorded["versions"]
    assert world.addresses() == recorded["address"]
    assert world.told(ztunnel.AUTHORIZATIONS) == recorded["authorization"]
    assert [str(finding) for finding in world.findings()] == recorded["findings"]
