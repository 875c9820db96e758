"""The model of a workload: the record that pods, slices and entries come to, and what labels and metadata say of it.

Pure values and functions; what makes workloads declares them in modules of their own, and `workloads` brings them
together.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from sys import intern
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


class Traits(msgspec.Struct, frozen=True, gc=False):
    """What workloads of one cluster and namespace with one set of labels have in common, in one record for all of them.

    `at_home`: they are in home's network, where home's proxies reach them without a gateway. `native_tunnel`: they
    terminate tunnels themselves. `canonical_name` is "" where labels give none. `labels` are those that selectors of
    policies are compared with. `reduced`: their cluster has that standing. Traffic to them goes through `waypoint`;
    `proxied` is what `Waypoint.proxied` says if they are one. Their identities are of `trust_domain`, "" for home's.
    """

    cluster: str
    namespace: str
    network: str
    at_home: bool
    labels: Labels = ()
    native_tunnel: bool = False
    canonical_name: str = ""
    canonical_revision: str = "latest"
    reduced: bool = False
    waypoint: Waypoint | None = None
    proxied: int = -1
    trust_domain: str = ""


class Workload(msgspec.Struct, frozen=True, gc=False):
    """Something that serves: where it is, who it is and what it serves, as far as any proxy is concerned.

    `services` pairs service keys with the ports served of each. `tunnel` is "HBONE" where the node's proxy or the pod
    itself (`native_tunnel`) terminates tunnels, else "".

    What has no addresses has a DNS name as its `hostname`. `locality` is (region, zone, subzone) where the object
    itself says it, () where its node does. `weight` is how many plain workloads it counts for. `kind` is that of its
    object, and `identified` whether it proves an identity. The rest is said by its `traits`.
    """

    traits: Traits
    name: str
    addresses: tuple[str, ...]
    services: tuple[tuple[str, ServicePorts], ...]
    healthy: bool
    service_account: str = ""
    node: str = ""
    host_network: bool = False
    tunnel: str = ""
    workload_name: str = ""
    kind: str = "Pod"
    identified: bool = True
    hostname: str = ""
    locality: tuple[str, ...] = ()
    weight: int = 1

    @property
    def canonical_name(self) -> str:
        """The canonical service name that its labels give, else the name of the workload it belongs to."""
        return self.traits.canonical_name or self.workload_name


def contributions(_key: WorkloadKey, workload: Workload) -> Iterable[tuple[ServiceInNetwork, Hashable, int]]:
    """What a workload adds to each of its services in its network.

    Tags: TOTAL and READY count workloads by their weight, (PORTS, numbers) those that serve just these ports, and
    (ACCOUNT, trust domain, namespace, service account) those that run as it. (REDUCED, cluster) and (READY_REDUCED,
    cluster) count those again that are of a cluster whose endpoints count half.
    """
    weight, traits = workload.weight, workload.traits
    brought: list[tuple[ServiceInNetwork, Hashable, int]] = []
    for service, ports in workload.services:
        group = (traits.network, service)
        brought += ((group, TOTAL, weight), (group, (PORTS, tuple([number for number, _ in ports])), 1))
        if workload.healthy:
            brought.append((group, READY, weight))
        if traits.reduced:
            brought.append((group, (REDUCED, traits.cluster), weight))
            if workload.healthy:
                brought.append((group, (READY_REDUCED, traits.cluster), weight))
        if workload.identified:
            account = traits.trust_domain, traits.namespace, workload.service_account or "default"
            brought.append((group, (ACCOUNT, *account), 1))
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
                # The pods of a Deployment share one.
                return intern(pod.owner_name[: -len(template) - 1])
    if pod.owner_kind == "ReplicationController":
        return label(pod.labels, "deploymentconfig") or pod.owner_name
    if pod.owner_kind == "Job":
        stem, _, number = pod.owner_name.rpartition("-")
        if stem and number.isdigit() and 8 <= len(number) <= 10:
            return intern(stem)
    return pod.owner_name
