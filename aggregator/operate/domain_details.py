"""What there is to say of one domain beside its line in a list: paths, findings, and why something is withheld.

In: the graph between two passes, the findings. Out: Details and texts, bounded whatever the objects hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from aggregator.cache.table import Table
from aggregator.findings import CATALOGUE, Finding
from aggregator.graph import Collection, Graph
from aggregator.operate.domain_list import MOST_DETAILS, Details, Flaw, Path, Told
from aggregator.pipeline import Pipeline
from aggregator.traffic.hosts import Host
from aggregator.traffic.rules import Rule
from watchers.facts.keys import ObjectKey

_MOST_READ = 5000
_KINDS = {"TLSSecret": "Secret"}


def details(
    pipeline: Pipeline,
    findings: Table[ObjectKey, tuple[Finding, ...]],
    host: str,
    objects: Iterable[ObjectKey],
    told: Sequence[Told],
) -> Details:
    """Everything about a domain that is made of these objects and told to these gateways."""
    domain = pipeline.graph.values(pipeline.hosts.hosts).get(host)
    rules = domain.rules[:MOST_DETAILS] if domain is not None else ()
    found = list(islice((one for key in objects for one in findings.get(key) or ()), _MOST_READ))
    # Of an Ingress with many hosts, what names this one comes first.
    found.sort(key=lambda one: host not in one.detail)
    in_order = sorted(told, key=lambda one: (one.acknowledged, one.gateway))
    return Details(
        paths=tuple(_path(pipeline, rule) for rule in rules),
        gateways=tuple(in_order[:MOST_DETAILS]),
        findings=tuple(map(_flaw, found[:MOST_DETAILS])),
    )


def missing(pipeline: Pipeline, domain: Host) -> list[str]:
    """The paths of a domain that answer 503 since there is nothing to lead to, as texts."""
    return [f"{rule.kind} {rule.path}" for rule in domain.rules if not _found(pipeline, rule)]


def withheld(graph: Graph, collection: Collection[Any, Any], host: str) -> tuple[str, str]:
    """Why a collection has nothing of a host: the code, and a text for people. Runs the derivation again."""
    why = graph.why(collection, host)
    reasons = why.withheld if why is not None else ()
    if not reasons:
        return "", "it is being worked out"
    entry = CATALOGUE.get(reasons[0].code)
    return reasons[0].code, reasons[0].detail or (entry.meaning if entry is not None else reasons[0].code)


def _found(pipeline: Pipeline, rule: Rule) -> bool:
    backend = pipeline.graph.values(pipeline.backends).get(rule.backend)
    return backend is not None and backend.found


def _path(pipeline: Pipeline, rule: Rule) -> Path:
    _, namespace, service, port = rule.backend.split("|")[:4] if rule.backend else ("", "", "", "")
    backend = f"{namespace}/{service}:{port}" if service else ""
    return Path(rule.kind, rule.path, backend, _found(pipeline, rule), f"{rule.origin[2]}/{rule.origin[3]}")


def _flaw(finding: Finding) -> Flaw:
    _, kind, namespace, name = finding.object
    return Flaw(
        code=finding.code,
        severity=finding.entry.severity,
        object=f"{_KINDS.get(kind, kind)} {namespace}/{name}",
        field=finding.field,
        detail=finding.detail,
        cure=finding.entry.cure,
    )
