"""Whatever Secrets, Gateways, grants and rights there are: a gateway's stream holds the keys of the Secrets that it may
have, and was never sent one of another.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.app.address_books import SharedBook
from aggregator.app.aggregate import Aggregator, Tables
from aggregator.app.records import Records
from aggregator.app.subscriptions import Interest, Surroundings, TableViews
from aggregator.mesh.home import Home
from aggregator.pipeline import Pipeline
from tests.kit import certificates as c
from tests.kit import manifests as m
from tests.kit.manifests import Manifest
from tests.kit.world import fact
from watchers.facts import Cluster, NamedSecret, Reading, SecretAccess, TLSSecret
from watchers.facts.named import access_key, object_key, reading_key
from xds import protos
from xds.messages.secret import SECRET_TYPE
from xds.server.authentication import Identity
from xds.server.authority_in_force import AuthorityInForce
from xds.server.certificate_authority import CertificateAuthority
from xds.server.proxies import Proxy
from xds.session.delta_session import DeltaSession
from xds.session.requests import FOR_ON_DEMAND, DeltaRequest, SotwRequest
from xds.session.sotw import SotwSession

discovery = protos.envoy.service.discovery.v3
Secret = protos.envoy.extensions.transport_sockets.tls.v3.Secret
AUTHORITY = AuthorityInForce(CertificateAuthority.self_signed("cluster.local"))

SPACES = ("infra", "certs", "other")
SECRETS = ("a", "b", "a-cacert")
PAIRS = {(space, name): c.host_pair("x.example") for space in SPACES for name in SECRETS}
OWNER = {key: place for place, (_, key) in PAIRS.items()}
ASKERS = (("infra", "edge", "one"), ("infra", "", "two"), ("certs", "edge", "one"))
"""Namespace, Gateway and account of each gateway."""
_WITH_NAMESPACE = tuple(f"{scheme}://{space}/" for scheme in ("kubernetes", "kubernetes-gateway") for space in SPACES)
NAMES = tuple(f"{place}{name}" for place in ("kubernetes://", *_WITH_NAMESPACE) for name in SECRETS)
Place = tuple[str, str]

references = st.fixed_dictionaries(
    {"name": st.sampled_from(("a", "a", "b", "b", "a-cacert", "missing"))},
    optional={
        "namespace": st.sampled_from(("certs", "certs", *SPACES)),
        "kind": st.sampled_from(("Secret", "Secret", "Secret", "ConfigMap")),
        "group": st.sampled_from(("", "", "", "example.com")),
    },
)
secrets = st.tuples(
    st.just("secret"), st.sampled_from(SPACES), st.sampled_from(SECRETS), st.sampled_from(("tls", "generic"))
)
gateways = st.tuples(
    st.just("gateway"),
    st.sampled_from(("infra", "infra", "certs")),
    st.sampled_from(("edge", "edge", "edge", "other")),
    st.lists(references, min_size=1, max_size=4),
    st.sampled_from(("Terminate", "Terminate", "Passthrough")),
)
grants = st.tuples(
    st.just("grant"),
    st.sampled_from(("certs", "certs", *SPACES)),
    st.sampled_from(("one", "two")),
    st.sampled_from(("infra", "infra", *SPACES)),
    st.sampled_from(((), ("a",), ("a",), ("b",), ("b",), ("a", "b"))),
    st.sampled_from(("Gateway", "Gateway", "Gateway", "HTTPRoute")),
    st.sampled_from(("gateway.networking.k8s.io", "gateway.networking.k8s.io", "")),
    st.sampled_from(("Secret", "Secret", "Secret", "ConfigMap")),
)
rights = st.tuples(
    st.just("right"), st.sampled_from(SPACES), st.sampled_from(("one", "two")), st.sampled_from((True, True, False))
)
EVENTS = st.lists(
    st.tuples(
        st.one_of(secrets, gateways, gateways, grants, grants, rights), st.sampled_from((True, True, True, False))
    ),
    max_size=16,
)
"""What happens to an object, and whether it comes or goes."""


class Objects:
    """What there is, as plain values, and what each asker may have of it by the letter of the rules."""

    def __init__(self, *, api_server: bool) -> None:
        self.api_server = api_server
        # At first all are there, so that there is something to get hold of.
        self.secrets: dict[Place, str] = {place: ("tls", "generic")[one % 2] for one, place in enumerate(PAIRS)}
        self.gateways: dict[Place, tuple[list[Mapping[str, str]], str]] = {}
        self.grants: dict[tuple[str, str], tuple[Any, ...]] = {}
        self.rights: dict[Place, bool] = {}

    def happen(self, event: tuple[Any, ...], *, comes: bool) -> None:
        what, *rest = event
        place = (rest[0], rest[1])
        store: dict[Place, Any] = getattr(self, f"{what}s")
        if not comes:
            store.pop(place, None)
        elif what in ("secret", "right"):
            store[place] = rest[2]
        else:
            store[place] = tuple(rest[2:])

    def may_have(self, asker: tuple[str, str, str], name: str) -> Place | None:
        """The Secret whose key is to be under a name for an asker."""
        own, gateway, account = asker
        scheme, _, rest = name.partition("://")
        space, _, secret = rest.rpartition("/")
        if secret.endswith("-cacert") or (space or own, secret) not in self.secrets:
            return None
        if scheme == "kubernetes":
            allowed = (space or own) == own and (not self.api_server or self.rights.get((own, account), False))
            return (own, secret) if allowed else None
        refs, mode = self.gateways.get((own, gateway), ([], ""))
        referred = mode == "Terminate" and any(
            (one.get("group", ""), one.get("kind", "Secret"), one.get("namespace", own), one["name"])
            == ("", "Secret", space, secret)
            for one in refs
        )
        return (space, secret) if referred and (space == own or self._granted(own, space, secret)) else None

    def _granted(self, source: str, space: str, secret: str) -> bool:
        return any(
            (where, who, kind, group, target) == (space, source, "Gateway", "gateway.networking.k8s.io", "Secret")
            and (not names or secret in names)
            for (where, _), (who, names, kind, group, target) in self.grants.items()
        )

    def manifests(self) -> Iterable[Manifest]:
        for (space, name), (refs, mode) in self.gateways.items():
            listener = m.listener("https", 443, "HTTPS", tls_mode=mode, certificates=refs)
            yield m.gateway(f"{space}/{name}", "istio", listener)
        for (space, name), (who, names, kind, group, target) in self.grants.items():
            yield m.reference_grant(f"{space}/{name}", who, *names, kind=kind, group=group, target=target)
        for (space, name), kind in self.secrets.items():
            chain, key = PAIRS[space, name]
            if kind == "tls":
                # Keys where roots belong are not to get out either.
                pair = {"tls_crt": chain, "tls_key": key}
                yield m.secret(f"{space}/{name}", kind="kubernetes.io/tls", **pair, ca_crt=key + chain)
            else:
                yield m.secret(f"{space}/{name}", cert=chain, key=key, cacert=chain + key)


class Stream:
    """A gateway's stream and what it was sent."""

    def __init__(self, around: Surroundings, asker: tuple[str, str, str], *, delta: bool) -> None:
        self.asker = asker
        self.delta = delta
        own, gateway, account = asker
        proxy = Proxy(
            "p", "peer", Identity("cluster.local", own, account), "ingress", own, "net", "alpha", "",
            gateway=gateway, extensions=FOR_ON_DEMAND,
        )  # fmt: skip
        views, nonces = TableViews(around, proxy, lambda: None), map(str, itertools.count(1))
        self.session: Any = DeltaSession(views, nonces) if delta else SotwSession(views, nonces)
        self.session.receive(self.request())
        self.held: dict[str, bytes] = {}
        self.version = ""
        self.now = 0.0

    def request(self, nonce: str = "") -> Any:
        if self.delta:
            return DeltaRequest(SECRET_TYPE, response_nonce=nonce, subscribe=() if nonce else NAMES)
        return SotwRequest(SECRET_TYPE, NAMES, self.version if nonce else "", nonce)

    def poll(self) -> dict[str, bytes]:
        """Takes what there is to take; returns the keys, wherever they were, by the name of the resource."""
        sent: dict[str, bytes] = {}
        self.now += 1.0
        while actions := [one for one in self.session.poll(self.now) if hasattr(one, "payload")]:
            for action in actions:
                kind: Any = discovery.DeltaDiscoveryResponse if self.delta else discovery.DiscoveryResponse
                response = kind.FromString(action.payload)
                for resource in response.resources:
                    secret = Secret.FromString(resource.resource.value if self.delta else resource.value)
                    self.held.pop(secret.name, None)
                    for key in [key for key in OWNER if key in secret.SerializeToString()]:
                        sent[secret.name] = self.held[secret.name] = key
                for name in response.removed_resources if self.delta else ():
                    self.held.pop(name, None)
                self.version = "" if self.delta else response.version_info
                self.session.receive(self.request(response.nonce))
        return sent


async def live(events: list[tuple[tuple[Any, ...], bool]], *, api_server: bool) -> None:
    cluster = Objects(api_server=api_server)
    tables = Tables.empty()
    pipeline = Pipeline(Home(cluster="alpha", api_server=api_server, accounts_read_secrets=not api_server))
    aggregator = Aggregator(pipeline, tables, Records(), now=c.NOW.timestamp)
    around = Surroundings(tables, Interest(tables), AUTHORITY, 3600.0, "alpha", SharedBook(tables, "alpha"))

    def publish() -> None:
        items: dict[Any, Any] = {("alpha", "Cluster", "", "alpha"): Cluster("synced", True, 0.0, "")}
        items |= dict(fact("alpha", one) for one in cluster.manifests())
        everything = dict(items)
        if api_server:  # other Secrets are read by name alone
            items = {key: one for key, one in items.items() if not isinstance(one, NamedSecret)}
        tables.facts.replace(("alpha",), items.items())
        for wanted, askers in list(tables.wanted.scan()):
            assert askers
            tables.facts.apply(
                [
                    (object_key(wanted), everything.get(("alpha", *wanted))),
                    (reading_key(wanted), Reading("read")),
                ]
            )
        for account in [account for account, _ in tables.reviews.scan()]:
            allowed = cluster.rights.get(account, False)
            tables.facts.apply([(access_key(*account), SecretAccess(allowed, "" if allowed else "no"))])

    async def settle() -> None:
        # What is asked for, what is wanted for it, what was read, what is told.
        while True:
            publish()
            if not (aggregator._facts.pending or aggregator._interest.pending):
                break
            await aggregator.one_pass()

    await settle()
    streams = [Stream(around, asker, delta=delta) for asker in ASKERS for delta in (True, False)]
    for event, comes in [((), True), *events]:
        if event:
            cluster.happen(event, comes=comes)
        for _ in range(2):  # the first time the streams only ask
            await settle()
            for stream in streams:
                for name, key in stream.poll().items():
                    assert cluster.may_have(stream.asker, name) == OWNER[key], (stream.asker, name)
            if event:
                break
        for stream in streams:
            expected = {
                name: PAIRS[place][1] for name in NAMES if (place := cluster.may_have(stream.asker, name)) is not None
            }
            assert expected.items() <= stream.held.items(), stream.asker
            if stream.delta:
                assert stream.held == expected, stream.asker
    for stream in streams:
        stream.session.close()


@settings(max_examples=100, deadline=None)
@given(EVENTS, st.booleans())
def test_a_gateway_holds_the_keys_it_may_have_and_is_never_sent_another(
    events: list[tuple[tuple[Any, ...], bool]], api_server: bool
) -> None:
    asyncio.run(live(events, api_server=api_server))


def test_the_rules_give_something_to_somebody() -> None:
    events: list[tuple[tuple[Any, ...], bool]] = [
        (("secret", "infra", "a", "tls"), True),
        (("secret", "certs", "b", "generic"), True),
        (("gateway", "infra", "edge", [{"name": "a"}, {"name": "b", "namespace": "certs"}], "Terminate"), True),
        (("grant", "certs", "one", "infra", ("b",), "Gateway", "gateway.networking.k8s.io", "Secret"), True),
        (("right", "infra", "one", True), True),
    ]
    for api_server in (True, False):
        asyncio.run(live(events, api_server=api_server))
    cluster = Objects(api_server=True)
    cluster.secrets.clear()
    for event, comes in events:
        cluster.happen(event, comes=comes)
    assert {name for name in NAMES if cluster.may_have(ASKERS[0], name)} == {
        "kubernetes://a",
        "kubernetes://infra/a",
        "kubernetes-gateway://infra/a",
        "kubernetes-gateway://certs/b",
    }
    assert isinstance(fact("alpha", next(one for one in cluster.manifests() if one["kind"] == "Secret"))[1], TLSSecret)
