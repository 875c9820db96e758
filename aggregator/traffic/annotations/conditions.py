"""Which requests the paths of an Ingress are for, beside their paths, as annotations want it.

By method, by header, by parameter of the query, and paths in any case. Rules of two Ingresses of a namespace for one
path are two rules if their conditions differ; those with more conditions are tried first. A condition that means
nothing holds for no request: without it the paths would be for more requests than they should.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from aggregator.traffic.annotations.expressions import expression, header_name, header_value, token
from aggregator.traffic.annotations.given import Given, Problem, Refused, flag

ANNOTATIONS: Final[Mapping[str, str]] = {
    "match-method": "Only requests with one of these methods, named between spaces.",
    "match-header-exact-*": "Only requests whose header of that name has this value.",
    "match-header-prefix-*": "Only requests whose header of that name begins so.",
    "match-header-regex-*": "Only requests whose header of that name matches this as a whole.",
    "match-query-exact-*": "Only requests whose parameter of that name has this value.",
    "match-query-prefix-*": "Only requests whose parameter of that name begins so.",
    "match-query-regex-*": "Only requests whose parameter of that name matches this as a whole.",
    "ignore-path-case": "Whether paths are compared in any case.",
}

MOST: Final = 16
"""Conditions of one Ingress."""
Comparison: TypeAlias = Literal["exact", "prefix", "regex"]
_COMPARISONS: Final[tuple[Comparison, ...]] = ("exact", "prefix", "regex")


class Condition(msgspec.Struct, frozen=True, gc=False, order=True):
    """A header or parameter and what its value is to be."""

    name: str
    comparison: Comparison
    value: str


class Conditions(msgspec.Struct, frozen=True, gc=False, order=True):
    """All must hold: the method is one of `methods` (none: any), and all `headers` and parameters (`query`) match.

    With `any_case` the case of paths does not matter. If one of them is `unknown`, they hold for no request.
    """

    methods: tuple[str, ...] = ()
    headers: tuple[Condition, ...] = ()
    query: tuple[Condition, ...] = ()
    any_case: bool = False
    unknown: bool = False

    @property
    def count(self) -> int:
        """How many there are."""
        return bool(self.methods) + len(self.headers) + len(self.query)


NONE: Final = Conditions()


def conditions(given: Given) -> Conditions:
    """What an Ingress says of them."""
    any_case = given.value("ignore-path-case", flag, False)
    sound = len(given.problems)
    found = Conditions(
        given.value("match-method", _methods, ()), _named(given, "header"), _named(given, "query"), any_case
    )
    if len(given.problems) > sound:
        given.problems[sound:] = [
            Problem("ConditionInvalid", one.annotation, one.detail) for one in given.problems[sound:]
        ]
        found = Conditions(unknown=True)
    return found if found != NONE else NONE


def _methods(text: str) -> tuple[str, ...]:
    methods = tuple(sorted({token(word) for word in text.split()}))
    if not 0 < len(methods) <= MOST:
        raise Refused(f"must name from 1 to {MOST} methods")
    return methods


def _named(given: Given, what: Literal["header", "query"]) -> tuple[Condition, ...]:
    found: list[Condition] = []
    for comparison in _COMPARISONS:
        prefix = f"match-{what}-{comparison}-"
        for name in given.names(prefix):

            def condition(text: str, name: str = name[len(prefix) :], comparison: Comparison = comparison) -> Condition:
                if len(found) >= MOST:
                    raise Refused(f"is one of more than {MOST} conditions")
                value = expression(text) if comparison == "regex" else header_value(text)
                if comparison == "prefix" and not value:
                    raise Refused("must not be empty")
                return Condition(header_name(name) if what == "header" else token(name), comparison, value)

            one = given.value(name, condition, None)
            if one is not None:
                found.append(one)
    return tuple(sorted(found))
