"""One ztunnel, for tests that ask what traffic would do: its settings, its machine and the questions one may ask of it.

`Ztunnel` ties `machine`, `routing`, `inbound` and `config_dump` together, so that a scenario over two networks reads as
who connects where and who lets it in. It holds no state of its own and does no I/O.
"""

from __future__ import annotations

from typing import Any

from tests.kit.ztunnel.config_dump import config_dump
from tests.kit.ztunnel.inbound import Accepted, Answer, accept, accept_plaintext
from tests.kit.ztunnel.machine import Node, ZtunnelMachine
from tests.kit.ztunnel.records import Workload
from tests.kit.ztunnel.routes import Reason, Refusal, Route, Share
from tests.kit.ztunnel.routing import connect, routes
from tests.kit.ztunnel.state import State


class Ztunnel:
    """A ztunnel of `network`; with a node name in `node` it stands only for the workloads of that node."""

    def __init__(self, network: str = "", node: Node | None = None, *, on_demand: bool = False) -> None:
        self.network = network
        self.machine = ZtunnelMachine(node, on_demand=on_demand)

    @property
    def state(self) -> State:
        """What it was told."""
        return self.machine.state

    @property
    def ready(self) -> bool:
        """Whether its data plane has opened."""
        return self.machine.ready

    def config_dump(self) -> dict[str, Any]:
        """Its state as the admin port shows it."""
        return config_dump(self.state)

    def local(self, uid: str) -> Workload | None:
        """A workload it stands for."""
        workload = self.state.workloads.by_uid.get(uid)
        node = self.machine.node.node_name
        return workload if workload is not None and node in ("", workload.node) else None

    def connect(self, source: str, destination: str) -> Route | Refusal:
        """The likeliest way of a connection from the local workload `source`, by uid; see `routing.connect`."""
        workload = self.local(source)
        return _unknown(source) if workload is None else connect(self.state, self.network, workload, destination)

    def routes(self, source: str, destination: str) -> tuple[Share, ...]:
        """All ways of such a connection, with probabilities; raises KeyError for a source it does not stand for."""
        workload = self.local(source)
        if workload is None:
            raise KeyError(source)
        return routes(self.state, self.network, workload, destination)

    def accept(
        self, workload: str, *, authority: str, identity: str, source_ip: str, connected_ip: str = ""
    ) -> Accepted | Answer:
        """What happens to a CONNECT request that reaches the local workload of this uid; see `inbound.accept`.

        Without `connected_ip` it is reached at its first address.
        """
        local = self.local(workload)
        if local is None:
            return Answer(503, _unknown(workload).message)
        connected_ip = connected_ip or str(local.addresses[0])
        return accept(
            self.state,
            self.network,
            local,
            authority=authority,
            identity=identity,
            source_ip=source_ip,
            connected_ip=connected_ip,
        )

    def accept_plaintext(self, workload: str, *, source_ip: str, destination: str) -> Accepted | Answer:
        """What happens to a connection without tunnel; see `inbound.accept_plaintext`."""
        local = self.local(workload)
        if local is None:
            return Answer(0, _unknown(workload).message)
        return accept_plaintext(self.state, local, source_ip=source_ip, destination=destination)


def _unknown(uid: str) -> Refusal:
    return Refusal(Reason.UNKNOWN_SOURCE, f"failed to fetch information about local workload: {uid}")
