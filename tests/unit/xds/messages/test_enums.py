"""The enums of the messages have the names and numbers of the proto."""

from __future__ import annotations

from enum import IntEnum

import pytest
from google.protobuf.descriptor import EnumDescriptor

from xds import protos
from xds.messages import addressing, authorization, filters, service, workload

BY_FULL_NAME: dict[str, type[IntEnum]] = {
    "istio.workload.AppProtocol": addressing.AppProtocol,
    "istio.workload.TunnelProtocol": workload.TunnelProtocol,
    "istio.workload.WorkloadType": workload.WorkloadType,
    "istio.workload.WorkloadStatus": workload.WorkloadStatus,
    "istio.workload.NetworkMode": workload.NetworkMode,
    "istio.workload.ApplicationTunnel.Protocol": workload.ApplicationTunnelProtocol,
    "istio.workload.IPFamilies": service.IPFamilies,
    "istio.workload.Service.Visibility": service.Visibility,
    "istio.workload.LoadBalancing.Scope": service.Scope,
    "istio.workload.LoadBalancing.Mode": service.Mode,
    "istio.workload.LoadBalancing.HealthPolicy": service.HealthPolicy,
    "istio.security.Scope": authorization.Scope,
    "istio.security.Action": authorization.Action,
    "envoy.extensions.filters.common.set_filter_state.v3.FilterStateValue.SharedWithUpstream": filters.Sharing,
}


@pytest.mark.parametrize("full_name", BY_FULL_NAME)
def test_an_enum_has_the_numbers_of_the_proto(full_name: str) -> None:
    descriptor: EnumDescriptor = protos.POOL.FindEnumTypeByName(full_name)
    # The proto's names must be unique in their scope and say it again: UNSPECIFIED_SCOPE.
    expected = {value.name.removesuffix("_SCOPE").removesuffix("_MODE"): value.number for value in descriptor.values}
    assert {member.name: member.value for member in BY_FULL_NAME[full_name]} == expected


def test_every_enum_of_the_two_packages_has_a_counterpart() -> None:
    found = set()
    for file_name in ("workload.proto", "authorization.proto"):
        file = protos.POOL.FindFileByName(file_name)
        found |= {enum.full_name for enum in file.enum_types_by_name.values()}
        for message in file.message_types_by_name.values():
            found |= {enum.full_name for enum in message.enum_types}
    assert found == {name for name in BY_FULL_NAME if name.startswith("istio.")}


def test_comparisons_are_the_arms_of_a_string_match() -> None:
    arms = protos.istio.security.StringMatch.DESCRIPTOR.oneofs_by_name["match_type"].fields
    assert {member.name.lower(): member.value for member in authorization.Comparison} == {
        field.name: field.number for field in arms
    }
