"""What the server counts: plain numbers that it changes in place and the process reads when it is asked.

Labels are ports and codes, so the number of series does not grow with the proxies. Names are OpenTelemetry's: dots,
UCUM units.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class Metric(msgspec.Struct, frozen=True):
    """A counter or gauge: numbers by the values of its labels."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    unit: str
    labels: tuple[str, ...]
    values: dict[tuple[str, ...], float]

    def add(self, *labels: str) -> None:
        """Counts one more."""
        self.values[labels] = self.values.get(labels, 0) + 1


class ServerMetrics:
    """The metrics of a server's calls. A `port` is tls, mtls or plaintext, a `code` that of gRPC."""

    def __init__(self) -> None:
        self.refused = Metric(
            "isthmus.xds.calls.refused",
            "counter",
            "Calls that were refused, and streams that were ended, by the code their caller was told.",
            "",
            ("port", "code"),
            {},
        )
        self.certificates = Metric(
            "isthmus.certificates.issued",
            "counter",
            "Certificates issued to workloads, those that gateways are told over SDS not counted.",
            "",
            ("port",),
            {},
        )

    def all(self) -> tuple[Metric, ...]:
        """Every metric."""
        return self.refused, self.certificates
