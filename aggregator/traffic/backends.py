"""Backends: the services behind Ingresses, by the names their clusters have.

Every service and port that some Ingress of ours names is a backend, also one that does not exist: a proxy that was once
told there is no such cluster never asks again, so it is told of one without endpoints instead.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Sums
from aggregator.mesh.global_services import Service
from aggregator.mesh.home import Home
from aggregator.mesh.services import Port
from aggregator.traffic.annotations.connections import DEFAULT, Connections, of_text
from aggregator.traffic.ingress_secrets import IngressSecrets
from aggregator.traffic.ingresses import Claim, ClaimKey


class Backend(msgspec.Struct, frozen=True, gc=False):
    """A service and port that Ingresses lead to, by the key that aggregator.traffic.ingresses.backend_key gives it.

    `service` is the key `<namespace>/<hostname>`, `port` the number of the service's port (0: it has no such port, or
    does not exist), `protocol` what is spoken there ("" unknown; see aggregator.mesh.services.Port). `connections` is
    what Ingresses want of it; `shown`: there is a pair to show to it, as they want.
    """

    key: str
    service: str
    port: int
    protocol: str
    found: bool
    connections: Connections = DEFAULT
    shown: bool = False


def declare(
    graph: Graph,
    home: Home,
    claims: Collection[ClaimKey, Claim],
    services: Collection[str, Service],
    secrets: IngressSecrets,
) -> Collection[str, Backend]:
    """Declare the backends of all claims, by key."""

    def uses(_key: ClaimKey, claim: Claim) -> Iterable[tuple[str, str, int]]:
        return [(name, "uses", 1) for name in claim.backends]

    def backend(at: At, key: str, _uses: Sums) -> Backend:
        _, namespace, name, port, *unlike = key.split("|")
        connections = of_text(unlike[0]) if unlike else DEFAULT
        service_key = f"{namespace}/{name}.{namespace}.svc.{home.domain_suffix}"
        secret = connections.secret
        shown = bool(secret) and at.get(secrets.pairs, ("client", namespace, secret)) is not None
        found = _port(at.get(services, service_key), port)
        if found is None:
            return Backend(key, service_key, 0, "", found=False, connections=connections, shown=shown)
        return Backend(key, service_key, found.number, found.protocol, True, connections, shown)

    named = graph.derive("backends", graph.fold("uses of backends", claims, uses), backend)

    def missing(at: At, key: ClaimKey, claim: Claim) -> bool:
        """Notes what is wrong with the backends of one Ingress and host."""
        complete = True
        for name in claim.backends:
            found = at.get(named, name)
            if found is None or not found.found:
                complete = False
                _, namespace, service, port = name.split("|")[:4]
                detail = f"there is no Service {namespace}/{service} with port {port}"
                at.note(claim.origin, Finding(claim.origin, "BackendNotFound", claim.field_of(name), detail))
        return complete

    graph.derive("missing backends", claims, missing)
    return named


def _port(service: Service | None, wanted: str) -> Port | None:
    """The TCP port of that number or name; "" is the first."""
    for port in service.ports if service is not None else ():
        if port.transport == "TCP" and wanted in ("", port.name, str(port.number)):
            return port
    return None
