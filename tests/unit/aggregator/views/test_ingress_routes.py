"""Routes of a host as messages: what settings of Ingresses make of them, and that they cost nobody else anything."""

from __future__ import annotations

from typing import Any

import pytest

from aggregator.pipeline import RESOURCES
from aggregator.views.ingress_gateway import STANDING_CLUSTERS, view_of
from aggregator.views.view import View
from tests.kit import manifests as m
from tests.kit.world import World
from xds.messages.assignment import ASSIGNMENT_TYPE
from xds.messages.cluster import CLUSTER_TYPE
from xds.messages.scope import SCOPED_ROUTE_TYPE

Json = dict[str, Any]


def view(type_url: str) -> View:
    found = view_of(type_url, lambda _: "")
    assert found is not None
    return found


VIEWS = [view(one) for one in (SCOPED_ROUTE_TYPE, CLUSTER_TYPE, ASSIGNMENT_TYPE)]


def world_of(*manifests: m.Manifest) -> World:
    world = World("quay")
    world.ask(*VIEWS)
    world.apply("quay", m.namespace("shop"), m.service("shop/web"), m.service("shop/next"), *manifests)
    world.step()
    return world


def ingress(name: str = "main", annotations: dict[str, str] | None = None, **fields: Any) -> m.Manifest:
    given = {"host": "a.example", "service": "web", **fields}
    return m.ingress(f"shop/{name}", given.pop("host"), given.pop("service"), annotations=annotations, **given)


def scopes(world: World) -> dict[str, Json]:
    """The virtual host of each host."""
    found = world.told(VIEWS[0]).values()
    hosts = [scope["route_configuration"]["virtual_hosts"][0] for scope in found]
    return {host["name"]: host for host in hosts}


def routes(world: World, host: str = "a.example") -> list[Json]:
    found: list[Json] = scopes(world)[host]["routes"]
    return found


def names(world: World, host: str = "a.example") -> list[str]:
    return [route["name"] for route in routes(world, host)]


def test_settings_that_say_what_is_so_anyhow_change_no_byte() -> None:
    without = world_of(ingress())
    for name, value in (("ssl-redirect", "true"), ("canary", "false"), ("enable-cors", "false"), ("timeout", "x")):
        annotations = {name: value}
        assert world_of(ingress(annotations=annotations)).versions(VIEWS[0]) == without.versions(VIEWS[0])


# To HTTPS.


def test_where_all_rules_agree_there_is_one_route_to_https_before_them() -> None:
    both = [ingress(secret="t"), ingress("more", path="/x")]
    assert names(world_of(*both)) == ["to-https", "Prefix /x", "Prefix /"]
    none = [ingress(secret="t", annotations={"ssl-redirect": "false"})]
    assert names(world_of(*none)) == ["Prefix /"]
    assert names(world_of(ingress(annotations={"force-ssl-redirect": "true"}))) == ["to-https", "Prefix /"]


def test_where_they_do_not_each_rule_has_its_own() -> None:
    world = world_of(ingress(secret="t"), ingress("more", {"ssl-redirect": "false"}, path="/x"))
    assert names(world) == ["Prefix /x", "Prefix / to-https", "Prefix /"]
    headers = routes(world)[1]["match"]["headers"]
    assert [header["name"] for header in headers] == ["x-forwarded-proto", ":path"]


def test_a_host_without_rules_keeps_its_one_route_to_https() -> None:
    tls = [{"hosts": ["a.example"], "secretName": "t"}]
    world = world_of(m.ingress("shop/bare", rules=[{"host": "a.example"}], spec={"tls": tls}))
    assert names(world) == ["to-https", "not-found"]


# Other places and names.


def test_a_rule_that_redirects_leads_to_no_backend_and_has_no_canary() -> None:
    canary = ingress("canary", {"canary": "true", "canary-weight": "50"}, service="next")
    world = world_of(ingress(annotations={"permanent-redirect": "https://b.example"}), canary)
    (route,) = routes(world)
    assert route["redirect"]["host_redirect"] == "b.example"


def test_the_root_is_sent_elsewhere_after_https() -> None:
    world = world_of(ingress(secret="t", annotations={"app-root": "/app"}))
    assert names(world) == ["to-https", "root", "Prefix /"]


def test_a_name_that_is_sent_to_its_host_has_one_route() -> None:
    world = world_of(ingress(annotations={"from-to-www-redirect": "true"}))
    (route,) = routes(world, "www.a.example")
    assert route["redirect"] == {"host_redirect": "a.example", "response_code": "PERMANENT_REDIRECT"}


# Canaries.


def canary(**annotations: str) -> m.Manifest:
    given = {f"canary-{name.replace('_', '-')}": value for name, value in annotations.items()}
    return ingress("canary", {"canary": "true", **given}, service="next")


def decisions(world: World) -> list[tuple[str, str]]:
    """(value that is asked for, where to) of each route."""
    found = []
    for route in routes(world):
        values = [str(next(iter(one["string_match"].values()))) for one in route["match"].get("headers", ())]
        action = route["route"]
        shares = action.get("weighted_clusters", {}).get("clusters", ())
        to = action.get("cluster") or "+".join(f"{one['name']}:{one['weight']}" for one in shares)
        found.append((values[0] if values else "", to.replace("ing|shop|", "").replace("|80", "")))
    return found


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ({}, [("", "web")]),
        ({"weight": "0"}, [("", "web")]),
        ({"weight": "20"}, [("", "web:80+next:20")]),
        ({"weight": "100"}, [("", "next")]),
        ({"weight": "1", "weight_total": "1000"}, [("", "web:999+next:1")]),
        ({"by_header": "x"}, [("always", "next"), ("never", "web"), ("", "web")]),
        ({"by_header": "x", "by_header_value": "v"}, [("v", "next"), ("", "web")]),
        (
            {"by_header": "x", "by_cookie": "c", "weight": "30"},
            [
                ("always", "next"),
                ("never", "web"),
                (r"{'regex': '(?:.*;\\s*)?c=always\\s*(?:;.*)?'}", "next"),
                (r"{'regex': '(?:.*;\\s*)?c=never\\s*(?:;.*)?'}", "web"),
                ("", "web:70+next:30"),
            ],
        ),
    ],
)
def test_what_leads_to_a_canary_comes_before_what_does_not(
    terms: dict[str, str], expected: list[tuple[str, str]]
) -> None:
    assert decisions(world_of(ingress(), canary(**terms))) == expected


def test_a_canary_takes_its_share_of_all_services_that_share_requests() -> None:
    destination = {"destination": "75% web.shop.svc\n25% third.shop.svc"}
    world = world_of(ingress(annotations=destination), canary(weight="20"))
    assert decisions(world) == [("", "web:6000+third:2000+next:2000")]


def test_a_canary_of_a_rule_without_a_backend_takes_what_it_is_asked_for() -> None:
    resource = {"host": "a.example", "http": {"paths": [{"path": "/", "backend": {"resource": {"name": "x"}}}]}}
    world = world_of(m.ingress("shop/main", rules=[resource]), canary(by_header="x", weight="50"))
    assert [route.get("direct_response", {}).get("status", "") for route in routes(world)] == ["", 503, 503]


def test_a_rule_that_is_answered_by_a_snippet_leads_to_no_backend_and_has_no_canary() -> None:
    world = World("quay", ingress_snippets=True)
    world.ask(*VIEWS)
    world.apply("quay", ingress(annotations={"configuration-snippet": "return 403;"}), canary(by_header="x"))
    world.step()
    (route,) = routes(world)
    assert route["direct_response"] == {"status": 403}


# Conditions.


def test_rules_with_conditions_come_before_those_without_and_hide_nothing() -> None:
    world = world_of(
        ingress("b", {"match-method": "GET POST"}),
        ingress("c", {"match-method": "PUT", "match-query-exact-q": "1"}),
    )
    first, second, last = routes(world)
    assert len(first["match"]["headers"]) == len(first["match"]["query_parameters"]) == 1
    assert second["match"]["headers"][0]["string_match"] == {"safe_regex": {"regex": "GET|POST"}}
    assert last["name"] == "not-found"


def test_an_ingress_with_a_condition_that_means_nothing_gets_no_request() -> None:
    world = world_of(ingress(annotations={"match-header-regex-x": "("}))
    assert names(world) == ["not-found"]
    assert [one.code for one in world.findings()] == ["ConditionInvalid"]


# What backends see.


def test_a_path_is_made_of_the_groups_of_a_regular_expression() -> None:
    annotations = {"rewrite-target": "/$2$3"}
    world = world_of(ingress(annotations=annotations, path="/re(/|$)(.*)", path_type="ImplementationSpecific"))
    (route, _) = routes(world)
    rewrite = route["route"]["regex_rewrite"]
    assert rewrite["substitution"] == r"/\2"
    assert rewrite["pattern"]["regex"] == route["match"]["safe_regex"]["regex"]


def test_the_host_for_a_backend_is_made_of_its_own_names() -> None:
    world = world_of(ingress(annotations={"upstream-vhost": "$service_name.$namespace"}))
    assert routes(world)[0]["route"]["host_rewrite_literal"] == "web.shop"


# Further services.


def test_copies_go_to_a_cluster_that_is_told_without_being_asked_for() -> None:
    world = world_of(ingress(annotations={"mirror-target-service": "next", "mirror-percentage": "5"}))
    (policy,) = routes(world)[0]["route"]["request_mirror_policies"]
    assert policy["cluster"] == "mirror|shop|next|80"
    clusters, assignments = world.told(VIEWS[1]), world.told(VIEWS[2])
    assert set(clusters) - STANDING_CLUSTERS == set(assignments) == {"ing|shop|web|80", "mirror|shop|next|80"}


def test_a_service_that_is_named_in_an_annotation_and_missing_is_told() -> None:
    world = world_of(ingress(annotations={"destination": "gone.shop.svc:81"}))
    (finding,) = world.findings()
    assert (finding.code, finding.field) == ("BackendNotFound", "metadata.annotations")
    assert routes(world)[0]["route"]["cluster"] == "ing|shop|gone|81"


def test_services_of_other_namespaces_are_not_reached() -> None:
    annotations = {"destination": "web.crew.svc", "mirror-target-service": "crew/web"}
    world = world_of(m.namespace("crew"), m.service("crew/web"), ingress(annotations=annotations))
    assert "crew" not in str(routes(world))
    assert [one.code for one in world.findings()] == ["AnnotationUnsupported"] * 2


# Neighbours.


def test_annotations_change_their_own_host_alone() -> None:
    world = world_of(ingress(), *(ingress(f"i{number}", host=f"h{number}.example") for number in range(20)))
    world.apply("quay", ingress(annotations={"timeout": "5", "rewrite-target": "(", "enable-cors": "true"}))
    result = world.step()
    assert [name for _, name in result.published[RESOURCES]] == ["default|a.example"]
