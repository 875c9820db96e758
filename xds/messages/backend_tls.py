"""TLS of its own to the backends of ingress gateways, inside of whatever leads there (socket, tunnel, waypoint).

Pairs and roots come over SDS by names that no client can ask for: what a client asks for as a host (SNI) is asked of
SDS as well, and holds at most 255 bytes, so these names are longer.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from xds import protos
from xds.messages.extension import Extension, extension, write_ads

_LONGEST_HOST: Final = 255
_BACKEND: Final = "backend/"
_tls = protos.envoy.extensions.transport_sockets.tls.v3
_VERSIONS: Final = (
    _tls.TlsParameters.TLSv1_0,
    _tls.TlsParameters.TLSv1_1,
    _tls.TlsParameters.TLSv1_2,
    _tls.TlsParameters.TLSv1_3,
)


class BackendTLS(Struct, frozen=True, gc=False):
    """How TLS to a backend is: `http2`, or HTTP/1.1; `server_name` is told (SNI) unless it is "".

    `pair` and `roots` are names of secrets, "" for none: without roots every certificate will do, else one that they
    vouch for, by at most `depth` steps, and that is for one of `names`. `versions`: the lowest and the highest minor
    version of TLS 1, None for Envoy's own.
    """

    http2: bool = False
    server_name: str = ""
    pair: str = ""
    roots: str = ""
    names: tuple[str, ...] = ()
    depth: int = 1
    versions: tuple[int, int] | None = None


def secret_name(kind: Literal["pair", "roots"], namespace: str, name: str) -> str:
    """The name of a secret for connections to backends."""
    return f"{_BACKEND}{kind}/{namespace}/{name}/".ljust(_LONGEST_HOST + 1, "=")


def names_backend(name: str) -> bool:
    """Whether a secret is for connections to backends."""
    return len(name) > _LONGEST_HOST and name.startswith(_BACKEND)


def backend_tls(tls: BackendTLS) -> Extension:
    """The transport socket."""
    context = _tls.UpstreamTlsContext(sni=tls.server_name)
    common = context.common_tls_context
    common.alpn_protocols.append("h2" if tls.http2 else "http/1.1")
    if tls.versions is not None:
        common.tls_params.tls_minimum_protocol_version = _VERSIONS[tls.versions[0]]
        common.tls_params.tls_maximum_protocol_version = _VERSIONS[tls.versions[1]]
    if tls.pair:
        own = common.tls_certificate_sds_secret_configs.add(name=tls.pair)
        write_ads(own.sds_config)
    if tls.roots:
        validation = common.combined_validation_context
        validation.default_validation_context.max_verify_depth.value = tls.depth
        for name in tls.names:
            accepted = validation.default_validation_context.match_typed_subject_alt_names.add()
            accepted.san_type = _tls.SubjectAltNameMatcher.DNS
            accepted.matcher.exact = name
        validation.validation_context_sds_secret_config.name = tls.roots
        write_ads(validation.validation_context_sds_secret_config.sds_config)
    return extension("tls", context)
