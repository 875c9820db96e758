"""Scenarios of the ambient mesh: what is in the clusters, step by step, and what ztunnels are told after each step.

`load` reads tests/golden/scenarios/<name>.yaml (format: tests/golden/README.md); `follow` drives a `World` through one
and yields what each step was to do and did. Expectations are written by hand after what Istio documents and does: they
are never rewritten from what the product says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct, ValidationError, convert, field

from aggregator.pipeline import RESOURCES
from aggregator.views import ztunnel
from tests.kit import golden
from tests.kit.manifests import Manifest
from tests.kit.world import World

SCENARIOS = Path(__file__).parent.parent / "golden" / "scenarios"
HOME = "alpha"


class Difference(Struct, frozen=True, forbid_unknown_fields=True):
    """A place where istiod says something else, and why we do not. `path` is in the notation of `golden.Difference`,
    below `workload` or `service`; empty, it is the whole resource. `istiod: null` says that istiod has nothing there.
    """

    resource: str
    istiod: Any
    reason: str
    path: str = ""


class Step(Struct, frozen=True, forbid_unknown_fields=True):
    """What happens, and all that ztunnels are told of it: changed resources by name, null for one that goes.

    `delete` names objects as "<kind> <namespace>/<name>". `findings` are all that stand after the step, each as
    "<cluster> <kind> <namespace>/<name>: <code> at <field>".
    """

    does: str
    apply: Mapping[str, Sequence[Manifest]] = {}
    delete: Mapping[str, Sequence[str]] = {}
    leave: Sequence[str] = ()
    addresses: Mapping[str, Any] = {}
    policies: Mapping[str, Any] = {}
    findings: Sequence[str] = ()
    differs: Sequence[Difference] = ()


class Scenario(Struct, frozen=True, forbid_unknown_fields=True):
    """A scenario; it starts where its `base`, if it has one, ends."""

    about: str
    steps: Sequence[Step]
    base: str = ""
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """DNS names with the addresses they have."""


class Told(Struct, frozen=True):
    """What ztunnels were told in a step, in the form of `Step`, and what they hold after it."""

    addresses: Mapping[str, Any]
    policies: Mapping[str, Any]
    findings: Sequence[str]
    held: Mapping[str, Any]


def names() -> tuple[str, ...]:
    """All scenarios, in order."""
    return tuple(sorted(path.stem for path in SCENARIOS.glob("*.yaml")))


def load(name: str) -> Scenario:
    """Reads a scenario. Raises ValueError, naming file and cause, for one that cannot be read."""
    path = SCENARIOS / f"{name}.yaml"
    try:
        return convert(yaml.safe_load(path.read_text()), Scenario)
    except (yaml.YAMLError, ValidationError) as error:
        raise ValueError(f"{path}: {error}") from None


def follow(scenario: Scenario) -> Iterator[tuple[Step, Told]]:
    """Every step of a scenario itself, not of its base, with what came of it."""
    world = World(HOME)
    _lead(world, scenario)
    for step in scenario.steps:
        yield step, _take(world, step)


def value_at(resource: Any, path: str) -> Any:
    """What stands at a place of a resource; None for nothing."""
    inner = resource.get("workload") or resource.get("service") or resource if resource else {}
    return dict(golden.places("", inner)).get(path) if path else resource


def _lead(world: World, scenario: Scenario) -> None:
    if scenario.base:
        base = load(scenario.base)
        _lead(world, base)
        for step in base.steps:
            _take(world, step)
    for name, addresses in scenario.names.items():
        world.resolve(name, *addresses)


def _take(world: World, step: Step) -> Told:
    for cluster, objects in step.apply.items():
        world.apply(cluster, *objects)
    for cluster, gone in step.delete.items():
        world.facts.apply([(_key(cluster, name), None) for name in gone])
    for cluster in step.leave:
        world.leave(cluster)
    changes = world.step().published.get(RESOURCES, {})

    def told(view: Any) -> dict[str, Any]:
        return {
            name: None if resource is None else _plain(view.type_url, resource.body)
            for (where, name), resource in changes.items()
            if where == view.name
        }

    held = {**world.addresses(), **world.authorizations()}
    findings = [
        f"{one.object[0]} {one.object[1]} {one.object[2]}/{one.object[3]}: {one.code} at {one.field}"
        for one in world.findings()
    ]
    addresses, policies = told(ztunnel.ADDRESSES), told(ztunnel.AUTHORIZATIONS)
    return Told(addresses, policies, findings, {name: _untyped(one) for name, one in held.items()})


def _plain(type_url: str, body: bytes | memoryview) -> dict[str, Any]:
    return _untyped(golden.decode(type_url, body))


def _untyped(resource: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in resource.items() if name != "@type"}


def _key(cluster: str, name: str) -> tuple[str, str, str, str]:
    kind, _, path = name.partition(" ")
    namespace, _, own = path.rpartition("/")
    return (cluster, kind, namespace, own)
