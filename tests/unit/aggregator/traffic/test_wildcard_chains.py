"""Chains of wildcard hosts: which names go there, and which hosts under them do not."""

from __future__ import annotations

from typing import Any

import pytest

from aggregator.graph import Graph
from aggregator.mesh.home import Home
from aggregator.security.certificates import Certificate
from aggregator.traffic import tls_classes
from aggregator.traffic.annotations.tls import NO_TLS_SETTINGS, Tls
from aggregator.traffic.hosts import Host, Hosts
from aggregator.traffic.tls_classes import COMMON, Chains

INGRESS = ("alpha", "Ingress", "shop", "one")
SECRET = ("alpha", "TLSSecret", "shop", "one")


class Declared:
    """The part of the graph, fed with hosts and certificates."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.hosts: Any = self.graph.source("hosts")
        self.certificates: Any = self.graph.source("certificates of hosts")
        nothing: Any = self.graph.source("nothing")
        served = Hosts(self.hosts, self.certificates, nothing, nothing, nothing)
        declared = tls_classes.declare(self.graph, Home("alpha"), served, nothing, lambda *_: None)
        asked: Any = self.graph.source("asked")
        self.read = self.graph.derive("read", asked, lambda at, *_: declared.chains(at))
        self.step({asked: {"": True}})

    def step(self, inputs: dict[Any, Any]) -> None:
        self.graph.begin(inputs, 0.0)
        while self.graph.run(None) is None:
            pass

    def tell(self, *, gone: tuple[str, ...] = (), speaks: Tls = NO_TLS_SETTINGS, **pairs: str) -> Chains:
        """Hosts (`_` for a dot, `any` for the wildcard) and what is in their certificates."""
        names = {name.replace("any_", "*.").replace("_", "."): text.encode() for name, text in pairs.items()}
        hosts: dict[str, Host | None] = {
            name: Host(name, (), SECRET, INGRESS, speaks=speaks if name[0] == "*" else NO_TLS_SETTINGS)
            for name in names
        }
        certificates: dict[str, Certificate | None] = {
            name: Certificate(text, b"key", 0.0, ()) for name, text in names.items()
        }
        for name in gone:
            hosts[name] = certificates[name] = None
        self.step({self.hosts: hosts, self.certificates: certificates})
        return self.graph.values(self.read)[""]


def test_a_wildcard_host_has_a_chain_with_its_certificate_from_the_start() -> None:
    found = Declared().tell(any_example="wild")
    (chain,) = found.chains
    assert (chain.certificate, chain.scope_class) == ("*.example", COMMON)
    assert found.names == ((chain.name, ("*.example",)),)


def test_it_may_ask_not_to_have_one() -> None:
    assert Declared().tell(any_example="wild", speaks=Tls(chain="on-demand")) == Chains()


def test_a_host_under_it_with_another_certificate_goes_to_the_common_chain() -> None:
    found = Declared().tell(any_example="wild", a_example="own", b_example="wild", c_b_example="other")
    assert dict(found.names)[COMMON] == ("a.example",)


def test_hosts_under_no_wildcard_are_not_listed_and_those_under_one_that_goes_are_listed_no_more() -> None:
    declared = Declared()
    assert declared.tell(a_example="own") == Chains()
    assert COMMON in dict(declared.tell(any_example="wild").names)
    assert declared.tell(gone=("*.example",)) == Chains()


def test_where_too_many_hosts_under_it_have_their_own_its_certificate_is_fetched_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tls_classes, "MOST_EXCEPTIONS", 2)
    declared = Declared()
    few = declared.tell(any_example="wild", a_example="1", b_example="2")
    assert dict(few.names)[COMMON] == ("a.example", "b.example")
    assert declared.tell(c_example="3") == Chains()
    assert COMMON in dict(declared.tell(gone=("a.example",)).names)
