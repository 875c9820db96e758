"""Sound first and later requests of proxies, for the modules that damage them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from tests.kit.accounts import NODE_ID
from tests.kit.hostile import damaged, damaged_message
from xds import protos
from xds.messages.authorization import AUTHORIZATION_TYPE
from xds.messages.workload import ADDRESS_TYPE, WORKLOAD_TYPE
from xds.server.dialogue import Variant

discovery = protos.envoy.service.discovery.v3

TYPES: Sequence[str] = (
    ADDRESS_TYPE,
    AUTHORIZATION_TYPE,
    WORKLOAD_TYPE,
    "type.googleapis.com/envoy.config.cluster.v3.Cluster",
    "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
    "type.googleapis.com/nobody.knows.This",
    "",
)
VARIANTS: Sequence[Variant] = ("delta", "sotw")


def node(node_id: str = NODE_ID) -> Any:
    """A node with all that proxies send in one."""
    made = protos.envoy.config.core.v3.Node(id=node_id, cluster="ztunnel", user_agent_name="ztunnel")
    made.metadata.update(
        {
            "NAME": "ztunnel-x",
            "NAMESPACE": "istio-system",
            "NODE_NAME": "n1",
            "SERVICE_ACCOUNT": "ztunnel",
            "CLUSTER_ID": "west",
            "INSTANCE_IPS": "10.0.0.1,fd00::1",
            "LABELS": {"app": "ztunnel", "deep": {"list": [1, 2.5, None, True, {"a": "b"}]}},
        }
    )
    made.extensions.add(name="envoy.hashable_string", category="envoy.x").version.version.major_number = 1
    made.locality.region = "eu"
    made.user_agent_build_version.metadata.update({"build.type": "RELEASE"})
    return made


def requests(variant: Variant, *, first: bool) -> st.SearchStrategy[bytes]:
    """Sound requests of a variant, as bytes; `first`: with a node."""
    names = st.lists(st.sampled_from(["a", "b", "*", "gone", "shop/cart", ""]), max_size=4)

    def made(type_url: str, some: list[str], others: list[str], nonce: str, error: str | None) -> bytes:
        request: Any
        if variant == "delta":
            request = discovery.DeltaDiscoveryRequest(
                type_url=type_url,
                resource_names_subscribe=some,
                resource_names_unsubscribe=others,
                initial_resource_versions=dict.fromkeys(others, "1"),
                response_nonce=nonce,
            )
        else:
            request = discovery.DiscoveryRequest(
                type_url=type_url, resource_names=some, version_info=nonce, response_nonce=nonce
            )
        if error is not None:
            request.error_detail.CopyFrom(protos.google.rpc.Status(code=13, message=error))
            request.error_detail.details.add(type_url="type.googleapis.com/x", value=b"\xff\xff")
        if first:
            request.node.CopyFrom(node())
        data: bytes = request.SerializeToString(deterministic=True)
        return data

    errors = st.none() | st.sampled_from(["", "a: bad; b: worse", ": ", "; ; a", "a:" * 500])
    return st.builds(made, st.sampled_from(TYPES), names, names, st.sampled_from(["", "1", "\0"]), errors)


def hostile_requests(variant: Variant, *, first: bool) -> st.SearchStrategy[bytes]:
    """Requests with damage, and bytes that never were any."""
    sound = requests(variant, first=first)
    return damaged_message(sound) | damaged_message(sound) | damaged(sound) | st.binary(max_size=200) | sound
