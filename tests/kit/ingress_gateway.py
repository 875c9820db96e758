"""An ingress gateway for tests: a real Envoy, and the control plane that tells it what to serve, fed by hand.

The control plane runs in the loop of the test and reads no directory: objects reach it by `apply` and `delete`, as a
watch would bring them, at a moment the test knows. Behind all hosts is one application, on an address of loopback.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from aggregator.app.setting_values import Address
from aggregator.demo import client
from aggregator.demo.client import Answer
from aggregator.demo.envoy import Envoy
from aggregator.operate.bootstrap import GatewayProxy, Mode, SocketAddress, bootstrap
from tests.kit import certificates as c
from tests.kit import manifests as m
from tests.kit.manifests import Manifest
from tests.kit.plane import Plane, write_identities
from tests.kit.ports import free_port
from tests.kit.world import fact
from watchers.facts import Fact
from watchers.facts.cluster import Cluster
from watchers.facts.keys import ObjectKey
from watchers.sink import Facts
from xds.records import Ack

HOME: Final = "west"
GATEWAY: Final = "127.9.0.2"
APPLICATION: Final = "127.9.0.9"
"""Addresses of loopback that no other test uses."""
_TOKEN: Final = "gateway-token"


class IngressGateway:
    """Use it as an async context manager; entering waits until the gateway is ready.

    `objects` are in the cluster from the beginning, beside a Service `shop/web` (port 80) with one pod outside of the
    mesh, the `application`; with `answering` False somebody else answers there. `issuer` is whom visitors trust.
    `listeners` are in the gateway's bootstrap, besides what is told; it asks for `mode`, and speaks the
    state-of-the-world variant unless it is `incremental`. `settings` are the control plane's.
    """

    def __init__(
        self,
        directory: Path,
        binary: Path,
        *objects: Manifest,
        answering: bool = True,
        listeners: Iterable[Mapping[str, Any]] = (),
        mode: Mode | Literal[""] = "",
        incremental: bool = True,
        **settings: Any,
    ) -> None:
        self._directory = directory
        self._binary = binary
        self._answering = answering
        self._listeners = [*listeners]
        self._mode: Mode | Literal[""] = mode
        self._incremental = incremental
        self._facts: Facts | None = None
        self._ending = AsyncExitStack()
        self.issuer = c.Issuer("an authority")
        self.http, self.https = (SocketAddress(GATEWAY, free_port(GATEWAY)) for _ in range(2))
        self.application = SocketAddress(APPLICATION, free_port(APPLICATION))
        self._objects: dict[ObjectKey, Fact] = dict(fact(HOME, one) for one in (*self._base(), *objects))
        (directory / HOME).mkdir()
        (directory / "token").write_text(_TOKEN)
        root = c.Issuer("the mesh")
        self._settings = {
            "xds": Address("127.0.0.1", free_port("127.0.0.1")),
            "xds_plaintext": None,
            "identities": write_identities(directory / "identities.json", {_TOKEN: ("istio-system/ingress", "")}),
            "cacerts": c.write_cacerts(directory / "cacerts", c.Issuer("the control plane", root), roots=(root,)),
            **settings,
        }
        self.plane = self._new_plane()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as ending:
            if self._answering:
                server = await asyncio.start_server(answer, self.application.host, self.application.port)
                ending.callback(server.close)
            ending.push_async_callback(self._stop_plane)
            await self._start_plane()
            self.envoy = await self._start_envoy()
            ending.push_async_callback(self.envoy.stop)
            await self.envoy.ready()
            self._ending = ending.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._ending.aclose()

    async def restart(self, *deleted: Manifest) -> None:
        """A new control plane in the place of the old one, with the objects of now, of which some may be gone."""
        await self._stop_plane()
        for one in deleted:
            del self._objects[fact(HOME, one)[0]]
        self.plane = self._new_plane()
        await self._start_plane()

    # What is in the cluster.

    def apply(self, *objects: Manifest) -> None:
        """Create or change objects."""
        facts = dict(fact(HOME, one) for one in objects)
        self._objects |= facts
        if self._facts is not None:
            self._facts.apply(facts.items())

    def delete(self, *objects: Manifest) -> None:
        """Delete objects."""
        keys = [fact(HOME, one)[0] for one in objects]
        for key in keys:
            del self._objects[key]
        if self._facts is not None:
            self._facts.apply([(key, None) for key in keys])

    def pod(self, **labels: str) -> Manifest:
        """The gateway's pod."""
        managed = {"gateway.istio.io/managed": "isthmus.dev-ingress-gateway"}
        return m.pod("istio-system/ingress-1", GATEWAY, labels={**managed, **labels}, account="ingress")

    def pair(self, *names: str) -> tuple[bytes, bytes]:
        """A certificate that visitors trust, and its key."""
        return c.host_pair(*names, issuer=self.issuer)

    def secured(self, host: str, service: str = "web", **fields: Any) -> tuple[Manifest, Manifest]:
        """An Ingress and the TLS Secret of its host, both in `shop` and called like it."""
        name = host.replace(".", "-")
        secret = m.tls_secret(f"shop/{name}", *self.pair(host))
        return m.ingress(f"shop/{name}", host, service, secret=name, **fields), secret

    # What visitors see.

    async def get(self, host: str, path: str = "/", *, tls: bool = True, timeout: float = 5.0, **fields: Any) -> Answer:
        """What a visitor of the host is answered. Raises Unanswered."""
        place = self.https if tls else self.http
        trust = self.trust if tls else None
        return await client.get(host, path, at=(place.host, place.port), trust=trust, timeout=timeout, **fields)

    async def status(self, host: str, path: str = "/", **fields: Any) -> int:
        """The status of the answer, 0 without one."""
        try:
            return (await self.get(host, path, **fields)).status
        except client.Unanswered:
            return 0

    async def answers(self, status: int, host: str, path: str = "/", **fields: Any) -> None:
        """Waits until a visitor is answered so (0: not at all)."""

        async def answered() -> bool:
            return await self.status(host, path, **fields) == status

        await self.envoy.until(answered, f"seen to answer {host}{path} with {status}")

    async def shown(self, host: str) -> bytes:
        """The certificate (DER) that a visitor of the host is shown, who does not look at it.

        Raises SSLError, ConnectionError.
        """
        return await asyncio.to_thread(_shown, (self.https.host, self.https.port), host)

    async def opened(self, host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A visitor's connection that is kept, for `ask`."""
        return await asyncio.open_connection(
            self.https.host, self.https.port, ssl=self.trust, server_hostname=host
        )

    @property
    def trust(self) -> ssl.SSLContext:
        """Whom visitors trust."""
        context = ssl.create_default_context(cadata=c.pem(self.issuer.certificate).decode())
        context.set_alpn_protocols(["http/1.1"])
        return context

    # What the gateway makes of what it is told.

    def refused(self) -> list[Ack]:
        """Responses the gateway refused."""
        records = self.plane.control.records.recent()
        return [record for record in records if isinstance(record, Ack) and not record.accepted]

    async def holds(self, kind: str) -> list[Any]:
        """What the gateway says it has of one kind, such as `dynamic_active_clusters`."""
        body = (await self.envoy.get(f"/config_dump?resource={kind}")).body
        found: list[Any] = json.loads(body).get("configs", [])
        return found

    def _new_plane(self) -> Plane:
        return Plane(self._directory / HOME, watches={HOME: self._watch}, **self._settings)

    async def _start_plane(self) -> None:
        await self.plane.__aenter__()
        await self.plane.serving()

    async def _stop_plane(self) -> None:
        self._facts = None
        await self.plane.stop()

    async def _watch(
        self, cluster: str, path: Path, facts: Facts, *, home: bool, system_namespace: str, deadline: float
    ) -> None:
        del path, system_namespace
        state = Cluster(state="synced", home=home, deadline=deadline, reason="")
        facts.replace((cluster,), [((cluster, "Cluster", "", cluster), state), *self._objects.items()])
        self._facts = facts
        await asyncio.Event().wait()

    def _base(self) -> tuple[Manifest, ...]:
        return (
            m.namespace("istio-system", network="net-west"),
            m.namespace("shop"),
            self.pod(),
            m.service("shop/web", "10.96.0.1", ports={"http": (80, self.application.port)}, selector={"app": "web"}),
            m.pod("shop/web-1", APPLICATION, labels={"app": "web"}, ambient=False),
        )

    async def _start_envoy(self) -> Envoy:
        ports = self.plane.control.ports
        assert ports is not None
        root = self._directory / "root.pem"
        root.write_text(self.plane.control.authority.root_certificates)
        proxy = GatewayProxy(
            role="ingress",
            xds=SocketAddress("localhost", ports.tls),
            root_certificates=str(root),
            token=str(self._directory / "token"),
            pod="ingress-1",
            namespace="istio-system",
            service_account="ingress",
            cluster=HOME,
            network="net-west",
            address=GATEWAY,
            bind=GATEWAY,
            http_port=self.http.port,
            https_port=self.https.port,
            admin=SocketAddress(GATEWAY, free_port(GATEWAY)),
            status=SocketAddress(GATEWAY, free_port(GATEWAY)),
            mode=self._mode,
        )
        config = bootstrap(proxy)
        if not self._incremental:
            config["dynamic_resources"]["ads_config"]["api_type"] = "GRPC"
        config["static_resources"]["listeners"] += self._listeners
        return await Envoy.launch("ingress", self._binary, config, directory=self._directory)


def _shown(place: tuple[str, int], host: str) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(place, timeout=5) as raw, context.wrap_socket(raw, server_hostname=host) as secured:
        certificate = secured.getpeercert(binary_form=True)
        assert certificate is not None
        return certificate


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> tuple[int, bool]:
    """One request on a connection; its status, and whether the connection ends after it."""
    writer.write(f"GET / HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)).decode().lower()
    length = next((int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("content-length")), 0)
    await reader.readexactly(length)
    return int(head.split(" ")[1]), "connection: close" in head


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers each request of a connection with what it was, as JSON."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            body = json.dumps({"request": head[0], "headers": headers}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        # Also cancelled it just ends: a server's connections have nobody else who would look at what became of them.
        writer.close()
