"""Everybody who may call a control plane: with which token or certificate, on which port, as which proxy.

`Callers` runs one over a home in which there is something of every type to be told, and knows who is who.
"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias

import grpc
import msgspec
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.kit import manifests as m
from tests.kit.manifests import write_manifests
from tests.kit.plane import Plane
from xds.client import AdsClient
from xds.server.authentication import Identity
from xds.server.certificate_authority import CertificateAuthority, ServerCertificate
from xds.server.certificate_files import load_authority
from xds.session.requests import FOR_ON_DEMAND, HASHABLE_STRING

Port: TypeAlias = Literal["15012", "15013", "15010"]
HOST: Final = "shop.example"
OF_THE_NODE: Final = "spiffe://cluster.local/ns/shop/sa/orders"
OF_ANOTHER_NODE: Final = "spiffe://cluster.local/ns/shop/sa/ledger"


class Caller(msgspec.Struct, frozen=True):
    """One who calls: what it is called in the documentation, whose account it has, and as what it connects."""

    name: str
    account: str = ""
    node_id: str = ""
    bound: bool = True
    cluster: str = ""

    @property
    def identity(self) -> Identity:
        """What its token or certificate proves."""
        namespace, _, account = self.account.partition("/")
        pod = self.node_id.split("~")[2].partition(".")[0] if self.bound else ""
        identity = Identity("cluster.local", namespace, account, pod=pod)
        return msgspec.structs.replace(identity, cluster=self.cluster)


def _node_id(kind: str, pod: str) -> str:
    name, _, namespace = pod.partition(".")
    return f"{kind}~127.0.0.1~{name}.{namespace}~{namespace}.svc.cluster.local"


ZTUNNEL = Caller("ztunnel", "istio-system/ztunnel", _node_id("ztunnel", "ztunnel-1.istio-system"))
EAST_WEST = Caller("east-west gateway", "istio-system/east-west", _node_id("waypoint", "east-west-1.istio-system"))
INGRESS = Caller("ingress gateway", "istio-system/ingress", _node_id("router", "ingress-1.istio-system"))
WORKLOAD = Caller("workload", "shop/client", _node_id("ztunnel", "client-1.shop"))
UNBOUND = msgspec.structs.replace(ZTUNNEL, name="ztunnel whose token names no pod", bound=False)
REMOTE = msgspec.structs.replace(ZTUNNEL, name="ztunnel of another cluster", cluster="east")
STRANGER = msgspec.structs.replace(ZTUNNEL, name="nobody: a token that is not accepted")
FORGER = msgspec.structs.replace(ZTUNNEL, name="nobody: a certificate below another root")
NOBODY = msgspec.structs.replace(ZTUNNEL, name="nobody: no token")
NO_CERTIFICATE = msgspec.structs.replace(ZTUNNEL, name="nobody: no certificate")
ANYBODY = msgspec.structs.replace(ZTUNNEL, name="anybody, as a ztunnel")
ANY_GATEWAY = msgspec.structs.replace(INGRESS, name="anybody, as a gateway")

CALLERS: Final[dict[Port, tuple[Caller, ...]]] = {
    "15012": (NOBODY, STRANGER, WORKLOAD, REMOTE, ZTUNNEL, UNBOUND, EAST_WEST, INGRESS),
    "15013": (NO_CERTIFICATE, FORGER, WORKLOAD, ZTUNNEL, EAST_WEST, INGRESS),
    "15010": (ANYBODY, ANY_GATEWAY),
}


class Callers:
    """A control plane on the ports of `CALLERS`, and clients of it. Use it as an async context manager.

    `settings` are further ones of the control plane; `home` is the directory of its cluster and `identities` the file
    of tokens. Client certificates live for `lifetime` from when they are made.
    """

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.home = directory / "west"
        self.lifetime = timedelta(hours=1)
        self._host = CertificateAuthority.self_signed("web").issue_server([HOST])
        write_manifests(self.home, *self.manifests())
        self.cacerts = directory / "cacerts"
        self.cacerts.mkdir()
        self._authority = _write_authority(self.cacerts)
        known = (WORKLOAD, REMOTE, ZTUNNEL, UNBOUND, EAST_WEST, INGRESS)
        self.identities = directory / "identities.json"
        self.identities.write_text(
            json.dumps(
                {
                    self.token(caller): {
                        "identity": str(caller.identity),
                        "pod": caller.identity.pod,
                        "cluster": caller.cluster,
                    }
                    for caller in known
                }
            )
        )
        given = {"identities": self.identities, "cacerts": self.cacerts, **settings}
        self.plane = Plane(self.home, **given)

    async def __aenter__(self) -> Self:
        await self.plane.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.plane.stop()

    def token(self, caller: Caller) -> str:
        """The token of a caller."""
        return caller.name.replace(" ", "-")

    def manifests(self, without: str = "") -> list[m.Manifest]:
        """What home holds, without the pod of that name."""
        return [one for one in _home(self._host) if one["metadata"]["name"] != without]

    def port(self, port: Port) -> int:
        """Where that port is here, on 127.0.0.1."""
        ports = self.plane.control.ports
        assert ports is not None
        found = {"15012": ports.tls, "15013": ports.mtls, "15010": ports.plaintext}[port]
        assert found is not None
        return found

    def address(self, port: Port) -> str:
        """The address of that port."""
        return f"127.0.0.1:{self.port(port)}"

    def client(
        self, port: Port, caller: Caller, *, roots: bytes = b"", certificate: tuple[bytes, bytes] | None = None
    ) -> AdsClient:
        """The caller's connection. It trusts `roots`, those of the beginning unless given, and shows a `certificate` of
        the caller on the port for that.
        """
        if port == "15010":
            made = AdsClient(self.address(port), node_id=caller.node_id)
        else:
            made = AdsClient(
                self.address(port),
                node_id=caller.node_id,
                root_certificates=roots or self._authority.root_certificates.encode(),
                token=None if port == "15013" or caller == NOBODY else self.token(caller),
                certificate=(certificate or self.certificate(caller)) if port == "15013" else (b"", b""),
                cluster=caller.cluster,
            )
        for extension in (HASHABLE_STRING, *sorted(FOR_ON_DEMAND)):
            made.node.extensions.add(name=extension)
        return made

    def channel(self, port: Port, caller: Caller) -> Any:
        """A channel of the same kind, for calls that no proxy makes."""
        if port == "15010":
            return grpc.aio.insecure_channel(self.address(port))
        roots = self._authority.root_certificates.encode()
        key, chain = (part or None for part in (self.certificate(caller) if port == "15013" else (b"", b"")))
        return grpc.aio.secure_channel(self.address(port), grpc.ssl_channel_credentials(roots, key, chain))

    def metadata(self, port: Port, caller: Caller) -> tuple[tuple[str, str], ...]:
        """What such a call says of itself."""
        return (("authorization", f"Bearer {self.token(caller)}"),) if port == "15012" and caller != NOBODY else ()

    def certificate(self, caller: Caller, issuer: CertificateAuthority | None = None) -> tuple[bytes, bytes]:
        """A key, and a chain for what the caller says it is, by that issuer; empty for one that shows none."""
        if caller == NO_CERTIFICATE:
            return b"", b""
        if issuer is None:
            issuer = CertificateAuthority.self_signed("cluster.local") if caller == FORGER else self._authority
        key = ec.generate_private_key(ec.SECP256R1())
        *chain, _roots = issuer.issue(key.public_key(), caller.identity, int(self.lifetime.total_seconds()))
        return _pem(key), "".join(chain).encode()


def _pem(key: Any) -> bytes:
    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem


def _write_authority(directory: Path) -> CertificateAuthority:
    made = CertificateAuthority.self_signed("cluster.local")
    (directory / "ca-key.pem").write_bytes(_pem(made.key))
    for name in ("ca-cert.pem", "root-cert.pem"):
        (directory / name).write_text(made.root_certificates)
    return load_authority(directory)


def _home(host: ServerCertificate) -> tuple[m.Manifest, ...]:
    def managed(controller: str, gateway: str) -> dict[str, str]:
        return {"gateway.istio.io/managed": controller, "gateway.networking.k8s.io/gateway-name": gateway}

    return (
        m.namespace("istio-system", network="net1"),
        m.namespace("shop"),
        m.node("n1"),
        m.node("n2"),
        m.pod("istio-system/ztunnel-1", "10.0.0.1", account="ztunnel", node="n1", ambient=False),
        m.pod(
            "istio-system/east-west-1",
            "10.0.0.2",
            labels=managed("isthmus.dev-east-west-gateway", "east-west"),
            account="east-west",
            node="n1",
            ambient=False,
        ),
        m.pod(
            "istio-system/ingress-1",
            "10.0.0.3",
            labels=managed("isthmus.dev-ingress-gateway", "ingress"),
            account="ingress",
            node="n1",
            ambient=False,
        ),
        m.east_west_gateway("istio-system/east-west", "192.0.2.1", network="net1"),
        m.service("shop/orders", "10.96.0.1", selector={"app": "orders"}, is_global=True),
        m.pod("shop/orders-1", "10.0.0.4", labels={"app": "orders"}, account="orders", node="n1"),
        m.pod("shop/client-1", "10.0.0.6", account="client", node="n1"),
        m.pod("shop/ledger-1", "10.0.0.5", account="ledger", node="n2"),
        m.authorization_policy("shop/nobody"),
        m.tls_secret("shop/certificate", host.chain, host.private_key),
        m.ingress("shop/orders", HOST, "orders", secret="certificate"),
    )
