"""Domains as people read them: a table of many, and one of them unfolded.

In: Domains, as replicas say them. Out: lines. Ages are reckoned from when the replica spoke, so that the clock of
whoever asks does not matter. Decides nothing but what is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from aggregator.cli.output import EMPTY, age, ago, clock, cut, printable, table
from aggregator.operate.domain_list import Domain

COLOURS = {
    "Served": "green",
    "CertificateExpired": "red",
    "NoCertificate": "red",
    "NotServed": "red",
    "Refused": "red",
    "BackendMissing": "yellow",
    "WithoutRule": "yellow",
}
STATE_COLUMN = 1

_HEADERS = ("DOMAIN", "STATE", "INGRESS", "CERT-EXPIRES", "CHANGED", "ACTIVATION", "GATEWAYS", "FINDINGS")
_REASON_LETTERS = 80
_COMPARED = ("state", "ingresses", "secret", "certificate_expires")


def rows(domains: Iterable[Domain], *, wide: bool, replicas: bool, headers: bool) -> list[list[str]]:
    """The cells of a table of domains; `replicas` adds a column that says whose view a row is."""
    added = [*(["SECRET"] if wide else []), *(["REPLICA"] if wide or replicas else []), "REASON"]
    made = [[*_HEADERS, *added]] if headers else []
    for one in domains:
        now = one.observed
        cells = [
            one.host,
            one.state,
            ", ".join(one.ingresses) if wide else _first(one.ingresses),
            ago(one.certificate_expires, now),
            ago(one.changed, now),
            _seconds(one.activation),
            f"{one.acknowledged}/{one.gateways}",
            str(one.findings) if one.findings else "",
        ]
        if wide:
            cells.append(one.secret)
        if wide or replicas:
            cells.append(one.replica)
        cells.append(one.reason if wide else cut(one.reason, _REASON_LETTERS))
        made.append([printable(cell) or EMPTY for cell in cells])
    return made


def unfolded(seen: Sequence[Domain]) -> list[str]:
    """All there is to say of one domain, as each replica sees it; the first one's view is shown whole."""
    one = seen[0]
    now = one.observed
    said: list[tuple[str, str]] = [
        ("domain", one.host),
        ("state", f"{one.state}: {one.reason}" if one.reason else one.state),
        ("ingresses", ", ".join(one.ingresses)),
        ("secret", one.secret),
        ("certificate", _expiry(one.certificate_expires, now)),
        ("changed", f"{clock(one.changed, now)} ({ago(one.changed, now)})" if one.changed else ""),
        ("activation", f"{_seconds(one.activation)} to the first gateway" if one.activation is not None else ""),
        ("gateways", f"{one.acknowledged} of {one.gateways} have acknowledged"),
        ("replicas", _replicas(seen) if len(seen) > 1 else ""),
    ]
    lines = table([[name, printable(text)] for name, text in said if text])
    for made in _details(seen):
        lines += ["", *table([[printable(cell) or EMPTY for cell in row] for row in made])]
    return lines


def _details(seen: Sequence[Domain]) -> Iterable[list[list[str]]]:
    """Tables: paths and findings as the first replica has them, gateways of all replicas."""
    details = [one.details for one in seen if one.details]
    if details and details[0].paths:
        paths = [
            [one.path, one.match, one.backend if one.found else f"{one.backend or 'no Service'} (503)", one.ingress]
            for one in details[0].paths
        ]
        yield [["PATH", "MATCH", "BACKEND", "INGRESS"], *paths]
    gateways = [
        [one.gateway, "yes" if one.acknowledged else "no", one.refusal] for each in details for one in each.gateways
    ]
    if gateways:
        yield [["GATEWAY", "ACKNOWLEDGED", "REFUSAL"], *gateways]
    if details and details[0].findings:
        findings = [
            [one.severity, one.code, one.object, one.field, f"{one.detail}. {one.cure}"] for one in details[0].findings
        ]
        yield [["SEVERITY", "FINDING", "OBJECT", "FIELD", "DETAIL"], *findings]


def _first(names: Sequence[str]) -> str:
    return f"{names[0]} +{len(names) - 1}" if len(names) > 1 else "".join(names)


def _seconds(seconds: float | None) -> str:
    """A length of time, in milliseconds where it is short."""
    if seconds is None:
        return EMPTY
    return f"{seconds * 1000:.0f}ms" if seconds < 0.9995 else age(seconds)


def _expiry(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return ""
    return f"{'expires' if moment > now else 'expired'} {ago(moment, now)} ({moment:%Y-%m-%dT%H:%M:%SZ})"


def _replicas(seen: Sequence[Domain]) -> str:
    said = ", ".join(f"{one.replica} {one.state} {one.acknowledged}/{one.gateways}" for one in seen)
    differ = [name for name in _COMPARED if len({getattr(one, name) for one in seen}) > 1]
    return f"{said}; they differ in {', '.join(differ)}" if differ else said
