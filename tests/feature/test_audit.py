"""What a whole process does to the machine it runs on: it starts no program, and opens what it was given and no more.

The interpreter's audit hook tells of it (`tests.kit.audited`), whatever library it is that does it. Each place that may
be opened stands here with its reason; what a control plane reads of clusters names many more.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest
import yaml

from tests.kit import manifests as m
from tests.kit.audited import STARTS, events
from tests.kit.certificates import Issuer, host_pair, signing_request, write_cacerts
from tests.kit.eventually import eventually_awaited
from tests.kit.kubeconfigs import kubeconfig, remote_secret
from tests.kit.pages import page
from tests.kit.plane import ZTUNNEL_NODE
from tests.kit.process import AUDITED, REPOSITORY, Isthmus, run_arguments, running
from tests.kit.two_api_servers import TwoApiServers
from tests.kit.two_clusters import TOKEN, TwoClusters
from tests.kit.ztunnel import Ztunnel, ZtunnelClient
from tests.kit.ztunnel.grpc_transport import GrpcDialer
from xds.client import AdsClient

STRAY = "/etc/isthmus-stray"
"""Where nothing is, and nothing has to look: what hostile kubeconfigs name."""

HOSTILE: Mapping[str, Mapping[str, object]] = {
    "exec": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": f"{STRAY}/run", "args": ["x"]}},
    "provider": {"auth-provider": {"name": "gcp", "config": {"cmd-path": f"{STRAY}/run", "access-token": ""}}},
    "oidc": {"auth-provider": {"name": "oidc", "config": {"idp-certificate-authority": f"{STRAY}/ca"}}},
    "token-file": {"tokenFile": f"{STRAY}/token"},
    "both": {"token": "t1", "tokenFile": f"{STRAY}/token"},
    "files": {"client-certificate": f"{STRAY}/tls.crt", "client-key": f"{STRAY}/tls.key"},
    "up": {"client-certificate": "../../etc/passwd", "client-key": "../../etc/passwd"},
}


def hostile(server: str, ca: bytes) -> dict[str, bytes]:
    """Kubeconfigs by cluster: one of each kind that must start or open nothing, and one that is none."""
    made = {name: kubeconfig(server, ca=ca, user=user) for name, user in HOSTILE.items()}
    by_path = yaml.safe_load(kubeconfig(server))
    by_path["clusters"][0]["cluster"]["certificate-authority"] = f"{STRAY}/ca.crt"
    made["authority"] = yaml.safe_dump(by_path).encode()
    made["tag"] = b"!!python/object/apply:os.system ['id']\n"
    made["none"] = b"\x00\xff"
    return made


def installation() -> Iterable[str]:
    """Where Python's own modules and all packages are, and the product in a checkout."""
    yield from (str(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    if sys.prefix != sys.base_prefix:
        yield sys.prefix
    yield from (str(REPOSITORY / package) for package in ("aggregator", "watchers", "xds"))


ALLOWED: Mapping[str, str] = {
    str(REPOSITORY): "Python looks on its path for packages; nothing else of the folder is opened",
    "/proc/self/fd": "prometheus_client counts open files",
    "/proc/self/limits": "prometheus_client tells how many files may be open",
    "/proc/self/stat": "prometheus_client tells of memory and CPU",
    "/proc/stat": "prometheus_client asks when the machine was started",
}
"""Single paths outside of the installation, and what for. No others below /proc, /sys, /dev and /etc are opened."""

LIBRARIES = {"None", "libc.so.6"}
"""What is loaded by ctypes: the C library, which Python is linked with."""


def stray(found: Sequence[tuple[str, str]], given: Iterable[Path]) -> list[tuple[str, str]]:
    """What was touched and is neither of the installation, nor on the lists above, nor given."""
    named = [*installation(), *map(str, given)]
    folders = {*named, *map(os.path.realpath, named)}
    left = []
    for event, what in dict.fromkeys(found):
        if event in STARTS or event.startswith("socket.") or event == "ctypes.dlopen":
            continue
        path = os.path.normpath(REPOSITORY / what)
        if path in ALLOWED or any(path == folder or path.startswith(f"{folder}/") for folder in folders):
            continue
        left.append((event, what))
    return left


def started(found: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [one for one in found if one[0] in STARTS]


async def served(process: Isthmus, root: bytes) -> None:
    """A ztunnel connects over TLS, learns everything, and has a certificate issued; a stranger is refused."""
    dialer = GrpcDialer(process.target("xds"), root=root, token=TOKEN, hostname="localhost")
    client = ZtunnelClient(Ztunnel("net1").machine)
    transport = await dialer.open()
    stream = asyncio.create_task(client.run(transport))
    await client.until(lambda machine: machine.ready)
    address = f"localhost:{process.ports['xds']}"
    async with AdsClient(address, node_id=ZTUNNEL_NODE, root_certificates=root, token=TOKEN) as own:
        uri = "spiffe://cluster.local/ns/istio-system/sa/ztunnel"
        assert len(await own.create_certificate(signing_request(uri))) > 1
    for path in ("/metrics", "/clusters", "/findings", "/"):
        assert (await page(process.ports["admin"], path)).status == 200
    transport.cancel()
    await stream
    await dialer.close()


@pytest.mark.slow
async def test_a_process_with_hostile_kubeconfigs_starts_nothing_and_opens_only_what_it_was_given(
    tmp_path: Path,
) -> None:
    given = tmp_path / "given"
    given.mkdir()
    servers = TwoApiServers(given)
    log = tmp_path / "audit"
    chain, key = host_pair("shop.example")
    async with servers.served():
        beta = servers.beta
        servers.alpha.apply(
            remote_secret("far", {"beta": kubeconfig(beta.url, "t1", beta.ca)}),
            remote_secret("bad", hostile(beta.url, beta.ca)),
            m.tls_secret("shop/tls", chain, key),
        )
        (given / "remotes").mkdir()
        for name, data in hostile(beta.url, beta.ca).items():
            (given / "remotes" / f"file-{name}").write_bytes(data)
        root = Issuer("root")
        cacerts = write_cacerts(given / "cacerts", root, roots=[root])
        identities = TwoClusters(_folder(given / "more"))
        arguments = [
            *run_arguments(f"alpha={servers.write(servers.alpha)}", f"gamma={identities.beta}"),
            *("--remotes", str(given / "remotes"), "--identities", str(identities.identities)),
            *("--cacerts", str(cacerts), "--root-cert-out", str(given / "root.pem")),
            *("--log-level", "debug", "--remote-timeout", "1s"),
        ]
        async with running(*arguments, audit=log) as process:
            await process.ready()
            await served(process, (given / "root.pem").read_bytes())
            await _all_refused(process)
            # What changes while it runs is read again.
            (given / "remotes" / "file-exec").write_bytes(kubeconfig(beta.url, user={"tokenFile": f"{STRAY}/later"}))
            await process.until(lambda process: "tokenFile" in process.said)
            assert await process.stop() == 0
    found = events(log)
    assert ("open", str(identities.identities)) in found, "the hook hears what the process opens"
    assert started(found) == []
    assert stray(found, [given]) == []
    assert {what for event, what in found if event == "ctypes.dlopen"} <= LIBRARIES
    assert not [what for _, what in found if STRAY in what]
    assert {what for event, what in found if event == "socket.connect"} <= _loopback(found)


async def _all_refused(process: Isthmus) -> None:
    async def refused() -> bool:
        clusters = (await page(process.ports["admin"], "/clusters")).json()["items"]
        states = {one["cluster"]: one["state"] for one in clusters}
        assert all(states[name] != "Synced" for name in states if name not in ("alpha", "beta", "gamma")), states
        return {f"file-{name}" for name in HOSTILE} | set(HOSTILE) <= states.keys()

    await eventually_awaited(refused)


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _loopback(found: Sequence[tuple[str, str]]) -> set[str]:
    return {what for _, what in found if re.match(r"\('(127\.0\.0\.1|::1)'", what)}


@pytest.mark.slow
async def test_a_process_of_directories_alone_starts_nothing_and_opens_only_what_it_was_given(tmp_path: Path) -> None:
    given = _folder(tmp_path / "given")
    clusters = TwoClusters(given)
    log = tmp_path / "audit"
    arguments = [
        *run_arguments(f"alpha={clusters.alpha}", f"beta={clusters.beta}", plaintext=True),
        *("--identities", str(clusters.identities), "--root-cert-out", str(given / "root.pem")),
    ]
    async with running(*arguments, audit=log) as process:
        await process.ready()
        await served(process, (given / "root.pem").read_bytes())
        assert await process.stop() == 0
    found = events(log)
    assert started(found) == []
    assert stray(found, [given]) == []
    assert {what for event, what in found if event == "ctypes.dlopen"} <= LIBRARIES


@pytest.mark.parametrize(
    ("code", "event"),
    [
        ("import subprocess; subprocess.run(['true'])", "subprocess.Popen"),
        ("import os; os.system('true')", "os.system"),
        ("import os; os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)", "os.posix_spawn"),
        ("import os; os.fork() or os._exit(0)", "os.fork"),
        ("import os; os.execv('/bin/true', ['true'])", "os.exec"),
        ("import asyncio; asyncio.run(asyncio.create_subprocess_exec('true'))", "subprocess.Popen"),
    ],
)
def test_a_program_that_starts_another_is_told_of(code: str, event: str, tmp_path: Path) -> None:
    assert event in {event for event, _ in started(audited(code, tmp_path))}


@pytest.mark.parametrize(
    "code",
    [
        "open({!r}, 'w')",
        "import pathlib; pathlib.Path({!r}).write_text('')",
        "import os; os.open({!r}, os.O_CREAT | os.O_RDWR)",
        "import os; os.mkdir({!r})",
        "import sqlite3; sqlite3.connect({!r})",
    ],
)
def test_a_program_that_opens_a_file_elsewhere_is_told_of(code: str, tmp_path: Path) -> None:
    elsewhere = str(tmp_path / "elsewhere")
    found = audited(code.format(elsewhere), tmp_path)
    assert elsewhere in {what for _, what in stray(found, [])}
    assert stray(found, [tmp_path]) == []


def audited(code: str, tmp_path: Path) -> list[tuple[str, str]]:
    """What a module of this code does under the hook."""
    folder = _folder(tmp_path / "program")
    (folder / "stray_program.py").write_text(code)
    log = tmp_path / "audit"
    subprocess.run([sys.executable, AUDITED, log, "stray_program"], cwd=folder, check=True, timeout=60)
    return [one for one in events(log) if not one[1].startswith(str(folder))]
