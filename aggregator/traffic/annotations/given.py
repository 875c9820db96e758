"""The annotations of one Ingress, read one by one: each value typed and checked, each fault kept with its cure.

In: annotations as the fact has them. Out: values for the records of the neighbouring modules, and problems for whoever
knows the Ingress. Names are written without their prefix, of which isthmus.io/ goes before higress.io/ before
nginx.ingress.kubernetes.io/.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from watchers.facts.keys import Labels
from watchers.facts.networking import ANNOTATION_PREFIXES

T = TypeVar("T")
D = TypeVar("D")

LONGEST: Final = 4096
"""Bytes of an annotation that are read."""
UNPROTECTED: Final = "ProtectionInvalid"
"""The code of problems that leave an Ingress without a protection it asks for."""


class Problem(msgspec.Struct, frozen=True, gc=False):
    """What is wrong with an annotation: the code of a finding, the annotation's full name and what is the matter."""

    code: str
    annotation: str
    detail: str


class Refused(ValueError):
    """A value that means nothing; the text says what it would have to be."""


class Given:
    """The annotations of an Ingress. Whatever is read is taken note of, with what was wrong about it."""

    def __init__(self, annotations: Labels) -> None:
        self._values: dict[str, tuple[str, str]] = {}
        for prefix in reversed(ANNOTATION_PREFIXES):
            for key, value in annotations:
                if key.startswith(prefix):
                    self._values[key[len(prefix) :]] = (key, value)
        self._read: set[str] = set()
        self.problems: list[Problem] = []
        self.unprotected = False
        """Whether a protection is asked for that cannot be had: then nothing may be served."""

    @property
    def read(self) -> frozenset[str]:
        """The names that have been asked for, whether they were there or not."""
        return frozenset(self._read)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def value(self, name: str, read: Callable[[str], T], default: D, code: str = "AnnotationInvalid") -> T | D:
        """What `read` makes of an annotation; `default` without one, or if it raises Refused."""
        self._read.add(name)
        key, text = self._values.get(name, ("", ""))
        if not key:
            return default
        try:
            if len(text) > LONGEST:
                raise Refused(f"must have at most {LONGEST:,} characters")
            return read(text.strip())
        except Refused as error:
            self._keep(Problem(code, key, f"is {text[:80]!r}, {error}"))
            return default

    def names(self, prefix: str) -> list[str]:
        """The names that begin so, in order, for annotations whose names say what they are about."""
        return sorted(name for name in self._values if name.startswith(prefix))

    def protection(self, name: str, read: Callable[[str], T], none: D) -> T | D:
        """As `value`, of one that protects what is served: without it nothing may be. An empty one asks for nothing."""

        def or_none(text: str) -> T | D:
            return read(text) if text else none

        return self.value(name, or_none, none, UNPROTECTED)

    def refuse(self, name: str, detail: str, code: str = "AnnotationInvalid") -> None:
        """Keeps what is wrong with an annotation that can be read by itself."""
        self._read.add(name)
        key, _ = self._values.get(name, (name, ""))
        self._keep(Problem(code, key, detail))

    def _keep(self, problem: Problem) -> None:
        self.problems.append(problem)
        self.unprotected |= problem.code == UNPROTECTED

    def unread(self) -> list[tuple[str, str]]:
        """Name and key of all that nobody has asked for, in the order of their keys."""
        left = [(name, key) for name, (key, _) in self._values.items() if name not in self._read]
        return sorted(left, key=lambda one: one[1])


def key_of(annotations: Labels, name: str) -> str:
    """The full name of the annotation that counts; the name itself if there is none."""
    keys = {key for key, _ in annotations}
    return next((prefix + name for prefix in ANNOTATION_PREFIXES if prefix + name in keys), name)


def flag(text: str) -> bool:
    """A switch."""
    if text.lower() not in ("true", "false"):
        raise Refused('must be "true" or "false"')
    return text.lower() == "true"


def number(least: int, most: int) -> Callable[[str], int]:
    """A whole number within bounds."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 12 and least <= int(text) <= most):
            raise Refused(f"must be a whole number from {least} to {most}")
        return int(text)

    return read


def one_of(*choices: str) -> Callable[[str], str]:
    """One of some words."""

    def read(text: str) -> str:
        if text not in choices:
            raise Refused(f"must be one of {', '.join(choices)}")
        return text

    return read


def listed(text: str) -> tuple[str, ...]:
    """Words between commas, without those that are empty."""
    return tuple(word for word in (one.strip() for one in text.split(",")) if word)
