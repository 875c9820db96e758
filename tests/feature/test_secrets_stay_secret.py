"""Tokens and keys go in by every way there is, good and bad; nothing the process says of itself holds a part of one."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import secrets
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from aggregator.app import telemetry
from aggregator.app.logs import JsonLines, TextLines
from aggregator.app.settings import Settings
from tests.kit import manifests as m
from tests.kit.certificates import Issuer, host_pair, p256, private_pem, rsa_key, signing_request, write_cacerts
from tests.kit.eventually import eventually
from tests.kit.kubeconfigs import kubeconfig, remote_secret
from tests.kit.pages import page
from tests.kit.plane import Plane, learned, write_identities
from tests.kit.two_api_servers import TwoApiServers
from tests.kit.ztunnel import Ztunnel
from xds import protos
from xds.client import AdsClient, StreamEnded
from xds.server.certificate_authority import CertificateAuthorityError
from xds.server.certificate_files import load_authority

DELTA = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
FRAGMENT = 40
"""Characters of a secret that nobody may see in a row; a shorter secret counts as a whole."""


def forms(secret: bytes) -> Iterator[str]:
    """A secret as it may turn up: as it is, without line ends, and in base64 wherever it begins."""
    text = secret.decode("ascii")
    body = [line for line in text.splitlines() if line and not line.startswith("-----")]
    yield text
    yield "".join(body)
    yield from body
    for given in (secret, "".join(body).encode()):
        for shift in range(3):
            encoded = b64encode(b"\0" * shift + given).decode()
            yield encoded[4 * (shift > 0) : -4]


def fragments(given: Iterable[bytes]) -> set[str]:
    """Every part of so many characters of any form of a secret that shows something of it."""
    found = set()
    for secret in given:
        for form in forms(secret):
            if "-----" in form:
                continue
            found |= {form[at : at + FRAGMENT] for at in range(max(1, len(form) - FRAGMENT + 1))}
    return {fragment for fragment in found if len(fragment) >= 16}


def shown(text: str, parts: set[str]) -> set[str]:
    """The parts of secrets that a text shows."""
    seen = {text[at : at + FRAGMENT] for at in range(max(1, len(text) - FRAGMENT + 1))} & parts
    return seen | {part for part in parts if len(part) < FRAGMENT and part in text}


@pytest.mark.parametrize("how", ["as it is", "base64", "base64 with something before", "without line ends", "a line"])
@pytest.mark.parametrize("what", ["token", "key"])
def test_a_part_of_a_secret_is_found_in_a_text(what: str, how: str) -> None:
    secret = secrets.token_hex(32).encode() if what == "token" else private_pem(p256())
    text = secret.decode()
    planted = {
        "as it is": text,
        "base64": b64encode(secret).decode(),
        "base64 with something before": b64encode(b"token: " + secret).decode(),
        "without line ends": "".join(text.splitlines()[1:-1] or [text]),
        "a line": text.splitlines()[len(text.splitlines()) // 2],
    }[how]
    assert shown(f"an error: {planted}; and more", fragments([secret]))
    assert not shown("an error of no consequence, " * 10, fragments([secret]))


class Told:
    """Everything a control plane says of itself."""

    def __init__(self) -> None:
        self._streams = (io.StringIO(), io.StringIO())
        self.more: list[str] = []

    @contextmanager
    def logs(self) -> Iterator[None]:
        """Takes both forms of logs, from debug on."""
        root, handlers = logging.getLogger(), []
        for stream, form in zip(self._streams, (TextLines(), JsonLines()), strict=True):
            handler = logging.StreamHandler(stream)
            handler.setFormatter(form)
            handlers.append(handler)
            root.addHandler(handler)
        level = root.level
        root.setLevel(logging.DEBUG)
        try:
            yield
        finally:
            root.setLevel(level)
            for handler in handlers:
                root.removeHandler(handler)

    @property
    def logged(self) -> str:
        """What was logged as text."""
        return self._streams[0].getvalue()

    @property
    def all(self) -> dict[str, str]:
        """All of it, by kind."""
        return {"text": self.logged, "json": self._streams[1].getvalue(), "more": "\n".join(self.more)}


class Secrets:
    """Secrets of all kinds, each of its own."""

    def __init__(self) -> None:
        self.all: list[bytes] = []

    def token(self) -> str:
        made = secrets.token_hex(32)
        self.all.append(made.encode())
        return made

    def key(self, key: Any = None) -> bytes:
        made = private_pem(key or p256())
        self.all.append(made)
        return made


def broken_kubeconfigs(server: str, ca: bytes, hidden: Secrets) -> dict[str, bytes]:
    """Kubeconfigs that are refused, each for another reason, all with a credential inside."""

    def user(**fields: object) -> bytes:
        return kubeconfig(server, ca=ca, user={"token": hidden.token(), **fields})

    def with_server(url: str) -> bytes:
        return kubeconfig(url, hidden.token(), ca)

    key = b64encode(hidden.key()).decode()
    return {
        "exec": user(exec={"command": "x", "env": [{"name": "A", "value": hidden.token()}]}),
        "password": user(username="a", password=hidden.token()),
        "provider": user(**{"auth-provider": {"name": "oidc", "config": {"refresh-token": hidden.token()}}}),
        "half": user(**{"client-key-data": key}),
        "swapped": user(**{"client-certificate-data": key, "client-key-data": key}),
        "url": with_server(f"https://admin:{hidden.token()}@api.example"),
        "query": with_server(f"https://api.example?token={hidden.token()}"),
        "scheme": with_server(f"ftp://{hidden.token()}.example"),
        "spaces": kubeconfig(server, f"{hidden.token()} {hidden.token()}", ca),
        "tag": f"users: !!binary {hidden.token()}\n".encode(),
        "twice": f"token: {hidden.token()}\ntoken: {hidden.token()}\n".encode(),
        "indent": f"users:\n - name: u\n  user: {{token: {hidden.token()}\n".encode(),
        "kind": yaml.safe_dump({"kind": hidden.token(), "apiVersion": hidden.token()}).encode(),
        "nothing": hidden.token().encode(),
    }


async def calls(plane: Plane, hidden: Secrets) -> None:
    """Calls that fail: with tokens nobody knows, in the wrong header, with a key where a request belongs."""
    root = plane.control.authority.root_certificates.encode()
    known = hidden.all[0].decode()
    address = plane.tls
    for token in (hidden.token(), f"{hidden.token()} {hidden.token()}"):
        async with AdsClient(address, node_id="x", root_certificates=root, token=token) as client:
            with pytest.raises(StreamEnded):
                await client.create_certificate(signing_request("spiffe://cluster.local/ns/a/sa/b"))
    async with AdsClient(address, node_id="x", root_certificates=root, token=known) as client:
        key = hidden.key().decode()
        for csr in (key, key.replace("PRIVATE KEY", "CERTIFICATE REQUEST"), hidden.token(), "-----BEGIN " + key):
            with pytest.raises(StreamEnded) as caught:
                await client.create_certificate(csr)
            assert not shown(caught.value.details, fragments(hidden.all))
    credentials = grpc.ssl_channel_credentials(root)
    node = protos.envoy.config.core.v3.Node(id="ztunnel~1~a.b~c")
    node.metadata.update({"NAME": hidden.token() * 20, "TOKEN": hidden.token()})
    request = protos.envoy.service.discovery.v3.DeltaDiscoveryRequest(type_url="x", node=node).SerializeToString()
    async with grpc.aio.secure_channel(address, credentials) as channel:
        method = channel.stream_stream(DELTA)
        for header in (f"Basic {hidden.token()}", hidden.token(), f"Bearer {known}"):
            call = method(metadata=(("authorization", header), ("clusterid", "alpha")), timeout=5)
            with suppress(grpc.aio.AioRpcError):  # It may have ended before.
                await call.write(request)
            assert await call.code() is not grpc.StatusCode.OK
            assert not shown(await call.details(), fragments(hidden.all))


@pytest.mark.slow
async def test_nothing_a_control_plane_says_holds_a_part_of_a_secret(tmp_path: Path) -> None:
    hidden, told = Secrets(), Told()
    proxy, reader = hidden.token(), hidden.token()
    servers = TwoApiServers(tmp_path)
    servers.alpha.tokens = servers.beta.tokens = {reader}
    identities = write_identities(tmp_path / "identities.json", {proxy: ("istio-system/ztunnel", "alpha-1")})
    root = Issuer("root", key=p256())
    hidden.key(root.key)
    remotes = tmp_path / "remotes"
    remotes.mkdir()
    with told.logs():
        async with servers.served():
            bad = broken_kubeconfigs(servers.beta.url, servers.beta.ca, hidden)
            servers.alpha.apply(
                remote_secret("far", {"beta": kubeconfig(servers.beta.url, reader, servers.beta.ca)}),
                remote_secret("bad", bad),
                remote_secret("denied", {"denied": kubeconfig(servers.beta.url, hidden.token(), servers.beta.ca)}),
                *tls_secrets(hidden),
            )
            for name, data in bad.items():
                (remotes / f"file-{name}").write_bytes(data)
            plane = Plane(
                servers.write(servers.alpha, reader),
                remotes=remotes,
                identities=identities,
                cacerts=write_cacerts(tmp_path / "cacerts", root, roots=[root]),
                remote_timeout=0.5,
                log_level="debug",
            )
            exporter = InMemorySpanExporter()
            async with plane, plane.connect(Ztunnel("net1"), proxy) as client:
                exporting = asyncio.create_task(telemetry.export_traces(plane.control.records, "alpha", exporter))
                await learned(client)
                await calls(plane, hidden)
                identities.write_text(f'{{"{hidden.token()}": {{"identity": "{hidden.token()}"}}')
                (remotes / "file-later").write_bytes(bad["exec"])
                await eventually(lambda: {"file-later", "denied", *bad} <= states(plane).keys())
                await eventually(lambda: states(plane)["denied"] == "denied")
                servers.beta.delete("Pod", "shop/cart-3")
                await eventually(lambda: len(plane.passes()) > 1)
                # The file of identities is read again, and cannot be.
                async with plane.client(hidden.token()) as late, late.delta() as stream:
                    with pytest.raises(StreamEnded):
                        await stream.receive()
                await everything_shown(plane, told)
                exporting.cancel()
                await asyncio.wait((exporting,))
                told.more += [repr(span.to_json()) for span in exporter.get_finished_spans()]
        broken_authority(tmp_path / "broken", hidden, told)
    assert "token file not usable" in told.logged
    assert "tls.key" in told.all["more"], "findings speak of the Secrets that are wrong"
    parts = fragments(hidden.all)
    assert len(hidden.all) > 40
    for kind, text in told.all.items():
        assert len(text) > 1000, kind
        assert not shown(text, parts), kind


def tls_secrets(hidden: Secrets) -> Iterator[Any]:
    """Secrets with certificates of hosts: a good one, and what can be wrong with one."""
    chain, key = host_pair("shop.example")
    hidden.all.append(key)
    yield m.tls_secret("shop/good", chain, key)
    yield m.tls_secret("shop/other", chain, hidden.key())
    yield m.tls_secret("shop/swapped", hidden.key(), chain)
    yield m.tls_secret("shop/cut", chain, hidden.key(rsa_key(3482))[:900])
    yield m.tls_secret("shop/locked", chain, private_pem(p256(), b"password"))
    good = m.tls_secret("shop/good", chain, key)
    for name, data in (
        ("plain", {"tls.crt": "%%", "tls.key": hidden.token()}),
        ("list", {"tls.key": [hidden.token()]}),
    ):
        yield {**good, "metadata": {**good["metadata"], "name": name}, "data": data}


def states(plane: Plane) -> dict[str, str]:
    return {name: state.state for name, state in plane.control.clusters.states()}


async def everything_shown(plane: Plane, told: Told) -> None:
    """All pages, records, statuses, facts and settings, as they are shown and represented."""
    control = plane.control
    index = (await plane.admin("/")).json()
    assert {"/clusters", "/findings", "/metrics"} <= set(index)
    for path in (*index, *(f"/clusters/{name}" for name in states(plane)), "/clusters/nobody"):
        told.more.append((await plane.admin(path)).text)
    for path in ("/ready", "/live"):
        told.more.append((await page(control.health.port, path)).text)
    told.more += map(repr, control.records.recent())
    told.more += [repr(control.settings), str(control.settings), repr(control.authority), repr(vars(control))]
    told.more += [repr(status) for status in control.clusters.statuses()]
    told.more += [repr(item) for item in control.tables.facts.scan()]
    assert isinstance(control.settings, Settings)


def broken_authority(directory: Path, hidden: Secrets, told: Told) -> None:
    """Files of an authority whose key is of another, cut off, or in the place of a certificate."""
    root = Issuer("root")
    write_cacerts(directory, root, roots=[root])
    for file, content in (
        ("ca-key.pem", hidden.key()),
        ("ca-key.pem", hidden.key()[:-60]),
        ("ca-key.pem", hidden.token().encode()),
        ("ca-cert.pem", hidden.key()),
    ):
        before = (directory / file).read_bytes()
        (directory / file).write_bytes(content)
        with pytest.raises(CertificateAuthorityError) as caught:
            load_authority(directory)
        told.more += [str(caught.value), repr(caught.value)]
        (directory / file).write_bytes(before)


def test_json_lines_are_json() -> None:
    record = logging.makeLogRecord({"msg": "x", "levelname": "INFO"})
    assert json.loads(JsonLines().format(record))["event"] == "x"
