"""What a node claims, read from the first request."""

from __future__ import annotations

import grpc
import pytest

from xds.server.proxies import LONGEST_METADATA_VALUE, LONGEST_NODE_ID, claims_of
from xds.server.refusals import Refusal
from xds.session.requests import Node


def node(node_id: str, **metadata: str | None) -> Node:
    return Node(id=node_id, cluster="", metadata=dict(metadata))


def test_the_claims_of_a_ztunnel_are_read_from_id_and_metadata() -> None:
    claims = claims_of(
        node(
            "ztunnel~10.201.0.1~ztunnel-node-b.istio-system~istio-system.svc.cluster.local",
            NAME="ztunnel-node-b",
            NAMESPACE="istio-system",
            NODE_NAME="node-b",
            CLUSTER_ID="cluster-b",
            VIEW="b",
        )
    )
    assert (claims.kind, claims.pod, claims.namespace, claims.node, claims.cluster) == (
        "ztunnel",
        "ztunnel-node-b",
        "istio-system",
        "node-b",
        "cluster-b",
    )
    assert dict(claims.metadata).keys() == {"NAME", "NAMESPACE", "NODE_NAME", "CLUSTER_ID"}


def test_a_ztunnel_outside_kubernetes_claims_nothing_but_its_kind() -> None:
    claims = claims_of(node("ztunnel~1.1.1.1~.~.svc.cluster.local", NAME="", NAMESPACE="", NODE_NAME=""))
    assert (claims.kind, claims.pod, claims.namespace, claims.node) == ("ztunnel", "", "", "")


def test_the_namespace_is_what_follows_the_last_dot() -> None:
    claims = claims_of(node("ztunnel~1.1.1.1~pod.with.dots.shop~shop.svc.cluster.local"))
    assert (claims.pod, claims.namespace) == ("pod.with.dots", "shop")


def test_an_id_of_another_form_is_no_claim() -> None:
    claims = claims_of(node("edge-7"))
    assert (claims.id, claims.kind, claims.namespace) == ("edge-7", "", "")


@pytest.mark.parametrize("made", [None, node("")])
def test_a_node_without_id_is_refused_with_the_cure(made: Node | None) -> None:
    with pytest.raises(Refusal, match=r"set node\.id") as caught:
        claims_of(made)
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT


def test_a_node_that_contradicts_itself_is_denied() -> None:
    with pytest.raises(Refusal, match="let both say the same") as caught:
        claims_of(node("ztunnel~1.1.1.1~z.shop~shop.svc.cluster.local", NAMESPACE="bank"))
    assert caught.value.code is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize(
    "made",
    [
        node("x" * (LONGEST_NODE_ID + 1)),
        node("edge", NODE_NAME="n" * (LONGEST_METADATA_VALUE + 1)),
        node("edge", CLUSTER_ID=None),
    ],
)
def test_claims_of_unusual_size_or_kind_are_refused(made: Node) -> None:
    with pytest.raises(Refusal) as caught:
        claims_of(made)
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert len(caught.value.message) < 200


def test_metadata_nobody_reads_are_no_claims() -> None:
    assert claims_of(node("edge", WEIGHT=None)).metadata == ()
