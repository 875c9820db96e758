"""The root certificates that home's namespaces are given, and those that are left to others."""

from __future__ import annotations

from typing import Any

import pytest

from aggregator.writes.root_certificates import OF_KUBERNETES, ROOTS
from tests.kit import manifests as m
from tests.unit.aggregator.writes.told import ToldWorld
from watchers.facts.cluster import Answered
from watchers.owned_objects import DistributedRoots
from watchers.writes import WriteKey

ONE, TWO = "-----BEGIN CERTIFICATE-----\none\n", "-----BEGIN CERTIFICATE-----\ntwo\n"
NAME = "istio-ca-root-cert"


def key(namespace: str) -> WriteKey:
    return "alpha", "ConfigMap", namespace, NAME, "object"


class Home(ToldWorld):
    """Home alpha with the namespaces `shop` and `bank`, whose ConfigMaps have been read, and the roots `ONE`."""

    def __init__(self, roots: str = ONE, *, read: bool = True, **settings: Any) -> None:
        super().__init__(**{"distributes_roots": True, **settings})
        self.answer(read=read)
        self.apply(m.namespace("shop"), m.namespace("bank"))
        self.trust(roots)

    def answer(self, *, read: bool) -> None:
        answered = Answered((), ("RootCertificates",) if read else ())
        self.world.facts.apply([(("alpha", "Answered", "", "alpha"), answered)])

    def trust(self, roots: str) -> Any:
        """These are the roots from now on; what came of it."""
        return self.world.step({self.world.pipeline.roots: {ROOTS: roots}})

    def settle(self) -> list[WriteKey]:
        return sorted(super().settle())

    def text(self, namespace: str) -> str:
        stored = self.store.get("ConfigMap", (namespace, NAME))
        assert stored is not None
        return str(stored.document["data"]["root-cert.pem"])

    def given(self, namespace: str = "shop") -> DistributedRoots | None:
        """What is to be written into a namespace."""
        write = self.writes().get(key(namespace))
        assert write is None or isinstance(write, DistributedRoots)
        return write

    def present(self, *documents: m.Manifest) -> None:
        """ConfigMaps as somebody wrote them."""
        self.store.apply(*documents)
        self.world.apply("alpha", *documents)

    def said(self) -> list[str]:
        return [str(one) for one in self.world.findings() if one.code == "RootsOfOthers"]


def owned(text: str = ONE, *others: str, **metadata: Any) -> m.Manifest:
    return m.root_certificates("shop", text, "isthmus", *others, **metadata)


def test_every_namespace_of_home_is_given_the_roots_once() -> None:
    told = Home()
    assert told.settle() == [key("bank"), key("shop")]
    assert told.text("shop") == told.text("bank") == ONE
    stored = told.store.get("ConfigMap", ("shop", NAME))
    assert stored is not None and dict(stored.labels) == {"istio.io/config": "true"}


def test_a_namespace_that_comes_is_given_them_and_costs_no_other_a_look() -> None:
    told = Home()
    told.apply(*(m.namespace(f"n{number}") for number in range(200)))
    told.settle()
    told.apply(m.namespace("new"))
    result = told.world.step()
    assert result.published["writes"] == {key("new"): DistributedRoots(ONE)}
    assert result.evaluated < 20


def test_other_roots_are_written_into_each_by_as_many_looks() -> None:
    told = Home()
    told.apply(*(m.namespace(f"n{number}") for number in range(200)))
    told.settle()
    result = told.trust(ONE + TWO)
    assert set(result.published["writes"].values()) == {DistributedRoots(ONE + TWO)}
    assert len(result.published["writes"]) == 202 <= result.evaluated < 210
    told.settle()
    assert told.text("n7") == ONE + TWO


def test_equal_roots_change_nothing() -> None:
    told = Home()
    told.settle()
    assert told.trust(ONE).evaluated < 5
    assert not told.writes()


def test_one_that_is_deleted_comes_back() -> None:
    told = Home()
    told.settle()
    told.remove("ConfigMap", f"shop/{NAME}")
    assert told.settle() == [key("shop")]


@pytest.mark.parametrize("manager", ["kubectl-edit", "kubectl-patch", "kubectl-client-side-apply", "kubectl"])
@pytest.mark.parametrize("text", [TWO, ""])
def test_what_a_person_changed_is_set_right_by_force(manager: str, text: str) -> None:
    told = Home()
    told.present(owned(text, manager))
    assert told.given() == DistributedRoots(ONE, force=True)


def test_what_nobody_else_owns_needs_no_force() -> None:
    told = Home()
    told.present(owned(TWO))
    assert told.given() == DistributedRoots(ONE)


def test_an_entry_that_was_taken_out_and_a_label_come_back() -> None:
    told = Home()
    for changed in ({**owned(), "data": {}}, owned(labels={})):
        told.present(changed)
        assert told.given() == DistributedRoots(ONE)


OTHERS: list[m.Manifest] = [
    m.root_certificates("shop", TWO, "pilot-discovery"),
    m.root_certificates("shop", TWO, "kubectl-create"),
    m.root_certificates("shop", TWO),
    # Istio took it over, or writes what we do as well: the next word would be its own again.
    owned(TWO, "pilot-discovery"),
    owned(TWO, "kubectl-edit", "istio-csr"),
    {**m.root_certificates("shop", TWO, "pilot-discovery"), "data": {}},
]


@pytest.mark.parametrize("document", OTHERS)
def test_what_somebody_else_keeps_is_never_written_and_a_finding_names_it(document: m.Manifest) -> None:
    told = Home()
    told.present(document)
    assert told.given() is None
    (said,) = told.said()
    assert said.startswith(f'ConfigMap shop/{NAME} in alpha: data["root-cert.pem"]: holds ')
    assert "delete the ConfigMap" in said


def test_a_finding_names_the_owner() -> None:
    told = Home()
    told.present(m.root_certificates("shop", TWO, "kubectl-edit", "pilot-discovery"))
    told.settle()
    assert "belongs to pilot-discovery." in told.said()[0]


@pytest.mark.parametrize("managers", [(), ("pilot-discovery",), ("isthmus", "pilot-discovery")])
def test_what_somebody_else_keeps_is_no_matter_while_it_says_the_same(managers: tuple[str, ...]) -> None:
    told = Home()
    told.present(m.root_certificates("shop", ONE, *managers, labels={}))
    assert told.settle() == [key("bank")]
    assert told.said() == []
    told.trust(TWO)
    assert len(told.said()) == 1


def test_one_of_others_that_is_deleted_is_made_anew() -> None:
    told = Home()
    told.present(m.root_certificates("shop", TWO, "pilot-discovery"))
    told.settle()
    told.remove("ConfigMap", f"shop/{NAME}")
    assert told.settle() == [key("shop")]
    assert told.said() == []


@pytest.mark.parametrize("name", sorted(OF_KUBERNETES))
def test_namespaces_of_kubernetes_are_given_none(name: str) -> None:
    told = Home()
    told.apply(m.namespace(name))
    assert key(name) not in told.settle()


def test_a_namespace_that_is_being_deleted_is_left_alone() -> None:
    told = Home()
    told.settle()
    told.apply(m.namespace("shop", deletionTimestamp="2026-01-02T00:00:00Z"))
    told.remove("ConfigMap", f"shop/{NAME}")
    told.trust(TWO)
    assert told.settle() == [key("bank")]


def test_namespaces_that_do_not_count_keep_what_they_have() -> None:
    told = Home()
    told.settle()
    told.apply(m.mesh_config_map(discoverySelectors=[{"matchLabels": {"mesh": "on"}}]))
    told.apply(m.namespace("bank", labels={"mesh": "on"}))
    told.trust(TWO)
    assert told.settle() == [key("bank")]
    assert told.text("shop") == ONE


def test_namespaces_of_other_clusters_are_given_none() -> None:
    told = Home()
    told.settle()
    told.world.apply("beta", m.namespace("shop"), m.namespace("far"))
    result = told.world.step()
    assert "writes" not in result.published
    assert told.settle() == []


def test_turned_off_it_leaves_what_there_is() -> None:
    told = Home(distributes_roots=False)
    told.present(owned(TWO))
    assert told.settle() == []
    assert told.said() == []


def test_nothing_is_made_before_it_is_known_what_is_there() -> None:
    told = Home(read=False)
    assert told.writes() == {}
    told.answer(read=True)
    assert told.settle() == [key("bank"), key("shop")]


def test_nothing_is_made_before_home_has_been_read() -> None:
    told = Home(roots="")
    told.world.cluster("alpha", "syncing")
    told.trust(ONE)
    assert told.writes() == {}
    told.world.cluster("alpha")
    assert told.settle() == [key("bank"), key("shop")]


@pytest.mark.parametrize("roots", ["", "\n"])
def test_no_roots_are_never_distributed(roots: str) -> None:
    told = Home()
    told.settle()
    told.trust(roots)
    assert told.writes() == {}
    assert told.text("shop") == ONE


def test_an_unread_remote_delays_nothing() -> None:
    told = Home()
    told.world.cluster("beta", "connecting")
    assert told.settle() == [key("bank"), key("shop")]
