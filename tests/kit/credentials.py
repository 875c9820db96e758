"""Ingress gateways that ask for credentials by name, over real gRPC: one client, of either variant, and what it holds.

The control plane's home holds a Gateway `infra/edge` whose pods run as `infra/edge`; tests add Secrets and grants.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Literal

from tests.kit import manifests as m
from tests.kit.eventually import eventually
from tests.kit.manifests import Manifest
from tests.kit.plane import Plane
from xds import protos
from xds.client import DeltaStream, Response, SotwStream, StreamEnded
from xds.messages.secret import SECRET_TYPE
from xds.session.requests import FOR_ON_DEMAND

Variant = Literal["delta", "sotw"]
NODE: Final = "router~10.0.0.5~edge-1.infra~infra.svc.cluster.local"
ACCOUNT: Final = "infra/edge"

_Secret = protos.envoy.extensions.transport_sockets.tls.v3.Secret


def gateway(*certificates: str | m.Fields) -> Manifest:
    """The Gateway, with one listener that has these certificates."""
    https = m.listener("https", 443, "HTTPS", tls_mode="Terminate", certificates=certificates)
    return m.gateway("infra/edge", "istio", https)


def gateway_pod() -> Manifest:
    """A pod of it."""
    labels = {
        "gateway.istio.io/managed": "isthmus.dev-ingress-gateway",
        "gateway.networking.k8s.io/gateway-name": "edge",
    }
    return m.pod("infra/edge-1", "10.0.0.5", labels=labels, account="edge")


def base() -> tuple[Manifest, ...]:
    """What every home of these tests holds."""
    spaces = (m.namespace("istio-system", network="net-a"), *(m.namespace(name) for name in ("infra", "certs")))
    return (*spaces, gateway_pod())


class SecretClient:
    """A stream that asks for secrets, acknowledges what comes, and keeps it as an Envoy does."""

    def __init__(self, stream: DeltaStream | SotwStream) -> None:
        self._stream = stream
        self._names: list[str] = []
        self.held: dict[str, Any] = {}
        self.responses: list[Response] = []
        self.gone: list[str] = []
        """Names that were said to stand for nothing, in the order of news."""

    async def ask(self, *names: str) -> None:
        """Ask for more names."""
        self._names += names
        if isinstance(self._stream, DeltaStream):
            await self._stream.subscribe(SECRET_TYPE, names)
        else:
            await self._stream.subscribe(SECRET_TYPE, self._names)

    async def drop(self, *names: str) -> None:
        """Give names up."""
        self._names = [name for name in self._names if name not in names]
        if isinstance(self._stream, DeltaStream):
            await self._stream.subscribe(SECRET_TYPE, (), unsubscribe=names)
        else:
            await self._stream.subscribe(SECRET_TYPE, self._names)

    async def run(self) -> None:
        """Hears responses until the stream ends."""
        try:
            async for response in self._stream:
                self.responses.append(response)
                for received in response.resources:
                    secret = _Secret.FromString(received.body)
                    self.held[secret.name] = secret
                for name in response.removed:
                    self.held.pop(name, None)
                    self.gone.append(name)
                await self._stream.ack(response)
        except StreamEnded:
            pass

    async def pair(self, name: str, chain: bytes) -> None:
        """Waits until a name holds a pair of this chain."""
        await eventually(
            lambda: name in self.held and self.held[name].tls_certificate.certificate_chain.inline_bytes == chain
        )

    async def roots(self, name: str, roots: bytes) -> None:
        """Waits until a name holds these roots."""
        await eventually(
            lambda: name in self.held and self.held[name].validation_context.trusted_ca.inline_bytes == roots
        )

    async def absent(self, *names: str) -> None:
        """Waits until names are said to stand for nothing."""
        await eventually(lambda: set(names) <= set(self.gone) and not set(names) & set(self.held))

    @property
    def keys(self) -> Mapping[str, bytes]:
        """The private keys it holds, by name."""
        return {
            name: secret.tls_certificate.private_key.inline_bytes
            for name, secret in self.held.items()
            if secret.HasField("tls_certificate") and name != "default"
        }


@asynccontextmanager
async def asking(plane: Plane, variant: Variant, token: str, *names: str) -> AsyncIterator[SecretClient]:
    """A stream of the gateway that asks for these names."""
    async with plane.client(token, NODE) as ads:
        # As a stock Envoy says, which fetches certificates of hosts by their names.
        for extension in sorted(FOR_ON_DEMAND):
            ads.node.extensions.add(name=extension)
        stream = getattr(ads, variant)()
        client = SecretClient(stream)
        await client.ask(*names)
        running = asyncio.create_task(client.run(), name="secrets")
        try:
            yield client
        finally:
            running.cancel()
            await asyncio.wait((running,))
            stream.cancel()
