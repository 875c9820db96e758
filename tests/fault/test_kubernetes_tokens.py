"""Tokens of clusters that are registered, as registrations and API servers come, go and fail. In virtual time."""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Any, Self

import pytest

from tests.kit.clock import virtual_time
from tests.kit.kube_api import Hold, KubeCluster, Refuse
from tests.kit.kube_mesh import DEAD, KubeMesh
from tests.kit.kube_session import MemorySession
from watchers.kubernetes import remote_tokens
from watchers.kubernetes.issuer_keys import FRESH, HONOURED, PAUSE
from watchers.kubernetes.kubeconfig import ApiServer
from watchers.kubernetes.remote_tokens import VERIFIED, RemoteAccount, RemoteTokens
from watchers.kubernetes.reviews import Undecided
from watchers.kubernetes.token_reviews import Account

CART = RemoteAccount(Account("shop", "cart"), "")


class Judged:
    """quay is home; mesa and dune may be registered. All three call their issuer the same."""

    def __init__(self) -> None:
        self.quay, self.mesa, self.dune = (KubeCluster(name) for name in ("quay", "mesa", "dune"))
        self.mesh = KubeMesh(self.quay, self.mesa, self.dune)
        self._apis = {cluster.url: cluster for cluster in (self.quay, self.mesa, self.dune)}
        now = asyncio.get_running_loop().time
        self._now = now
        registered = self.mesh.clusters.registered
        self.tokens = RemoteTokens(registered, audiences=("istio-ca",), now=now, wall=now, open_session=self._open)

    def _open(self, server: ApiServer) -> MemorySession:
        return MemorySession(self._apis[server.server], server.token)

    async def __aenter__(self) -> Self:
        await self.mesh.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.mesh.__aexit__(kind, error, traceback)

    async def register(self, cluster: str = "mesa", leads_to: KubeCluster | str = "", **given: Any) -> None:
        """A Secret of home registers a cluster; after five seconds it has been read."""
        self.mesh.register(f"of-{cluster}", {cluster: leads_to or self.mesa}, **given)
        await asyncio.sleep(5)

    def token(self, issued_by: KubeCluster | None = None, account: str = "shop/cart", **claimed: Any) -> str:
        """A token that counts for a day, of mesa unless another cluster is named."""
        issuer = (issued_by or self.mesa).accounts
        return issuer.token(account, **{"now": self._now(), "seconds": 86_400.0, **claimed})

    async def whose(self, token: str, cluster: str = "mesa") -> RemoteAccount | None:
        return await self.tokens.review(token, cluster)

    async def undecided(self, token: str, cluster: str = "mesa") -> str:
        with pytest.raises(Undecided) as caught:
            await self.tokens.review(token, cluster)
        return str(caught.value)


def asked(cluster: KubeCluster) -> int:
    """How often the keys of a cluster were asked for."""
    return cluster.count(kind="KeySet")


@virtual_time
async def test_a_token_of_a_registered_cluster_is_accepted_for_that_cluster() -> None:
    async with Judged() as judged:
        await judged.register()
        found = await judged.whose(judged.token(pod="cart-1", node="n1"))
        assert found == RemoteAccount(Account("shop", "cart", "cart-1", "n1", "uid-of-cart-1"), "")


@virtual_time
async def test_the_trust_domain_is_the_one_the_registration_names_and_follows_it() -> None:
    async with Judged() as judged:
        for domain in ("harbour.example", "other.example", ""):
            await judged.register(annotations={"isthmus.io/trust-domain": domain} if domain else None)
            assert await judged.whose(judged.token()) == RemoteAccount(Account("shop", "cart"), domain)


@virtual_time
async def test_a_token_of_one_cluster_is_none_of_another_though_their_issuers_are_called_the_same() -> None:
    async with Judged() as judged:
        await judged.register("mesa", judged.mesa)
        await judged.register("dune", judged.dune)
        assert judged.mesa.accounts.issuer == judged.dune.accounts.issuer == judged.quay.accounts.issuer
        for cluster, strangers in (("mesa", (judged.dune, judged.quay)), ("dune", (judged.mesa, judged.quay))):
            for stranger in strangers:
                assert await judged.whose(judged.token(stranger), cluster) is None
        assert await judged.whose(judged.token(judged.mesa), "mesa") == CART
        assert await judged.whose(judged.token(judged.dune), "dune") == CART


@virtual_time
async def test_a_cluster_that_is_not_registered_has_no_tokens_and_nobody_is_asked() -> None:
    async with Judged() as judged:
        for cluster in ("mesa", "quay", "", "../mesa", "a" * 253):
            assert await judged.whose(judged.token(), cluster) is None
        assert asked(judged.mesa) + asked(judged.quay) == 0


@virtual_time
async def test_a_registration_that_does_not_count_vouches_for_nobody() -> None:
    async with Judged() as judged:
        await judged.register("mesa", judged.mesa)
        await judged.register("alias", judged.mesa, created="2030-01-01T00:00:00Z")
        await judged.register("home", judged.quay)
        await judged.register("quay", judged.dune)
        assert await judged.whose(judged.token(), "alias") is None
        assert await judged.whose(judged.token(judged.quay), "home") is None
        assert await judged.whose(judged.token(judged.dune), "quay") is None
        assert asked(judged.mesa) + asked(judged.quay) + asked(judged.dune) == 0


@virtual_time
async def test_while_it_is_not_known_which_api_server_it_leads_to_a_registration_vouches_for_nobody() -> None:
    async with Judged() as judged:
        await judged.register("mesa", DEAD)
        assert await judged.undecided(judged.token()) == "the cluster has not been reached yet"
        judged.dune.script(Refuse(503), kind="Namespace", times=None)
        await judged.register("dune", judged.dune)
        assert await judged.undecided(judged.token(judged.dune), "dune") == "the cluster has not been reached yet"
        assert asked(judged.dune) == 0


@virtual_time
async def test_a_claim_that_turns_out_to_be_one_too_many_vouches_for_nobody_under_the_next_ones_name() -> None:
    async with Judged() as judged:
        await judged.register("dune", judged.dune)
        judged.mesh.register("next", {"mesa": DEAD}, created="2030-01-02T00:00:00Z")
        await judged.register("mesa", judged.dune, created="2030-01-01T00:00:00Z")
        assert await judged.undecided(judged.token(judged.dune)) == "the cluster has not been reached yet"
        assert await judged.whose(judged.token(judged.dune), "dune") == CART


@virtual_time
async def test_a_trust_domain_that_changes_counts_at_once_though_the_api_server_is_away() -> None:
    async with Judged() as judged:
        await judged.register()
        token = judged.token()
        assert await judged.whose(token) == CART
        judged.mesa.refuse_connections = True
        await judged.register(annotations={"isthmus.io/trust-domain": "other.example"})
        assert await judged.whose(token) == RemoteAccount(CART.account, "other.example")


@virtual_time
async def test_a_cluster_that_was_made_anew_at_the_same_address_has_no_tokens_of_the_old_one() -> None:
    async with Judged() as judged:
        await judged.register(token="t1")
        token = judged.token()
        assert await judged.whose(token) == CART
        judged.mesa.delete("Namespace", "kube-system")
        judged.mesa.apply({"kind": "Namespace", "metadata": {"name": "kube-system", "uid": "another"}})
        judged.mesa.accounts.rotate()
        await judged.register(token="t2")
        assert await judged.whose(token) is None
        assert await judged.whose(judged.token()) == CART


@virtual_time
async def test_what_happens_to_a_cluster_while_its_keys_are_read_counts() -> None:
    async with Judged() as judged:
        await judged.register()
        for change in ("gone", "elsewhere", "unreached"):
            until = asyncio.Event()
            judged.mesa.script(Hold(until), kind="KeySet")
            judging = asyncio.create_task(judged.whose(judged.token()))
            await asyncio.sleep(0.1)
            if change == "gone":
                judged.mesh.unregister("of-mesa")
            else:
                judged.mesh.register("of-mesa", {"mesa": judged.dune if change == "elsewhere" else DEAD})
            await asyncio.sleep(1)
            assert not judging.done()
            until.set()
            if change == "gone":
                assert await judging is None
            else:
                with pytest.raises(Undecided):
                    await judging
            judged.tokens.forget("mesa")
            await judged.register()


@virtual_time
async def test_a_cluster_whose_registration_goes_has_no_tokens_at_once() -> None:
    async with Judged() as judged:
        await judged.register()
        token = judged.token()
        assert await judged.whose(token) == CART
        judged.mesh.unregister("of-mesa")
        await asyncio.sleep(0.1)
        assert await judged.whose(token) is None
        await judged.register()
        assert await judged.whose(token) == CART


@virtual_time
async def test_what_was_known_of_a_cluster_that_is_forgotten_is_read_anew() -> None:
    async with Judged() as judged:
        await judged.register()
        token = judged.token()
        assert await judged.whose(token) == CART
        judged.tokens.forget("mesa")
        judged.tokens.forget("mesa")
        assert await judged.whose(token) == CART
        assert asked(judged.mesa) == 2


@virtual_time
async def test_a_cluster_that_leads_elsewhere_has_the_tokens_of_where_it_leads_now() -> None:
    async with Judged() as judged:
        await judged.register("mesa", judged.mesa)
        old, new = judged.token(judged.mesa), judged.token(judged.dune)
        assert (await judged.whose(old), await judged.whose(new)) == (CART, None)
        await judged.register("mesa", judged.dune)
        assert (await judged.whose(old), await judged.whose(new)) == (None, CART)


@virtual_time
async def test_a_cluster_that_leads_where_nobody_answers_has_no_tokens_of_where_it_led_before() -> None:
    async with Judged() as judged:
        await judged.register("mesa", judged.mesa)
        token = judged.token()
        assert await judged.whose(token) == CART
        for instead in (DEAD, "not a URL"):
            await judged.register("mesa", instead)
            assert await judged.undecided(token) == "the cluster has not been reached yet"


@virtual_time
async def test_a_rotated_credential_changes_nothing_for_tokens_and_is_the_one_that_asks_then() -> None:
    async with Judged() as judged:
        await judged.register(token="t1")
        assert await judged.whose(judged.token()) == CART
        await judged.register(token="t2")
        assert await judged.whose(judged.token(account="shop/cart", seconds=3600.0)) == CART
        assert asked(judged.mesa) == 1
        await asyncio.sleep(FRESH)
        assert await judged.whose(judged.token()) == CART
        assert [one.token for one in judged.mesa.requests if one.kind == "KeySet"] == ["t1", "t2"]


@virtual_time
async def test_a_credential_that_does_not_work_leaves_the_one_that_did() -> None:
    async with Judged() as judged:
        judged.mesa.tokens = {"t1"}
        await judged.register(token="t1")
        await judged.register(token="wrong")
        assert await judged.whose(judged.token()) == CART
        assert judged.mesh.reason("mesa").startswith("the new credential: 401")


@virtual_time
async def test_a_thousand_callers_with_tokens_of_one_cluster_ask_for_its_keys_once() -> None:
    async with Judged() as judged:
        await judged.register()
        tokens = [judged.token(account=f"shop/cart-{number}") for number in range(100)] * 10
        found = await asyncio.gather(*(judged.whose(token) for token in tokens))
        assert [one.account.name for one in found if one] == [f"cart-{number}" for number in range(100)] * 10
        assert asked(judged.mesa) == 1


@virtual_time
async def test_a_verified_token_counts_for_a_minute_and_never_longer_than_it_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*_: object) -> None:
        raise AssertionError

    async with Judged() as judged:
        await judged.register()
        long, short = judged.token(), judged.token(seconds=20.0)
        assert (await judged.whose(long), await judged.whose(short)) == (CART, CART)
        # It is not verified again: 1,000 streams of a proxy would be as many signatures to look at.
        monkeypatch.setattr(remote_tokens, "verify", never)
        assert (await judged.whose(long), await judged.whose(short)) == (CART, CART)
        monkeypatch.undo()
        judged.mesa.accounts.rotate()
        await asyncio.sleep(VERIFIED - 1)
        assert (await judged.whose(long), await judged.whose(short)) == (CART, None)
        await asyncio.sleep(FRESH)
        assert await judged.whose(long) is None


@virtual_time
async def test_a_key_that_is_new_is_accepted_without_a_wait_of_minutes() -> None:
    async with Judged() as judged:
        await judged.register()
        assert await judged.whose(judged.token()) == CART
        await asyncio.sleep(PAUSE)
        judged.mesa.accounts.rotate()
        assert await judged.whose(judged.token()) == CART


@virtual_time
async def test_row_03_tokens_of_a_cluster_whose_api_server_is_away_are_accepted_for_an_hour() -> None:
    async with Judged() as judged:
        await judged.register()
        token = judged.token()
        assert await judged.whose(token) == CART
        judged.mesa.refuse_connections = True
        await asyncio.sleep(HONOURED - 1)
        assert await judged.whose(judged.token()) == CART
        await asyncio.sleep(2)
        assert "Connection refused" in await judged.undecided(judged.token(account="shop/other"))
        assert await judged.undecided(judged.token(judged.dune))
        judged.mesa.refuse_connections = False
        await asyncio.sleep(PAUSE)
        assert await judged.whose(token) == CART


@virtual_time
async def test_a_cluster_that_does_not_tell_of_its_keys_is_undecided_with_the_cure() -> None:
    async with Judged() as judged:
        judged.mesa.forbidden = {"OpenIDConfiguration", "KeySet"}
        await judged.register()
        assert "bind ClusterRole system:service-account-issuer-discovery" in await judged.undecided(judged.token())


@virtual_time
async def test_no_token_is_kept_logged_or_shown(caplog: pytest.LogCaptureFixture) -> None:
    async with Judged() as judged:
        await judged.register()
        caplog.set_level(logging.DEBUG)
        accepted, refused = judged.token(), judged.token(audiences=["vault"])
        assert (await judged.whose(accepted), await judged.whose(refused)) == (CART, None)
        (record,) = [one for one in caplog.records if one.getMessage() == "token not accepted"]
        assert (vars(record)["cluster"], vars(record)["cause"]) == ("mesa", "it is made for another audience")
        kept = [vars(judge) for _, judge in judged.tokens._judges.values()]
        shown = f"{caplog.text} {[vars(one) for one in caplog.records]} {kept} {vars(judged.tokens)}"
        for part in (*accepted.split("."), *refused.split(".")):
            assert part not in shown
