"""What an ingress gateway in compatibility mode serves, beside what the peer's gateway serves of the same Ingresses.

Both have one table of routes here, but names, order and what stands in front of the rules are not the same, so it is
the meaning that is compared: which host and path lead to which service and port. Our own form is held to our own record
of the last time; `make golden` writes it anew.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from aggregator.views.ingress_compatible import view_of
from aggregator.views.view import View
from tests.golden.test_ingress import CASE, Table, path_of, theirs
from tests.kit import golden
from tests.kit.world import World, manifests_of
from xds.messages.cluster import CLUSTER_TYPE
from xds.messages.hbone import Profile
from xds.messages.listener import LISTENER_TYPE
from xds.messages.route_table import ROUTE_TYPE
from xds.messages.secret import SECRET_TYPE

TYPES = {"cds": CLUSTER_TYPE, "lds": LISTENER_TYPE, "rds": ROUTE_TYPE, "sds": SECRET_TYPE}


def view(section: str) -> View:
    found = view_of(TYPES[section], lambda _: "", profile=Profile.ISTIO)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def world() -> World:
    """The case, in Istio's place, for a proxy of Istio's."""
    scenario = golden.load(CASE)
    world = World(scenario.local_cluster, istio_classes=True)
    world.ask(*map(view, TYPES))
    for cluster, directory in scenario.directories.items():
        world.apply(cluster, *manifests_of(directory))
    world.step()
    return world


def ours(world: World) -> Table:
    table: Table = {}
    for host in world.told(view("rds"))["default"]["virtual_hosts"]:
        (name,) = host["domains"]
        rows = table[name] = []
        for route in host["routes"]:
            if "route" in route:
                _, namespace, service, port = route["route"]["cluster"].split("|")
                number = port.replace("http", "80")  # a port by its name is the port of that number
                rows.append((*path_of(route["match"]), f"{service}.{namespace}.svc.cluster.local:{number}"))
    return table


def test_the_same_paths_lead_to_the_same_services_but_of_a_class_that_does_not_exist(world: World) -> None:
    recorded = theirs(golden.load(CASE).record("ingress"))
    del recorded["dangling.example"]
    # The peer passes over an Ingress that has a default backend and no rules.
    recorded["*"] = [("Prefix", "/", "web.shop.svc.cluster.local:80")]
    order = {host: sorted(rows, key=lambda row: (row[0], -len(row[1]), row[1])) for host, rows in recorded.items()}
    assert ours(world) == order


def test_every_cluster_that_a_route_names_is_told_as_with_the_peer(world: World) -> None:
    clusters = world.told(view("cds"))
    named = {
        route["route"]["cluster"]
        for host in world.told(view("rds"))["default"]["virtual_hosts"]
        for route in host["routes"]
        if "route" in route
    }
    assert named
    assert named <= clusters.keys()


def test_what_is_told_equals_our_own_record(world: World) -> None:
    told: dict[str, Any] = {section: world.told(view(section)) for section in TYPES}
    told["versions"] = {section: world.versions(view(section)) for section in TYPES}
    path = golden.CASES / CASE / "isthmus" / "ingress-compatible.json"
    text = json.dumps(told, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    if os.environ.get("ISTHMUS_GOLDEN") == "rewrite":
        path.write_text(text)
    assert path.read_text() == text
