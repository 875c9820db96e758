"""Certificates made for the proxy of a stream: whose they are, when they are renewed, and which are kept."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tests.kit.certificates import NOW, Issuer
from tests.kit.clock import virtual_time
from xds import protos
from xds.encoded import Resource, wrap
from xds.messages.secret import ROOTS, SECRET_TYPE, WORKLOAD_CERTIFICATE, KeyPair, encode_key_pair
from xds.server.authentication import Identity
from xds.server.authority_in_force import AuthorityInForce
from xds.server.certificate_authority import CertificateAuthority
from xds.server.workload_certificates import RETRY, WorkloadCertificates
from xds.session.content import Changes, State

GATEWAY = Identity.parse("spiffe://cluster.local/ns/edge/sa/gateway")
OTHER = Identity.parse("spiffe://cluster.local/ns/shop/sa/orders")
HOUR = 3600.0
DAY = 24 * HOUR


def seconds() -> float:
    """The loop's time, counted from NOW."""
    return NOW.timestamp() + asyncio.get_running_loop().time()


def moment() -> datetime:
    return datetime.fromtimestamp(seconds(), UTC)


def authority(root: Issuer | None = None, **fields: Any) -> CertificateAuthority:
    """An authority whose clock is the loop's."""
    issuer = root or Issuer("root", **fields)
    assert isinstance(issuer.key, ec.EllipticCurvePrivateKey)
    return CertificateAuthority(issuer.key, (), (issuer.certificate,), now=moment)


def host_secret(name: str, text: str = "1") -> Resource:
    return wrap(SECRET_TYPE, name, encode_key_pair(KeyPair(name, text.encode(), b"key")))


class Hosts:
    """A view with secrets of hosts."""

    def __init__(self, *names: str, state: State = "settled") -> None:
        self.resources = {name: host_secret(name) for name in names}
        self.state: State = state
        self.changed: dict[str, Resource | None] = {}
        self.sure: set[str] = set()
        self.closed = False

    @property
    def pending(self) -> bool:
        return bool(self.changed)

    def take(self) -> Changes:
        taken, self.changed = self.changed, {}
        return Changes(taken, ("cause",), 7)

    def get(self, name: str) -> Resource | None:
        return self.resources.get(name)

    def items(self) -> Iterable[tuple[str, Resource]]:
        return self.resources.items()

    def known(self, name: str) -> bool:
        return name in self.resources

    def final(self, name: str) -> bool:
        return name in self.sure

    def current(self, name: str, version: str) -> bool:
        return name in self.resources and version == "as good"

    def close(self) -> None:
        self.closed = True


def certificates(
    issuer: CertificateAuthority | AuthorityInForce | None = None,
    *,
    identity: Identity = GATEWAY,
    view: Hosts | None = None,
    bell: Callable[[], None] = lambda: None,
    lifetime: float = DAY,
) -> WorkloadCertificates:
    in_force = issuer if isinstance(issuer, AuthorityInForce) else AuthorityInForce(issuer or authority(), now=moment)
    return WorkloadCertificates(in_force, identity, view, bell, lifetime=lifetime, now=seconds)


def own(reading: WorkloadCertificates) -> Resource:
    resource = reading.get(WORKLOAD_CERTIFICATE)
    assert resource is not None
    return resource


def secret(resource: Resource) -> protos.envoy.extensions.transport_sockets.tls.v3.Secret:
    return protos.envoy.extensions.transport_sockets.tls.v3.Secret.FromString(bytes(resource.body))


def chain(resource: Resource) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(secret(resource).tls_certificate.certificate_chain.inline_bytes)


class Bell:
    """Counts rings, and when they were."""

    def __init__(self) -> None:
        self.rung: list[float] = []

    def __call__(self) -> None:
        self.rung.append(asyncio.get_running_loop().time())


# What is made.


@virtual_time
async def test_a_certificate_is_of_the_streams_own_identity_with_a_key_that_fits() -> None:
    resource = own(certificates())
    (leaf,) = chain(resource)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [str(GATEWAY)]
    key = load_pem_private_key(secret(resource).tls_certificate.private_key.inline_bytes, None)
    assert key.public_key() == leaf.public_key()
    assert resource.name == secret(resource).name == "default"


@virtual_time
async def test_the_chain_ends_before_the_root() -> None:
    root = Issuer("root")
    middle = Issuer("middle", root)
    assert isinstance(middle.key, ec.EllipticCurvePrivateKey)
    issuer = CertificateAuthority(middle.key, (middle.certificate,), (root.certificate,), now=moment)
    reading = certificates(issuer)
    leaf, upper = chain(own(reading))
    assert upper == middle.certificate
    leaf.verify_directly_issued_by(upper)
    roots = reading.get(ROOTS)
    assert roots is not None
    assert secret(roots).validation_context.trusted_ca.inline_bytes == issuer.root_certificates.encode()


@virtual_time
async def test_it_is_made_when_asked_for_and_once() -> None:
    reading = certificates()
    assert not reading.pending
    assert own(reading) is own(reading)
    assert not reading.pending


@virtual_time
async def test_every_stream_has_a_key_of_its_own() -> None:
    issuer = authority()
    one, other = own(certificates(issuer)), own(certificates(issuer))
    assert secret(one).tls_certificate.private_key != secret(other).tls_certificate.private_key
    assert one.version != other.version


@virtual_time
async def test_both_are_there_and_certain_whatever_the_view_knows() -> None:
    reading = certificates(view=Hosts(state="unknown"))
    assert [name for name, _ in reading.items()] == ["default", "ROOTCA"]
    for name in ("default", "ROOTCA"):
        assert reading.known(name)
        assert reading.final(name)
    assert reading.state == "unknown"
    assert certificates().state == "settled"


# Renewal.


@virtual_time
async def test_it_is_renewed_at_half_its_life() -> None:
    bell = Bell()
    reading = certificates(bell=bell, lifetime=DAY)
    first = own(reading)
    await asyncio.sleep(DAY + 1)
    assert [round(rung / HOUR) for rung in bell.rung] == [12, 24]
    assert reading.pending
    changes = reading.take().changes
    renewed = changes[WORKLOAD_CERTIFICATE]
    assert list(changes) == [WORKLOAD_CERTIFICATE]
    assert renewed is not None
    assert renewed == own(reading)
    assert renewed.version != first.version
    (leaf,) = chain(renewed)
    assert leaf.not_valid_after_utc == NOW + timedelta(days=2)
    assert not reading.pending


@virtual_time
async def test_without_an_asker_nothing_is_renewed() -> None:
    bell = Bell()
    certificates(bell=bell)
    await asyncio.sleep(3 * DAY)
    assert bell.rung == []


@virtual_time
async def test_a_certificate_that_lasts_as_long_as_its_authority_is_not_renewed_before_that_ends() -> None:
    """Each would last no longer than the one before, and the last ones be made every second."""
    bell = Bell()
    reading = certificates(authority(ends=NOW + timedelta(hours=20)), bell=bell)
    first = own(reading)
    await asyncio.sleep(20 * HOUR - 1)
    assert bell.rung == []
    assert own(reading) == first
    assert reading.current(WORKLOAD_CERTIFICATE, first.version)


@virtual_time
async def test_an_expired_authority_makes_none_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    reading = certificates(authority(ends=NOW - timedelta(seconds=1)))
    with caplog.at_level(logging.ERROR):
        assert reading.get(WORKLOAD_CERTIFICATE) is None
    assert [name for name, _ in reading.items()] == ["ROOTCA"]
    # Who asked waits for it: it is not told that there is none.
    assert reading.known(WORKLOAD_CERTIFICATE)
    assert "workload certificate not issued" in caplog.text
    reading.close()


@virtual_time
async def test_a_renewal_that_fails_leaves_the_old_one_alone_and_is_tried_again() -> None:
    bell = Bell()
    issuer = authority()
    reading = certificates(issuer, bell=bell)
    first = own(reading)
    expires, issuer.expires = issuer.expires, NOW  # type: ignore[misc]  # as if its certificate had run out
    await asyncio.sleep(12 * HOUR + 1)
    assert bell.rung == []
    assert not reading.pending
    assert own(reading) == first
    issuer.expires = expires  # type: ignore[misc]
    await asyncio.sleep(RETRY)
    assert len(bell.rung) == 1
    assert own(reading).version != first.version


# Versions.


@virtual_time
async def test_a_good_version_of_an_earlier_stream_is_kept_until_it_is_due() -> None:
    issuer = authority()
    before = own(certificates(issuer))
    await asyncio.sleep(HOUR)
    bell = Bell()
    reading = certificates(issuer, bell=bell)
    assert reading.current(WORKLOAD_CERTIFICATE, before.version)
    assert not reading.pending
    await asyncio.sleep(11 * HOUR + 2)
    assert [round(rung / HOUR) for rung in bell.rung] == [12]
    renewed = reading.take().changes[WORKLOAD_CERTIFICATE]
    assert renewed is not None
    assert renewed.version != before.version


@virtual_time
async def test_a_version_past_its_half_life_is_not_good() -> None:
    issuer = authority()
    before = own(certificates(issuer))
    await asyncio.sleep(12 * HOUR + 1)
    assert not certificates(issuer).current(WORKLOAD_CERTIFICATE, before.version)


@virtual_time
async def test_a_version_from_other_roots_is_not_good() -> None:
    before = own(certificates(authority()))
    assert not certificates(authority()).current(WORKLOAD_CERTIFICATE, before.version)


@virtual_time
async def test_a_version_for_another_identity_is_not_good() -> None:
    issuer = authority()
    before = own(certificates(issuer, identity=OTHER))
    assert not certificates(issuer).current(WORKLOAD_CERTIFICATE, before.version)


@virtual_time
async def test_a_version_that_lasts_longer_than_certificates_may_is_not_good() -> None:
    issuer = authority()
    before = own(certificates(issuer, lifetime=10 * DAY))
    assert not certificates(issuer, lifetime=DAY).current(WORKLOAD_CERTIFICATE, before.version)


@pytest.mark.parametrize("version", ["", "no hexadecimal", "00", "0" * 32, "f" * 32, "f" * 64])
def test_a_version_that_is_none_of_ours_is_not_good(version: str) -> None:
    @virtual_time
    async def judged() -> None:
        assert not certificates().current(WORKLOAD_CERTIFICATE, version)

    judged()


@virtual_time
async def test_the_version_of_roots_is_that_of_their_content() -> None:
    issuer = authority()
    roots = certificates(issuer).get(ROOTS)
    assert roots is not None
    reading = certificates(issuer, identity=OTHER)
    assert reading.current(ROOTS, roots.version)
    assert not reading.current(ROOTS, own(reading).version)
    assert not certificates(authority()).current(ROOTS, roots.version)


# When the authority is another one.


OVERLAP = timedelta(hours=1)


class Turning:
    """An authority that is followed by another, and a stream that has the certificate and the roots."""

    def __init__(self) -> None:
        self.old, self.new = Issuer("old"), Issuer("new")
        self.in_force = AuthorityInForce(authority(self.old), overlap=OVERLAP, now=moment)
        self.bell = Bell()
        self.reading = certificates(self.in_force, bell=self.bell)

    async def passes(self, time: timedelta) -> None:
        await asyncio.sleep(time.total_seconds() + 0.001)
        self.in_force.advance()


@virtual_time
async def test_new_roots_are_told_and_the_certificate_stays() -> None:
    world = Turning()
    first = own(world.reading)
    world.in_force.use(authority(world.new))
    assert len(world.bell.rung) == 1
    changes = world.reading.take().changes
    assert set(changes) == {ROOTS}
    told = changes[ROOTS]
    assert told is not None
    pem = secret(told).validation_context.trusted_ca.inline_bytes
    assert x509.load_pem_x509_certificates(pem) == [world.old.certificate, world.new.certificate]
    assert own(world.reading) == first
    assert not world.reading.pending


@virtual_time
async def test_once_another_authority_signs_the_certificate_is_renewed_at_once() -> None:
    world = Turning()
    first = own(world.reading)
    world.in_force.use(authority(world.new))
    world.reading.take()
    await world.passes(OVERLAP)
    changes = world.reading.take().changes
    renewed = changes[WORKLOAD_CERTIFICATE]
    assert renewed is not None
    assert (chain(first)[0].issuer, chain(renewed)[0].issuer) == (
        world.old.certificate.subject,
        world.new.certificate.subject,
    )


@virtual_time
async def test_the_certificate_of_an_earlier_stream_is_renewed_as_well() -> None:
    world = Turning()
    before = own(world.reading)
    world.reading.close()
    again = certificates(world.in_force)
    assert again.current(WORKLOAD_CERTIFICATE, before.version)
    world.in_force.use(authority(world.new))
    assert again.current(WORKLOAD_CERTIFICATE, before.version)
    await world.passes(OVERLAP)
    assert not again.current(WORKLOAD_CERTIFICATE, before.version)
    assert WORKLOAD_CERTIFICATE in again.take().changes


@virtual_time
async def test_a_certificate_that_nobody_asked_for_is_not_made_when_the_authority_changes() -> None:
    world = Turning()
    world.in_force.use(authority(world.new))
    await world.passes(OVERLAP)
    assert set(world.reading.take().changes) == {ROOTS}


@virtual_time
async def test_a_stream_that_has_ended_hears_of_no_authority() -> None:
    world = Turning()
    own(world.reading)
    world.reading.close()
    world.in_force.use(authority(world.new))
    assert world.bell.rung == []


# What the view holds besides.


@virtual_time
async def test_secrets_of_the_view_are_passed_through() -> None:
    view = Hosts("a.example")
    reading = certificates(view=view)
    view.sure.add("a.example")
    view.changed = {"a.example": host_secret("a.example", "2"), "b.example": None}
    assert reading.pending
    assert reading.get("a.example") == view.resources["a.example"]
    assert dict(reading.items())["a.example"] == view.resources["a.example"]
    assert (reading.known("a.example"), reading.known("b.example")) == (True, False)
    assert (reading.final("a.example"), reading.final("b.example")) == (True, False)
    assert reading.current("a.example", "as good")
    taken = reading.take()
    assert set(taken.changes) == {"a.example", "b.example"}
    assert (taken.causes, taken.revision) == (("cause",), 7)
    assert not reading.pending


@virtual_time
async def test_without_a_view_there_is_nothing_else() -> None:
    reading = certificates()
    assert reading.get("a.example") is None
    assert not reading.known("a.example")
    assert not reading.final("a.example")
    assert not reading.current("a.example", "as good")
    assert reading.take() == Changes({})


@virtual_time
async def test_no_host_can_stand_for_the_proxys_own_names() -> None:
    """Or whoever may write an Ingress could give a gateway another identity, by calling its host `default`."""
    view = Hosts("default", "ROOTCA", "a.example")
    reading = certificates(view=view)
    first = own(reading)
    assert chain(first)
    view.changed = {"default": host_secret("default", "2"), "ROOTCA": None, "a.example": host_secret("a.example", "2")}
    assert set(reading.take().changes) == {"a.example"}
    items = list(reading.items())
    assert [name for name, _ in items] == ["default", "ROOTCA", "a.example"]
    assert dict(items)["default"] == first
    assert not reading.current("default", "as good")


@virtual_time
async def test_a_renewed_certificate_is_taken_beside_what_changed_in_the_view() -> None:
    view = Hosts("a.example")
    reading = certificates(view=view)
    own(reading)
    await asyncio.sleep(12 * HOUR + 1)
    changed: Mapping[str, Resource | None] = {"a.example": None}
    view.changed = dict(changed)
    assert set(reading.take().changes) == {"a.example", "default"}


# The end.


@virtual_time
async def test_with_the_stream_the_key_is_forgotten_and_nothing_is_renewed() -> None:
    bell = Bell()
    view = Hosts()
    reading = certificates(bell=bell, view=view)
    own(reading)
    reading.close()
    assert view.closed
    assert reading._own == {}
    await asyncio.sleep(3 * DAY)
    assert bell.rung == []


@virtual_time
async def test_closing_what_was_never_asked_is_no_matter() -> None:
    certificates().close()
