"""TLS with clients: where certificates come from, what is asked of clients, and what backends are told of them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from xds import protos
from xds.messages.client_certificates import allowed_names, told_headers
from xds.messages.downstream_tls import NO_NAME, Clients, DownstreamTls, downstream_tls
from xds.messages.http_connection_manager import ClientDetails, scoped_manager

ext = protos.envoy.extensions
tls = ext.transport_sockets.tls


def context(**fields: Any) -> protos.envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext:
    made = downstream_tls(DownstreamTls(**fields))
    assert made.name == "envoy.transport_sockets.tls"
    return tls.v3.DownstreamTlsContext.FromString(made.data)


def test_certificates_come_on_demand_by_the_name_a_client_asks_for() -> None:
    found = context()
    assert found.disable_stateful_session_resumption
    assert found.disable_stateless_session_resumption
    assert list(found.common_tls_context.alpn_protocols) == ["h2", "http/1.1"]
    chosen = found.common_tls_context.custom_tls_certificate_selector
    assert chosen.name == "envoy.tls.certificate_selectors.on_demand_secret"
    config = tls.cert_selectors.on_demand_secret.v3.Config.FromString(chosen.typed_config.value)
    assert config.config_source.HasField("ads")
    assert not config.prefetch_secret_names
    mapper = tls.cert_mappers.sni.v3.SNI.FromString(config.certificate_mapper.typed_config.value)
    assert mapper.default_value == NO_NAME
    assert not found.HasField("require_client_certificate")


def test_with_a_certificate_from_the_start_connections_can_be_resumed() -> None:
    found = context(certificate="a.example")
    assert not found.disable_stateful_session_resumption
    assert not found.disable_stateless_session_resumption
    (secret,) = found.common_tls_context.tls_certificate_sds_secret_configs
    assert secret.name == "a.example"
    assert secret.sds_config.HasField("ads")
    assert secret.sds_config.initial_fetch_timeout.seconds == 5
    assert not found.common_tls_context.HasField("custom_tls_certificate_selector")


@pytest.mark.parametrize("certificate", ["", "a.example"])
def test_roots_of_clients_come_by_name(certificate: str) -> None:
    found = context(certificate=certificate, clients=Clients("roots/a/ca", 3, required=True))
    assert found.require_client_certificate.value
    validation = found.common_tls_context.combined_validation_context
    assert validation.validation_context_sds_secret_config.name == "roots/a/ca"
    assert validation.default_validation_context.max_verify_depth.value == 3
    assert validation.default_validation_context.trust_chain_verification == 0


def test_a_certificate_may_be_optional_and_of_anybody() -> None:
    found = context(clients=Clients("roots/a/ca", 1, required=False, unverified=True))
    assert not found.HasField("require_client_certificate")
    trust = found.common_tls_context.combined_validation_context.default_validation_context.trust_chain_verification
    assert trust == tls.v3.CertificateValidationContext.ACCEPT_UNTRUSTED


def test_versions_and_ciphers_are_said_only_where_they_are_asked_for() -> None:
    assert not context().common_tls_context.HasField("tls_params")
    params = context(ciphers=("AES128-SHA",), least="TLSv1.0", most="TLSv1.2").common_tls_context.tls_params
    assert list(params.cipher_suites) == ["AES128-SHA"]
    assert params.tls_minimum_protocol_version == tls.v3.TlsParameters.TLSv1_0
    assert params.tls_maximum_protocol_version == tls.v3.TlsParameters.TLSv1_2


def test_backends_are_told_of_certificates_by_headers_that_clients_cannot_send() -> None:
    manager = ext.filters.network.http_connection_manager.v3.HttpConnectionManager
    made = scoped_manager("s", "c", secure=True, clients=ClientDetails(required=True, passed_on=True))
    mutations = manager.FromString(made.data).early_header_mutation_extensions[1].typed_config.value
    mutation = ext.http.early_header_mutation.header_mutation.v3.HeaderMutation.FromString(mutations)
    removed = [one.remove for one in mutation.mutations if one.remove]
    added = [one.append.header.key for one in mutation.mutations if one.HasField("append")]
    assert sorted(removed) == sorted(added)
    assert len(removed) + len(added) == len(mutation.mutations)
    assert [bool(one.remove) for one in mutation.mutations] == [True] * 4 + [False] * 4


def test_that_a_certificate_is_good_is_told_only_where_there_must_be_one() -> None:
    assert [name for name, _ in told_headers(required=False, passed_on=False)] == [
        *("ssl-client-subject-dn", "ssl-client-issuer-dn")
    ]


@pytest.mark.parametrize(
    ("subject", "allowed"),
    [
        ("CN=alice", True),
        ("CN=b.example,O=x", True),
        ("O=x,CN=alice", True),
        ("CN=malice", False),
        ("CN=alice2", False),
        ("CN=bxexample", False),
        (r"O=x\,CN=alice", False),
        (r"CN=eve\,CN=alice", False),
        ("CN=eve,OU=CN=alice", False),
        ("OU=x+CN=alice", False),
        ("", False),
    ],
)
def test_a_name_is_compared_with_the_whole_common_name(subject: str, allowed: bool) -> None:
    config = ext.filters.http.rbac.v3.RBAC.FromString(allowed_names(["b.example", "alice"]).data)
    (field,) = config.matcher.matcher_list.matchers
    regex = field.predicate.single_predicate.value_match.safe_regex.regex
    assert bool(re.fullmatch(regex, subject)) == allowed
    action = protos.envoy.config.rbac.v3.Action
    assert action.FromString(field.on_match.action.typed_config.value).action == protos.envoy.config.rbac.v3.RBAC.ALLOW
    otherwise = action.FromString(config.matcher.on_no_match.action.typed_config.value)
    assert otherwise.action == protos.envoy.config.rbac.v3.RBAC.DENY
