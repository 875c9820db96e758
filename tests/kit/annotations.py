"""Annotations in tests: what an Ingress with some asks for, and what is said of them."""

from __future__ import annotations

from aggregator.traffic.annotations.settings import Settings, settings

PREFIX = "nginx.ingress.kubernetes.io/"


def asked(**annotations: str) -> Settings:
    """The settings of an Ingress with annotations by their names, with `_` for `-`; they must be sound."""
    found, problems = settings(_labels(annotations))
    assert problems == ()
    return found


def told(**annotations: str) -> list[tuple[str, str]]:
    """(code, name) of what is said of them."""
    return [(one.code, one.annotation.removeprefix(PREFIX)) for one in settings(_labels(annotations))[1]]


def left(**annotations: str) -> Settings:
    """The settings that are left of annotations with faults."""
    found, problems = settings(_labels(annotations))
    assert problems != ()
    return found


def _labels(annotations: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((PREFIX + name.replace("_", "-"), value) for name, value in annotations.items())
