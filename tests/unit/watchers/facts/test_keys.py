"""Shared values and the ids of clusters."""

from __future__ import annotations

import pytest

from watchers.facts.invalid import InvalidObject
from watchers.facts.keys import Shared, check_cluster, label, shared_annotations, subdomain


@pytest.mark.parametrize("cluster", ["west", "Kubernetes", "cn-proj_zone-1.a", "a", "9"])
def test_ids_of_clusters(cluster: str) -> None:
    assert check_cluster(cluster) == cluster


@pytest.mark.parametrize("cluster", ["", "a/b", "-a", "a-", "a b", "a\n", "é", "a" * 254, "a//Pod/b/c"])
def test_ids_no_cluster_can_have(cluster: str) -> None:
    with pytest.raises(ValueError, match="cannot be the id of a cluster: use"):
        check_cluster(cluster)


@pytest.mark.parametrize("name", ["a", "a-1", "a--b", "a.b", "x" * 253, f"job-{'x' * 90}-abcde.v1", "1.2.3"])
def test_what_objects_are_called(name: str) -> None:
    assert subdomain(name, "metadata", "name") == name


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a..b", ".a", "a.", "a.-b", "a_b", "a/b", "a\n", "é", "x" * 254])
def test_what_no_object_is_called(name: str) -> None:
    with pytest.raises(InvalidObject, match=r"metadata\.name is .* which no object can be called"):
        subdomain(name, "metadata", "name")


def test_an_absent_label_is_an_empty_one() -> None:
    labels = (("a", "1"), ("b", "2"))
    assert (label(labels, "b"), label(labels, "c")) == ("2", "")


def test_annotations_that_are_not_there_are_not_kept() -> None:
    assert shared_annotations(("a", None), ("b", "")) == (("b", ""),)
    assert shared_annotations(("a", None)) == ()


def test_a_full_memory_forgets_and_goes_on() -> None:
    shared: Shared[str, str] = Shared(2)
    for value in ("a", "b", "c"):
        shared.add(value, value)
    assert [shared.get(value) for value in ("a", "b", "c")] == [None, None, "c"]
