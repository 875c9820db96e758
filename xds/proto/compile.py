"""Build step: compiles all messages the product speaks into one descriptor set, `protos.bin`.

Envoy's own files come from the xds-protos package as descriptors, the files beside this script are compiled
and linked against them. Runs in an isolated environment (the one of `build-system.requires`, or that of
`make protos`), as a script: nothing of the product may be imported here, since xds-protos brings a package
`xds` of its own. The set holds every file after the files it imports, so a reader may add them in order.

    python compile.py OUTPUT
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

if TYPE_CHECKING:
    from collections.abc import Iterable

    from google.protobuf.descriptor import FileDescriptor

# The files of Envoy's API we name messages of. What they import comes with them.
ROOTS = (
    # The protocol itself.
    "envoy/service/discovery/v3/ads.proto",
    "envoy/service/discovery/v3/discovery.proto",
    "envoy/service/status/v3/csds.proto",
    # Resources.
    "envoy/config/bootstrap/v3/bootstrap.proto",
    "envoy/config/cluster/v3/cluster.proto",
    "envoy/config/core/v3/base.proto",
    "envoy/config/core/v3/extension.proto",
    "envoy/config/endpoint/v3/endpoint.proto",
    "envoy/config/listener/v3/listener.proto",
    "envoy/config/route/v3/route.proto",
    "envoy/config/route/v3/scoped_route.proto",
    "envoy/extensions/transport_sockets/tls/v3/secret.proto",
    "envoy/extensions/transport_sockets/tls/v3/tls.proto",
    # Listeners and their filters.
    "envoy/extensions/bootstrap/internal_listener/v3/internal_listener.proto",
    "envoy/extensions/filters/listener/http_inspector/v3/http_inspector.proto",
    "envoy/extensions/filters/listener/original_dst/v3/original_dst.proto",
    "envoy/extensions/filters/listener/proxy_protocol/v3/proxy_protocol.proto",
    "envoy/extensions/filters/listener/tls_inspector/v3/tls_inspector.proto",
    "envoy/extensions/filters/network/http_connection_manager/v3/http_connection_manager.proto",
    "envoy/extensions/filters/network/rbac/v3/rbac.proto",
    "envoy/extensions/filters/network/set_filter_state/v3/set_filter_state.proto",
    "envoy/extensions/filters/network/tcp_proxy/v3/tcp_proxy.proto",
    # HTTP filters and what the connection manager plugs in.
    "envoy/extensions/common/matching/v3/extension_matcher.proto",
    "envoy/extensions/filters/common/matcher/action/v3/skip_action.proto",
    "envoy/extensions/filters/http/basic_auth/v3/basic_auth.proto",
    "envoy/extensions/filters/http/composite/v3/composite.proto",
    "envoy/extensions/filters/http/cors/v3/cors.proto",
    "envoy/extensions/filters/http/custom_response/v3/custom_response.proto",
    "envoy/extensions/filters/http/ext_authz/v3/ext_authz.proto",
    "envoy/extensions/filters/http/fault/v3/fault.proto",
    "envoy/extensions/filters/http/grpc_stats/v3/config.proto",
    "envoy/extensions/filters/http/grpc_web/v3/grpc_web.proto",
    "envoy/extensions/filters/http/header_mutation/v3/header_mutation.proto",
    "envoy/extensions/filters/http/jwt_authn/v3/config.proto",
    "envoy/extensions/filters/http/local_ratelimit/v3/local_rate_limit.proto",
    "envoy/extensions/filters/http/lua/v3/lua.proto",
    "envoy/extensions/filters/http/on_demand/v3/on_demand.proto",
    "envoy/extensions/filters/http/rbac/v3/rbac.proto",
    "envoy/extensions/filters/http/router/v3/router.proto",
    "envoy/extensions/filters/http/set_filter_state/v3/set_filter_state.proto",
    "envoy/extensions/filters/http/stateful_session/v3/stateful_session.proto",
    "envoy/extensions/http/custom_response/redirect_policy/v3/redirect_policy.proto",
    "envoy/extensions/http/early_header_mutation/header_mutation/v3/header_mutation.proto",
    "envoy/extensions/http/original_ip_detection/custom_header/v3/custom_header.proto",
    "envoy/extensions/http/stateful_session/cookie/v3/cookie.proto",
    "envoy/extensions/request_id/uuid/v3/uuid.proto",
    "envoy/extensions/retry/host/previous_hosts/v3/previous_hosts.proto",
    # Matchers.
    "envoy/extensions/matching/common_inputs/network/v3/network_inputs.proto",
    "envoy/extensions/matching/common_inputs/ssl/v3/ssl_inputs.proto",
    "envoy/type/matcher/v3/http_inputs.proto",
    "envoy/type/matcher/v3/status_code_input.proto",
    "xds/type/matcher/v3/domain.proto",
    "xds/type/matcher/v3/ip.proto",
    "xds/type/matcher/v3/matcher.proto",
    # Clusters: sockets, protocols, balancing.
    "envoy/extensions/load_balancing_policies/least_request/v3/least_request.proto",
    "envoy/extensions/load_balancing_policies/ring_hash/v3/ring_hash.proto",
    "envoy/extensions/load_balancing_policies/round_robin/v3/round_robin.proto",
    "envoy/extensions/load_balancing_policies/wrr_locality/v3/wrr_locality.proto",
    "envoy/extensions/transport_sockets/internal_upstream/v3/internal_upstream.proto",
    "envoy/extensions/transport_sockets/proxy_protocol/v3/upstream_proxy_protocol.proto",
    "envoy/extensions/transport_sockets/raw_buffer/v3/raw_buffer.proto",
    "envoy/extensions/upstreams/http/v3/http_protocol_options.proto",
    # Access logs, traces, credentials.
    "envoy/config/grpc_credential/v3/file_based_metadata.proto",
    "envoy/config/trace/v3/opentelemetry.proto",
    "envoy/extensions/access_loggers/file/v3/file.proto",
    "envoy/extensions/access_loggers/open_telemetry/v3/logs_service.proto",
    "envoy/extensions/access_loggers/stream/v3/stream.proto",
    # Extensions of istio-proxy, whose messages are not in Envoy's API.
    "udpa/type/v1/typed_struct.proto",
)


def installed(roots: Iterable[str]) -> FileDescriptorSet:
    """The given files and all they import, from the generated modules of this environment."""
    held: dict[str, FileDescriptorProto] = {}

    def hold(file: FileDescriptor) -> None:
        if file.name in held:
            return
        for dependency in file.dependencies:
            hold(dependency)
        held[file.name] = FileDescriptorProto.FromString(file.serialized_pb)

    for root in roots:
        module = importlib.import_module(root.removesuffix(".proto").replace("/", ".") + "_pb2")
        hold(module.DESCRIPTOR)
    return FileDescriptorSet(file=held.values())


def compiled(sources: Path, base: FileDescriptorSet) -> FileDescriptorSet:
    """Our own `.proto` files in `sources`, compiled against `base`; raises CalledProcessError if protoc refuses one."""
    with tempfile.TemporaryDirectory() as directory:
        imports, output = Path(directory, "imports.bin"), Path(directory, "own.bin")
        imports.write_bytes(base.SerializeToString())
        command = [sys.executable, "-m", "grpc_tools.protoc", f"--descriptor_set_in={imports}", f"-I{sources}"]
        command += ["--include_imports", f"--descriptor_set_out={output}"]
        subprocess.run([*command, *sorted(path.name for path in sources.glob("*.proto"))], check=True)
        return FileDescriptorSet.FromString(output.read_bytes())


def main() -> None:
    """Write the whole set, byte for byte the same for the same inputs."""
    files = installed(ROOTS)
    held = {file.name for file in files.file}
    own = compiled(Path(__file__).parent, files)
    files.file.extend(file for file in own.file if file.name not in held)
    Path(sys.argv[1]).write_bytes(files.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
