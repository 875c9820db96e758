"""Whatever a call carries and an API server answers: a caller, a refusal, or the word that nobody could tell."""

from __future__ import annotations

import asyncio
import gc
import json
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import strategies as st

from tests.kit.accounts import ZTUNNEL, Tokens
from tests.kit.fuzzing import bounded, fuzz
from tests.kit.hostile import LEAVES, damaged, damaged_value
from watchers.kubernetes.expiry import token_expiry
from watchers.kubernetes.reviews import Undecided
from watchers.kubernetes.session import Broken, Reply
from watchers.kubernetes.token_reviews import AUDIENCE, Account, TokenReviews
from xds.server.authentication import Authenticator, Caller, Identity, TokenFile, TokenFileError
from xds.server.rates import Rate
from xds.server.refusals import LONGEST_MESSAGE, Refusal

pytestmark = pytest.mark.slow

TOKEN = "ztunnel-token"
TEXTS = st.text(max_size=40) | st.sampled_from(
    [
        "",
        " ",
        "Bearer",
        f"Bearer {TOKEN}",
        f"bearer\t{TOKEN}",
        f"BEARER   {TOKEN} ",
        "Bearer \ud800",
        "Bearer \0",
        "Bearer " + "x" * 20_000,
        f"Basic {TOKEN}",
        f"Bearer {TOKEN},Bearer x",
        "Bearer ä",
        "west",
        "x" * 300,
    ]
)
METADATA = st.lists(
    st.tuples(st.sampled_from(["authorization", "clusterid", "authorization-bin", "", "te"]), TEXTS | st.binary()),
    max_size=5,
)


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    faults: list[Mapping[str, Any]] = []
    with asyncio.Runner() as made:
        made.get_loop().set_exception_handler(lambda _, context: faults.append(context))
        yield made
        gc.collect()
    assert faults == []


class Reviewer(Tokens):
    """Knows one token, and is asked for nothing that no API server would take."""

    async def review(self, token: str, cluster: str) -> Identity | None:
        token.encode("ascii")
        assert token.strip() == token
        return await super().review(token, cluster)


def test_any_metadata_of_a_call_are_a_known_caller_or_unauthenticated(runner: asyncio.Runner) -> None:
    authenticator = Authenticator(Reviewer(), refused=Rate(per_second=1e6, burst=1_000_000))

    def one(metadata: list[tuple[str, str | bytes]]) -> None:
        try:
            caller: Caller
            caller, _ = bounded(lambda: runner.run(authenticator.authenticate("ipv4:1.2.3.4:5", metadata)))
        except Refusal as refusal:
            assert refusal.code is grpc.StatusCode.UNAUTHENTICATED
            assert 0 < len(refusal.message) <= LONGEST_MESSAGE
            assert TOKEN not in refusal.message
        else:
            assert caller.identity == ZTUNNEL
            assert sum(key == "authorization" and isinstance(value, str) for key, value in metadata) == 1

    fuzz(one, METADATA, share=0.25)


def test_any_spiffe_id_is_taken_apart_and_put_together_the_same_or_refused() -> None:
    sound = b"spiffe://cluster.local/ns/shop/sa/orders"
    texts = damaged(st.just(sound)).map(lambda data: data.decode("utf-8", "replace")) | st.text()

    def one(text: str) -> None:
        try:
            identity = bounded(lambda: Identity.parse(text))
        except ValueError as error:
            assert len(str(error)) < 4096
        else:
            assert str(identity) == text
            assert not {"/", "\0", "\n", "%"} & {*identity.namespace, *identity.service_account, *identity.trust_domain}

    fuzz(one, texts, share=0.1)


SOUND: Mapping[str, Any] = {
    "apiVersion": "authentication.k8s.io/v1",
    "kind": "TokenReview",
    "metadata": {},
    "spec": {"token": TOKEN},
    "status": {
        "authenticated": True,
        "audiences": [AUDIENCE],
        "user": {
            "username": "system:serviceaccount:istio-system:ztunnel",
            "uid": "1",
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "extra": {
                "authentication.kubernetes.io/pod-name": ["ztunnel-x"],
                "authentication.kubernetes.io/pod-uid": ["2"],
                "authentication.kubernetes.io/node-name": ["n1"],
            },
        },
    },
}
_ODD_NAMES = [
    "system:serviceaccount::",
    "system:serviceaccount:a:b:c",
    "system:serviceaccount:../x:y",
    "system:serviceaccount:a\0:b",
    "system:serviceaccount:a:b/../c",
    "system:serviceaccount:A:B",
    "system:node:n1",
    "SYSTEM:x",
]


class Answers:
    """Sends nothing, and answers what it is told to."""

    def __init__(self) -> None:
        self.reply: Reply | None = None

    async def send(self, *_: Any, **__: Any) -> Reply:
        """The next answer; none is a broken connection."""
        if self.reply is None:
            raise Broken("connect", "nobody there")
        return self.reply


@st.composite
def reviews(draw: Any) -> bytes:
    """Answers to a review: with the names of accounts that are none, damaged in their values or as text."""
    value = json.loads(json.dumps(SOUND))
    if draw(st.booleans()):
        value["status"]["user"]["username"] = draw(st.sampled_from(_ODD_NAMES))
    if draw(st.booleans()):
        value = draw(damaged_value(st.just(value), ("authenticated", "error", "user", "status")))
    return json.dumps(value).encode("utf-8", "surrogatepass")


def test_any_answer_to_a_review_is_an_account_of_proper_names_or_nothing(runner: asyncio.Runner) -> None:
    answers = Answers()
    numbers = iter(range(10**9))

    def one(reply: Reply | None) -> None:
        answers.reply = reply
        reviewing = TokenReviews(answers, wall=lambda: 1_000_000.0)

        async def ask() -> Account | None:
            return await reviewing.review(f"{TOKEN}-{next(numbers)}")

        try:
            account = bounded(lambda: runner.run(ask()), len(reply.body) if reply else 0)
        except Undecided as error:
            assert str(error) and TOKEN not in str(error)
            return
        if account is not None:
            identity = Identity("cluster.local", account.namespace, account.name)
            assert Identity.parse(str(identity)) == identity

    bodies = reviews() | reviews() | damaged(reviews()) | st.binary(max_size=60)
    statuses = st.sampled_from([200, 201, 201, 201, 202, 301, 400, 401, 403, 429, 500, 503, 999])
    headers = st.sampled_from([{}, {"Retry-After": "1"}, {"Retry-After": "\0"}, {"Retry-After": "9" * 400}])
    fuzz(one, st.none() | st.builds(Reply, statuses, headers, bodies), share=0.35)


def part(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


CLAIMS = damaged_value(st.just({"exp": 1_800_000_000, "iss": "kubernetes", "aud": ["istio-ca"]}), ("exp", "nbf"))


def test_any_token_ends_at_some_time_or_not_at_all() -> None:
    def one(claims: bytes, how: str) -> None:
        token = how.format(part(claims))
        assert 0.0 <= bounded(lambda: token_expiry(token), len(token)) < 1e12

    forms = st.sampled_from(["a.{}.c", "{}", "a.{}", "a.{}=.c", "a.{}\u00e9.c", "a.{}.c.d", "..{}", "a.-_{}.c"])
    texts = CLAIMS.map(lambda value: json.dumps(value).encode("utf-8", "surrogatepass"))
    fuzz(one, texts | damaged(texts) | st.binary(max_size=60), forms, share=0.15)


@pytest.mark.parametrize("payload", [b"[" * 700_000, b'{"exp":' + b"1" * 700_000 + b"}", b'{"a":"' + b"x" * 700_000])
def test_a_token_of_a_megabyte_is_read_quickly(payload: bytes) -> None:
    assert bounded(lambda: token_expiry(f"a.{part(payload)}.c"), len(payload)) == 0.0


def test_any_file_of_tokens_is_read_or_refused(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    entry = {"identity": str(ZTUNNEL), "pod": "p", "node": "n"}
    values = damaged_value(st.just({TOKEN: entry, "other": {"identity": str(ZTUNNEL)}}), ("pod", "x", ""))
    texts = values.map(lambda value: json.dumps(value).encode("utf-8", "surrogatepass"))

    def one(data: bytes) -> None:
        file.write_bytes(data)
        try:
            TokenFile(file)
        except TokenFileError as error:
            assert str(file) in str(error) and TOKEN not in str(error)

    fuzz(one, texts | damaged(texts) | st.sampled_from(LEAVES).map(lambda leaf: json.dumps(leaf).encode()), share=0.15)
