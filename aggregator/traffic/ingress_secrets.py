"""Secrets that annotations of Ingresses name: users with passwords, and what gateways show to backends.

In: claims, whose references are settled, and Secrets as they are read by name (or at hand anyhow). Out: users in the
one form that gateways take, pairs and roots for connections to backends, and which objects have to be read for it. A
Secret that is not known yet is pending, which is neither yes nor no. Nothing here shows what a Secret holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Index, Outcome, Withheld
from aggregator.mesh.answers import Answers
from aggregator.mesh.home import Home
from aggregator.security import credentials
from aggregator.security.certificates import Certificate, subject_of
from aggregator.security.credentials import Place
from aggregator.security.trust_bundles import Bundle, InvalidBundle, bundle
from aggregator.traffic.annotations.given import UNPROTECTED
from aggregator.traffic.ingresses import Claim, ClaimKey
from watchers.facts.keys import ObjectKey
from watchers.facts.secrets import TLSSecret

Use: TypeAlias = Literal["users", "client"]
UsedKey: TypeAlias = tuple[Use, str, str]
"""What a Secret is used for, its namespace and its name."""

PENDING: Final = "pending"
MOST_USERS: Final = 256
"""Users of a Secret: they stand in every route that lets them in."""
_HASH: Final = re.compile(r"\{SHA\}[A-Za-z0-9+/]{27}=")
_NAME: Final = re.compile(r"[!-9;-~]{1,128}")


class Users(msgspec.Struct, frozen=True, gc=False):
    """Users by name and hash of their password, as lines `<name>:{SHA}<base64>`, sorted; never shown."""

    lines: str

    def __repr__(self) -> str:
        return f"Users({self.lines.count(chr(10))})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("users", self.lines.count("\n"))]


class IngressSecrets(msgspec.Struct, frozen=True):
    """The part of the graph this module declares.

    `places` tell where each Secret is; `users`, `pairs` and `roots` are what is good of them. `pending` groups, under
    PENDING, the Secrets with users of which it is not known yet whether they are there.
    """

    places: Collection[UsedKey, Place]
    users: Collection[UsedKey, Users]
    pairs: Collection[UsedKey, Certificate]
    roots: Collection[UsedKey, Bundle]
    pending: Index[str, UsedKey, Place]


class InvalidUsers(ValueError):
    """Users that nobody can be compared with; the text says why, and shows nothing of them."""


def declare(
    graph: Graph,
    home: Home,
    answers: Answers,
    claims: Collection[ClaimKey, Claim],
    in_force: Collection[ObjectKey, Certificate],
    sources: credentials.Sources,
) -> IngressSecrets:
    """Declare what Ingresses use of Secrets; `in_force` are the pairs of all Secrets."""

    def place(at: At, key: UsedKey, _members: Mapping[ClaimKey, Claim]) -> Place:
        if not answers.home(at):
            return Place(pending=True)
        return credentials.placed(at, home, sources, [("NamedSecret", key[1], key[2])])

    used = graph.index("Secrets that Ingresses name", claims, lambda _, claim: _used(claim))
    places: Collection[UsedKey, Place] = graph.derive("places of Secrets of Ingresses", used, place)

    def users(at: At, key: UsedKey, where: Place) -> Outcome[Users]:
        if key[0] != "users" or where.found is None:
            return Withheld("SecretNotFound")
        secret = at.get(sources.secrets, where.found)
        subject = subject_of(home, where.found)
        given = b"" if secret is None or isinstance(secret, TLSSecret) else secret.users
        try:
            found, flaw = users_of(given)
        except InvalidUsers as error:
            at.note(subject, Finding(subject, "UsersInvalid", "data.auth", str(error)))
            return Withheld("UsersInvalid", str(error))
        if flaw:
            at.note(subject, Finding(subject, "UsersInvalid", "data.auth", flaw))
        return found

    def pair(at: At, key: UsedKey, where: Place) -> Outcome[Certificate]:
        found = at.get(in_force, where.found) if key[0] == "client" and where.found is not None else None
        return found if found is not None else Withheld("SecretHoldsNoPair")

    def roots(at: At, key: UsedKey, where: Place) -> Outcome[Bundle]:
        secret = at.get(sources.secrets, where.found) if key[0] == "client" and where.found is not None else None
        if where.found is None or secret is None or not secret.roots:
            return Withheld("SecretHoldsNoRoots")
        subject = subject_of(home, where.found)
        try:
            return bundle(secret.roots, secret.crl)
        except InvalidBundle as error:
            at.note(subject, Finding(subject, "RootsInvalid", "data", str(error)))
            return Withheld("RootsInvalid", str(error))

    found = IngressSecrets(
        places,
        graph.derive("users of Ingresses", places, users),
        graph.derive("pairs for backends", places, pair),
        graph.derive("roots of backends", places, roots),
        graph.index(
            "Secrets of Ingresses not known yet",
            places,
            lambda key, one: (PENDING,) if one.pending and key[0] == "users" else (),
        ),
    )

    def flaws(at: At, key: ClaimKey, claim: Claim) -> bool:
        """Notes which Secrets an Ingress names in vain."""
        complete = True
        for one in _used(claim):
            where = at.get(places, one)
            if where is None or where.pending:
                continue
            name = f"{one[1]}/{one[2]}"
            if one[0] == "users" and at.get(found.users, one) is None:
                detail = f"there are no users in the Secret {name}" if where.found else f"there is no Secret {name}"
            elif one[0] == "client" and where.found is None:
                detail = f"there is no Secret {name}"
            elif one[0] == "client" and claim.settings.connections.verify and at.get(found.roots, one) is None:
                detail = f"there are no roots (ca.crt) in the Secret {name}"
            else:
                continue
            complete = False
            at.note(claim.origin, Finding(claim.origin, UNPROTECTED, "metadata.annotations", detail))
        return complete

    graph.derive("Secrets that Ingresses name in vain", claims, flaws)
    return found


def _used(claim: Claim) -> tuple[UsedKey, ...]:
    asked = claim.settings
    found: list[UsedKey] = []
    if asked.policies.authentication.users is not None:
        found.append(("users", claim.origin[2], asked.policies.authentication.users.name))
    if asked.connections.secret:
        found.append(("client", claim.origin[2], asked.connections.secret))
    return tuple(found)


def users_of(given: bytes) -> tuple[Users, str]:
    """The users of an htpasswd file, and what is wrong with others of it. Raises InvalidUsers where none is of use."""
    try:
        lines = [line for one in given.decode().split("\n") if (line := one.strip()) and not line.startswith("#")]
    except UnicodeDecodeError:
        raise InvalidUsers("is no text") from None
    if len(lines) > MOST_USERS:
        raise InvalidUsers(f"holds {len(lines):,} users, and {MOST_USERS} are the most")
    good: dict[str, str] = {}
    for line in lines:
        name, _, rest = line.partition(":")
        if _NAME.fullmatch(name) and _HASH.fullmatch(rest):
            good.setdefault(name, rest)
    left = len(lines) - len(good)
    flaw = f"{left} of {len(lines)} lines are not <name>:{{SHA}}<hash>, or name a user again" if left else ""
    if not good:
        raise InvalidUsers(flaw or "is empty or not there: it has to hold a line for each user")
    return Users("".join(f"{name}:{hashed}\n" for name, hashed in sorted(good.items()))), flaw
