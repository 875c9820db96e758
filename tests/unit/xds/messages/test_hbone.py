"""The building blocks of HBONE: who is trusted, where tunnels go, who may answer them, and where they end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit import golden
from xds import protos
from xds.messages import hbone
from xds.messages.assignment import DoubleTunnel, TunnelEndpoint, encode_endpoint
from xds.messages.cluster import Cluster, encode_cluster
from xds.messages.connect_terminate import connect_terminate
from xds.messages.extension import Extension
from xds.messages.hbone import CLUSTER, DESTINATION, HOST, Profile, internal_upstream
from xds.messages.listener import Listener, SocketAddress, encode_listener

ADDRESS = SocketAddress("0.0.0.0", 15008)
ADS = {"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"}


def opened(one: Extension) -> dict[str, Any]:
    return golden.decode(one.type_url, one.data)


def shown(listener: Listener) -> dict[str, Any]:
    return golden.decode(type_of("listener.v3.Listener"), encode_listener(listener).data)


def cluster(one: Cluster) -> dict[str, Any]:
    return golden.decode(type_of("cluster.v3.Cluster"), encode_cluster(one).data)


def type_of(name: str) -> str:
    return f"type.googleapis.com/envoy.config.{name}"


def filters(listener: Listener) -> list[dict[str, Any]]:
    (chain,) = shown(listener)["filter_chains"]
    return [one["typed_config"] for one in chain["filters"]]


def states(config: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    """By key: the format, the factory, and who else sees it."""
    (found,) = (value for key, value in config.items() if key.startswith("on_"))
    return {
        one["object_key"]: (
            one["format_string"]["text_format_source"]["inline_string"],
            one.get("factory_key", ""),
            one.get("shared_with_upstream", "NONE"),
        )
        for one in found
    }


def manager(profile: Profile, log_file: str = "") -> dict[str, Any]:
    (config,) = filters(connect_terminate(ADDRESS, profile, ("td",), log_file))
    return config


def request_states(profile: Profile) -> dict[str, tuple[str, str, str]]:
    return {
        key: state
        for one in manager(profile)["http_filters"]
        if one["typed_config"]["@type"].endswith("set_filter_state.v3.Config")
        for key, state in states(one["typed_config"]).items()
    }


class TestTrust:
    @pytest.mark.parametrize("make", [hbone.upstream_tls, hbone.downstream_tls])
    @pytest.mark.parametrize("profile", Profile)
    def test_peers_have_to_be_of_the_trust_domain(self, make: Any, profile: Profile) -> None:
        context = opened(make(profile, ("td",)))["common_tls_context"]
        validation = context["combined_validation_context"]["default_validation_context"]
        assert validation["match_typed_subject_alt_names"] == [
            {"san_type": "URI", "matcher": {"prefix": "spiffe://td/"}}
        ]
        # And speak HTTP/2 over TLS 1.3.
        assert context["alpn_protocols"] == ["h2"]
        assert set(context["tls_params"].values()) == {"TLSv1_3"}

    def test_clients_have_to_show_a_certificate(self) -> None:
        assert opened(hbone.downstream_tls(Profile.STOCK, ("td",)))["require_client_certificate"] is True

    def test_a_stock_envoy_has_its_secrets_over_the_one_stream_and_waits_for_them(self) -> None:
        context = opened(hbone.upstream_tls(Profile.STOCK, ("td",)))["common_tls_context"]
        assert context["tls_certificate_sds_secret_configs"] == [{"name": "default", "sds_config": ADS}]
        roots = context["combined_validation_context"]["validation_context_sds_secret_config"]
        assert roots == {"name": "ROOTCA", "sds_config": ADS}

    def test_an_istio_proxy_has_its_secrets_from_its_agent(self) -> None:
        context = opened(hbone.upstream_tls(Profile.ISTIO, ("td",)))["common_tls_context"]
        source = context["tls_certificate_sds_secret_configs"][0]["sds_config"]["api_config_source"]
        assert source["grpc_services"] == [{"envoy_grpc": {"cluster_name": "sds-grpc"}}]


class TestSockets:
    def test_an_internal_listener_is_reached_in_plain_unless_something_is_inside(self) -> None:
        assert opened(internal_upstream())["transport_socket"]["name"] == "raw_buffer"
        inside = hbone.upstream_tls(Profile.STOCK, ("td",))
        assert opened(internal_upstream(inside=inside))["transport_socket"]["name"] == "tls"

    def test_only_metadata_that_is_named_is_passed_on(self) -> None:
        assert "passthrough_metadata" not in opened(internal_upstream())
        passed = opened(internal_upstream(DESTINATION, (CLUSTER, "istio"), (HOST, "istio")))["passthrough_metadata"]
        assert [(list(one["kind"]), one["name"]) for one in passed] == [
            (["host"], "envoy.filters.listener.original_dst"),
            (["cluster"], "istio"),
            (["host"], "istio"),
        ]

    def test_what_the_listeners_read_is_passed_on_into_tunnels(self) -> None:
        passed = {one["name"] for one in opened(hbone.INTO_TUNNEL)["passthrough_metadata"]}
        double = DoubleTunnel("a:1", ("spiffe://td/a",), ("spiffe://td/b",))
        endpoint = TunnelEndpoint("l", "192.0.2.1:15008", dialled="x", identities=("i",), double=double)
        message = protos.envoy.config.endpoint.v3.LbEndpoint.FromString(encode_endpoint(endpoint).data)
        assert passed == set(message.metadata.filter_metadata)


class TestHttp:
    def test_a_connection_takes_any_number_of_tunnels_unless_told_otherwise(self) -> None:
        assert "max_requests_per_connection" not in opened(hbone.connect_options())["common_http_protocol_options"]
        single = opened(hbone.connect_options(requests=1))
        assert single["common_http_protocol_options"]["max_requests_per_connection"] == 1
        assert single["explicit_http_config"] == {"http2_protocol_options": {"allow_connect": True}}


class TestOrigination:
    single, inner, outer = hbone.originating_listeners(Profile.STOCK, "net1", "gateway")

    def test_each_listener_leads_to_the_cluster_of_its_name_and_the_inner_one_to_the_outer_listener(self) -> None:
        listeners = (self.single, self.inner, self.outer)
        clusters = hbone.originating_clusters(Profile.STOCK, ("td",))
        assert [one.name for one in listeners] == [one.name for one in clusters]
        assert [filters(one)[-1]["cluster"] for one in listeners] == [one.name for one in clusters]
        (locality,) = cluster(clusters[1])["load_assignment"]["endpoints"]
        (endpoint,) = locality["lb_endpoints"]
        address = endpoint["endpoint"]["address"]["envoy_internal_address"]
        assert address["server_listener_name"] == self.outer.name

    def test_a_single_tunnel_goes_to_the_destination_and_only_its_identities_may_answer(self) -> None:
        setting, proxy = filters(self.single)
        assert states(setting) == {
            "envoy.network.upstream_subject_alt_names": ("%DYNAMIC_METADATA(istio:identities)%", "", "NONE")
        }
        assert proxy["tunneling_config"]["hostname"] == "%DOWNSTREAM_LOCAL_ADDRESS%"
        assert self.single.listener_filters

    def test_both_tunnels_of_two_are_for_the_authority(self) -> None:
        hostnames = {filters(one)[-1]["tunneling_config"]["hostname"] for one in (self.inner, self.outer)}
        assert hostnames == {"%FILTER_STATE(istio.double_hbone.hbone_target_address:PLAIN)%"}

    def test_each_of_two_tunnels_has_identities_of_its_own(self) -> None:
        setting, _ = filters(self.inner)
        told = states(setting)
        names = "envoy.network.upstream_subject_alt_names"
        assert told[names] == ("%DYNAMIC_METADATA(istio:double_hbone:inner)%", "", "NONE")
        carried = told["isthmus.gateway_identities"]
        assert carried == ("%DYNAMIC_METADATA(istio:double_hbone:outer)%", "envoy.hashable_string", "TRANSITIVE")
        setting, _ = filters(self.outer)
        assert states(setting)[names][0] == "%FILTER_STATE(isthmus.gateway_identities:PLAIN)%"

    def test_the_gateways_address_is_carried_to_the_outer_listener_which_restores_it(self) -> None:
        told = states(filters(self.inner)[0])
        key = "envoy.filters.listener.original_dst.local_ip"
        assert told[key] == ("%DYNAMIC_METADATA(envoy.filters.listener.original_dst:local)%", "", "TRANSITIVE")
        assert not self.inner.listener_filters
        assert self.outer.listener_filters

    def test_whatever_decides_where_a_connection_goes_enters_the_keys_of_pools(self) -> None:
        for profile in Profile:
            _, inner, _ = hbone.originating_listeners(profile, "net1", "gateway")
            told = states(filters(inner)[0])
            texts = [told["istio.double_hbone.hbone_target_address"], told["isthmus.gateway_identities"]]
            assert {factory for _, factory, _ in texts} == {f"{profile_prefix(profile)}.hashable_string"}

    def test_a_destination_is_told_the_network_and_a_gateway_the_kind_of_client(self) -> None:
        assert header(self.inner) == ("x-forwarded-network", "net1")
        assert header(self.outer) == ("x-istio-source", "gateway")

    def test_ports_are_those_of_the_metadata(self) -> None:
        for one in hbone.originating_clusters(Profile.STOCK, ("td",)):
            assert "upstream_port_override" not in cluster(one).get("original_dst_lb_config", {})

    def test_a_double_tunnel_has_connections_of_its_own(self) -> None:
        _, inner, outer = map(cluster, hbone.originating_clusters(Profile.STOCK, ("td",)))
        for one in (inner, outer):
            (options,) = one["typed_extension_protocol_options"].values()
            assert options["common_http_protocol_options"]["max_requests_per_connection"] == 1

    def test_a_tunnel_that_could_not_be_made_is_logged_with_the_reason(self) -> None:
        for one in (self.single, self.inner, self.outer):
            (log,) = filters(one)[-1]["access_log"]
            assert log["filter"] == {"response_flag_filter": {"flags": ["UF"]}}
            fields = log["typed_config"]["log_format"]["json_format"]
            assert fields["reason"] == "%UPSTREAM_TRANSPORT_FAILURE_REASON%"
            assert "access_log_options" not in filters(one)[-1]


class TestTermination:
    @pytest.mark.parametrize("profile", Profile)
    def test_tunnels_end_at_the_address_and_go_on_at_main_internal(self, profile: Profile) -> None:
        told = shown(connect_terminate(SocketAddress("127.0.0.9", 15010), profile, ("td",)))
        assert told["address"] == {"socket_address": {"address": "127.0.0.9", "port_value": 15010}}
        (chain,) = told["filter_chains"]
        assert chain["transport_socket"]["typed_config"]["require_client_certificate"] is True
        (route,) = manager(profile)["route_config"]["virtual_hosts"][0]["routes"]
        assert route["match"] == {"connect_matcher": {}}
        assert route["route"]["cluster"] == "main_internal"
        assert route["route"]["upgrade_configs"] == [{"upgrade_type": "CONNECT", "connect_config": {}}]

    @pytest.mark.parametrize("profile", Profile)
    def test_authority_and_kind_of_client_are_kept_for_the_next_listener_alone(self, profile: Profile) -> None:
        told = request_states(profile)
        factory = f"{profile_prefix(profile)}.hashable_string"
        assert told["io.istio.connect_authority"] == ("%REQ(:AUTHORITY)%", factory, "ONCE")
        assert told["io.istio.source"] == ("%REQ(x-istio-source)%", factory, "ONCE")

    @pytest.mark.parametrize("profile", Profile)
    def test_a_tunnel_may_be_silent_for_ever(self, profile: Profile) -> None:
        assert manager(profile)["stream_idle_timeout"] == "0s"

    def test_a_stock_envoys_route_has_no_time_limit(self) -> None:
        (route,) = manager(Profile.STOCK)["route_config"]["virtual_hosts"][0]["routes"]
        assert route["route"]["timeout"] == "0s"

    def test_a_stock_envoy_believes_no_header_about_where_its_client_is(self) -> None:
        assert manager(Profile.STOCK)["use_remote_address"] is True

    def test_a_stock_envoy_is_told_nothing_that_only_istio_proxy_has(self) -> None:
        text = encode_listener(connect_terminate(ADDRESS, Profile.STOCK, ("td",))).data
        assert b"TypedStruct" not in text
        assert b"istio.hashable_string" not in text
        assert b"sds-grpc" not in text

    def test_the_access_log_says_who_asked_for_what_and_what_came_of_it_at_both_ends_of_a_tunnel(self) -> None:
        config = manager(Profile.STOCK, "/dev/stdout")
        (log,) = config["access_log"]
        assert log["name"] == "envoy.access_loggers.stdout"
        fields = log["typed_config"]["log_format"]["json_format"]
        assert fields.items() >= {
            "authority": "%REQ(:AUTHORITY)%",
            "source": "%REQ(X-ISTIO-SOURCE)%",
            "peer": "%DOWNSTREAM_PEER_URI_SAN%",
            "upstream": "%UPSTREAM_HOST%",
            "code": "%RESPONSE_CODE%",
            "flags": "%RESPONSE_FLAGS%",
            "duration_ms": "%DURATION%",
        }.items()
        assert config["access_log_options"] == {"flush_log_on_tunnel_successfully_established": True}

    def test_without_a_file_for_them_there_are_no_access_logs(self) -> None:
        assert "access_log" not in manager(Profile.STOCK)

    def test_access_logs_may_go_to_a_file(self) -> None:
        (log,) = manager(Profile.STOCK, "/var/log/tunnels")["access_log"]
        assert log["typed_config"]["path"] == "/var/log/tunnels"


def profile_prefix(profile: Profile) -> str:
    return {Profile.STOCK: "envoy", Profile.ISTIO: "istio"}[profile]


def header(listener: Listener) -> tuple[str, str]:
    (added,) = filters(listener)[-1]["tunneling_config"]["headers_to_add"]
    assert added["append_action"] == "OVERWRITE_IF_EXISTS_OR_ADD"
    return added["header"]["key"], added["header"]["value"]
