"""Tests with a real Envoy. They are skipped, with the reason, where none can be had."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kit.envoy_fixtures import binary
from tests.kit.mesh import Mesh

__all__ = ["binary", "mesh"]

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.envoy)


@pytest.fixture
async def mesh(tmp_path: Path, binary: Path) -> AsyncIterator[Mesh]:
    """Both clusters with all their gateways, ready."""
    async with Mesh(tmp_path, binary) as mesh:
        await mesh.start()
        yield mesh
