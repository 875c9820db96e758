"""The stage: everything the demo's processes read, as files in one directory. No process is started here.

In: the example manifests and an empty directory. Out: manifests of two clusters, with what is missing in the examples
because it is secret, and what they say of gateways and pods. West is on 127.<west>.0.0/16 and east on
127.<east>.0.0/16, which on Linux need no set-up.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from aggregator.demo.credentials import TRUST_DOMAIN, Credentials, write_private
from aggregator.demo.destination import Pod
from aggregator.operate.bootstrap import GatewayProxy, Role, SocketAddress
from xds.server.authentication import Identity

HOST: Final = "shop.example"
NAMESPACE: Final = "shop"
XDS_PORT: Final = 15012
HTTP_PORT: Final = 8080
HTTPS_PORT: Final = 8443
ADMIN_PORT: Final = 15000
STATUS_PORT: Final = 15021

# As the examples are written.
_PREFIXES: Final = {"west": "127.1", "east": "127.2"}
_MANAGED: Final = "gateway.istio.io/managed"
_ROLES: Final[dict[str, Role]] = {
    "isthmus.dev-ingress-gateway": "ingress",
    "isthmus.dev-east-west-gateway": "east-west",
}
_REDIRECTION: Final = "ambient.istio.io/redirection"


class StageError(Exception):
    """The stage cannot be set; the text says why and what to do."""


class Site(msgspec.Struct, frozen=True):
    """One cluster of the demo: its name, its manifests, and the first two numbers of its addresses (`127.1`)."""

    name: str
    manifests: Path
    prefix: str

    @property
    def network(self) -> str:
        """The network the examples give it."""
        return f"net-{self.name}"

    def address(self, rest: str) -> str:
        """An address of this cluster."""
        return f"{self.prefix}.{rest}"

    @property
    def xds(self) -> SocketAddress:
        """Where its proxies find the control plane."""
        return SocketAddress(self.address("0.1"), XDS_PORT)


class Stage:
    """The files of one demo, below `directory`. `west` is where visitors come in; `east` has what they come for."""

    def __init__(self, directory: Path, west: int = 1, east: int = 2) -> None:
        self.directory = directory
        self.logs = directory / "logs"
        self.west = Site("west", directory / "west", f"127.{west}")
        self.east = Site("east", directory / "east", f"127.{east}")
        self.credentials = Credentials(directory)

    @property
    def sites(self) -> tuple[Site, Site]:
        """Both clusters."""
        return (self.west, self.east)

    def set(self, examples: Path) -> None:
        """Writes everything. Raises StageError."""
        for site in self.sites:
            self._copy(site, examples / site.name)
        self.logs.mkdir()
        self.credentials.write()
        self.certify(HOST)
        for site in self.sites:
            for pod in self.pods(site):
                if role_of(pod) is not None:
                    self.admit(site, pod)

    def _copy(self, site: Site, source: Path) -> None:
        """The examples, on this demo's addresses, where they may be edited."""
        files = sorted(source.glob("*.yaml"))
        if not files:
            raise StageError(f"{source} has no manifests; name the directory of the examples with --examples")
        site.manifests.mkdir(parents=True)
        for file in files:
            text = file.read_text().replace(f"{_PREFIXES[site.name]}.", f"{site.prefix}.")
            (site.manifests / file.name).write_text(text)

    def admit(self, site: Site, pod: dict[str, Any]) -> None:
        """Gives a pod a token."""
        self.credentials.admit(site.name, identity_of(pod))

    def certify(self, host: str) -> str:
        """Writes the Secret with a new certificate of a web host into west; returns the Secret's name."""
        pair = self.credentials.certify(host)
        name = host.replace(".", "-")
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "type": "kubernetes.io/tls",
            "data": {
                "tls.crt": b64encode(pair.chain).decode(),
                "tls.key": b64encode(pair.private_key).decode(),
            },
        }
        text = f"# The certificate of {host}, made for this run.\n{yaml.safe_dump(secret, sort_keys=False)}"
        write_private(self.west.manifests / f"secret-{name}.yaml", text.encode())
        return name

    # What the manifests say, as they are now.

    def documents(self, site: Site) -> Iterator[dict[str, Any]]:
        """Every object of a cluster."""
        for file in sorted(site.manifests.glob("*.yaml")):
            yield from filter(None, yaml.safe_load_all(file.read_text()))

    def pods(self, site: Site) -> list[dict[str, Any]]:
        """The Pods of a cluster."""
        return [document for document in self.documents(site) if document["kind"] == "Pod"]

    def gateways(self, site: Site) -> list[GatewayProxy]:
        """The pods that are gateways, as their bootstraps have to describe them."""
        return [self._gateway(site, pod, role) for pod in self.pods(site) if (role := role_of(pod)) is not None]

    def _gateway(self, site: Site, pod: dict[str, Any], role: Role) -> GatewayProxy:
        identity, address = identity_of(pod), _address(pod)
        return GatewayProxy(
            role=role,
            xds=site.xds,
            root_certificates=str(self.credentials.root),
            token=str(self.credentials.token_file(site.name, identity.pod)),
            pod=identity.pod,
            namespace=identity.namespace,
            service_account=identity.service_account,
            cluster=site.name,
            network=site.network,
            address=address,
            bind=address,
            http_port=HTTP_PORT,
            https_port=HTTPS_PORT,
            admin=SocketAddress(address, ADMIN_PORT),
            status=SocketAddress(address, STATUS_PORT),
        )

    def destinations(self, site: Site) -> list[Pod]:
        """The pods whose traffic a ztunnel handles, each with a new certificate of its account."""
        services = [document for document in self.documents(site) if document["kind"] == "Service"]
        captured = [
            pod for pod in self.pods(site) if pod["metadata"].get("annotations", {}).get(_REDIRECTION) == "enabled"
        ]
        return [self._destination(site, pod, services) for pod in captured]

    def _destination(self, site: Site, pod: dict[str, Any], services: list[dict[str, Any]]) -> Pod:
        identity, labels = identity_of(pod), pod["metadata"]["labels"]
        certificate, key = self.credentials.issue(site.name, identity)
        authorities = tuple(
            f"{service['metadata']['name']}.{identity.namespace}.svc.{TRUST_DOMAIN}:{port['port']}"
            for service in services
            if service["metadata"]["namespace"] == identity.namespace
            and service["spec"]["selector"].items() <= labels.items()
            for port in service["spec"]["ports"]
        )
        (port,) = (port["containerPort"] for port in pod["spec"]["containers"][0]["ports"])
        return Pod(identity.pod, _address(pod), certificate, key, self.credentials.root, authorities, port)


def role_of(pod: dict[str, Any]) -> Role | None:
    """The kind of gateway a pod is; None if it is none."""
    return _ROLES.get(pod["metadata"].get("labels", {}).get(_MANAGED, ""))


def identity_of(pod: dict[str, Any]) -> Identity:
    """Whom a pod's certificate names."""
    metadata = pod["metadata"]
    return Identity(TRUST_DOMAIN, metadata["namespace"], pod["spec"]["serviceAccountName"], metadata["name"])


def _address(pod: dict[str, Any]) -> str:
    address: str = pod["status"]["podIPs"][0]["ip"]
    return address
