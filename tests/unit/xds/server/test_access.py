"""Who may open a stream, read a type, have a certificate."""

from __future__ import annotations

import asyncio

import grpc
import msgspec
import pytest

from tests.kit.accounts import ORDERS, ZTUNNEL, Accounts
from xds.messages.authorization import AUTHORIZATION_TYPE
from xds.messages.workload import ADDRESS_TYPE, WORKLOAD_TYPE
from xds.server.access import SECRET_TYPES, Access, Admission, ProxyPod
from xds.server.authentication import Caller, Identity
from xds.server.proxies import Claims
from xds.server.refusals import Refusal

NODE_ID = "ztunnel~10.0.0.1~ztunnel-x.istio-system~istio-system.svc.cluster.local"
CLUSTER_TYPE = "type.googleapis.com/envoy.config.cluster.v3.Cluster"


def access(accounts: Accounts | None = None, patience: float = 0.01) -> Access:
    return Access(accounts or Accounts(), patience=patience)


def caller(identity: Identity | None = ZTUNNEL, cluster: str = "west") -> Caller:
    return Caller("10.0.0.1:1000", identity, cluster)


def claims(**fields: str) -> Claims:
    return msgspec.structs.replace(Claims(id=NODE_ID, kind="ztunnel"), **fields)


async def test_role_network_and_node_come_from_what_is_proven() -> None:
    proxy = await access().admit(caller(), claims(cluster="claimed"))
    assert (proxy.role, proxy.namespace, proxy.network, proxy.node, proxy.cluster, proxy.identity) == (
        "ztunnel",
        "istio-system",
        "net-1",
        "n1",
        "west",
        ZTUNNEL,
    )


UNBOUND = Identity("cluster.local", "istio-system", "ztunnel")
OTHER_POD = ProxyPod("ztunnel", "n2", "net-2")


async def test_a_node_that_nothing_proves_is_not_known() -> None:
    assert (await access().admit(caller(UNBOUND), claims(node="n2"))).node == ""


async def test_node_and_network_are_those_of_the_pod_that_the_token_names() -> None:
    accounts = Accounts()
    accounts.pods["istio-system", "ztunnel-y"] = OTHER_POD
    identity = msgspec.structs.replace(UNBOUND, pod="ztunnel-y")
    proxy = await access(accounts).admit(caller(identity), claims())
    assert (proxy.node, proxy.network) == ("n2", "net-2")


async def test_where_only_the_account_is_proven_the_claim_says_which_of_its_pods_it_is() -> None:
    accounts = Accounts()
    accounts.pods["istio-system", "ztunnel-y"] = OTHER_POD
    proxy = await access(accounts).admit(caller(UNBOUND), claims(pod="ztunnel-y"))
    assert (proxy.node, proxy.network) == ("n2", "net-2")


async def test_a_claimed_pod_of_another_account_gives_nothing() -> None:
    accounts = Accounts()
    accounts.pods["istio-system", "gate-1"] = ProxyPod("gate", "n2", "net-2")
    proxy = await access(accounts).admit(caller(UNBOUND), claims(pod="gate-1"))
    assert (proxy.node, proxy.network) == ("", "net-1")


async def test_a_claimed_node_that_is_not_that_of_the_pod_is_denied() -> None:
    with pytest.raises(Refusal, match="'n2'"):
        await access().admit(caller(UNBOUND), claims(pod="ztunnel-x", node="n2"))


async def test_a_stream_waits_for_the_pod_that_its_token_names() -> None:
    accounts = Accounts()
    identity = msgspec.structs.replace(UNBOUND, pod="ztunnel-y")
    admitted = asyncio.create_task(access(accounts, patience=60).admit(caller(identity), claims()))
    await asyncio.sleep(0)
    accounts.pods["istio-system", "ztunnel-y"] = OTHER_POD
    accounts.ring()
    assert (await admitted).node == "n2"


async def test_a_proxy_of_another_cluster_opens_no_stream_whatever_account_it_has() -> None:
    with pytest.raises(Refusal, match="is of cluster 'east'") as caught:
        await access().admit(caller(msgspec.structs.replace(ZTUNNEL, cluster="east")), claims())
    assert caught.value.code is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize(
    ("claim", "value"),
    [
        ("namespace", "shop"),
        ("service_account", "orders"),
        ("pod", "ztunnel-y"),
        ("node", "n2"),
        ("kind", "waypoint"),
    ],
)
async def test_a_claim_that_contradicts_the_token_is_denied_and_named(claim: str, value: str) -> None:
    with pytest.raises(Refusal, match=repr(value)) as caught:
        await access().admit(caller(), claims(**{claim: value}))
    assert caught.value.code is grpc.StatusCode.PERMISSION_DENIED


async def test_a_proxy_of_another_trust_domain_opens_no_stream_whatever_account_it_has() -> None:
    with pytest.raises(Refusal, match=r"not of trust domain 'cluster\.local'") as caught:
        await access().admit(caller(msgspec.structs.replace(ZTUNNEL, trust_domain="other")), claims())
    assert caught.value.code is grpc.StatusCode.PERMISSION_DENIED


async def test_an_account_of_plain_workloads_opens_no_stream() -> None:
    with pytest.raises(Refusal, match="under an account of its own") as caught:
        await access().admit(caller(ORDERS), claims())
    assert caught.value.code is grpc.StatusCode.PERMISSION_DENIED


async def test_whether_an_account_may_open_streams_is_told_without_a_word_of_it() -> None:
    await access().expect(caller())
    await access().expect(caller(None))
    with pytest.raises(Refusal, match="under an account of its own"):
        await access().expect(caller(ORDERS))
    with pytest.raises(Refusal, match="no pod of this cluster"):
        await access().expect(caller(Identity("cluster.local", "nowhere", "nobody")))


async def test_an_account_nobody_runs_as_opens_no_stream() -> None:
    with pytest.raises(Refusal, match="no pod of this cluster") as caught:
        await access().admit(caller(Identity("cluster.local", "shop", "ghost")), claims())
    assert caught.value.code is grpc.StatusCode.PERMISSION_DENIED


async def test_nobody_is_judged_before_admissions_are_known() -> None:
    accounts = Accounts(known=False)
    admitted = asyncio.ensure_future(access(accounts, patience=0).admit(caller(), claims()))
    unproven = asyncio.ensure_future(access(accounts, patience=0).admit(caller(None), claims()))
    for _ in range(5):
        accounts.ring()
        await asyncio.sleep(0)
    assert not admitted.done()
    assert not unproven.done()
    accounts.known = True
    accounts.ring()
    assert (await admitted).role == (await unproven).role == "ztunnel"


async def test_an_account_heard_of_a_moment_later_is_admitted_then() -> None:
    accounts = Accounts()
    ztunnel = accounts.accounts.pop(("istio-system", "ztunnel"))
    admitted = asyncio.ensure_future(access(accounts, patience=60).admit(caller(), claims()))
    await asyncio.sleep(0)
    accounts.ring()
    await asyncio.sleep(0)
    assert not admitted.done()
    accounts.accounts["istio-system", "ztunnel"] = ztunnel
    accounts.ring()
    assert (await admitted).role == "ztunnel"


async def test_without_identity_the_role_is_the_kind_in_the_node_id() -> None:
    proxy = await access().admit(caller(None), claims(namespace="istio-system", node="n7", cluster="west"))
    assert (proxy.role, proxy.identity, proxy.namespace, proxy.node, proxy.cluster) == (
        "ztunnel",
        None,
        "istio-system",
        "n7",
        "west",
    )


@pytest.mark.parametrize("kind", ["", "sidecar", "ztunnel2"])
async def test_without_identity_other_kinds_are_refused(kind: str) -> None:
    with pytest.raises(Refusal, match="ztunnel~") as caught:
        await access().admit(caller(None), claims(kind=kind))
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_ztunnel_reads_workloads_and_policies_and_nothing_else() -> None:
    proxy = await access().admit(caller(), claims())
    readable = {ADDRESS_TYPE, WORKLOAD_TYPE, AUTHORIZATION_TYPE}
    asked = readable | SECRET_TYPES | {CLUSTER_TYPE, ""}
    assert {type_url for type_url in asked if access().may_read(proxy, type_url)} == readable


async def test_no_secret_is_read_without_identity_whatever_the_role(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xds.server.access.READABLE", {"ztunnel": SECRET_TYPES})
    for identity, may in ((None, False), (ZTUNNEL, True)):
        proxy = await access().admit(caller(identity), claims())
        assert {access().may_read(proxy, type_url) for type_url in SECRET_TYPES} == {may}


async def test_everybody_may_have_a_certificate_of_its_own() -> None:
    await access().authorize_certificate(caller(ORDERS), ORDERS)


async def test_a_certificate_of_its_own_needs_no_admission() -> None:
    await access(Accounts(known=False)).authorize_certificate(caller(ORDERS), ORDERS)


async def test_a_ztunnel_may_act_for_the_accounts_of_its_node() -> None:
    await access().authorize_certificate(caller(), ORDERS)


async def test_the_node_of_a_ztunnel_is_that_of_its_pod_where_the_token_names_none() -> None:
    identity = msgspec.structs.replace(UNBOUND, pod="ztunnel-x")
    await access().authorize_certificate(caller(identity), ORDERS)
    with pytest.raises(Refusal, match="on node n1"):
        await access().authorize_certificate(caller(identity), Identity("cluster.local", "shop", "ledger"))


async def test_a_pod_heard_of_a_moment_later_gets_its_certificate_then() -> None:
    accounts = Accounts()
    granted = asyncio.ensure_future(
        access(accounts, patience=60).authorize_certificate(caller(), Identity("cluster.local", "shop", "ledger"))
    )
    await asyncio.sleep(0)
    accounts.accounts["shop", "ledger"] = Admission("", ("n1", "n2"))
    accounts.ring()
    await granted


@pytest.mark.parametrize(
    ("identity", "asked", "says"),
    [
        pytest.param(ORDERS, Identity("cluster.local", "shop", "ledger"), "only the node proxies", id="plain account"),
        pytest.param(Identity("x", "no", "body"), ORDERS, "only the node proxies", id="unknown account"),
        pytest.param(ZTUNNEL, Identity("cluster.local", "shop", "ledger"), "on node n1", id="other node"),
        pytest.param(ZTUNNEL, Identity("cluster.local", "shop", "ghost"), "no pod on node n1", id="nobody"),
        pytest.param(ZTUNNEL, Identity("other", "shop", "orders"), "another trust domain", id="other trust domain"),
        pytest.param(
            msgspec.structs.replace(ZTUNNEL, trust_domain="other"),
            Identity("other", "shop", "orders"),
            "only the node proxies",
            id="ztunnel of another trust domain",
        ),
        pytest.param(UNBOUND, ORDERS, "on which node", id="unknown node"),
        pytest.param(msgspec.structs.replace(UNBOUND, pod="gone"), ORDERS, "on which node", id="unknown pod"),
        pytest.param(msgspec.structs.replace(ZTUNNEL, cluster="east"), ORDERS, "only the node proxies", id="remote"),
    ],
)
async def test_other_certificates_are_denied(identity: Identity, asked: Identity, says: str) -> None:
    with pytest.raises(Refusal, match=says) as caught:
        await access().authorize_certificate(caller(identity), asked)
    assert caught.value.code is grpc.StatusCode.PERMISSION_DENIED


async def test_a_caller_without_identity_has_no_certificate() -> None:
    with pytest.raises(Refusal) as caught:
        await access().authorize_certificate(caller(None), ORDERS)
    assert caught.value.code is grpc.StatusCode.UNAUTHENTICATED
