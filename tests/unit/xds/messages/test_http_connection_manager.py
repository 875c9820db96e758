"""The connection manager of ingress gateways, which is the same however many hosts there are."""

from __future__ import annotations

import inspect

import pytest

from xds import protos
from xds.messages.fallback import AGAIN_HEADERS, FALLBACK_FILTERS
from xds.messages.http_connection_manager import SCOPE_HEADERS, manager_again, scoped_manager

ext = protos.envoy.extensions
Manager = ext.filters.network.http_connection_manager.v3.HttpConnectionManager
ROUTER = "envoy.filters.http.router"


def manager(
    *, secure: bool = True
) -> protos.envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager:
    made = scoped_manager("https", "default", secure=secure)
    assert made.type_url.endswith(Manager.DESCRIPTOR.full_name)
    return Manager.FromString(made.data)


def test_the_scope_is_found_by_headers_that_overwrite_what_a_client_sent() -> None:
    config = manager()
    mutation = ext.http.early_header_mutation.header_mutation.v3.HeaderMutation.FromString(
        config.early_header_mutation_extensions[0].typed_config.value
    )
    header = protos.envoy.config.core.v3.HeaderValueOption
    assert [(one.append.header.key, one.append.header.value) for one in mutation.mutations] == [
        ("x-isthmus-class", "default"),
        ("x-isthmus-host", "%REQ(:authority)%"),
    ]
    assert {one.append.append_action for one in mutation.mutations} == {header.OVERWRITE_IF_EXISTS_OR_ADD}
    fragments = config.scoped_routes.scope_key_builder.fragments
    assert tuple(one.header_value_extractor.name for one in fragments) == SCOPE_HEADERS
    assert all(one.header_value_extractor.HasField("index") for one in fragments)


def test_scopes_come_over_the_one_stream_and_are_waited_for() -> None:
    source = manager().scoped_routes.scoped_rds.scoped_rds_config_source
    assert source.HasField("ads")
    assert source.HasField("initial_fetch_timeout")
    assert source.initial_fetch_timeout.ToSeconds() == 0


@pytest.mark.parametrize(("secure", "status"), [(True, [421]), (False, [])])
def test_an_unknown_host_is_misdirected_where_there_is_tls(secure: bool, status: list[int]) -> None:
    mappers = manager(secure=secure).local_reply_config.mappers
    assert [one.status_code.value for one in mappers] == status
    assert all(list(one.filter.response_flag_filter.flags) == ["NR"] for one in mappers)


def test_hosts_and_paths_are_normalised() -> None:
    config = manager()
    assert config.normalize_path.value
    assert config.merge_slashes
    assert config.strip_any_host_port
    assert config.strip_trailing_host_dot


def test_clients_are_known_by_their_own_address() -> None:
    assert manager().use_remote_address.value


def test_clusters_come_on_demand_right_before_the_router() -> None:
    filters = manager().http_filters
    assert [one.name for one in filters][-2:] == ["envoy.filters.http.on_demand", ROUTER]
    on_demand = ext.filters.http.on_demand.v3.OnDemand.FromString(filters[-2].typed_config.value)
    assert on_demand.odcds.source.HasField("ads")
    assert on_demand.odcds.timeout.ToSeconds() == 2


def test_every_filter_a_route_may_need_is_there_and_disabled() -> None:
    assert [(one.name, one.disabled) for one in manager().http_filters] == [
        ("envoy.filters.http.custom_response", True),
        ("envoy.filters.http.cors", True),
        ("envoy.filters.http.rbac", True),
        ("envoy.filters.http.local_ratelimit", True),
        ("envoy.filters.http.basic_auth", True),
        ("around_ext_authz", True),
        ("envoy.filters.http.ext_authz", True),
        ("body_size", True),
        ("envoy.filters.http.stateful_session", True),
        ("envoy.filters.http.header_mutation", True),
        ("envoy.filters.http.on_demand", False),
        (ROUTER, False),
    ]


def test_scripts_that_look_for_wildcards_come_first_where_they_are_wanted() -> None:
    config = Manager.FromString(scoped_manager("http", "default", secure=False, wildcards=True).data)
    assert [one.name for one in config.http_filters][:4] == [*FALLBACK_FILTERS, "envoy.filters.http.custom_response"]
    assert not any(one.disabled for one in config.http_filters[:3])


def test_the_second_passage_finds_scopes_by_what_it_is_told_and_trusts_what_the_first_has_written() -> None:
    config = Manager.FromString(manager_again().data)
    (one,) = config.early_header_mutation_extensions
    mutation = ext.http.early_header_mutation.header_mutation.v3.HeaderMutation.FromString(one.typed_config.value)
    assert [(one.append.header.key, one.append.header.value) for one in mutation.mutations if not one.remove] == [
        ("x-isthmus-class", "%REQ(x-isthmus-again-class)%"),
        ("x-isthmus-host", "%REQ(x-isthmus-again-host)%"),
    ]
    assert [one.remove for one in mutation.mutations if one.remove] == list(AGAIN_HEADERS)
    assert not config.use_remote_address.value
    assert not set(FALLBACK_FILTERS) & {one.name for one in config.http_filters}


def test_the_second_passage_has_the_same_filters_in_the_same_order() -> None:
    again, first = (
        [(one.name, one.disabled, one.typed_config) for one in Manager.FromString(data).http_filters]
        for data in (manager_again().data, scoped_manager("http", "default", secure=False, wildcards=True).data)
    )
    assert again[0][0] == "without_client"
    assert again[1:] == first[len(FALLBACK_FILTERS) :]


def test_websockets_are_let_through() -> None:
    assert [one.upgrade_type for one in manager().upgrade_configs] == ["websocket"]


def test_nothing_in_it_depends_on_a_host() -> None:
    assert list(inspect.signature(scoped_manager).parameters) == [
        *("stat_prefix", "scope_class", "secure", "wildcards", "access_logs", "clients")
    ]
    assert scoped_manager("a", "b", secure=True) == scoped_manager("a", "b", secure=True)
