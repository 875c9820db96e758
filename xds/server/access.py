"""The one authorisation point: who may open a stream, which types it may read, for whom it may have a certificate.

In: a Caller (proven), Claims (not), and Admissions: what the graph derived about service accounts of the home cluster.
Out: a Proxy, a yes or no, or a Refusal. Streams and the certificate authority ask here and nowhere else, on every
port, so that no protocol or method has rules of its own.
"""

from __future__ import annotations

import asyncio
from types import MappingProxyType
from typing import Final, Protocol

import msgspec

from xds.messages.authorization import AUTHORIZATION_TYPE
from xds.messages.secret import SECRET_TYPE
from xds.messages.workload import ADDRESS_TYPE, WORKLOAD_TYPE
from xds.server import refusals
from xds.server.authentication import Caller, Identity
from xds.server.proxies import Claims, Proxy

# The role of node proxies: they read the workloads and policies of the mesh, and act for the pods of their node.
ZTUNNEL: Final = "ztunnel"
EAST_WEST: Final = "east-west"
INGRESS: Final = "ingress"
_ENVOY: Final = "type.googleapis.com/envoy.config."
_GATEWAY_TYPES: Final = frozenset(
    {
        f"{_ENVOY}listener.v3.Listener",
        f"{_ENVOY}route.v3.RouteConfiguration",
        f"{_ENVOY}route.v3.ScopedRouteConfiguration",
        f"{_ENVOY}cluster.v3.Cluster",
        f"{_ENVOY}endpoint.v3.ClusterLoadAssignment",
        SECRET_TYPE,
    }
)
# What each role may read. A role that is not here opens no stream.
READABLE: Final = MappingProxyType(
    {
        ZTUNNEL: frozenset({ADDRESS_TYPE, WORKLOAD_TYPE, AUTHORIZATION_TYPE}),
        EAST_WEST: _GATEWAY_TYPES,
        INGRESS: _GATEWAY_TYPES,
    }
)
# The first part of the node ids that proxies of a role have; Istio counts its east-west gateways as waypoints.
KINDS: Final = MappingProxyType({ZTUNNEL: "ztunnel", EAST_WEST: "waypoint", INGRESS: "router"})
# Never without an identity, whatever the role.
SECRET_TYPES: Final = frozenset({SECRET_TYPE})


class Admission(msgspec.Struct, frozen=True, gc=False):
    """What is known of one service account of the home cluster.

    `role` is "ztunnel" for node proxies, "east-west" or "ingress" for gateways and "" for plain workloads; `nodes` are
    the nodes its pods run on, sorted; `network` is the network of its pods, "" for that of the cluster; `gateway` is
    the Gateway in its namespace whose pods run as it.
    """

    role: str
    nodes: tuple[str, ...]
    network: str = ""
    gateway: str = ""


class Admissions(Protocol):
    """What the server needs of its surroundings to know accounts: a Table the graph publishes, behind three names."""

    @property
    def known(self) -> bool:
        """False until the first complete pass: that an account is absent means nothing before."""

    def admission(self, namespace: str, service_account: str) -> Admission | None:
        """The admission of an account; None: no pod of the home cluster runs as it."""

    async def changed(self) -> None:
        """Returns at the next change of `known` or of any admission after the call."""


class Access:
    """The rules. `patience` is how many seconds a call waits for an account that is not admitted: the pod of a caller
    may have started a moment before the control plane hears of it.
    """

    def __init__(self, admissions: Admissions, *, patience: float = 2.0) -> None:
        self._admissions = admissions
        self._patience = patience

    async def expect(self, caller: Caller) -> None:
        """Returns if the account of `caller` may open streams at all. Asked before anything it says is parsed.

        Raises Refusal (PERMISSION_DENIED).
        """
        if caller.identity is not None:
            await self._reader(caller.identity)

    async def admit(self, caller: Caller, claims: Claims) -> Proxy:
        """The proxy behind a stream's first request. Waits, without limit, until admissions are known at all.

        Raises Refusal (PERMISSION_DENIED) if the account may open no stream or a claim contradicts what is proven.
        """
        if caller.identity is None:
            return await self._admit_unproven(caller, claims)
        identity = caller.identity
        admission = await self._reader(identity)
        _compare("namespace", claims.namespace, identity.namespace)
        _compare("service account", claims.service_account, identity.service_account)
        _compare("pod", claims.pod, identity.pod)
        _compare("node", claims.node, identity.node)
        _compare("kind of proxy", claims.kind, KINDS[admission.role])
        return Proxy(
            id=claims.id,
            peer=caller.peer,
            identity=identity,
            role=admission.role,
            namespace=identity.namespace,
            network=admission.network,
            cluster=caller.cluster or claims.cluster,
            node=identity.node or (claims.node if claims.node in admission.nodes else ""),
            metadata=claims.metadata,
            gateway=admission.gateway,
            extensions=claims.extensions,
        )

    async def _admit_unproven(self, caller: Caller, claims: Claims) -> Proxy:
        # Gateways are of no use without certificates, which nobody gets here.
        if claims.kind != KINDS[ZTUNNEL]:
            raise refusals.invalid(
                f"a node of kind {claims.kind!r} is not served on the plaintext port: "
                f"node.id has to start with {KINDS[ZTUNNEL]}~; gateways connect over TLS, with a token"
            )
        while not self._admissions.known:
            await self._admissions.changed()
        return Proxy(
            id=claims.id,
            peer=caller.peer,
            identity=None,
            role=ZTUNNEL,
            namespace=claims.namespace,
            network="",
            cluster=claims.cluster,
            node=claims.node,
            metadata=claims.metadata,
        )

    async def _reader(self, identity: Identity) -> Admission:
        """The admission of an account that may open streams; raises Refusal."""
        admission = await self._admission(identity)
        if admission is None:
            raise refusals.denied(
                f"no pod of this cluster runs as service account {identity.account}: "
                "a proxy connects to the control plane of its own cluster, with the token of its own account"
            )
        if admission.role not in READABLE:
            raise refusals.denied(
                f"service account {identity.account} is that of plain workloads, which read no configuration: "
                "run the proxy under an account of its own"
            )
        return admission

    def may_read(self, proxy: Proxy, type_url: str) -> bool:
        """Whether a proxy is served a type at all; one that is not gets an empty answer, as for a type without
        resources, since a proxy may ask for types in one binary that it has no use for in its role.
        """
        if proxy.identity is None and type_url in SECRET_TYPES:
            return False
        return type_url in READABLE.get(proxy.role, ())

    async def authorize_certificate(self, caller: Caller, asked: Identity) -> None:
        """Returns if `caller` may have a certificate that names `asked`, else raises Refusal (PERMISSION_DENIED).

        Everybody may have one of its own. A node proxy may have those of the accounts that run on its node (where its
        node is known; else of all accounts of the cluster), and of no other trust domain.
        """
        identity = caller.identity
        if identity is None:
            raise refusals.unauthenticated("certificates are issued on the TLS port, to a bearer of a token")
        if str(asked) == str(identity):
            return
        own = await self._admission(identity)
        if own is None or own.role != ZTUNNEL:
            raise refusals.denied(f"{identity} may not act for {asked}: only the node proxies of this cluster may")
        if asked.trust_domain != identity.trust_domain:
            raise refusals.denied(f"{asked} is of another trust domain than {identity}")
        if await self._admission(asked, node=identity.node) is None:
            place = f"on node {identity.node}" if identity.node else "in this cluster"
            raise refusals.denied(f"{identity} may not act for {asked}: no pod {place} runs as that account")

    async def _admission(self, identity: Identity, *, node: str = "") -> Admission | None:
        """The admission of an account, on `node` if one is given; None after the patience is over."""
        while not self._admissions.known:
            await self._admissions.changed()
        try:
            async with asyncio.timeout(self._patience):
                while True:
                    admission = self._admissions.admission(identity.namespace, identity.service_account)
                    if admission is not None and (not node or node in admission.nodes):
                        return admission
                    await self._admissions.changed()
        except TimeoutError:
            return None


def _compare(what: str, claimed: str, proven: str) -> None:
    """Refuses a claim that differs from what is proven; where one of the two is empty there is nothing to compare."""
    if claimed and proven and claimed != proven:
        raise refusals.denied(
            f"the node claims {what} {claimed!r}, its token proves {proven!r}: start the proxy with its own token"
        )
