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
        self.withheld = Metric(
            "isthmus.watch.objects.withheld",
            "gauge",
            "Objects that are not taken, since the cluster holds as many as `--cluster-objects` allows.",
            "",
            ("cluster", "kind"),
            {},
        )
        self.slowed = Metric(
            "isthmus.watch.slowed",
            "counter",
            "Time in which a cluster was not read, since it says more than `--cluster-bytes` or `--cluster-events` "
            "allow. Nothing is lost by it.",
            "s",
            ("cluster",),
            {},
        )

    def all(self) -> tuple[Metric, ...]:
        """Every metric."""
        return (self.events, self.lists, self.restarts, self.invalid, self.heard, self.withheld, self.slowed)

    def forget(self, cluster: str) -> None:
        """The cluster has gone, and its series with it."""
        for metric in self.all():
            for labels in [labels for labels in metric.values if labels[0] == cluster]:
                del metric.values[labels]


class LookupMetrics:
    """The metrics of the lookups of a process."""

    def __init__(self) -> None:
        self.lookups = Metric(
            "isthmus.lookups",
            "counter",
            "Lookups of DNS names: `found`, `empty` and `absent` (the name has no addresses, or does not exist), "
            "`failed` (no name server answers, or not usefully).",
            "",
            ("outcome",),
            {},
        )
        self.names = Metric(
            "isthmus.lookups.names",
            "gauge",
            "DNS names that gateways are known by: `current`; `outdated`, whose last lookup failed, so that addresses "
            "of before stand; `unresolved`, which have no addresses. Findings name the gateways.",
            "",
            ("state",),
            {("current",): 0, ("outdated",): 0, ("unresolved",): 0},
        )
        self._states: dict[str, str] = {}

    def all(self) -> tuple[Metric, ...]:
        """Every metric."""
        return (self.lookups, self.names)

    def answered(self, name: str, outcome: str, *, resolved: bool) -> None:
        """A name was looked up; ``resolved`` if it has addresses, of now or of before."""
        self.lookups.add(outcome)
        self.forget(name)
        state = self._states[name] = "unresolved" if not resolved else "current" if outcome == "found" else "outdated"
        self.names.add(state)

    def forget(self, name: str) -> None:
        """The name is not looked up any more."""
        state = self._states.pop(name, None)
        if state is not None:
            self.names.add(state, amount=-1)


class WriteMetrics:
    """The metrics of what is written to home, and of who may."""

    def __init__(self) -> None:
        self.writes = Metric(
            "isthmus.writes",
            "counter",
            "Writes to the home cluster. `done` is as it should be, `gone` had no object any more. `conflict`, "
            "`throttled` and `failed` ones are tried again, `forbidden` ones after a minute, `refused` ones when there "
            "is something else to say.",
            "",
            ("outcome",),
            {},
        )
        self.pending = Metric(
            "isthmus.writes.pending",
            "gauge",
            "Objects of the home cluster that are still to be told something, by whichever process leads.",
            "",
            (),
            {},
        )
        self.leader = Metric(
            "isthmus.leader", "gauge", "Whether this process is the one that writes to the home cluster.", "", (), {}
        )

    def all(self) -> tuple[Metric, ...]:
        """Every metric."""
        return (self.writes, self.pending, self.leader)
