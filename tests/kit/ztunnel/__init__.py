"""A strict stand-in for ztunnel: the same subscription, validation, state and decisions, without data plane.

Its rules follow the real client (istio/ztunnel of August 2026) and are checked against recordings of it in
tests/kit/fixtures/ztunnel. Start with `Ztunnel`, and `ZtunnelClient` to connect one to a control plane.
What is not modelled: certificates and the CA, search domains and wildcards of DNS, revocation, pooling, waiting for a
local workload, file configuration.
"""

from __future__ import annotations

from tests.kit.ztunnel.client import StreamLost, Transport, ZtunnelClient
from tests.kit.ztunnel.inbound import Accepted, Answer
from tests.kit.ztunnel.machine import Node, Received, ZtunnelMachine
from tests.kit.ztunnel.proxy import Ztunnel
from tests.kit.ztunnel.readings import Oddity, Trait
from tests.kit.ztunnel.reconnect import StreamEnd
from tests.kit.ztunnel.routes import Reason, Refusal, Route, Share, Tunnel
from tests.kit.ztunnel.validation import ADDRESS_TYPE, AUTHORIZATION_TYPE

__all__ = [
    "ADDRESS_TYPE",
    "AUTHORIZATION_TYPE",
    "Accepted",
    "Answer",
    "Node",
    "Oddity",
    "Reason",
    "Received",
    "Refusal",
    "Route",
    "Share",
    "StreamEnd",
    "StreamLost",
    "Trait",
    "Transport",
    "Tunnel",
    "Ztunnel",
    "ZtunnelClient",
    "ZtunnelMachine",
]
