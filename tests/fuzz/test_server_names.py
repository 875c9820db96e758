"""Whatever visitors write as the name of a host, and whatever happens meanwhile: each gets what is his, or nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st

from tests.kit.fuzzing import bounded, fuzz
from tests.kit.named_secrets import Gateway, Secrets
from xds.messages.downstream_tls import NO_NAME
from xds.session.server_names import HOLD, is_server_name

pytestmark = pytest.mark.slow

HOSTS = ("a.example", "b.example", "example", "x.a.example")
BEHIND = ("*.example", "*.a.example", NO_NAME)
ODD = ["A.example", "a.example.", "*.example", "_a.example", "", ".", "é.example", "a" * 254, "roots/a/b", "a\0.b"]
NAMES = (
    st.sampled_from((*HOSTS, "c.example", "c.a.example", "c", NO_NAME, "kubernetes://a/b", *ODD))
    | st.text(max_size=300).filter(lambda name: name != "*")  # with that a gateway would ask for everything
    | st.from_regex(r"[a-z0-9-]{1,4}\.(a\.)?example", fullmatch=True)
)
TEXTS = st.sampled_from(("one", "two", "bad", None))
EVENTS = st.lists(
    st.tuples(st.just("visit"), st.lists(NAMES, min_size=1, max_size=8))
    | st.tuples(st.just("change"), st.dictionaries(st.sampled_from((*HOSTS, *BEHIND)), TEXTS, min_size=1, max_size=3))
    | st.tuples(st.just("wait"), st.sampled_from((0.1, 1.0, HOLD)))
    | st.tuples(st.just("await"), st.sampled_from(HOSTS))
    | st.tuples(st.just("connect"), st.none()),
    max_size=40,
)
MOST = 6


def rightful(gateway: Gateway, name: str) -> str | None:
    """What a visitor who asks for a name is to be shown."""
    content = {key: one.body.tobytes() for key, one in gateway.view.content.items()}
    found = [name]
    if is_server_name(name):
        found += [f"*.{name.partition('.')[2]}", NO_NAME]
    for key in found:
        if key in content:
            return next(text for text in ("one", "two", "bad") if text.encode() in content[key])
    return None


def check(events: list[tuple[str, Any]]) -> None:
    gateway = Gateway(Secrets(), most=MOST)
    gateway.refusing.add("bad")
    for kind, what in events:
        match kind:
            case "visit":
                gateway.visit(*what)
            case "change":
                gateway.view.change(what)
            case "await":
                gateway.awaited ^= {what}
            case "connect":
                gateway.session.close()
                gateway.connect()
        gateway.poll(what if kind == "wait" else 0.0)
    for _ in range(3):
        gateway.poll(HOLD)
    assert gateway.asking == set()
    for name, text in gateway.held.items():
        # A certificate that it refuses leaves a gateway what it had.
        assert text == rightful(gateway, name) or rightful(gateway, name) == "bad", name
    assert len([name for name in gateway.held if name not in gateway.view.content]) <= MOST


def test_any_names_in_any_order_of_events_leave_a_gateway_with_what_is_right_and_no_visitor_waiting() -> None:
    assert fuzz(check, EVENTS, share=0.8)


def test_whether_a_host_could_be_called_so_is_told_at_once() -> None:
    def told(name: str) -> None:
        size = len(name.encode(errors="replace"))
        if bounded(lambda: is_server_name(name), size):
            assert name.isascii()
            assert name == name.lower()
            assert len(name) < 254

    assert fuzz(told, NAMES | st.text("a-.", max_size=100_000), share=0.2)
