"""The one authorisation point: who may open a stream, which types it may read, for whom it may have a certificate.

In: a Caller (proven), Claims (not), and Admissions: what the graph derived about service accounts of the home cluster
and the pods of its proxies. Out: a Proxy, a yes or no, or a Refusal. Streams and the certificate authority ask here and
nowhere else, on every port, so that no protocol or method has rules of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

import msgspec

from xds.messages.authorization import AUTHORIZATION_TYPE
from xds.messages.secret import SECRET_TYPE
from xds.messages.workload import ADDRESS_TYPE, WORKLOAD_TYPE
from xds.server import refusals
from xds.server.authentication import Caller, Identity
from xds.server.proxies import Claims, Proxy

T = TypeVar("T")

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


class ProxyPod(msgspec.Struct, frozen=True, gc=False):
    """What is known of the pod of a proxy of the home cluster: its service account, its node ("": none yet), its
    network, and how it says its proxy is to be served ("": nothing).
    """

    service_account: str
    node: str
    network: str
    mode: str = ""


class Admissions(Protocol):
    """What the server needs of its surroundings to know accounts: a Table the graph publishes, behind a few names."""

    @property
    def known(self) -> bool:
        """False until the first complete pass: that an account is absent means nothing before."""

    @property
    def trust_domain(self) -> str:
        """The trust domain of the home cluster's identities; "" as long as it is not known."""

    def admission(self, namespace: str, service_account: str) -> Admission | None:
        """The admission of an account; None: no pod of the home cluster runs as it."""

    def pod(self, namespace: str, name: str) -> ProxyPod | None:
        """The pod of a proxy; None: there is none of that name, or no proxy runs in it."""

    async def changed(self) -> None:
        """Returns at the next change of `known` or of any admission after the call."""


class Access:
    """The rules. `patience` is how many seconds a call waits for an account or pod that is not known: it may have
    started a moment before the control plane hears of it.
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
        # Where only the account is proven, the claim says which of its pods it is; what that is like the pod says.
        pod = self._pod(identity, identity.pod or claims.pod)
        if pod is None and identity.pod and not identity.node:
            pod = await self._known(lambda: self._pod(identity, identity.pod))
        node = identity.node or (pod.node if pod is not None else "")
        _compare("node", claims.node, node)
        return Proxy(
            id=claims.id,
            peer=caller.peer,
            identity=identity,
            role=admission.role,
            namespace=identity.namespace,
            network=pod.network if pod is not None else admission.network,
            cluster=caller.cluster or claims.cluster,
            node=node,
            metadata=claims.metadata,
            gateway=admission.gateway,
            extensions=claims.extensions,
            incremental=claims.incremental,
            mode=pod.mode if pod is not None else "",
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
        if identity.cluster:
            raise refusals.denied(
                f"{identity} is of cluster {identity.cluster!r}, whose proxies are not served here: "
                "a proxy connects to the control plane of its own cluster"
            )
        admission = await self._admission(identity)
        if identity.trust_domain != self._admissions.trust_domain:
            raise refusals.denied(
                f"{identity} is not of trust domain {self._admissions.trust_domain!r}: "
                "a proxy connects to the control plane of its own cluster"
            )
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

    def mode_changed(self, proxy: Proxy, pod: str) -> bool:
        """Whether the pod of a proxy, of that name, says now that it is to be served in another mode than before."""
        found = self._pod(proxy.identity, pod) if proxy.identity is not None else None
        return found is not None and found.mode != proxy.mode

    def may_read(self, proxy: Proxy, type_url: str) -> bool:
        """Whether a proxy is served a type at all; one that is not gets an empty answer, as for a type without
        resources, since a proxy may ask for types in one binary that it has no use for in its role.
        """
        if proxy.identity is None and type_url in SECRET_TYPES:
            return False
        return type_url in READABLE.get(proxy.role, ())

    async def authorize_certificate(self, caller: Caller, asked: Identity) -> None:
        """Returns if `caller` may have a certificate that names `asked`, else raises Refusal (PERMISSION_DENIED).

        Everybody may have one of its own. A node proxy of the home cluster may have those of the accounts that run on
        its node, and of no other trust domain; its node is the one that its token or its pod names, never a claim.
        """
        identity = caller.identity
        if identity is None:
            raise refusals.unauthenticated("certificates are issued on the TLS ports, to those who prove who they are")
        if str(asked) == str(identity):
            return
        own = None if identity.cluster else await self._admission(identity)
        foreign = identity.trust_domain != self._admissions.trust_domain
        if own is None or own.role != ZTUNNEL or foreign:
            raise refusals.denied(f"{identity} may not act for {asked}: only the node proxies of this cluster may")
        if asked.trust_domain != identity.trust_domain:
            raise refusals.denied(f"{asked} is of another trust domain than {identity}")
        node = await self._node(identity)
        if not node:
            raise refusals.denied(
                f"{identity} may not act for {asked}: what it has shown does not say on which node it runs; "
                "connect with a projected token of its pod"
            )
        if await self._admission(asked, node=node) is None:
            raise refusals.denied(f"{identity} may not act for {asked}: no pod on node {node} runs as that account")

    async def _node(self, identity: Identity) -> str:
        """The node a caller runs on, as its token or its pod says; "" if neither does."""
        if identity.node:
            return identity.node
        pod = await self._known(lambda: self._pod(identity, identity.pod)) if identity.pod else None
        return pod.node if pod is not None else ""

    def _pod(self, identity: Identity, name: str) -> ProxyPod | None:
        """The pod of that name, if it is one of the identity's."""
        pod = self._admissions.pod(identity.namespace, name) if name else None
        return pod if pod is not None and pod.service_account == identity.service_account else None

    async def _admission(self, identity: Identity, *, node: str = "") -> Admission | None:
        """The admission of an account, on `node` if one is given; None after the patience is over."""

        def admitted() -> Admission | None:
            admission = self._admissions.admission(identity.namespace, identity.service_account)
            return admission if admission is not None and (not node or node in admission.nodes) else None

        return await self._known(admitted)

    async def _known(self, look: Callable[[], T | None]) -> T | None:
        """What `look` finds, as soon as it does; None after the patience is over."""
        while not self._admissions.known:
            await self._admissions.changed()
        try:
            async with asyncio.timeout(self._patience):
                while (found := look()) is None:
                    await self._admissions.changed()
                return found
        except TimeoutError:
            return None


def _compare(what: str, claimed: str, proven: str) -> None:
    """Refuses a claim that differs from what is proven; where one of the two is empty there is nothing to compare."""
    if claimed and proven and claimed != proven:
        raise refusals.denied(
            f"the node claims {what} {claimed!r}, its token proves {proven!r}: start the proxy with its own token"
        )
