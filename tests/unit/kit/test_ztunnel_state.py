"""What a ztunnel knows after responses in this or that order, and who wins when names or addresses clash."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest

from tests.kit.ztunnel import Trait, ZtunnelMachine
from tests.kit.ztunnel.messages import Resource, authorization, ports, response, service, workload
from tests.kit.ztunnel.records import NamespacedHostname, NetworkAddress, Service

HOST = "echo.demo"
KEY = NamespacedHostname("demo", HOST)
A, B = "c//Pod/demo/a", "c//Pod/demo/b"


def endpoint(uid: str, host: str = HOST, **fields: Any) -> Resource:
    return workload(uid, **{"addresses": ["10.0.0.1"], "services": {f"demo/{host}": ports(p80=8080)}, **fields})


def machine(*responses: bytes) -> ZtunnelMachine:
    made = ZtunnelMachine()
    for data in responses:
        made.receive(data)
    return made


def endpoints(made: ZtunnelMachine, key: NamespacedHostname = KEY) -> list[str]:
    held = made.state.services.get(key)
    assert held is not None
    return sorted(held.endpoints)


def staged(made: ZtunnelMachine) -> dict[str, list[str]]:
    return {str(key): sorted(waiting) for key, waiting in made.state.services.staged.items()}


def vip(address: str, network: str = "n") -> NetworkAddress:
    return NetworkAddress(network, ip_address(address))


def meant_by(made: ZtunnelMachine, address: str, namespace: str | None = None, network: str = "n") -> str | None:
    found = made.state.services.best_by_vip(vip(address, network), namespace)
    return None if found is None else str(found.key)


def vips(*addresses: str, network: str = "n") -> list[dict[str, Any]]:
    return [{"network": network, "address": address} for address in addresses]


def prefix(address: str, length: int) -> dict[str, Any]:
    return {"network": "n", "address": address, "length": length}


class TestEndpoints:
    @pytest.mark.parametrize("order", [0, 1], ids=["workload-first", "service-first"])
    def test_order_within_a_response_does_not_matter(self, order: int) -> None:
        resources = [endpoint(A), service(HOST)]

        made = machine(response(*(resources if order == 0 else reversed(resources))))

        assert endpoints(made) == [A]
        assert staged(made) == {}

    def test_workload_before_its_service_waits_for_it(self) -> None:
        made = machine(response(endpoint(A)))
        assert staged(made) == {"demo/echo.demo": [A]}

        made.receive(response(service(HOST)))

        assert endpoints(made) == [A]
        assert staged(made) == {}

    def test_workload_removed_before_its_service_came_waits_no_longer(self) -> None:
        made = machine(response(endpoint(A)), response(removed=[A]), response(service(HOST)))

        assert endpoints(made) == []
        assert staged(made) == {}

    def test_removing_a_service_discards_its_endpoints(self) -> None:
        made = machine(response(service(HOST), endpoint(A)), response(removed=["demo/echo.demo"]))

        made.receive(response(service(HOST)))

        assert endpoints(made) == []

    def test_workloads_sent_again_become_endpoints_of_a_service_that_was_removed(self) -> None:
        made = machine(response(service(HOST), endpoint(A)), response(removed=["demo/echo.demo"]))

        made.receive(response(service(HOST), endpoint(A)))

        assert endpoints(made) == [A]

    def test_workload_sent_while_its_service_is_removed_waits(self) -> None:
        made = machine(response(service(HOST)), response(endpoint(A), removed=["demo/echo.demo"]))

        assert staged(made) == {"demo/echo.demo": [A]}

    def test_sending_a_service_again_keeps_its_endpoints(self) -> None:
        made = machine(response(service(HOST), endpoint(A)), response(service(HOST, canonical=True)))

        assert endpoints(made) == [A]

    def test_unhealthy_endpoint_is_dropped_on_arrival(self) -> None:
        made = machine(response(service(HOST), endpoint(A, status="UNHEALTHY")))

        assert endpoints(made) == []

    def test_endpoint_that_turns_unhealthy_is_dropped(self) -> None:
        made = machine(response(service(HOST), endpoint(A)), response(endpoint(A, status="UNHEALTHY")))

        assert endpoints(made) == []

    def test_service_that_allows_all_keeps_unhealthy_endpoints(self) -> None:
        allow_all = service(HOST, load_balancing={"health_policy": "ALLOW_ALL"})

        made = machine(response(endpoint(A, status="UNHEALTHY")), response(allow_all))

        assert endpoints(made) == [A]

    def test_health_of_waiting_endpoints_is_judged_when_the_service_comes(self) -> None:
        made = machine(response(endpoint(A, status="UNHEALTHY")), response(service(HOST)))

        assert endpoints(made) == []

    def test_service_that_turns_to_allow_all_does_not_get_back_dropped_endpoints(self) -> None:
        made = machine(response(service(HOST), endpoint(A, status="UNHEALTHY")))
        allow_all = response(service(HOST, load_balancing={"health_policy": "ALLOW_ALL"}))

        made.receive(allow_all)

        assert endpoints(made) == []

    def test_service_that_turns_to_only_healthy_drops_its_unhealthy_endpoints(self) -> None:
        allow_all = service(HOST, load_balancing={"health_policy": "ALLOW_ALL"})
        made = machine(response(allow_all, endpoint(A, status="UNHEALTHY")), response(service(HOST)))

        assert endpoints(made) == []

    def test_workload_that_leaves_a_service_is_no_longer_its_endpoint(self) -> None:
        other = NamespacedHostname("demo", "other.demo")
        made = machine(response(service(HOST), service("other.demo"), endpoint(A)))

        made.receive(response(endpoint(A, "other.demo")))

        assert (endpoints(made), endpoints(made, other)) == ([], [A])

    def test_removed_workload_is_no_endpoint(self) -> None:
        made = machine(response(service(HOST), endpoint(A), endpoint(B, addresses=["10.0.0.2"])), response(removed=[A]))

        assert endpoints(made) == [B]

    def test_endpoint_of_a_workload_sent_and_removed_in_one_response_stays(self) -> None:
        made = machine(response(service(HOST)), response(endpoint(A), removed=[A]))

        assert A not in made.state.workloads.by_uid
        assert endpoints(made) == [A]


class TestKeysAndRemovals:
    def test_last_of_two_resources_of_one_name_counts(self) -> None:
        made = machine(response(endpoint(A, node="first"), endpoint(A, node="second")))

        assert made.state.workloads.by_uid[A].node == "second"

    def test_name_sent_and_removed_in_one_response_is_removed(self) -> None:
        made = machine(response(endpoint(A), service(HOST), removed=[A, "demo/echo.demo"]))

        assert made.state.workloads.by_uid == {}
        assert list(made.state.services) == []

    def test_workload_under_another_name_cannot_be_removed(self) -> None:
        made = machine(response(workload(A, xds_name="other", addresses=["10.0.0.1"])), response(removed=["other"]))

        assert list(made.state.workloads.by_uid) == [A]

    def test_service_under_another_name_cannot_be_removed(self) -> None:
        made = machine(response(service(HOST, xds_name="demo/other")), response(removed=["demo/other"]))

        assert [str(held.key) for held in made.state.services] == ["demo/echo.demo"]

    def test_a_uid_goes_before_a_service_of_the_same_name(self) -> None:
        made = machine(response(service(HOST), workload("demo/echo.demo", addresses=["10.0.0.1"])))

        made.receive(response(removed=["demo/echo.demo"]))

        assert made.state.workloads.by_uid == {}
        assert [str(held.key) for held in made.state.services] == ["demo/echo.demo"]

    @pytest.mark.parametrize("name", ["", "no-slash", "c//Pod/demo/unknown", "demo/unknown"])
    def test_removing_what_is_not_there_changes_nothing(self, name: str) -> None:
        made = machine(response(service(HOST), endpoint(A)), response(removed=[name]))

        assert endpoints(made) == [A]

    def test_workloads_without_uid_overwrite_each_other(self) -> None:
        made = machine(response(workload("", name="a"), workload("", name="b")))

        assert [held.name for held in made.state.workloads.by_uid.values()] == ["b"]

    def test_policies_are_kept_by_resource_name(self) -> None:
        made = machine(response(authorization("p", xds_name="other/name")))
        assert list(made.state.policies.by_name) == ["other/name"]

        made.receive(response(removed=["other/name"], type_url="type.googleapis.com/istio.security.Authorization"))

        assert made.state.policies.by_name == {}

    def test_services_of_one_hostname_live_side_by_side_in_their_namespaces(self) -> None:
        made = machine(response(service("x.test", "a"), service("x.test", "b")), response(removed=["a/x.test"]))

        assert [str(held.key) for held in made.state.services] == ["b/x.test"]


class TestAddressesOfWorkloads:
    def at(self, made: ZtunnelMachine, address: str = "10.0.0.1", network: str = "n") -> str | None:
        found = made.state.workloads.find_address(vip(address, network))
        return None if found is None else found.uid

    def test_address_counts_in_its_network_only(self) -> None:
        made = machine(response(endpoint(A, network="n")))

        assert (self.at(made), self.at(made, network="other")) == (A, None)

    def test_every_address_finds_the_workload(self) -> None:
        made = machine(response(endpoint(A, network="n", addresses=["10.0.0.1", "fd00::1"])))

        assert (self.at(made), self.at(made, "fd00::1")) == (A, A)

    def test_workload_on_the_hosts_network_has_no_address_of_its_own(self) -> None:
        made = machine(response(endpoint(A, network="n", network_mode="HOST_NETWORK")))

        assert self.at(made) is None

    def test_pod_is_preferred_then_hbone_then_the_last(self) -> None:
        entry, mesh_entry, mesh_entry_2 = "c/WorkloadEntry/demo/1", "c/WorkloadEntry/demo/2", "c/WorkloadEntry/demo/3"
        made = machine(response(endpoint(entry, network="n")))
        assert self.at(made) == entry

        made.receive(response(endpoint(mesh_entry, network="n", tunnel_protocol="HBONE")))
        made.receive(response(endpoint(mesh_entry_2, network="n", tunnel_protocol="HBONE")))
        assert self.at(made) == mesh_entry_2

        made.receive(response(endpoint(A, network="n")))
        assert self.at(made) == A

    def test_address_falls_back_to_the_other_claimant_when_one_goes(self) -> None:
        made = machine(response(endpoint(A, network="n"), endpoint(B, network="n")), response(removed=[B]))

        assert self.at(made) == A

    def test_address_that_passes_from_one_pod_to_another_in_a_response_is_no_oddity(self) -> None:
        made = machine(response(endpoint(A, network="n")), response(endpoint(B, network="n"), removed=[A]))

        assert self.at(made) == B
        assert made.oddities == []

    def test_workload_that_changes_its_address_leaves_the_old_one(self) -> None:
        made = machine(response(endpoint(A, network="n")), response(endpoint(A, network="n", addresses=["10.0.0.9"])))

        assert (self.at(made), self.at(made, "10.0.0.9")) == (None, A)


class TestVirtualAddresses:
    def test_address_counts_in_its_network_only(self) -> None:
        made = machine(response(service(HOST, addresses=vips("10.9.0.1"))))

        assert meant_by(made, "10.9.0.1") == "demo/echo.demo"
        assert meant_by(made, "10.9.0.1", network="other") is None

    def test_clients_namespace_is_preferred_then_canonical_then_the_first(self) -> None:
        made = machine(
            response(
                service("x.test", "first", addresses=vips("10.9.0.1")),
                service("x.test", "official", addresses=vips("10.9.0.1"), canonical=True),
                service("x.test", "own", addresses=vips("10.9.0.1")),
            )
        )

        assert meant_by(made, "10.9.0.1", "own") == "own/x.test"
        assert meant_by(made, "10.9.0.1", "elsewhere") == "official/x.test"
        made.receive(response(removed=["official/x.test"]))
        assert meant_by(made, "10.9.0.1", "elsewhere") == "first/x.test"

    def test_private_service_is_seen_from_its_namespace_only(self) -> None:
        made = machine(response(service(HOST, addresses=vips("10.9.0.1"), visibility="NAMESPACE")))

        assert meant_by(made, "10.9.0.1", "demo") == "demo/echo.demo"
        assert meant_by(made, "10.9.0.1", "other") is None

    def test_later_service_of_a_namespace_takes_a_shared_address_and_either_removal_frees_it(self) -> None:
        made = machine(response(service("a.demo", addresses=vips("10.9.0.1"))))
        made.receive(response(service("b.demo", addresses=vips("10.9.0.1"))))
        assert meant_by(made, "10.9.0.1") == "demo/b.demo"
        assert [oddity.trait for oddity in made.oddities] == [Trait.SHARED_VIP]

        made.receive(response(removed=["demo/a.demo"]))

        assert meant_by(made, "10.9.0.1") is None

    def test_address_that_passes_to_another_service_in_a_response_is_no_oddity(self) -> None:
        made = machine(response(service("a.demo", addresses=vips("10.9.0.1"))))

        made.receive(response(service("b.demo", addresses=vips("10.9.0.1")), service("a.demo")))

        assert made.oddities == []

    def test_address_shared_by_two_namespaces_is_no_oddity(self) -> None:
        made = machine(
            response(
                service("x.test", "a", addresses=vips("10.9.0.1")), service("y.test", "b", addresses=vips("10.9.0.1"))
            )
        )

        assert made.oddities == []

    def test_service_sent_again_is_no_oddity(self) -> None:
        again = response(service(HOST, addresses=vips("10.9.0.1")))

        assert machine(again, again).oddities == []

    def test_service_that_changes_its_address_leaves_the_old_one(self) -> None:
        made = machine(response(service(HOST, addresses=vips("10.9.0.1"))))

        made.receive(response(service(HOST, addresses=vips("10.9.0.2"))))

        assert (meant_by(made, "10.9.0.1"), meant_by(made, "10.9.0.2")) == (None, "demo/echo.demo")


class TestRanges:
    def test_range_covers_its_addresses(self) -> None:
        made = machine(response(service(HOST, addresses=[prefix("10.9.0.0", 16)])))

        assert (meant_by(made, "10.9.255.1"), meant_by(made, "10.10.0.1")) == ("demo/echo.demo", None)

    def test_address_goes_before_range(self) -> None:
        made = machine(
            response(
                service("range.demo", addresses=[prefix("10.9.0.0", 16)]),
                service("exact.demo", addresses=vips("10.9.0.1")),
            )
        )

        assert meant_by(made, "10.9.0.1") == "demo/exact.demo"

    def test_namespace_goes_before_prefix_length_and_that_before_canonical(self) -> None:
        made = machine(
            response(
                service("own.test", "own", addresses=[prefix("10.0.0.0", 8)]),
                service("long.test", "other", addresses=[prefix("10.9.0.0", 16)]),
                service("short.test", "other", addresses=[prefix("10.8.0.0", 13)], canonical=True),
            )
        )

        assert meant_by(made, "10.9.0.1", "own") == "own/own.test"
        assert meant_by(made, "10.9.0.1", "elsewhere") == "other/long.test"

    def test_private_range_is_seen_from_its_namespace_only(self) -> None:
        made = machine(response(service(HOST, addresses=[prefix("10.9.0.0", 16)], visibility="NAMESPACE")))

        assert (meant_by(made, "10.9.0.1", "demo"), meant_by(made, "10.9.0.1", "other")) == ("demo/echo.demo", None)

    def found(self, made: ZtunnelMachine) -> Service:
        held = made.state.services.best_by_vip(vip("10.9.0.1"), "demo")
        assert held is not None
        return held

    def test_endpoints_that_come_later_are_not_seen_through_a_range_until_the_service_is_sent_again(self) -> None:
        ranged = response(service(HOST, addresses=[prefix("10.9.0.0", 16)]))
        made = machine(ranged, response(endpoint(A)))
        assert (endpoints(made), sorted(self.found(made).endpoints)) == ([A], [])

        made.receive(ranged)

        assert sorted(self.found(made).endpoints) == [A]

    def test_removed_service_leaves_its_ranges(self) -> None:
        made = machine(response(service(HOST, addresses=[prefix("10.9.0.0", 16)])), response(endpoint(A)))

        made.receive(response(removed=["demo/echo.demo"]))

        assert meant_by(made, "10.9.0.1", "demo") is None


class TestLookups:
    def test_pods_address_hides_an_equal_virtual_address(self) -> None:
        made = machine(
            response(endpoint(A, network="n", addresses=["10.9.0.1"]), service(HOST, addresses=vips("10.9.0.1")))
        )

        found = made.state.find_address(vip("10.9.0.1"), "demo")

        assert found is made.state.workloads.by_uid[A]

    def test_hostname_is_a_service_first_then_a_workload_of_that_name(self) -> None:
        made = machine(response(workload(A, hostname=HOST)))
        assert made.state.find_hostname(KEY) is made.state.workloads.by_uid[A]

        made.receive(response(service(HOST)))

        assert made.state.find_hostname(KEY) is made.state.services.get(KEY)
