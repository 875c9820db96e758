"""Proxies prove who they are by tokens of their cluster: of home, which its API server reviews, and of remotes, which
are verified by the keys that theirs publish.
"""

from __future__ import annotations

import asyncio

import grpc
import pytest
from cryptography import x509

from tests.kit import manifests as m
from tests.kit.certificates import signing_request
from tests.kit.eventually import eventually, eventually_awaited
from tests.kit.plane import ZTUNNEL_NODE, Plane
from tests.kit.three_servers import SYSTEM, ThreeServers, token_in
from watchers.kubernetes import token_reviews
from watchers.kubernetes.issuer_keys import CONFIGURATION
from xds.client import AdsClient, DeltaStream, StreamEnded
from xds.messages.workload import ADDRESS_TYPE

ZTUNNEL = f"{SYSTEM}/ztunnel"


async def first(client: AdsClient) -> set[str]:
    """What the first answer about addresses names."""
    async with client.delta() as stream:
        await stream.subscribe(ADDRESS_TYPE)
        response = await asyncio.wait_for(stream.receive(), 20)
        return {one.name for one in response.resources}


async def test_a_ztunnel_with_a_token_of_its_account_is_served(world: ThreeServers) -> None:
    async with world.plane(xds_plaintext=None, leader_elect=False) as plane:
        token = await world.alpha.create_token(ZTUNNEL, 3600, "istio-ca")
        async with plane.client(token) as client:
            assert "alpha//Pod/shop/cart-1" in await first(client)


async def test_a_token_says_which_pod_it_is_bound_to(world: ThreeServers) -> None:
    pod = m.pod(f"{SYSTEM}/ztunnel-1", "10.10.1.99", account="ztunnel", node="alpha-1")
    async with world.plane(xds_plaintext=None, leader_elect=False) as plane:
        await world.alpha.create_token(ZTUNNEL)
        await world.alpha.apply(pod)
        token = await world.alpha.create_token(ZTUNNEL, 3600, "istio-ca", pod="ztunnel-1")
        async with plane.client(token) as client:
            assert await first(client)
        another = ZTUNNEL_NODE.replace("ztunnel-1", "ztunnel-2")
        async with plane.client(token, another) as client:
            with pytest.raises(StreamEnded, match="pod"):
                await first(client)


@pytest.mark.parametrize("kind", ["another audience", "another account", "no token of this cluster"])
async def test_a_token_for_somebody_else_is_not_accepted(world: ThreeServers, kind: str) -> None:
    async with world.plane(xds_plaintext=None, leader_elect=False) as plane:
        if kind == "another audience":
            token = await world.alpha.create_token(ZTUNNEL)
        elif kind == "another account":
            token = await world.alpha.create_token("shop/cart", 3600, "istio-ca")
        else:
            token = await world.beta.create_token(ZTUNNEL, 3600, "istio-ca")
        async with plane.client(token) as client:
            with pytest.raises(StreamEnded):
                await first(client)


async def test_the_stream_of_a_pod_that_is_deleted_ends_as_its_token_is_revoked_with_it(
    world: ThreeServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An answer counts for a minute, and for ten seconds more at a real API server.
    monkeypatch.setattr(token_reviews, "FRESH", 0.5)
    pod = m.pod(f"{SYSTEM}/ztunnel-3", "10.10.1.98", account="ztunnel", node="alpha-1")
    async with world.plane(xds_plaintext=None, leader_elect=False, recheck_tokens=1.0) as plane:
        await world.alpha.create_token(ZTUNNEL)
        await world.alpha.apply(pod)
        token = await world.alpha.create_token(ZTUNNEL, 3600, "istio-ca", pod="ztunnel-3")
        node_id = ZTUNNEL_NODE.replace("ztunnel-1", "ztunnel-3")
        async with plane.client(token, node_id) as client, client.delta() as stream:
            await stream.subscribe(ADDRESS_TYPE)
            await asyncio.wait_for(stream.receive(), 20)
            await world.alpha.delete("Pod", f"{SYSTEM}/ztunnel-3")
            with pytest.raises(StreamEnded, match="UNAUTHENTICATED"):
                await asyncio.wait_for(exhausted(stream), 30)


async def exhausted(stream: DeltaStream) -> None:
    async for _ in stream:
        pass


async def test_row_03_while_homes_api_server_is_gone_a_ztunnel_that_was_accepted_comes_back(
    world: ThreeServers,
) -> None:
    async with world.plane(xds_plaintext=None, leader_elect=False) as plane:
        token = await world.alpha.create_token(ZTUNNEL, 3600, "istio-ca")
        async with plane.client(token) as client:
            told = await first(client)
        world.alpha.crash()
        try:
            async with plane.client(token) as client:
                assert await first(client) == told
        finally:
            world.alpha.launch()
            await asyncio.to_thread(world.alpha.await_ready)


# Of remotes.

CART = "spiffe://cluster.local/ns/shop/sa/cart"
BINDING = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/system:service-account-issuer-discovery"


async def certificate(plane: Plane, token: str, cluster: str, identity: str = CART) -> list[str]:
    """The names in the certificate that a bearer of the token gets; raises StreamEnded."""
    async with plane.client(token, cluster=cluster) as client:
        leaf, *_ = await client.create_certificate(signing_request(identity))
    names = x509.load_pem_x509_certificate(leaf.encode()).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    return names.value.get_values_for_type(x509.UniformResourceIdentifier)


async def refused(plane: Plane, token: str, cluster: str) -> grpc.StatusCode:
    with pytest.raises(StreamEnded) as caught:
        await certificate(plane, token, cluster)
    code: grpc.StatusCode = caught.value.code
    return code


async def synced(plane: Plane, *clusters: str) -> None:
    await eventually(lambda: all(plane.cluster(name).state == "synced" for name in clusters), 30.0)


async def test_a_remotes_token_is_accepted_for_that_cluster_and_for_no_other(world: ThreeServers) -> None:
    # All three issuers are called the same.
    await world.register(world.beta)
    await world.register(world.gamma)
    async with world.plane(leader_elect=False) as plane:
        await synced(plane, "beta", "gamma")
        servers = {"alpha": world.alpha, "beta": world.beta, "gamma": world.gamma}
        tokens = {name: await one.create_token("shop/cart", 3600, "istio-ca") for name, one in servers.items()}
        for name, token in tokens.items():
            for cluster in servers:
                if name == cluster:
                    assert await certificate(plane, token, cluster) == [CART]
                else:
                    assert await refused(plane, token, cluster) is grpc.StatusCode.UNAUTHENTICATED


async def test_a_remotes_token_says_which_pod_it_is_bound_to(world: ThreeServers) -> None:
    await world.register(world.beta)
    async with world.plane(leader_elect=False) as plane:
        await synced(plane, "beta")
        await world.beta.create_token("shop/cart")
        await world.beta.apply(m.pod("shop/bound-1", "10.20.1.99", account="cart", node="beta-1"))
        token = await world.beta.create_token("shop/cart", 3600, "istio-ca", pod="bound-1")
        tokens = plane.control.clusters.remote_tokens
        assert tokens is not None
        found = await tokens.review(token, "beta")
        _, pod = await world.beta.ask("GET", "/api/v1/namespaces/shop/pods/bound-1")
        assert found is not None
        account = found.account
        assert (account.namespace, account.name, account.pod) == ("shop", "cart", "bound-1")
        assert (account.node, account.pod_uid) == ("beta-1", pod["metadata"]["uid"])


async def test_a_remotes_token_for_another_audience_is_not_accepted(world: ThreeServers) -> None:
    await world.register(world.beta)
    async with world.plane(leader_elect=False) as plane:
        await synced(plane, "beta")
        token = await world.beta.create_token("shop/cart", 3600)
        assert await refused(plane, token, "beta") is grpc.StatusCode.UNAUTHENTICATED


async def test_where_the_reader_may_not_see_the_keys_the_log_says_what_to_bind(
    world: ThreeServers, caplog: pytest.LogCaptureFixture
) -> None:
    reader = token_in(await world.register(world.beta))
    _, binding = await world.beta.ask("GET", BINDING)
    await world.beta.ask("DELETE", BINDING)

    async def forbidden() -> bool:
        # An API server takes a moment to hear of it.
        return (await world.beta.ask("GET", CONFIGURATION, token=reader))[0] == 403

    try:
        await eventually_awaited(forbidden, 30.0)
        async with world.plane(leader_elect=False) as plane:
            await synced(plane, "beta")
            token = await world.beta.create_token("shop/cart", 3600, "istio-ca")
            assert await refused(plane, token, "beta") is grpc.StatusCode.UNAVAILABLE
        (record,) = [one for one in caplog.records if one.getMessage() == "keys cannot be read"]
        cause = vars(record)["cause"]
        assert "403 Forbidden" in cause
        assert cause.endswith("; bind ClusterRole system:service-account-issuer-discovery to whom the kubeconfig is of")
    finally:
        del binding["metadata"]["resourceVersion"], binding["metadata"]["uid"]
        status, _ = await world.beta.ask("POST", BINDING.rpartition("/")[0], binding)
        assert status == 201


async def test_row_03_while_a_remotes_api_server_is_gone_its_tokens_are_accepted(world: ThreeServers) -> None:
    await world.register(world.beta)
    async with world.plane(leader_elect=False) as plane:
        await synced(plane, "beta")
        known, new = [await world.beta.create_token("shop/cart", 3600, "istio-ca") for _ in range(2)]
        assert await certificate(plane, known, "beta") == [CART]
        world.beta.crash()
        try:
            assert await certificate(plane, new, "beta") == [CART]
        finally:
            world.beta.launch()
            await asyncio.to_thread(world.beta.await_ready)
