"""The data plane of the demo: applications, what stands for ztunnels, and gateways, on the addresses of their pods.

In: a stage and an Envoy binary. Out: running parts by name, which can be asked, stopped and started again. Who tells
the gateways what to do is none of its business: they find their control planes by their bootstraps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from aggregator.demo.credentials import TRUST_DOMAIN
from aggregator.demo.destination import HBONE_PORT, Pod, destination
from aggregator.demo.echo import EchoApp
from aggregator.demo.envoy import Envoy
from aggregator.demo.stage import ADMIN_PORT, Site, Stage
from aggregator.operate.bootstrap import GatewayProxy, SocketAddress, bootstrap


class DataPlane:
    """What runs. `apps` are by `<cluster>-<pod>`, `envoys` by their name: `<cluster>-<pod>`, `<cluster>-ztunnel`.

    `close` ends all of it. Envoys take `drain_seconds` to let go of connections when a listener goes.
    """

    def __init__(self, stage: Stage, binary: Path, *, drain_seconds: int = 5) -> None:
        self.apps: dict[str, EchoApp] = {}
        self.envoys: dict[str, Envoy] = {}
        self._stage = stage
        self._binary = binary
        self._drain_seconds = drain_seconds

    def addresses(self) -> list[SocketAddress]:
        """Where all of it will listen."""
        wanted = []
        for site in self._stage.sites:
            wanted.append(_ztunnel_admin(site))
            for pod in self._stage.pods(site):
                address = pod["status"]["podIPs"][0]["ip"]
                wanted.append(SocketAddress(address, HBONE_PORT))
            for proxy in self._stage.gateways(site):
                wanted += [proxy.admin, proxy.status]
                wanted += [SocketAddress(proxy.bind, port) for port in (proxy.http_port, proxy.https_port)]
        return wanted

    async def start_pods(self, site: Site, pods: Sequence[Pod]) -> Envoy:
        """Starts the applications of pods, and what stands for the ztunnels of a cluster; returns the latter, ready."""
        for pod in pods:
            app = self.apps[f"{site.name}-{pod.name}"] = EchoApp(pod.name, site.name)
            await app.start(pod.address, pod.app)
        config = destination(pods, TRUST_DOMAIN, _ztunnel_admin(site))
        ztunnel = await self._launch(f"{site.name}-ztunnel", config)
        await ztunnel.ready()
        return ztunnel

    async def start_gateway(self, proxy: GatewayProxy) -> Envoy:
        """Starts a gateway. It is ready as soon as its control plane has told it everything."""
        return await self._launch(f"{proxy.cluster}-{proxy.pod}", bootstrap(proxy))

    async def _launch(self, name: str, config: dict[str, object]) -> Envoy:
        directory, drain = self._stage.logs, self._drain_seconds
        envoy = await Envoy.launch(name, self._binary, config, directory=directory, drain_seconds=drain)
        self.envoys[name] = envoy
        return envoy

    async def stop(self, name: str) -> None:
        """Ends one Envoy."""
        await self.envoys.pop(name).stop()

    async def close(self) -> None:
        """Ends everything."""
        envoys, self.envoys = self.envoys, {}
        apps, self.apps = self.apps, {}
        await asyncio.gather(*(envoy.stop() for envoy in envoys.values()))
        await asyncio.gather(*(app.stop() for app in apps.values()))


def _ztunnel_admin(site: Site) -> SocketAddress:
    return SocketAddress(site.address("0.30"), ADMIN_PORT)
