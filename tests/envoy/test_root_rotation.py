"""The root of the mesh is replaced while requests go on: who signs, what is trusted, and what the TLS port presents."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from aggregator.demo import changes
from aggregator.demo.credentials import TRUST_DOMAIN, write_private
from aggregator.demo.envoy import Envoy
from aggregator.demo.journey import OPENED
from aggregator.demo.stage import HOST
from tests.kit.load import Load
from tests.kit.mesh import Mesh
from xds.server.certificate_authority import CertificateAuthority

OVERLAP = 5.0


async def certificates(envoy: Envoy) -> tuple[set[int], set[int]]:
    """The serial numbers of a gateway's own certificate, and of the roots it trusts."""
    shown: list[dict[str, Any]] = json.loads((await envoy.get("/certs")).body)["certificates"]
    own = {int(chain["serial_number"], 16) for each in shown for chain in each["cert_chain"][:1]}
    roots = {int(root["serial_number"], 16) for each in shown for root in each["ca_cert"]}
    return own, roots


def give(directory: Path, signer: CertificateAuthority, *roots: x509.Certificate) -> None:
    """Puts another authority into `cacerts`, file by file, as somebody's tool may do it."""
    (own,) = signer.roots
    key = signer.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    own_pem = own.public_bytes(Encoding.PEM)
    write_private(directory / "root-cert.pem", b"".join(root.public_bytes(Encoding.PEM) for root in roots))
    write_private(directory / "ca-key.pem", key)
    for name in ("ca-cert.pem", "cert-chain.pem"):
        write_private(directory / name, own_pem)


def presented(address: tuple[str, int], root: x509.Certificate) -> None:
    """Connects and trusts one root alone; raises ssl.SSLError if the port shows a certificate below another."""
    context = ssl.create_default_context(cadata=root.public_bytes(Encoding.PEM).decode())
    with socket.create_connection(address) as connection, context.wrap_socket(connection, server_hostname=address[0]):
        pass


async def test_a_root_is_replaced_without_a_failed_request(tmp_path: Path, binary: Path) -> None:
    async with Mesh(tmp_path, binary, root_overlap=OVERLAP) as mesh:
        cacerts = mesh.stage.credentials.cacerts
        (old,) = x509.load_pem_x509_certificates((cacerts / "root-cert.pem").read_bytes())
        following = CertificateAuthority.self_signed(TRUST_DOMAIN)
        (new,) = following.roots
        # Pods keep the certificates they are started with, as proxies do that renewed theirs just before.
        bundle = tmp_path / "both.pem"
        bundle.write_bytes(old.public_bytes(Encoding.PEM) + new.public_bytes(Encoding.PEM))
        for site in mesh.stage.sites:
            pods = [msgspec.structs.replace(pod, root=bundle) for pod in mesh.stage.destinations(site)]
            await mesh.plane.start_pods(site, pods)
        for gateway in [await mesh.start_gateway(site) for site in mesh.stage.sites]:
            await gateway.ready()
        changes.set_ready(mesh.stage.west, "orders-1", ready=False)
        gateways = (mesh.ingress, mesh.east_west)
        before = {envoy.name: (await certificates(envoy))[0] for envoy in gateways}
        async with Load(mesh.traveller, HOST) as load:
            # At once and alone: the old one is not even given any more.
            give(cacerts, following, new)

            async def trusted() -> bool:
                both = {old.serial_number, new.serial_number}
                return all([(await certificates(envoy))[1] == both for envoy in gateways])

            await mesh.ingress.until(trusted, "told of both roots", 20.0)
            for envoy in gateways:
                assert (await certificates(envoy))[0] == before[envoy.name]

            async def renewed() -> bool:
                return all([not (await certificates(envoy))[0] & before[envoy.name] for envoy in gateways])

            await mesh.ingress.until(renewed, "given certificates below the new root", 20.0)
            await load.answered(20)
            # A service that was not asked for yet: tunnels that are new, at both of their ends.
            journey = await mesh.traveller.follow(HOST, "/orders", tunnels=("east-ztunnel",))
            for site in mesh.stage.sites:
                await asyncio.to_thread(presented, (site.xds.host, site.xds.port), new)
        assert load.failures == []
        (inner,) = (hop.line for hop in journey.hops if hop.name == "east-ztunnel" and hop.line.get("event") == OPENED)
        assert int(inner["serial"], 16) in (await certificates(mesh.ingress))[0]
