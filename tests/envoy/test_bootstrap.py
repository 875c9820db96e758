"""What `isthmus bootstrap` prints is what a stock Envoy starts with."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aggregator.cli.main import app
from aggregator.demo.client import get
from aggregator.demo.credentials import write_private
from tests.kit.eventually import eventually
from tests.kit.mesh import Mesh
from tests.kit.plane import Plane
from xds.records import StreamOpened


@pytest.mark.parametrize("role", ["ingress", "east-west"])
def test_envoy_finds_nothing_wrong_with_it(tmp_path: Path, binary: Path, role: str) -> None:
    for name in ("root.pem", "token"):
        (tmp_path / name).touch()
    options = ["--xds", "127.0.0.1:15012", "--name", "gateway-1", "--namespace", "edge", "--cluster", "west"]
    files = ["--root-cert", tmp_path / "root.pem", "--token-file", tmp_path / "token", "--output", tmp_path / "b.json"]
    done = CliRunner().invoke(app, ["bootstrap", "--role", role, *options, "--bind", "127.0.0.9", *map(str, files)])
    assert done.exit_code == 0, done.stderr
    command: list[str | Path] = [
        binary,
        "--mode",
        "validate",
        "--config-path",
        tmp_path / "b.json",
        "--use-dynamic-base-id",
    ]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr[-2000:]
    assert "deprecated" not in checked.stderr.lower()


async def test_a_gateway_is_not_ready_before_its_control_plane_has_answered_and_then_at_once(
    tmp_path: Path, binary: Path
) -> None:
    async with Mesh(tmp_path, binary) as mesh:
        await mesh.stop_control(mesh.stage.west)
        gateway = await mesh.start_gateway(mesh.stage.west)

        async def waiting() -> bool:
            return await gateway.state() == "PRE_INITIALIZING"

        await gateway.until(waiting, "up")
        await mesh.start_control(mesh.stage.west)
        await gateway.ready(deadline=5.0)


async def test_probes_and_prometheus_reach_their_paths_and_nothing_else_of_the_admin_interface(mesh: Mesh) -> None:
    (proxy,) = mesh.stage.gateways(mesh.stage.west)
    at = (proxy.status.host, proxy.status.port)
    assert (await get("x", "/healthz/ready", at=at)).body == b"LIVE\n"
    metrics = (await get("x", "/stats/prometheus", at=at)).body
    assert b"envoy_server_live" in metrics
    assert (await get("x", "/config_dump", at=at)).status == 404


async def test_the_token_is_read_again_for_every_stream(mesh: Mesh) -> None:
    west = mesh.stage.west
    await mesh.stop_control(west)
    (pod,) = (pod for pod in mesh.stage.pods(west) if pod["metadata"]["name"] == "ingress-1")
    mesh.stage.admit(west, pod)  # from now on the token of before is worth nothing
    plane = await mesh.start_control(west)
    await eventually(lambda: opened(plane), deadline=10.0)


async def test_a_gateway_with_a_wrong_token_is_told_nothing(tmp_path: Path, binary: Path) -> None:
    async with Mesh(tmp_path, binary) as mesh:
        write_private(mesh.stage.credentials.token_file("west", "ingress-1"), b"guessed")
        gateway = await mesh.start_gateway(mesh.stage.west)

        async def refused() -> bool:
            return "is not accepted for cluster" in gateway.log.read_text()

        await gateway.until(refused, "refused")
        assert await gateway.state() == "PRE_INITIALIZING"
        assert not opened(mesh.planes["west"])


def opened(plane: Plane) -> list[StreamOpened]:
    return [record for record in plane.control.records.recent() if isinstance(record, StreamOpened)]
