"""Workloads of remote clusters prove who they are to a whole control plane, by tokens of their own clusters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from cryptography import x509

from tests.kit.certificates import signing_request
from tests.kit.eventually import eventually
from tests.kit.kubeconfigs import kubeconfig, remote_secret
from tests.kit.plane import Plane
from tests.kit.two_api_servers import TwoApiServers
from xds.client import StreamEnded

CART = "shop/cart"


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[TwoApiServers]:
    both = TwoApiServers(tmp_path)
    async with both.served():
        yield both


async def certificate(plane: Plane, token: str, identity: str, cluster: str = "beta") -> list[str]:
    """The names in the certificate that a bearer of the token gets for an identity; raises StreamEnded."""
    async with plane.client(token, cluster=cluster) as client:
        leaf, *_ = await client.create_certificate(signing_request(identity))
    names = x509.load_pem_x509_certificate(leaf.encode()).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    return names.value.get_values_for_type(x509.UniformResourceIdentifier)


async def refused(plane: Plane, token: str, identity: str, cluster: str = "beta") -> grpc.StatusCode:
    with pytest.raises(StreamEnded) as caught:
        await certificate(plane, token, identity, cluster)
    code: grpc.StatusCode = caught.value.code
    return code


async def test_a_remotes_token_is_worth_a_certificate_for_its_own_account_and_for_no_other(
    servers: TwoApiServers,
) -> None:
    servers.register()
    own, other = (f"spiffe://cluster.local/ns/shop/sa/{name}" for name in ("cart", "orders"))
    async with servers.plane() as plane:
        token = servers.beta.accounts.token(CART, pod="cart-1")
        assert await certificate(plane, token, own) == [own]
        assert await refused(plane, token, other) is grpc.StatusCode.PERMISSION_DENIED
        assert servers.beta.count(kind="KeySet", status=200) == 1


async def test_a_remote_with_a_trust_domain_of_its_own_gets_certificates_of_that_one(servers: TwoApiServers) -> None:
    secret = remote_secret("far", {"beta": kubeconfig(servers.beta.url, "t1", servers.beta.ca)})
    secret["metadata"]["annotations"] = {"isthmus.io/trust-domain": "beta.example"}
    servers.alpha.apply(secret)
    async with servers.plane() as plane:
        token = servers.beta.accounts.token(CART)
        own, homes = (f"spiffe://{domain}/ns/shop/sa/cart" for domain in ("beta.example", "cluster.local"))
        assert await certificate(plane, token, own) == [own]
        assert await refused(plane, token, homes) is grpc.StatusCode.PERMISSION_DENIED


async def test_a_remote_that_is_registered_by_a_file_is_as_good_as_one_by_a_secret(servers: TwoApiServers) -> None:
    own = "spiffe://cluster.local/ns/shop/sa/cart"
    async with Plane(servers.write(servers.alpha), servers.write(servers.beta)) as plane:
        assert await certificate(plane, servers.beta.accounts.token(CART), own) == [own]


async def test_a_token_of_another_cluster_or_of_none_is_not_accepted(servers: TwoApiServers) -> None:
    servers.register()
    own = "spiffe://cluster.local/ns/shop/sa/cart"
    async with servers.plane() as plane:
        beta, alpha = servers.beta.accounts.token(CART), servers.alpha.accounts.token(CART)
        assert await certificate(plane, beta, own) == [own]
        assert await refused(plane, alpha, own, "beta") is grpc.StatusCode.UNAUTHENTICATED
        for cluster in ("gamma", "be/ta"):
            assert await refused(plane, beta, own, cluster) is grpc.StatusCode.UNAUTHENTICATED
        late = servers.beta.accounts.token(CART, seconds=-1.0)
        vault = servers.beta.accounts.token(CART, audiences=["vault"])
        for token in (late, vault, "no.to.ken", f"{beta}x"):
            assert await refused(plane, token, own) is grpc.StatusCode.UNAUTHENTICATED


async def test_tokens_of_a_cluster_in_a_directory_are_not_accepted(servers: TwoApiServers, tmp_path: Path) -> None:
    directory = tmp_path / "gamma"
    directory.mkdir()
    own = "spiffe://cluster.local/ns/shop/sa/cart"
    async with Plane(servers.write(servers.alpha), directory, servers.write(servers.beta)) as plane:
        token = servers.beta.accounts.token(CART)
        assert await refused(plane, token, own, "gamma") is grpc.StatusCode.UNAUTHENTICATED


async def test_a_cluster_that_does_not_tell_of_its_keys_is_tried_again(
    servers: TwoApiServers, caplog: pytest.LogCaptureFixture
) -> None:
    servers.beta.forbidden = {"OpenIDConfiguration"}
    servers.register()
    own = "spiffe://cluster.local/ns/shop/sa/cart"
    async with servers.plane() as plane:
        token = servers.beta.accounts.token(CART)
        assert await refused(plane, token, own) is grpc.StatusCode.UNAVAILABLE
        (record,) = [one for one in caplog.records if one.getMessage() == "keys cannot be read"]
        assert "bind ClusterRole system:service-account-issuer-discovery" in vars(record)["cause"]
        servers.beta.forbidden = set()
        # A new credential is tried at once.
        servers.register("t2")
        await eventually(lambda: {request.token for request in servers.beta.watching()} == {"t2"})
        assert await certificate(plane, token, own) == [own]


async def test_a_cluster_that_is_taken_out_of_the_mesh_gets_no_more_certificates(servers: TwoApiServers) -> None:
    servers.register()
    own = "spiffe://cluster.local/ns/shop/sa/cart"
    async with servers.plane() as plane:
        token = servers.beta.accounts.token(CART)
        assert await certificate(plane, token, own) == [own]
        servers.alpha.delete("Secret", "istio-system/far")
        await eventually(lambda: [name for name, _ in plane.control.clusters.states()] == ["alpha"])
        assert await refused(plane, token, own) is grpc.StatusCode.UNAUTHENTICATED
        tokens = plane.control.clusters.remote_tokens
        assert tokens is not None
        await eventually(lambda: tokens._judges == {})
