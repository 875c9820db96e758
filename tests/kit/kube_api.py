"""A fake Kubernetes API: requests answered as by a real server, and every way it may fail, on demand.

`KubeCluster` is one API server: its objects, who may read what, its scripted faults and what it was asked. `answer`
serves a request without any socket (for tests in virtual time); `KubeApi` serves many clusters over HTTP on loopback, a
port each, by TLS on request. Nothing here sleeps but for the time a request or a fault names, and between bookmarks.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Literal

import msgspec
from aiohttp import web

from tests.kit.certificates import Issuer, host_pair, pem
from tests.kit.kube_store import (
    RESOURCES,
    Compacted,
    Name,
    Resource,
    Selector,
    Store,
    Stored,
    field_selector,
    label_selector,
)
from tests.kit.kube_writes import Refused, apply_object, apply_status, create, delete, update
from tests.kit.service_accounts import TokenIssuer

Verb = Literal["list", "watch", "get", "create", "update", "patch", "delete"]
VERBS: Mapping[str, Verb] = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
JSON = {"Content-Type": "application/json"}
INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}
DISCOVERY = {"/.well-known/openid-configuration": "OpenIDConfiguration", "/openid/v1/jwks": "KeySet"}
"""What is told of the issuer of tokens, as kinds of requests."""
KEY_SET = "application/jwk-set+json"


class Refuse(msgspec.Struct, frozen=True):
    """The request is answered with an error; ``body`` (a proxy's error page) takes the place of the Status object."""

    status: int
    reason: str = ""
    message: str = "scripted"
    headers: Mapping[str, str] = {}
    body: bytes | None = None


class Hang(msgspec.Struct, frozen=True):
    """The request is never answered, while the connection stays open."""


class Slow(msgspec.Struct, frozen=True):
    """The request is answered as usual after so many seconds."""

    seconds: float


class Hold(msgspec.Struct, frozen=True):
    """The request is answered as usual once the event is set."""

    until: asyncio.Event


class Cut(msgspec.Struct, frozen=True):
    """The connection breaks after so many objects of the answer."""

    after: int


class Trickle(msgspec.Struct, frozen=True):
    """Each object of the answer comes so many seconds after the one before."""

    pause: float


class Lines(msgspec.Struct, frozen=True):
    """A watch says these lines instead, then ends, falls silent, or goes on as it should have begun."""

    lines: tuple[bytes, ...] = ()
    then: Literal["end", "hang", "go on"] = "end"


Fault = Refuse | Hang | Slow | Hold | Cut | Trickle | Lines


def error_event(code: int, reason: str, message: str = "scripted") -> bytes:
    """The line by which a watch tells that it cannot go on, for `Lines`."""
    return _line("ERROR", status(code, reason, message))


class Scripted(msgspec.Struct, eq=False):
    """A fault that waits for its requests; ``left`` is how many more it will meet, None all."""

    fault: Fault
    verb: Verb | None
    kind: str | None
    left: int | None

    def meets(self, request: Request) -> bool:
        """Whether the request is one of its own."""
        return self.left != 0 and self.verb in (None, request.verb) and self.kind in (None, request.kind)

    def withdraw(self) -> None:
        """It meets no more requests."""
        self.left = 0


class Request(msgspec.Struct, eq=False):
    """A request as the server saw it; ``status`` is 0 until it is answered."""

    verb: Verb
    kind: str
    name: Name | None
    namespace: str
    query: Mapping[str, str]
    token: str
    status: int = 0
    subresource: str = ""
    body: bytes = b""
    content_type: str = ""
    accept: str = ""


class Answer(msgspec.Struct, frozen=True):
    """A response; the body breaks with ConnectionResetError where the connection does."""

    status: int
    headers: Mapping[str, str]
    body: AsyncGenerator[bytes, None]


class _Watch:
    """An open watch: rung at every write, silent for ever once frozen."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.bell = asyncio.Event()
        self.frozen = False
        self.ended = False
        self.bookmarks = 0


class KubeCluster:
    """One API server.

    ``tokens`` may be changed at any time: those that are accepted, None for anyone, which is the default. A revoked
    token does not end an open watch, as with a real server. Of ``forbidden`` kinds everything is refused with 403, of
    ``absent`` ones (a CRD that is not installed) with 404. Of users in ``allowed``, each with a namespace, it says that
    they may do anything there, of all others nothing. ``watch_list`` is whether the server streams initial lists.
    ``bookmark_every`` is in seconds. ``accounts`` issues tokens of service accounts, and what is told of their keys.
    ``asked_version`` counts the questions for its version, which are not in ``requests``. While ``refuse_connections``
    is set, sessions in memory do not reach it.
    """

    def __init__(self, name: str = "kube", resources: Iterable[Resource] = RESOURCES) -> None:
        self.name = name
        self.store = Store(resources, self._ring)
        self.apply, self.delete, self.compact = self.store.apply, self.store.delete, self.store.compact
        self.tokens: set[str] | None = None
        self.forbidden: set[str] = set()
        self.absent: set[str] = set()
        self.allowed: set[tuple[str, str]] = set()
        self.watch_list = True
        self.bookmark_every: float | None = 60.0
        self.refuse_connections = False
        self.requests: list[Request] = []
        self.asked_version = 0
        self.accounts = TokenIssuer()
        self.url = ""
        self.ca = b""
        self._paths = {resource.root: resource for resource in self.store.resources.values()}
        self._script: list[Scripted] = []
        self._watches: set[_Watch] = set()
        self._pages: dict[str, tuple[int, list[Stored]]] = {}
        self.store.apply(
            {"kind": "Namespace", "metadata": {"name": "kube-system", "uid": f"uid-of-{name}"}},
        )

    def script(
        self, fault: Fault, *, verb: Verb | None = None, kind: str | None = None, times: int | None = 1
    ) -> Scripted:
        """The next ``times`` requests of the verb and kind (None: of any) meet the fault; None: until withdrawn."""
        scripted = Scripted(fault, verb, kind, times)
        self._script.append(scripted)
        return scripted

    def watches(self, kind: str | None = None) -> int:
        """How many watches are open, silent ones included."""
        return sum(1 for watch in self._watches if kind in (None, watch.request.kind))

    def watching(self) -> list[Request]:
        """The requests of the open watches."""
        return [watch.request for watch in self._watches]

    def count(self, verb: Verb | None = None, kind: str | None = None, status: int | None = None) -> int:
        """How many requests there were, by what is given."""
        return sum(
            1
            for request in self.requests
            if verb in (None, request.verb) and kind in (None, request.kind) and status in (None, request.status)
        )

    def tokens_seen(self) -> Counter[str]:
        """How many requests came with which token."""
        return Counter(request.token for request in self.requests)

    def bookmark(self) -> None:
        """Every open watch that allows it is sent a bookmark now."""
        for watch in self._watches:
            watch.bookmarks += 1
            watch.bell.set()

    def freeze(self, kind: str | None = None) -> None:
        """The open watches fall silent for ever: half-open connections. Later requests are answered."""
        for watch in self._watches:
            watch.frozen = watch.frozen or kind in (None, watch.request.kind)

    def end_watches(self, kind: str | None = None) -> None:
        """The open watches end as they do when their time is up."""
        for watch in self._watches:
            if kind in (None, watch.request.kind):
                watch.ended = True
                watch.bell.set()

    async def answer(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str], method: str = "GET", body: bytes = b""
    ) -> Answer:
        """Serves a request. May wait for ever, if a fault says so."""
        token = headers.get("Authorization", "").removeprefix("Bearer ")
        if path == "/version":
            return await self._answer_version(token)
        if path == "/apis":
            return _complete(200, self._groups())
        if path in DISCOVERY:
            accept = headers.get("Accept", "*/*")
            request: Request | None = Request("get", DISCOVERY[path], None, "", dict(query), token, accept=accept)
        else:
            request = self._read(path, query, token)
        if request is None:
            return _page_not_found()
        if method != "GET":
            request.verb, request.body = VERBS[method], body
            request.content_type = headers.get("Content-Type", "")
        self.requests.append(request)
        answer = await self._answer(request)
        request.status = answer.status
        return answer

    async def _answer(self, request: Request) -> Answer:
        if self.tokens is not None and request.token not in self.tokens:
            return _refusal(401, "Unauthorized", "Unauthorized")
        fault = self._fault(request)
        match fault:
            case Refuse():
                if fault.body is not None:
                    return Answer(fault.status, dict(fault.headers), _once(fault.body))
                return _refusal(fault.status, fault.reason, fault.message, fault.headers)
            case Hang():
                await asyncio.Event().wait()
            case Slow():
                await asyncio.sleep(fault.seconds)
            case Hold():
                await fault.until.wait()
        if request.kind in DISCOVERY.values():
            return self._answer_discovery(request)
        if request.kind in self.forbidden:
            plural = self.store.resources[request.kind].plural
            return _refusal(
                403, "Forbidden", f"{plural} is forbidden: cannot {request.verb} resource at the cluster scope"
            )
        if request.kind in self.absent:
            return _page_not_found()
        if request.verb in VERBS.values():
            return self._answer_write(request)
        if request.verb == "watch":
            return self._answer_watch(request, fault)
        if request.verb == "list":
            return self._answer_list(request, fault)
        stored = self.store.get(request.kind, request.name) if request.name else None
        if stored is None:
            return _refusal(404, "NotFound", "not found")
        return Answer(200, JSON, _once(stored.data))

    def _answer_discovery(self, request: Request) -> Answer:
        """As a real server, to nobody who does not accept the type of a key set."""
        if request.kind in self.forbidden:
            return _refusal(403, "Forbidden", "forbidden: User cannot get path")
        if request.kind in self.absent:
            return _page_not_found()
        if request.kind == "OpenIDConfiguration":
            return _complete(200, self.accounts.configuration())
        if not {KEY_SET, "*/*"} & {accepted.strip() for accepted in request.accept.split(",")}:
            return _refusal(406, "NotAcceptable", f"406: Not Acceptable: Available representations: {KEY_SET}")
        return _complete(200, self.accounts.published(), {"Content-Type": KEY_SET})

    async def _answer_version(self, token: str) -> Answer:
        """A token that is wrong is refused, though none is needed. Faults that hit everything for good hit this too."""
        self.asked_version += 1
        if self.tokens is not None and token not in self.tokens:
            return _refusal(401, "Unauthorized", "Unauthorized")
        meant = (one for one in self._script if one.verb is None and one.kind is None and one.left is None)
        match next((one.fault for one in meant), None):
            case Refuse() as fault:
                return _refusal(fault.status, fault.reason, fault.message, fault.headers)
            case Hang():
                await asyncio.Event().wait()
            case Hold() as held:
                await held.until.wait()
        return _complete(200, {"major": "1", "minor": "36", "gitVersion": "v1.36.0"})

    def _answer_write(self, request: Request) -> Answer:
        kind, name, query = request.kind, request.name, request.query
        try:
            if request.verb == "create" and kind == "SubjectAccessReview":
                return _complete(201, self._reviewed(json.loads(request.body)))
            if request.verb == "create" and kind == "TokenReview":
                review = json.loads(request.body)
                return _complete(201, {**review, "status": self.accounts.review(review["spec"])})
            if request.verb == "create":
                return _complete(201, create(self.store, kind, request.namespace, request.body))
            if name is None:
                return _refusal(405, "MethodNotAllowed", "the server does not allow this method on the resource")
            if request.verb == "update":
                return _complete(200, update(self.store, kind, name, request.body))
            if request.verb == "delete":
                return _complete(200, delete(self.store, kind, name, request.body))
            if request.content_type != "application/apply-patch+yaml":
                return _refusal(415, "UnsupportedMediaType", "only server-side apply is served")
            manager, force = query.get("fieldManager", ""), query.get("force") == "true"
            apply = apply_status if request.subresource == "status" else apply_object
            return _complete(200, apply(self.store, kind, name, request.body, manager, force=force))
        except Refused as refused:
            return _refusal(refused.status, refused.reason, str(refused))

    def _reviewed(self, review: dict[str, Any]) -> dict[str, Any]:
        spec = review["spec"]
        allowed = (spec["user"], spec["resourceAttributes"]["namespace"]) in self.allowed
        return {**review, "status": {"allowed": allowed, "reason": "" if allowed else "no rule allows it"}}

    def _groups(self) -> dict[str, Any]:
        served = {one.api_version for one in self.store.resources.values() if one.kind not in self.absent}
        groups: dict[str, list[dict[str, str]]] = {}
        for api_version in sorted(served):
            group, slash, version = api_version.partition("/")
            if slash:
                groups.setdefault(group, []).append({"groupVersion": api_version, "version": version})
        return {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [{"name": name, "versions": versions} for name, versions in groups.items()],
        }

    def _read(self, path: str, query: Mapping[str, str], token: str) -> Request | None:
        parts = path.strip("/").split("/")
        base, rest = (parts[:2], parts[2:]) if parts[0] == "api" else (parts[:3], parts[3:])
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        resource = self._paths.get("/".join(["", *base, *rest[:1]]))
        if resource is None or len(rest) > 3:
            return None
        name = (namespace, rest[1]) if len(rest) >= 2 else None
        verb: Verb = "get" if name else "watch" if query.get("watch") in ("1", "true") else "list"
        subresource = rest[2] if len(rest) == 3 else ""
        return Request(verb, resource.kind, name, namespace, dict(query), token, subresource=subresource)

    def _fault(self, request: Request) -> Fault | None:
        for scripted in self._script:
            if scripted.meets(request):
                if scripted.left is not None:
                    scripted.left -= 1
                return scripted.fault
        return None

    def _answer_list(self, request: Request, fault: Fault | None) -> Answer:
        token, limit = request.query.get("continue", ""), int(request.query.get("limit") or 0)
        if token:
            if token not in self._pages or self._pages[token][0] < self.store.compacted:
                return _refusal(410, "Expired", "The provided continue parameter is too old")
            revision, rest = self._pages[token]
        else:
            if int(request.query.get("resourceVersion") or 0) > self.store.revision:
                return _too_large()
            revision, rest = self.store.revision, self.store.objects(request.kind, _selector(request))
        metadata: dict[str, Any] = {"resourceVersion": str(revision)}
        items = rest[:limit] if limit else rest
        if len(items) < len(rest):
            following = f"{revision}.{len(self._pages)}"
            self._pages[following] = (revision, rest[limit:])
            metadata |= {"continue": following, "remainingItemCount": len(rest) - limit}
        resource = self.store.resources[request.kind]
        head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata}
        return Answer(200, JSON, _list_body(json.dumps(head).encode(), [item.data for item in items], fault))

    def _answer_watch(self, request: Request, fault: Fault | None) -> Answer:
        initial = request.query.get("sendInitialEvents") == "true"
        if initial and (not self.watch_list or request.query.get("resourceVersionMatch") != "NotOlderThan"):
            return _refusal(422, "Invalid", "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch")
        return Answer(200, JSON, self._watch_body(request, fault, initial=initial))

    async def _watch_body(self, request: Request, fault: Fault | None, *, initial: bool) -> AsyncGenerator[bytes, None]:
        watch = _Watch(request)
        self._watches.add(watch)
        try:
            if isinstance(fault, Lines):
                for line in fault.lines:
                    yield line if line.endswith(b"\n") else line + b"\n"
                if fault.then == "hang":
                    await asyncio.Event().wait()
                if fault.then == "end":
                    return
            sent = 0
            async for lines in self._watch_lines(watch, request, initial=initial):
                if watch.frozen:
                    await asyncio.Event().wait()
                if not isinstance(fault, Cut | Trickle):
                    yield b"".join(lines)
                    continue
                for line in lines:
                    if isinstance(fault, Trickle):
                        await asyncio.sleep(fault.pause)
                    elif sent == fault.after:
                        raise ConnectionResetError("scripted")
                    sent += 1
                    yield line
            if watch.frozen:
                await asyncio.Event().wait()
        finally:
            self._watches.discard(watch)

    async def _watch_lines(
        self, watch: _Watch, request: Request, *, initial: bool
    ) -> AsyncGenerator[list[bytes], None]:
        """The lines of a sound watch as they come together, until its time is up or its revision proves too old."""
        selects, given = _selector(request), request.query.get("resourceVersion") or "0"
        bookmarks = request.query.get("allowWatchBookmarks") in ("1", "true")
        seconds = float(request.query.get("timeoutSeconds") or 0)
        now = asyncio.get_running_loop().time

        def past(moment: float | None) -> bool:
            # A timer may fire a tick of the clock early, and a clock of tests does not move on by itself.
            return moment is not None and now() + 1e-5 >= moment

        end = now() + seconds if seconds else None
        next_bookmark = now() + self.bookmark_every if self.bookmark_every else None
        revision = int(given)
        if initial or revision == 0:
            revision = self.store.revision
            lines = [_line("ADDED", stored.data) for stored in self.store.objects(request.kind, selects)]
            if initial:
                lines.append(self._bookmark(request.kind, revision, INITIAL_EVENTS_END))
            if lines:
                yield lines
        while True:
            watch.bell.clear()
            try:
                events = list(self.store.events(request.kind, revision, selects))
            except Compacted:
                yield [error_event(410, "Expired", f"too old resource version: {revision} ({self.store.compacted})")]
                return
            revision = self.store.revision
            lines = [_line(kind, stored.data) for kind, stored in events]
            due = past(next_bookmark)
            if bookmarks and (due or watch.bookmarks):
                watch.bookmarks = 0
                lines.append(self._bookmark(request.kind, revision))
            if due and self.bookmark_every:
                next_bookmark = now() + self.bookmark_every
            if lines:
                yield lines
                continue  # While they were read, more may have happened.
            if watch.ended or past(end):
                return
            moments = [moment for moment in (end, next_bookmark) if moment is not None]
            # A write between the last look and here has rung the bell, which then does not wait.
            try:
                async with asyncio.timeout_at(min(moments, default=None)):
                    await watch.bell.wait()
            except TimeoutError:
                continue

    def _bookmark(self, kind: str, revision: int, annotations: Mapping[str, str] | None = None) -> bytes:
        metadata: dict[str, Any] = {"resourceVersion": str(revision), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = dict(annotations)
        resource = self.store.resources[kind]
        return _line("BOOKMARK", {"kind": kind, "apiVersion": resource.api_version, "metadata": metadata})

    def _ring(self) -> None:
        for watch in self._watches:
            watch.bell.set()


class KubeApi:
    """Serves clusters over HTTP on 127.0.0.1, each on a port of its own, while the context is open.

    With ``tls`` they are served as https://localhost, by a certificate of the authority in `KubeCluster.ca`.
    """

    def __init__(self, *clusters: KubeCluster, tls: bool = False) -> None:
        self._clusters = clusters
        self._tls = tls
        self._ports: dict[int, KubeCluster] = {}
        self._sites: dict[str, web.TCPSite] = {}
        self._context: ssl.SSLContext | None = None
        self._ca = b""
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._serve)
        # A handler is cancelled when its client goes, so that an abandoned watch is no open one.
        self._runner = web.AppRunner(application, handler_cancellation=True, access_log=None, shutdown_timeout=0)
        self._connections: dict[asyncio.Transport, KubeCluster] = {}

    async def __aenter__(self) -> KubeApi:
        if self._tls:
            self._context, self._ca = _server_context()
        await self._runner.setup()
        for cluster in self._clusters:
            await self.start(cluster)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    async def start(self, cluster: KubeCluster) -> None:
        """The cluster is served; again on its old port if it was before."""
        port = next((port for port, one in self._ports.items() if one is cluster), 0)
        site = web.TCPSite(self._runner, "127.0.0.1", port, ssl_context=self._context, reuse_address=True)
        await site.start()
        self._sites[cluster.name] = site
        server = site._server
        assert isinstance(server, asyncio.Server)
        port = server.sockets[0].getsockname()[1]
        self._ports[port] = cluster
        cluster.url = f"https://localhost:{port}" if self._tls else f"http://127.0.0.1:{port}"
        cluster.ca = self._ca

    async def stop(self, cluster: KubeCluster) -> None:
        """The server is killed: open connections break, new ones are refused."""
        await self._sites.pop(cluster.name).stop()
        for transport, one in list(self._connections.items()):
            if one is cluster:
                transport.abort()

    def renew_authority(self) -> None:
        """From the next start of a cluster on its certificate is one of another authority."""
        self._context, self._ca = _server_context()

    def connections(self, cluster: KubeCluster) -> int:
        """How many sockets a cluster's clients hold open, as far as they have asked something on them."""
        self._connections = {
            transport: one for transport, one in self._connections.items() if not transport.is_closing()
        }
        return sum(1 for one in self._connections.values() if one is cluster)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        transport = request.transport
        assert transport is not None
        cluster = self._ports[transport.get_extra_info("sockname")[1]]
        self._connections[transport] = cluster
        body = await request.read()
        answer = await cluster.answer(request.path, request.query, request.headers, request.method, body)
        async with aclosing(answer.body) as chunks:
            response = web.StreamResponse(status=answer.status, headers=answer.headers)
            await response.prepare(request)
            try:
                async for chunk in chunks:
                    await response.write(chunk)
                await response.write_eof()
            except ConnectionResetError:
                # Scripted, or the client has gone.
                transport.abort()
        return response


def status(code: int, reason: str, message: str, **details: Any) -> dict[str, Any]:
    """A Status object."""
    document = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {**document, "message": message, "reason": reason, "code": code, **({"details": details} if details else {})}


def _selector(request: Request) -> Selector:
    labels = label_selector(request.query.get("labelSelector", ""))
    fields = field_selector(request.query.get("fieldSelector", ""))
    space = request.namespace
    return lambda stored: space in ("", stored.name[0]) and labels(stored) and fields(stored)


def _line(kind: str, value: bytes | Mapping[str, Any]) -> bytes:
    data = value if isinstance(value, bytes) else json.dumps(value, separators=(",", ":")).encode()
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), data)


async def _once(data: bytes) -> AsyncGenerator[bytes, None]:
    yield data


async def _list_body(head: bytes, items: list[bytes], fault: Fault | None) -> AsyncGenerator[bytes, None]:
    opening = head[:-1] + b',"items":['
    if not isinstance(fault, Cut | Trickle):
        yield opening + b",".join(items) + b"]}"
        return
    yield opening
    for number, item in enumerate(items):
        if isinstance(fault, Trickle):
            await asyncio.sleep(fault.pause)
        elif number == fault.after:
            raise ConnectionResetError("scripted")
        yield (b"," if number else b"") + item
    yield b"]}"


def _complete(code: int, document: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(code, {**JSON, **(headers or {})}, _once(json.dumps(document).encode()))


def _refusal(code: int, reason: str, message: str, headers: Mapping[str, str] | None = None) -> Answer:
    return _complete(code, status(code, reason, message), headers)


def _page_not_found() -> Answer:
    return Answer(404, {"Content-Type": "text/plain"}, _once(b"404 page not found\n"))


def _too_large() -> Answer:
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    message = "Timeout: Too large resource version"
    return _complete(504, status(504, "Timeout", message, causes=causes, retryAfterSeconds=1), {"Retry-After": "1"})


def _server_context() -> tuple[ssl.SSLContext, bytes]:
    authority = Issuer("kubernetes")
    chain, key = host_pair("localhost", "kubernetes.default.svc", issuer=authority)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with TemporaryDirectory() as place:
        chain_file, key_file = Path(place, "tls.crt"), Path(place, "tls.key")
        chain_file.write_bytes(chain)
        key_file.write_bytes(key)
        context.load_cert_chain(chain_file, key_file)
    return context, pem(authority.certificate)
