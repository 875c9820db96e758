"""Real API servers for tests: one etcd, and kube-apiservers that share it, each under a prefix of its own.

They are set up as in production where it matters here: RBAC, nobody anonymous, TLS by an authority of their own,
service accounts whose tokens are real and expire. There are no controllers: a namespace goes and gets its finalizers
by hand, a pod gets its status, and nobody makes EndpointSlices. `KubeServers` starts and ends the processes, by their
ids; `KubeServer` is one of them, asked as its administrator. What builds the programs is tests.kit.kube_binaries.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import yaml
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.kit.certificates import Issuer, host_pair, p256, pem, private_pem
from tests.kit.eventually import eventually_awaited
from tests.kit.kube_binaries import Binaries
from tests.kit.manifests import Manifest
from tests.kit.ports import free_ports

ADMIN = "admin"
_START_SECONDS = 120.0
_STOP_SECONDS = 20.0
_OFF = (
    # Without controllers nobody makes the default service accounts, priority classes and taints that these ask for.
    "ServiceAccount",
    "TaintNodesByCondition",
    "Priority",
    "DefaultTolerationSeconds",
    "PodSecurity",
)
_CLUSTER_WIDE = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "GatewayClass",
    "IngressClass",
    "Namespace",
    "Node",
}
_PLURALS = {
    "AuthorizationPolicy": "authorizationpolicies",
    "EndpointSlice": "endpointslices",
    "Ingress": "ingresses",
    "ServiceEntry": "serviceentries",
}


class KubeServer:
    """One API server. `url` and `ca` (PEM) are how it is reached, `token` is that of its administrator."""

    def __init__(self, name: str, directory: Path, command: Callable[[], Sequence[str]], port: int, ca: bytes) -> None:
        self.name = name
        self.url = f"https://localhost:{port}"
        self.ca = ca
        self.token = f"admin-of-{name}"
        self.started_in = 0.0
        self._directory = directory
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._tls = ssl.create_default_context(cadata=ca.decode())
        self._applied: list[Manifest] = []

    def __repr__(self) -> str:
        return f"KubeServer({self.name!r}, {self.url!r})"

    # The process.

    def launch(self) -> None:
        """Starts it; `await_ready` waits for it. It ends with the thread that calls this: never one of a pool."""
        self._process = _start(self._command(), self._directory / "log")

    def await_ready(self) -> None:
        """Waits until it answers. Raises RuntimeError with the end of its log if it does not."""
        started = time.monotonic()
        request = urllib.request.Request(f"{self.url}/readyz", headers={"Authorization": f"Bearer {self.token}"})

        def ready() -> bool:
            with (
                contextlib.suppress(urllib.error.URLError, OSError),
                urllib.request.urlopen(request, timeout=2.0, context=self._tls) as answer,
            ):
                return bool(answer.status == 200)
            return False

        _await(ready, self._process, self._directory / "log")
        self.started_in = time.monotonic() - started

    def stop(self) -> None:
        """Ends it, if need be by force."""
        _end(self._process)
        self._process = None

    def crash(self) -> None:
        """Ends it at once."""
        if self._process is not None:
            self._process.kill()
        self.stop()

    # Its administrator.

    def kubeconfig(self, directory: Path, token: str = "", *, name: str = "") -> Path:
        """A kubeconfig in a file, of the administrator or of whose token it is; the context is called as the server."""
        place = directory / (name or self.name)
        place.parent.mkdir(parents=True, exist_ok=True)
        cluster = {"server": self.url, "certificate-authority-data": b64encode(self.ca).decode()}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": self.name, "cluster": cluster}],
            "users": [{"name": self.name, "user": {"token": token or self.token}}],
            "contexts": [{"name": self.name, "context": {"cluster": self.name, "user": self.name}}],
            "current-context": self.name,
        }
        place.write_text(yaml.safe_dump(document))
        return place

    async def ask(
        self, method: str, path: str, body: Any = None, *, token: str = "", content_type: str = "application/json"
    ) -> tuple[int, Any]:
        """Status and JSON of a request, as the administrator or with another token."""
        headers = {"Authorization": f"Bearer {token or self.token}", "Content-Type": content_type}
        timeout = aiohttp.ClientTimeout(total=30.0)
        async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:
            data = None if body is None else json.dumps(body)
            async with session.request(
                method, f"{self.url}{path}", data=data, headers=headers, ssl=self._tls
            ) as answer:
                text = await answer.text()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text

    async def apply(self, *manifests: Manifest) -> None:
        """Applies objects, with their status; they go with `clean`."""
        for manifest in manifests:
            wanted = _without_server_fields(manifest)
            await self._apply(path_of(wanted), wanted)
            self._applied.append(manifest)
            if "status" in wanted and wanted["kind"] in ("Gateway", "Ingress", "Pod", "Service"):
                await self._apply(f"{path_of(wanted)}/status", wanted)
            if wanted["kind"] == "CustomResourceDefinition":
                await self._established(wanted["metadata"]["name"])

    async def delete(self, kind: str, name: str, *, api_version: str = "v1") -> None:
        """Deletes an object, named as `namespace/name`, at once; a namespace loses its finalizers, too."""
        namespace, _, own = name.rpartition("/")
        metadata = {"name": own, **({"namespace": namespace} if namespace else {})}
        path = path_of({"apiVersion": api_version, "kind": kind, "metadata": metadata})
        status, said = await self.ask("DELETE", path, {"gracePeriodSeconds": 0})
        assert status in (200, 202, 404), said
        if kind == "Namespace" and status != 404:
            status, found = await self.ask("GET", path)
            if status == 200:
                found["spec"]["finalizers"] = []
                await self.ask("PUT", f"{path}/finalize", found)

    async def delete_manifest(self, manifest: Manifest) -> None:
        """As `delete`."""
        namespace, name = manifest["metadata"].get("namespace"), manifest["metadata"]["name"]
        place = f"{namespace}/{name}" if namespace else name
        await self.delete(manifest["kind"], place, api_version=manifest["apiVersion"])

    async def create_token(self, account: str, seconds: int = 3600, *audiences: str, pod: str = "") -> str:
        """A token of a service account, named as `namespace/name`, which is made if it is not there; for this API
        server unless audiences are named, and bound to a pod of the namespace if that is.
        """
        namespace, _, name = account.rpartition("/")
        metadata = {"name": name, "namespace": namespace}
        await self.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        spec: dict[str, Any] = {"expirationSeconds": seconds}
        if audiences:
            spec["audiences"] = list(audiences)
        if pod:
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": pod}
        status, said = await self.ask("POST", path, {"spec": spec})
        assert status == 201, said
        return str(said["status"]["token"])

    async def clean(self) -> None:
        """Deletes what was applied, the latest first, but for namespaces and definitions of kinds: what is in these
        would have to go before.
        """
        while self._applied:
            gone = self._applied.pop()
            if gone["kind"] in ("Namespace", "CustomResourceDefinition"):
                continue
            await self.delete_manifest(gone)

    async def _apply(self, path: str, manifest: Manifest) -> None:
        status, said = await self.ask(
            "PATCH", f"{path}?fieldManager=tests&force=true", manifest, content_type="application/apply-patch+yaml"
        )
        assert status in (200, 201), f"{path}: {said}"

    async def _established(self, name: str) -> None:
        """Waits until a kind can be asked for."""
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"

        async def established() -> bool:
            _, said = await self.ask("GET", path)
            conditions = {one["type"]: one["status"] for one in said["status"].get("conditions") or []}
            return conditions.get("Established") == "True"

        await eventually_awaited(established, 30.0, interval=0.05)


class KubeServers:
    """One etcd and an API server per name, for as long as the context lasts; `started_in` is how long that took."""

    def __init__(self, programs: Binaries, directory: Path, *names: str) -> None:
        self._programs = programs
        self._directory = directory
        self._names = names
        self._etcd: subprocess.Popen[bytes] | None = None
        self.servers: dict[str, KubeServer] = {}
        self.started_in = 0.0

    def __enter__(self) -> Self:
        started = time.monotonic()
        try:
            etcd = self._launch_etcd()
            for number, name in enumerate(self._names):
                server = self.servers[name] = self._make(name, number, etcd)
                server.launch()
            for server in self.servers.values():
                server.await_ready()
        except BaseException:
            self._stop()
            raise
        self.started_in = time.monotonic() - started
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        for server in self.servers.values():
            server.stop()
        _end(self._etcd)
        self._etcd = None

    def _launch_etcd(self) -> str:
        client, peer = free_ports(2)
        url, peer_url = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        directory = self._directory / "etcd"
        directory.mkdir(parents=True)
        command = [
            self._programs.etcd,
            *("--data-dir", directory / "data"),
            *("--listen-client-urls", url, "--advertise-client-urls", url),
            *("--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url),
            *("--initial-cluster", f"default={peer_url}"),
            "--unsafe-no-fsync",
        ]
        process = self._etcd = _start([str(word) for word in command], directory / "log")

        def healthy() -> bool:
            with (
                contextlib.suppress(urllib.error.URLError, OSError),
                urllib.request.urlopen(f"{url}/health", timeout=2.0) as answer,
            ):
                return bool(answer.status == 200)
            return False

        _await(healthy, process, directory / "log")
        return url

    def _make(self, name: str, number: int, etcd: str) -> KubeServer:
        directory = self._directory / name
        directory.mkdir()
        issuer, signing = Issuer(f"authority of {name}"), p256()
        certificate, key = host_pair("localhost", issuer=issuer)
        public = signing.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        files = {
            "tls.crt": certificate,
            "tls.key": key,
            "accounts.key": private_pem(signing),
            "accounts.pub": public,
            "tokens.csv": f"admin-of-{name},{ADMIN},{ADMIN},system:masters\n".encode(),
        }
        for file, content in files.items():
            (directory / file).write_bytes(content)
        (port,) = free_ports(1)
        command = [
            str(self._programs.kube_apiserver),
            f"--etcd-servers={etcd}",
            f"--etcd-prefix=/{name}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={port}",
            f"--tls-cert-file={directory / 'tls.crt'}",
            f"--tls-private-key-file={directory / 'tls.key'}",
            f"--service-cluster-ip-range=10.{96 + number}.0.0/16",
            "--endpoint-reconciler-type=none",
            f"--service-account-key-file={directory / 'accounts.pub'}",
            f"--service-account-signing-key-file={directory / 'accounts.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--token-auth-file={directory / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--anonymous-auth=false",
            f"--disable-admission-plugins={','.join(_OFF)}",
            "--enable-priority-and-fairness=false",
            "--profiling=false",
            "--v=1",
        ]
        return KubeServer(name, directory, lambda: command, port, pem(issuer.certificate))


def path_of(manifest: Mapping[str, Any]) -> str:
    """Where an object stands at an API server."""
    version, kind, metadata = manifest["apiVersion"], manifest["kind"], manifest["metadata"]
    plural = _PLURALS.get(kind) or f"{kind.lower()}{'es' if kind.endswith('s') else 's'}"
    where = "" if kind in _CLUSTER_WIDE else f"/namespaces/{metadata.get('namespace', 'default')}"
    return f"/{'apis' if '/' in version else 'api'}/{version}{where}/{plural}/{metadata['name']}"


def _without_server_fields(manifest: Manifest) -> Manifest:
    """Without what the server sets itself, or refuses of a client."""
    metadata = {
        key: value
        for key, value in manifest["metadata"].items()
        if key not in ("creationTimestamp", "deletionTimestamp", "generateName", "resourceVersion", "uid")
    }
    return {**manifest, "metadata": metadata}


def _start(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    environ = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    # Tests that are killed leave none of them behind.
    bound = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    with log.open("ab") as out:
        return subprocess.Popen([*bound, *command], stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environ)


def _await(holds: Callable[[], bool], process: subprocess.Popen[bytes] | None, log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while not holds():
        if process is None or process.poll() is not None or time.monotonic() >= end:
            said = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
            raise RuntimeError(f"{log.parent.name} did not start; it said:\n{said}")
        time.sleep(0.1)


def _end(process: subprocess.Popen[bytes] | None) -> None:
    if process is None:
        return
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
