"""A mesh to measure on: clusters on networks of their own, each with global services and ready pods behind them.

Objects are as a real API server sends them, padding included (managedFields, annotations, statuses nobody reads), since
skipping that is part of the work. Everything is made from numbers, so two runs measure the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.kit import manifests
from tests.kit.manifests import Manifest
from watchers.facts.keys import ObjectKey

NODES = 20


def cluster_name(number: int) -> str:
    """Cluster 0 is home."""
    return f"c{number}"


def padded(manifest: Manifest) -> Manifest:
    """The object with what API servers add and nobody here reads: about 4 KB."""
    field: Manifest = {f"f:{name}": {".": {}, f'k:{{"type":"{name}"}}': {}} for name in "abcdefghijklmnopqrstuvwxyz"}
    metadata = {
        **manifest["metadata"],
        "uid": "11111111-2222-3333-4444-555555555555",
        "resourceVersion": "123456",
        "managedFields": [
            {
                "manager": "kubelet",
                "operation": "Update",
                "apiVersion": "v1",
                "fieldsType": "FieldsV1",
                "fieldsV1": field,
            }
            for _ in range(3)
        ],
    }
    metadata["annotations"] = {
        **metadata.get("annotations", {}),
        **{f"example.org/{name}": "x" * 60 for name in ("config", "checksum", "scrape", "owner")},
    }
    return {**manifest, "metadata": metadata}


def infrastructure(number: int) -> Iterator[Manifest]:
    """Namespaces, nodes and the east-west gateway of a cluster."""
    yield manifests.namespace("istio-system", network=f"n{number}")
    yield manifests.namespace("shop")
    for node in range(NODES):
        yield manifests.node(f"node-{node}", region="eu", zone=f"eu-{node % 3}")
    yield manifests.east_west_gateway("istio-system/edge", f"192.0.2.{number + 1}", network=f"n{number}")


def service(cluster: int, number: int) -> Manifest:
    """A global service."""
    return manifests.service(
        f"shop/s{number}",
        f"10.{96 + cluster}.{number // 250}.{number % 250 + 1}",
        selector={"app": f"s{number}"},
        is_global=True,
    )


def pod_key(cluster: int, services: int, number: int) -> ObjectKey:
    """The key of the pod of that number."""
    return (cluster_name(cluster), "Pod", "shop", f"s{number % services}-{number}")


def told_name(cluster: int, services: int, number: int) -> str:
    """The one resource of ztunnels that changes with the readiness of that pod: its own at home, else the way to it."""
    if cluster == 0:
        return "{}//{}/{}/{}".format(*pod_key(cluster, services, number))
    host = f"shop/s{number % services}.shop.svc.cluster.local"
    return f"n{cluster}/SplitHorizonWorkload/istio-system/edge/192.0.2.{cluster + 1}/{host}"


def pod(cluster: int, services: int, number: int, *, ready: bool = True) -> Manifest:
    """The pod of that number; pods are dealt out to services in turn."""
    app = f"s{number % services}"
    return manifests.pod(
        f"shop/{app}-{number}",
        f"10.{cluster}.{number // 250}.{number % 250 + 1}",
        labels={"app": app, "version": "v1"},
        account=app,
        node=f"node-{number % NODES}",
        deployment=app,
        ready=ready,
        ports={"http": 8080},
    )


def endpoint_slice(cluster: int, services: int, pods: int, number: int) -> Manifest:
    """The EndpointSlice of a service with all its pods."""
    mine = range(number, pods, services)
    return manifests.slice_(
        f"shop/s{number}-x",
        *(
            manifests.endpoint(f"10.{cluster}.{one // 250}.{one % 250 + 1}", pod=f"shop/s{number}-{one}")
            for one in mine
        ),
        service=f"s{number}",
    )


def objects(cluster: int, services: int, pods: int) -> Iterator[Manifest]:
    """All objects of a cluster."""
    yield from infrastructure(cluster)
    for number in range(services):
        yield service(cluster, number)
        yield endpoint_slice(cluster, services, pods, number)
    for number in range(pods):
        yield padded(pod(cluster, services, number))


def encoded(manifest: Manifest) -> bytes:
    """As it comes over the wire."""
    return msgspec.json.encode(manifest)


def write(directory: Path, cluster: int, services: int, pods: int) -> int:
    """Write a cluster as `kubectl get -o json` prints it: a List for each kind, indented, without managedFields.

    Returns how many bytes that is.
    """
    directory.mkdir(parents=True)
    kinds: dict[str, list[Manifest]] = {}
    for one in objects(cluster, services, pods):
        one["metadata"].pop("managedFields", None)
        kinds.setdefault(str(one["kind"]), []).append(one)
    size = 0
    for kind, some in kinds.items():
        data = msgspec.json.format(encoded({"apiVersion": "v1", "kind": "List", "items": some}), indent=4)
        size += (directory / f"{kind.lower()}.json").write_bytes(data)
    return size
