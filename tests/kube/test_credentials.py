"""Credentials by name with real API servers: what a role has to grant for them, and which accounts may have them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.kit import certificates as c
from tests.kit import manifests as m
from tests.kit.credentials import asking, base, gateway
from tests.kit.manifests import Manifest
from tests.kit.three_servers import SYSTEM, ThreeServers, valid

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "credentials.md"
OWN, GIVEN = "kubernetes://tls", "kubernetes-gateway://certs/tls"
PAIR, OTHER = c.host_pair("a.example"), c.host_pair("b.example")
RBAC = "rbac.authorization.k8s.io"


def bound(name: str, account: str, **rule: list[str]) -> tuple[Manifest, Manifest]:
    """A Role `namespace/name` that allows something with Secrets, for `namespace/account`."""
    space, _, own = name.partition("/")
    where, _, who = account.partition("/")
    metadata = {"name": own, "namespace": space}
    rules = [{"apiGroups": [""], "resources": ["secrets"], **rule}]
    return (
        {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": own},
            "subjects": [{"kind": "ServiceAccount", "name": who, "namespace": where}],
        },
    )


READ = ["get", "list", "watch"]
BY_NAME = bound("infra/isthmus", f"{SYSTEM}/isthmus", verbs=READ, resourceNames=["tls"])
EDGE_MAY_LIST = bound("infra/edge", "infra/edge", verbs=["list"])


@pytest.fixture
async def edge(world: ThreeServers) -> ThreeServers:
    """A gateway `infra/edge`, a pair in its namespace and one in `certs`; the control plane may read both by name."""
    await world.alpha.apply(
        *base(),
        m.secret("infra/tls", cert=PAIR[0], key=PAIR[1]),
        m.secret("certs/tls", kind="kubernetes.io/tls", tls_crt=OTHER[0], tls_key=OTHER[1]),
        valid(gateway("certs/tls")),
        *BY_NAME,
        *bound("certs/isthmus", f"{SYSTEM}/isthmus", verbs=READ, resourceNames=["tls"]),
    )
    return world


async def test_who_may_list_the_secrets_of_its_namespace_is_served_one_that_is_granted_by_its_name(
    edge: ThreeServers,
) -> None:
    await edge.alpha.apply(*EDGE_MAY_LIST)
    async with edge.plane(leader_elect=False) as plane:
        token = await edge.alpha.create_token("infra/edge", 3600, "istio-ca")
        async with asking(plane, "delta", token, OWN) as client:
            await client.pair(OWN, PAIR[0])
            await edge.alpha.apply(m.secret("infra/tls", cert=OTHER[0], key=OTHER[1]))
            await client.pair(OWN, OTHER[0])


async def test_who_may_not_is_served_what_its_gateway_refers_to_alone(edge: ThreeServers) -> None:
    async with edge.plane(leader_elect=False) as plane:
        token = await edge.alpha.create_token("infra/edge", 3600, "istio-ca")
        async with asking(plane, "delta", token, OWN, GIVEN) as client:
            await client.absent(OWN, GIVEN)
            grant = m.reference_grant("certs/gateways", "infra", "tls")
            await edge.alpha.apply(grant)
            await client.pair(GIVEN, OTHER[0])
            await edge.alpha.delete_manifest(grant)
            await client.absent(GIVEN)
            assert client.keys == {}


async def test_the_role_in_the_documentation_is_enough_and_no_more_than_that(edge: ThreeServers) -> None:
    (text,) = [block for block in DOCS.read_text().split("```") if "kind: Role\n" in block]
    role, binding = yaml.safe_load_all(text.removeprefix("yaml\n"))
    assert role["rules"] == [{"apiGroups": [""], "resources": ["secrets"], "verbs": READ, "resourceNames": ["shop"]}]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "isthmus", "namespace": SYSTEM}]
