"""Policies of annotations: what each value means, what is refused, and what an Ingress may refer to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.traffic.annotations.connections import Connections, of_text
from aggregator.traffic.annotations.policies import NO_POLICIES, Policies
from aggregator.traffic.annotations.settings import NO_SETTINGS, Settings, settings
from aggregator.traffic.ingress_secrets import MOST_USERS, InvalidUsers, users_of
from aggregator.views.ingress_gateway import view_of
from aggregator.views.ingress_routes import scope_name
from aggregator.views.view import View
from tests.kit import manifests as m
from tests.kit.world import World
from xds.messages.cluster import CLUSTER_TYPE
from xds.messages.scope import SCOPED_ROUTE_TYPE

NGINX = "nginx.ingress.kubernetes.io/"
HASH = "{SHA}" + "A" * 27 + "="


def settled(**annotations: str) -> tuple[Settings, set[str]]:
    """Settings, and the codes of what is wrong; `__` stands for `-`."""
    given = tuple(sorted((NGINX + key.replace("__", "-"), value) for key, value in annotations.items()))
    found, problems = settings(given)
    return found, {one.code for one in problems}


def policies(**annotations: str) -> Policies:
    found, problems = settled(**annotations)
    assert problems == set()
    return found.policies


def annotated(host: str, service: str = "web", **annotations: str) -> m.Manifest:
    made = m.ingress(f"shop/{host.partition('.')[0]}", host, service)
    given = {NGINX + key.replace("__", "-"): value for key, value in annotations.items()}
    return {**made, "metadata": {**made["metadata"], "annotations": given}}


def view(type_url: str, *, proven: bool = True) -> View:
    found = view_of(type_url, lambda _: "", proven=proven)
    assert found is not None
    return found


def world_of(*manifests: m.Manifest) -> World:
    world = World("alpha")
    world.ask(view(SCOPED_ROUTE_TYPE), view(SCOPED_ROUTE_TYPE, proven=False), view(CLUSTER_TYPE))
    world.apply("alpha", m.namespace("shop"), m.service("shop/web"), *manifests)
    world.step()
    return world


def route(world: World, host: str, *, proven: bool = True) -> Any:
    told = world.told(view(SCOPED_ROUTE_TYPE, proven=proven))[scope_name(host)]
    return told["route_configuration"]["virtual_hosts"][0]["routes"][0]


def test_an_ingress_that_asks_for_nothing_shares_one_object() -> None:
    assert settled(ssl__redirect="false")[0].policies is NO_POLICIES is NO_SETTINGS.policies


def test_ranges_are_written_in_one_way_and_each_once() -> None:
    found = policies(whitelist__source__range="10.1.2.3/8, 10.0.0.0/8,2001:DB8::/32", denylist__source__range="1.2.3.4")
    assert found.sources.allowed == ("10.0.0.0/8", "2001:db8::/32")
    assert found.sources.denied == ("1.2.3.4/32",)


@pytest.mark.parametrize(
    "annotations",
    [
        {"whitelist__source__range": "anywhere"},
        {"whitelist__source__range": ","},
        {"denylist__source__range": "fe80::1%eth0/64"},
        {"auth__type": "digest", "auth__secret": "x"},
        {"auth__type": "basic"},
        {"auth__secret": "x"},
        {"auth__type": "basic", "auth__secret": "../x"},
        {"auth__type": "basic", "auth__secret": "x", "auth__secret__type": "auth-map"},
        {"auth__url": "ftp://a.b"},
        {"auth__url": "http://$host/auth"},
        {"auth__url": "http://user:pass@a.b/"},
        {"auth__url": "http://a.b:0/"},
        {"auth__url": "http://a.b:99999/"},
        {"auth__url": "http://[::1]/"},
        {"backend__protocol": "HTTPS", "proxy__ssl__verify": "on"},
        {"proxy__ssl__secret": "x"},
    ],
)
def test_a_protection_that_cannot_be_given_closes_what_it_is_of(annotations: dict[str, str]) -> None:
    found, codes = settled(**annotations)
    assert found.policies.closed
    assert "ProtectionInvalid" in codes


@pytest.mark.parametrize(
    "annotations",
    [
        {"limit__rps": "-1"},
        {"limit__rpm": "1e3"},
        {"proxy__body__size": "8x"},
        {"proxy__body__size": "9" * 19},
        {"affinity": "ip"},
        {"session__cookie__name": "a b"},
        {"session__cookie__path": "/;x"},
        {"session__cookie__samesite": "lax"},
        {"upstream__hash__by": "$http_"},
        {"upstream__hash__by": "text"},
        {"upstream__hash__by": "$unknown"},
        {"custom__http__errors": "200", "default__backend": "web"},
        {"backend__protocol": "FCGI"},
        {"load__balance": "ip_hash"},
        {"proxy__connect__timeout": "0"},
        {"auth__response__headers": "host"},
        {"auth__response__headers": "x-isthmus-host"},
        {"auth__signin": "https://a/$uri"},
    ],
)
def test_other_wrong_values_are_told_and_cost_nothing(annotations: dict[str, str]) -> None:
    found, codes = settled(**annotations)
    assert not found.policies.closed
    assert "AnnotationInvalid" in codes


@pytest.mark.parametrize(
    "annotations",
    [
        {"limit__connections": "3"},
        {"custom__http__errors": "404"},
        {"default__backend": "web"},
        {"upstream__hash__by__subset": "true"},
        {"session__cookie__change__on__failure": "false"},
        {"load__balance": "round_robin", "upstream__hash__by": "$host"},
    ],
)
def test_what_gateways_do_not_do_is_told(annotations: dict[str, str]) -> None:
    assert settled(**annotations)[1] == {"AnnotationUnsupported"}


@pytest.mark.parametrize(("text", "size"), [("8m", 8 << 20), ("1K", 1024), ("0", 0), ("12", 12), ("1g", 1 << 30)])
def test_lengths_of_bodies_have_units(text: str, size: int) -> None:
    assert policies(proxy__body__size=text).limits.body == size


def test_a_place_to_sign_in_is_told_where_the_client_came_from() -> None:
    asked = {"auth__url": "http://a.b/"}
    found = policies(**asked, auth__signin="https://x/in").authentication.authorizer
    assert found is not None
    assert found.sign_in == ("https://x/in?rd=", "$scheme", "://", "$host", "$escaped-path")
    own = policies(**asked, auth__signin="https://$host/in?rd=$escaped_request_uri").authentication.authorizer
    assert own is not None
    assert own.sign_in == ("https://", "$host", "/in?rd=", "$escaped-path")


# Connections in keys.

CONNECTIONS = st.builds(
    Connections,
    st.sampled_from(["", "https", "grpc", "grpcs"]),
    st.booleans(),
    st.integers(0, 3600),
    st.sampled_from(["", "round", "ring"]),
    st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True) | st.just(""),
    st.booleans(),
    st.just(1),
    st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True) | st.just(""),
    st.booleans(),
    st.sampled_from(["", "00", "23", "33"]),
)


@given(CONNECTIONS)
def test_connections_are_read_back_from_their_text(one: Connections) -> None:
    assert of_text(one.text()) == one
    assert "|" not in one.text()


@given(CONNECTIONS, CONNECTIONS)
def test_connections_that_differ_have_different_texts(one: Connections, other: Connections) -> None:
    assert (one.text() == other.text()) == (one == other)


def test_what_tls_is_not_spoken_for_is_not_in_the_key() -> None:
    assert settled(proxy__ssl__name="x.example", proxy__ssl__server__name="on")[0].connections == Connections()


# Users.


def test_users_are_sorted_and_others_are_counted_not_shown() -> None:
    users, flaw = users_of(f"#x\nbob:{HASH}\r\nann:{HASH}\nann:{HASH}\neve:$apr1$secret\n".encode())
    assert users.lines == f"ann:{HASH}\nbob:{HASH}\n"
    assert flaw.startswith("2 of 4 lines")
    assert not any(one in flaw + repr(users) for one in ("ann", "eve", "apr1"))


@pytest.mark.parametrize("data", [b"", b"\xff", b"ann", b"a b:" + HASH.encode(), b":" + HASH.encode()])
def test_without_a_user_of_use_there_are_none(data: bytes) -> None:
    with pytest.raises(InvalidUsers):
        users_of(data)


def test_users_have_a_bound() -> None:
    lines = [f"u{number}:{HASH}\n" for number in range(MOST_USERS + 1)]
    assert users_of("".join(lines[1:]).encode())[1] == ""
    with pytest.raises(InvalidUsers, match="257 users"):
        users_of("".join(lines).encode())


def test_users_are_never_told_to_who_has_proven_nothing() -> None:
    asked = annotated("a.example", auth__type="basic", auth__secret="people")
    world = world_of(asked, m.secret("shop/people", auth=f"ann:{HASH}".encode()))
    assert "envoy.filters.http.basic_auth" in route(world, "a.example")["typed_per_filter_config"]
    assert route(world, "a.example", proven=False)["direct_response"] == {"status": 503}


def test_a_secret_of_another_namespace_is_not_read() -> None:
    world = world_of(
        m.namespace("bank"),
        annotated("a.example", auth__type="basic", auth__secret="bank/people"),
        m.secret("bank/people", auth=f"ann:{HASH}".encode()),
    )
    assert route(world, "a.example")["direct_response"] == {"status": 503}
    (finding,) = world.findings()
    assert (finding.code, finding.field) == ("ProtectionInvalid", f'metadata.annotations["{NGINX}auth-secret"]')


# Who is asked.


def grant(namespace: str) -> m.Manifest:
    return m.reference_grant(
        f"{namespace}/shop", "shop", group="networking.k8s.io", kind="Ingress", target="Service"
    )


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("http://web/x", "auth|shop|web|80"),
        ("http://web.shop:81/x", "auth|shop|web|81"),
        ("https://web.shop.svc/x", "auth|shop|web|443|https"),
        ("http://web.auth.svc.cluster.local", "auth|auth|web|80"),
    ],
)
def test_a_service_is_asked_that_the_url_names(url: str, key: str) -> None:
    world = world_of(m.namespace("auth"), grant("auth"), annotated("a.example", auth__url=url))
    assert key in world.told(view(CLUSTER_TYPE))
    assert "envoy.filters.http.ext_authz" in route(world, "a.example")["typed_per_filter_config"]


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data",
        "http://127.0.0.1:15000/",
        "http://metadata.google.internal/",
        "http://2130706433/",
        "http://auth.example.com/",
        "http://example.com/",
        "http://web.auth/",
        "http://.svc/",
        "http://a..svc/",
    ],
)
def test_nothing_else_is_ever_asked(url: str) -> None:
    world = world_of(m.namespace("auth"), annotated("a.example", auth__url=url))
    clusters = [name for name in world.told(view(CLUSTER_TYPE)) if name.startswith("auth|")]
    # A number is a name a Service could have, which is of the Ingress's own namespace then.
    assert clusters in ([], ["auth|shop|2130706433|80"])
    if not clusters:
        assert route(world, "a.example")["direct_response"] == {"status": 503}


def test_a_bad_annotation_changes_no_byte_of_another_host() -> None:
    world = world_of(annotated("good.example", proxy__body__size="1m"), annotated("bad.example"))
    before = world.versions(view(SCOPED_ROUTE_TYPE))[scope_name("good.example")]
    wrong = {"auth__url": "x", "limit__rps": "x", "affinity": "\0", "backend__protocol": "|,="}
    world.apply("alpha", annotated("bad.example", **wrong))
    world.step()
    assert world.versions(view(SCOPED_ROUTE_TYPE))[scope_name("good.example")] == before
    assert route(world, "bad.example")["direct_response"] == {"status": 503}
