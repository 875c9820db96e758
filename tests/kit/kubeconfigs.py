"""Kubeconfigs and the Secrets that register clusters with them, as `isthmus create-remote-secret` would make them."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from tests.kit.manifests import CREATED, Manifest


def kubeconfig(server: str, token: str = "token", ca: bytes = b"", *, user: Mapping[str, Any] | None = None) -> bytes:
    """A kubeconfig of one cluster, user and context; ``user`` takes the place of the token."""
    cluster = {"server": server}
    if ca:
        cluster["certificate-authority-data"] = b64encode(ca).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": "reader", "user": dict(user) if user is not None else {"token": token}}],
        "contexts": [{"name": "context", "context": {"cluster": "cluster", "user": "reader"}}],
        "current-context": "context",
    }
    return json.dumps(document).encode()


def remote_secret(
    name: str, kubeconfigs: Mapping[str, bytes], *, created: str = CREATED, namespace: str = "istio-system"
) -> Manifest:
    """A Secret that registers clusters: of each id its kubeconfig."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"istio/multiCluster": "true"},
            "creationTimestamp": created,
        },
        "type": "Opaque",
        "data": {cluster: b64encode(config).decode() for cluster, config in kubeconfigs.items()},
    }
