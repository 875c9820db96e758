"""Pages of the pods of a control plane, asked through the API server with an operator's own kubeconfig.

In: an Operator, the namespace, the path. Out: of each pod what it answers, or why it does not. The pods are those that
run and are labelled as Isthmus, and are asked by way of port-forwards, since on their own loopback they show all pages;
whoever asks needs to be allowed to list pods, and to get and create pods/portforward.
"""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import msgspec

from watchers.kubernetes import port_forward
from watchers.kubernetes.operator_access import Operator, Refusal

ADMIN_PORT = 15014

_SELECTORS = ("app=isthmus", "app.kubernetes.io/name=isthmus")


class PodPage(msgspec.Struct, frozen=True):
    """What a pod answers. Without a `status` it does not, and `problem` says why, with the cure."""

    pod: str
    status: int = 0
    body: bytes = b""
    problem: str = ""


class _Metadata(msgspec.Struct, frozen=True):
    name: str = ""


class _PodStatus(msgspec.Struct, frozen=True):
    phase: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Metadata
    status: _PodStatus = _PodStatus()


class _Pods(msgspec.Struct, frozen=True):
    items: list[_Pod]


class _Status(msgspec.Struct, frozen=True):
    """What an API server answers by itself in place of the pod."""

    kind: str
    message: str = ""


async def pod_pages(there: Operator, namespace: str, path: str, *, port: int = ADMIN_PORT) -> list[PodPage]:
    """The page of every pod, by their names. Raises Refusal if the pods cannot be listed or there are none."""
    root = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
    names: set[str] = set()
    for selector in _SELECTORS:
        names |= await _running(there, namespace, root, selector)
    if not names:
        raise Refusal(
            "refused",
            f"no pod of a control plane runs in namespace {namespace}; name another with -n, or a replica with --admin",
        )
    return await asyncio.gather(*(_page(there, name, f"{root}/{name}", port, path) for name in sorted(names)))


async def _running(there: Operator, namespace: str, root: str, selector: str) -> set[str]:
    what = f"list pods in namespace {namespace}"
    status, body = await there.get(what, root, {"labelSelector": selector})
    if status != 200:
        raise Refusal("refused", f"cannot {what}: {_message(body) or status}; use a context that may", status=status)
    try:
        found = msgspec.json.decode(body, type=_Pods)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Refusal("unreachable", f"cannot {what}: the answer is no list; check the server of the context") from None
    return {pod.metadata.name for pod in found.items if pod.status.phase == "Running"}


async def _page(there: Operator, pod: str, root: str, port: int, path: str) -> PodPage:
    try:
        status, body = await port_forward.get(there, f"ask pod {pod}", root, port, path)
    except Refusal as refusal:
        need = "; you need to be allowed to get and create pods/portforward" if refusal.status == 403 else ""
        return PodPage(pod, problem=f"{refusal}{need}")
    return PodPage(pod, status, body)


def _message(body: bytes) -> str:
    """What an API server says was wrong; "" if it was not the one to answer."""
    try:
        status = msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return status.message if status.kind == "Status" else ""
