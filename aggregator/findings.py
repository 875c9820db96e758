"""Findings and reasons: the one catalogue of everything Isthmus says about an object.

A *finding* is a flaw of something that is served all the same (or of which the rest is served); it is kept per object.
A *reason* is why something is not served (`graph.Withheld`); it is told on request. Status conditions, pages and alerts
all speak from this catalogue, so each code is explained once, with its cure.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Literal, TypeAlias

import msgspec

from watchers.facts.keys import ObjectKey

Severity: TypeAlias = Literal["error", "warning", "info"]


class Entry(msgspec.Struct, frozen=True):
    """One code of the catalogue: how bad, what it means, what to do."""

    severity: Severity
    meaning: str
    cure: str
    reason: str = ""
    """What conditions of the Gateway API or of Istio call it, where they have a word; else the code is the reason."""


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


def derivation_failed(home: str) -> Callable[[str, Hashable, str], tuple[ObjectKey, Finding]]:
    """Says on which object the finding of a failed derivation stands: the item's own, if the item is of one object."""

    def blame(collection: str, item: Hashable, error: str) -> tuple[ObjectKey, Finding]:
        if isinstance(item, tuple) and len(item) >= 4 and all(isinstance(part, str) for part in item):
            subject: ObjectKey = (item[0], item[1], item[2], item[3])
        else:
            subject = (home, "Derivation", "", f"{collection}: {item}")
        return subject, Finding(subject, "DerivationFailed", collection, error)

    return blame


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
        "AddressNotUsable",
    ),
    "GatewayAddressTaken": Entry(
        "warning",
        "Two gateways of one network claim the same address and port; the first in order is used.",
        "Give each Gateway an address of its own.",
        "AddressNotUsable",
    ),
    "GatewayHasNoAddress": Entry(
        "warning",
        "The Gateway has no address in its status, so nobody finds it.",
        "Wait until its load balancer has an address, or write one into status.addresses.",
        "AddressNotAssigned",
    ),
    "GatewayListenersInvalid": Entry(
        "error",
        "Listeners of the Gateway are not served; those that are go on.",
        "See the conditions of each listener.",
        "ListenersNotValid",
    ),
    "ListenerProtocolUnsupported": Entry(
        "error",
        "A gateway between networks takes tunnels only.",
        "Give the listener the protocol HBONE, or remove it.",
        "UnsupportedProtocol",
    ),
    "ListenerDoesNotTerminate": Entry(
        "error",
        "Tunnels of other networks end at an east-west gateway, so its listener has to terminate TLS.",
        "Set tls.mode of the listener to Terminate.",
        "UnsupportedValue",
    ),
    "ListenerNotUsed": Entry(
        "warning",
        "The first HBONE listener takes all tunnels of a gateway between networks; this is another one.",
        "Leave one HBONE listener.",
        "PortUnavailable",
    ),
    "EndpointTakesNoTunnels": Entry(
        "warning",
        "A global service has endpoints in a gateway's network that are not in the mesh, so nothing there ends the"
        " tunnels of other networks; those endpoints are not reachable from there.",
        "Add the pods to the mesh, or let the service select pods of the mesh only.",
    ),
    "AccountHasSeveralRoles": Entry(
        "error",
        "Proxies of several roles or gateways run under one service account; none of them is served.",
        "Give every gateway, and the node proxy, a service account of its own.",
    ),
    "SecretInvalid": Entry(
        "error",
        "A TLS Secret holds no pair of certificate and key that can be served; its last good pair stays in force, if"
        " there was one.",
        "Put a certificate chain, leaf first, and the leaf's key into the Secret.",
    ),
    "CertificateExpired": Entry(
        "error",
        "A certificate has expired; it is served all the same, and clients refuse it.",
        "Renew the certificate.",
    ),
    "OcspStapleInvalid": Entry(
        "warning",
        "The OCSP response beside a certificate cannot be told; the certificate is served without.",
        "Renew tls.ocsp-staple together with the certificate, or leave it out.",
    ),
    "RootsInvalid": Entry(
        "error",
        "The roots of a Secret or ConfigMap, or the revocations beside them, cannot be served; the last good ones stay"
        " in force.",
        "Write certificates in PEM under ca.crt (in a Secret cacert will do), and revocations under ca.crl (crl).",
    ),
    "CertificateRefNotFound": Entry(
        "error",
        "A listener refers to a Secret that is not there; its other references count all the same.",
        "Create the Secret, or correct certificateRefs of the Gateway.",
        "InvalidCertificateRef",
    ),
    "CertificateRefNotGranted": Entry(
        "error",
        "A listener refers to a Secret of another namespace, which does not allow it; its other references count all"
        " the same.",
        "Create a ReferenceGrant in the namespace of the Secret: from Gateways of the Gateway's namespace, to Secrets.",
        "RefNotPermitted",
    ),
    "CertificateRefUnsupported": Entry(
        "error",
        "A listener refers to something else than a Secret; its other references count all the same.",
        "Refer to a Secret (group \"\", kind Secret).",
        "InvalidCertificateRef",
    ),
    "SecretAccessDenied": Entry(
        "error",
        "A gateway asks for Secrets of its namespace by name, and its service account may not list them; it is sent"
        " none.",
        "Grant the account list on secrets in its namespace; a Secret that its Gateway refers to needs no such grant."
        " Where home is a directory, start with --identities.",
    ),
    "SecretAccessUnknown": Entry(
        "warning",
        "Home's API server cannot be asked whether a gateway's account may list the Secrets of its namespace; what it"
        " answered last counts for ten minutes, then nothing is sent.",
        "See why, and grant this process create on subjectaccessreviews.",
    ),
    "ObjectNotReadable": Entry(
        "error",
        "A gateway may have what is in a Secret or ConfigMap, but this process may not read it.",
        "Grant this process get, list and watch on it by its name, or on all of its namespace.",
    ),
    "ObjectUnusable": Entry(
        "error",
        "A Secret or ConfigMap that a gateway asks for cannot be used as it is; what it held last stands.",
        "Correct the object.",
    ),
    "HostInvalid": Entry(
        "error",
        "A host of an Ingress is no DNS name, nor a wildcard as its whole first label; it is left out.",
        "Correct the host, or leave it away. Names in other scripts are written in their form for DNS (xn--...).",
    ),
    "HostHasNoRule": Entry(
        "warning",
        "An Ingress has TLS for a host that no Ingress has a rule for; the host is not served.",
        "Add a rule for the host.",
    ),
    "PathInvalid": Entry(
        "error",
        "A path of an Ingress can match no request (it holds ?, # or what URLs must escape), or is to be a regular"
        " expression and none that proxies take; it is left out.",
        "Correct the path. Regular expressions are those of RE2, which has no look-ahead and no back-references.",
    ),
    "PathsAreRegexes": Entry(
        "info",
        "Another Ingress of the same host wants paths to be regular expressions (use-regex, rewrite-target), and so"
        " they are for the whole host: Prefix paths of this one match whatever begins with them, in any case.",
        "Nothing to do if that is meant. Else give the host's paths to one Ingress, make them Exact, or set"
        " --ingress-regex-scope ingress.",
    ),
    "ClassAnnotationIgnored": Entry(
        "warning",
        "An Ingress names one class in spec.ingressClassName and another in the annotation kubernetes.io/ingress.class;"
        " the field counts.",
        "Remove the annotation.",
    ),
    "ClassParametersIgnored": Entry(
        "warning",
        "An IngressClass refers to parameters; gateways of Isthmus take none from there.",
        "Remove spec.parameters from the IngressClass.",
    ),
    "AnnotationInvalid": Entry(
        "error",
        "An annotation of an Ingress has a value that means nothing; the Ingress is served as without it.",
        "Correct the value, as docs/reference/annotations.md says.",
    ),
    "ProtectionInvalid": Entry(
        "error",
        "An Ingress asks for a protection (who may come, by which proof) that cannot be given; its paths are answered"
        " 503, as without it they would be open.",
        "Correct the annotation, or what it refers to, as docs/reference/annotations.md says; or take it away.",
    ),
    "ServiceUpstreamNotUsed": Entry(
        "warning",
        "An Ingress wants a Service reached at its own address, and its endpoints are reached one by one as always.",
        "Do without the annotation service-upstream; what is in the mesh is only reached by the mesh's tunnels.",
    ),
    "UsersInvalid": Entry(
        "error",
        "A Secret that an Ingress takes its users from holds none, or some that gateways cannot compare with: they are"
        " not let in, and if no user is left, nobody is.",
        "Write the users under `auth`, each by `htpasswd -s` (hashes begin with {SHA}), one a line.",
    ),
    "AnnotationUnknown": Entry(
        "warning",
        "An Ingress asks by an annotation for something that is not there; it is served as without it.",
        "Correct the name, or do without: docs/reference/annotations.md lists what there is.",
    ),
    "AnnotationUnsupported": Entry(
        "warning",
        "An Ingress asks for something that other controllers do and gateways of Isthmus do not, or not in that way; it"
        " is served as without it.",
        "Do without it, or as docs/reference/annotations.md says.",
    ),
    "ConditionInvalid": Entry(
        "error",
        "An Ingress wants only some requests, by a condition that means nothing; it is given none, lest it gets those"
        " that are not meant for it.",
        "Correct the value of the annotation, as docs/reference/annotations.md says, or remove it.",
    ),
    "CanaryHasNoMain": Entry(
        "warning",
        "A canary is for a host and path that no other Ingress of its namespace has; it takes part in nothing.",
        "Create the Ingress it is a canary of, in its namespace and with the same host, path and pathType, or remove"
        " the annotation canary.",
    ),
    "CanaryClaimed": Entry(
        "warning",
        "Two canaries are for the same host and path; the first in order takes part (the older Ingress, then by"
        " namespace and name).",
        "Leave one canary to each path.",
    ),
    "HostSettingClaimed": Entry(
        "warning",
        "Two Ingresses want different things for a host as a whole, or one wants a name for its host that is a host of"
        " its own; the first in order has it, and a host goes before another's name.",
        "Leave it to one Ingress of the host.",
    ),
    "PathClaimed": Entry(
        "warning",
        "Two rules claim the same host and path; the first in order has it (the older Ingress, then by namespace and"
        " name), and it comes to the other when the first goes.",
        "Leave the path to one Ingress.",
    ),
    "HostTlsClaimed": Entry(
        "warning",
        "Two Ingresses give one host different TLS Secrets; the first in order decides.",
        "Give the host the same Secret in both.",
    ),
    "HostTlsSettingsClaimed": Entry(
        "error",
        "Two Ingresses want TLS with the clients of one host spoken differently; the first in order decides, of the"
        " namespace that has the host. Paths of an Ingress that demands certificates of clients in vain are not"
        " served.",
        "Write the same annotations on both, or give the paths a host of their own.",
    ),
    "ClientRootsNotAllowed": Entry(
        "error",
        "An Ingress takes the roots of its clients' certificates from another namespace: nobody gets in to its host.",
        "Put the Secret into the namespace of the Ingress, and name it in auth-tls-secret.",
    ),
    "ClientRootsNotFound": Entry(
        "error",
        "The Secret with the roots of clients' certificates is not there, or holds none: nobody gets in to the host.",
        "Create the Secret in the namespace of the Ingress, with the roots in PEM under ca.crt.",
    ),
    "TlsChainsExceeded": Entry(
        "error",
        "More filter chains are asked for than a gateway can hold, since each costs it memory for every host. Hosts of"
        " the youngest settings that demand something are refused, others are served from the common chain.",
        "Give hosts equal TLS settings: they share a chain.",
    ),
    "PassthroughNotServed": Entry(
        "error",
        "A host whose backend is to end TLS has no backend: its clients are refused.",
        "Give the host a rule with a Service behind the path /.",
    ),
    "DefaultCertificateNotFound": Entry(
        "error",
        "The Secret with the default certificate does not exist, or never held a good pair: clients that name no host,"
        " or one without a good certificate, are refused.",
        "Create the Secret, of type kubernetes.io/tls, or correct --default-certificate.",
    ),
    "TlsHasNoSecret": Entry(
        "warning",
        "An Ingress asks for TLS without naming a Secret, and there is no default certificate: its hosts are served"
        " without TLS.",
        "Name a Secret of type kubernetes.io/tls, or set --default-certificate.",
    ),
    "TlsSecretNotFound": Entry(
        "error",
        "The TLS Secret of a host does not exist, or never held a good pair: HTTPS to the host is refused, or answered"
        " with the default certificate, if there is one. Its plain HTTP is redirected to HTTPS all the same.",
        "Create the Secret, of type kubernetes.io/tls, in the namespace of the Ingress.",
    ),
    "CertificateNotForHost": Entry(
        "error",
        "The certificate in a host's TLS Secret is for other names: the host keeps the last good one of that Secret,"
        " else the default certificate; else HTTPS to it is refused.",
        "Get a certificate that names the host.",
    ),
    "BackendNotFound": Entry(
        "error",
        "A backend's Service, or its port, does not exist in the Ingress's namespace: its paths answer 503.",
        "Create the Service with that port (TCP), or correct the backend.",
    ),
    "BackendNotService": Entry(
        "error", "A backend is a resource, which is not supported: its paths answer 503.", "Name a Service."
    ),
    "GatewayAddressNotResolved": Entry(
        "error",
        "A gateway into another network is known by a DNS name that has had no address yet that can be used; nobody is"
        " sent there, nor to the pods behind it.",
        "Correct the name's records, or give the Gateway an IP address; it is looked up again within 30 seconds.",
        "AddressNotUsable",
    ),
    "GatewayNameFails": Entry(
        "warning",
        "The DNS name of a gateway into another network was not resolved the last time, or not wholly; the addresses"
        " it last had go on being used.",
        "See to the name servers, or correct the name's records; it is looked up again within 30 seconds.",
    ),
    "WaypointIsNotReady": Entry(
        "error",
        "The waypoint that is asked for does not exist, or has no address yet: the object has none.",
        "Create the Gateway, or correct the label istio.io/use-waypoint.",
    ),
    "AttachmentDenied": Entry(
        "error",
        "The waypoint that is asked for does not admit objects of this namespace: the object has none.",
        "Set allowedRoutes.namespaces of its listener, or use a waypoint of the object's own namespace.",
    ),
    "UnsupportedTrafficType": Entry(
        "error",
        "The waypoint that is asked for is not for this kind of traffic: the object has none.",
        "Correct the label istio.io/waypoint-for of the Gateway, or use another waypoint.",
    ),
    "CrossNamespaceWaypointForbidden": Entry(
        "warning",
        "A ServiceEntry that only its own namespace sees asks for a waypoint of another namespace, which would have to"
        " see it: it has none.",
        "Name a waypoint of its own namespace, or make the entry public (serviceEntryVisibility).",
    ),
    "CanaryInvalidWeight": Entry(
        "error",
        "The weight of a canary waypoint is no percentage: all traffic goes through the other waypoint.",
        "Set the annotation istio.io/use-waypoint-canary-weight to a whole number from 0 to 100.",
    ),
    "CanarySameAsPrimary": Entry(
        "warning", "A service's canary waypoint is its waypoint.", "Name another one, or remove the label."
    ),
    "WaypointsDiffer": Entry(
        "warning",
        "Clusters of home's network ask for different waypoints for a service: clients at home go through the one that"
        " home, or else the first of those clusters, asks for, and reach the endpoints of the others without theirs.",
        "Ask for the same waypoint in all clusters of a network.",
    ),
    "WaypointHasNoService": Entry(
        "error",
        "Gateways know no Service of the waypoint that a service asks for, or it has no port 15008. They do not pass"
        " over a waypoint, so clients who are to go through it do not get to the service.",
        "Create the waypoint's Service, with the name of its Gateway; where it is in another cluster of the gateway's"
        ' network, label it istio.io/global: "true" there.',
    ),
    "ExportWithoutService": Entry(
        "warning",
        "There is no Service of the name of this ServiceExport in its namespace and cluster, so nothing is exported.",
        "Create the Service, or delete the ServiceExport.",
        "NoService",
    ),
    "ExportOfExternalName": Entry(
        "warning",
        "The Service of this ServiceExport is of type ExternalName, which cannot be exported: it has no endpoints.",
        "Export a Service of another type, or delete the ServiceExport.",
        "InvalidServiceType",
    ),
    "ExportsDiffer": Entry(
        "warning",
        "Clusters export a service with different properties. Ports are the union; of all else, and of ports that"
        " collide, those of the oldest ServiceExport are used.",
        "Give the Service, and its ServiceExport, the same properties in all clusters.",
    ),
    "RootsOfOthers": Entry(
        "warning",
        "The ConfigMap istio-ca-root-cert of a namespace holds other root certificates than this control plane's, and"
        " belongs to somebody else: it is left as it is. Proxies that mount it do not trust this control plane.",
        "If this control plane is to distribute its roots, stop whoever else does (istiod, istio-csr) and delete the"
        " ConfigMap, which is then made anew; else run without --distribute-roots and --istio-classes.",
    ),
    "NoWaypointForWildcardService": Entry(
        "warning",
        "A ServiceEntry names hosts with a wildcard and no address, which only a waypoint can tell apart, and has no"
        " waypoint that can be used: for these hosts it has no effect.",
        "Give the ServiceEntry, or its namespace, the label istio.io/use-waypoint.",
    ),
    "HostClaimed": Entry(
        "warning",
        "A host of a ServiceEntry belongs to another object of its namespace (a Kubernetes Service of that name, or the"
        " older ServiceEntry); it is left out here, and comes to this one when the other goes.",
        "Leave the host to one object.",
    ),
    "AddressPoolExhausted": Entry(
        "error",
        "A host that names no address, or a service that exists in other networks alone, is to be given an address, and"
        " none was found free: clients cannot ask for it by an address.",
        "Give the ServiceEntry an address, or the service a Service in this cluster.",
    ),
    "EndpointAddressRepeated": Entry(
        "warning",
        "A ServiceEntry lists one address twice; the first entry counts.",
        "Leave one of them away, or give them different addresses.",
    ),
    "PolicyNeedsWaypoint": Entry(
        "warning",
        "A rule of an AuthorizationPolicy compares what only a waypoint can read. Node proxies enforce it without that"
        " condition, which they take as met where the policy denies and as not met where it allows: it refuses more"
        " than is asked for, never less.",
        "Attach the policy to a waypoint with targetRefs, or leave the condition away.",
        "UnsupportedValue",
    ),
    "PolicyValueInvalid": Entry(
        "error",
        "A value in an AuthorizationPolicy cannot be read. Where nothing else is given in its place, the condition is"
        " taken as met where the policy denies and as not met where it allows.",
        "Write a port from 1 to 65535, an IP address or a range such as 10.0.0.0/8, or a name.",
        "UnsupportedValue",
    ),
    "PolicyActionNotEnforced": Entry(
        "error",
        "Node proxies enforce neither AUDIT nor CUSTOM; the policy has no effect on workloads.",
        "Attach the policy to a waypoint with targetRefs, or use ALLOW or DENY.",
        "UnsupportedValue",
    ),
    "PolicyIsDryRun": Entry(
        "info",
        "The policy carries istio.io/dry-run: it is not sent to node proxies, some of which would enforce it.",
        "Remove the annotation to enforce the policy.",
        "UnsupportedValue",
    ),
    "ClusterUnconfirmed": Entry(
        "warning",
        "A cluster has not been readable for longer than --stale-after. What was read last is served unchanged.",
        "See the reason of its state (isthmus clusters); nothing has to be restarted.",
    ),
    "ClusterReduced": Entry(
        "warning",
        "A cluster has not been readable for longer than --stale-after: its endpoints behind gateways count half, and"
        " are withdrawn after --stale-ttl.",
        "See the reason of its state (isthmus clusters); once it can be read all counts again.",
    ),
    "ClusterWithdrawn": Entry(
        "error",
        "A cluster has not been readable for longer than --stale-ttl: its endpoints are withdrawn.",
        "See the reason of its state (isthmus clusters); once it can be read they are back.",
    ),
    "ResourceRejected": Entry(
        "error",
        "A proxy refused the resource made from this object; it keeps the version it had and is not sent this one"
        " again.",
        "Look at the proxy's words; once the object changes it is sent again. If it is right, report a defect.",
        "Invalid",
    ),
    "DerivationFailed": Entry(
        "error",
        "Isthmus failed to work out what this object means. It is withheld, everything else is served.",
        "Report this as a defect, with the object.",
    ),
    # Reasons.
    "InternalError": Entry("error", "A derivation failed.", "Report this as a defect, with the object."),
    "WaypointHasNoAddress": Entry("info", "The Gateway has no address in its status.", "Wait for its controller."),
    "EntryOfRemoteCluster": Entry(
        "info", "ServiceEntries and WorkloadEntries count in their own cluster only.", "Run with --remote-entries."
    ),
    "EntryIsForNobody": Entry(
        "info",
        "serviceEntryVisibility of the mesh configuration is NONE for the namespace of the ServiceEntry.",
        "Change the mesh configuration if the entry is meant to count.",
    ),
    "EntryServesNothing": Entry("info", "Another object has every host of the ServiceEntry.", "See the finding on it."),
    "EntryListsNoEndpoints": Entry(
        "info", "The ServiceEntry lists no endpoints: it selects workloads, or has none.", "Nothing to do."
    ),
    "PolicyOfRemoteCluster": Entry(
        "info", "Policies count in their own cluster only.", "Create the policy at home as well, if it is meant."
    ),
    "PolicyForWaypoints": Entry(
        "info", "The policy names targets, so waypoints and gateways enforce it.", "Nothing to do."
    ),
    "PeerAuthenticationHasNoPolicy": Entry(
        "info", "The PeerAuthentication needs no policy of its own for ports.", "Nothing to do."
    ),
    "NoPolicySelects": Entry("info", "No policy with a selector is for the workload.", "Nothing to do."),
    "ObjectOfOtherRevision": Entry(
        "info",
        "The label istio.io/rev gives the object to another control plane.",
        "Remove the label, or run with that --revision.",
    ),
    "PodFinished": Entry("info", "The pod has succeeded or failed.", "Nothing to do."),
    "PodHasNoAddress": Entry("info", "The pod has no IP address yet.", "Wait until the node's agent has given it one."),
    "AddressInvalid": Entry("error", "No usable IP address.", "See the finding on the object."),
    "InRemoteNetwork": Entry(
        "info",
        "Workloads of another network are not sent one by one; they stand behind that network's gateways.",
        "Nothing to do.",
    ),
    "ServiceIsNoWorkload": Entry("info", "Who asks for workloads alone is told no services.", "Nothing to do."),
    "TrustDomainIsHomes": Entry("info", "The cluster's identities are of home's trust domain.", "Nothing to do."),
    "InHomeNetwork": Entry("info", "Endpoints of the home network are sent one by one.", "Nothing to do."),
    "ServiceIsExternalName": Entry("info", "ExternalName services have no endpoints of their own.", "Nothing to do."),
    "ServiceIsNotGlobal": Entry(
        "info",
        "The service is not global in its cluster (or not at home), so it stays within that cluster.",
        'Label it istio.io/global: "true" in every cluster that is to share it.',
    ),
    "GatewayNotFound": Entry(
        "info", "There is no Gateway of that name, so its proxies take no traffic.", "Create it, or delete its pods."
    ),
    "GatewayTakesNoTunnels": Entry(
        "info", "The Gateway has no HBONE listener, so its proxies take no tunnels.", "Add one (protocol HBONE)."
    ),
    "NetworkHasNoReadyEndpoint": Entry(
        "info", "No endpoint of the service is ready in that network.", "See why the pods are not ready."
    ),
    "NotANetworkGateway": Entry(
        "info",
        "The Gateway does not lead into a network: wrong class, no network label, no HBONE listener or no address.",
        "An east-west Gateway needs the label topology.istio.io/network, an HBONE listener (tls.mode Terminate) and an"
        " address in its status.",
        "Invalid",
    ),
    "ClusterUnreachable": Entry(
        "warning",
        "The cluster has not been readable for longer than --stale-ttl, so its endpoints are withdrawn.",
        "See the reason of its state (isthmus clusters).",
    ),
    "ClusterConfirmed": Entry("info", "What is held of the cluster is current.", "Nothing to do."),
    "ClusterWithinLimit": Entry(
        "info", "The cluster cannot be read, but for no longer than --stale-after.", "Nothing to do."
    ),
    "NameAnswered": Entry(
        "info", "It is known which addresses the DNS name has, or that it has none.", "Nothing to do."
    ),
    "EndpointOfPod": Entry("info", "The endpoint is a pod and served as that pod.", "Nothing to do."),
    "SliceNotServed": Entry(
        "info",
        "The EndpointSlice belongs to no service that takes endpoints from slices (without selector, known, global if"
        " remote), or holds names instead of addresses.",
        "Nothing to do.",
    ),
    "NamespaceNotSelected": Entry(
        "info",
        "None of the mesh config's discoverySelectors selects the object's Namespace by the labels it has in its own"
        " cluster, so nothing in it counts.",
        "To have it count, give the Namespace a label that a selector asks for, or add a selector.",
    ),
    "EveryNamespaceSelected": Entry(
        "info", "The mesh config has no discoverySelectors: every namespace counts.", "Nothing to do."
    ),
    "SelectionUnknown": Entry(
        "info",
        "Home's mesh config, or the cluster's Namespaces, have not been read yet, so it is not known which namespaces"
        " count.",
        "Nothing to do.",
    ),
    "NotOfHome": Entry("info", "Only home's Ingresses and Secrets are served.", "Nothing to do."),
    "IngressOfOtherClass": Entry(
        "info",
        "The Ingress is of a class that another controller serves, or of none.",
        "Set spec.ingressClassName to a class whose controller is isthmus.dev/ingress-controller.",
    ),
    "HostWithoutRule": Entry("info", "No Ingress has a rule for the host.", "See the finding on the Ingress."),
    "HostHasNoCertificate": Entry(
        "info", "The host has no TLS, or its certificate cannot be served.", "See the findings on the Ingress."
    ),
    "CommonChain": Entry(
        "info", "The host is served from the chain that all hosts share: it asks for nothing apart.", "Nothing to do."
    ),
    "TooManyExceptions": Entry(
        "info",
        "So many hosts under a wildcard have certificates of their own that the wildcard's is fetched by name, too.",
        "Nothing to do.",
    ),
    "HostAwaitsNothing": Entry("info", "There is a pair in the TLS Secret of the host.", "Nothing to do."),
    "SecretHoldsNoPair": Entry(
        "info", "The Secret holds no certificate and key that could be served.", "See the finding on it, if any."
    ),
    "CredentialNotFound": Entry("info", "No such Secret or ConfigMap is there.", "Create it if it is wanted."),
    "CredentialNotVerified": Entry(
        "info",
        "No listener of the gateway's Gateway refers to the Secret so that it counts.",
        "Name it in certificateRefs of a listener that ends TLS; across namespaces with a ReferenceGrant there.",
    ),
    "CredentialOfOtherNamespace": Entry(
        "info",
        "Gateways have Secrets of other namespaces by references of their Gateway alone.",
        "Refer to the Secret in certificateRefs.",
    ),
    "CredentialPending": Entry("info", "What is asked for has not been read yet.", "Wait some seconds."),
    "SecretAccessPending": Entry(
        "info", "It has not been answered yet whether the account may have Secrets.", "Wait some seconds."
    ),
    "CredentialKnown": Entry("info", "It is known what is under the name.", "Nothing to do."),
    "ReachedThroughWaypoint": Entry(
        "info",
        "Ingress gateways reach the service through its waypoint, which finds the ways to other networks itself.",
        "Nothing to do.",
    ),
    "PortNotServed": Entry("info", "The endpoint does not serve that port of the service.", "Nothing to do."),
    "EndpointNotReady": Entry("info", "The endpoint is not ready.", "See why the pod is not ready."),
    "RejectedNoLonger": Entry("info", "The rejected version is not what is told now.", "Nothing to do."),
    "NamePending": Entry("info", "A DNS name of the Gateway has not been answered yet.", "Wait some seconds."),
    "ClusterRead": Entry("info", "The cluster has been read.", "Nothing to do."),
    "ClusterNotRead": Entry(
        "info",
        "A registered cluster has not been read yet, and may add to what the object is to say, which stands meanwhile.",
        "Wait, or see the state of the clusters.",
    ),
    "ImportsNotServed": Entry(
        "info",
        "The home cluster does not serve ServiceImports, or does not let them be read, so none are made.",
        "Install the definitions of the Multi-Cluster Services API and the control plane's role, if they are wanted.",
    ),
    "ImportOfOthers": Entry(
        "warning",
        "A ServiceImport of this name was made by somebody else; it is left as it is.",
        "Delete it if this control plane is to make it.",
    ),
    "ImportCurrent": Entry("info", "The ServiceImport is as it is to be.", "Nothing to do."),
    "ImportPending": Entry(
        "info", "There is no ServiceImport whose status could say anything.", "Nothing to do."
    ),
    "ImportAddressPending": Entry(
        "info", "The service has no address for the cluster set yet.", "Wait, or see its finding AddressPoolExhausted."
    ),
    "MulticlusterServicesOff": Entry(
        "info",
        "This process tells ServiceExports nothing and makes no ServiceImports.",
        "Set --multicluster-services if no other controller does.",
    ),
    "NothingExported": Entry("info", "No cluster exports the service.", "Nothing to do."),
    "NamespaceNotOfHome": Entry(
        "info",
        "The home cluster has no namespace of this name, so the service cannot be imported into it.",
        "Create the namespace if the service is wanted there.",
    ),
    "RootsNotDistributed": Entry(
        "info",
        "This process gives namespaces no root certificates.",
        "Set --distribute-roots if no other control plane or certificate authority does.",
    ),
    "RootsUnknown": Entry("info", "It is not known yet which root certificates are trusted.", "Wait some seconds."),
    "RootsNotRead": Entry(
        "info",
        "The ConfigMaps istio-ca-root-cert of home have not been read, or may not be read, so none are written.",
        "Wait, or install the control plane's role.",
    ),
    "RootsCurrent": Entry("info", "The namespace has the root certificates it is to have.", "Nothing to do."),
    "NamespaceWithoutProxies": Entry(
        "info", "Namespaces of Kubernetes itself are given no root certificates.", "Nothing to do."
    ),
    "NamespaceEnds": Entry("info", "The namespace is being deleted.", "Nothing to do."),
    "NothingToTell": Entry("info", "The object's status is to say nothing of us.", "Nothing to do."),
    "StatusCurrent": Entry("info", "The object says already what it is to say.", "Nothing to do."),
    "AddressPending": Entry(
        "info",
        "The Service in front of the ingress gateway has no address yet; the Ingress goes on showing what it shows.",
        "See why the load balancer of --ingress-service has no address.",
    ),
    "AddressNotNamed": Entry(
        "info",
        "Nothing says where the ingress gateway is reached, so Ingresses show no address.",
        "Set --ingress-service or --ingress-address.",
    ),
    "OfOtherController": Entry("info", "Another controller tells the object's status.", "Nothing to do."),
    "HomeNotSynced": Entry("info", "The home cluster has not been read completely yet.", "Wait, or see its state."),
}
