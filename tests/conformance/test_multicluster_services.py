"""The conformance suite of the Multi-Cluster Services API on two clusters, each with a control plane of its own.

Real API servers, the roles of deploy/ and nothing else. Every Required test but one, and the Optional ones of exported
labels: that a service nobody exports is not reached is asked by a command inside a pod, as most Optional tests are, and
there is nothing here that runs containers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import yaml

from tests.kit import kube_binaries
from tests.kit.go_builds import NoProgram
from tests.kit.kube_apiserver import KubeServer, KubeServers
from tests.kit.mcs_suite import Workers, followed, suite
from tests.kit.plane import Plane
from tests.kit.three_servers import ROLE, SYSTEM
from watchers.reader_role import reader

pytestmark = [pytest.mark.kube, pytest.mark.slow]

REQUIRED, EXPORTED_LABELS = 13, 2
WITHIN = 1200.0


async def prepared(server: KubeServer, directory: Path) -> tuple[Path, Path]:
    """Kubeconfigs of its control plane and of a remote one's reader, after all they need is there."""
    await server.apply(*(yaml.safe_load(file.read_text()) for file in kube_binaries.mcs_crds()))
    await server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    await server.apply(*yaml.safe_load_all(ROLE.read_text()), *reader(SYSTEM))
    home = await server.create_token(f"{SYSTEM}/isthmus", 7200)
    remote = await server.create_token(f"{SYSTEM}/isthmus-reader", 7200)
    return server.kubeconfig(directory / "home", home), server.kubeconfig(directory / "remote", remote)


@asynccontextmanager
async def planes(directory: Path, *servers: KubeServer) -> AsyncIterator[None]:
    """A control plane for each cluster, which reads all the others."""
    access = [await prepared(server, directory) for server in servers]
    async with AsyncExitStack() as stack:
        for home, own in access:
            others = [remote for _, remote in access if remote != own]
            await stack.enter_async_context(Plane(home, *others, leader_elect=False))
        yield


async def test_every_test_passes_that_needs_no_command_in_a_pod(tmp_path: Path) -> None:
    try:
        program, programs = suite(), kube_binaries.binaries()
        kube_binaries.mcs_crds()
    except NoProgram as error:
        pytest.skip(f"the suite cannot be had: {error}")
    (tmp_path / "suite").mkdir()
    with KubeServers(programs, tmp_path / "kube", "alpha", "beta") as kube:
        servers = kube.servers["alpha"], kube.servers["beta"]
        async with planes(tmp_path, *servers), Workers(*servers):
            specs = await followed(program, tmp_path / "suite", servers, WITHIN)
    failed = {one.name: f"{one.state}: {one.message}" for one in specs if one.state not in ("passed", "skipped")}
    assert not failed
    assert len([one for one in specs if one.state == "passed"]) == REQUIRED + EXPORTED_LABELS
