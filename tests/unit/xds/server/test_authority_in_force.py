"""One certificate authority follows another, and at no moment is anything signed that somebody does not trust."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.certificates import NOW, ORDERS, Issuer, p256
from xds.server.authentication import Identity
from xds.server.authority_in_force import AuthorityInForce
from xds.server.certificate_authority import CertificateAuthority, CertificateAuthorityError, bundle

IDENTITY = Identity.parse(ORDERS)
OVERLAP = timedelta(hours=10)
HOUR = timedelta(hours=1)
OLD, NEW, THIRD = Issuer("old"), Issuer("new"), Issuer("third")


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


def authority(issuer: Issuer, *others: Issuer, clock: Clock | None = None) -> CertificateAuthority:
    assert isinstance(issuer.key, ec.EllipticCurvePrivateKey)
    roots = [one.certificate for one in (issuer, *others)]
    return CertificateAuthority(issuer.key, (), roots, now=clock or Clock())


class World:
    """An authority in force, its clock, and how often it has told of a change."""

    def __init__(self, *issuers: Issuer) -> None:
        self.clock = Clock()
        first, *others = issuers or (OLD,)
        self.in_force = AuthorityInForce(self.made(first, *others), overlap=OVERLAP, now=self.clock)
        self.rung = 0
        self.in_force.listen(self._ring)

    def _ring(self) -> None:
        self.rung += 1

    def made(self, issuer: Issuer, *others: Issuer) -> CertificateAuthority:
        return authority(issuer, *others, clock=self.clock)

    def passes(self, time: timedelta) -> None:
        self.clock.now += time
        self.in_force.advance()

    def issued(self, seconds: int = 0) -> tuple[x509.Certificate, list[x509.Certificate]]:
        """A certificate, and the roots that come with it."""
        *chain, roots = self.in_force.issue(p256().public_key(), IDENTITY, seconds)
        return x509.load_pem_x509_certificate(chain[0].encode()), x509.load_pem_x509_certificates(roots.encode())


def signed_by(certificate: x509.Certificate, issuer: Issuer) -> bool:
    return certificate.issuer == issuer.certificate.subject


def test_a_new_root_is_trusted_at_once_and_signs_after_the_overlap() -> None:
    world = World()
    world.in_force.use(world.made(NEW, OLD))
    leaf, roots = world.issued()
    assert signed_by(leaf, OLD)
    assert roots == [OLD.certificate, NEW.certificate]
    world.passes(OVERLAP - HOUR)
    assert signed_by(world.issued()[0], OLD)
    world.passes(HOUR)
    leaf, roots = world.issued()
    assert signed_by(leaf, NEW)
    assert roots == [NEW.certificate, OLD.certificate]


def test_it_says_when_something_is_due_next() -> None:
    world = World()
    assert world.in_force.advance() is None
    world.in_force.use(world.made(NEW, OLD))
    assert world.in_force.advance() == NOW + OVERLAP
    world.passes(OVERLAP)
    assert world.in_force.advance() is None


def test_an_old_root_that_is_not_given_any_more_is_trusted_until_the_last_certificate_below_it_ends() -> None:
    world = World()
    world.issued(seconds=int((OVERLAP + 5 * HOUR).total_seconds()))
    world.in_force.use(world.made(NEW))
    assert world.in_force.roots == (OLD.certificate, NEW.certificate)
    world.passes(OVERLAP)
    assert world.in_force.roots == (NEW.certificate, OLD.certificate)
    assert world.in_force.advance() == NOW + OVERLAP + 5 * HOUR
    world.passes(5 * HOUR)
    assert list(world.in_force.roots) == [NEW.certificate]


def test_an_old_root_below_which_nothing_was_signed_goes_as_soon_as_another_signs() -> None:
    world = World()
    world.in_force.use(world.made(NEW))
    world.passes(OVERLAP)
    assert world.in_force.roots == (NEW.certificate,)


def test_a_root_that_was_trusted_before_may_sign_once_it_was_for_the_overlap() -> None:
    world = World(OLD, NEW)
    world.in_force.use(world.made(NEW, OLD))
    assert signed_by(world.issued()[0], NEW)
    world.in_force.use(world.made(NEW, OLD, THIRD))
    world.passes(OVERLAP / 2)
    world.in_force.use(world.made(THIRD, NEW))
    assert world.in_force.advance() == NOW + OVERLAP
    world.passes(OVERLAP / 2)
    assert signed_by(world.issued()[0], THIRD)


def test_another_authority_below_the_same_root_signs_at_once() -> None:
    world = World(OLD)
    middle = Issuer("middle", OLD)
    assert isinstance(middle.key, ec.EllipticCurvePrivateKey)
    below = CertificateAuthority(middle.key, [middle.certificate], [OLD.certificate], now=world.clock)
    world.in_force.use(below)
    assert signed_by(world.issued()[0], middle)
    assert world.rung == 1


def test_who_takes_a_replacement_back_has_never_made_one() -> None:
    world = World()
    world.in_force.use(world.made(NEW))
    world.in_force.use(world.made(OLD))
    assert world.in_force.roots == (OLD.certificate,)
    assert world.in_force.advance() is None
    world.passes(OVERLAP)
    assert signed_by(world.issued()[0], OLD)


def test_an_authority_that_has_expired_makes_way_at_once() -> None:
    ending = Issuer("ending", ends=NOW + HOUR)
    world = World(ending)
    world.in_force.use(world.made(NEW))
    world.passes(HOUR)
    assert signed_by(world.issued()[0], NEW)


def test_the_same_again_tells_nobody() -> None:
    world = World()
    world.in_force.use(world.made(OLD))
    assert world.rung == 0


def test_whoever_listens_hears_of_other_roots_and_of_another_signer() -> None:
    world = World()
    world.in_force.use(world.made(NEW, OLD))
    assert world.rung == 1
    world.passes(OVERLAP)
    assert world.rung == 2


def test_whoever_has_ended_listening_hears_nothing() -> None:
    world = World()
    heard: list[int] = []
    world.in_force.listen(lambda: heard.append(1))()
    world.in_force.use(world.made(NEW))
    assert heard == []


def test_server_certificates_count_among_those_below_a_root() -> None:
    world = World(OLD, NEW)
    world.in_force.issue_server(["localhost"])
    world.in_force.use(world.made(NEW))
    assert world.in_force.roots == (NEW.certificate, OLD.certificate)


def test_without_an_authority_nothing_is_issued_and_the_roots_are_those_given() -> None:
    in_force = AuthorityInForce(None, roots=[OLD.certificate])
    assert in_force.root_certificates == bundle([OLD.certificate])
    with pytest.raises(CertificateAuthorityError, match="ask the authority of the mesh"):
        in_force.issue(p256().public_key(), IDENTITY)
    in_force.trust([NEW.certificate])
    assert in_force.roots == (NEW.certificate,)
    with pytest.raises(CertificateAuthorityError, match="another authority"):
        in_force.use(authority(NEW))


def test_the_first_authority_of_all_signs_at_once() -> None:
    clock, heard = Clock(), []
    in_force = AuthorityInForce(None, now=clock)
    in_force.listen(lambda: heard.append(1))
    in_force.begin(authority(OLD, clock=clock))
    assert in_force.root_certificates == bundle([OLD.certificate])
    assert in_force.issue(p256().public_key(), IDENTITY)
    assert heard == [1]


STEPS = st.one_of(
    st.tuples(st.just("use"), st.permutations([OLD, NEW, THIRD]), st.integers(1, 3)),
    st.tuples(st.just("wait"), st.integers(0, 14), st.none()),
    st.tuples(st.just("issue"), st.integers(1, 30), st.none()),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=20))
def test_no_order_of_replacements_breaks_a_connection(steps: list[tuple[str, object, object]]) -> None:
    """A proxy renews its certificate, and with it what it trusts, at least once in an overlap: nobody refuses it."""
    world = World()
    live: list[tuple[x509.Certificate, datetime]] = []
    # What was trusted when, from the beginning.
    trusted: list[tuple[datetime, tuple[x509.Certificate, ...]]] = [(NOW - OVERLAP, world.in_force.roots)]
    for kind, first, second in steps:
        if kind == "use":
            assert isinstance(first, list)
            assert isinstance(second, int)
            world.in_force.use(world.made(*first[:second]))
        elif kind == "wait":
            assert isinstance(first, int)
            world.passes(first * HOUR)
        else:
            assert isinstance(first, int)
            leaf, _ = world.issued(first * 3600)
            root = next(one for one in world.in_force.roots if one.subject == leaf.issuer)
            live.append((root, leaf.not_valid_after_utc))
            # The proxy that heard of the roots longest ago.
            heard = [roots for moment, roots in trusted if moment <= world.clock.now - OVERLAP][-1]
            assert root in heard
        trusted.append((world.clock.now, world.in_force.roots))
        for root, end in live:
            assert end <= world.clock.now or root in world.in_force.roots
