"""Domains of a cluster as its users would host them, for benchmarks: what each is made of, and how it is written.

In: names and numbers. Out: manifests, and the requests that write them to an API server. Every domain has an Ingress,
a TLS Secret, a Service, an EndpointSlice and a Pod of its own. All pods are one process (`tests.bench.visitors`), which
answers on every address of loopback by two ports, so that an answer shows which of two Services a domain leads to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final, Literal

import msgspec
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.bench.api_servers import ROOTS
from tests.kit import certificates as c
from tests.kit import manifests as m
from tests.kit.manifests import Manifest

HOME: Final = "west"
NAMESPACE: Final = "shop"
"""Of all domains, and of the gateway: istiod serves Secrets only from the gateway's own."""
SYSTEM: Final = "istio-system"
GATEWAY: Final = "127.9.0.2"
"""The gateway's pod, an address of loopback that no other test uses."""
TOKEN: Final = f"sa:{NAMESPACE}:ingress"
"""What the API servers of benchmarks take as proof of the gateway's service account."""
CLASS: Final = "istio"

OTHER: Final = "other"
"""The Service of the application's other port."""
MOST: Final = 1 << 20
"""More than there are domains."""

Algorithm = Literal["ec", "rsa"]
Pair = tuple[bytes, bytes]
Request = tuple[str, str, bytes]
"""Of an API server: method, path, body."""



@cache
def _rsa() -> rsa.RSAPrivateKey:
    """One for all domains that have one: it takes long to make, and what is signed with it does not differ by it."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Ports(msgspec.Struct, frozen=True):
    """Of the gateway, and the two of the application."""

    http: int
    https: int
    application: int
    other: int


class Hosting:
    """Makes the objects; `issuer` signs all certificates."""

    def __init__(self, issuer: c.Issuer, ports: Ports) -> None:
        self._issuer = issuer
        self._ports = ports
        self._pairs: dict[int, Pair] = {}

    def base(self) -> Iterator[Manifest]:
        """What there is without any domain: namespaces, the class, and the gateway's pod and Service."""
        labels = {
            "app": "ingress",
            "istio": "ingressgateway",
            "gateway.istio.io/managed": "isthmus.dev-ingress-gateway",
        }
        yield m.namespace(SYSTEM, network="net-west")
        yield m.namespace(NAMESPACE)
        yield m.node("node-1")
        yield m.ingress_class(CLASS, "istio.io/ingress-controller")
        yield m.pod(f"{NAMESPACE}/ingress-1", GATEWAY, labels=labels, account="ingress", node="node-1", ambient=False)
        targets = {"http2": (80, self._ports.http), "https": (443, self._ports.https)}
        selector = {"istio": "ingressgateway"}
        yield m.service(f"{NAMESPACE}/ingress", "10.96.0.2", ports=targets, selector=selector)
        yield from self.backend(OTHER, MOST, self._ports.other)

    def many(self, count: int) -> Iterator[Manifest]:
        """So many domains, `h<n>.many.example`, each with a certificate of its own."""
        for number in range(count):
            name = f"h{number}"
            yield from self.backend(name, number)
            yield self.secret(name, self.kept_pair(number))
            yield self.ingress(name, many_host(number))

    def backend(self, name: str, number: int, port: int = 0) -> Iterator[Manifest]:
        """A Service with one pod, which is the `number`th of all; `port` is the application's, if not the usual one."""
        target, vip = port or self._ports.application, _address(100, number, first=10)
        yield m.service(f"{NAMESPACE}/{name}", vip, ports={"http": (80, target)}, selector={"app": name})
        yield m.pod(f"{NAMESPACE}/{name}-1", _address(64, number), labels={"app": name}, node="node-1", ambient=False)
        yield self.endpoints(name, number, port=target)

    def endpoints(self, name: str, number: int, *, port: int = 0, ready: bool = True) -> Manifest:
        """Where that Service's pod is."""
        one = m.endpoint(_address(64, number), pod=f"{NAMESPACE}/{name}-1", ready=ready)
        ports = {"http": port or self._ports.application}
        return m.slice_(f"{NAMESPACE}/{name}-x", one, service=name, ports=ports)

    def secret(self, name: str, pair: Pair) -> Manifest:
        """The Secret of a domain."""
        return m.tls_secret(f"{NAMESPACE}/{name}", *pair)

    def ingress(
        self, name: str, host: str, *, service: str = "", path: str = "/", annotations: Mapping[str, str] = {}
    ) -> Manifest:
        """The Ingress of a domain; it leads to the Service called like it, if not to another."""
        ingress = m.ingress(
            f"{NAMESPACE}/{name}", host, service or name, path=path, secret=name, class_name=CLASS
        )
        return {**ingress, "metadata": {**ingress["metadata"], "annotations": dict(annotations)}}

    def kept_pair(self, number: int) -> Pair:
        """The certificate of one of many, and its key: always the same."""
        if number not in self._pairs:
            self._pairs[number] = self.pair(many_host(number), "ec")
        return self._pairs[number]

    def pair(self, host: str, algorithm: Algorithm) -> Pair:
        """A certificate of that host alone, and its key."""
        return c.host_pair(host, issuer=self._issuer, key=_rsa() if algorithm == "rsa" else None)


def many_host(number: int) -> str:
    """The host of one of many."""
    return f"h{number}.many.example"


def created(manifest: Manifest) -> Request:
    """The request that creates an object."""
    return ("POST", _place(manifest), msgspec.json.encode(manifest))


def replaced(manifest: Manifest) -> Request:
    """The request that puts an object in the place of the one of its name."""
    return ("PUT", f"{_place(manifest)}/{manifest['metadata']['name']}", msgspec.json.encode(manifest))


def deleted(manifest: Manifest) -> Request:
    """The request that deletes the object of that name."""
    return ("DELETE", f"{_place(manifest)}/{manifest['metadata']['name']}", b"")


def _address(second: int, number: int, *, first: int = 127) -> str:
    return f"{first}.{second + (number >> 16)}.{number >> 8 & 255}.{number & 255}"


def _place(manifest: Manifest) -> str:
    """Where objects of its kind and namespace are."""
    root, _, plural = ROOTS[manifest["kind"]].rpartition("/")
    return f"{root}/namespaces/{manifest['metadata']['namespace']}/{plural}"
