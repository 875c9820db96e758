"""The model of a workload: the record that pods, slices and entries come to, and what labels and metadata say of it.

Pure values and functions; what makes workloads declares them in modules of their own, and `workloads` brings them
together.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeAlias

import msgspec

from aggregator.mesh.waypoints import Waypoint
from watchers.facts.core import Pod
from watchers.facts.keys import Labels, label

_REDIRECTION_ANNOTATION = "ambient.istio.io/redirection"
_TUNNEL_LABEL = "networking.istio.io/tunnel"
WORKLOAD_NAME_LABEL = "service.istio.io/workload-name"

ServicePorts: TypeAlias = tuple[tuple[int, int], ...]
"""(service port, target port) of the ports one workload serves of one service."""
WorkloadKey: TypeAlias = tuple[str, ...]
"""The ObjectKey of a Pod or WorkloadEntry; for what a slice or a ServiceEntry lists, its ObjectKey and the (first)
address."""
ServiceInNetwork: TypeAlias = tuple[str, str]
"""(network, service key)."""

READY, TOTAL, PORTS, ACCOUNT = "ready", "total", "ports", "account"
READY_REDUCED, REDUCED = "ready reduced", "reduced"


class Workload(msgspec.Struct, frozen=True, gc=False):
    """Something that serves: where it is, who it is and what it serves, as far as any proxy is concerned.

    `services` pairs service keys with the ports served of each. `tunnel` is "HBONE" where the node's proxy or the pod
    itself (`native_tunnel`) terminates tunnels, else "". `at_home`: it is in home's network, where home's proxies reach
    it without a gateway. `reduced`: its cluster has that standing.

    What has no addresses has a DNS name as its `hostname`. `labels` are those that selectors of policies are compared
    with; `locality` is (region, zone, subzone) where the object itself says it, () where its node does. `weight` is how
    many plain workloads it counts for. `kind` is that of its object, and `identified` whether it proves an identity.
    Traffic to it goes through `waypoint`; `proxied` is what `Waypoint.proxied` says if it is one.
    """

    cluster: str
    namespace: str
    name: str
    network: str
    at_home: bool
    addresses: tuple[str, ...]
    services: tuple[tuple[str, ServicePorts], ...]
    healthy: bool
    service_account: str = ""
    node: str = ""
    host_network: bool = False
    tunnel: str = ""
    native_tunnel: bool = False
    kind: str = "Pod"
    identified: bool = True
    workload_name: str = ""
    canonical_name: str = ""
    canonical_revision: str = ""
    labels: Labels = ()
    reduced: bool = False
    hostname: str = ""
    locality: tuple[str, ...] = ()
    weight: int = 1
    waypoint: Waypoint | None = None
    proxied: int = -1


def contributions(_key: WorkloadKey, workload: Workload) -> Iterable[tuple[ServiceInNetwork, Hashable, int]]:
    """What a workload adds to each of its services in its network.

    Tags: TOTAL and READY count workloads by their weight, (PORTS, numbers) those that serve just these ports, and
    (ACCOUNT, namespace, service account) those that run as it. (REDUCED, cluster) and (READY_REDUCED, cluster) count
    those again that are of a cluster whose endpoints count half.
    """
    weight = workload.weight
    brought: list[tuple[ServiceInNetwork, Hashable, int]] = []
    for service, ports in workload.services:
        group = (workload.network, service)
        brought += ((group, TOTAL, weight), (group, (PORTS, tuple([number for number, _ in ports])), 1))
        if workload.healthy:
            brought.append((group, READY, weight))
        if workload.reduced:
            brought.append((group, (REDUCED, workload.cluster), weight))
            if workload.healthy:
                brought.append((group, (READY_REDUCED, workload.cluster), weight))
        if workload.identified:
            brought.append((group, (ACCOUNT, workload.namespace, workload.service_account or "default"), 1))
    return brought


def ends_tunnels(labels: Labels) -> bool:
    """Whether a workload terminates tunnels itself, as its labels say."""
    return "http" in label(labels, _TUNNEL_LABEL).split(",")


def tunnel_of(annotations: Labels, *, native: bool) -> str:
    """What terminates tunnels before a workload, itself (``native``) or its node's proxy: "HBONE", or ""."""
    return "HBONE" if native or label(annotations, _REDIRECTION_ANNOTATION) == "enabled" else ""


def canonical_name(labels: Labels) -> str:
    """The canonical service name that labels give; "" where they give none."""
    return _first(labels, "service.istio.io/canonical-name", "app.kubernetes.io/name", "app")


def canonical_revision(labels: Labels) -> str:
    """The revision of the canonical service that labels give; "" where they give none."""
    return _first(labels, "service.istio.io/canonical-revision", "app.kubernetes.io/version", "version")


def locality_of(text: str) -> tuple[str, ...]:
    """A locality as objects write it, `region/zone/subzone`; () for none."""
    region, zone, subzone, *_ = (*text.split("/", 2), "", "", "")
    return (region, zone, subzone) if text else ()


def _first(labels: Labels, *keys: str) -> str:
    return next((value for value in (label(labels, key) for key in keys) if value), "")


def controller_name(name: str, pod: Pod) -> str:
    """The name of the workload a pod belongs to: its controller's name without generated parts.

    Of a ReplicaSet the pod template hash goes, of a Job the schedule's number (8 to 10 digits); a
    ReplicationController of a DeploymentConfig gives that one's name. Pods not made from a template keep their own.
    """
    if not pod.generate_name or not pod.owner_name:
        return name
    if pod.owner_kind == "ReplicaSet":
        for key in ("pod-template-hash", "rollouts-pod-template-hash"):
            template = label(pod.labels, key)
            if template and pod.owner_name.endswith(f"-{template}"):
                return pod.owner_name[: -len(template) - 1]
    if pod.owner_kind == "ReplicationController":
        return label(pod.labels, "deploymentconfig") or pod.owner_name
    if pod.owner_kind == "Job":
        stem, _, number = pod.owner_name.rpartition("-")
        if stem and number.isdigit() and 8 <= len(number) <= 10:
            return stem
    return pod.owner_name
