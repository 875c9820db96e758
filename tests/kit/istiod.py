"""istiod as a process of its own on loopback, to be measured beside: its binary, built once, and how it is started.

It is configured for what Isthmus does as well: ambient, several networks, the same services global; injection, webhooks
and leader election off. It reads its home cluster by a kubeconfig and finds the others in Secrets there, as in a real
mesh. `binary` finds or builds it; `python -m tests.kit.istiod` does the same and prints where.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from tests.kit.envoy import cache
from tests.kit.go_builds import NoProgram, built
from tests.kit.ports import free_ports
from tests.kit.spawned import Spawned

VERSION = "v0.0.0-20260827124520-eed52ebb66ad"
"""Of the module istio.io/istio: a development build of 1.31, of August 2026."""

_NAME = f"istiod-{VERSION}"
_PACKAGE = "istio.io/istio/pilot/cmd/pilot-discovery"

_DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))

_ENVIRONMENT = {
    "PILOT_ENABLE_AMBIENT": "true",
    "AMBIENT_ENABLE_MULTI_NETWORK": "true",
    "AMBIENT_ENABLE_MULTI_NETWORK_INGRESS": "true",
    "POD_NAMESPACE": "istio-system",
    "POD_NAME": "istiod-0",
    "SERVICE_ACCOUNT": "istiod",
    "REVISION": "default",
    "PILOT_CERT_PROVIDER": "istiod",
    "ENABLE_LEADER_ELECTION": "false",
    "PILOT_ENABLE_ANALYSIS": "false",
    "INJECT_ENABLED": "false",
    "INJECTION_WEBHOOK_CONFIG_NAME": "",
    "VALIDATION_WEBHOOK_CONFIG_NAME": "",
    "ENABLE_DEBUG_ENDPOINT_AUTH": "false",
}

_MESH = """\
trustDomain: cluster.local
rootNamespace: istio-system
serviceScopeConfigs:
- servicesSelector: {matchLabels: {istio.io/global: "true"}}
  scope: GLOBAL
- namespaceSelector: {matchLabels: {istio.io/global: "true"}}
  scope: GLOBAL
"""


def binary(*, build: bool = True) -> Path:
    """The program; unless `build`, only if it was built before. Raises NoProgram."""
    path = cache() / _NAME
    if not build and not path.exists():
        raise NoProgram("it was not built yet: `python -m tests.kit.istiod` does")
    return built(_NAME, ["install", "-ldflags=-s -w", f"{_PACKAGE}@{VERSION}"], cache().parent, flags="-mod=mod")


class Istiod(Spawned):
    """A process of istiod while the context is open; `xds` is its port for plaintext, `secure` that with TLS and tokens
    (reviewed by its home cluster).
    """

    def __init__(
        self,
        cluster: str,
        kubeconfig: bytes,
        *,
        environ: Mapping[str, str] = {},
        mesh: str = "",
        cacerts: Path | None = None,
    ) -> None:
        """`environ` goes before what it is started with otherwise, `mesh` are more lines of its mesh configuration;
        `cacerts` is a directory with its authority.
        """
        path = binary(build=False)
        scratch = tempfile.TemporaryDirectory(prefix="isthmus-istiod-")
        home = Path(scratch.name)
        (home / "kubeconfig").write_bytes(kubeconfig)
        (home / "mesh").write_text(_MESH + mesh)
        self.xds, self.secure, self._monitoring, https, self._http, control = free_ports(6)
        addresses = {
            "grpcAddr": self.xds,
            "secureGRPCAddr": self.secure,
            "monitoringAddr": self._monitoring,
            "httpsAddr": https,
            "httpAddr": self._http,
        }
        command = [
            *(str(path), "discovery", f"--kubeconfig={home / 'kubeconfig'}", f"--clusterID={cluster}"),
            *(f"--meshConfig={home / 'mesh'}", f"--ctrlz_port={control}", "--log_output_level=default:info"),
            *(f"--{flag}=127.0.0.1:{port}" for flag, port in addresses.items()),
        ]
        # By default it asks API servers for less a second than these can answer.
        command += ["--kubernetesApiQPS=400", "--kubernetesApiBurst=800"]
        environment = {**os.environ, **_ENVIRONMENT, "CLUSTER_ID": cluster, **environ}
        if cacerts is not None:
            environment["ROOT_CA_DIR"] = str(cacerts)
        log = (home / "log").open("w+")
        process = subprocess.Popen(
            command, cwd=home, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
        super().__init__(process, scratch, log)

    def ready(self, deadline: float = 120.0) -> None:
        """Waits until it says that it is ready. Raises TimeoutError with the end of its log."""
        end = time.monotonic() + deadline
        while not self.is_ready():
            if self._process.poll() is not None or time.monotonic() > end:
                raise TimeoutError(f"istiod is not ready; it said:\n{self.log()[-3000:]}")
            time.sleep(0.02)

    def is_ready(self) -> bool:
        """By its readiness probe."""
        return answer(f"http://127.0.0.1:{self._http}/ready") is not None

    def troubled(self, cluster: str) -> bool:
        """By its page of remote clusters."""
        page = answer(f"http://127.0.0.1:{self._http}/debug/clusterz")
        states = {one["id"]: one["syncStatus"] for one in json.loads(page)} if page else {}
        return bool(states.get(cluster, "synced") != "synced")

    def metrics(self) -> str:
        """Its counters and gauges, as Prometheus reads them."""
        return (answer(f"http://127.0.0.1:{self._monitoring}/metrics") or b"").decode()

    def collect_garbage(self) -> None:
        """Asks it to, as Go's own profile endpoint does."""
        answer(f"http://127.0.0.1:{self._http}/debug/pprof/heap?gc=1")

    def log(self) -> str:
        """All that it said."""
        return Path(self._log.name).read_text(errors="replace")


def answer(url: str) -> bytes | None:
    """What a page of this machine says; None if it is not there or says that something is wrong."""
    try:
        with _DIRECTLY.open(url, timeout=5) as said:
            return bytes(said.read())
    except OSError:
        return None


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{binary()}\n")
    except NoProgram as error:
        sys.exit(f"istiod {VERSION}: {error}")
