"""ReferenceGrants: who may refer, and to what."""

from __future__ import annotations

import pytest

from tests.kit import manifests as m
from tests.unit.watchers.recorded import recorded
from watchers.facts import kinds
from watchers.facts.invalid import InvalidObject
from watchers.facts.reference_grants import MOST_ENTRIES, GrantFrom, GrantTo, ReferenceGrant


def test_a_recorded_grant() -> None:
    assert kinds.decode(recorded("reference_grant"), "west", "istio-system") == (
        ("west", "ReferenceGrant", "certificates", "gateways"),
        ReferenceGrant(
            (GrantFrom("gateway.networking.k8s.io", "Gateway", "infra"),),
            (GrantTo("", "Secret", "shop"), GrantTo("", "ConfigMap", "")),
        ),
    )


def test_both_versions_of_the_api_are_read() -> None:
    grant = m.reference_grant("certs/g", "infra", "a")
    versions = ("gateway.networking.k8s.io/v1beta1", "gateway.networking.k8s.io/v1")
    old, new = (kinds.decode({**grant, "apiVersion": version}, "w", "s") for version in versions)
    assert old == new is not None


@pytest.mark.parametrize("field", ["from", "to"])
def test_a_grant_of_more_entries_than_the_api_allows_is_refused(field: str) -> None:
    grant = m.reference_grant("certs/g", "infra", "a")
    grant["spec"][field] *= MOST_ENTRIES
    assert kinds.decode(grant, "w", "s") is not None
    grant["spec"][field] *= 2
    with pytest.raises(InvalidObject, match="entries"):
        kinds.decode(grant, "w", "s")
