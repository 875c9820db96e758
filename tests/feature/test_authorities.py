"""Whose certificates a control plane issues and presents: its own authority's, one that is replaced, another's."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509

from aggregator.app.settings import SettingsError
from tests.kit.callers import INGRESS, ZTUNNEL, Callers
from tests.kit.certificates import Issuer, pem, private_pem, signing_request, write_cacerts
from tests.kit.eventually import eventually
from tests.kit.manifests import write_manifests
from tests.kit.plane import Plane
from xds.client import StreamEnded
from xds.messages.secret import SECRET_TYPE
from xds.messages.workload import ADDRESS_TYPE
from xds.server.certificate_authority import CertificateAuthority, CertificateAuthorityError


def presented(port: int) -> x509.Certificate:
    """The certificate that a TLS port shows, whoever signed it."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with socket.create_connection(("127.0.0.1", port)) as connection, context.wrap_socket(connection) as secured:
        shown = secured.getpeercert(binary_form=True)
        assert shown is not None
        return x509.load_der_x509_certificate(shown)


def write_server_certificate(directory: Path, authority: CertificateAuthority) -> None:
    """As cert-manager mounts one."""
    directory.mkdir(exist_ok=True)
    made = authority.issue_server(["localhost", "127.0.0.1"])
    (directory / "tls.key").write_bytes(made.private_key)
    (directory / "tls.crt").write_bytes(made.chain)
    (directory / "ca.crt").write_text(authority.root_certificates)


# Replaced while it is used.


async def test_another_authority_in_cacerts_signs_after_the_overlap(tmp_path: Path) -> None:
    root_file = tmp_path / "root.pem"
    async with Callers(tmp_path, root_overlap=0.5, root_cert_out=root_file) as callers:
        old = callers.plane.control.authority.roots
        following = Issuer("following")
        write_cacerts(callers.cacerts, following, roots=[following])
        await eventually(lambda: len(x509.load_pem_x509_certificates(root_file.read_bytes())) == 2)
        assert presented(callers.port("15012")).issuer == old[0].subject
        signer = callers.plane.control.authority
        await eventually(lambda: signer.roots[0] == following.certificate)
        for port in ("15012", "15013"):
            assert presented(callers.port(port)).issuer == following.certificate.subject
        async with callers.client("15012", ZTUNNEL) as client:
            # Its connection trusts the old root alone, as one that was made before.
            with pytest.raises(StreamEnded):
                await client.create_certificate(signing_request(str(ZTUNNEL.identity)))
        async with callers.client("15012", ZTUNNEL, roots=pem(following.certificate)) as client:
            *chain, roots = await client.create_certificate(signing_request(str(ZTUNNEL.identity)))
        assert x509.load_pem_x509_certificate(chain[0].encode()).issuer == following.certificate.subject
        assert x509.load_pem_x509_certificates(roots.encode()) == [following.certificate, *old]


async def test_client_certificates_below_the_new_root_and_below_the_old_one_are_both_accepted(tmp_path: Path) -> None:
    async with Callers(tmp_path, root_overlap=0.0) as callers:
        old = callers.certificate(ZTUNNEL)
        following = Issuer("following")
        write_cacerts(callers.cacerts, following, roots=[following])
        await eventually(lambda: callers.plane.control.authority.roots[0] == following.certificate)
        new = callers.certificate(ZTUNNEL, callers.plane.control.authority.signer)
        for certificate in (old, new):
            client = callers.client("15013", ZTUNNEL, roots=pem(following.certificate), certificate=certificate)
            async with client, client.delta() as stream:
                await stream.subscribe(ADDRESS_TYPE)
                assert (await asyncio.wait_for(stream.receive(), 10)).resources


@pytest.mark.parametrize("file", ["ca-key.pem", "ca-cert.pem", "root-cert.pem"])
async def test_files_that_do_not_fit_change_nothing_until_they_do(
    tmp_path: Path, file: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Callers(tmp_path, root_overlap=0.0) as callers:
        authority = callers.plane.control.authority
        before = authority.root_certificates
        good = (callers.cacerts / file).read_bytes()
        (callers.cacerts / file).write_text("nonsense")
        await eventually(lambda: "the certificate authority stays as it is" in caplog.text)
        assert authority.root_certificates == before
        (callers.cacerts / file).write_bytes(good)
        async with callers.client("15012", ZTUNNEL) as client:
            assert await client.create_certificate(signing_request(str(ZTUNNEL.identity)))


# Beside another authority.


async def test_beside_another_authority_nothing_is_issued_and_its_certificate_is_presented(tmp_path: Path) -> None:
    theirs = CertificateAuthority.self_signed("cluster.local")
    directory = tmp_path / "server"
    write_server_certificate(directory, theirs)
    callers = Callers(tmp_path, cacerts=None, issue_certificates=False, server_certificate=directory)
    async with callers:
        assert presented(callers.port("15012")).issuer == theirs.roots[0].subject
        roots = theirs.root_certificates.encode()
        async with callers.client("15012", ZTUNNEL, roots=roots) as client:
            with pytest.raises(StreamEnded) as caught:
                await client.create_certificate(signing_request(str(ZTUNNEL.identity)))
            assert caught.value.code is grpc.StatusCode.UNIMPLEMENTED
            async with client.delta() as stream:
                await stream.subscribe(ADDRESS_TYPE)
                assert (await stream.receive()).resources
        # An ingress gateway has its own certificate from there, and those of hosts from here.
        async with callers.client("15012", INGRESS, roots=roots) as client, client.delta() as stream:
            await stream.subscribe(SECRET_TYPE, ["default", "ROOTCA", "shop.example"])
            response = await stream.receive()
            assert ([one.name for one in response.resources], set(response.removed)) == (
                ["shop.example"],
                {"default", "ROOTCA"},
            )
        certificate = callers.certificate(ZTUNNEL, theirs)
        async with (
            callers.client("15013", ZTUNNEL, roots=roots, certificate=certificate) as client,
            client.delta() as stream,
        ):
            await stream.subscribe(ADDRESS_TYPE)
            assert (await stream.receive()).resources


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"issue_certificates": False}, "give one with --server-certificate"),
        ({"issue_certificates": False, "server_certificate": Path("x"), "cacerts": Path("y")}, "leave out one of"),
    ],
)
async def test_settings_that_make_no_authority_are_refused(
    tmp_path: Path, settings: dict[str, Any], says: str
) -> None:
    write_manifests(tmp_path / "west")
    with pytest.raises(SettingsError, match=says):
        Plane(tmp_path / "west", **settings)


@pytest.mark.parametrize("missing", ["tls.crt", "tls.key", "ca.crt"])
async def test_a_server_certificate_that_is_not_whole_is_refused_by_name(tmp_path: Path, missing: str) -> None:
    write_manifests(tmp_path / "west")
    write_server_certificate(tmp_path / "server", CertificateAuthority.self_signed("cluster.local"))
    (tmp_path / "server" / missing).unlink()
    with pytest.raises(CertificateAuthorityError, match=rf"--server-certificate: .*{missing}"):
        Plane(tmp_path / "west", issue_certificates=False, server_certificate=tmp_path / "server")


async def test_a_server_certificate_that_cannot_be_used_later_stays(tmp_path: Path) -> None:
    theirs = CertificateAuthority.self_signed("cluster.local")
    directory = tmp_path / "server"
    write_server_certificate(directory, theirs)
    async with Callers(tmp_path, server_certificate=directory) as callers:
        before = presented(callers.port("15012"))
        (directory / "tls.key").write_bytes(private_pem(Issuer("other").key))
        assert presented(callers.port("15012")) == before
