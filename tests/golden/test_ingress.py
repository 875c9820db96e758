"""What an ingress gateway serves, beside what the peer's gateway serves of the same Ingresses.

Their configurations have nothing in common but the meaning (a chain and a route table for all hosts there, a scope for
each here), so it is the meaning that is compared: host, path, service and port, and the endpoints behind them. Our own
form is held to our own record of the last time; `make golden` writes it anew.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from aggregator.views.ingress_gateway import view_of
from aggregator.views.view import View
from tests.kit import golden
from tests.kit.world import World, manifests_of
from xds.messages.assignment import ASSIGNMENT_TYPE
from xds.messages.cluster import CLUSTER_TYPE
from xds.messages.fallback import AGAIN
from xds.messages.listener import LISTENER_TYPE
from xds.messages.scope import SCOPED_ROUTE_TYPE
from xds.messages.secret import SECRET_TYPE

CASE = "11-ingress-tls"
TYPES = {
    "cds": CLUSTER_TYPE,
    "eds": ASSIGNMENT_TYPE,
    "lds": LISTENER_TYPE,
    "sds": SECRET_TYPE,
    "srds": SCOPED_ROUTE_TYPE,
}

Table = dict[str, list[tuple[str, str, str]]]
"""Host -> (kind, path, `<hostname>:<port>`) in the order of matching."""


def views() -> dict[str, View]:
    found = {section: view_of(type_url, lambda _: "") for section, type_url in TYPES.items()}
    return {section: view for section, view in found.items() if view is not None}


@pytest.fixture(scope="module")
def world() -> World:
    """The case, in Istio's place."""
    scenario = golden.load(CASE)
    world = World(scenario.local_cluster, istio_classes=True)
    world.ask(*views().values())
    for cluster, directory in scenario.directories.items():
        world.apply(cluster, *manifests_of(directory))
    world.step()
    return world


@pytest.fixture(scope="module")
def record() -> Any:
    """What the peer told its gateway."""
    return golden.load(CASE).record("ingress")


def path_of(match: dict[str, Any]) -> tuple[str, str]:
    if "path" in match:
        return "Exact", match["path"]
    return "Prefix", match.get("path_separated_prefix") or match["prefix"]


def ours(world: World) -> Table:
    table: Table = {}
    for name, scope in world.told(views()["srds"]).items():
        if name == AGAIN:
            continue
        (host,) = scope["route_configuration"]["virtual_hosts"]
        rows = table[host["name"]] = []
        for route in host["routes"]:
            if "route" in route:
                _, namespace, service, port = route["route"]["cluster"].split("|")
                rows.append((*path_of(route["match"]), f"{service}.{namespace}.svc.cluster.local:{port}"))
    return table


def theirs(record: Any) -> Table:
    table: Table = {}
    for host in record["rds"]["http.8080"]["virtual_hosts"]:
        (name,) = host["domains"]
        rows = table[name] = []
        for route in host["routes"]:
            _, port, _, hostname = route["route"]["cluster"].split("|")
            rows.append((*path_of(route["match"]), f"{hostname}:{port}"))
    return table


def test_the_same_paths_lead_to_the_same_services_but_of_a_class_that_does_not_exist(world: World, record: Any) -> None:
    recorded = theirs(record)
    del recorded["dangling.example"]
    # The peer passes over an Ingress that has a default backend and no rules.
    recorded["*"] = [("Prefix", "/", "web.shop.svc.cluster.local:80")]
    # A port by its name is the port of that number.
    mine = {
        host: [(kind, path, to.replace(":http", ":80")) for kind, path, to in rows]
        for host, rows in ours(world).items()
    }
    order = {host: sorted(rows, key=lambda row: (row[0], -len(row[1]), row[1])) for host, rows in recorded.items()}
    assert mine == order


def places(assignment: Any) -> dict[str, tuple[str, int]]:
    """Listener and endpoint -> (what it is told to ask for, weight)."""
    found = {}
    for group in assignment.get("endpoints", ()):
        for one in group["lb_endpoints"]:
            address = one["endpoint"]["address"]["envoy_internal_address"]
            told = one["metadata"]["filter_metadata"].get("istio", {}).get("double_hbone", {})
            place = f"{address['server_listener_name']}/{address['endpoint_id']}"
            found[place] = (told.get("hbone_target_address", ""), one["load_balancing_weight"])
    return found


@pytest.mark.parametrize("service", ["cart", "web"])
def test_the_same_endpoints_are_behind_them_at_home_and_elsewhere(world: World, record: Any, service: str) -> None:
    recorded = places(record["eds"][f"outbound|80||{service}.shop.svc.cluster.local"])
    mine = places(world.told(views()["eds"])[f"ing|shop|{service}|80"])
    assert mine.keys() == recorded.keys()
    assert {place: told for place, (told, _) in mine.items()} == {place: told for place, (told, _) in recorded.items()}


def test_a_secret_is_looked_for_beside_its_ingress_where_the_peer_looks_beside_its_gateway(
    world: World, record: Any
) -> None:
    assert list(record["sds"]) == ["kubernetes://shop-tls"]
    assert world.told(views()["sds"]) == {}
    found = {one.detail for one in world.findings() if one.code == "TlsSecretNotFound"}
    assert found == {f"{host} has the Secret shop/shop-tls" for host in ("shop.example", "api.shop.example")}


def test_a_host_that_two_ingresses_share_is_served_with_all_its_paths_by_tls_too(world: World, record: Any) -> None:
    (secured,) = (table for name, table in record["rds"].items() if name.startswith("https."))
    assert [host["domains"] for host in secured["virtual_hosts"]] == [["api.shop.example"]]  # and none of shop.example
    scope = next(
        one
        for one in world.told(views()["srds"]).values()
        if one["key"]["fragments"][1]["string_key"] == "shop.example"
    )
    names = [route["name"] for route in scope["route_configuration"]["virtual_hosts"][0]["routes"]]
    assert names == ["to-https", "Exact /exact", "Prefix /extra", "Prefix /cart", "Prefix /"]


def test_what_is_told_equals_our_own_record(world: World) -> None:
    told: dict[str, Any] = {section: world.told(view) for section, view in views().items()}
    told["findings"] = [str(finding) for finding in world.findings()]
    told["versions"] = {section: world.versions(view) for section, view in views().items()}
    path = golden.CASES / CASE / "isthmus" / "ingress.json"
    text = json.dumps(told, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    if os.environ.get("ISTHMUS_GOLDEN") == "rewrite":
        path.write_text(text)
    assert path.read_text() == text
