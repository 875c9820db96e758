"""What the TLS ports present, and when it is another one."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.kit.certificates import NOW, Issuer, pem, private_pem
from xds.server.authority_in_force import AuthorityInForce
from xds.server.certificate_authority import CertificateAuthority, CertificateAuthorityError
from xds.server.server_certificate import LOOK_AGAIN, Given, Signed


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


def authority(issuer: Issuer, clock: Clock) -> CertificateAuthority:
    assert isinstance(issuer.key, ec.EllipticCurvePrivateKey)
    return CertificateAuthority(issuer.key, (), [issuer.certificate], now=clock)


def test_it_is_the_same_until_half_its_life_is_over() -> None:
    clock = Clock()
    signed = Signed(AuthorityInForce(authority(Issuer("root"), clock), now=clock), ["localhost"], now=clock)
    first = signed.present()
    clock.now += timedelta(hours=11)
    assert signed.present() is first
    clock.now += timedelta(hours=1)
    assert signed.present() is not first


def test_it_is_renewed_once_another_authority_signs() -> None:
    clock = Clock()
    in_force = AuthorityInForce(authority(Issuer("old"), clock), overlap=timedelta(hours=1), now=clock)
    signed = Signed(in_force, ["localhost"], now=clock)
    first = signed.present()
    in_force.use(authority(Issuer("new"), clock))
    assert signed.present() is first
    clock.now += timedelta(hours=1)
    in_force.advance()
    assert signed.present() is not first


def write(directory: Path, *issuers: Issuer, key: bytes | None = None) -> None:
    """A pair whose certificate is that of the first, whatever else it is good for."""
    (directory / "tls.crt").write_bytes(pem(*(one.certificate for one in issuers)))
    (directory / "tls.key").write_bytes(key or private_pem(issuers[0].key))


def test_files_are_read_again_and_what_they_hold_is_used(tmp_path: Path) -> None:
    clock = Clock()
    first, second = Issuer("first"), Issuer("second")
    write(tmp_path, first)
    given = Given(tmp_path, now=clock)
    present = given.present()
    assert (present.chain, present.private_key) == (pem(first.certificate), private_pem(first.key))
    clock.now += LOOK_AGAIN
    assert given.present() is present
    write(tmp_path, second)
    clock.now += LOOK_AGAIN
    assert given.present().chain == pem(second.certificate)


@pytest.mark.parametrize("wrong", ["key of another", "no certificate", "no key", "file gone", "encrypted"])
def test_of_files_that_cannot_be_used_the_last_good_pair_stands(
    tmp_path: Path, wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    issuer = Issuer("first")
    write(tmp_path, issuer)
    given = Given(tmp_path, now=clock)
    present = given.present()
    spoil(tmp_path, wrong, issuer)
    clock.now += LOOK_AGAIN
    assert given.present() is present
    assert "server certificate not replaced" in caplog.text


@pytest.mark.parametrize("wrong", ["key of another", "no certificate", "no key", "file gone", "encrypted"])
def test_files_that_cannot_be_used_at_the_start_are_named(tmp_path: Path, wrong: str) -> None:
    issuer = Issuer("first")
    write(tmp_path, issuer)
    spoil(tmp_path, wrong, issuer)
    with pytest.raises(CertificateAuthorityError, match=r"tls\.(key|crt): .*give"):
        Given(tmp_path).present()


def spoil(directory: Path, wrong: str, issuer: Issuer) -> None:
    if wrong == "key of another":
        write(directory, issuer, key=private_pem(Issuer("other").key))
    elif wrong == "no certificate":
        (directory / "tls.crt").write_text("nonsense")
    elif wrong == "no key":
        (directory / "tls.key").write_text("nonsense")
    elif wrong == "encrypted":
        (directory / "tls.key").write_bytes(private_pem(issuer.key, b"secret"))
    else:
        (directory / "tls.crt").unlink()
