"""Plug-in authorities: what fits together is read, what does not is named."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from tests.kit.certificates import (
    NOW,
    SAME_EXTENSION_TWICE,
    VERSION_7,
    Issuer,
    malformed,
    p256,
    private_pem,
    rsa_key,
    write_cacerts,
)
from xds.server.certificate_authority import CertificateAuthority, CertificateAuthorityError
from xds.server.certificate_files import load_authority

DAY = timedelta(days=1)


def load(directory: Path) -> CertificateAuthority:
    return load_authority(directory, now=lambda: NOW)


@pytest.mark.parametrize("key", [p256(), rsa_key(3482), ec.generate_private_key(ec.SECP384R1())])
def test_an_intermediate_and_its_root_are_read(tmp_path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    root = Issuer("root", key=key)
    issuing = Issuer("issuing", root, key=key)
    authority = load(write_cacerts(tmp_path, issuing, roots=[root]))
    assert (authority.path, authority.roots) == ((issuing.certificate,), (root.certificate,))


def test_a_root_that_signs_itself_is_read(tmp_path: Path) -> None:
    root = Issuer("root")
    authority = load(write_cacerts(tmp_path, root, roots=[root]))
    assert (authority.path, authority.roots) == ((), (root.certificate,))


def test_the_path_is_found_in_any_order_and_without_the_root(tmp_path: Path) -> None:
    root = Issuer("root")
    upper = Issuer("upper", root)
    lower = Issuer("lower", upper)
    issuing = Issuer("issuing", lower)
    authority = load(write_cacerts(tmp_path, issuing, chain=[root, upper, lower], roots=[root]))
    assert authority.path == (issuing.certificate, lower.certificate, upper.certificate)


def test_the_root_the_path_ends_at_comes_first(tmp_path: Path) -> None:
    root, later = Issuer("root"), Issuer("later")
    authority = load(write_cacerts(tmp_path, Issuer("issuing", root), roots=[later, root]))
    assert authority.roots == (root.certificate, later.certificate)


def test_a_chain_file_is_not_needed_below_a_root(tmp_path: Path) -> None:
    root = Issuer("root")
    directory = write_cacerts(tmp_path, Issuer("issuing", root), roots=[root])
    (directory / "cert-chain.pem").unlink()
    assert len(load(directory).path) == 1


def missing(name: str) -> Callable[[Path], None]:
    def write(directory: Path) -> None:
        root = Issuer("root")
        write_cacerts(directory, root, roots=[root])
        (directory / name).unlink()

    return write


def broken(name: str) -> Callable[[Path], None]:
    def write(directory: Path) -> None:
        root = Issuer("root")
        write_cacerts(directory, root, roots=[root])
        (directory / name).write_text("-----BEGIN")

    return write


def with_key(make: Callable[[Issuer], bytes]) -> Callable[[Path], None]:
    def write(directory: Path) -> None:
        root = Issuer("root")
        write_cacerts(directory, root, roots=[root], key=make(root))

    return write


def weak_key(directory: Path) -> None:
    root = Issuer("root", key=rsa_key(1886))
    write_cacerts(directory, root, roots=[root])


def edwards_key(directory: Path) -> None:
    root = Issuer("root", key=ed25519.Ed25519PrivateKey.generate())
    write_cacerts(directory, root, roots=[root])


def own(**fault: object) -> Callable[[Path], None]:
    def write(directory: Path) -> None:
        root = Issuer("root")
        write_cacerts(directory, Issuer("issuing", root, **fault), roots=[root])  # type: ignore[arg-type]

    return write


def expired_root(directory: Path) -> None:
    root = Issuer("root", ends=NOW - DAY)
    write_cacerts(directory, Issuer("issuing", root), roots=[root])


def expired_intermediate(directory: Path) -> None:
    root = Issuer("root")
    middle = Issuer("middle", root, ends=NOW - DAY)
    write_cacerts(directory, Issuer("issuing", middle), chain=[middle], roots=[root])


def other_root(directory: Path) -> None:
    write_cacerts(directory, Issuer("issuing", Issuer("root")), roots=[Issuer("root")])


def missing_intermediate(directory: Path) -> None:
    root = Issuer("root")
    write_cacerts(directory, Issuer("issuing", Issuer("middle", root)), roots=[root])


def own_signature_only(directory: Path) -> None:
    write_cacerts(directory, Issuer("self"), roots=[Issuer("root")])


def path_too_long(directory: Path) -> None:
    root = Issuer("root", path_length=0)
    middle = Issuer("middle", root)
    write_cacerts(directory, Issuer("issuing", middle), chain=[middle], roots=[root])


@pytest.mark.parametrize(
    ("write", "file", "says"),
    [
        (missing("ca-cert.pem"), "ca-cert.pem", "the directory needs"),
        (missing("ca-key.pem"), "ca-key.pem", "the directory needs"),
        (missing("root-cert.pem"), "root-cert.pem", "the directory needs"),
        (broken("ca-cert.pem"), "ca-cert.pem", "no certificate in PEM"),
        (broken("root-cert.pem"), "root-cert.pem", "no certificate in PEM"),
        (broken("cert-chain.pem"), "cert-chain.pem", "no certificate in PEM"),
        (broken("ca-key.pem"), "ca-key.pem", "no private key in PEM"),
        (with_key(lambda root: private_pem(root.key, b"secret")), "ca-key.pem", "without a password"),
        (with_key(lambda _: private_pem(p256())), "ca-key.pem", "give the pair"),
        (weak_key, "ca-key.pem", "P-256, P-384 or RSA"),
        (edwards_key, "ca-key.pem", "P-256, P-384 or RSA"),
        (own(ca=False, may_sign=False), "ca-cert.pem", "no CA certificate"),
        (own(may_sign=False), "ca-cert.pem", "may not sign"),
        (own(ends=NOW), "ca-cert.pem", "expired"),
        (own(starts=NOW + DAY), "ca-cert.pem", "check the clocks"),
        (expired_root, "root-cert.pem", "expired"),
        (expired_intermediate, "cert-chain.pem", "expired"),
        (other_root, "root-cert.pem", "give its issuers"),
        (missing_intermediate, "root-cert.pem", "give its issuers"),
        (own_signature_only, "root-cert.pem", "give its issuers"),
        (path_too_long, "root-cert.pem", "longer path length"),
    ],
)
def test_files_that_make_no_authority_are_named_with_cause_and_cure(
    tmp_path: Path, write: Callable[[Path], None], file: str, says: str
) -> None:
    write(tmp_path)
    with pytest.raises(CertificateAuthorityError) as caught:
        load(tmp_path)
    assert str(tmp_path / file) in str(caught.value)
    assert says in str(caught.value)


@pytest.mark.parametrize("fault", [VERSION_7, SAME_EXTENSION_TWICE], ids=["version", "extension"])
@pytest.mark.parametrize("file", ["ca-cert.pem", "cert-chain.pem", "root-cert.pem"])
def test_certificates_with_faults_that_are_found_late_are_named(
    tmp_path: Path, file: str, fault: tuple[bytes, bytes]
) -> None:
    root = Issuer("root")
    write_cacerts(tmp_path, root, roots=[root])
    (tmp_path / file).write_bytes(malformed(root.certificate, fault))
    with pytest.raises(CertificateAuthorityError, match=r"no certificate in PEM|certificate 1 is malformed") as caught:
        load(tmp_path)
    assert str(tmp_path / file) in str(caught.value)
