"""Credentials by name: which objects a gateway's question is about, whether it may have them, and where they are.

In: who asks for what, home's Secrets, ConfigMaps, Gateways and ReferenceGrants, and what home's API server says an
account may do. Out: for each question the object that answers it. Who may have what:

- a Secret of the gateway's own namespace: whoever's account may list the Secrets there;
- a Secret that a listener of its Gateway refers to: the gateway, if the reference counts (`references`). Each stands on
  its own, so one that is wrong takes nothing from the others;
- roots that belong to such a Secret: as the Secret, but in its own namespace without asking about the account;
- roots in a ConfigMap: every gateway, since they are no secret.

What has not been heard of yet is pending, which is neither yes nor no. Findings say what is wrong with references, and
with an account that asks in vain; what a gateway merely asks for and nobody has is none, as it could ask for anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, cast

import msgspec

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Outcome, Source, Withheld
from aggregator.mesh.answers import Answers
from aggregator.mesh.home import Home
from aggregator.mesh.networks import controller_of
from aggregator.mesh.selection import UNSELECTED, Includes
from aggregator.security.credential_names import CredentialName
from aggregator.security.references import Allows, Referrer, Target
from watchers.facts.gateway_api import CertificateRef, Gateway, GatewayClass
from watchers.facts.keys import ObjectKey
from watchers.facts.named import Reading, RootsConfigMap, SecretAccess, WantedKey, access_key, object_key, reading_key
from watchers.facts.secrets import NamedSecret, TLSSecret

_GATEWAY_GROUP: Final = "gateway.networking.k8s.io"
_CONTROLLERS: Final = frozenset({"isthmus.dev/ingress-gateway", "istio.io/gateway-controller"})
"""Whose Gateways are told of references that come to nothing, though no gateway of theirs asks yet."""

AccountName: TypeAlias = tuple[str, str]
"""Namespace and name of a service account."""


class Question(msgspec.Struct, frozen=True, gc=False):
    """What a gateway asks for: `gateway` is the Gateway of its namespace that it belongs to, "" for none."""

    namespace: str
    gateway: str
    account: str
    name: CredentialName


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where the answer to a question is: the key of a fact, None where there is none.

    `wanted` are the objects that have to be read by name for it, `pending` whether that, or something else, is not
    known yet.
    """

    found: ObjectKey | None = None
    wanted: tuple[WantedKey, ...] = ()
    pending: bool = False


class Sources(msgspec.Struct, frozen=True):
    """What is judged, and by what."""

    secrets: Source[ObjectKey, TLSSecret | NamedSecret]
    config_maps: Source[ObjectKey, RootsConfigMap]
    readings: Source[ObjectKey, Reading]
    accesses: Source[ObjectKey, SecretAccess]
    gateways: Source[ObjectKey, Gateway]
    classes: Source[ObjectKey, GatewayClass]
    allows: Allows


class Credentials(msgspec.Struct, frozen=True):
    """The part of the graph this module declares.

    `places` are by the key of the question; of one that is refused there is none. `wanted` are the objects that are to
    be read by name, each with the namespaces that ask; `reviews` the accounts of which it is to be asked what they may
    do.
    """

    places: Collection[str, Place]
    wanted: Collection[WantedKey, tuple[str, ...]]
    reviews: Collection[AccountName, bool]


def declare(
    graph: Graph,
    home: Home,
    includes: Includes,
    answers: Answers,
    questions: Collection[str, Question],
    sources: Sources,
    others: Collection[tuple[Literal["users", "client"], str, str], Place],
) -> Credentials:
    """Declare the answers to questions, as far as who asks may have them.

    `others` are Secrets that are read by name as well, each for the namespace that is the second part of its key.
    """
    by_gateway = graph.index(
        "questions by gateway",
        questions,
        lambda _, one: ((one.namespace, one.gateway),) if one.name.scheme == "kubernetes-gateway" else (),
    )
    asking = graph.derive("gateways that ask for certificates", by_gateway, lambda *_: True)

    def place(at: At, _key: str, question: Question) -> Outcome[Place]:
        if not answers.home(at):
            return Place(pending=True)
        name = question.name
        if not includes(at, home.cluster, name.namespace):
            return UNSELECTED
        names = name.names
        if name.scheme == "kubernetes-gateway":
            names = _verified(at, home, sources, question)
            if not names:
                return Withheld("CredentialNotVerified", f"{question.namespace}/{question.gateway}")
        elif name.scheme == "kubernetes":
            if name.namespace != question.namespace:
                return Withheld("CredentialOfOtherNamespace", name.namespace)
            refused = None if name.roots else _refused(at, home, sources, question)
            if refused is not None:
                return Place(pending=True) if refused.code == "SecretAccessPending" else refused
        kind = "RootsConfigMap" if name.scheme == "configmap" else "NamedSecret"
        return placed(at, home, sources, [(kind, name.namespace, one) for one in names])

    def asks_about_account(_key: str, question: Question) -> tuple[AccountName, ...]:
        own = question.name.scheme == "kubernetes" and not question.name.roots and home.api_server
        return ((question.namespace, question.account),) if own else ()

    def accessible(at: At, key: ObjectKey, access: SecretAccess) -> bool:
        subject = (home.cluster, "ServiceAccount", key[2], key[3])
        if access.reason:
            code = "SecretAccessUnknown" if access.allowed or access.pending else "SecretAccessDenied"
            at.note(subject, Finding(subject, code, "metadata.name", access.reason))
        return access.allowed

    def readable(at: At, key: ObjectKey, reading: Reading) -> bool:
        if reading.state != "read":
            kind, _, name = key[3].partition("/")
            subject = (home.cluster, "ConfigMap" if kind == "RootsConfigMap" else "Secret", key[2], name)
            code = "ObjectNotReadable" if reading.state == "denied" else "ObjectUnusable"
            at.note(subject, Finding(subject, code, "data", reading.reason))
        return reading.state == "read"

    def flaws(at: At, key: ObjectKey, gateway: Gateway) -> Outcome[int]:
        if key[0] != home.cluster:
            return Withheld("NotOfHome", key[0])
        if not includes(at, home.cluster, key[2]):
            return UNSELECTED
        controller = controller_of(at, home, sources.classes, gateway.class_name)
        if controller not in _CONTROLLERS and at.get(asking, (key[2], key[3])) is None:
            return Withheld("OfOtherController", controller)
        found = [
            (f"spec.listeners[{place}].tls.certificateRefs[{number}]", flaw)
            for place, listener in enumerate(gateway.listeners)
            for number, one in enumerate(listener.certificate_refs)
            if (flaw := _flaw(at, home, sources, key[2], one)) is not None
        ]
        for field, (code, detail) in found:
            at.note(key, Finding(key, code, field, detail))
        return len(found)

    graph.derive("references to certificates", sources.gateways, flaws)
    graph.derive("accounts that may list Secrets", sources.accesses, accessible)
    graph.derive("objects that can be read by name", sources.readings, readable)
    reviewed = graph.index("accounts that ask for Secrets", questions, asks_about_account)
    reviews: Collection[AccountName, bool] = graph.derive("accounts to review", reviewed, lambda *_: True)
    places = graph.derive("places of credentials", questions, place)

    def wanting(at: At, _key: WantedKey, members: Mapping[str | tuple[str, str, str], Place]) -> tuple[str, ...]:
        who: set[str] = set()
        for key in members:
            if isinstance(key, tuple):
                who.add(key[1])
            elif (one := at.get(questions, key)) is not None:
                who.add(one.namespace)
        return tuple(sorted(who))

    all_places = cast("tuple[Collection[str | tuple[str, str, str], Place], ...]", (places, others))
    by_object = graph.index("places by objects to read", all_places, lambda _, one: one.wanted)
    wanted: Collection[WantedKey, tuple[str, ...]] = graph.derive("objects to read by name", by_object, wanting)
    return Credentials(places, wanted, reviews)


def _verified(at: At, home: Home, sources: Sources, question: Question) -> tuple[str, ...]:
    """Those names of a question that the Gateway's references entitle it to, in their order."""
    gateway = at.get(sources.gateways, (home.cluster, "Gateway", question.namespace, question.gateway))
    if gateway is None:
        return ()
    name = question.name
    referred = {
        one.name
        for listener in gateway.listeners
        if listener.tls_mode == "Terminate"
        for one in listener.certificate_refs
        if one.name in name.names
        and _target(one, question.namespace) == Target("", "Secret", name.namespace, one.name)
        and _counts(at, sources, question.namespace, one)
    }
    # The roots that belong to a Secret may be in one of their own, which nothing refers to.
    if name.names[-1] in referred:
        return name.names
    return name.names[:1] if name.names[0] in referred else ()


def _target(reference: CertificateRef, namespace: str) -> Target:
    """What a reference of a Gateway in a namespace is to."""
    return Target(reference.group, reference.kind, reference.namespace or namespace, reference.name)


def _counts(at: At, sources: Sources, namespace: str, reference: CertificateRef) -> bool:
    """Whether a Gateway in a namespace may refer so."""
    return sources.allows(at, Referrer(_GATEWAY_GROUP, "Gateway", namespace), _target(reference, namespace))


def _refused(at: At, home: Home, sources: Sources, question: Question) -> Withheld | None:
    """Why the account that asks may not have the Secrets of its namespace; None if it may."""
    if not home.api_server:
        if home.accounts_read_secrets:
            return None
        subject = (home.cluster, "ServiceAccount", question.namespace, question.account)
        detail = "home is a directory, and nobody says what the account may do"
        at.note(subject, Finding(subject, "SecretAccessDenied", "metadata.name", detail))
        return Withheld("SecretAccessDenied", detail)
    access = at.get(sources.accesses, access_key(question.namespace, question.account))
    if access is None or access.pending:
        return Withheld("SecretAccessPending")
    return None if access.allowed else Withheld("SecretAccessDenied", access.reason)


def placed(at: At, home: Home, sources: Sources, candidates: list[WantedKey]) -> Place:
    """Where the first of some objects is that exists, and what has to be read to know."""
    wanted: list[WantedKey] = []
    for candidate in candidates:
        key = _at_hand(at, home, sources, candidate)
        if key is not None:
            return Place(key, tuple(wanted))
        if not home.api_server:
            continue
        wanted.append(candidate)
        key = object_key(candidate)
        if _exists(at, sources, key):
            return Place(key, tuple(wanted))
        reading = at.get(sources.readings, reading_key(candidate))
        if reading is None or reading.state != "read":
            # It may be there, so what comes after it does not take its place.
            return Place(None, tuple(wanted), pending=reading is None)
    return Place(None, tuple(wanted))


def _at_hand(at: At, home: Home, sources: Sources, candidate: WantedKey) -> ObjectKey | None:
    """Where an object is among those that are read anyhow."""
    kind, namespace, name = candidate
    kinds = ("TLSSecret", kind) if kind == "NamedSecret" else (kind,)
    keys = [(home.cluster, one, namespace, name) for one in kinds]
    return next((key for key in keys if _exists(at, sources, key)), None)


def _exists(at: At, sources: Sources, key: ObjectKey) -> bool:
    if key[1] == "RootsConfigMap":
        return at.get(sources.config_maps, key) is not None
    return at.get(sources.secrets, key) is not None


def _flaw(
    at: At, home: Home, sources: Sources, namespace: str, reference: CertificateRef
) -> tuple[str, str] | None:
    """What is wrong with a reference of a Gateway: a code and a detail."""
    target = _target(reference, namespace)
    if (target.group, target.kind) != ("", "Secret"):
        return "CertificateRefUnsupported", f"{_shown(target.kind)} of group {_shown(target.group)} is no Secret"
    named = f"Secret {_shown(f'{target.namespace}/{target.name}')}"
    if not _counts(at, sources, namespace, reference):
        return "CertificateRefNotGranted", f"no ReferenceGrant in {_shown(target.namespace)} allows {named}"
    candidate = ("NamedSecret", target.namespace, target.name)
    if _at_hand(at, home, sources, candidate) is not None:
        return None
    if home.api_server:
        # Whether there is one of another type is known once a gateway has asked for it.
        reading = at.get(sources.readings, reading_key(candidate))
        if reading is None or reading.state != "read" or _exists(at, sources, object_key(candidate)):
            return None
    return "CertificateRefNotFound", f"there is no {named}"


def _shown(text: str) -> str:
    """As much of a text that somebody wrote as fits into a line."""
    return text if len(text) <= 80 and text.isprintable() else repr(text[:80])
