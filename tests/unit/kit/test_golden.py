"""Loading scenarios, translating messages, and a comparison that lets nothing pass undeclared."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.kit import golden
from tests.kit.golden import Comparison, Difference, Improvement, compare, from_json, load, load_improvements, to_json
from xds import protos
from xds.encoded import encode, wrap

SERVICE = "shop/cart.shop.svc.cluster.local"
RECORDED: dict[str, dict[str, Any]] = {
    "address": {
        SERVICE: {
            "@type": "type.googleapis.com/istio.workload.Address",
            "service": {
                "addresses": [{"address": "10.96.1.10", "network": "net1"}],
                "ports": [{"service_port": 80, "target_port": 8080}],
                "subject_alt_names": ["spiffe://cluster.local/ns/shop/sa/cart"],
            },
        },
        "pod": {"workload": {"services": {SERVICE: {"ports": [{"service_port": 80}]}}}},
    }
}


def ours(**changes: Any) -> dict[str, dict[str, Any]]:
    sent = copy.deepcopy(RECORDED)
    sent["address"][SERVICE]["service"].update(changes)
    return sent


def places(comparison: Comparison) -> list[str]:
    return [f"{difference.resource} {difference.path}" for difference in comparison.differences]


class TestScenario:
    def test_all_cases_load(self) -> None:
        assert [load(name).name for name in golden.names()] == list(golden.names())

    def test_every_case_of_the_ambient_mesh_is_compared(self) -> None:
        compared = [name for name in golden.names() if "ztunnel" in load(name).compared]

        assert compared == [name for name in golden.names() if name != "11-ingress-tls"]

    @pytest.mark.parametrize("name", golden.names())
    def test_manifests_of_every_cluster_are_there(self, name: str) -> None:
        scenario = load(name)

        assert scenario.local_cluster in scenario.networks
        assert all(list(directory.glob("*.yaml")) for directory in scenario.directories.values())
        assert "ztunnel" in scenario.probes

    def test_record_has_sections_of_resources(self) -> None:
        record = load("09-authorization").record()

        assert sorted(record) == ["address", "authorization"]
        assert "shop/l4-allow" in record["authorization"]

    def test_record_of_a_kind_that_was_not_recorded_is_not_found(self) -> None:
        with pytest.raises(FileNotFoundError):
            load("01-one-network").record("waypoint")

    def test_other_records_are_kept(self) -> None:
        assert load("08-waypoint").record("waypoint")


class TestTranslation:
    @pytest.mark.parametrize("name", golden.names())
    def test_records_survive_the_way_through_messages(self, name: str) -> None:
        for section in load(name).record().values():
            for resource in section.values():
                message = from_json(resource)
                parsed = type(message).FromString(message.SerializeToString())

                assert to_json(parsed) == resource

    def test_served_resource_is_decoded_from_its_bytes(self) -> None:
        message = from_json(RECORDED["address"]["pod"], protos.istio.workload.Address())
        served = wrap(golden.TYPE_URLS["address"], "pod", encode(message))

        decoded = golden.decode(golden.TYPE_URLS["address"], served.body)

        assert decoded == {"@type": golden.TYPE_URLS["address"], **RECORDED["address"]["pod"]}

    def test_keys_are_sorted(self) -> None:
        message = from_json({"workload": {"uid": "u", "name": "n"}}, protos.istio.workload.Address())

        assert list(to_json(message)["workload"]) == ["name", "uid"]

    def test_wrapper_with_the_default_inside_is_shown(self) -> None:
        message = from_json({"workload": {"capacity": 0}}, protos.istio.workload.Address())

        assert to_json(message)["workload"] == {"capacity": 0}

    def test_optional_number_with_the_default_is_shown(self) -> None:
        message = from_json({"address": "::", "length": 0}, protos.istio.workload.NetworkAddress())

        assert to_json(message) == {
            "@type": "type.googleapis.com/istio.workload.NetworkAddress",
            "address": "::",
            "length": 0,
        }

    def test_bytes_that_are_no_address_are_base64(self) -> None:
        message = from_json({"addresses": ["base64:AQID"]}, protos.istio.workload.Workload())

        assert to_json(message)["addresses"] == ["base64:AQID"]

    def test_unknown_enum_value_is_a_number(self) -> None:
        message = from_json({"status": 7}, protos.istio.workload.Workload())

        assert to_json(message)["status"] == 7

    def test_any_is_opened(self) -> None:
        config = {"@type": "type.googleapis.com/istio.workload.Locality", "region": "r"}
        message = from_json({"extensions": [{"name": "x", "config": config}]}, protos.istio.workload.Workload())

        assert to_json(message)["extensions"] == [{"name": "x", "config": config}]

    @pytest.mark.parametrize("duration", ["10s", "0.25s", "0s"])
    def test_duration_is_seconds(self, duration: str) -> None:
        message = from_json({"connect_timeout": duration}, protos.envoy.config.cluster.v3.Cluster())

        assert to_json(message)["connect_timeout"] == duration

    def test_struct_is_what_it_stands_for(self) -> None:
        metadata = {"filter_metadata": {"istio": {"a": {"b": [1, "c", True, None]}}}}
        message = from_json(metadata, protos.envoy.config.core.v3.Metadata())

        assert to_json(message)["filter_metadata"] == metadata["filter_metadata"]

    def test_unknown_field_raises(self) -> None:
        with pytest.raises(ValueError, match="Workload has no field nope"):
            from_json({"nope": 1}, protos.istio.workload.Workload())


class TestComparison:
    def test_equal_sides_are_clean(self) -> None:
        result = compare(ours(), RECORDED)

        assert result.clean
        assert result.report() == ""

    @pytest.mark.parametrize(
        ("change", "place"),
        [
            ({"addresses": [{"address": "10.96.1.10", "network": "net9"}]}, "service.addresses[0].network"),
            ({"ports": []}, "service.ports"),
            ({"ports": [{"service_port": 80}]}, "service.ports[0].target_port"),
            ({"canonical": True}, "service.canonical"),
        ],
    )
    def test_difference_is_named_by_its_place(self, change: dict[str, Any], place: str) -> None:
        assert places(compare(ours(**change), RECORDED)) == [f"{SERVICE} {place}"]

    def test_keys_that_are_no_words_are_in_brackets(self) -> None:
        sent = ours()
        sent["address"]["pod"]["workload"]["services"][SERVICE]["ports"][0]["service_port"] = 81

        assert places(compare(sent, RECORDED)) == [f"pod workload.services[{SERVICE}].ports[0].service_port"]

    def test_resource_on_one_side_only_is_one_difference(self) -> None:
        sent = ours()
        sent["address"]["new"] = sent["address"].pop("pod")

        assert places(compare(sent, RECORDED)) == ["new ", "pod "]

    def test_section_on_one_side_only_differs(self) -> None:
        sent = {**ours(), "authorization": {"demo/p": {"name": "p"}}}

        assert places(compare(sent, RECORDED)) == ["demo/p "]

    @pytest.mark.parametrize("side", [0, 1], ids=["ours", "recorded"])
    def test_service_of_the_api_server_is_never_compared(self, side: int) -> None:
        more = ours()
        more["address"]["default/kubernetes.default.svc.cluster.local"] = {"service": {}}

        assert compare(*((more, RECORDED) if side == 0 else (RECORDED, more))).clean

    def test_report_shows_both_values(self) -> None:
        sent = ours(canonical=True)
        del sent["address"]["pod"]

        assert compare(sent, RECORDED).report() == (
            'pod\n    recorded: {"workload": {"services": {"shop/cart.shop.svc.cluster.local": '
            '{"ports": [{"service_port": 80}]}}}}\n    ours:     (absent)\n'
            f"{SERVICE} service.canonical\n    recorded: (absent)\n    ours:     true"
        )


class TestImprovements:
    def test_declared_difference_is_excused(self) -> None:
        better = Improvement(SERVICE, "because", path="service.canonical")

        assert compare(ours(canonical=True), RECORDED, [better]).clean

    def test_everything_below_the_place_is_excused(self) -> None:
        better = Improvement(SERVICE, "because", path="service.ports")

        assert compare(ours(ports=[{"service_port": 81, "target_port": 1}]), RECORDED, [better]).clean

    def test_a_place_of_which_the_name_is_only_the_beginning_is_not(self) -> None:
        better = Improvement(SERVICE, "because", path="service.port")

        result = compare(ours(ports=[]), RECORDED, [better])

        assert places(result) == [f"{SERVICE} service.ports"]
        assert result.unused == (better,)

    def test_other_resources_are_not_excused(self) -> None:
        better = Improvement("pod", "because", path="service.canonical")

        assert not compare(ours(canonical=True), RECORDED, [better]).clean

    def test_one_section_may_be_excused_where_a_name_is_in_two(self) -> None:
        sent = {"cds": {"a": {"x": 1}}, "eds": {"a": {"x": 1}}}
        recorded = {"cds": {"a": {"x": 2}}, "eds": {"a": {"x": 2}}}

        both = compare(sent, recorded, [Improvement("a", "because", path="x")])
        one = compare(sent, recorded, [Improvement("a", "because", path="x", section="eds")])

        assert both.clean
        assert [difference.section for difference in one.differences] == ["cds"]

    def test_each_kind_of_proxy_has_its_own(self) -> None:
        scenario = load("04-ports-differ")

        assert {one.resource for one in scenario.improvements_of("ztunnel")} >= {SERVICE}
        assert "main_internal" in {one.resource for one in scenario.improvements_of("eastwest")}
        assert len(scenario.improvements) == sum(len(scenario.improvements_of(kind)) for kind in scenario.probes)

    def test_whole_resource_may_be_excused(self) -> None:
        sent = ours(canonical=True)
        del sent["address"]["pod"]

        assert compare(sent, RECORDED, [Improvement(SERVICE, "because"), Improvement("pod", "because")]).clean

    def test_improvement_that_excuses_nothing_is_reported(self) -> None:
        idle = Improvement(SERVICE, "the union of ports", path="service.ports")

        result = compare(ours(), RECORDED, [idle])

        assert not result.clean
        assert result.report() == f"{SERVICE} service.ports\n    excuses nothing: the union of ports"

    def test_given_value_must_be_what_we_send(self) -> None:
        names = ["spiffe://td/ns/shop/sa/other"]
        sent = ours(subject_alt_names=names)

        exact = Improvement(SERVICE, "because", path="service.subject_alt_names", ours=names)
        wrong = Improvement(SERVICE, "because", path="service.subject_alt_names", ours=[])

        assert compare(sent, RECORDED, [exact]).clean
        assert places(compare(sent, RECORDED, [wrong])) == [f"{SERVICE} service.subject_alt_names[0]"]

    def test_given_value_may_be_that_nothing_is_sent(self) -> None:
        gone = ours()
        del gone["address"]["pod"]
        better = Improvement("pod", "because", ours=None)
        changed = ours()
        changed["address"]["pod"] = {"workload": {}}

        assert compare(gone, RECORDED, [better]).clean
        assert not compare(changed, RECORDED, [better]).clean


class TestImprovementsFile:
    def load(self, directory: Path, text: str) -> tuple[Improvement, ...]:
        path = directory / "improvements.yaml"
        path.write_text(text)
        return load_improvements(path)

    def test_missing_file_has_none(self, tmp_path: Path) -> None:
        assert load_improvements(tmp_path / "improvements.yaml") == ()

    @pytest.mark.parametrize("text", ["", "# nothing yet\n", "[]"])
    def test_empty_file_has_none(self, tmp_path: Path, text: str) -> None:
        assert self.load(tmp_path, text) == ()

    def test_entries_are_read(self, tmp_path: Path) -> None:
        text = "- {resource: a, path: service.ports, ours: null, reason: why}\n- {resource: b, reason: so}\n"

        assert self.load(tmp_path, text) == (
            Improvement("a", "why", path="service.ports", ours=None),
            Improvement("b", "so"),
        )

    @pytest.mark.parametrize(
        "text",
        [
            "- {resource: a}",
            "- {resource: a, reason: ' '}",
            "- {resource: a, reason: why, pth: x}",
            "- text",
            "resource: a",
            "5",
            "- [",
        ],
    )
    def test_anything_else_is_refused_with_the_name_of_the_file(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(ValueError, match=r"improvements\.yaml"):
            self.load(tmp_path, text)

    def test_difference_says_where_and_what(self) -> None:
        difference = Difference("r", "service.ports", [1], None)

        assert str(difference) == "r service.ports\n    recorded: [1]\n    ours:     null"
