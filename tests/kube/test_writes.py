"""What is written to home's real API server: the Lease, tokens that are renewed, by the role of home and no other."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.kit.eventually import eventually
from tests.kit.plane import Plane
from tests.kit.three_servers import SYSTEM, ThreeServers, secret_of
from tests.kit.two_clusters import GATEWAY, WAY
from tests.kit.ztunnel import ADDRESS_TYPE, Ztunnel
from watchers.kubernetes.kubeconfig import read_kubeconfig
from watchers.kubernetes.session import Session
from watchers.kubernetes.token_renewal import Lives, TokenRenewal

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/isthmus-leader"
LATER = 500 * 3600.0
"""Seconds: past two thirds of the 720 hours that tokens are made for."""


def leads(plane: Plane) -> bool:
    assert plane.control.writing is not None
    return plane.control.writing.leads()


def lives(plane: Plane) -> Lives:
    found = plane.control.clusters.lives
    assert found is not None
    return found


@asynccontextmanager
async def renewal_later(world: ThreeServers, plane: Plane) -> AsyncIterator[TokenRenewal]:
    """What the leader would do when two thirds of the tokens' lives are over."""
    session = Session(read_kubeconfig(world.home.read_bytes()))
    try:
        yield TokenRenewal(
            session, lives(plane), leads=lambda: True, wall=lambda: time.time() + LATER, chance=lambda: 0.5
        )
    finally:
        await session.close()


async def version(world: ThreeServers) -> str:
    namespace, _, name = secret_of("beta").partition("/")
    _, secret = await world.alpha.ask("GET", f"/api/v1/namespaces/{namespace}/secrets/{name}")
    return str(secret["metadata"]["resourceVersion"])


async def test_of_two_processes_one_leads_and_the_other_when_that_one_stops(world: ThreeServers) -> None:
    async with world.plane(leader_elect=True) as first:
        await eventually(lambda: leads(first), 20.0, interval=0.05)
        async with world.plane(leader_elect=True) as second:
            assert not leads(second)
            await first.stop()
            # Let go of, a Lease is taken with the next attempt; else after the 15 seconds it lasts.
            await eventually(lambda: leads(second), 10.0, interval=0.05)
            _, lease = await world.alpha.ask("GET", LEASE)
            assert second.control.writing is not None and second.control.writing.leadership is not None
            assert lease["spec"]["holderIdentity"] == second.control.writing.leadership.holder
    await world.alpha.delete("Lease", f"{SYSTEM}/isthmus-leader", api_version="coordination.k8s.io/v1")


async def test_a_token_that_is_renewed_takes_over_without_losing_an_endpoint(world: ThreeServers) -> None:
    await world.register(world.beta, "--grant", "token-renewal")
    async with world.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        await client.until(lambda machine: {GATEWAY, WAY} <= set(machine.held(ADDRESS_TYPE)), 20.0)
        seen, before = len(client.machine.received), lives(plane).now()["beta"].server.token
        async with renewal_later(world, plane) as renewal:
            await renewal.renew_due()
        await eventually(lambda: lives(plane).now()["beta"].server.token != before, 20.0, interval=0.05)
        status, _ = await world.beta.ask("GET", "/api/v1/pods", token=lives(plane).now()["beta"].server.token)
        assert status == 200
        states = {one.cluster: one.state for one in plane.control.clusters.statuses()}
        assert states["beta"] in ("Synced", "UpdatePending")
        assert [one.removed for one in list(client.machine.received)[seen:] if one.removed] == []


async def test_a_token_whose_renewal_is_not_granted_stays_as_it_is_and_that_is_told(
    world: ThreeServers, caplog: pytest.LogCaptureFixture
) -> None:
    await world.register(world.beta)
    before = await version(world)
    async with world.plane() as plane:
        await eventually(lambda: "beta" in lives(plane).now(), 20.0, interval=0.05)
        async with renewal_later(world, plane) as renewal:
            await renewal.renew_due()
    assert await version(world) == before
    told = [vars(record)["cause"] for record in caplog.records if record.getMessage() == "token not renewed"]
    assert len(told) == 1 and "forbidden" in told[0].lower()
