"""The clusters of `two_clusters` behind fake API servers, with TLS and tokens, and control planes that read them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.kit.kube_api import KubeApi, KubeCluster
from tests.kit.kubeconfigs import kubeconfig, remote_secret
from tests.kit.plane import Plane
from tests.kit.two_clusters import TwoClusters


class TwoApiServers:
    """alpha and beta, which accept the tokens t1 and t2; `files` is where kubeconfigs are."""

    def __init__(self, directory: Path) -> None:
        self.files = directory
        (directory / "manifests").mkdir()
        source = TwoClusters(directory / "manifests")
        self.alpha, self.beta = KubeCluster("alpha"), KubeCluster("beta")
        for cluster, path in ((self.alpha, source.alpha), (self.beta, source.beta)):
            for file in sorted(path.glob("*.yaml")):
                cluster.apply(*(each for each in yaml.safe_load_all(file.read_text()) if each))
            cluster.tokens = {"t1", "t2"}

    @asynccontextmanager
    async def served(self) -> AsyncIterator[KubeApi]:
        """Both answer on loopback."""
        async with KubeApi(self.alpha, self.beta, tls=True) as api:
            yield api

    def write(self, cluster: KubeCluster, token: str = "t1", *, file: str = "") -> Path:
        """A kubeconfig in a file, written in one step."""
        place = self.files / (file or cluster.name)
        place.parent.mkdir(exist_ok=True)
        draft = place.with_name(f".{place.name}")
        draft.write_bytes(kubeconfig(cluster.url, token, cluster.ca))
        return draft.replace(place)

    def register(self, token: str = "t1") -> None:
        """A Secret of alpha registers beta."""
        self.alpha.apply(remote_secret("far", {"beta": kubeconfig(self.beta.url, token, self.beta.ca)}))

    def plane(self, **settings: Any) -> Plane:
        """A control plane of alpha."""
        return Plane(self.write(self.alpha), **settings)
