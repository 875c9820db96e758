"""The reference of annotations: it says of each what the code says, of no other, and the code reads what it lists."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import aggregator.traffic.annotations as package
from aggregator.traffic.annotations.given import Given
from aggregator.traffic.annotations.refused import UNSUPPORTED, WITHOUT_EFFECT
from aggregator.traffic.annotations.settings import read, settings

REFERENCE = Path(__file__).parents[5] / "docs" / "reference" / "annotations.md"
ROW = re.compile(r"\| `([^`]+)` \| (.*?) \|", re.MULTILINE)


def rows() -> dict[str, str]:
    """Second column by first, of all tables."""
    found = ROW.findall(REFERENCE.read_text())
    assert len(dict(found)) == len(found), "an annotation is in there twice"
    return dict(found)


def honoured() -> dict[str, str]:
    """What each module says of the annotations it reads."""
    found: dict[str, str] = {}
    for module in pkgutil.iter_modules(package.__path__):
        own = getattr(importlib.import_module(f"{package.__name__}.{module.name}"), "ANNOTATIONS", {})
        assert not found.keys() & own.keys()
        found |= own
    return found


def test_the_reference_lists_what_there_is_and_what_there_is_not() -> None:
    assert rows() == {**honoured(), **WITHOUT_EFFECT, **UNSUPPORTED}


def test_all_that_is_read_is_said_to_be_and_all_that_is_said_to_be_is_read() -> None:
    exact = {name for name in honoured() if not name.endswith("*")}
    probes = {name: name.replace("*", "x") for name in honoured() if name.endswith("*")}
    given = Given(tuple((f"isthmus.io/{name}", "x") for name in probes.values()))
    read(given)
    assert given.read == exact | set(probes.values())


@pytest.mark.parametrize("name", sorted(WITHOUT_EFFECT))
def test_what_nobody_misses_is_no_problem(name: str) -> None:
    assert settings(((f"nginx.ingress.kubernetes.io/{name}", "x"),))[1] == ()


@pytest.mark.parametrize("name", sorted(UNSUPPORTED))
def test_what_is_not_there_is_told_with_what_to_do_instead(name: str) -> None:
    key = f"nginx.ingress.kubernetes.io/{name.replace('*', 'x')}"
    (problem,) = settings(((key, "x"),))[1]
    assert (problem.code, problem.annotation, problem.detail) == ("AnnotationUnsupported", key, UNSUPPORTED[name])


def test_what_nobody_knows_is_told() -> None:
    (problem,) = settings((("higress.io/no-such-thing", "x"),))[1]
    assert (problem.code, problem.annotation) == ("AnnotationUnknown", "higress.io/no-such-thing")
