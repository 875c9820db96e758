"""Which addresses ServiceEntries are told that their hosts were given, and which are left alone."""

from __future__ import annotations

from typing import Any

from tests.kit import manifests as m
from tests.unit.aggregator.writes.told import ToldWorld

NAME = "shop/a"


def entry(name: str = NAME, *hosts: str, **more: Any) -> m.Manifest:
    return m.service_entry(name, *(hosts or ("a.ext",)), **{"resolution": "DNS", **more})


def world(*objects: m.Manifest) -> ToldWorld:
    told = ToldWorld()
    told.apply(m.namespace("istio-system", network="net-a"), m.namespace("shop"), *objects)
    return told


def shown(told: ToldWorld, name: str = NAME) -> list[tuple[str, str]]:
    return [(one["host"], one["value"]) for one in told.status("ServiceEntry", name).get("addresses") or ()]


def served(told: ToldWorld, host: str) -> set[tuple[str, str]]:
    service = told.world.address(f"shop/{host}")
    return {(host, one["address"]) for one in service.get("addresses", [])}


def test_an_entry_shows_what_its_hosts_were_given_which_is_what_is_served() -> None:
    told = world(entry(NAME, "a.ext", "b.ext"))
    assert told.settle() == [("alpha", "ServiceEntry", "shop", "a", "status")]
    assert len(shown(told)) == 4
    assert set(shown(told)) == served(told, "a.ext") | served(told, "b.ext")
    assert told.settle() == []


def test_what_is_shown_already_is_not_written_whoever_wrote_it() -> None:
    told = world(entry(allocated={"a.ext": ["2001:2::9", "240.240.0.9"]}))
    assert told.settle() == []
    assert served(told, "a.ext") == {("a.ext", "240.240.0.9"), ("a.ext", "2001:2::9")}


def test_what_is_missing_is_added_to_what_is_kept() -> None:
    told = world(entry(allocated={"a.ext": ["240.240.0.9"]}))
    assert len(told.settle()) == 1
    assert ("a.ext", "240.240.0.9") in shown(told)
    assert len(shown(told)) == 2


def test_a_process_that_starts_anew_gives_the_same_and_writes_nothing() -> None:
    told = world(entry(), m.service_entry("shop/b", "b.ext", resolution="DNS"))
    told.settle()
    again = ToldWorld()
    again.store = told.store
    for kind, name in (("Namespace", ("", "shop")), ("ServiceEntry", ("shop", "a")), ("ServiceEntry", ("shop", "b"))):
        again._see(kind, name)
    assert again.writes() == {}
    assert served(again, "a.ext") == served(told, "a.ext") != set()


def test_an_entry_that_is_given_none_any_more_loses_what_we_wrote() -> None:
    told = world(entry())
    told.settle()
    told.apply(entry(addresses=["10.1.2.3"]))
    assert len(told.settle()) == 1
    assert shown(told) == []
    assert told.settle() == []


def test_what_others_wrote_of_an_entry_that_is_given_none_is_left_alone() -> None:
    told = world(entry(resolution="NONE", allocated={"a.ext": ["240.240.0.9"]}))
    assert told.settle() == []
    assert shown(told) == [("a.ext", "240.240.0.9")]


def test_a_host_that_another_entry_has_is_not_shown() -> None:
    older = entry("shop/z", "a.ext", created="2026-01-01T00:00:00Z")
    told = world(older, entry(NAME, "a.ext", "b.ext", created="2026-01-02T00:00:00Z"))
    told.settle()
    assert {host for host, _ in shown(told)} == {"b.ext"}
    assert {host for host, _ in shown(told, "shop/z")} == {"a.ext"}


def test_entries_of_remote_clusters_are_told_nothing() -> None:
    told = ToldWorld(remote_entries=True)
    told.world.apply("beta", m.namespace("shop"), entry(is_global=True))
    assert told.writes() == {}


def test_nothing_is_told_before_home_has_been_read() -> None:
    told = ToldWorld()
    told.world.cluster("alpha", "syncing")
    told.world.apply("alpha", m.namespace("shop"), entry())
    assert told.writes() == {}
