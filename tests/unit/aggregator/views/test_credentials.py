"""Credentials by name: who is told what, who is not, what is asked of home for it, and what one change costs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest

from aggregator.pipeline import RESOURCES, REVIEWS, SETTLED, WANTED
from aggregator.views.credentials import ROLE, view_of
from aggregator.views.view import View
from tests.kit import certificates as c
from tests.kit import manifests as m
from tests.kit.manifests import Manifest
from tests.kit.world import World, fact
from tests.unit.aggregator.security.test_certificates import staple
from tests.unit.aggregator.security.test_trust_bundles import revocations
from watchers.facts import NamedSecret, Reading, RootsConfigMap, SecretAccess
from watchers.facts.named import access_key, object_key, reading_key

CHAIN, KEY = c.host_pair("a.example")
ROOTS, OTHER_ROOTS = c.pem(c.Issuer("one").certificate), c.pem(c.Issuer("two").certificate)
OWN, OWN_ROOTS = "kubernetes://tls", "kubernetes://tls-cacert"
GIVEN, GIVEN_ROOTS = "kubernetes-gateway://certs/tls", "kubernetes-gateway://certs/tls-cacert"
ACCOUNT = ("alpha", "ServiceAccount", "infra", "edge")
GATEWAY = ("alpha", "Gateway", "infra", "edge")
GRANT = m.reference_grant("certs/g", "infra", "tls")
WANTED_TLS = ("NamedSecret", "infra", "tls")


def view(name: str, *, namespace: str = "infra", gateway: str = "edge", account: str = "edge") -> View:
    found = view_of(name, namespace=namespace, gateway=gateway, account=account)
    assert found is not None
    return found


def gateway(*certificates: str | m.Fields, name: str = "infra/edge", mode: str = "Terminate") -> Manifest:
    return m.gateway(name, "istio", m.listener("https", 443, "HTTPS", tls_mode=mode, certificates=certificates))


def tls(name: str, pair: tuple[bytes, bytes] = (CHAIN, KEY), **entries: bytes) -> Manifest:
    return m.secret(name, kind="kubernetes.io/tls", tls_crt=pair[0], tls_key=pair[1], **entries)


def world_of(*objects: Manifest, ask: Iterable[str] = (), **home: Any) -> World:
    """Home alpha, a directory unless told otherwise, and one gateway `infra/edge` that asks for these names."""
    world = World(**{"accounts_read_secrets": True, **home})
    world.now = c.NOW.timestamp()
    world.apply("alpha", *(m.namespace(name) for name in ("infra", "certs", "other")), *objects)
    world.ask(*map(view, ask))
    world.step()
    return world


def told(world: World, name: str, **asker: str) -> dict[str, Any] | None:
    """The secret under a name; None if it was told that there is none, AssertionError while nothing is told."""
    one = view(name, **asker)
    assert world.published[SETTLED].get(one.key) == "settled", "unknown"
    return world.told(one).get(name)


def unknown(world: World, name: str) -> bool:
    return world.published.get(SETTLED, {}).get(view(name).key) is None and not world.told(view(name))


def codes(world: World) -> list[tuple[str, str, str]]:
    """(code, kind and name, field) of every finding."""
    return [(one.code, f"{one.object[1]} {one.object[2]}/{one.object[3]}", one.field) for one in world.findings()]


def is_pair(secret: dict[str, Any] | None) -> bool:
    return secret is not None and "tls_certificate" in secret and "validation_context" not in secret


def is_roots(secret: dict[str, Any] | None) -> bool:
    return secret is not None and "validation_context" in secret and "tls_certificate" not in secret


# What is asked for.


def test_names_that_stand_for_nothing_have_no_view() -> None:
    for name in ("builtin://", "invalid://x/y", "sds://x", "file:///etc/key", "kubernetes://other/x", "a.example"):
        assert view_of(name, namespace="infra", gateway="edge", account="edge") is None


def test_views_of_two_questions_are_never_one() -> None:
    assert view(OWN) != view(OWN, account="other")
    names = [view(OWN), view(OWN_ROOTS), view(OWN, gateway="g"), view(OWN, namespace="x"), view(OWN, account="a")]
    assert len({one.name for one in names}) == len(names)
    assert {one.role for one in names} == {ROLE}


def test_what_nobody_asks_for_is_not_made() -> None:
    world = world_of(tls("infra/tls", ca_crt=ROOTS), gateway("tls"))
    assert not [key for key in world.resources if key[0].startswith(ROLE)]
    assert not world.published.get("trust bundles")


# Secrets of the gateway's own namespace.


def test_a_pair_of_its_own_namespace_is_told() -> None:
    world = world_of(tls("infra/tls"), ask=[OWN, "kubernetes://infra/tls"])
    assert is_pair(told(world, OWN))
    assert is_pair(told(world, "kubernetes://infra/tls"))


def test_where_home_is_a_directory_and_nobody_vouches_for_accounts_it_is_denied() -> None:
    world = world_of(tls("infra/tls", ca_crt=ROOTS), ask=[OWN, OWN_ROOTS], accounts_read_secrets=False)
    assert told(world, OWN) is None
    assert is_roots(told(world, OWN_ROOTS))
    assert codes(world) == [("SecretAccessDenied", "ServiceAccount infra/edge", "metadata.name")]


def test_a_secret_of_the_same_name_elsewhere_is_another() -> None:
    assert told(world_of(tls("certs/tls"), tls("other/tls"), ask=[OWN]), OWN) is None


def test_a_secret_of_another_cluster_is_none() -> None:
    world = world_of(ask=[OWN])
    world.apply("beta", tls("infra/tls"))
    world.step()
    assert told(world, OWN) is None


def test_a_generic_secret_is_told_as_well() -> None:
    world = world_of(m.secret("infra/tls", cert=CHAIN, key=KEY, cacert=ROOTS), ask=[OWN, OWN_ROOTS])
    assert is_pair(told(world, OWN))
    assert is_roots(told(world, OWN_ROOTS))


def test_a_secret_without_a_pair_is_a_finding_once_somebody_asks() -> None:
    world = world_of(m.secret("infra/tls", cacert=ROOTS), ask=[OWN_ROOTS])
    assert codes(world) == []
    world.ask(view(OWN))
    world.step()
    assert told(world, OWN) is None
    assert codes(world) == [("SecretInvalid", "Secret infra/tls", "data")]


def test_nothing_is_told_of_a_namespace_that_is_not_selected() -> None:
    mesh = m.mesh_config_map(discoverySelectors=[{"matchLabels": {"mesh": "on"}}])
    world = world_of(mesh, tls("infra/tls", ca_crt=ROOTS), ask=[OWN, OWN_ROOTS])
    assert told(world, OWN) is told(world, OWN_ROOTS) is None


# Secrets that a Gateway refers to.


def test_a_pair_that_its_gateway_refers_to_is_told_without_any_right_of_its_account() -> None:
    name = "kubernetes-gateway://infra/tls"
    world = world_of(tls("infra/tls"), gateway("tls"), ask=[name], accounts_read_secrets=False)
    assert is_pair(told(world, name))
    assert codes(world) == []


def test_what_no_listener_of_its_gateway_refers_to_is_not_told() -> None:
    name = "kubernetes-gateway://infra/tls"
    refused: tuple[list[Manifest], ...] = (
        [],
        [gateway("tls2")],
        [gateway("tls", name="infra/other")],
        [gateway("tls", name="other/edge")],
        [gateway("certs/tls")],
        [gateway({"kind": "ConfigMap", "name": "tls"})],
        [gateway({"group": "example.com", "kind": "Secret", "name": "tls"})],
        [gateway("tls", mode="Passthrough")],
    )
    for objects in refused:
        world = world_of(tls("infra/tls", ca_crt=ROOTS), *objects, ask=[name, f"{name}-cacert"])
        assert told(world, name) is told(world, f"{name}-cacert") is None, objects


def test_a_proxy_of_no_gateway_has_no_references() -> None:
    name = "kubernetes-gateway://infra/tls"
    world = world_of(tls("infra/tls"), gateway("tls"))
    world.ask(view(name, gateway=""), view(name, gateway="other"), view(name, namespace="other"))
    world.step()
    for asker in ({"gateway": ""}, {"gateway": "other"}, {"namespace": "other"}):
        assert told(world, name, **asker) is None


def test_another_namespace_has_to_grant_it() -> None:
    world = world_of(tls("certs/tls", ca_crt=ROOTS), gateway("certs/tls"), ask=[GIVEN, GIVEN_ROOTS])
    assert told(world, GIVEN) is told(world, GIVEN_ROOTS) is None
    assert codes(world) == [
        ("CertificateRefNotGranted", "Gateway infra/edge", "spec.listeners[0].tls.certificateRefs[0]")
    ]
    world.apply("alpha", GRANT)
    world.step()
    assert is_pair(told(world, GIVEN))
    assert is_roots(told(world, GIVEN_ROOTS))
    assert codes(world) == []
    world.delete("alpha", GRANT)
    world.step()
    assert told(world, GIVEN) is told(world, GIVEN_ROOTS) is None


def test_a_grant_alone_without_a_reference_gives_nothing() -> None:
    assert told(world_of(tls("certs/tls"), gateway("tls"), GRANT, ask=[GIVEN]), GIVEN) is None


def test_each_reference_stands_on_its_own() -> None:
    bad = ({"kind": "ConfigMap", "name": "x"}, "missing", "other/tls", {"name": "-"})
    world = world_of(tls("certs/tls"), tls("other/tls"), gateway(*bad, "certs/tls"), GRANT, ask=[GIVEN])
    assert is_pair(told(world, GIVEN))
    assert [(code, field[-3:]) for code, _, field in codes(world)] == [
        ("CertificateRefNotFound", "[1]"),
        ("CertificateRefNotFound", "[3]"),
        ("CertificateRefNotGranted", "[2]"),
        ("CertificateRefUnsupported", "[0]"),
    ]


def test_gateways_of_other_controllers_have_no_findings_unless_they_ask() -> None:
    world = world_of(gateway("missing"))
    assert codes(world) == []
    world.apply("alpha", m.gateway_class("istio", "istio.io/gateway-controller"))
    world.step()
    assert [code for code, _, _ in codes(world)] == ["CertificateRefNotFound"]


# Roots.


def test_roots_come_from_a_secret_of_their_own_where_there_is_one() -> None:
    world = world_of(tls("infra/tls", ca_crt=ROOTS), ask=[OWN_ROOTS])
    before = told(world, OWN_ROOTS)
    own = m.secret("infra/tls-cacert", cacert=OTHER_ROOTS)
    world.apply("alpha", own)
    world.step()
    assert is_roots(told(world, OWN_ROOTS))
    assert told(world, OWN_ROOTS) != before
    world.delete("alpha", own)
    world.step()
    assert told(world, OWN_ROOTS) == before


def test_a_secret_of_its_own_without_roots_is_a_finding_and_no_way_to_other_roots() -> None:
    world = world_of(tls("infra/tls", ca_crt=ROOTS), tls("infra/tls-cacert"), ask=[OWN_ROOTS])
    assert told(world, OWN_ROOTS) is None
    assert codes(world) == [("RootsInvalid", "TLSSecret infra/tls-cacert", "data")]


def test_roots_of_a_gateways_secret_may_be_in_one_that_nothing_refers_to() -> None:
    own = m.secret("certs/tls-cacert", ca_crt=ROOTS)
    assert is_roots(told(world_of(tls("certs/tls"), own, gateway("certs/tls"), GRANT, ask=[GIVEN_ROOTS]), GIVEN_ROOTS))


def test_a_reference_to_the_secret_with_the_roots_gives_these_and_not_those_beside_the_pair() -> None:
    grant = m.reference_grant("certs/g", "infra", "tls-cacert")
    objects = (tls("certs/tls", ca_crt=OTHER_ROOTS), gateway("certs/tls-cacert"), grant)
    assert told(world_of(*objects, ask=[GIVEN_ROOTS]), GIVEN_ROOTS) is None
    world = world_of(*objects, m.secret("certs/tls-cacert", ca_crt=ROOTS), ask=[GIVEN, GIVEN_ROOTS])
    assert is_roots(told(world, GIVEN_ROOTS))
    assert told(world, GIVEN) is None


def test_no_key_is_told_among_roots() -> None:
    world = world_of(m.secret("infra/tls", cacert=KEY + ROOTS + KEY), ask=[OWN_ROOTS])
    told_roots = next(one for key, one in world.resources.items() if key[1] == OWN_ROOTS)
    assert ROOTS in bytes(told_roots.body)
    assert b"PRIVATE" not in bytes(told_roots.body)


def test_any_gateway_may_have_the_roots_in_a_config_map() -> None:
    name = "configmap://other/ca"
    world = world_of(m.config_map("other/ca", ca_crt=ROOTS.decode()), ask=[name], accounts_read_secrets=False)
    assert is_roots(told(world, name))
    assert is_roots(world.told(view(name))[name])


def test_a_config_map_is_no_place_for_a_pair_nor_a_secret_for_what_a_config_map_is_asked_for() -> None:
    world = world_of(
        m.secret("other/ca", cacert=ROOTS), m.config_map("infra/tls", ca_crt=ROOTS.decode()),
        ask=["configmap://other/ca", OWN_ROOTS],
    )  # fmt: skip
    assert told(world, "configmap://other/ca") is told(world, OWN_ROOTS) is None


def test_what_an_issuer_says_of_a_pair_and_of_what_it_revoked_is_told_with_them() -> None:
    given, crl = staple(CHAIN, KEY), revocations(c.Issuer("one"))
    secret = tls("infra/tls", tls_ocsp__staple=given, ca_crt=ROOTS, ca_crl=crl)
    world = world_of(secret, ask=[OWN, OWN_ROOTS])
    assert "ocsp_staple" in (told(world, OWN) or {})["tls_certificate"]
    assert "crl" in (told(world, OWN_ROOTS) or {})["validation_context"]
    world.apply("alpha", tls("infra/tls", tls_ocsp__staple=b"bad", ca_crt=ROOTS, ca_crl=b"bad"))
    world.step()
    assert "ocsp_staple" not in (told(world, OWN) or {})["tls_certificate"]
    assert "crl" in (told(world, OWN_ROOTS) or {})["validation_context"]
    assert {code for code, _, _ in codes(world)} == {"OcspStapleInvalid", "RootsInvalid"}


# What becomes bad, old or goes.


def test_the_last_good_pair_and_the_last_good_roots_stay_while_bad_ones_stand() -> None:
    world = world_of(tls("infra/tls", ca_crt=ROOTS), ask=[OWN, OWN_ROOTS])
    before = told(world, OWN), told(world, OWN_ROOTS)
    world.apply("alpha", tls("infra/tls", (CHAIN, b"no key"), ca_crt=b"no roots"))
    world.step()
    assert (told(world, OWN), told(world, OWN_ROOTS)) == before
    assert {code for code, _, _ in codes(world)} == {"SecretInvalid", "RootsInvalid"}
    world.delete("alpha", tls("infra/tls"))
    world.step()
    assert told(world, OWN) is told(world, OWN_ROOTS) is None
    assert codes(world) == []


def test_a_bad_secret_spoils_no_other() -> None:
    world = world_of(tls("infra/bad", (b"", b"")), tls("infra/tls"), ask=["kubernetes://bad", OWN])
    assert told(world, "kubernetes://bad") is None
    assert is_pair(told(world, OWN))


def test_what_has_expired_is_told_and_told_of() -> None:
    short = c.Issuer("short", ends=c.NOW + timedelta(days=1))
    pair = c.host_pair("a.example", ends=c.NOW + timedelta(days=1))
    secret = tls("infra/tls", pair, ca_crt=c.pem(short.certificate))
    world = world_of(secret, ask=[OWN, OWN_ROOTS])
    assert codes(world) == []
    world.wait(2 * 86_400)
    assert is_pair(told(world, OWN))
    assert is_roots(told(world, OWN_ROOTS))
    assert {code for code, _, _ in codes(world)} == {"CertificateExpired"}


def test_one_changed_secret_costs_those_who_ask_for_it() -> None:
    world = world_of(tls("infra/tls"), tls("infra/b"), ask=[OWN, "kubernetes://b", OWN_ROOTS])
    world.apply("alpha", tls("infra/tls", c.host_pair("b.example")))
    changed = world.step().published[RESOURCES]
    assert set(changed) == {(view(OWN).name, OWN)}


def test_no_finding_and_no_repr_shows_a_key() -> None:
    pair = (CHAIN, KEY[: len(KEY) // 2])
    world = world_of(tls("infra/tls", pair), m.secret("infra/x", cert=CHAIN, key=pair[1]), ask=[OWN, "kubernetes://x"])
    shown = f"{world.findings()} {[repr(one) for one in world.facts.scan(())]}" + " ".join(map(str, world.findings()))
    assert "PRIVATE" not in shown
    assert KEY[60:90].decode() not in shown


# Where home is an API server.


def answered(world: World, *facts: Any) -> None:
    world.facts.apply(facts)
    world.step()


def test_nothing_is_told_of_a_name_before_the_account_was_reviewed() -> None:
    world = world_of(tls("infra/tls", ca_crt=ROOTS), ask=[OWN, OWN_ROOTS], api_server=True)
    answered(world, (reading_key(("NamedSecret", "infra", "tls-cacert")), Reading("read")))
    assert unknown(world, OWN)
    assert is_roots(told(world, OWN_ROOTS))
    assert world.published[REVIEWS] == {("infra", "edge"): True}
    answered(world, (access_key("infra", "edge"), SecretAccess(False, "no answer", pending=True)))
    assert unknown(world, OWN)
    assert codes(world) == [("SecretAccessUnknown", "ServiceAccount infra/edge", "metadata.name")]
    answered(world, (access_key("infra", "edge"), SecretAccess(True)))
    assert is_pair(told(world, OWN))
    assert codes(world) == []
    answered(world, (access_key("infra", "edge"), SecretAccess(False, "no role")))
    assert told(world, OWN) is None
    assert codes(world) == [("SecretAccessDenied", "ServiceAccount infra/edge", "metadata.name")]


def test_what_another_account_may_do_says_nothing() -> None:
    world = world_of(tls("infra/tls"), ask=[OWN], api_server=True)
    allowed = SecretAccess(True)
    answered(world, (access_key("infra", "other"), allowed), (access_key("certs", "edge"), allowed))
    assert unknown(world, OWN)


def test_no_account_is_reviewed_for_what_needs_no_right() -> None:
    world = world_of(gateway("certs/tls"), ask=[GIVEN, GIVEN_ROOTS, OWN_ROOTS, "configmap://x/ca"], api_server=True)
    assert not world.published.get(REVIEWS)


def test_a_secret_is_read_by_name_only_if_it_may_be_told_and_is_not_there_anyhow() -> None:
    world = world_of(tls("infra/b"), ask=[OWN, "kubernetes://b", GIVEN], api_server=True)
    assert not world.published.get(WANTED)
    answered(world, (access_key("infra", "edge"), SecretAccess(True)))
    assert world.published[WANTED] == {WANTED_TLS: ("infra",)}
    assert unknown(world, OWN)
    assert is_pair(told(world, "kubernetes://b"))
    world.apply("alpha", tls("infra/tls"))
    world.step()
    assert world.published[WANTED] == {}
    assert is_pair(told(world, OWN))


def read_by_name(*entries: tuple[tuple[str, str, str], Any]) -> World:
    """A world in which OWN and OWN_ROOTS are asked for, the account may read, and these were read."""
    world = world_of(ask=[OWN, OWN_ROOTS], api_server=True)
    world.facts.apply([(access_key("infra", "edge"), SecretAccess(True))])
    for wanted, found in entries:
        reading = found if isinstance(found, Reading) else Reading("read")
        world.facts.apply([(reading_key(wanted), reading)])
        if not isinstance(found, Reading):
            world.facts.apply([(object_key(wanted), found)])
    world.step()
    return world


def test_a_secret_that_was_read_by_name_is_told_and_goes_on_being_read() -> None:
    world = read_by_name((WANTED_TLS, NamedSecret(CHAIN, KEY)))
    assert is_pair(told(world, OWN))
    assert WANTED_TLS in world.published[WANTED]
    answered(world, (object_key(WANTED_TLS), None))
    assert told(world, OWN) is None


def test_a_secret_that_is_not_there_is_none_once_that_was_read() -> None:
    world = read_by_name((WANTED_TLS, None))
    assert told(world, OWN) is None
    assert codes(world) == []


def test_roots_beside_a_pair_wait_until_it_is_known_that_there_are_none_of_their_own() -> None:
    own = ("NamedSecret", "infra", "tls-cacert")
    world = read_by_name((WANTED_TLS, NamedSecret(CHAIN, KEY, ROOTS)))
    assert unknown(world, OWN_ROOTS)
    answered(world, (reading_key(own), Reading("read")))
    assert is_roots(told(world, OWN_ROOTS))
    answered(world, (reading_key(own), Reading("denied", "may not")))
    assert told(world, OWN_ROOTS) is None


def test_what_may_not_be_read_is_a_finding_with_the_cure() -> None:
    world = read_by_name((WANTED_TLS, Reading("denied", "403 Forbidden")))
    assert told(world, OWN) is None
    assert codes(world) == [("ObjectNotReadable", "Secret infra/tls", "data")]
    answered(world, (reading_key(WANTED_TLS), Reading("invalid", "is not base64")))
    assert codes(world) == [("ObjectUnusable", "Secret infra/tls", "data")]


def test_a_reference_to_a_secret_is_missing_only_once_it_was_looked_for() -> None:
    name, wanted = "kubernetes-gateway://infra/tls", WANTED_TLS
    world = world_of(gateway("tls"), ask=[name], api_server=True)
    assert codes(world) == []
    answered(world, (reading_key(wanted), Reading("read")))
    assert [code for code, _, _ in codes(world)] == ["CertificateRefNotFound"]
    answered(world, (object_key(wanted), NamedSecret(CHAIN, KEY)))
    assert codes(world) == []
    assert is_pair(told(world, name))


def test_a_config_map_is_read_by_name_for_whoever_asks() -> None:
    name, wanted = "configmap://other/ca", ("RootsConfigMap", "other", "ca")
    world = world_of(ask=[name], api_server=True)
    world.ask(view(name, namespace="certs"))
    world.step()
    assert world.published[WANTED] == {wanted: ("certs", "infra")}
    answered(world, (reading_key(wanted), Reading("read")), (object_key(wanted), RootsConfigMap(ROOTS)))
    assert is_roots(told(world, name))


def test_before_home_was_read_nothing_is_told_of_any_name() -> None:
    world = World(accounts_read_secrets=True)
    world.cluster("alpha", "syncing")
    world.facts.apply([fact("alpha", tls("infra/tls"))])
    world.ask(view(OWN), view("kubernetes://missing"))
    world.step()
    assert unknown(world, OWN)
    assert unknown(world, "kubernetes://missing")


def test_a_remote_that_does_not_answer_holds_up_no_credential() -> None:
    world = world_of(tls("infra/tls"), ask=[OWN, "kubernetes://missing"])
    world.cluster("beta", "connecting")
    world.step()
    assert is_pair(told(world, OWN))
    assert told(world, "kubernetes://missing") is None


@pytest.mark.parametrize("kind", ["TLSSecret", "NamedSecret"])
def test_an_ingress_is_never_given_what_was_read_by_name(kind: str) -> None:
    made = tls("infra/tls") if kind == "TLSSecret" else m.secret("infra/tls", cert=CHAIN, key=KEY)
    world = world_of(made, m.ingress("infra/i", "a.example", "web", secret="tls"), ask=[OWN])
    assert is_pair(told(world, OWN))
    assert bool(world.graph.values(world.pipeline.hosts.certificates)) is (kind == "TLSSecret")
