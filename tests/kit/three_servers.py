"""Three clusters behind real API servers: the two of `two_clusters`, and gamma, which shares the network of home.

alpha is home. gamma has one pod of `cart` and, at first, no Gateway API, and no Multi-Cluster Services API. Everything
is read by the roles of deploy/ and nothing else: home by that of the control plane, the others by what `isthmus
create-remote-secret` makes, which is run as operators run it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.kit import manifests as m
from tests.kit.kube_apiserver import KubeServer, KubeServers
from tests.kit.kube_binaries import crds, mcs_crds
from tests.kit.manifests import Manifest
from tests.kit.plane import Plane
from tests.kit.process import running
from tests.kit.two_clusters import TwoClusters
from watchers.reader_role import Grant, granted, reader

CART_OF_GAMMA = "gamma//Pod/shop/cart-1"
SYSTEM = "istio-system"
DEFINED = ("_gatewayclasses.yaml", "_gateways.yaml", "_referencegrants.yaml")
"""What is installed of Gateway API: it takes an API server seconds to take in all of it."""
ROLE = Path(__file__).parents[2] / "deploy" / "charts" / "isthmus" / "role.yaml"
READER = ("ServiceAccount", f"{SYSTEM}/isthmus-reader")


def secret_of(cluster: str) -> str:
    """The name of the Secret that registers a cluster."""
    return f"{SYSTEM}/isthmus-remote-secret-{cluster}"


class ThreeServers:
    """The servers and what is in them; `said` is what the command line said last on stderr."""

    def __init__(self, kube: KubeServers, directory: Path) -> None:
        self.alpha, self.beta, self.gamma = (kube.servers[name] for name in ("alpha", "beta", "gamma"))
        self.said: list[str] = []
        self._directory = directory
        self._home = directory / "alpha"

    async def fill(self) -> None:
        """Puts objects and the role of home into the servers."""
        manifests = self._directory / "manifests"
        manifests.mkdir()
        two = TwoClusters(manifests)
        for server, path in ((self.alpha, two.alpha), (self.beta, two.beta)):
            defined = [*(file for file in crds() if file.name.endswith(DEFINED)), *mcs_crds()]
            await server.apply(*(yaml.safe_load(file.read_text()) for file in defined))
            for file in sorted(path.glob("*.yaml"), key=lambda file: file.name != "cluster.yaml"):
                await server.apply(*(valid(each) for each in yaml.safe_load_all(file.read_text()) if each))
        await self.gamma.apply(
            m.namespace(SYSTEM, network="net1"),
            m.namespace("shop"),
            m.node("gamma-1", region="r1"),
            m.service("shop/cart", "10.98.1.10", selector={"app": "cart"}, is_global=True),
            m.pod("shop/cart-1", "10.30.1.1", labels={"app": "cart"}, account="cart", node="gamma-1"),
        )
        await self.alpha.apply(*yaml.safe_load_all(ROLE.read_text()))
        token = await self.alpha.create_token(f"{SYSTEM}/isthmus")
        self.alpha.kubeconfig(self._directory, token)

    async def clean(self) -> None:
        """Takes it all out again, but namespaces and definitions of kinds, which are slow to go."""
        granted_ever = [one for grant in Grant for one in granted(grant, SYSTEM)]
        for server in (self.alpha, self.beta, self.gamma):
            await server.clean()
        for server in (self.beta, self.gamma):
            await self.unregister(server.name)
            for manifest in (*reader(SYSTEM), *granted_ever):
                await server.delete_manifest(manifest)

    def plane(self, **settings: Any) -> Plane:
        """A control plane of alpha."""
        return Plane(self._home, **settings)

    @property
    def home(self) -> Path:
        """The kubeconfig of alpha's control plane."""
        return self._home

    # As an operator.

    async def create_remote_secret(self, server: KubeServer, *words: str) -> Manifest:
        """Runs the command for a cluster; what it prints. Raises AssertionError if it fails."""
        admin = server.kubeconfig(self._directory, name=f"admin-of-{server.name}")
        named = ("--context", server.name, "--name", server.name, *words)
        async with running("create-remote-secret", "--kubeconfig", admin, *named) as command:
            code = await command.ended(60.0)
            self.said = command.lines
            assert code == 0, command.said
            return dict(yaml.safe_load("\n".join(command.answers)))

    async def register(self, server: KubeServer, *words: str) -> Manifest:
        """Registers a cluster at home, or gives it another credential; returns the Secret."""
        secret = await self.create_remote_secret(server, *words)
        await self.alpha.apply(secret)
        return secret

    async def unregister(self, cluster: str) -> None:
        """Deletes the Secret that registers a cluster."""
        await self.alpha.delete("Secret", secret_of(cluster))


def valid(manifest: Manifest) -> Manifest:
    """With what Gateway API insists on of gateways, as Istio's own have it."""
    if manifest["kind"] != "Gateway":
        return manifest
    options = {"options": {"gateway.istio.io/tls-terminate-mode": "ISTIO_MUTUAL"}}
    listeners = [
        {**one, "tls": {**one["tls"], **options}} if "tls" in one else one for one in manifest["spec"]["listeners"]
    ]
    return {**manifest, "spec": {**manifest["spec"], "listeners": listeners}}


def token_in(secret: Manifest) -> str:
    """The reader's token in a Secret as it was printed."""
    (kubeconfig,) = secret["stringData"].values()
    return str(yaml.safe_load(kubeconfig)["users"][0]["user"]["token"])
