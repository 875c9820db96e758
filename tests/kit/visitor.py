"""A visitor of an ingress gateway who is particular about TLS: which name to ask for, with whose certificate, in which
versions, and which hosts to ask for over one connection.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from cryptography import x509

from tests.kit import certificates as c
from tests.kit.ingress_gateway import IngressGateway

SECONDS = 12.0
"""Longer than a gateway lets a handshake take."""


class Told(msgspec.Struct, frozen=True):
    """What a visitor was told: a status (0: there was no connection), the certificate's names and serial number, how
    many seconds the handshake took, and the headers that the application saw.
    """

    status: int = 0
    names: tuple[str, ...] = ()
    serial: int = 0
    seconds: float = 0.0
    resumed: bool = False
    seen: dict[str, str] = {}
    error: str = ""


class Visitor:
    """One connection, as an async context manager. `sni` None: no name is asked for; `client` is the visitor's pair.

    Raises OSError on entering if there is none. The names in the gateway's certificate are not compared.
    """

    def __init__(
        self,
        gateway: IngressGateway,
        sni: str | None,
        *,
        client: tuple[bytes, bytes] | None = None,
        directory: Path | None = None,
        **options: Any,
    ) -> None:
        self._place = gateway.https
        self._sni = sni
        self._context = context = ssl.create_default_context(cadata=c.pem(gateway.issuer.certificate).decode())
        context.check_hostname = False
        context.set_alpn_protocols(["http/1.1"])
        for name, value in options.items():
            setattr(context, name, value)
        if client is not None:
            assert directory is not None
            files = directory / "client.crt", directory / "client.key"
            for file, content in zip(files, client, strict=True):
                file.write_bytes(content)
            context.load_cert_chain(*files)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.timeout(SECONDS):
            self._reader, self._writer = await asyncio.open_connection(self._place.host, self._place.port)
            try:
                await self._writer.start_tls(self._context, server_hostname=self._sni or None)
            except BaseException:
                self._writer.transport.abort()
                raise
        self.seconds = loop.time() - began
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.transport.abort()

    @property
    def certificate(self) -> x509.Certificate:
        """What the gateway showed."""
        shown = self._writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(shown)

    async def ask(self, host: str, path: str = "/", **headers: str) -> Told:
        """One request. Raises OSError or asyncio.IncompleteReadError if the connection ends."""
        lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()]
        self._writer.write(f"GET {path} HTTP/1.1\r\nhost: {host}\r\n{''.join(lines)}\r\n".encode())
        head = (await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), SECONDS)).decode("latin-1").lower()
        sizes = [int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("content-length:")]
        body = await self._reader.readexactly(sizes[0] if sizes else 0)
        status = int(head.split(" ")[1])
        shown = self.certificate
        alternatives = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return Told(
            status,
            tuple(alternatives.get_values_for_type(x509.DNSName)),
            shown.serial_number,
            self.seconds,
            seen=json.loads(body)["headers"] if status == 200 and body.startswith(b"{") else {},
        )


async def visit(gateway: IngressGateway, sni: str | None, host: str = "", path: str = "/", **fields: Any) -> Told:
    """One request over a connection of its own, for the host that was asked for or another one."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with Visitor(gateway, sni, **fields) as visitor:
            return await visitor.ask(host or sni or "nobody.example", path)
    except (OSError, asyncio.IncompleteReadError) as error:
        return Told(seconds=loop.time() - began, error=str(error))


async def answers(gateway: IngressGateway, status: int, sni: str | None, host: str = "", **fields: Any) -> Told:
    """Waits until a visitor is answered so (0: not at all); the last answer."""
    found: list[Told] = []

    async def answered() -> bool:
        found.append(await visit(gateway, sni, host, **fields))
        return found[-1].status == status

    await gateway.envoy.until(answered, f"seen to answer {sni} with {status}")
    return found[-1]
