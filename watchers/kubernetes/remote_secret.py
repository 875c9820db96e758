"""The Secret that registers a cluster: a kubeconfig of its own for its reader, and nothing of the operator's.

In: a name, how the cluster is reached, a token. Out: the Secret as YAML, for `kubectl apply`. Pure. What it writes is
what `registration` and `kubeconfig` read: a Secret that they would refuse is refused here, where somebody can correct
it.
"""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from watchers.kubernetes.kubeconfig import ApiServer, read_kubeconfig
from watchers.registration import LABEL

CLUSTER_ANNOTATION = "networking.istio.io/cluster"
"""Says the cluster's id for people and for Istio's tools; it is read from the key of the entry."""


class Reach(msgspec.Struct, frozen=True):
    """How an API server is reached: its URL, its authorities in base64 of PEM ("" for the system's), and the name in
    its certificate ("" for that of the URL). ``insecure`` is whether its certificate is not verified.
    """

    server: str
    ca_data: str = ""
    tls_server_name: str = ""
    insecure: bool = False
    proxied: bool = False


def kubeconfig(name: str, reach: Reach, token: str) -> str:
    """The kubeconfig, whose cluster, user and context are all called as the cluster."""
    cluster: dict[str, Any] = {"server": reach.server}
    if reach.ca_data:
        cluster["certificate-authority-data"] = reach.ca_data
    if reach.tls_server_name:
        cluster["tls-server-name"] = reach.tls_server_name
    return _yaml(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
    )


def check_kubeconfig(text: str) -> ApiServer:
    """What a control plane without special settings makes of it; raises InvalidKubeconfig."""
    return read_kubeconfig(text.encode())


def remote_secret(name: str, namespace: str, secret: str, text: str) -> str:
    """The Secret that registers a cluster by this kubeconfig."""
    return "# Holds a credential: apply it to the home cluster, and store it nowhere else.\n" + _yaml(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": secret,
                "namespace": namespace,
                "labels": {LABEL: "true"},
                "annotations": {CLUSTER_ANNOTATION: name},
            },
            "type": "Opaque",
            "stringData": {name: _Block(text)},
        }
    )


class _Block(str):
    """Text that is written line by line."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """With text as it is where it has lines."""


_Dumper.add_representer(_Block, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|"))


def _yaml(value: Any) -> str:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=1_000_000)
