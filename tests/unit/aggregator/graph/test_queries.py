"""Questions to a graph at rest: why, origins, reached."""

from __future__ import annotations

import pytest

from aggregator.graph import GraphError, Withheld
from aggregator.graph.queries import Read, Why, reached
from tests.kit.toy_graph import Cluster, Pod, Service, ToyMesh, run, snapshot

WEST_WEB, WEST_API, EAST_WEB = ("west", "web"), ("west", "api"), ("east", "web")


@pytest.fixture
def mesh() -> ToyMesh:
    mesh = ToyMesh()
    run(
        mesh.graph,
        {
            mesh.clusters: {"west": Cluster("red"), "east": Cluster("blue")},
            mesh.nodes: {("west", "n"): "zone-a"},
            mesh.pods: {
                ("west", "p"): Pod("web", "n"),
                ("west", "q"): Pod("broken", "n"),
                ("gone", "r"): Pod("web", "n"),
            },
            mesh.services: {
                WEST_WEB: Service("web", ("shop",), "good"),
                EAST_WEB: Service("web", ("shop", "mail")),
                WEST_API: Service("api"),
            },
            mesh.views: {"v": ("red",), "blind": ("red",)},
        },
    )
    return mesh


# -- why --------------------------------------------------------------------------------------------------------------


def test_why_tells_what_was_yielded_and_read(mesh: ToyMesh) -> None:
    told = mesh.graph.why(mesh.workloads, ("west", "p"))
    assert told is not None
    assert told.produced == ((("west", "p"), ("red", "zone-a", (EAST_WEB, WEST_WEB), True)),)
    assert told.reads == (
        Read("networks", "west", True),
        Read("nodes", ("west", "n"), True),
        Read("services by app", "web", True),
    )
    assert told.withheld == ()


def test_why_tells_the_reason_of_the_withheld(mesh: ToyMesh) -> None:
    told = mesh.graph.why(mesh.workloads, ("gone", "r"))
    assert told is not None
    assert told.withheld == (Withheld("ClusterUnknown"),)
    assert told.reads == (Read("networks", "gone", False),)


def test_why_tells_what_was_noted(mesh: ToyMesh) -> None:
    run(mesh.graph, {mesh.nodes: {("west", "n"): None}})
    told = mesh.graph.why(mesh.workloads, ("west", "p"))
    assert told is not None
    assert told.notes == ((("node", "west", "n"), "unknown node n"),)


def test_why_tells_a_failure_as_a_pass_does(mesh: ToyMesh) -> None:
    told = mesh.graph.why(mesh.workloads, ("west", "q"))
    assert told is not None
    assert told.withheld == (Withheld("InternalError", "no workload of ('west', 'q')"),)


def test_why_tells_all_that_an_item_expands_to(mesh: ToyMesh) -> None:
    told = mesh.graph.why(mesh.aliases, EAST_WEB)
    assert told is not None
    assert told.produced == (("shop", EAST_WEB), ("mail", EAST_WEB))


def test_why_tells_of_pairs(mesh: ToyMesh) -> None:
    pod = ("west", "p")
    assert mesh.graph.why(mesh.resources, ("blind", pod)) == Why(((("blind", pod), Withheld("ViewIsBlind")),), (), ())
    told = mesh.graph.why(mesh.resources, ("v", pod))
    assert told is not None
    assert told.withheld == ()
    assert told.produced[0][1] == mesh.graph.values(mesh.resources)["v", pod]


def test_there_is_no_why_of_what_does_not_exist(mesh: ToyMesh) -> None:
    assert mesh.graph.why(mesh.workloads, ("west", "nobody")) is None
    assert mesh.graph.why(mesh.resources, ("v", "mail")) is None
    assert mesh.graph.why(mesh.resources, ("nobody", ("west", "p"))) is None


def test_there_is_no_why_of_what_is_not_derived(mesh: ToyMesh) -> None:
    with pytest.raises(GraphError, match="not derived"):
        mesh.graph.why(mesh.pods, ("west", "p"))


def test_questions_change_nothing(mesh: ToyMesh) -> None:
    before, counted = snapshot(mesh.graph), dict(mesh.graph.withheld)
    mesh.graph.why(mesh.workloads, ("gone", "r"))
    mesh.graph.origins(mesh.hosts, "shop")
    mesh.graph.reached(mesh.clusters, "west")
    assert snapshot(mesh.graph) == before
    assert mesh.graph.withheld == counted


# -- origins ----------------------------------------------------------------------------------------------------------


def test_origins_of_a_pair_are_those_of_both_members(mesh: ToyMesh) -> None:
    assert mesh.graph.origins(mesh.resources, ("v", ("west", "p"))) == {("views", "v"), ("pods", ("west", "p"))}


def test_origins_of_a_group_are_those_of_its_members(mesh: ToyMesh) -> None:
    assert mesh.graph.origins(mesh.hosts, "shop") == {("services", WEST_WEB), ("services", EAST_WEB)}


def test_origins_of_an_expanded_item_are_those_of_its_producer(mesh: ToyMesh) -> None:
    assert mesh.graph.origins(mesh.aliases, "shop") == {("services", EAST_WEB)}


def test_origins_of_a_sum_are_those_of_its_contributors(mesh: ToyMesh) -> None:
    capacity = next(one for one in mesh.graph.collections if one.name == "capacity")
    assert mesh.graph.origins(capacity, "web") == {
        ("pods", ("west", "p")),
        ("services", WEST_WEB),
        ("services", EAST_WEB),
    }


def test_origins_of_a_latched_value_are_the_object_behind_it(mesh: ToyMesh) -> None:
    run(mesh.graph, {mesh.services: {WEST_WEB: Service("web", ("shop",), "bad")}})
    assert mesh.graph.values(mesh.certificates) == {WEST_WEB: "good"}
    assert mesh.graph.origins(mesh.certificates, WEST_WEB) == {("services", WEST_WEB)}


def test_there_are_no_origins_of_what_does_not_exist(mesh: ToyMesh) -> None:
    assert mesh.graph.origins(mesh.aliases, "nobody") == set()


# -- reached ----------------------------------------------------------------------------------------------------------


def test_a_source_item_reaches_what_was_made_of_it(mesh: ToyMesh) -> None:
    assert mesh.graph.reached(mesh.nodes, ("west", "n")) == {
        "resources": {("v", ("west", "p"))},
        "capacity": {"web"},
        "services": {WEST_WEB, EAST_WEB},
    }


def test_a_source_item_reaches_through_absence(mesh: ToyMesh) -> None:
    """That a cluster is not there has been read by its pod, and is why nothing of it is there."""
    assert mesh.graph.reached(mesh.clusters, "gone") == {}
    fork = mesh.graph.fork()
    run(fork, {mesh.clusters: {"gone": Cluster("red")}})
    assert reached(mesh.graph, mesh.clusters, "gone", after=fork)["resources"] == {("v", ("gone", "r"))}


def test_a_view_reaches_its_pairs_and_its_neighbours(mesh: ToyMesh) -> None:
    assert mesh.graph.reached(mesh.views, "v")["resources"] == {
        ("v", ("west", "p")),
        ("v", "v"),
        ("v", "blind"),
        ("blind", "v"),
    } | {("v", host) for host in mesh.graph.values(mesh.hosts) if ("v", host) in mesh.graph.values(mesh.resources)}


def test_a_service_reaches_its_latched_certificate(mesh: ToyMesh) -> None:
    found = mesh.graph.reached(mesh.services, WEST_WEB)
    assert found["latched"] == found["certificates"] == {WEST_WEB}


def test_what_is_not_there_reaches_nothing(mesh: ToyMesh) -> None:
    assert mesh.graph.reached(mesh.views, "nobody") == {}
