"""ConfigMaps of root certificates: what is kept of their text, and whose they are."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit import manifests as m
from tests.unit.watchers.recorded import recorded
from watchers.facts import kinds
from watchers.facts.root_certificates import RootCertificates, digest

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


def fact(document: Any) -> RootCertificates:
    keyed = kinds.decode(document, "west", "istio-system")
    assert keyed is not None
    assert isinstance(keyed[1], RootCertificates)
    return keyed[1]


def managed(*entries: tuple[str, Any]) -> m.Manifest:
    return m.root_certificates(
        "shop", PEM, managedFields=[{"manager": manager, "fieldsV1": fields} for manager, fields in entries]
    )


def test_a_recorded_one_is_ours_and_an_annotation_of_another_is_no_claim() -> None:
    assert kinds.decode(recorded("root_certificates"), "west", "istio-system") == (
        ("west", "RootCertificates", "shop", "istio-ca-root-cert"),
        RootCertificates(digest(PEM), labelled=True, owned=True),
    )


def test_who_owns_the_text_or_the_label_is_known_by_name() -> None:
    text: m.Manifest = {"f:data": {"f:root-cert.pem": {}}}
    label: m.Manifest = {"f:metadata": {"f:labels": {"f:istio.io/config": {}}}}
    found = fact(managed(("pilot-discovery", text), ("isthmus", label), ("kubectl-label", label)))
    assert (found.owned, found.managers) == (True, ("kubectl-label", "pilot-discovery"))


@pytest.mark.parametrize(
    "fields",
    [
        None,
        {},
        {"f:data": {"f:other": {}}},
        {"f:data": {".": {}}},
        {"f:metadata": {"f:labels": {"f:other": {}}}},
        {"f:metadata": None, "f:data": None},
    ],
)
def test_who_owns_something_else_has_no_claim(fields: Any) -> None:
    found = fact(managed(("isthmus", fields), ("somebody", fields)))
    assert (found.owned, found.managers) == (False, ())


@pytest.mark.parametrize("data", [None, {}, {"other": "x"}, {"root-cert.pem": None}])
def test_one_without_the_entry_has_no_digest(data: Any) -> None:
    assert fact({**m.root_certificates("shop", PEM), "data": data}).digest == ""


@pytest.mark.parametrize("labels", [None, {}, {"istio.io/config": "false"}, {"istio.io/config": None}])
def test_only_the_label_with_its_value_counts(labels: Any) -> None:
    document = m.root_certificates("shop", PEM)
    assert not fact({**document, "metadata": {**document["metadata"], "labels": labels}}).labelled


def test_what_is_kept_does_not_grow_with_what_somebody_writes() -> None:
    document = managed(*((f"{number}" * 5_000, {"f:data": {"f:root-cert.pem": {}}}) for number in range(200)))
    found = fact({**document, "data": {"root-cert.pem": "\ud800" + "x" * 1_000_000}})
    assert len(found.digest) == 64
    assert sum(len(one) for one in found.managers) <= 1024


def test_equal_texts_are_kept_once() -> None:
    one, other = fact(m.root_certificates("shop", PEM)), fact(m.root_certificates("bank", PEM))
    assert one.digest is other.digest


def test_a_config_map_of_another_name_is_no_fact() -> None:
    document = m.root_certificates("shop", PEM)
    other = {**document, "metadata": {**document["metadata"], "name": "kube-root-ca.crt"}}
    assert kinds.decode(other, "west", "istio-system") is None
