"""Whatever annotations say: settings that can be told, each fault with its name, and keys that are read back."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from aggregator.traffic.annotations import (
    affinity,
    authentication,
    connections,
    error_pages,
    hashing,
    limits,
    source_ranges,
)
from aggregator.traffic.annotations.connections import of_text
from aggregator.traffic.annotations.settings import Settings, settings
from aggregator.traffic.backend_keys import backend_key
from aggregator.traffic.hosts import Host
from aggregator.traffic.ingress_secrets import InvalidUsers, users_of
from aggregator.traffic.rules import Rule
from aggregator.views.ingress_routes import scope
from tests.kit.fuzzing import bounded, fuzz
from tests.kit.hostile import damaged

pytestmark = pytest.mark.slow

NGINX = "nginx.ingress.kubernetes.io/"
SUBJECTS = (affinity, authentication, connections, error_pages, hashing, limits, source_ranges)
NAMES = sorted({name for subject in SUBJECTS for name in subject.ANNOTATIONS})
SOUND = [
    "10.0.0.0/8, 2001:db8::/32",
    "basic",
    "people",
    "http://asked.auth.svc:81/check?a=b",
    "https://$host/in?rd=$escaped_request_uri",
    "X-User, X-Groups",
    "cookie",
    "$request_uri${http_x}$cookie_c",
    "404,503",
    "HTTPS",
    "on",
    "8m",
    "TLSv1.2 TLSv1.3",
    "5",
    "true",
]
VALUES = st.sampled_from(SOUND) | st.text(max_size=60) | damaged(st.sampled_from(SOUND).map(str.encode)).map(
    lambda data: data.decode("utf-8", "replace")
)
ANNOTATIONS = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=12)
ORIGIN = ("alpha", "Ingress", "shop", "web")


def test_any_annotations_are_settings_that_can_be_told() -> None:
    def one(annotations: dict[str, str]) -> None:
        given = tuple(sorted((NGINX + name, value) for name, value in annotations.items()))
        found: Settings
        found, problems = bounded(lambda: settings(given))
        assert all(len(problem.detail) < 1_000 and problem.annotation.startswith(NGINX) for problem in problems)
        assert of_text(found.connections.text()) == found.connections
        key = backend_key("shop", "web", 80, found.connections)
        assert key.count("|") == (4 if found.connections.text() else 3)
        if found.policies.authentication.users is None:
            host = Host("a.example", (Rule("/", "Prefix", key, ORIGIN, found),), None, None)
            assert scope("a", host).data

    fuzz(one, ANNOTATIONS, share=0.7)


def test_any_users_are_lines_that_gateways_take_or_none() -> None:
    sound = b"ann:{SHA}" + b"A" * 27 + b"=\nbob:{SHA}" + b"B" * 27 + b"=\n"

    def one(data: bytes) -> None:
        try:
            users, flaw = bounded(lambda: users_of(data), len(data))
        except InvalidUsers as error:
            assert len(str(error)) < 200
            return
        names = [line.partition(":")[0] for line in users.lines.splitlines()]
        assert names and all(names) and len({*names}) == len(names)
        assert len(flaw) < 200

    fuzz(one, damaged(st.just(sound)) | st.binary(max_size=80), share=0.3)
