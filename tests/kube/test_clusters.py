"""Clusters behind real API servers, from registration to removal: read by the reader's role, and by nothing else."""

from __future__ import annotations

import asyncio

import pytest
import yaml

from tests.kit import manifests as m
from tests.kit.eventually import eventually
from tests.kit.kube_apiserver import KubeServer
from tests.kit.kube_binaries import crds
from tests.kit.plane import Plane, learned, told
from tests.kit.three_servers import CART_OF_GAMMA, READER, ThreeServers, secret_of, token_in, valid
from tests.kit.two_clusters import CART, CART_1, CART_2, CLIENT, GATEWAY, WAY
from tests.kit.ztunnel import ADDRESS_TYPE, Ztunnel, ZtunnelMachine
from watchers.status import ClusterStatus

OF_HOME = {CLIENT, CART_1, CART_2, CART}
OF_BETA = {GATEWAY, WAY}


def holds(machine: ZtunnelMachine, *names: str) -> bool:
    return set(machine.held(ADDRESS_TYPE)) >= set(names)


def status(plane: Plane, cluster: str) -> ClusterStatus:
    return next(one for one in plane.control.clusters.statuses() if one.cluster == cluster)


async def in_state(plane: Plane, cluster: str, state: str, deadline: float = 20.0) -> ClusterStatus:
    def found() -> ClusterStatus:
        one = status(plane, cluster)
        assert one.state == state, one
        return one

    return await eventually(found, deadline, interval=0.05)


async def registered(world: ThreeServers, *servers: KubeServer) -> None:
    for server in servers:
        await world.register(server)


# Registration.


async def test_services_of_all_clusters_that_the_command_registers_are_seen_by_a_ztunnel(world: ThreeServers) -> None:
    await registered(world, world.beta, world.gamma)
    async with world.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        await client.until(lambda machine: holds(machine, *OF_HOME, *OF_BETA, CART_OF_GAMMA), 20.0)
        assert {one.cluster: one.state for one in plane.control.clusters.statuses()} == {
            "alpha": "Synced",
            "beta": "Synced",
            "gamma": "Synced",
        }


async def test_the_readers_role_is_enough_for_all_that_is_read_of_a_remote(world: ThreeServers) -> None:
    await registered(world, world.beta)
    async with world.plane() as plane:
        beta = await in_state(plane, "beta", "Synced")
        assert {kind.kind: (kind.state, kind.reason) for kind in beta.kinds} == {
            kind.kind: ("synced", "") for kind in beta.kinds
        }


async def test_the_role_of_home_is_enough_but_for_secrets_of_other_namespaces(world: ThreeServers) -> None:
    async with world.plane() as plane:
        alpha = await in_state(plane, "alpha", "Synced")
        assert {kind.kind for kind in alpha.kinds if kind.state == "denied"} <= {"TLSSecret"}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/secrets"),
        ("GET", "/api/v1/namespaces/istio-system/secrets"),
        ("GET", "/api/v1/configmaps"),
        ("GET", "/api/v1/serviceaccounts"),
        ("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
        ("POST", "/api/v1/namespaces/shop/pods"),
        ("POST", "/api/v1/namespaces/istio-system/serviceaccounts/isthmus-reader/token"),
        ("DELETE", "/api/v1/namespaces/shop/pods/cart-1"),
        ("PATCH", "/api/v1/namespaces/istio-system"),
    ],
)
async def test_a_readers_token_is_refused_whatever_is_not_in_its_role(
    world: ThreeServers, method: str, path: str
) -> None:
    token = token_in(await world.create_remote_secret(world.beta))
    allowed, _ = await world.beta.ask("GET", "/api/v1/pods", token=token)
    content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
    refused, said = await world.beta.ask(method, path, {}, token=token, content_type=content_type)
    assert allowed == 200
    assert refused == 403, said


async def test_a_reader_that_may_renew_its_token_gets_new_ones_of_its_own_account_alone(world: ThreeServers) -> None:
    token = token_in(await world.create_remote_secret(world.beta, "--grant", "token-renewal"))
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    accounts = "/api/v1/namespaces/istio-system/serviceaccounts"
    await world.beta.create_token("istio-system/other")
    own, _ = await world.beta.ask("POST", f"{accounts}/isthmus-reader/token", body, token=token)
    other, _ = await world.beta.ask("POST", f"{accounts}/other/token", body, token=token)
    assert (own, other) == (201, 403)


async def test_creating_the_same_remote_secret_again_changes_nothing_but_the_token(world: ThreeServers) -> None:
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/isthmus-reader"
    first = token_in(await world.create_remote_secret(world.beta))
    _, before = await world.beta.ask("GET", role)
    second = token_in(await world.create_remote_secret(world.beta))
    _, after = await world.beta.ask("GET", role)
    assert first != second
    assert before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]


async def test_a_role_that_another_tool_has_made_wider_is_left_to_it(world: ThreeServers) -> None:
    await world.create_remote_secret(world.gamma)
    _, role = await world.gamma.ask("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/isthmus-reader")
    role["rules"].append({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]})
    kept = {key: role[key] for key in ("apiVersion", "kind", "rules")}
    await world.gamma.apply({**kept, "metadata": {"name": "isthmus-reader"}})
    with pytest.raises(AssertionError, match="another tool keeps this object"):
        await world.create_remote_secret(world.gamma)
    await world.create_remote_secret(world.gamma, "--rotate")


# Credentials.


async def test_rotating_a_credential_loses_no_endpoint(world: ThreeServers) -> None:
    await registered(world, world.beta)
    async with world.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        await client.until(lambda machine: holds(machine, *OF_BETA), 20.0)
        machine = await learned(client)
        seen, before = len(machine.received), status(plane, "beta").token_expires
        await world.register(world.beta, "--rotate", "--token-ttl", "1000h")
        assert "the old one stays valid" in "\n".join(world.said)
        await eventually(lambda: status(plane, "beta").token_expires != before, 20.0, interval=0.05)
        assert (await in_state(plane, "beta", "Synced")).reason == ""
        assert [one.removed for one in list(machine.received)[seen:] if one.removed] == []
        # What is read by the new one goes on to be told.
        telling = asyncio.create_task(told(client, WAY))
        await world.beta.delete("Pod", "shop/cart-3")
        assert WAY in (await telling).resources


async def test_a_reader_that_is_deleted_is_denied_and_takes_nothing_away(world: ThreeServers) -> None:
    await registered(world, world.beta)
    async with world.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        await client.until(lambda machine: holds(machine, *OF_BETA), 20.0)
        await world.beta.delete(*READER)
        # An API server remembers for ten seconds that a token was good; we ask every four.
        denied = await in_state(plane, "beta", "Denied", 25.0)
        assert "401" in denied.reason
        assert holds(client.machine, *OF_BETA)


async def test_a_cluster_that_was_denied_is_read_again_with_a_new_credential(world: ThreeServers) -> None:
    await registered(world, world.beta)
    async with world.plane() as plane:
        await in_state(plane, "beta", "Synced")
        await world.beta.delete(*READER)
        await in_state(plane, "beta", "Denied", 25.0)
        await world.register(world.beta)
        await in_state(plane, "beta", "Synced")


# Changes.


async def test_a_registration_that_is_deleted_withdraws_its_cluster_alone(world: ThreeServers) -> None:
    await registered(world, world.beta, world.gamma)
    async with world.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        await client.until(lambda machine: holds(machine, *OF_HOME, *OF_BETA, CART_OF_GAMMA), 20.0)
        await world.unregister("beta")
        await client.until(lambda machine: not set(machine.held(ADDRESS_TYPE)) & OF_BETA, 20.0)
        assert holds(client.machine, *OF_HOME, CART_OF_GAMMA)
        assert status(plane, "beta").state == "Removed"


async def test_a_network_label_that_changes_moves_the_pods_of_its_cluster(world: ThreeServers) -> None:
    await registered(world, world.gamma)
    ztunnel = Ztunnel("net1")

    def network() -> str:
        workload = ztunnel.state.workloads.by_uid.get(CART_OF_GAMMA)
        return workload.network if workload else ""

    async with world.plane() as plane, plane.connect(ztunnel) as client:
        await client.until(lambda machine: holds(machine, CART_OF_GAMMA), 20.0)
        assert network() == "net1"
        await world.gamma.apply(m.namespace("istio-system", network="net3"))
        await client.until(lambda _: network() != "net1", 20.0)


async def test_gateways_are_read_once_their_kind_is_installed(world: ThreeServers) -> None:
    await registered(world, world.gamma)
    definition = next(file for file in crds() if file.name.endswith("_gateways.yaml"))
    async with world.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        gamma = await in_state(plane, "gamma", "Synced")
        assert {kind.kind: kind.state for kind in gamma.kinds}["Gateway"] == "absent"
        await world.gamma.apply(
            m.namespace("istio-system", network="net3"),
            yaml.safe_load(definition.read_text()),
            valid(m.east_west_gateway("istio-system/east-west", "192.0.2.30", network="net3")),
        )
        try:
            await client.until(lambda machine: holds(machine, "NetworkGateway/net3/192.0.2.30/0"), 90.0)
        finally:
            await world.gamma.delete(
                "CustomResourceDefinition", "gateways.gateway.networking.k8s.io", api_version="apiextensions.k8s.io/v1"
            )


async def test_an_api_server_that_crashes_and_comes_back_takes_nothing_away(world: ThreeServers) -> None:
    await registered(world, world.beta)
    async with world.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        await client.until(lambda machine: holds(machine, *OF_BETA), 20.0)
        seen = len(client.machine.received)
        await asyncio.to_thread(world.beta.crash)
        await in_state(plane, "beta", "Stale")
        world.beta.launch()
        await asyncio.to_thread(world.beta.await_ready)
        await in_state(plane, "beta", "Synced", 60.0)
        assert [one.removed for one in list(client.machine.received)[seen:] if one.removed] == []


async def test_nothing_of_a_credential_is_on_any_page(world: ThreeServers) -> None:
    secret = await world.register(world.beta)
    async with world.plane() as plane:
        await in_state(plane, "beta", "Synced")
        pages = [(await plane.admin(path)).text for path in ("/clusters", "/findings", "/metrics")]
    assert secret_of("beta") in pages[0]
    assert not any(token_in(secret) in page for page in pages)
