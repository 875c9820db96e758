"""What the server and the encoders count: plain numbers that are changed in place and read when somebody asks.

Labels are ports and codes, so the number of series does not grow with the proxies. Names are OpenTelemetry's: dots,
UCUM units.
"""

from __future__ import annotations

from typing import Final, Literal

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


class Work(msgspec.Struct, frozen=True, gc=False):
    """What it took to make messages: `encoded` were serialised, `composed` put together of a head and of parts that
    were kept, `wrapped` made resources of; `hashed` are the bytes that digests were taken of.
    """

    encoded: int = 0
    composed: int = 0
    wrapped: int = 0
    hashed: int = 0

    @property
    def digests(self) -> int:
        """How many digests were taken: one of a message, two of what is composed (its head, and all of it)."""
        return self.encoded + 2 * self.composed

    def __add__(self, other: Work) -> Work:
        return Work(*map(int.__add__, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))

    def __sub__(self, other: Work) -> Work:
        return Work(*map(int.__sub__, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))


NO_WORK: Final = Work()


class WorkCount:
    """The work of this process so far, counted by xds.encoded: two additions a message, which take 35 ns.

    Exact in the thread of the event loop; what other threads make may be counted short.
    """

    __slots__ = ("composed", "encoded", "hashed", "wrapped")

    def __init__(self) -> None:
        self.encoded = self.composed = self.wrapped = self.hashed = 0

    def now(self) -> Work:
        """The numbers as they stand."""
        return Work(self.encoded, self.composed, self.wrapped, self.hashed)


WORK: Final = WorkCount()


def work_metrics() -> tuple[Metric, ...]:
    """The numbers of WORK as metrics."""
    done = WORK.now()
    return (
        _counter("isthmus.xds.messages.encoded", "Messages that were serialised.", done.encoded),
        _counter(
            "isthmus.xds.messages.composed", "Messages that were put together of kept parts, as copies.", done.composed
        ),
        _counter("isthmus.xds.resources.wrapped", "Resources that were made, each for all its streams.", done.wrapped),
        _counter("isthmus.xds.digests", "Digests that were taken of messages.", done.digests),
        _counter("isthmus.xds.digests.size", "Bytes that digests were taken of.", done.hashed, "By"),
    )


def _counter(name: str, says: str, value: int, unit: str = "") -> Metric:
    return Metric(name, "counter", says, unit, (), {(): value})
