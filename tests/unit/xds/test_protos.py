"""The door to protobuf: names, the private pool, the wire of Istio's messages, and what it refuses."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_type

import pytest
from google.protobuf import json_format, struct_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.internal.containers import MessageMap, RepeatedScalarFieldContainer
from google.protobuf.message import Message

from xds import descriptors, protos

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from google.protobuf.descriptor import Descriptor

# Fields and numbers of Istio's ambient API, which every ztunnel reads, and of what the package with Envoy's lacks.
WIRE = {
    "envoy.extensions.filters.http.body_size_limit.v3.BodySizeLimit": "max_request_bytes=1",
    "istio.workload.Address": "workload=1 service=2",
    "istio.workload.Service": "name=1 namespace=2 hostname=3 addresses=4 ports=5 subject_alt_names=6 waypoint=7 "
    "load_balancing=8 ip_families=9 extensions=10 canonical=11 ingress_use_waypoint=12 weighted_waypoints=13 "
    "visibility=14",
    "istio.workload.LoadBalancing": "routing_preference=1 mode=2 health_policy=3",
    "istio.workload.Workload": "name=1 namespace=2 addresses=3 network=4 tunnel_protocol=5 trust_domain=6 "
    "service_account=7 waypoint=8 node=9 canonical_name=10 canonical_revision=11 workload_type=12 workload_name=13 "
    "native_tunnel=14 authorization_policies=16 status=17 cluster_id=18 network_gateway=19 uid=20 hostname=21 "
    "services=22 application_tunnel=23 locality=24 network_mode=25 extensions=26 capacity=27",
    "istio.workload.Locality": "region=1 zone=2 subzone=3",
    "istio.workload.PortList": "ports=1",
    "istio.workload.Port": "service_port=1 target_port=2 app_protocol=3",
    "istio.workload.ApplicationTunnel": "protocol=1 port=2",
    "istio.workload.GatewayAddress": "hostname=1 address=2 hbone_mtls_port=3",
    "istio.workload.WeightedWaypoint": "destination=1 weight=2",
    "istio.workload.NetworkAddress": "network=1 address=2 length=3",
    "istio.workload.NamespacedHostname": "namespace=1 hostname=2",
    "istio.workload.Extension": "name=1 config=2",
    "istio.security.Authorization": "name=1 namespace=2 scope=3 action=4 groups=5 dry_run=6 extensions=7",
    "istio.security.Group": "rules=1",
    "istio.security.Rules": "matches=2",
    "istio.security.Match": "namespaces=1 not_namespaces=2 principals=3 not_principals=4 source_ips=5 "
    "not_source_ips=6 destination_ips=7 not_destination_ips=8 destination_ports=9 not_destination_ports=10 "
    "service_accounts=11 not_service_accounts=12 extensions=13",
    "istio.security.Address": "address=1 length=2",
    "istio.security.ServiceAccountMatch": "namespace=1 serviceAccount=2",
    "istio.security.StringMatch": "exact=1 prefix=2 suffix=3 presence=4",
    "istio.v1.auth.IstioCertificateRequest": "csr=1 validity_duration=3 metadata=4",
    "istio.v1.auth.IstioCertificateResponse": "cert_chain=1",
    "envoy.extensions.transport_sockets.tls.cert_selectors.on_demand_secret.v3.Config": "config_source=1 "
    "certificate_mapper=2 prefetch_secret_names=3",
    "envoy.extensions.transport_sockets.tls.cert_mappers.sni.v3.SNI": "default_value=1",
    "grpc.health.v1.HealthCheckRequest": "service=1",
    "grpc.health.v1.HealthCheckResponse": "status=1",
}

ENUMS = {
    "istio.workload.IPFamilies": "AUTOMATIC=0 IPV4_ONLY=1 IPV6_ONLY=2 DUAL=3",
    "istio.workload.NetworkMode": "STANDARD=0 HOST_NETWORK=1",
    "istio.workload.LoadBalancing.Scope": "UNSPECIFIED_SCOPE=0 REGION=1 ZONE=2 SUBZONE=3 NODE=4 CLUSTER=5 NETWORK=6",
    "istio.workload.LoadBalancing.Mode": "UNSPECIFIED_MODE=0 STRICT=1 FAILOVER=2 PASSTHROUGH=3",
    "istio.workload.LoadBalancing.HealthPolicy": "ONLY_HEALTHY=0 ALLOW_ALL=1",
    "istio.workload.Service.Visibility": "PUBLIC=0 NAMESPACE=1",
    "istio.workload.WorkloadStatus": "HEALTHY=0 UNHEALTHY=1",
    "istio.workload.WorkloadType": "DEPLOYMENT=0 CRONJOB=1 POD=2 JOB=3",
    "istio.workload.AppProtocol": "UNKNOWN=0 HTTP11=1 HTTP2=2 GRPC=3 TCP=4 TLS=5",
    "istio.workload.TunnelProtocol": "NONE=0 HBONE=1 LEGACY_ISTIO_MTLS=2",
    "istio.workload.ApplicationTunnel.Protocol": "NONE=0 PROXY=1",
    "istio.security.Scope": "GLOBAL=0 NAMESPACE=1 WORKLOAD_SELECTOR=2",
    "istio.security.Action": "ALLOW=0 DENY=1",
    "grpc.health.v1.HealthCheckResponse.ServingStatus": "UNKNOWN=0 SERVING=1 NOT_SERVING=2 SERVICE_UNKNOWN=3",
}


def step(name: str) -> ModuleType:
    """A script of the build, which is no module of the product, by file."""
    path = Path(descriptors.__file__).with_name("proto") / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"build_step_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def all_messages() -> Iterator[Descriptor]:
    waiting: list[Descriptor] = []
    for file in FileDescriptorSet.FromString(descriptors.DESCRIPTOR_SET.read_bytes()).file:
        waiting += protos.POOL.FindFileByName(file.name).message_types_by_name.values()
    while waiting:
        message = waiting.pop()
        yield message
        waiting += message.nested_types


@pytest.mark.parametrize("message", WIRE)
def test_a_message_has_the_fields_and_numbers_of_its_api(message: str) -> None:
    fields = protos.POOL.FindMessageTypeByName(message).fields
    wire = sorted((field.number, field.name) for field in fields)
    assert " ".join(f"{name}={number}" for number, name in wire) == WIRE[message]


def test_no_message_of_our_own_files_is_unaccounted_for() -> None:
    own = {path.name for path in Path(descriptors.__file__).with_name("proto").glob("*.proto")}
    found = {m.full_name for m in all_messages() if m.file.name in own and not m.GetOptions().map_entry}
    assert found == set(WIRE)


@pytest.mark.parametrize("enum", ENUMS)
def test_an_enum_has_the_values_of_its_api(enum: str) -> None:
    values = protos.POOL.FindEnumTypeByName(enum).values
    assert " ".join(f"{value.name}={value.number}" for value in values) == ENUMS[enum]


def test_every_message_type_can_be_made() -> None:
    names = [message.full_name for message in all_messages()]
    assert len(names) > 500
    for name in names:
        assert protos.message_class(name)().SerializePartialToString() == b""


def test_a_message_is_found_under_its_package() -> None:
    request = protos.envoy.service.discovery.v3.DeltaDiscoveryRequest(type_url="t")
    assert_type(request.resource_names_subscribe, RepeatedScalarFieldContainer[str])
    assert request.SerializeToString() == b"\x12\x01t"


def test_a_nested_message_is_found_in_its_parent() -> None:
    options = protos.envoy.config.route.v3.RouteMatch.GrpcRouteMatchOptions()
    match = protos.envoy.config.route.v3.RouteMatch(grpc=options)
    assert_type(match.grpc, protos.envoy.config.route.v3.RouteMatch.GrpcRouteMatchOptions)
    assert match.HasField("grpc")


def test_a_class_is_made_once() -> None:
    assert protos.istio.workload.Address is protos.istio.workload.Address
    assert protos.message_class("istio.workload.Address") is protos.istio.workload.Address


def test_an_enum_value_is_found_in_its_enum_and_beside_it() -> None:
    assert protos.istio.workload.HBONE == protos.istio.workload.TunnelProtocol.HBONE == 1
    assert protos.istio.workload.Service.NAMESPACE == protos.istio.workload.Service.Visibility.NAMESPACE == 1
    assert protos.istio.workload.TunnelProtocol.Name(1) == "HBONE"


def test_a_oneof_tells_which_member_is_set() -> None:
    address = protos.istio.workload.Address(service=protos.istio.workload.Service(name="x"))
    assert address.WhichOneof("type") == "service"


def test_maps_of_messages_are_filled_in_place() -> None:
    workload = protos.istio.workload.Workload()
    assert_type(workload.services, MessageMap[str, protos.istio.workload.PortList])
    workload.services["ns/host"].ports.add(service_port=80, target_port=8080)
    assert workload.services["ns/host"].ports[0].target_port == 8080


def test_an_optional_scalar_knows_whether_it_is_set() -> None:
    assert not protos.istio.workload.NetworkAddress().HasField("length")
    assert protos.istio.workload.NetworkAddress(length=0).HasField("length")


def test_an_unknown_name_is_an_attribute_error_that_names_the_package() -> None:
    namespace: Any = protos.istio.workload
    with pytest.raises(AttributeError, match=r"protobuf package istio\.workload has no Wrokload"):
        _ = namespace.Wrokload


def test_an_unknown_message_class_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        protos.message_class("istio.workload.Wrokload")


def test_well_known_types_keep_their_methods() -> None:
    packed = protos.google.protobuf.Any()
    packed.Pack(protos.istio.workload.Port(service_port=1))
    port = protos.istio.workload.Port()
    assert packed.type_url == "type.googleapis.com/istio.workload.Port"
    assert packed.Unpack(port)
    assert port.service_port == 1


def test_json_looks_types_up_in_the_private_pool() -> None:
    packed = protos.google.protobuf.Any()
    packed.Pack(protos.istio.workload.Port(service_port=1))
    document = json_format.MessageToDict(packed, descriptor_pool=protos.POOL)
    assert document == {"@type": "type.googleapis.com/istio.workload.Port", "servicePort": 1}
    parsed = json_format.ParseDict(document, protos.google.protobuf.Any(), descriptor_pool=protos.POOL)
    assert parsed == packed


def test_the_pool_is_apart_from_that_of_generated_modules() -> None:
    struct: Message = protos.google.protobuf.Struct()
    assert not isinstance(struct, struct_pb2.Struct)
    assert protos.POOL.FindFileByName("google/protobuf/struct.proto") is not struct_pb2.DESCRIPTOR


def test_the_pure_python_backend_is_refused() -> None:
    environment = {**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
    run = subprocess.run(
        [sys.executable, "-c", "import xds.protos"], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert "ImportError: protobuf runs on its 'python' backend, Isthmus needs 'upb'" in run.stderr


def test_a_checkout_that_was_not_built_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ImportError, match="in a checkout run `make protos`"):
        descriptors._load(tmp_path / "protos.bin")


def test_the_stub_file_is_that_of_the_descriptor_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = tmp_path / "protos.pyi"
    monkeypatch.setattr(sys, "argv", ["stubs.py", str(descriptors.DESCRIPTOR_SET), str(written)])
    step("stubs").main()
    assert written.read_bytes() == descriptors.DESCRIPTOR_SET.with_suffix(".pyi").read_bytes()


def test_a_field_that_hides_a_package_its_message_needs_is_refused() -> None:
    file = FileDescriptorProto(package="envoy.x")
    kind = FieldDescriptorProto.TYPE_MESSAGE
    file.message_type.add(name="M").field.add(name="envoy", number=1, type=kind, type_name=".envoy.x.M")
    with pytest.raises(ValueError, match=r"envoy\.x\.M: envoy would hide what its annotations start with"):
        list(step("stubs").packages(FileDescriptorSet(file=[file])).stub())
