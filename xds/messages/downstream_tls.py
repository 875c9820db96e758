"""TLS with clients of an ingress gateway: the transport socket of a filter chain, by its class of settings.

A frozen record and its encoder. A chain fetches the certificate of a host when a client first asks for it, or it has
one from the start: then connections can be resumed, which the fetching does not allow. Certificates and roots come over
SDS by name in either case, so that renewing them changes no listener.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from xds import protos
from xds.messages.extension import Extension, extension, write_ads, write_extension

NO_NAME: Final = "__nosni__"
"""The name under which a certificate is asked for if the client names no host; no host can have it."""
STATIC_TIMEOUT: Final = 5
"""Seconds a listener waits for a certificate that one of its chains has from the start."""

_tls = protos.envoy.extensions.transport_sockets.tls
_VERSIONS: Final = {
    "": _tls.v3.TlsParameters.TLS_AUTO,
    "TLSv1.0": _tls.v3.TlsParameters.TLSv1_0,
    "TLSv1.1": _tls.v3.TlsParameters.TLSv1_1,
    "TLSv1.2": _tls.v3.TlsParameters.TLSv1_2,
    "TLSv1.3": _tls.v3.TlsParameters.TLSv1_3,
}


class Clients(Struct, frozen=True, gc=False):
    """What is asked of clients: certificates of `roots` (the name of a Secret), with at most `depth` between.

    Without `required`, who has none gets in; with `unverified`, who has any.
    """

    roots: str
    depth: int
    required: bool
    unverified: bool = False


class DownstreamTls(Struct, frozen=True, gc=False):
    """One class. `certificate` is the name of its Secret, "" if certificates are fetched by the names clients ask for.

    `ciphers` are those up to TLS 1.2, none: what Envoy prefers; `least` and `most` versions such as "TLSv1.2", "" what
    Envoy takes.
    """

    certificate: str = ""
    clients: Clients | None = None
    ciphers: tuple[str, ...] = ()
    least: str = ""
    most: str = ""


def downstream_tls(given: DownstreamTls) -> Extension:
    """The transport socket."""
    context = _tls.v3.DownstreamTlsContext()
    common = context.common_tls_context
    common.alpn_protocols.extend(("h2", "http/1.1"))
    if given.certificate:
        _write_secret(common.tls_certificate_sds_secret_configs.add(), given.certificate)
    else:
        # The certificates on demand refuse to work with either.
        context.disable_stateless_session_resumption = True
        context.disable_stateful_session_resumption = True
        mapper = _tls.cert_mappers.sni.v3.SNI(default_value=NO_NAME)
        selector = _tls.cert_selectors.on_demand_secret.v3.Config()
        write_ads(selector.config_source)
        write_extension(selector.certificate_mapper, extension("envoy.tls.certificate_mappers.sni", mapper))
        write_extension(
            common.custom_tls_certificate_selector,
            extension("envoy.tls.certificate_selectors.on_demand_secret", selector),
        )
    if given.ciphers or given.least or given.most:
        common.tls_params.cipher_suites.extend(given.ciphers)
        common.tls_params.tls_minimum_protocol_version = _VERSIONS[given.least]
        common.tls_params.tls_maximum_protocol_version = _VERSIONS[given.most]
    if given.clients is not None:
        _write_clients(context, given.clients)
    return extension("envoy.transport_sockets.tls", context)


def _write_clients(
    context: protos.envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext, clients: Clients
) -> None:
    validation = context.common_tls_context.combined_validation_context
    validation.default_validation_context.max_verify_depth.value = clients.depth
    if clients.unverified:
        validation.default_validation_context.trust_chain_verification = (
            _tls.v3.CertificateValidationContext.ACCEPT_UNTRUSTED
        )
    _write_secret(validation.validation_context_sds_secret_config, clients.roots)
    if clients.required:
        context.require_client_certificate.value = True


def _write_secret(place: protos.envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig, name: str) -> None:
    place.name = name
    write_ads(place.sds_config)
    place.sds_config.initial_fetch_timeout.seconds = STATIC_TIMEOUT
