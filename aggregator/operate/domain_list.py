"""The domains as operators are told of them: what /domains answers and `isthmus domains` prints as JSON.

In: nothing. Out: Domain and DomainList, from which the JSON Schema in docs/reference is made, and whether a domain
needs attention. Moments are RFC 3339 in UTC and durations seconds; what is unknown is null. Loads nothing heavy, since
the command line needs it too.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from aggregator.operate.documents import API_VERSION, ApiVersion, Moment, Observed, Reason, Replica, schema_of

MOST_INGRESSES = 20
"""Ingresses that a domain names."""
MOST_DETAILS = 200
"""Paths, findings and gateways each, of which one domain's details tell."""

DomainState = Literal[
    "Served", "NotServed", "WithoutRule", "Refused", "NoCertificate", "CertificateExpired", "BackendMissing"
]
STATES: tuple[DomainState, ...] = get_args(DomainState)


class Activation(msgspec.Struct, frozen=True, gc=False):
    """When the news of a domain's last change came in (seconds since the epoch), and after how many seconds a gateway
    held its routes; None where that is not known.
    """

    taken: float | None = None
    seconds: float | None = None


class Path(msgspec.Struct, frozen=True, rename="camel"):
    """A path of a domain, in the order of matching."""

    match: Annotated[str, Meta(description="How it is compared: Exact, Prefix or Regex.")]
    path: Annotated[str, Meta(description="The path.")]
    backend: Annotated[str, Meta(description="namespace/service:port it leads to; empty for what is no Service.")]
    found: Annotated[bool, Meta(description="Whether there is such a Service and port; without, it answers 503.")]
    ingress: Annotated[str, Meta(description="namespace/name of the Ingress that says so.")]


class Told(msgspec.Struct, frozen=True, rename="camel"):
    """A connected gateway and the routes of a domain."""

    gateway: Annotated[str, Meta(description="What the gateway calls itself: the id of its node.")]
    acknowledged: Annotated[bool, Meta(description="Whether it has accepted the routes as they are now.")]
    refusal: Annotated[str, Meta(description="Why it refuses them; empty if it does not.")]


class Flaw(msgspec.Struct, frozen=True, rename="camel"):
    """A finding on an object that a domain is made of."""

    code: Annotated[str, Meta(description="Its code in the catalogue.")]
    severity: Annotated[str, Meta(description="error, warning or info.")]
    object: Annotated[str, Meta(description="Kind and namespace/name.")]
    field: Annotated[str, Meta(description="Where in the object.")]
    detail: Annotated[str, Meta(description="What is wrong.")]
    cure: Annotated[str, Meta(description="What to do.")]


class Details(msgspec.Struct, frozen=True, rename="camel"):
    """What is told of a domain that is asked for by its name, the first two hundred of each."""

    paths: Annotated[tuple[Path, ...], Meta(description="Its paths.")]
    gateways: Annotated[tuple[Told, ...], Meta(description="The connected gateways.")]
    findings: Annotated[
        tuple[Flaw, ...], Meta(description="Of its Ingresses and its Secret, those about other domains of theirs too.")
    ]


class Domain(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="kind", tag="Domain"):
    """A host that some Ingress names, as one replica of the control plane sees it."""

    api_version: ApiVersion = API_VERSION
    host: Annotated[str, Meta(description="The host as Ingresses name it, in lower case; it may hold a wildcard.")]
    state: Annotated[
        DomainState,
        Meta(
            description=(
                "Served: all is well. NotServed: nothing is. WithoutRule: named for TLS only, so nothing is served. "
                "Refused: a gateway refuses its routes and keeps those it had. NoCertificate: HTTPS is refused, there "
                "is no certificate. CertificateExpired: clients refuse it. BackendMissing: paths answer 503, as their "
                "Service or its port does not exist. Of several the first in this order."
            )
        ),
    ]
    reason: Reason
    ingresses: Annotated[
        tuple[str, ...], Meta(description="namespace/name of the Ingresses that name it: first come first, 20 at most.")
    ]
    secret: Annotated[str, Meta(description="namespace/name of the Secret with its certificate; empty without TLS.")]
    certificate_expires: Annotated[Moment, Meta(description="When the certificate in use expires.")]
    changed: Annotated[
        Moment,
        Meta(description="When the news came in that made it what it is; after a restart, when it was read again."),
    ]
    activation: Annotated[
        float | None,
        Meta(
            description=(
                "After how many seconds the first gateway had accepted its routes; null as long as none has, where no "
                "gateway was connected when it changed, and where one refuses them."
            )
        ),
    ]
    gateways: Annotated[int, Meta(description="How many ingress gateways are connected to this replica.")]
    acknowledged: Annotated[int, Meta(description="How many of them have accepted its routes as they are now.")]
    findings: Annotated[int, Meta(description="How many findings there are on its Ingresses and its Secret.")]
    replica: Replica
    observed: Observed
    details: Annotated[
        Details | UnsetType, Meta(description="Everything about it, if it was asked for by its name with get.")
    ] = UNSET


class DomainList(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="kind", tag="DomainList"):
    """Domains, or a page of them; of each replica that was asked an item."""

    api_version: ApiVersion = API_VERSION
    items: Annotated[tuple[Domain, ...], Meta(description="By host, then by replica.")]
    total: Annotated[
        int, Meta(description="How many domains there are, whether asked for or not; of several replicas the most.")
    ]
    unknown: Annotated[
        tuple[str, ...], Meta(description="Of the hosts that were asked for, those that no Ingress names.")
    ] = ()
    after: Annotated[
        str,
        Meta(
            description="Where the next page of /domains begins: ask for it with ?after=. Empty where there is no more."
        ),
    ] = ""


def needs_attention(domain: Domain) -> bool:
    """Whether somebody has to do something about it."""
    return domain.state != "Served"


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a DomainList or a Domain."""
    return schema_of(DomainList | Domain, "domains")
