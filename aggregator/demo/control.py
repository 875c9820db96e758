"""The control planes of the demo: one `isthmus run` per cluster, which reads the other's manifests as a remote's.

In: a stage. Out: a running process that serves. It is started as anybody would start it, by its command line.
"""

from __future__ import annotations

import sys
from typing import Final, Self

from aggregator.demo.processes import Child
from aggregator.demo.stage import Site, Stage
from aggregator.operate.bootstrap import SocketAddress

HEALTH_PORT: Final = 8081
PAGES_PORT: Final = 15014


def addresses(site: Site) -> list[SocketAddress]:
    """Where the control plane of a cluster listens: xDS, health, pages."""
    host = site.xds.host
    return [site.xds, SocketAddress(host, HEALTH_PORT), SocketAddress(host, PAGES_PORT)]


class ControlPlane(Child):
    """A running `isthmus run`."""

    @classmethod
    async def launch(cls, stage: Stage, site: Site, other: Site) -> Self:
        """Starts the control plane of `site`; it need not serve yet."""
        xds, health, pages = map(str, addresses(site))
        credentials = stage.credentials
        return await cls.start(
            f"{site.name}-isthmus",
            [
                *(sys.executable, "-m", "aggregator.cli.main", "run"),
                *("--local", f"{site.name}={site.manifests}", "--remote", f"{other.name}={other.manifests}"),
                *("--xds", xds, "--xds-mtls", "off", "--xds-names", site.xds.host),
                *("--health", health, "--admin", pages),
                *("--identities", credentials.identities, "--cacerts", credentials.cacerts),
                *("--drain", "1s"),
            ],
            directory=stage.logs,
        )

    async def serving(self, deadline: float = 30.0) -> str:
        """Waits until it serves; returns the line in which it says so. Raises ChildFailed."""

        async def said() -> bool:
            return b"\n" in self.output.read_bytes()

        await self.until(said, "ready", deadline)
        return self.output.read_text().splitlines()[0]
