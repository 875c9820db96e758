"""The fake Kubernetes API answers as a real one does, and fails as it is told."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import aiohttp
import pytest

from tests.kit.clock import virtual_time
from tests.kit.eventually import eventually
from tests.kit.kube_api import (
    Answer,
    Cut,
    Hang,
    Hold,
    KubeApi,
    KubeCluster,
    Lines,
    Refuse,
    Trickle,
    error_event,
)
from tests.kit.kubeconfigs import kubeconfig, remote_secret
from tests.kit.manifests import namespace, pod, service

PODS, SERVICES, SECRETS = "/api/v1/pods", "/api/v1/services", "/api/v1/namespaces/istio-system/secrets"
WATCH = {"watch": "1", "allowWatchBookmarks": "true"}
WATCH_LIST = {**WATCH, "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}


def mesa() -> KubeCluster:
    cluster = KubeCluster("mesa")
    cluster.apply(pod("shop/orders-1", "10.2.0.5"), pod("shop/orders-2", "10.2.0.6"), service("shop/orders"))
    return cluster


async def ask(cluster: KubeCluster, path: str, token: str = "", **query: str) -> tuple[int, dict[str, Any]]:
    answer = await cluster.answer(path, query, {"Authorization": f"Bearer {token}"} if token else {})
    return answer.status, json.loads(b"".join([chunk async for chunk in answer.body]))


def names(document: dict[str, Any]) -> list[str]:
    return [item["metadata"]["name"] for item in document["items"]]


class Events:
    """The events of one watch, one by one."""

    def __init__(self, answer: Answer) -> None:
        self._body = answer.body
        self._lines: list[bytes] = []

    async def next(self) -> tuple[str, dict[str, Any]]:
        while not self._lines:
            self._lines = (await anext(self._body)).splitlines()
        event = json.loads(self._lines.pop(0))
        return event["type"], event["object"]

    async def named(self) -> tuple[str, str]:
        kind, value = await self.next()
        return kind, value["metadata"]["name"]


@asynccontextmanager
async def watching(cluster: KubeCluster, path: str = PODS, **query: str) -> AsyncIterator[Events]:
    answer = await cluster.answer(path, {**WATCH, **query}, {})
    assert answer.status == 200
    async with aclosing(answer.body):
        yield Events(answer)


async def test_a_list_holds_all_objects_and_the_revision_to_watch_from() -> None:
    cluster = mesa()
    status, found = await ask(cluster, PODS)
    assert (status, found["kind"], found["apiVersion"]) == (200, "PodList", "v1")
    assert names(found) == ["orders-1", "orders-2"]
    assert found["metadata"] == {"resourceVersion": str(cluster.store.revision)}


async def test_pages_show_one_revision_whatever_happens_between_them() -> None:
    cluster = mesa()
    _, first = await ask(cluster, PODS, limit="1")
    cluster.delete("Pod", "shop/orders-2")
    _, second = await ask(cluster, PODS, limit="1", **{"continue": first["metadata"]["continue"]})
    assert (names(first), names(second)) == (["orders-1"], ["orders-2"])
    assert first["metadata"]["remainingItemCount"] == 1
    assert second["metadata"] == {"resourceVersion": first["metadata"]["resourceVersion"]}


async def test_a_page_after_compaction_is_gone() -> None:
    cluster = mesa()
    _, first = await ask(cluster, PODS, limit="1")
    cluster.apply(pod("shop/orders-3"))
    cluster.compact()
    status, found = await ask(cluster, PODS, limit="1", **{"continue": first["metadata"]["continue"]})
    assert (status, found["reason"], found["code"]) == (410, "Expired", 410)


async def test_a_list_of_a_revision_to_come_is_refused_as_too_large() -> None:
    status, found = await ask(mesa(), PODS, resourceVersion="99999")
    assert (status, found["details"]["causes"][0]["reason"]) == (504, "ResourceVersionTooLarge")


async def test_selectors_choose_namespace_labels_and_fields() -> None:
    cluster = mesa()
    cluster.apply(remote_secret("mesa", {}), {"kind": "Secret", "metadata": {"name": "x", "namespace": "istio-system"}})
    cluster.apply(remote_secret("elsewhere", {}, namespace="shop"))
    _, labelled = await ask(cluster, SECRETS, labelSelector="istio/multiCluster=true")
    _, others = await ask(cluster, SECRETS, labelSelector="!istio/multiCluster")
    _, named = await ask(cluster, PODS, fieldSelector="metadata.name=orders-2")
    assert (names(labelled), names(others), names(named)) == (["mesa"], ["x"], ["orders-2"])


async def test_get_finds_one_object() -> None:
    cluster = mesa()
    assert (await ask(cluster, "/api/v1/namespaces/kube-system"))[1]["metadata"]["uid"] == "uid-of-mesa"
    assert (await ask(cluster, "/api/v1/namespaces/shop/pods/orders-1"))[1]["kind"] == "Pod"
    assert (await ask(cluster, "/api/v1/namespaces/shop/pods/gone"))[0] == 404


async def test_a_path_of_no_resource_is_not_found() -> None:
    answer = await mesa().answer("/apis/example.test/v1/widgets", {}, {})
    assert answer.status == 404
    await answer.body.aclose()


async def test_a_watch_tells_what_happened_since_its_revision_and_what_happens() -> None:
    cluster = mesa()
    since = str(cluster.store.revision)
    cluster.apply(pod("shop/orders-3"))
    async with watching(cluster, resourceVersion=since) as events:
        assert await events.named() == ("ADDED", "orders-3")
        cluster.apply(pod("shop/orders-1", "10.2.0.9"))
        cluster.delete("Pod", "shop/orders-2")
        assert await events.named() == ("MODIFIED", "orders-1")
        kind, gone = await events.next()
        assert (kind, gone["metadata"]["resourceVersion"]) == ("DELETED", str(cluster.store.revision))


async def test_applying_an_equal_object_is_no_write() -> None:
    cluster = mesa()
    before = cluster.store.revision
    assert cluster.apply(pod("shop/orders-1", "10.2.0.5")) == before


async def test_a_change_keeps_uid_and_creation_time() -> None:
    cluster = mesa()
    path = "/api/v1/namespaces/shop/pods/orders-1"
    _, before = await ask(cluster, path)
    cluster.apply(pod("shop/orders-1", "10.2.0.9", created="2030-01-01T00:00:00Z"))
    _, after = await ask(cluster, path)
    assert after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]
    assert [after["metadata"][key] for key in ("uid", "creationTimestamp")] == [
        before["metadata"][key] for key in ("uid", "creationTimestamp")
    ]


async def test_for_a_watch_with_a_selector_objects_that_leave_it_are_deleted_and_those_that_enter_added() -> None:
    cluster = KubeCluster()
    cluster.apply(namespace("shop", labels={"mesh": "on"}))
    since = str(cluster.store.revision)
    async with watching(cluster, "/api/v1/namespaces", resourceVersion=since, labelSelector="mesh=on") as events:
        cluster.apply(namespace("shop"))
        assert await events.named() == ("DELETED", "shop")
        cluster.apply(namespace("shop", labels={"mesh": "on"}))
        assert await events.named() == ("ADDED", "shop")


async def test_a_watch_list_streams_what_there_is_and_marks_its_end() -> None:
    async with watching(mesa(), **WATCH_LIST) as events:
        assert [await events.named() for _ in range(2)] == [("ADDED", "orders-1"), ("ADDED", "orders-2")]
        kind, mark = await events.next()
        assert (kind, mark["metadata"]["annotations"]) == ("BOOKMARK", {"k8s.io/initial-events-end": "true"})


async def test_a_server_without_watch_list_refuses_it() -> None:
    cluster = mesa()
    cluster.watch_list = False
    status, found = await ask(cluster, PODS, **WATCH_LIST)
    assert (status, found["reason"]) == (422, "Invalid")


async def test_a_watch_from_before_the_compaction_ends_with_an_error_event() -> None:
    cluster = mesa()
    cluster.compact()
    async with watching(cluster, resourceVersion="1") as events:
        kind, told = await events.next()
        assert (kind, told["code"], told["reason"]) == ("ERROR", 410, "Expired")
        with pytest.raises(StopAsyncIteration):
            await events.next()


async def test_api_groups_are_listed_without_absent_kinds() -> None:
    cluster = KubeCluster()
    cluster.absent = {"Gateway", "GatewayClass", "HTTPRoute", "ReferenceGrant"}
    groups = [group["name"] for group in (await ask(cluster, "/apis"))[1]["groups"]]
    assert "discovery.k8s.io" in groups
    assert "gateway.networking.k8s.io" not in groups


@virtual_time
async def test_bookmarks_come_at_their_interval() -> None:
    cluster = mesa()
    cluster.bookmark_every = 10.0
    async with watching(cluster, resourceVersion=str(cluster.store.revision)) as events:
        revision = cluster.store.advance(5)
        kind, mark = await events.next()
        assert (kind, mark["metadata"]["resourceVersion"]) == ("BOOKMARK", str(revision))
        await events.next()
        assert asyncio.get_running_loop().time() == 20


@virtual_time
async def test_a_watch_ends_after_the_time_it_asked_for() -> None:
    cluster = mesa()
    cluster.bookmark_every = None
    async with watching(cluster, resourceVersion=str(cluster.store.revision), timeoutSeconds="300") as events:
        with pytest.raises(StopAsyncIteration):
            await events.next()
    assert asyncio.get_running_loop().time() == 300
    assert cluster.watches() == 0


@virtual_time
async def test_a_frozen_watch_says_nothing_more_while_a_new_one_does() -> None:
    cluster = mesa()
    since = str(cluster.store.revision)
    async with watching(cluster, resourceVersion=since, timeoutSeconds="60") as silent:
        silence = asyncio.create_task(silent.next())
        await asyncio.sleep(0)
        cluster.freeze()
        cluster.delete("Pod", "shop/orders-2")
        async with watching(cluster, resourceVersion=since) as events:
            assert await events.named() == ("DELETED", "orders-2")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(silence, 3600)


async def test_only_accepted_tokens_are_served() -> None:
    cluster = mesa()
    cluster.tokens = {"t2"}
    assert (await ask(cluster, PODS, "t1"))[0] == 401
    assert (await ask(cluster, PODS, "t2"))[0] == 200
    assert (cluster.count(status=401), cluster.tokens_seen()) == (1, {"t1": 1, "t2": 1})


async def test_a_kind_may_be_forbidden_or_absent_while_others_are_served() -> None:
    cluster = mesa()
    cluster.forbidden, cluster.absent = {"Secret"}, {"Gateway"}
    gateways = await cluster.answer("/apis/gateway.networking.k8s.io/v1/gateways", {}, {})
    assert (await ask(cluster, SECRETS))[0] == 403
    assert (gateways.status, [chunk async for chunk in gateways.body]) == (404, [b"404 page not found\n"])
    assert (await ask(cluster, PODS))[0] == 200


async def test_a_scripted_fault_meets_its_requests_and_no_others() -> None:
    cluster = mesa()
    cluster.script(Refuse(429, "TooManyRequests", headers={"Retry-After": "7"}), verb="list", kind="Pod", times=2)
    assert (await ask(cluster, SERVICES))[0] == 200
    answer = await cluster.answer(PODS, {}, {})
    await answer.body.aclose()
    assert (answer.status, answer.headers["Retry-After"]) == (429, "7")
    assert [(await ask(cluster, PODS))[0] for _ in range(2)] == [429, 200]


async def test_a_fault_without_limit_stays_until_withdrawn() -> None:
    cluster = mesa()
    fault = cluster.script(Refuse(503), times=None)
    assert [(await ask(cluster, PODS))[0] for _ in range(3)] == [503, 503, 503]
    fault.withdraw()
    assert (await ask(cluster, PODS))[0] == 200


@virtual_time
async def test_a_hanging_request_is_never_answered() -> None:
    cluster = mesa()
    cluster.script(Hang())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(ask(cluster, PODS), 3600)
    assert cluster.requests[0].status == 0


async def test_a_held_request_is_answered_when_it_is_released() -> None:
    cluster, until = mesa(), asyncio.Event()
    cluster.script(Hold(until))
    held = asyncio.create_task(ask(cluster, PODS))
    await asyncio.sleep(0)
    assert not held.done()
    cluster.delete("Pod", "shop/orders-2")
    until.set()
    assert names((await held)[1]) == ["orders-1"]


async def test_a_cut_list_breaks_in_the_middle() -> None:
    cluster = mesa()
    cluster.script(Cut(1))
    answer = await cluster.answer(PODS, {}, {})
    assert await anext(answer.body)
    assert b"orders-1" in await anext(answer.body)
    with pytest.raises(ConnectionResetError):
        await anext(answer.body)


@virtual_time
async def test_a_trickling_list_takes_its_time() -> None:
    cluster = mesa()
    cluster.script(Trickle(30))
    assert names((await ask(cluster, PODS))[1]) == ["orders-1", "orders-2"]
    assert asyncio.get_running_loop().time() == 60


async def test_a_watch_can_say_anything() -> None:
    cluster = mesa()
    cluster.script(Lines((b"<html>", error_event(410, "Expired")), "go on"))
    answer = await cluster.answer(PODS, WATCH, {})
    async with aclosing(answer.body) as body:
        assert await anext(body) == b"<html>\n"
        assert json.loads(await anext(body))["object"]["code"] == 410
        assert json.loads((await anext(body)).splitlines()[0])["type"] == "ADDED"


async def test_over_http_each_cluster_has_a_port_and_broken_bodies_break_the_connection() -> None:
    quay, far = KubeCluster("quay"), mesa()
    async with KubeApi(quay, far), aiohttp.ClientSession() as session:
        async with session.get(far.url + PODS) as response:
            assert names(await response.json()) == ["orders-1", "orders-2"]
        async with session.get(quay.url + PODS) as response:
            assert names(await response.json()) == []
        far.script(Cut(1))
        async with session.get(far.url + PODS) as response:
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.read()


async def test_over_http_a_client_that_goes_leaves_no_watch_and_no_connection() -> None:
    cluster = mesa()
    async with KubeApi(cluster) as api:
        async with aiohttp.ClientSession() as session, session.get(cluster.url + PODS, params=WATCH) as response:
            await response.content.readline()
            assert (cluster.watches("Pod"), api.connections(cluster)) == (1, 1)
            response.close()
        await eventually(lambda: (cluster.watches(), api.connections(cluster)) == (0, 0))


async def test_over_http_a_stopped_server_breaks_watches_and_refuses_until_it_is_started_again() -> None:
    cluster = mesa()
    async with KubeApi(cluster) as api, aiohttp.ClientSession() as session:
        url = cluster.url + PODS
        async with session.get(url, params={**WATCH, "resourceVersion": str(cluster.store.revision)}) as response:
            await api.stop(cluster)
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.content.readline()
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(url)
        await api.start(cluster)
        async with session.get(url) as response:
            assert response.status == 200


async def test_over_tls_a_client_that_trusts_the_authority_is_served() -> None:
    cluster = mesa()
    async with KubeApi(cluster, tls=True), aiohttp.ClientSession() as session:
        trust = ssl.create_default_context(cadata=cluster.ca.decode())
        async with session.get(cluster.url + PODS, ssl=trust) as response:
            assert response.status == 200


def test_a_kubeconfig_names_server_token_and_authority() -> None:
    document = json.loads(kubeconfig("https://localhost:1", "t1", b"CA"))
    assert document["clusters"][0]["cluster"] == {
        "server": "https://localhost:1",
        "certificate-authority-data": "Q0E=",
    }
    assert document["users"][0]["user"] == {"token": "t1"}
