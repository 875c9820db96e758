"""What the watchers count: plain numbers that their owner changes in place and the process reads when it is asked.

Labels are clusters, kinds and reasons, so the number of series does not grow with what is in the clusters. Names are
OpenTelemetry's: dots, UCUM units.
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

    def add(self, *labels: str, amount: float = 1) -> None:
        """Counts further."""
        self.values[labels] = self.values.get(labels, 0) + amount

    def set(self, *labels: str, value: float) -> None:
        """The value is now another."""
        self.values[labels] = value


class WatchMetrics:
    """The metrics of all lists and watches of a process."""

    def __init__(self) -> None:
        self.events = Metric(
            "isthmus.watch.events", "counter", "Events of watches, of every type.", "", ("cluster", "kind"), {}
        )
        self.lists = Metric(
            "isthmus.watch.lists",
            "counter",
            "Complete lists, streamed or in pages. More than a few an hour say that watches do not hold.",
            "",
            ("cluster", "kind"),
            {},
        )
        self.restarts = Metric(
            "isthmus.watch.restarts",
            "counter",
            "Lists and watches that had to begin again. `eof` and `absent` are as it should be; the others name a "
            "fault of the cluster's API server, of the way to it, or of our credential.",
            "",
            ("cluster", "reason"),
            {},
        )
        self.invalid = Metric(
            "isthmus.watch.objects.invalid",
            "gauge",
            "Objects whose newest version cannot be used; what they said before stands. Findings name them.",
            "",
            ("cluster", "kind"),
            {},
        )
        self.heard = Metric(
            "isthmus.watch.heard",
            "gauge",
            "When the watch last said something, in seconds of Unix time. API servers do once a minute.",
            "s",
            ("cluster", "kind"),
            {},
        )

    def all(self) -> tuple[Metric, ...]:
        """Every metric."""
        return (self.events, self.lists, self.restarts, self.invalid, self.heard)

    def forget(self, cluster: str) -> None:
        """The cluster has gone, and its series with it."""
        for metric in self.all():
            for labels in [labels for labels in metric.values if labels[0] == cluster]:
                del metric.values[labels]
