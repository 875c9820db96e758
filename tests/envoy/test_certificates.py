"""Certificates that are replaced while requests go on: gateways' own, renewed by the control plane, and hosts'."""

from __future__ import annotations

import json
from pathlib import Path

from aggregator.demo import changes
from aggregator.demo.envoy import Envoy
from aggregator.demo.journey import OPENED
from aggregator.demo.stage import HOST
from tests.kit.eventually import eventually
from tests.kit.load import Load
from tests.kit.mesh import Mesh


async def serial(envoy: Envoy) -> str:
    """The serial number of a gateway's own certificate."""
    shown = json.loads((await envoy.get("/certs")).body)
    (number,) = {chain["serial_number"] for each in shown["certificates"] for chain in each["cert_chain"][:1]}
    return str(number)


async def test_gateways_own_certificates_are_renewed_without_a_failed_request(tmp_path: Path, binary: Path) -> None:
    # Renewed at half its life: after three seconds.
    async with Mesh(tmp_path, binary, workload_cert_ttl=6.0) as mesh:
        await mesh.start()
        changes.set_ready(mesh.stage.west, "orders-1", ready=False)
        before = {envoy.name: await serial(envoy) for envoy in (mesh.ingress, mesh.east_west)}
        async with Load(mesh.traveller, HOST) as load:

            async def renewed() -> bool:
                return all([await serial(envoy) != before[envoy.name] for envoy in (mesh.ingress, mesh.east_west)])

            await mesh.ingress.until(renewed, "given new certificates", 20.0)
            await load.answered(20)
            # A service that was not asked for yet: tunnels that are new, at both of their ends.
            journey = await mesh.traveller.follow(HOST, "/orders", tunnels=("east-ztunnel",))
        assert load.failures == []
        (inner,) = (hop.line for hop in journey.hops if hop.name == "east-ztunnel" and hop.line.get("event") == OPENED)
        assert int(inner["serial"], 16) != int(before[mesh.ingress.name], 16)


async def test_a_new_certificate_of_a_host_is_shown_from_the_next_handshake_on_without_a_failed_request(
    mesh: Mesh,
) -> None:
    before = (await mesh.traveller.get(HOST, "/")).serial
    async with Load(mesh.traveller, HOST) as load:
        mesh.stage.certify(HOST)
        await mesh.shown(HOST, lambda answer: answer.serial != before)
        await load.answered(20)
    assert load.failures == []
    seen = [(await mesh.traveller.get(HOST, "/")).serial for _ in range(5)]
    assert len(set(seen)) == 1


async def test_a_pair_that_does_not_fit_leaves_the_last_good_one_in_use(mesh: Mesh) -> None:
    before = (await mesh.traveller.get(HOST, "/")).serial
    mesh.replace_key("secret-shop-example.yaml", mesh.stage.credentials.certify(HOST).private_key)
    west = mesh.planes["west"].control
    await eventually(lambda: any("tls.key is not the key of tls.crt" in one for one in west.findings()))
    assert (await mesh.traveller.get(HOST, "/")).serial == before
