"""Clusters as people read them: a table of all, and one of them unfolded.

In: Clusters, as replicas say them. Out: lines. Ages are reckoned from when the replica spoke, so that the clock of
whoever asks does not matter. Decides nothing but what is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from aggregator.cli.output import EMPTY, age, ago, clock, cut, printable, table
from aggregator.operate.cluster_list import Cluster, Kind
from aggregator.operate.reading import Stage, stages

COLOURS = {
    "Synced": "green",
    "Connecting": "yellow",
    "Syncing": "yellow",
    "UpdatePending": "yellow",
    "Stale": "red",
    "Denied": "red",
}

KIND_COLOURS = {"synced": "green", "stale": "red", "denied": "red"}
STATE_COLUMN = 2

_HEADERS = ("CLUSTER", "NETWORK", "STATE", "LAG", "SERVICES", "ENDPOINTS", "TOKEN-EXPIRES", "CERT-EXPIRES")
_WIDE_HEADERS = ("SINCE", "SERVER", "REGISTERED-BY")
_REASON_LETTERS = 100
_COMPARED = ("state", "network", "services", "endpoints", "uid")


def rows(clusters: Iterable[Cluster], *, wide: bool, replicas: bool, headers: bool) -> list[list[str]]:
    """The cells of a table of clusters; `replicas` adds a column that says whose view a row is."""
    added = [*(_WIDE_HEADERS if wide else ()), *(["REPLICA"] if wide or replicas else []), "REASON"]
    made = [[*_HEADERS, *added]] if headers else []
    for one in clusters:
        now = one.observed
        cells = [
            one.cluster,
            one.network,
            one.state,
            _lag(one),
            str(one.services),
            str(one.endpoints),
            ago(one.token_expires, now),
            ago(one.certificate_expires, now),
        ]
        if wide:
            cells += [ago(one.since, now), one.server, one.registered_by]
        if wide or replicas:
            cells.append(one.replica)
        cells.append(one.reason if wide else cut(one.reason, _REASON_LETTERS))
        made.append([printable(cell) or EMPTY for cell in cells])
    return made


def unfolded(seen: Sequence[Cluster], *, colours: bool) -> list[str]:
    """All there is to say of one cluster, as each replica sees it; the first one's view is shown whole."""
    one = seen[0]
    now = one.observed
    said: list[tuple[str, str]] = [
        ("cluster", f"{one.cluster} (home)" if one.home else one.cluster),
        ("network", one.network or EMPTY),
        ("state", _state(one)),
        ("lag", _lag(one)),
        ("content", f"{one.services} services, {one.endpoints} ready endpoints"),
        ("server", ", ".join(part for part in (one.server, one.uid and f"uid {one.uid}") if part)),
        ("registered by", one.registered_by),
        ("token", _expiry(one.token_expires, now)),
        ("certificate", _expiry(one.certificate_expires, now)),
        ("server certificate", _expiry(one.server_certificate_expires, now)),
        ("endpoints", _withdrawal(one)),
        ("reading", " | ".join(map(_stage, stages(one)))),
        ("replicas", _replicas(seen)),
    ]
    shown = [[name, printable(text)] for name, text in said if text]
    lines = table(shown)
    if one.kinds:
        lines += ["", *table(_kinds(one.kinds, now), 1, KIND_COLOURS if colours else None)]
    return lines


def _lag(one: Cluster) -> str:
    return EMPTY if one.lag is None else age(one.lag)


def _state(one: Cluster) -> str:
    since = f" since {clock(one.since, one.observed)} ({ago(one.since, one.observed)})" if one.since else ""
    return f"{one.state}{since}: {one.reason}" if one.reason else f"{one.state}{since}"


def _expiry(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return ""
    return f"{'expires' if moment > now else 'expired'} {ago(moment, now)} ({moment:%Y-%m-%dT%H:%M:%SZ})"


def _withdrawal(one: Cluster) -> str:
    if one.withdrawn is None:
        return ""
    if one.withdrawn <= one.observed:
        return f"withdrawn at {clock(one.withdrawn, one.observed)}"
    return f"served as last known until {clock(one.withdrawn, one.observed)}, then withdrawn"


def _stage(stage: Stage) -> str:
    word = EMPTY if stage.state == "unknown" else stage.state
    if stage.state == "FAIL":
        return f"{stage.name} {word} ({stage.detail})"
    return f"{stage.name} {word} {stage.detail}".rstrip()


def _replicas(seen: Sequence[Cluster]) -> str:
    said = ", ".join(f"{one.replica} {one.state} lag {_lag(one)}" for one in seen)
    differ = [name for name in _COMPARED if len({getattr(one, name) for one in seen}) > 1]
    return f"{said}; they differ in {', '.join(differ)}" if differ else said


def _kinds(kinds: Iterable[Kind], now: datetime) -> list[list[str]]:
    made = [["KIND", "STATE", "OBJECTS", "HEARD", "CONFIRMED", "REASON"]]
    for kind in kinds:
        cells = [kind.kind, kind.state, str(kind.objects), ago(kind.heard, now), ago(kind.confirmed, now), kind.reason]
        made.append([printable(cell) or EMPTY for cell in cells])
    return made
