"""Credentials by name, through real gRPC: served, changed, withdrawn, denied, granted and taken back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kit import certificates as c
from tests.kit import manifests as m
from tests.kit.credentials import ACCOUNT, NODE, Variant, asking, base, gateway
from tests.kit.eventually import eventually
from tests.kit.kube_api import Hold, KubeApi, KubeCluster, Refuse
from tests.kit.kubeconfigs import kubeconfig
from tests.kit.manifests import Manifest, write_manifests
from tests.kit.plane import Plane, write_identities
from xds.messages.secret import SECRET_TYPE

TOKEN = "a-token"
OWN, OWN_ROOTS = "kubernetes://tls", "kubernetes://tls-cacert"
GIVEN = "kubernetes-gateway://certs/tls"
FIRST, SECOND = c.host_pair("a.example"), c.host_pair("a.example")
ROOTS = c.pem(c.Issuer("roots").certificate)
GRANT = m.reference_grant("certs/gateways", "infra", "tls")
USER = "system:serviceaccount:infra:edge"

BOTH = pytest.mark.parametrize("variant", ["delta", "sotw"])


def tls(name: str, pair: tuple[bytes, bytes] = FIRST, **entries: bytes) -> Manifest:
    return m.secret(name, kind="kubernetes.io/tls", tls_crt=pair[0], tls_key=pair[1], **entries)


class Files:
    """A home that is a directory, with a file for what changes."""

    def __init__(self, directory: Path, *objects: Manifest) -> None:
        self.path = directory / "west"
        self.path.mkdir()
        self.identities = write_identities(directory / "identities.json", {TOKEN: (ACCOUNT, "")})
        write_manifests(self.path, *base(), file="base.yaml")
        self.write(*objects)

    def write(self, *objects: Manifest) -> None:
        """These are all objects there are besides."""
        write_manifests(self.path, *(objects or (m.namespace("empty"),)), file="changes.yaml")

    def plane(self, **settings: Any) -> Plane:
        return Plane(self.path, **{"identities": self.identities, **settings})


# Home is a directory.


@BOTH
async def test_a_secret_is_served_and_one_that_changes_is_served_anew(tmp_path: Path, variant: Variant) -> None:
    home = Files(tmp_path, tls("infra/tls", ca_crt=ROOTS))
    async with home.plane() as plane, asking(plane, variant, TOKEN, OWN, OWN_ROOTS) as client:
        await client.pair(OWN, FIRST[0])
        await client.roots(OWN_ROOTS, ROOTS)
        assert client.keys == {OWN: FIRST[1]}
        seen = len(client.responses)
        home.write(tls("infra/tls", SECOND, ca_crt=ROOTS))
        await client.pair(OWN, SECOND[0])
        assert [len(one.resources) for one in client.responses[seen:]] == [1]


async def test_a_secret_that_goes_is_withdrawn(tmp_path: Path) -> None:
    home = Files(tmp_path, tls("infra/tls"))
    async with home.plane() as plane, asking(plane, "delta", TOKEN, OWN, "kubernetes://missing") as client:
        await client.absent("kubernetes://missing")
        await client.pair(OWN, FIRST[0])
        home.write()
        await client.absent(OWN)


@BOTH
async def test_a_grant_gives_and_one_that_goes_takes_back(tmp_path: Path, variant: Variant) -> None:
    objects = (tls("certs/tls"), gateway("certs/tls"))
    home = Files(tmp_path, *objects, tls("infra/tls"))
    async with home.plane() as plane:
        async with asking(plane, variant, TOKEN, OWN, GIVEN) as client:
            await client.pair(OWN, FIRST[0])
            if variant == "delta":
                await client.absent(GIVEN)
            assert GIVEN not in client.held
            home.write(*objects, GRANT)
            await client.pair(GIVEN, FIRST[0])
            home.write(*objects)
            if variant == "delta":
                await client.absent(GIVEN)
            await eventually(lambda: any("CertificateRefNotGranted" in one.code for one in findings(plane)))
        async with asking(plane, variant, TOKEN, GIVEN, "ROOTCA") as again:
            await eventually(lambda: "ROOTCA" in again.held)
            assert again.keys == {}


def findings(plane: Plane) -> list[Any]:
    return [one for _, found in plane.control.tables.findings.scan() for one in found]


@BOTH
async def test_what_may_not_be_had_is_left_out_while_the_rest_is_served(tmp_path: Path, variant: Variant) -> None:
    secrets = [tls(f"{place}/{name}") for place in ("certs", "istio-system") for name in ("tls", "b")]
    home = Files(tmp_path, *secrets, tls("infra/tls"), gateway("certs/tls"), m.reference_grant("infra/g", "infra"))
    refused = (
        GIVEN,
        "kubernetes://certs/tls",
        "kubernetes-gateway://certs/b",
        "kubernetes-gateway://istio-system/tls",
        "kubernetes-gateway://infra/tls",
        "builtin://",
        "invalid://certs/tls",
        "sds://certs/tls",
        "file:///etc/hosts",
        "kubernetes://../certs/tls",
    )
    async with home.plane() as plane, asking(plane, variant, TOKEN, *refused, OWN) as client:
        await client.pair(OWN, FIRST[0])
        if variant == "delta":
            await client.absent(*refused)
        assert set(client.keys) == {OWN}


@BOTH
async def test_a_stream_without_an_identity_is_sent_nothing(tmp_path: Path, variant: Variant) -> None:
    home = Files(tmp_path, tls("infra/tls"), m.config_map("infra/ca", ca_crt=ROOTS.decode()))
    async with home.plane() as plane, plane.client() as ads, getattr(ads, variant)() as stream:
        await stream.subscribe(SECRET_TYPE, [OWN])
        response = await stream.receive()
        assert response.resources == ()


async def test_an_opaque_secret_and_a_config_map_are_served_from_a_directory(tmp_path: Path) -> None:
    secret = m.secret("infra/tls", cert=FIRST[0], key=FIRST[1], cacert=ROOTS)
    home = Files(tmp_path, secret, m.config_map("certs/ca", ca_crt=ROOTS.decode()))
    names = (OWN, OWN_ROOTS, "configmap://certs/ca")
    async with home.plane() as plane, asking(plane, "delta", TOKEN, *names) as client:
        await client.pair(OWN, FIRST[0])
        await client.roots(OWN_ROOTS, ROOTS)
        await client.roots("configmap://certs/ca", ROOTS)


@BOTH
async def test_one_that_is_refused_is_a_finding_on_its_secret(tmp_path: Path, variant: Variant) -> None:
    home = Files(tmp_path, tls("infra/tls"))
    async with home.plane() as plane, plane.client(TOKEN, NODE) as ads, getattr(ads, variant)() as stream:
        await stream.subscribe(SECRET_TYPE, [OWN])
        while not (response := await stream.receive()).resources:
            await stream.ack(response)
        await stream.nack(response, "no good")
        await eventually(lambda: findings(plane))
        (found,) = findings(plane)
        assert (found.code, found.object) == ("ResourceRejected", ("west", "TLSSecret", "infra", "tls"))
        home.write(tls("infra/tls", SECOND))
        while not (response := await stream.receive()).resources:
            await stream.ack(response)
        await eventually(lambda: not findings(plane))


async def test_names_given_up_linger_if_there_is_something_under_them(tmp_path: Path) -> None:
    home = Files(tmp_path, tls("infra/tls"))
    names = (OWN, OWN_ROOTS, "kubernetes://missing")
    async with home.plane() as plane, asking(plane, "delta", TOKEN, *names) as client:
        await client.pair(OWN, FIRST[0])
        await client.absent(OWN_ROOTS, "kubernetes://missing")
        interest = plane.control._around.interest
        await client.drop(OWN, "kubernetes://missing")
        await eventually(lambda: [view.feature("name") for view in interest._leaving] == [OWN])
        asked = {view.feature("name") for _, view in plane.control.tables.interest.scan() if view.role == "credential"}
        assert asked == {OWN, OWN_ROOTS}


async def test_keys_are_in_no_log_and_on_no_page(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    home = Files(tmp_path, tls("infra/tls"), gateway("tls"))
    with caplog.at_level(logging.DEBUG):
        async with home.plane() as plane, asking(plane, "delta", TOKEN, OWN) as client:
            await client.pair(OWN, FIRST[0])
            home.write(tls("infra/tls", (FIRST[0], SECOND[1])))
            await eventually(lambda: findings(plane))
            pages = [(await plane.admin(path)).body for path in ("/findings", "/clusters", "/metrics")]
    shown = f"{caplog.text} {pages} {[str(one.__dict__) for one in caplog.records]}"
    for _, key in (FIRST, SECOND):
        assert key.decode().splitlines()[1] not in shown


# Home is an API server.


@asynccontextmanager
async def served(directory: Path, *objects: Manifest) -> AsyncIterator[tuple[KubeCluster, Plane]]:
    """A control plane whose home is a fake API server, and which is not running yet."""
    cluster = KubeCluster("alpha")
    cluster.apply(*base(), *objects)
    async with KubeApi(cluster, tls=True):
        file = directory / "alpha"
        file.write_bytes(kubeconfig(cluster.url, "t1", cluster.ca))
        identities = write_identities(directory / "identities.json", {TOKEN: (ACCOUNT, "")})
        yield cluster, Plane(file, identities=identities, write_status=False, leader_elect=False)


@BOTH
async def test_an_account_that_may_list_secrets_is_served_them(tmp_path: Path, variant: Variant) -> None:
    async with served(tmp_path, tls("infra/tls")) as (cluster, plane):
        cluster.allowed.add((USER, "infra"))
        async with plane, asking(plane, variant, TOKEN, OWN) as client:
            await client.pair(OWN, FIRST[0])
            assert cluster.count("create", "SubjectAccessReview") == 1
            cluster.apply(tls("infra/tls", SECOND))
            await client.pair(OWN, SECOND[0])


async def test_one_that_may_not_is_served_none_and_is_a_finding(tmp_path: Path) -> None:
    async with served(tmp_path, tls("infra/tls")) as (cluster, plane):
        cluster.allowed.add((USER, "certs"))
        async with plane, asking(plane, "delta", TOKEN, OWN) as client:
            await client.absent(OWN)
            assert [one.code for one in findings(plane)] == ["SecretAccessDenied"]


async def test_absence_is_not_told_before_the_account_was_reviewed(tmp_path: Path) -> None:
    async with served(tmp_path, tls("infra/tls")) as (cluster, plane):
        cluster.allowed.add((USER, "infra"))
        held = cluster.script(Refuse(503), kind="SubjectAccessReview", times=None)
        async with plane, asking(plane, "delta", TOKEN, OWN, "ROOTCA") as client:
            await eventually(lambda: "ROOTCA" in client.held)
            await eventually(lambda: [one.code for one in findings(plane)] == ["SecretAccessUnknown"])
            assert (client.gone, OWN in client.held) == ([], False)
            held.withdraw()
            await client.pair(OWN, FIRST[0])
            assert client.gone == []


async def test_secrets_of_other_types_are_read_one_by_one_and_no_others_are(tmp_path: Path) -> None:
    secret = m.secret("infra/tls", cert=FIRST[0], key=FIRST[1])
    async with served(tmp_path, secret, m.secret("infra/password", cert=b"c", key=b"k")) as (cluster, plane):
        cluster.allowed.add((USER, "infra"))
        async with plane, asking(plane, "delta", TOKEN, OWN, OWN_ROOTS) as client:
            await client.pair(OWN, FIRST[0])
            await client.absent(OWN_ROOTS)
            asked = {one.query.get("fieldSelector") for one in cluster.requests if one.kind == "Secret"}
            assert asked - {None} == {"type=kubernetes.io/tls", "metadata.name=tls", "metadata.name=tls-cacert"}
            cluster.apply(m.secret("infra/tls-cacert", cacert=ROOTS))
            await client.roots(OWN_ROOTS, ROOTS)
            cluster.delete("Secret", "infra/tls")
            await client.absent(OWN)


async def test_config_maps_are_read_one_by_one(tmp_path: Path) -> None:
    names = ("configmap://certs/ca", "configmap://certs/b")
    async with (
        served(tmp_path, m.config_map("certs/ca", ca_crt=ROOTS.decode())) as (cluster, plane),
        plane,
        asking(plane, "delta", TOKEN, *names) as client,
    ):
        await client.roots(names[0], ROOTS)
        await client.absent(names[1])
        assert cluster.count("create", "SubjectAccessReview") == 0


async def test_what_cannot_be_read_holds_up_no_certificate_of_a_host(tmp_path: Path) -> None:
    secured = m.ingress("infra/shop", "a.example", "web", secret="tls")
    async with served(tmp_path, tls("infra/tls"), secured) as (cluster, plane):
        cluster.allowed.add((USER, "infra"))
        async with plane:
            cluster.script(Hold(asyncio.Event()), verb="watch", kind="Secret", times=None)
            async with asking(plane, "delta", TOKEN, "kubernetes://other", "default", "a.example", OWN) as client:
                await client.pair(OWN, FIRST[0])
                await client.pair("a.example", FIRST[0])
                await eventually(lambda: "default" in client.held)
                assert client.gone == []
