"""HTTP to one API server with one credential: requests go out, and bodies come back as they arrive.

An aiohttp session of its own per cluster, with TLS from the kubeconfig alone: nothing of the environment (proxies,
netrc, credentials) applies, no redirect is followed, names are judged again once they are resolved, and keys never
touch a disk. What goes wrong on the way is a Broken; what a status means is judged elsewhere. Half-open connections
are found by TCP within half a minute, silent ones by the limit each request names.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, TypeAlias

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from watchers.kubernetes.destinations import may_dial
from watchers.kubernetes.expiry import certificate_expiry, token_expiry
from watchers.kubernetes.kubeconfig import ApiServer, InvalidKubeconfig, read_token
from watchers.kubernetes.tls import TLS_BUFFER, lower_tls_buffers, tls_context
from watchers.status import Access

Method: TypeAlias = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

LONGEST_REPLY = 1 << 20
"""Bytes of an answer to what is sent; an object is at most 1.5 MiB in etcd, those written here are a few KiB."""

_CONNECT_SECONDS = 10.0
_TOKEN_SECONDS = 60.0
_KEEPALIVE = (10, 5, 3)
"""Seconds of silence before TCP asks, seconds between its questions, and how many may stay without answer."""


class Broken(Exception):
    """A request or its answer came to nothing; ``reason`` is one of the watch restarts' reasons."""

    def __init__(self, reason: Literal["connect", "timeout", "server"], message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Response(Protocol):
    """An answer whose body is still to come."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The HTTP headers; names in any case."""

    def chunks(self) -> AsyncIterator[bytes]:
        """The body in pieces as they arrive, to be read once; raises Broken."""
        ...


class Reply(msgspec.Struct, frozen=True):
    """A complete answer. Names in ``headers`` in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


class Requests(Protocol):
    """What a reflector needs of a session."""

    def get(self, path: str, query: Mapping[str, str], *, silence: float) -> AbstractAsyncContextManager[Response]:
        """Sends a GET request and waits for the head of the answer; `Session.get` says what it raises."""
        ...


class Sends(Protocol):
    """What those who write need of a session."""

    async def send(
        self,
        method: Method,
        path: str,
        query: Mapping[str, str],
        body: bytes = b"",
        *,
        content_type: str = "application/json",
        seconds: float,
    ) -> Reply:
        """Sends a request and reads the whole answer; `Session.send` says what it raises."""
        ...


class Session:
    """One API server, one credential. To be made inside a running loop, and closed.

    ``compressed`` asks for gzip: a list shrinks to a tenth on its way, and costs twice the CPU to read; ``accept`` are
    the types of media that are asked for. Raises InvalidKubeconfig if certificates or key cannot be used.
    """

    def __init__(
        self,
        server: ApiServer,
        *,
        compressed: bool = False,
        accept: str = "application/json",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        lower_tls_buffers()
        self._server = server
        self._base = URL(server.server)
        self._clock = clock
        self._token = server.token
        self._token_read = 0.0
        self._token_retry = True
        self._shown = b""
        connector = aiohttp.TCPConnector(
            limit=0,
            ssl=tls_context(server),
            resolver=_Resolver(),
            socket_factory=_socket,
            # A watch that ends is followed by the next one on the same connection.
            keepalive_timeout=30.0,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            trust_env=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={
                "Accept": accept,
                "Accept-Encoding": "gzip" if compressed else "identity",
                "User-Agent": "isthmus",
            },
            read_bufsize=TLS_BUFFER,
        )

    def __repr__(self) -> str:
        return f"Session({self._server!r})"

    @property
    def access(self) -> Access:
        """Where it leads to, and when token and certificates end: the server's as its last handshake showed it."""
        server, url = self._server, self._base
        # As it is sent, and not as people would read it: `xn--a` stands for nothing, and reading it raises.
        name = url.raw_host or ""
        host = f"[{name}]" if ":" in name else name
        return Access(
            f"{host}:{url.port}",
            token_expiry(self._token),
            certificate_expiry(server.client_certificate) if server.client_certificate else 0.0,
            certificate_expiry(self._shown) if self._shown else 0.0,
        )

    async def close(self) -> None:
        """Ends all requests and closes all connections."""
        await self._session.close()

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @asynccontextmanager
    async def get(self, path: str, query: Mapping[str, str], *, silence: float) -> AsyncIterator[Response]:
        """Sends a GET request and waits for the head of the answer, which leaving the context ends.

        Raises Broken if there is none within ``silence`` seconds; so long may the body pause, too.
        """
        async with self._request("GET", path, query, silence=silence) as response:
            yield response

    async def send(
        self,
        method: Method,
        path: str,
        query: Mapping[str, str],
        body: bytes = b"",
        *,
        content_type: str = "application/json",
        seconds: float,
    ) -> Reply:
        """Sends a request, once, and reads the whole answer.

        Raises Broken if that is not done within ``seconds``, or if more than a megabyte comes: then nobody can tell
        whether the server did what was asked.
        """
        try:
            async with (
                asyncio.timeout(seconds),
                self._request(method, path, query, silence=seconds, body=body, content_type=content_type) as response,
            ):
                read = bytearray()
                async for chunk in response.chunks():
                    read += chunk
                    if len(read) > LONGEST_REPLY:
                        raise Broken("server", "the answer is too long")
                return Reply(response.status, response.headers, bytes(read))
        except TimeoutError:
            raise Broken("timeout", "no answer within the time given to it") from None

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        *,
        silence: float,
        body: bytes = b"",
        content_type: str = "",
    ) -> AsyncIterator[Response]:
        server = self._server
        headers = self._authorization()
        if body:
            headers["Content-Type"] = content_type
        with _breaking():
            response = await self._session.request(
                method,
                # The path is ours; a base path of the server's URL comes before it.
                self._base.with_path(self._base.path.rstrip("/") + path).with_query(query),
                headers=headers,
                data=body or None,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(
                    total=None, connect=_CONNECT_SECONDS * 2, sock_connect=_CONNECT_SECONDS, sock_read=silence
                ),
                server_hostname=server.tls_server_name or None,
                proxy=server.proxy_url or None,
            )
        connection = response.connection
        # A short answer may have given its connection back already; those of watches have not.
        transport = connection.transport if connection is not None else None
        if transport is not None and (tls := transport.get_extra_info("ssl_object")) is not None:
            self._shown = tls.getpeercert(binary_form=True) or b""
        if response.status == 401:
            # The token may have been renewed since it was read.
            self._token_read = 0.0
        try:
            yield _Body(response)
        finally:
            # A body that was read to its end has given its connection back already; else it must not be used again.
            response.close()

    def _authorization(self) -> dict[str, str]:
        file = self._server.token_file
        now = self._clock()
        if file and (not self._token_read or now - self._token_read >= _TOKEN_SECONDS):
            try:
                # A file in memory, of a few kilobytes, once a minute.
                self._token = read_token(Path(file))
            except (OSError, InvalidKubeconfig) as error:
                if not self._token:
                    raise Broken("connect", f"the token in {file} cannot be read: {_reason(error)}") from None
            self._token_read = now
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}


class _Body:
    """A Response of aiohttp."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._content = response.content
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    def chunks(self) -> AsyncIterator[bytes]:
        return self

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        with _breaking():
            chunk = await self._content.readany()
        if not chunk:
            raise StopAsyncIteration
        return chunk


@contextmanager
def _breaking() -> Iterator[None]:
    """Turns what aiohttp raises into Broken, without anything the request held."""
    try:
        yield
    except aiohttp.ConnectionTimeoutError:
        raise Broken("connect", "no connection within the time given to it") from None
    except TimeoutError:
        raise Broken("timeout", "nothing was heard for too long") from None
    except (aiohttp.ClientConnectorError, aiohttp.ClientSSLError, aiohttp.ClientProxyConnectionError) as error:
        raise Broken("connect", _reason(error)) from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise Broken("server", _reason(error)) from None


class _Resolver(AbstractResolver):
    """The system's resolver, less the addresses that may not be dialled."""

    def __init__(self) -> None:
        self._resolver = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        allowed = [result for result in found if may_dial(ipaddress.ip_address(result["host"]))]
        if found and not allowed:
            raise OSError(None, f"{host} resolves to an address of the machine's own services")
        return allowed

    async def close(self) -> None:
        await self._resolver.close()


def _socket(address: Any) -> socket.socket:
    """A socket that notices within half a minute that its other end is gone, however silent the line is."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    idle, interval, probes = _KEEPALIVE
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = (
        ("TCP_KEEPIDLE", idle),
        ("TCP_KEEPINTVL", interval),
        ("TCP_KEEPCNT", probes),
        ("TCP_USER_TIMEOUT", (idle + interval * probes) * 1000),
    )
    for name, value in options:
        option = getattr(socket, name, None)
        if option is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


def _reason(error: BaseException | None) -> str:
    """What went wrong, for people; never a header or a query."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate was refused: {error.certificate_error}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, aiohttp.ClientConnectorError):
        return str(error.os_error)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the connection was closed"
    if isinstance(error, InvalidKubeconfig):
        return error.cause
    return type(error).__name__
