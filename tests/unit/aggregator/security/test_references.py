"""References between namespaces: what a ReferenceGrant allows, and what it does not."""

from __future__ import annotations

from typing import Any

import pytest

from aggregator.graph import Graph, Source
from aggregator.mesh.home import Home
from aggregator.security import references
from aggregator.security.references import Referrer, Target
from tests.kit import manifests as m
from tests.kit.manifests import Manifest
from tests.kit.world import fact
from watchers.facts.keys import ObjectKey
from watchers.facts.reference_grants import ReferenceGrant

GATEWAY = Referrer("gateway.networking.k8s.io", "Gateway", "infra")
SECRET = Target("", "Secret", "certs", "tls")


class Asked:
    """A graph that says whether references count, with these grants of home alpha (or of another cluster)."""

    def __init__(self, *grants: Manifest, cluster: str = "alpha", unselected: str = "") -> None:
        self.graph = Graph()
        self.grants: Source[ObjectKey, ReferenceGrant] = self.graph.source("grants")
        asked: Source[tuple[Referrer, Target], bool] = self.graph.source("asked")
        allows = references.declare(
            self.graph, Home(cluster="alpha"), lambda _, __, namespace: namespace != unselected, self.grants
        )
        self.answers = self.graph.derive("answers", asked, lambda at, key, _: allows(at, *key))
        self.asked = asked
        self.step({self.grants: dict(fact(cluster, one) for one in grants)})

    def step(self, inputs: Any) -> int:
        """A pass; how many functions ran."""
        self.graph.begin(inputs, 0.0)
        while (result := self.graph.run(None)) is None:
            pass
        return result.evaluated

    def __call__(self, referrer: Referrer = GATEWAY, target: Target = SECRET) -> bool:
        self.step({self.asked: {(referrer, target): True}})
        return self.graph.values(self.answers)[referrer, target]


def test_within_a_namespace_every_reference_counts() -> None:
    assert Asked()(GATEWAY, Target("", "Secret", "infra", "tls"))


def test_into_another_namespace_none_counts_without_a_grant() -> None:
    assert not Asked()()


@pytest.mark.parametrize("names", [("tls",), ("other", "tls"), ()], ids=["by name", "among others", "any"])
def test_a_grant_there_allows_it(names: tuple[str, ...]) -> None:
    assert Asked(m.reference_grant("certs/g", "infra", *names))()


@pytest.mark.parametrize(
    "grant",
    [
        m.reference_grant("infra/g", "infra", "tls"),
        m.reference_grant("infra/g", "certs", "tls"),
        m.reference_grant("other/g", "infra", "tls"),
        m.reference_grant("certs/g", "other", "tls"),
        m.reference_grant("certs/g", "certs", "tls"),
        m.reference_grant("certs/g", "infra", "tls2"),
        m.reference_grant("certs/g", "infra", "tls", kind="HTTPRoute"),
        m.reference_grant("certs/g", "infra", "tls", group=""),
        m.reference_grant("certs/g", "infra", "tls", group="gateway.networking.x-k8s.io"),
        m.reference_grant("certs/g", "infra", "tls", target="ConfigMap"),
        m.reference_grant("certs/g", "infra", "tls", target_group="example.com"),
        m.reference_grant("certs/g", "*", "tls"),
        m.reference_grant("certs/g", "", "tls"),
        m.reference_grant("certs/g", "infra", "*"),
    ],
    ids=lambda grant: str(grant["spec"])[:60],
)
def test_a_grant_of_anything_else_does_not(grant: Manifest) -> None:
    assert not Asked(grant)()


def test_a_grant_in_another_cluster_does_not() -> None:
    assert not Asked(m.reference_grant("certs/g", "infra", "tls"), cluster="beta")()


def test_nothing_counts_into_a_namespace_that_is_not_selected() -> None:
    assert not Asked(m.reference_grant("certs/g", "infra", "tls"), unselected="certs")()


def test_what_has_no_name_is_not_granted_by_a_grant_of_all() -> None:
    assert not Asked(m.reference_grant("certs/g", "infra"))(GATEWAY, Target("", "Secret", "certs", ""))


def test_two_entries_of_a_grant_are_not_mixed_with_those_of_another() -> None:
    asked = Asked(
        m.reference_grant("certs/a", "infra", "other"), m.reference_grant("certs/b", "other", "tls")
    )
    assert not asked()


def test_a_grant_that_goes_takes_back_what_it_allowed_and_costs_nobody_else() -> None:
    grant, other = m.reference_grant("certs/g", "infra", "tls"), m.reference_grant("certs/h", "infra", "b")
    asked = Asked(grant, other)
    assert asked()
    assert asked(GATEWAY, Target("", "Secret", "certs", "b"))
    ran = asked.step({asked.grants: {fact("alpha", grant)[0]: None}})
    assert not asked.graph.values(asked.answers)[GATEWAY, SECRET]
    assert ran == 1
