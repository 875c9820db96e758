"""Who is answered what on which port: exactly what docs/security.md says, call by call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.kit.callers import (
    ANYBODY,
    CALLERS,
    EAST_WEST,
    HOST,
    INGRESS,
    OF_ANOTHER_NODE,
    OF_THE_NODE,
    ZTUNNEL,
    Caller,
    Callers,
    Port,
)
from tests.kit.certificates import signing_request
from xds.client import AdsClient, StreamEnded
from xds.messages.assignment import ASSIGNMENT_TYPE
from xds.messages.authorization import AUTHORIZATION_TYPE
from xds.messages.cluster import CLUSTER_TYPE
from xds.messages.listener import LISTENER_TYPE
from xds.messages.route_table import ROUTE_TYPE
from xds.messages.scope import SCOPED_ROUTE_TYPE
from xds.messages.secret import SECRET_TYPE
from xds.messages.workload import ADDRESS_TYPE, WORKLOAD_TYPE

SECURITY = Path(__file__).parents[2] / "docs" / "security.md"
UNKNOWN_TYPE = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"
TYPES = {
    "Address": ADDRESS_TYPE,
    "Workload": WORKLOAD_TYPE,
    "Authorization": AUTHORIZATION_TYPE,
    "Listener": LISTENER_TYPE,
    "Cluster": CLUSTER_TYPE,
    "ClusterLoadAssignment": ASSIGNMENT_TYPE,
    "ScopedRouteConfiguration": SCOPED_ROUTE_TYPE,
    "RouteConfiguration": ROUTE_TYPE,
    "Secret": SECRET_TYPE,
    "any other": UNKNOWN_TYPE,
}
ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
PAIRS = [(port, caller) for port, callers in CALLERS.items() for caller in callers]
EACH = pytest.mark.parametrize(("port", "caller"), PAIRS, ids=[f"{port}-{caller.name}" for port, caller in PAIRS])


def table(title: str) -> list[dict[str, str]]:
    """The rows of the table below a heading of the document, by the words of its first row."""
    _, _, below = SECURITY.read_text().partition(f"# {title}\n")
    lines = [line.strip("|").split("|") for line in below.partition("\n#")[0].splitlines() if line.startswith("|")]
    head, _, *rows = [[cell.strip() for cell in line] for line in lines]
    return [dict(zip(head, row, strict=True)) for row in rows]


@pytest.fixture
async def callers(tmp_path: Path) -> AsyncIterator[Callers]:
    # One for each test: who is refused too often is not heard for a while.
    async with Callers(tmp_path) as running:
        yield running


async def outcome(call: Callable[[], Any]) -> str:
    """`yes`, or the status a call ends with."""
    try:
        await asyncio.wait_for(call(), 10)
    except StreamEnded as ended:
        return str(ended.code.name)
    except grpc.aio.AioRpcError as error:
        return str(error.code().name)
    return "yes"


@EACH
async def test_every_call_ends_as_the_document_says(callers: Callers, port: Port, caller: Caller) -> None:
    (row,) = [row for row in table("Calls") if (row["port"], row["caller"]) == (port, caller.name)]
    own = str(caller.identity)
    async with callers.client(port, caller) as client:
        seen = {
            "port": port,
            "caller": caller.name,
            "streams": await streams(client),
            "certificate of its own": await outcome(lambda: certificate(client, own, "")),
            "of a pod of its node": await outcome(lambda: certificate(client, OF_THE_NODE, OF_THE_NODE)),
            "of any other pod": await outcome(lambda: certificate(client, OF_ANOTHER_NODE, OF_ANOTHER_NODE)),
            "health": await health(callers, port, caller),
        }
    assert seen == row


async def streams(client: AdsClient) -> str:
    """How streams of both variants end, which is the same whatever type is asked for."""
    ends = set()
    for type_url in TYPES.values():
        for opened in (client.delta, client.sotw):
            ends.add(await outcome(partial(answered, opened, type_url)))
    return " and ".join(sorted(ends))


async def answered(opened: Callable[[], Any], type_url: str) -> None:
    """Opens a stream and gets an answer; raises StreamEnded."""
    while True:
        async with opened() as stream:
            try:
                await stream.subscribe(type_url, ["name"])
                await stream.receive()
            except StreamEnded as ended:
                # gRPC's client loses the status where the server's comes while it writes.
                if ended.details == "Internal error from Core":
                    continue
                raise
            return


async def certificate(client: AdsClient, name: str, impersonate: str) -> None:
    await client.create_certificate(signing_request(name), impersonate=impersonate)


async def health(callers: Callers, port: Port, caller: Caller) -> str:
    async with callers.channel(port, caller) as channel:
        return await outcome(lambda: channel.unary_unary("/grpc.health.v1.Health/Check")(b""))


@EACH
async def test_a_unary_call_of_a_stream_is_judged_like_the_stream(
    callers: Callers, port: Port, caller: Caller
) -> None:
    (row,) = [row for row in table("Calls") if (row["port"], row["caller"]) == (port, caller.name)]
    # Whoever gets so far as to be heard has said nothing of itself, and is told so.
    unheard = ("UNAUTHENTICATED", "UNAVAILABLE", "PERMISSION_DENIED")
    expected = row["streams"] if row["streams"] in unheard else "INVALID_ARGUMENT"
    metadata = callers.metadata(port, caller)
    async with callers.channel(port, caller) as channel:
        for method in ("DeltaAggregatedResources", "StreamAggregatedResources"):
            call = channel.unary_unary(ADS + method)
            assert await outcome(partial(call, b"", metadata=metadata)) == expected


OTHER_METHODS = [
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/FetchAggregatedResources",
    "/envoy.service.listener.v3.ListenerDiscoveryService/StreamListeners",
    "/envoy.service.listener.v3.ListenerDiscoveryService/DeltaListeners",
    "/envoy.service.listener.v3.ListenerDiscoveryService/FetchListeners",
    "/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets",
    "/envoy.service.secret.v3.SecretDiscoveryService/DeltaSecrets",
    "/envoy.service.secret.v3.SecretDiscoveryService/FetchSecrets",
    "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters",
    "/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.health.v1.Health/Watch",
]


@EACH
async def test_no_other_method_is_there_for_anybody(callers: Callers, port: Port, caller: Caller) -> None:
    unconnected = port == "15013" and caller.name.startswith("nobody")
    metadata = callers.metadata(port, caller)
    async with callers.channel(port, caller) as channel:
        for method in OTHER_METHODS:
            seen = await outcome(partial(channel.unary_unary(method), b"", metadata=metadata))
            assert seen == ("UNAVAILABLE" if unconnected else "UNIMPLEMENTED"), method


ADMITTED = [(port, caller) for port, caller in PAIRS if caller in (ZTUNNEL, EAST_WEST, INGRESS, ANYBODY)]


@pytest.mark.parametrize(("port", "caller"), ADMITTED, ids=[f"{port}-{caller.name}" for port, caller in ADMITTED])
async def test_every_type_is_told_to_whom_the_document_says(callers: Callers, port: Port, caller: Caller) -> None:
    told = {row["type"]: row[caller.name] for row in table("Types")}
    assert set(told) == set(TYPES)
    names: dict[str, tuple[str, ...]] = {}
    async with callers.client(port, caller) as client:
        for variant in ("delta", "sotw"):
            seen = {}
            for name, type_url in TYPES.items():
                stream: Any = client.delta() if variant == "delta" else client.sotw()
                async with stream:
                    wanted = names.get(name, ("*", "default", "ROOTCA", HOST) if name == "Secret" else ("*",))
                    await stream.subscribe(type_url, wanted)
                    response = await asyncio.wait_for(stream.receive(), 10)
                    names.setdefault(name, tuple(one.name for one in response.resources) or ("x",))
                    seen[name] = "yes" if content(response.resources) else "no"
            assert seen == told, variant


def content(resources: Iterable[Any]) -> list[Any]:
    """Those that say something: an assignment of nothing stands for one that is not there."""
    return [one for one in resources if one.type_url != ASSIGNMENT_TYPE or one.message().endpoints]
