"""Which addresses ServiceEntries are told that their hosts were given, and of the waypoint they ask for."""

from __future__ import annotations

from typing import Any

from tests.kit import manifests as m
from tests.unit.aggregator.writes.told import ToldWorld

NAME = "shop/a"


def entry(name: str = NAME, *hosts: str, **more: Any) -> m.Manifest:
    return m.service_entry(name, *(hosts or ("a.ext",)), **{"resolution": "DNS", **more})


def world(*objects: m.Manifest, **settings: Any) -> ToldWorld:
    told = ToldWorld(**settings)
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


# Waypoints.

USES = {"istio.io/use-waypoint": "way"}
WAY = m.gateway("shop/way", addresses=["10.96.0.9"])
VISIBLE = {"defaultVisibility": "NAMESPACE"}
BOUND = {"istio.io/WaypointBound": "True WaypointAccepted"}


def in_charge(*objects: m.Manifest) -> ToldWorld:
    told = world(*objects, istio_classes=True)
    told.settle()
    return told


def test_an_entry_is_told_its_waypoint_beside_its_addresses() -> None:
    told = in_charge(entry(labels=USES), WAY)
    assert told.conditions("ServiceEntry", NAME) == BOUND
    assert len(shown(told)) == 2


def test_each_part_of_a_status_changes_and_goes_without_the_other() -> None:
    told = in_charge(entry(labels=USES), WAY)
    told.apply(entry())
    assert len(told.settle()) == 1
    assert (told.conditions("ServiceEntry", NAME), len(shown(told))) == ({}, 2)
    told.apply(entry(labels=USES, addresses=["10.1.2.3"]))
    told.settle()
    assert (told.conditions("ServiceEntry", NAME), shown(told)) == (BOUND, [])
    told.apply(entry(addresses=["10.1.2.3"]))
    told.settle()
    assert told.status("ServiceEntry", NAME) == {}


def test_addresses_that_others_wrote_stay_when_only_conditions_are_ours() -> None:
    given = {"a.ext": ["240.240.0.9"]}
    told = in_charge(entry(resolution="NONE", labels=USES, allocated=given), WAY)
    assert (told.conditions("ServiceEntry", NAME), shown(told)) == (BOUND, [("a.ext", "240.240.0.9")])
    told.apply(entry(resolution="NONE", allocated=given))
    told.settle()
    assert (told.conditions("ServiceEntry", NAME), shown(told)) == ({}, [("a.ext", "240.240.0.9")])


def test_what_only_its_namespace_sees_is_told_that_it_has_no_waypoint_of_another() -> None:
    mesh = m.mesh_config_map(serviceEntryVisibility=VISIBLE)
    labels = {**USES, "istio.io/use-waypoint-namespace": "infra"}
    told = in_charge(mesh, m.namespace("infra"), m.gateway("infra/way", addresses=["10.96.0.9"]), entry(labels=labels))
    assert told.conditions("ServiceEntry", NAME) == {"istio.io/WaypointBound": "False CrossNamespaceWaypointForbidden"}


def test_an_entry_with_a_wildcard_is_told_that_it_needs_a_waypoint_until_it_has_one() -> None:
    missing = {"istio.io/WaypointMissing": "True NoWaypointForWildcardService"}
    told = in_charge(entry(NAME, "*.ext", resolution="NONE"))
    assert told.conditions("ServiceEntry", NAME) == missing
    assert {one.code for one in told.world.findings()} == {"NoWaypointForWildcardService"}
    told.apply(entry(NAME, "*.ext", resolution="NONE", labels=USES))
    told.settle()
    unready = {"istio.io/WaypointBound": "False WaypointIsNotReady"}
    assert told.conditions("ServiceEntry", NAME) == {**missing, **unready}
    told.apply(WAY)
    told.settle()
    assert told.conditions("ServiceEntry", NAME) == BOUND
    assert told.world.findings() == []


def test_a_wildcard_with_an_address_needs_no_waypoint() -> None:
    assert in_charge(entry(NAME, "*.ext", resolution="NONE", addresses=["10.1.2.3"])).status("ServiceEntry", NAME) == {}


def test_an_entry_that_does_not_count_is_told_nothing_of_waypoints() -> None:
    assert in_charge(entry(labels={**USES, "istio.io/rev": "other"}), WAY).status("ServiceEntry", NAME) == {}
    service = m.service("shop/a", labels=USES)
    claimed = in_charge(service, entry(NAME, "a.shop.svc.cluster.local", labels=USES), WAY)
    assert claimed.conditions("ServiceEntry", NAME) == {}


def test_beside_istiod_nothing_is_told_of_waypoints() -> None:
    told = world(entry(labels=USES), entry("shop/wild", "*.ext", resolution="NONE"), WAY)
    told.settle()
    assert told.conditions("ServiceEntry", NAME) == {}
    assert told.status("ServiceEntry", "shop/wild") == {}
