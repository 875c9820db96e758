"""Gateways into another network: any port, several of them, and what each is given of the requests."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from aggregator.demo import changes
from aggregator.demo.stage import HOST
from tests.kit.load import Load
from tests.kit.mesh import Mesh

PORT = "    port: 15008\n"


async def test_a_gateway_may_be_on_another_port(tmp_path: Path, binary: Path) -> None:
    async with Mesh(tmp_path, binary) as mesh:
        mesh.edit(mesh.stage.east, "cluster.yaml", PORT, PORT.replace("15008", "16008"))
        await mesh.start()
        journey = await mesh.traveller.follow(HOST, "/")
        assert journey.way_in.endswith(":16008")
        assert journey.echo.cluster == "east"


async def test_two_gateways_share_the_requests_as_the_endpoints_behind_them_are_shared_out(mesh: Mesh) -> None:
    first = mesh.stage.gateways(mesh.stage.east)[0]
    second = changes.add_gateway(mesh.stage)
    gateway = await mesh.plane.start_gateway(second)
    await gateway.ready()
    async with Load(mesh.traveller, HOST) as load:
        changes.announce_gateway(mesh.stage)
        # Its first tunnel, while requests go on.
        await gateway.logged(lambda line: line.get("authority") is not None, deadline=10.0)
        await load.answered(10)
    assert load.failures == []
    ways = Counter[str]()
    for _ in range(60):
        journey = await mesh.traveller.follow(HOST, "/")
        ways[journey.way_in.rpartition("/")[2]] += 1
    # Three pods: two of them are counted for the gateway with the lower address, one for the other. Of sixty requests
    # that makes forty; even shares would be thirty.
    assert set(ways) == {f"{first.bind}:15008", f"{second.bind}:{changes.SECOND_GATEWAY_PORT}"}
    assert 36 <= ways[f"{first.bind}:15008"] <= 44


async def test_a_gateway_that_is_withdrawn_gets_no_more_requests_and_none_fails(mesh: Mesh) -> None:
    second = changes.add_gateway(mesh.stage)
    gateway = await mesh.plane.start_gateway(second)
    await gateway.ready()
    changes.announce_gateway(mesh.stage)
    await mesh.answered(HOST, "/", lambda journey: second.bind in journey.way_in)
    async with Load(mesh.traveller, HOST) as load:
        (mesh.stage.east.manifests / "second-gateway.yaml").unlink()
        await mesh.answered(HOST, "/", lambda journey: second.bind not in journey.way_in, times=6)
        await mesh.plane.stop(gateway.name)
        await load.answered(20)
    assert load.failures == []
