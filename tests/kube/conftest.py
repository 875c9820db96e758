"""Tests with real API servers, three of them. They are skipped, with the reason, where none can be had."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.kit import kube_binaries
from tests.kit.certificates import Issuer, write_cacerts
from tests.kit.go_builds import NoProgram
from tests.kit.kube_apiserver import KubeServers
from tests.kit.three_servers import ThreeServers

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.kube)
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeServers]:
    """API servers alpha, beta and gamma."""
    try:
        programs = kube_binaries.binaries()
        kube_binaries.crds()
    except NoProgram as error:
        pytest.skip(f"no API server can be had: {error}")
    with KubeServers(programs, tmp_path_factory.mktemp("kube"), "alpha", "beta", "gamma") as servers:
        yield servers


@pytest.fixture
async def world(kube: KubeServers, tmp_path: Path) -> AsyncIterator[ThreeServers]:
    """The clusters of `tests.kit.three_servers`, none of which is registered."""
    world = ThreeServers(kube, tmp_path)
    await world.fill()
    try:
        yield world
    finally:
        await world.clean()


@pytest.fixture
def cacerts(tmp_path: Path) -> Path:
    """An authority that several control planes of a test sign with, one after the other."""
    root = Issuer("the mesh")
    return write_cacerts(tmp_path / "cacerts", root, roots=[root])
