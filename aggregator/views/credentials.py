"""Credentials that gateways ask for by name: for each question a view of its own, with one Secret or none.

A question is an item of the interest Table, so a key that nobody asks for is never encoded, and one that changes costs
those who asked for it. Replicas of a gateway share their views. What a question is about and who may have it is decided
in `security.credentials`; here is what is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Outcome, Source, Withheld
from aggregator.mesh.answers import Answers
from aggregator.mesh.home import Home
from aggregator.mesh.selection import Includes
from aggregator.security import credentials
from aggregator.security.certificates import Certificate, subject_of
from aggregator.security.credential_names import credential_name
from aggregator.security.credentials import Credentials, Place, Question
from aggregator.security.trust_bundles import Bundle, InvalidBundle, bundle
from aggregator.traffic.ingress_secrets import IngressSecrets
from aggregator.views.secrets import pair_secret, roots_secret
from aggregator.views.view import ResourceKey, View, ViewKey
from watchers.facts.keys import ObjectKey
from watchers.facts.secrets import NamedSecret, TLSSecret
from xds.encoded import Resource
from xds.messages.secret import SECRET_TYPE

ROLE: Final = "credential"


class Told(msgspec.Struct, frozen=True):
    """The part of the graph this module declares: what is told, what has to be read for it, which questions (by the
    names of their views) have no answer yet, the roots that were demanded and are there, and all roots in force.
    """

    secrets: Collection[ResourceKey, Resource]
    asked: Credentials
    unknown: Collection[str, bool]
    demanded: Collection[str, Bundle]
    bundles: Collection[ObjectKey, Bundle]


def view_of(asked: str, *, namespace: str, gateway: str, account: str) -> View | None:
    """The view that holds what is called so for a gateway; None for a name that stands for nothing there.

    `namespace`, `gateway` and `account` are what is proven of who asks, not what it says of itself.
    """
    if credential_name(asked, namespace) is None:
        return None
    features = {"account": account, "gateway": gateway, "name": asked, "namespace": namespace}
    return View(ROLE, SECRET_TYPE, tuple(features.items()))


def declare(
    graph: Graph,
    home: Home,
    includes: Includes,
    answers: Answers,
    views: Source[ViewKey, View],
    in_force: Collection[ObjectKey, Certificate],
    demanded: Collection[str, Question],
    sources: credentials.Sources,
    ingress_secrets: IngressSecrets,
) -> Told:
    """Declare what is told of credentials; `in_force` are the pairs of Secrets, `demanded` roots that no proxy asks for
    in this way but hosts need, by the names they are to have. `ingress_secrets` is what else is read by name.
    """

    def question(_at: At, _key: ViewKey, view: View) -> Iterable[tuple[str, Question]]:
        if view.role == ROLE:
            namespace = view.feature("namespace")
            name = credential_name(view.feature("name"), namespace)
            if name is not None:
                yield view.name, Question(namespace, view.feature("gateway"), view.feature("account"), name)

    asked_for = graph.expand("questions for credentials", views, question)
    together = graph.index("credentials by who needs them", (asked_for, demanded), lambda key, _: (key,))
    questions = graph.derive("credentials needed", together, lambda _, key, members: members[key])
    asked = credentials.declare(graph, home, includes, answers, questions, sources, ingress_secrets.places)
    bundles = _bundles(graph, home, includes, questions, asked.places, sources)

    def secret(at: At, name: str, place: Place) -> Iterable[tuple[ResourceKey, Outcome[Resource]]]:
        view = at.get(views, (name,))
        if view is None:
            return
        called = view.feature("name")
        one = at.get(questions, name)
        if one is not None and place.found is not None:
            made = roots(at, called, place.found) if one.name.roots else pair(at, called, place.found)
        else:
            made = Withheld("CredentialPending" if place.pending else "CredentialNotFound")
        yield (name, called), made

    def roots(at: At, called: str, key: ObjectKey) -> Outcome[Resource]:
        found = at.get(bundles, key)
        if found is None:
            return Withheld("RootsInvalid")
        return roots_secret(called, found)

    def pair(at: At, called: str, key: ObjectKey) -> Outcome[Resource]:
        found = at.get(in_force, key)
        if found is not None:
            return pair_secret(called, found, found.ocsp_staple)
        given = at.get(sources.secrets, key)
        if given is not None and not (given.certificate and given.key):
            subject = subject_of(home, key)
            detail = "it holds no pair: write cert and key, or tls.crt and tls.key"
            at.note(subject, Finding(subject, "SecretInvalid", "data", detail))
        return Withheld("SecretHoldsNoPair")

    def demanded_bundle(at: At, name: str, _question: Question) -> Outcome[Bundle]:
        place = at.get(asked.places, name)
        found = at.get(bundles, place.found) if place is not None and place.found is not None else None
        return found if found is not None else Withheld("RootsInvalid")

    return Told(
        graph.expand("credentials by name", asked.places, secret),
        asked,
        graph.derive(
            "credentials not known yet",
            asked.places,
            lambda _, __, place: True if place.pending else Withheld("CredentialKnown"),
        ),
        graph.derive("roots demanded", demanded, demanded_bundle),
        bundles,
    )


def _bundles(
    graph: Graph,
    home: Home,
    includes: Includes,
    questions: Collection[str, Question],
    places: Collection[str, Place],
    sources: credentials.Sources,
) -> Collection[ObjectKey, Bundle]:
    """The roots that somebody asks for, by the key of their object: issuers write some into every Secret, so those that
    nobody asks for are not looked at.
    """

    def holder(at: At, name: str, place: Place) -> Iterable[tuple[str, Outcome[ObjectKey]]]:
        one = at.get(questions, name)
        if one is not None and one.name.roots and place.found is not None:
            yield name, place.found

    def read(at: At, key: ObjectKey, _asked: bool) -> Outcome[Bundle]:
        given = _given(at, sources, key)
        if given is None:
            return Withheld("CredentialNotFound")
        subject = subject_of(home, key)
        try:
            return bundle(*given)
        except InvalidBundle as error:
            at.note(subject, Finding(subject, "RootsInvalid", "data", str(error)))
            return Withheld("RootsInvalid", str(error))

    def expired(at: At, key: ObjectKey, one: Bundle) -> bool:
        late = includes(at, home.cluster, key[2]) and at.passed(one.not_after)
        if late:
            subject = subject_of(home, key)
            at.note(subject, Finding(subject, "CertificateExpired", "data", "all of its roots have expired"))
        return late

    def exists(_at: At, _key: ObjectKey, _members: Mapping[str, ObjectKey]) -> bool:
        return True

    holders = graph.index(
        "holders of roots", graph.expand("roots asked for", places, holder), lambda _, key: (key,)
    )
    held = graph.derive("objects with roots that are asked for", holders, exists)
    in_force = graph.latch("trust bundles", graph.derive("trust bundles as given", held, read))
    graph.derive("expired trust bundles", in_force, expired)
    return in_force


def _given(at: At, sources: credentials.Sources, key: ObjectKey) -> tuple[bytes, ...] | None:
    """Roots and revocations as they stand in an object."""
    if key[1] == "RootsConfigMap":
        config_map = at.get(sources.config_maps, key)
        return None if config_map is None else (config_map.roots,)
    secret: TLSSecret | NamedSecret | None = at.get(sources.secrets, key)
    return None if secret is None else (secret.roots, secret.crl)
