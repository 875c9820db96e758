"""Findings and reasons: the one catalogue of everything Isthmus says about an object.

A *finding* is a flaw of something that is served all the same (or of which the rest is served); it is kept per object.
A *reason* is why something is not served (`graph.Withheld`); it is told on request. Status conditions, pages and alerts
all speak from this catalogue, so each code is explained once, with its cure.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from watchers.facts.keys import ObjectKey

Severity: TypeAlias = Literal["error", "warning", "info"]


class Entry(msgspec.Struct, frozen=True):
    """One code of the catalogue: how bad, what it means, what to do."""

    severity: Severity
    meaning: str
    cure: str


class Finding(msgspec.Struct, frozen=True, order=True):
    """A flaw of `object`: `code` of the catalogue, `field` as a path in the manifest, `detail` for this case."""

    object: ObjectKey
    code: str
    field: str
    detail: str

    @property
    def entry(self) -> Entry:
        """What the catalogue says about this code."""
        return CATALOGUE[self.code]

    def __str__(self) -> str:
        cluster, kind, namespace, name = self.object
        where = f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
        return f"{where} in {cluster}: {self.field}: {self.detail}. {self.entry.cure}"


CATALOGUE: dict[str, Entry] = {
    # Findings.
    "ManifestUnusable": Entry(
        "error",
        "A file of a directory cluster, or an object in it, cannot be used; its last good content stays in force.",
        "Correct the file; it is read again as soon as it is saved.",
    ),
    "PodAddressInvalid": Entry(
        "error", "A pod's address is not an IP address; the pod is not served.", "Correct status.podIPs of the pod."
    ),
    "EndpointAddressInvalid": Entry(
        "error",
        "An endpoint's address is not an IP address; that endpoint is not served, the slice's others are.",
        "Correct the address in the EndpointSlice.",
    ),
    "ServiceAddressInvalid": Entry(
        "error",
        "A service's cluster IP is not an IP address; it is left out.",
        "Correct spec.clusterIPs of the Service.",
    ),
    "ServicePortConflict": Entry(
        "warning",
        "Clusters disagree about the ports of a global service. The union is served: where they disagree about one port"
        " number the first in order (home, then the oldest) decides, and every endpoint is offered only under ports it"
        " serves.",
        "Give the Service the same ports in all clusters.",
    ),
    "NetworkHasNoGateway": Entry(
        "warning",
        "A global service has endpoints in a network that no east-west gateway leads to; they are not reachable.",
        "Create an east-west Gateway with the label topology.istio.io/network and an HBONE listener in that network.",
    ),
    "GatewayAddressInvalid": Entry(
        "error",
        "An address in an east-west gateway's status is neither an IP address nor a DNS name; it is left out.",
        "Correct status.addresses of the Gateway.",
    ),
    "GatewayAddressTaken": Entry(
        "warning",
        "Two gateways of one network claim the same address and port; the first in order is used.",
        "Give each Gateway an address of its own.",
    ),
    "AccountHasSeveralRoles": Entry(
        "error",
        "Proxies of several roles or gateways run under one service account; none of them is served.",
        "Give every gateway, and the node proxy, a service account of its own.",
    ),
    "ResourceRejected": Entry(
        "error",
        "A proxy refused the resource made from this object; it keeps the version it had and is not sent this one again.",
        "Look at the proxy's words; once the object changes it is sent again. If it is right, report a defect.",
    ),
    "DerivationFailed": Entry(
        "error",
        "Isthmus failed to work out what this object means. It is withheld, everything else is served.",
        "Report this as a defect, with the object.",
    ),
    # Reasons.
    "InternalError": Entry("error", "A derivation failed.", "Report this as a defect, with the object."),
    "PodFinished": Entry("info", "The pod has succeeded or failed.", "Nothing to do."),
    "PodHasNoAddress": Entry("info", "The pod has no IP address yet.", "Wait until the node's agent has given it one."),
    "AddressInvalid": Entry("error", "No usable IP address.", "See the finding on the object."),
    "InRemoteNetwork": Entry(
        "info",
        "Workloads of another network are not sent one by one; they stand behind that network's gateways.",
        "Nothing to do.",
    ),
    "InHomeNetwork": Entry("info", "Endpoints of the home network are sent one by one.", "Nothing to do."),
    "ServiceIsExternalName": Entry("info", "ExternalName services have no endpoints of their own.", "Nothing to do."),
    "ServiceIsNotGlobal": Entry(
        "info",
        "The service is not global in its cluster (or not at home), so it stays within that cluster.",
        'Label it istio.io/global: "true" in every cluster that is to share it.',
    ),
    "NetworkHasNoReadyEndpoint": Entry(
        "info", "No endpoint of the service is ready in that network.", "See why the pods are not ready."
    ),
    "NotANetworkGateway": Entry(
        "info",
        "The Gateway does not lead into a network: wrong class, no network label, no HBONE listener or no address.",
        "An east-west Gateway needs the label topology.istio.io/network, an HBONE listener (tls.mode Terminate) and an"
        " address in its status.",
    ),
    "EndpointOfPod": Entry("info", "The endpoint is a pod and served as that pod.", "Nothing to do."),
    "SliceNotServed": Entry(
        "info",
        "The EndpointSlice belongs to no service that takes endpoints from slices (without selector, known, global if"
        " remote), or holds names instead of addresses.",
        "Nothing to do.",
    ),
    "RejectedNoLonger": Entry("info", "The rejected version is not what is told now.", "Nothing to do."),
    "HomeNotSynced": Entry("info", "The home cluster has not been read completely yet.", "Wait, or see its state."),
}
