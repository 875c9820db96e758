"""Who calls: SPIFFE identities, bearer tokens, the token file."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path

import grpc
import pytest

from xds.server.authentication import LONGEST_TOKEN, Authenticator, Identity, TokenFile, TokenFileError
from xds.server.rates import Rate
from xds.server.refusals import Refusal

ZTUNNEL = Identity("cluster.local", "istio-system", "ztunnel", pod="ztunnel-x", node="n1")


class Reviewer:
    """Knows one token, and remembers what it was asked."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.asked: list[tuple[str, str]] = []
        self.failure = failure

    async def review(self, token: str, cluster: str) -> Identity | None:
        self.asked.append((token, cluster))
        if self.failure:
            raise self.failure
        return ZTUNNEL if token == "good" else None


async def refused(authenticator: Authenticator, *metadata: tuple[str, str | bytes]) -> Refusal:
    with pytest.raises(Refusal) as caught:
        await authenticator.authenticate("peer", metadata)
    return caught.value


def test_an_identity_is_written_as_istio_writes_it() -> None:
    assert str(ZTUNNEL) == "spiffe://cluster.local/ns/istio-system/sa/ztunnel"


def test_an_identity_is_read_from_its_uri() -> None:
    assert Identity.parse(str(ZTUNNEL), pod="ztunnel-x", node="n1") == ZTUNNEL


def test_a_service_account_may_hold_dots() -> None:
    assert Identity.parse("spiffe://td/ns/shop/sa/a.b").service_account == "a.b"


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "spiffe://td/ns/shop",
        "spiffe://td/ns/shop/sa/",
        "spiffe://td/ns//sa/orders",
        "spiffe:///ns/shop/sa/orders",
        "spiffe://td/ns/shop/sa/orders/",
        "spiffe://td/ns/shop/sa/orders\n",
        "spiffe://td/ns/shop/sa/a/b",
        "spiffe://td/ns/sh.op/sa/orders",
        "spiffe://td/ns/Shop/sa/orders",
        "spiffe://td:80/ns/shop/sa/orders",
        "spiffe://td/ns/shop/sa/orders?x=1",
        "spiffe://td/ns/shop/sa/orders#x",
        "spiffe://td/ns/shop/sa/%6frders",
        "https://td/ns/shop/sa/orders",
        "spiffe://td/ns/" + "a" * 64 + "/sa/orders",
        "spiffe://td/ns/shop/sa/" + "a" * 254,
    ],
)
def test_every_other_form_of_uri_is_no_identity(uri: str) -> None:
    with pytest.raises(ValueError, match="not of the form"):
        Identity.parse(uri)


async def test_a_reviewed_token_makes_a_caller_with_its_cluster() -> None:
    reviewer = Reviewer()
    caller, _ = await Authenticator(reviewer).authenticate(
        "10.0.0.1:1", [("authorization", "Bearer good"), ("clusterid", "west")]
    )
    assert (caller.peer, caller.identity, caller.cluster) == ("10.0.0.1:1", ZTUNNEL, "west")
    assert reviewer.asked == [("good", "west")]


async def test_the_scheme_of_the_header_is_read_without_case() -> None:
    caller, _ = await Authenticator(Reviewer()).authenticate("peer", [("authorization", "bearer good")])
    assert caller.identity == ZTUNNEL


@pytest.mark.parametrize(
    "metadata",
    [
        [],
        [("authorization", "Bearer ")],
        [("authorization", "good")],
        [("authorization", "Basic good")],
        [("authorization", "Bearer good"), ("authorization", "Bearer bad")],
        [("authorization", "Bearer " + "x" * (LONGEST_TOKEN + 1))],
        [("authorization", "Bearer go od")],
        [("authorization", "Bearer g\xf6d")],
        [("authorization", "Bearer \ud800")],
        [("authorization", "Bearer good"), ("clusterid", "c" * 254)],
        [("authorization-bin", b"Bearer good")],
    ],
)
async def test_a_call_without_one_usable_token_is_refused_without_asking_anybody(
    metadata: list[tuple[str, str | bytes]],
) -> None:
    reviewer = Reviewer()
    refusal = await refused(Authenticator(reviewer), *metadata)
    assert refusal.code is grpc.StatusCode.UNAUTHENTICATED
    assert reviewer.asked == []


FLOODER, BESIDE, ELSEWHERE = "ipv4:10.0.0.1:1", "ipv4:10.0.0.1:2", "ipv4:10.0.0.2:1"
GOOD, BAD = (("authorization", "Bearer good"),), (("authorization", "Bearer bad"),)


async def flooded(*, known: bool = False) -> tuple[Authenticator, Reviewer]:
    """An authenticator, and its reviewer, that one address has sent three bad tokens, which is all it may."""
    reviewer = Reviewer()
    authenticator = Authenticator(reviewer, refused=Rate(per_second=0.001, burst=3))
    if known:
        await authenticator.authenticate(BESIDE, GOOD)
    for _ in range(3):
        with pytest.raises(Refusal, match="not accepted"):
            await authenticator.authenticate(FLOODER, BAD)
    reviewer.asked.clear()
    return authenticator, reviewer


async def test_no_more_tokens_are_reviewed_for_an_address_that_was_refused_too_often() -> None:
    authenticator, reviewer = await flooded()
    for metadata in (BAD, GOOD):
        with pytest.raises(Refusal) as caught:
            await authenticator.authenticate(BESIDE, metadata)
        assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert reviewer.asked == []


async def test_a_token_that_was_accepted_before_is_still_accepted_there() -> None:
    authenticator, reviewer = await flooded(known=True)
    caller, _ = await authenticator.authenticate(BESIDE, GOOD)
    assert caller.identity == ZTUNNEL
    assert reviewer.asked == [("good", "")]


async def test_other_addresses_are_heard_as_before() -> None:
    authenticator, _ = await flooded()
    caller, _ = await authenticator.authenticate(ELSEWHERE, GOOD)
    assert caller.identity == ZTUNNEL


async def test_a_reviewer_that_cannot_tell_is_not_held_against_the_caller() -> None:
    reviewer = Reviewer(OSError("down"))
    authenticator = Authenticator(reviewer, refused=Rate(per_second=0.001, burst=1))
    for _ in range(3):
        with pytest.raises(Refusal, match="try again"):
            await authenticator.authenticate(FLOODER, GOOD)
    reviewer.failure = None
    await authenticator.authenticate(FLOODER, GOOD)


async def test_the_proof_of_a_call_asks_for_its_token_again() -> None:
    reviewer = Reviewer()
    _, proof = await Authenticator(reviewer).authenticate(FLOODER, GOOD)
    assert await proof.refusal() is None
    assert reviewer.asked == [("good", ""), ("good", "")]


async def test_a_proof_that_nobody_can_judge_holds() -> None:
    reviewer = Reviewer()
    _, proof = await Authenticator(reviewer).authenticate(FLOODER, GOOD)
    reviewer.failure = OSError("down")
    assert await proof.refusal() is None


async def test_a_proof_shows_no_token() -> None:
    _, proof = await Authenticator(Reviewer()).authenticate(FLOODER, GOOD)
    assert "good" not in repr(proof)


async def test_a_token_nobody_vouches_for_is_unauthenticated() -> None:
    refusal = await refused(Authenticator(Reviewer()), ("authorization", "Bearer stolen"))
    assert refusal.code is grpc.StatusCode.UNAUTHENTICATED
    assert "mount a service account token" in refusal.message
    assert "stolen" not in refusal.message


async def test_a_review_that_fails_is_unavailable_and_reveals_no_token(caplog: pytest.LogCaptureFixture) -> None:
    refusal = await refused(
        Authenticator(Reviewer(OSError("POST with token s3cret"))), ("authorization", "Bearer s3cret")
    )
    assert refusal.code is grpc.StatusCode.UNAVAILABLE
    assert "s3cret" not in refusal.message + caplog.text
    assert "token review failed" in caplog.text


async def test_a_review_that_takes_too_long_is_unavailable() -> None:
    class Silent:
        async def review(self, token: str, cluster: str) -> Identity | None:
            await asyncio.Event().wait()
            raise AssertionError

    refusal = await refused(Authenticator(Silent(), timeout=0.01), ("authorization", "Bearer good"))
    assert refusal.code is grpc.StatusCode.UNAVAILABLE


async def test_no_more_reviews_run_at_once_than_are_allowed() -> None:
    class Counting:
        running = most = 0

        async def review(self, token: str, cluster: str) -> Identity | None:
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(0)
            self.running -= 1
            return ZTUNNEL

    reviewer = Counting()
    authenticator = Authenticator(reviewer, concurrency=3)
    await asyncio.gather(*(authenticator.authenticate("peer", [("authorization", "Bearer x")]) for _ in range(20)))
    assert reviewer.most == 3


async def test_a_cluster_whose_reviews_do_not_end_holds_up_no_other() -> None:
    class OneIsDead:
        async def review(self, token: str, cluster: str) -> Identity | None:
            if cluster == "dead":
                await asyncio.Event().wait()
            return ZTUNNEL

    authenticator = Authenticator(OneIsDead(), concurrency=3)

    async def call(cluster: str) -> Identity | None:
        metadata = [("authorization", "Bearer x"), ("clusterid", cluster)]
        caller, _ = await authenticator.authenticate("peer", metadata)
        return caller.identity

    waiting = [asyncio.create_task(call("dead")) for _ in range(10)]
    await asyncio.sleep(0)
    assert await asyncio.wait_for(call(""), 1) == await asyncio.wait_for(call("west"), 1) == ZTUNNEL
    assert not any(one.done() for one in waiting)
    for one in waiting:
        one.cancel()
    await asyncio.wait(waiting)


async def test_nothing_is_kept_of_the_clusters_that_calls_named() -> None:
    authenticator = Authenticator(Reviewer())
    for number in range(100):
        await authenticator.authenticate("peer", [("authorization", "Bearer good"), ("clusterid", f"c{number}")])
    assert len(authenticator._turns) == 0


def write(path: Path, document: object) -> Path:
    path.write_text(json.dumps(document))
    return path


ENTRY = {"identity": "spiffe://cluster.local/ns/istio-system/sa/ztunnel", "pod": "ztunnel-x", "node": "n1"}


async def test_a_token_file_knows_its_tokens_in_every_cluster(tmp_path: Path) -> None:
    tokens = TokenFile(write(tmp_path / "tokens.json", {"t1": ENTRY}))
    assert await tokens.review("t1", "") == await tokens.review("t1", "west") == ZTUNNEL
    assert await tokens.review("t2", "") is None


async def test_a_token_file_may_be_yaml(tmp_path: Path) -> None:
    path = tmp_path / "tokens.yaml"
    path.write_text("t1:\n  identity: spiffe://td/ns/shop/sa/orders\n")
    assert await TokenFile(path).review("t1", "") == Identity("td", "shop", "orders")


async def test_a_changed_token_file_is_read_again(tmp_path: Path) -> None:
    path = write(tmp_path / "tokens.json", {"t1": ENTRY})
    tokens = TokenFile(path)
    write(path, {"t2-longer": ENTRY})
    assert await tokens.review("t1", "") is None
    assert await tokens.review("t2-longer", "") == ZTUNNEL


@pytest.mark.parametrize("fault", ["broken", "removed"])
async def test_a_token_file_that_breaks_keeps_its_last_good_content_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    path = write(tmp_path / "tokens.json", {"t1": ENTRY})
    tokens = TokenFile(path)
    if fault == "broken":
        path.write_text("{s3cret: [")
    else:
        os.unlink(path)  # noqa: PTH108
    assert await tokens.review("t1", "") == ZTUNNEL
    assert await tokens.review("t1", "") == ZTUNNEL
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert str(path) in errors[0].__dict__["cause"]
    assert "s3cret" not in errors[0].__dict__["cause"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{s3cret: [", "neither JSON nor YAML"),
        ("[]", "no map"),
        ('{"s3cret": "spiffe://td/ns/a/sa/b"}', "entry 1"),
        ('{"s3cret": {}}', "identity"),
        ('{"ok": {"identity": "spiffe://td/ns/a/sa/b"}, "s3cret": {"identity": "x"}}', "entry 2: field identity"),
        ('{"s3cret": {"identity": "spiffe://td/ns/a/sa/b", "nod": "n1"}}', "nod"),
        ('{"s3cret": {"identity": "spiffe://td/ns/a/sa/b", "node": 7}}', "node"),
        ('{7: {"identity": "spiffe://td/ns/a/sa/b"}}', "quote it"),
    ],
)
def test_an_unusable_token_file_is_refused_with_file_and_field_and_without_the_token(
    tmp_path: Path, text: str, says: str
) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(text)
    with pytest.raises(TokenFileError) as caught:
        TokenFile(path)
    assert str(path) in str(caught.value)
    assert says in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_missing_token_file_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(TokenFileError, match=r"tokens\.json: No such file"):
        TokenFile(tmp_path / "tokens.json")
