"""Who owns which cluster, and why other claims do not count."""

from __future__ import annotations

import random
from base64 import b64encode
from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.kubeconfigs import remote_secret
from watchers.facts.invalid import InvalidObject
from watchers.registration import (
    Claim,
    Origin,
    RemoteSecret,
    Reserved,
    SecretObject,
    claims_of,
    decide,
    is_remote_secret,
    read_remote_secret,
)

HOME = {"quay": Reserved("the home cluster", "uid-quay")}


def claim(cluster: str, name: str, created: str = "2026-01-01T00:00:00Z", *, config: bytes = b"config") -> Claim:
    return Claim(cluster, config, Origin.SECRET, name, "istio-system", created)


def owners(*claims: Claim, uids: Mapping[Claim, str] | None = None) -> dict[str, str]:
    return {cluster: one.name for cluster, one in decide(HOME, claims, uids or {}).owners.items()}


def refusals(*claims: Claim, uids: Mapping[Claim, str] | None = None) -> list[tuple[str, str]]:
    return [(one.place, one.cause) for one in decide(HOME, claims, uids or {}).refused]


def test_the_oldest_secret_owns_the_cluster() -> None:
    older, newer = claim("mesa", "b", "2026-01-01T00:00:00Z"), claim("mesa", "a", "2026-01-02T00:00:00Z")
    assert owners(newer, older) == {"mesa": "b"}
    assert refusals(newer, older) == [
        (
            "Secret istio-system/a",
            "claims the cluster 'mesa', which Secret istio-system/b owns as the older claim",
        )
    ]


def test_of_secrets_of_one_age_the_first_by_name_owns_the_cluster() -> None:
    assert owners(claim("mesa", "b"), claim("mesa", "a")) == {"mesa": "a"}


def test_the_next_claim_owns_the_cluster_when_the_owner_goes() -> None:
    assert owners(claim("mesa", "b", "2026-01-02T00:00:00Z")) == {"mesa": "b"}


def test_settings_go_before_files_and_files_before_secrets() -> None:
    setting = Claim("mesa", b"", Origin.SETTING, "--remote")
    file = Claim("mesa", b"", Origin.FILE, "mesa.yaml")
    assert owners(claim("mesa", "a"), file, setting) == {"mesa": "--remote"}
    assert owners(claim("mesa", "a"), file) == {"mesa": "mesa.yaml"}


def test_the_id_of_home_cannot_be_claimed() -> None:
    assert owners(claim("quay", "a"), claim("mesa", "a")) == {"mesa": "a"}
    assert refusals(claim("quay", "a")) == [
        ("Secret istio-system/a", "claims the id 'quay', which is the home cluster")
    ]


def test_an_impossible_id_is_refused_and_its_neighbours_count() -> None:
    assert owners(claim("me/sa", "a"), claim("fjord", "a")) == {"fjord": "a"}
    [(_, cause)] = refusals(claim("me/sa", "a"))
    assert cause.startswith("'me/sa' cannot be the id of a cluster")


def test_one_api_server_counts_under_one_id_only() -> None:
    mesa, twin = claim("mesa", "a"), claim("twin", "b")
    assert owners(mesa, twin, uids={mesa: "uid-1", twin: "uid-1"}) == {"mesa": "a"}
    assert refusals(mesa, twin, uids={mesa: "uid-1", twin: "uid-1"}) == [
        ("Secret istio-system/b", "leads to the same API server as cluster 'mesa', whose objects would count twice")
    ]


def test_homes_api_server_cannot_be_a_remote() -> None:
    mirror = claim("mirror", "a")
    assert owners(mirror, uids={mirror: "uid-quay"}) == {}


def test_a_second_claim_to_the_id_counts_where_the_first_leads_to_a_server_that_is_known() -> None:
    fjord, first = claim("fjord", "a"), claim("mesa", "b")
    second = claim("mesa", "c", "2026-01-02T00:00:00Z")
    assert owners(fjord, first, second, uids={fjord: "u", first: "u"}) == {"fjord": "a", "mesa": "c"}


@settings(max_examples=60, deadline=None)
@given(
    claims=st.lists(
        st.builds(
            claim,
            cluster=st.sampled_from(["quay", "mesa", "fjord", "", "a/b"]),
            name=st.sampled_from(["a", "b", "c"]),
            created=st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]),
        ),
        max_size=8,
        unique_by=lambda one: (one.cluster, one.name),
    ),
    servers=st.lists(st.sampled_from(["", "uid-1", "uid-2", "uid-quay"]), min_size=8, max_size=8),
    seed=st.integers(),
)
def test_any_order_of_secrets_gives_the_same_owners(claims: list[Claim], servers: list[str], seed: int) -> None:
    uids = {one: uid for one, uid in zip(claims, servers, strict=False) if uid}
    shuffled = random.Random(seed).sample(claims, len(claims))
    decided = decide(HOME, claims, uids)
    assert decide(HOME, shuffled, dict(reversed(uids.items()))) == decided
    assert {*decided.owners} <= {"mesa", "fjord"}
    assert len(decided.owners) + len(decided.refused) == len(claims)


def read(document: object) -> RemoteSecret:
    return read_remote_secret(msgspec.convert(document, SecretObject), "quay")[1]


def test_a_secret_claims_every_cluster_it_holds_a_kubeconfig_of() -> None:
    secret = remote_secret("far", {"mesa": b"one", "fjord": b"two"}, created="2026-03-01T00:00:00Z")
    key = ("quay", "RemoteSecret", "istio-system", "far")
    assert [*claims_of(key, read(secret))] == [
        Claim("fjord", b"two", Origin.SECRET, "far", "istio-system", "2026-03-01T00:00:00Z"),
        Claim("mesa", b"one", Origin.SECRET, "far", "istio-system", "2026-03-01T00:00:00Z"),
    ]


def test_a_secret_may_name_the_trust_domain_of_its_clusters() -> None:
    secret = remote_secret("far", {"mesa": b"one", "fjord": b"two"})
    secret["metadata"]["annotations"] = {"isthmus.io/trust-domain": "harbour.example", "other": "x"}
    claims = claims_of(("quay", "RemoteSecret", "istio-system", "far"), read(secret))
    assert {claim.cluster: claim.trust_domain for claim in claims} == dict.fromkeys(
        ("mesa", "fjord"), "harbour.example"
    )


@pytest.mark.parametrize("text", ["Harbour", "spiffe://harbour", "a/b", "-a", "a" * 300])
def test_what_is_no_trust_domain_is_refused_with_the_place_and_the_cure(text: str) -> None:
    secret = remote_secret("far", {"mesa": b"one"})
    secret["metadata"]["annotations"] = {"isthmus.io/trust-domain": text}
    with pytest.raises(InvalidObject, match="SPIFFE trust domain") as refusal:
        read(secret)
    assert refusal.value.path == ("metadata", "annotations", "isthmus.io/trust-domain")
    assert "lower case" in refusal.value.cure


def test_secrets_that_overlap_are_settled_anew_whenever_one_changes() -> None:
    def claims(name: str, clusters: dict[str, bytes], created: str) -> list[Claim]:
        key = ("quay", "RemoteSecret", "istio-system", name)
        return [*claims_of(key, read(remote_secret(name, clusters, created=created)))]

    first = claims("s0", {"beta": b"kc1", "gamma": b"kc2"}, "2026-01-01T00:00:00Z")
    second = claims("s1", {"beta": b"kc3"}, "2026-01-02T00:00:00Z")
    home = claims("s2", {"quay": b"kc4"}, "2026-01-03T00:00:00Z")
    assert owners(*first, *second, *home) == {"beta": "s0", "gamma": "s0"}
    assert [place for place, _ in refusals(*first, *second, *home)] == [
        "Secret istio-system/s1",
        "Secret istio-system/s2",
    ]
    again = claims("s0", {"gamma": b"kc2", "beta": b"kc1"}, "2026-01-01T00:00:00Z")
    assert decide(HOME, [*again, *second, *home], {}) == decide(HOME, [*first, *second, *home], {})
    without_gamma = claims("s0", {"beta": b"kc1"}, "2026-01-01T00:00:00Z")
    assert owners(*without_gamma, *second, *home) == {"beta": "s0"}
    assert owners(*second, *home) == {"beta": "s1"}


@pytest.mark.parametrize(
    ("change", "registers"),
    [({}, True), ({"namespace": "shop"}, False), ({"labels": {"istio/multiCluster": "false"}}, False)],
)
def test_only_labelled_secrets_of_the_system_namespace_register(change: dict[str, object], registers: bool) -> None:
    secret = remote_secret("far", {})
    secret["metadata"] |= change
    assert is_remote_secret(msgspec.convert(secret, SecretObject), "istio-system") is registers


def test_what_is_no_base64_is_refused_without_being_shown() -> None:
    secret = remote_secret("far", {})
    secret["data"] = {"mesa": "hush-hush!"}
    with pytest.raises(InvalidObject, match=r"data.mesa is not base64") as refusal:
        read(secret)
    assert "hush" not in repr(refusal.value.args)


def test_no_repr_shows_a_kubeconfig() -> None:
    secret = remote_secret("far", {"mesa": b"hush-hush"})
    wire = msgspec.convert(secret, SecretObject)
    content = read(secret)
    made = [*claims_of(("quay", "RemoteSecret", "istio-system", "far"), content)]
    shown = repr((wire, content, made, decide({}, made, {}))) + str(
        [one.__rich_repr__() for one in (wire, content, *made)]
    )
    assert "hush" not in shown
    assert b64encode(b"hush-hush").decode() not in shown
