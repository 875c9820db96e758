"""Who may be at the end of a tunnel: exactly who should be, on the inner one and on the outer one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from aggregator.demo.journey import Refused
from aggregator.demo.stage import HOST
from tests.kit.mesh import Mesh


async def started(mesh: Mesh, **accounts: str) -> None:
    """Everything runs, the pods of some applications with the certificates of other accounts."""
    for site in mesh.stage.sites:
        await mesh.start_pods(site, **accounts)
    for gateway in [await mesh.start_gateway(site) for site in mesh.stage.sites]:
        await gateway.ready()


async def reason(mesh: Mesh) -> str:
    """Why the ingress gateway could not make a tunnel, by its own account."""
    line: dict[str, Any] = await mesh.ingress.logged(lambda line: "SAN" in str(line.get("reason")))
    return str(line["reason"])


async def test_a_pod_with_another_identity_than_the_services_is_refused_and_told_nothing(
    tmp_path: Path, binary: Path
) -> None:
    async with Mesh(tmp_path, binary) as mesh:
        await started(mesh, catalog="front")
        with pytest.raises(Refused, match="503"):
            await mesh.traveller.ask(HOST, "/")
        said = await reason(mesh)
        assert re.search(r"expected_SANs:_\[spiffe://cluster\.local/ns/shop/sa/catalog\]", said)
        assert "sa/front" in said
        # The outer tunnel stood; what was to be inside never came to an application.
        assert [line["code"] for line in mesh.east_west.access_log() if line["listener"] == "connect_terminate"]
        assert not any(app.answered for name, app in mesh.plane.apps.items() if name.startswith("east-catalog"))


async def test_a_gateway_with_another_identity_than_its_gateways_is_refused_and_told_nothing(
    tmp_path: Path, binary: Path
) -> None:
    async with Mesh(tmp_path, binary) as mesh:
        mesh.edit(mesh.stage.east, "cluster.yaml", "  labels: {topology.istio.io/network: net-east}\nspec:", ANNOTATED)
        await started(mesh)
        with pytest.raises(Refused, match="503"):
            await mesh.traveller.ask(HOST, "/")
        said = await reason(mesh)
        assert re.search(r"expected_SANs:_\[spiffe://cluster\.local/ns/istio-system/sa/someone-else\]", said)
        assert "sa/east-west" in said
        assert [line for line in mesh.east_west.access_log() if line.get("authority")] == []


async def test_a_pod_at_home_with_another_identity_than_its_own_is_refused(tmp_path: Path, binary: Path) -> None:
    async with Mesh(tmp_path, binary) as mesh:
        await started(mesh, orders="front")
        with pytest.raises(Refused, match="503"):
            await mesh.traveller.ask(HOST, "/orders")
        assert "expected_SANs:_[spiffe://cluster.local/ns/shop/sa/orders]" in await reason(mesh)


ANNOTATED = """\
  labels: {topology.istio.io/network: net-east}
  annotations: {gateway.istio.io/service-account: someone-else}
spec:"""
