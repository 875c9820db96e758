"""The certificate authority that is kept in a Secret of home, with the role that deploy/ gives and no other."""

from __future__ import annotations

from tests.kit.three_servers import SYSTEM, ThreeServers
from xds.client import AdsClient
from xds.messages.workload import ADDRESS_TYPE

SECRET = "isthmus-ca-secret"


async def test_a_control_plane_that_is_started_again_and_one_beside_it_have_the_same_root(world: ThreeServers) -> None:
    given = {"ca_secret": SECRET, "leader_elect": False, "xds_plaintext": None}
    try:
        async with world.plane(**given) as first, world.plane(**given) as beside:
            roots = first.control.authority.root_certificates
            assert beside.control.authority.root_certificates == roots
        async with world.plane(**given) as again:
            assert again.control.authority.root_certificates == roots
            # A client that only knows the root that the first had.
            token = await world.alpha.create_token(f"{SYSTEM}/ztunnel", 3600, "istio-ca")
            ports = again.control.ports
            assert ports is not None
            async with (
                AdsClient(
                    f"localhost:{ports.tls}",
                    node_id="ztunnel~127.0.0.1~z.istio-system~x",
                    root_certificates=roots.encode(),
                    token=token,
                ) as client,
                client.delta() as stream,
            ):
                await stream.subscribe(ADDRESS_TYPE)
                assert (await stream.receive()).resources
    finally:
        await world.alpha.delete("Secret", f"{SYSTEM}/{SECRET}")
