"""The protocol: first requests, acknowledgements, what is claimed on reconnect, readiness, names on demand."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from tests.kit import golden
from tests.kit.ztunnel import ADDRESS_TYPE, AUTHORIZATION_TYPE, Node, ZtunnelMachine
from tests.kit.ztunnel.machine import UnreadableResponse
from tests.kit.ztunnel.messages import (
    authorization,
    recorded_world,
    recording,
    request,
    response,
    service,
    workload,
    world_responses,
)

REQUESTS = recording("xds_requests")
POD = workload("c//Pod/demo/a", addresses=["10.0.0.1"])
BAD = workload("c//Pod/demo/bad", status=7)
NO_AUTHORIZATIONS = response(type_url=AUTHORIZATION_TYPE)


def as_recorded(data: bytes) -> dict[str, Any]:
    return MessageToDict(request(data), preserving_proto_field_name=True)


def requests_of(stream: str) -> list[dict[str, Any]]:
    return [event["req"] for event in REQUESTS[stream] if event["kind"] == "request"]


class TestStart:
    @pytest.mark.parametrize(
        ("stream", "node", "view"),
        [
            ("dedicated_client_stream_in_order", Node(metadata={"CLUSTER_ID": "cluster-a", "VIEW": "a"}), "a"),
            ("dedicated_server_stream_in_order", Node(metadata={"CLUSTER_ID": "cluster-b", "VIEW": "b"}), "b"),
            (
                "shared_mode_stream_in_order",
                Node(
                    instance_ip="10.201.0.1",
                    pod_name="ztunnel-node-b",
                    namespace="istio-system",
                    node_name="node-b",
                    metadata={"CLUSTER_ID": "cluster-b", "VIEW": "b"},
                ),
                "b",
            ),
        ],
    )
    def test_stream_goes_as_recorded(self, stream: str, node: Node, view: str) -> None:
        machine = ZtunnelMachine(node)
        sent = [as_recorded(data) for data in machine.open_stream()]
        nonces = [event["nonce"] for event in REQUESTS[stream] if event["kind"] == "response"]

        for nonce, data in zip(nonces, world_responses(recorded_world(view)), strict=True):
            answer = as_recorded(machine.receive(data))
            sent.append({**answer, "response_nonce": nonce})

        assert sent == requests_of(stream)
        assert machine.ready

    def test_on_demand_form_subscribes_to_no_address_and_to_all_authorizations(self) -> None:
        metadata = {"CLUSTER_ID": "cluster-b", "VIEW": "b", "DNS_CAPTURE": "false"}
        machine = ZtunnelMachine(Node(metadata=metadata), on_demand=True)

        addresses, authorizations = map(as_recorded, machine.open_stream())

        assert addresses == REQUESTS["on_demand_initial_address_request"]
        assert authorizations["type_url"] == AUTHORIZATION_TYPE
        assert "resource_names_subscribe" not in authorizations


class TestAcknowledgement:
    def test_answer_carries_type_and_nonce_and_nothing_else(self) -> None:
        answer = as_recorded(ZtunnelMachine().receive(response(POD, nonce="n7")))

        assert answer == {"type_url": ADDRESS_TYPE, "response_nonce": "n7"}

    def test_every_response_is_answered_in_order(self) -> None:
        machine = ZtunnelMachine()

        answers = [as_recorded(machine.receive(response(nonce=str(nonce))))["response_nonce"] for nonce in range(5)]

        assert answers == ["0", "1", "2", "3", "4"]

    def test_bytes_that_are_no_response_end_the_stream(self) -> None:
        with pytest.raises(UnreadableResponse):
            ZtunnelMachine().receive(b"\xff")

    def test_responses_are_on_record(self) -> None:
        machine = ZtunnelMachine()
        data = response(POD, BAD, removed=["x"], nonce="n1", version="v1")

        machine.receive(data)

        (received,) = machine.received
        assert (received.type_url, received.nonce, received.version) == (ADDRESS_TYPE, "n1", "v1")
        assert (received.resources, received.removed) == ((POD[0], BAD[0]), ("x",))
        assert received.size == len(data)
        assert received.error == "c//Pod/demo/bad: decode error: unknown enumeration value 7"


class TestReadiness:
    def test_opens_after_one_acknowledged_response_of_each_type(self) -> None:
        machine = ZtunnelMachine()
        machine.receive(response(POD))
        assert not machine.ready

        machine.receive(NO_AUTHORIZATIONS)

        assert machine.ready

    def test_empty_responses_suffice(self) -> None:
        machine = ZtunnelMachine()

        machine.receive(response())
        machine.receive(NO_AUTHORIZATIONS)

        assert machine.ready

    def test_a_rejected_first_response_keeps_it_closed_until_a_clean_one(self) -> None:
        machine = ZtunnelMachine()
        machine.receive(NO_AUTHORIZATIONS)
        machine.receive(response(POD, BAD))
        assert not machine.ready
        assert list(machine.state.workloads.by_uid) == [POD[0]]

        machine.receive(response())

        assert machine.ready

    def test_a_later_rejection_does_not_close_it(self) -> None:
        machine = ZtunnelMachine()
        for data in (response(POD), NO_AUTHORIZATIONS, response(BAD)):
            machine.receive(data)

        assert machine.ready

    def test_on_demand_waits_for_authorizations_only(self) -> None:
        machine = ZtunnelMachine(on_demand=True)

        machine.receive(NO_AUTHORIZATIONS)

        assert machine.ready

    def test_responses_of_other_types_do_not_count(self) -> None:
        machine = ZtunnelMachine()

        machine.receive(response(type_url="type.googleapis.com/istio.workload.Workload"))

        assert machine.awaited == {ADDRESS_TYPE, AUTHORIZATION_TYPE}


class TestReconnect:
    def claims(self, machine: ZtunnelMachine) -> list[dict[str, str]]:
        return [dict(request(data).initial_resource_versions) for data in machine.open_stream()]

    def test_claims_everything_held_with_the_servers_versions(self) -> None:
        machine = ZtunnelMachine()
        for data in world_responses(recorded_world("b")):
            machine.receive(data)

        addresses, authorizations = self.claims(machine)

        assert addresses == dict(machine.held(ADDRESS_TYPE))
        assert sorted(addresses) == sorted(name for name, _ in recorded_world("b") if name != "demo/deny-9999")
        assert list(authorizations) == ["demo/deny-9999"]
        assert all(addresses.values())

    def test_node_is_sent_again(self) -> None:
        machine = ZtunnelMachine(Node(pod_name="ztunnel-1"))
        first = [request(data).node for data in machine.open_stream()]

        assert [request(data).node for data in machine.open_stream()] == first

    def test_removed_resources_are_not_claimed(self) -> None:
        machine = ZtunnelMachine()
        machine.receive(response(POD, service("echo.demo")))
        machine.receive(response(removed=[POD[0]]))

        assert list(self.claims(machine)[0]) == ["demo/echo.demo"]

    def test_rejected_resources_are_not_claimed(self) -> None:
        machine = ZtunnelMachine()
        machine.receive(response(POD, BAD))

        assert list(self.claims(machine)[0]) == [POD[0]]

    def test_a_rejected_change_leaves_content_and_version_of_before(self) -> None:
        machine = ZtunnelMachine()
        machine.receive(response(POD))
        before = self.claims(machine)[0]

        machine.receive(response(workload(POD[0], status=7)))

        assert self.claims(machine)[0] == before
        assert str(machine.state.workloads.by_uid[POD[0]].status) == "Healthy"

    def test_name_sent_and_removed_in_one_response_is_claimed_though_it_is_gone(self) -> None:
        machine = ZtunnelMachine()
        machine.receive(response(POD, removed=[POD[0]]))

        assert machine.state.workloads.by_uid == {}
        assert list(self.claims(machine)[0]) == [POD[0]]

    def test_types_not_subscribed_are_not_claimed(self) -> None:
        machine = ZtunnelMachine()
        machine.receive(response(POD, type_url="type.googleapis.com/foo.Bar"))

        assert self.claims(machine) == [{}, {}]
        assert machine.state.workloads.by_uid == {}


class TestOnDemand:
    def test_lookup_goes_as_recorded(self) -> None:
        machine = ZtunnelMachine(on_demand=True)

        assert [as_recorded(machine.demand("net-b/10.201.100.20"))] == REQUESTS["on_demand_lookup_request"]

    def test_name_asked_for_and_not_answered_is_claimed_without_version(self) -> None:
        machine = ZtunnelMachine(on_demand=True)
        machine.demand("n/10.0.0.1")

        assert dict(request(machine.open_stream()[0]).initial_resource_versions) == {"n/10.0.0.1": ""}

    def test_name_held_keeps_its_version_when_asked_for(self) -> None:
        machine = ZtunnelMachine(on_demand=True)
        machine.receive(response(POD))
        version = machine.held(ADDRESS_TYPE)[POD[0]]

        machine.demand(POD[0])

        assert machine.held(ADDRESS_TYPE)[POD[0]] == version

    def test_only_a_resource_or_removal_of_that_very_name_wakes_the_caller(self) -> None:
        machine = ZtunnelMachine(on_demand=True)
        machine.demand("n/10.0.0.1")
        machine.demand("n/10.0.0.2")

        machine.receive(response(POD))
        assert machine.demanded == {"n/10.0.0.1", "n/10.0.0.2"}

        machine.receive(response(workload(POD[0], xds_name="n/10.0.0.1"), removed=["n/10.0.0.2"]))
        assert machine.demanded == frozenset()


@pytest.mark.parametrize("case", golden.names())
def test_recorded_answers_of_a_peer_are_acknowledged(case: str) -> None:
    machine = ZtunnelMachine()
    record = golden.load(case).record()
    resources = [(name, golden.from_json(body)) for section in record.values() for name, body in section.items()]

    for data in world_responses(resources):
        machine.receive(data)

    assert [received.error for received in machine.received] == ["", ""]
    assert machine.ready


def test_authorization_of_a_rejected_response_applies_the_good_ones() -> None:
    machine = ZtunnelMachine()

    machine.receive(response(authorization("good"), authorization("bad", action=9)))

    assert list(machine.state.policies.by_name) == ["demo/good"]
