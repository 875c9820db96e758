"""Metrics: what is counted, and how Prometheus reads it.

In: the records of the stages (counted when somebody asks, or when half the ring is full, so nothing is counted per
event on the way of a push), the clusters as they are known, and the metrics of other packages, which are data with the
shape of Metric. Out: the text of /metrics. Names are OpenTelemetry's (dots, UCUM units, no `total`); Prometheus sees
`isthmus_xds_push_bytes_total`. Labels hold clusters, types and reasons, never services, endpoints or proxies: the
number of series does not grow with the mesh.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from aggregator.app.records import Pass, Records
from xds.records import Ack, Push, StreamClosed, StreamOpened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from prometheus_client.metrics_core import Metric as Family

    from watchers.status import ClusterStatus, State

Kind = Literal["counter", "gauge"]
TYPES = {
    "istio.workload.Address": "Address",
    "istio.workload.Workload": "Workload",
    "istio.security.Authorization": "Authorization",
    "envoy.config.cluster.v3.Cluster": "Cluster",
    "envoy.config.endpoint.v3.ClusterLoadAssignment": "ClusterLoadAssignment",
    "envoy.config.listener.v3.Listener": "Listener",
    "envoy.config.route.v3.RouteConfiguration": "RouteConfiguration",
    "envoy.config.route.v3.ScopedRouteConfiguration": "ScopedRouteConfiguration",
    "envoy.extensions.transport_sockets.tls.v3.Secret": "Secret",
}
_LABELS = {f"type.googleapis.com/{name}": (label,) for name, label in TYPES.items()}
_OTHER = ("other",)
_STATES: dict[State, str] = {
    "Connecting": "connecting",
    "Syncing": "syncing",
    "Synced": "synced",
    "Stale": "stale",
    "Denied": "denied",
    "UpdatePending": "update-pending",
    "Removed": "removed",
}
_UNITS = {"s": "seconds", "By": "bytes"}


class Metric(msgspec.Struct, kw_only=True):
    """A counter or gauge: plain numbers by the values of its labels, changed in place by whoever owns it."""

    name: str
    kind: Kind
    help: str
    unit: str = ""  # UCUM; empty for plain counts
    labels: tuple[str, ...] = ()
    values: dict[tuple[str, ...], float] = {}


class Readable(Protocol):
    """What the reader needs of a metric; a package that may not import Metric declares its own."""

    @property
    def name(self) -> str:
        """Dotted, without unit and `total`."""

    @property
    def kind(self) -> Kind:
        """Counters only grow."""

    @property
    def unit(self) -> str:
        """UCUM: s, By, or nothing."""

    @property
    def help(self) -> str:
        """A sentence for people."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the labels."""

    @property
    def values(self) -> Mapping[tuple[str, ...], float]:
        """Numbers by the values of the labels, in the order of their names."""


class RecordCounts:
    """A source of metrics: counters made of records."""

    def __init__(self, records: Records) -> None:
        self.passes = Metric(
            name="isthmus.aggregate.passes", kind="counter", help="Passes of the graph.", values={(): 0}
        )
        self.seconds = Metric(
            name="isthmus.aggregate.duration", kind="counter", unit="s", help="Time spent in passes.", values={(): 0}
        )
        self.evaluated = Metric(
            name="isthmus.aggregate.functions", kind="counter", help="Functions run by passes.", values={(): 0}
        )
        self.changed = Metric(
            name="isthmus.aggregate.changes",
            kind="counter",
            help="Published items that changed, of every kind.",
            values={(): 0},
        )
        self.published = Metric(
            name="isthmus.aggregate.published",
            kind="counter",
            help="Resources that changed.",
            values={(): 0},
        )
        self.pushes = Metric(
            name="isthmus.xds.pushes", kind="counter", labels=("type",), help="Responses sent to proxies.", values={}
        )
        self.resources = Metric(
            name="isthmus.xds.push.resources",
            kind="counter",
            labels=("type",),
            help="Resources in responses, removed ones too.",
            values={},
        )
        self.size = Metric(
            name="isthmus.xds.push", kind="counter", unit="By", labels=("type",), help="Bytes of responses.", values={}
        )
        self.acks = Metric(
            name="isthmus.xds.acks", kind="counter", labels=("type",), help="Responses accepted.", values={}
        )
        self.rejects = Metric(
            name="isthmus.xds.rejects",
            kind="counter",
            labels=("type",),
            help="Responses rejected by a proxy, which keeps what it had. Look for `resource rejected` in the log.",
            values={},
        )
        self.streams = Metric(
            name="isthmus.xds.streams", kind="gauge", labels=("kind",), help="Open streams of proxies.", values={}
        )
        self.opened = Metric(
            name="isthmus.xds.streams.opened", kind="counter", labels=("kind",), help="Streams opened.", values={}
        )
        self.missed = Metric(
            name="isthmus.records.missed", kind="counter", help="Records lost before they were counted.", values={(): 0}
        )
        self._reader = records.reader(bell=self._count)

    def __call__(self) -> Iterable[Metric]:
        """The counters, with everything up to now counted."""
        self._count()
        return [value for value in vars(self).values() if isinstance(value, Metric)]

    def _count(self) -> None:
        for record in self._reader.take():
            if isinstance(record, Push):
                labels = type_label(record.type_url)
                _add(self.pushes, labels, 1)
                _add(self.resources, labels, record.resources + record.removed)
                _add(self.size, labels, record.size)
            elif isinstance(record, Ack):
                _add(self.acks if record.accepted else self.rejects, type_label(record.type_url), 1)
            elif isinstance(record, Pass):
                _add(self.passes, (), 1)
                _add(self.seconds, (), max(0, record.ended_ns - record.started_ns) / 1e9)
                _add(self.evaluated, (), record.evaluated)
                _add(self.changed, (), record.changed)
                _add(self.published, (), record.published)
            elif isinstance(record, StreamOpened):
                _add(self.streams, (record.kind,), 1)
                _add(self.opened, (record.kind,), 1)
            elif isinstance(record, StreamClosed):
                _add(self.streams, (record.kind,), -1)
        self.missed.values[()] = self._reader.missed


class ClusterStates:
    """A source of metrics: how every known cluster is doing, as of now."""

    def __init__(self, statuses: Callable[[], Iterable[ClusterStatus]]) -> None:
        self._statuses = statuses

    def __call__(self) -> Iterable[Metric]:
        """The gauges as of now."""
        states = Metric(
            name="isthmus.cluster.state",
            kind="gauge",
            labels=("cluster", "state"),
            help="1 for the state a cluster is in, else 0. One that was removed is shown for ten minutes.",
            values={},
        )
        lag = Metric(
            name="isthmus.cluster.lag",
            kind="gauge",
            unit="s",
            labels=("cluster",),
            help="For how long what is held of a cluster has not been known to be current. No series before it was "
            "read for the first time.",
            values={},
        )
        expiry = Metric(
            name="isthmus.cluster.credential.expiry.timestamp",
            kind="gauge",
            unit="s",
            labels=("cluster", "credential"),
            help="When the credential in use ends, in seconds of Unix time: token, client_cert, or server_cert of the "
            "API server. No series for what does not end.",
            values={},
        )
        objects = Metric(
            name="isthmus.cluster.objects",
            kind="gauge",
            labels=("cluster", "kind"),
            help="Objects that are held of a cluster.",
            values={},
        )
        for status in self._statuses():
            cluster = status.cluster
            states.values.update({(cluster, label): float(status.state == one) for one, label in _STATES.items()})
            if status.lag >= 0:
                lag.values[(cluster,)] = status.lag
            ends = (
                ("token", status.token_expires),
                ("client_cert", status.certificate_expires),
                ("server_cert", status.server_certificate_expires),
            )
            expiry.values.update({(cluster, credential): end for credential, end in ends if end})
            objects.values.update({(cluster, kind.kind): kind.objects for kind in status.kinds})
        return [states, lag, expiry, objects]


class Exposition:
    """All metrics of the process as Prometheus or OpenMetrics text.

    Each source is a function that returns metrics as they stand. Beside them: the build, the process (memory, CPU, open
    files) and the garbage collector.
    """

    def __init__(self, sources: Iterable[Callable[[], Iterable[Readable]]], version: str) -> None:
        # Imported here: 5 MB that only a process with an admin port needs.
        from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector

        self._sources = tuple(sources)
        self._version = version
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._registry.register(self)

    def render(self, accept: str) -> tuple[bytes, str]:
        """The text in the format that the Accept header asks for, and its content type."""
        from prometheus_client.exposition import choose_encoder

        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def collect(self) -> Iterable[Family]:
        """For the registry: one family per metric."""
        build = Metric(
            name="isthmus.build.info",
            kind="gauge",
            labels=("version",),
            help="Always 1.",
            values={(self._version,): 1},
        )
        for source in (lambda: [build], *self._sources):
            yield from map(_family, source())

    def describe(self) -> Iterable[Family]:
        """Asked by the registry when it registers, instead of a first collection; names are not reserved."""
        return ()


def prometheus_name(metric: Readable) -> str:
    """The name with the unit at its end; the encoder adds `_total` to counters."""
    name = metric.name.replace(".", "_")
    unit = _UNITS.get(metric.unit, "")
    return f"{name}_{unit}" if unit else name


def type_label(type_url: str) -> tuple[str]:
    """The label of a type URL. Clients name types, so an unknown one is `other` and makes no series of its own."""
    return _LABELS.get(type_url, _OTHER)


def _add(metric: Metric, labels: tuple[str, ...], by: float) -> None:
    metric.values[labels] = metric.values.get(labels, 0) + by


def _family(metric: Readable) -> Family:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    family: Family
    if metric.kind == "counter":
        family = CounterMetricFamily(prometheus_name(metric), metric.help, labels=metric.labels)
    else:
        family = GaugeMetricFamily(prometheus_name(metric), metric.help, labels=metric.labels)
    for labels, value in sorted(metric.values.items()):
        family.add_metric(labels, value)
    return family
