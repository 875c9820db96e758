"""The gRPC health checking protocol, grpc.health.v1.Health/Check.

In: the embedding's word on whether it is ready, and that the server drains. Out: SERVING or NOT_SERVING. What readiness
depends on is not decided here; why it is not ready is told over HTTP, where people look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from google.protobuf.message import DecodeError

from xds import protos
from xds.server import refusals


class HealthService:
    """grpc.health.v1.Health for the server as a whole (service "") and for the services it names.

    Only Check: the protocol lets a server do without Watch, and probes of Kubernetes call Check.
    """

    def __init__(self, ready: Callable[[], bool], services: Iterable[str]) -> None:
        self._ready = ready
        self._services = frozenset(services)
        self.draining = False

    def check(self, message: bytes) -> bytes:
        """Answers a HealthCheckRequest; raises Refusal, NOT_FOUND for an unknown service as the protocol says."""
        try:
            service = protos.grpc.health.v1.HealthCheckRequest.FromString(message).service
        except DecodeError:
            raise refusals.invalid("the message is no HealthCheckRequest") from None
        if service and service not in self._services:
            raise refusals.unknown(f"no such service; known are {', '.join(sorted(self._services))}")
        response = protos.grpc.health.v1.HealthCheckResponse
        status = response.SERVING if self._ready() and not self.draining else response.NOT_SERVING
        return response(status=status).SerializeToString()
