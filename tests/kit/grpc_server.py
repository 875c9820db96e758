"""The real gRPC servers on free loopback ports, with everything around them in memory, and clients of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.kit.accounts import NODE_ID, Accounts, Tokens
from tests.kit.transport import Content
from xds import protos
from xds.client import AdsClient
from xds.encoded import Resource, encode, wrap
from xds.messages.workload import ADDRESS_TYPE
from xds.records import Record
from xds.server.access import Access
from xds.server.authentication import Authenticator
from xds.server.authority_in_force import AuthorityInForce
from xds.server.certificate_authority import CertificateAuthority
from xds.server.certificate_service import CertificateService
from xds.server.listener import Address, Listener, ListenerSettings, Ports
from xds.server.server_certificate import Signed
from xds.server.streams import Limits, Streams

ANY = Address("127.0.0.1", 0)
SETTINGS = ListenerSettings(tls=ANY, mtls=ANY, plaintext=ANY)
NAMES = ("localhost", "127.0.0.1")


def workload(name: str, size: int = 0) -> Resource:
    address = protos.istio.workload.Address()
    address.workload.uid = name
    address.workload.hostname = "x" * size
    return wrap(ADDRESS_TYPE, name, encode(address))


class Server:
    """A server with everything around it in memory, and clients of it."""

    def __init__(self, settings: ListenerSettings = SETTINGS, limits: Limits | None = None) -> None:
        self.content = Content()
        self.content.apply(ADDRESS_TYPE, workload("a"), workload("b"))
        self.records: list[Record] = []
        self.ready = True
        self.authority = AuthorityInForce(CertificateAuthority.self_signed("cluster.local"))
        access = Access(Accounts(), patience=0.01)
        self.streams = Streams(access, self.content.views_for, self.records, limits=limits or Limits())
        self.listener = Listener(
            settings,
            streams=self.streams,
            authenticator=Authenticator(Tokens()),
            certificate=Signed(self.authority, NAMES),
            roots=lambda: self.authority.root_certificates,
            certificates=CertificateService(self.authority, access),
            ready=lambda: self.ready,
        )
        self.ports = Ports(0, None, None)

    async def __aenter__(self) -> Server:
        self.ports = await self.listener.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.listener.stop(0)

    def client(self, token: str | Path | None = "ztunnel-token", **options: Any) -> AdsClient:
        return AdsClient(
            f"127.0.0.1:{self.ports.tls}",
            node_id=NODE_ID,
            root_certificates=self.authority.root_certificates.encode(),
            token=token,
            cluster="west",
            **options,
        )

    def plain_client(self, node_id: str = NODE_ID) -> AdsClient:
        return AdsClient(f"127.0.0.1:{self.ports.plaintext}", node_id=node_id)
