"""Whatever happens in whatever order, a client ends with the content, and nothing forbidden happens on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import pytest
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.unit.xds.session.model import Answer, Client, DeltaClient, SotwClient, View, World
from xds.messages.authorization import AUTHORIZATION_TYPE
from xds.messages.workload import ADDRESS_TYPE
from xds.session.actions import Rejected
from xds.session.ordering import Order

NAMES = ("a", "b", "c", "d", "e")
TEXTS = ("one", "two", "three", "bad one", "bad two")
POLICIES = st.dictionaries(st.sampled_from(("p", "q", "r")), st.sampled_from(("one", "two")))
REFERENCES = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(("p", "q", "r")))
# A budget of seconds, at which each fault the sessions ever had was found.
SOME = settings(max_examples=50, stateful_step_count=15, deadline=None)


def is_bad(text: str) -> bool:
    """What the clients here reject."""
    return text.startswith("bad")


class Worlds(RuleBasedStateMachine):
    """A client that rejects some content, with or without saying what, and a world that changes under it."""

    make_client: ClassVar[type[Client]]
    order = Order()

    def __init__(self) -> None:
        super().__init__()
        self.view = View()
        self.client = self.make_client(World({ADDRESS_TYPE: self.view}), self.order)
        self.seen = 0
        self.isolated: set[tuple[str, str]] = set()
        """What was reported as rejected on this stream."""
        self.claims: dict[str, str] = {}
        """What the client held when it connected and nobody has touched since."""

    # What the client does with a response.

    def answer(self, index: int, *, naming: bool) -> None:
        self.nothing_rejected_is_sent_again()
        response = self.client.inbox[index % len(self.client.inbox)]
        bad = [name for name, text in response.texts.items() if is_bad(text)]
        if not bad:
            self.client.ack(response)
        elif naming:
            self.client.nack("; ".join(f"{name}: it is bad" for name in bad), response, bad=bad)
        else:
            self.client.nack("something is bad", response)
        for action in self.client.heard:
            if isinstance(action, Rejected) and action.name:
                text = response.texts[action.name]
                assert is_bad(text), "a rejection must not harm another resource"
                self.isolated.add((action.name, text))
        self.client.heard.clear()

    @invariant()
    def nothing_rejected_is_sent_again(self) -> None:
        for response in self.client.all[self.seen :]:
            assert not self.isolated & set(response.texts.items())
            self.check(response)
        self.seen = len(self.client.all)

    @invariant()
    def what_the_client_is_said_to_hold_it_holds(self) -> None:
        held, present = self.client.of(ADDRESS_TYPE).texts, self.view.texts
        for name in self.client.session.held(ADDRESS_TYPE, self.view.content):
            assert held.get(name) == present[name]

    def check(self, response: Answer) -> None:
        """More that must hold for every response."""

    def finish(self) -> None:
        """Let everything be answered."""
        self.view.state = "settled"
        self.client.poll(advance=1.0)
        rounds = 0
        while self.client.inbox:
            self.answer(0, naming=rounds % 2 == 0)
            rounds += 1
            assert rounds < 200, "no end of responses"
        assert self.client.poll(advance=1.0) == []


class Wildcards(Worlds):
    """A wildcard subscription through changes, rejections and reconnections."""

    @initialize(content=st.dictionaries(st.sampled_from(NAMES), st.sampled_from(TEXTS)))
    def begin(self, content: dict[str, str]) -> None:
        self.view.change(content)
        self.view.state = "unknown"
        self.subscribe()

    def subscribe(self) -> None:
        self.claims = dict(self.client.of(ADDRESS_TYPE).texts)
        self.client.subscribe(ADDRESS_TYPE)

    @rule(changes=st.dictionaries(st.sampled_from(NAMES), st.one_of(st.none(), st.sampled_from(TEXTS)), min_size=1))
    def content_changes(self, changes: dict[str, str | None]) -> None:
        changes = {name: text for name, text in changes.items() if text is not None or name in self.view.content}
        for name in changes:
            self.claims.pop(name, None)
        self.view.change(changes)

    @rule()
    def poll(self) -> None:
        self.client.poll()

    @rule(state=st.sampled_from(["partial", "settled"]))
    def knowledge_grows(self, state: str) -> None:
        assume(self.view.state != "settled")
        self.view.state = "partial" if state == "partial" else "settled"
        self.client.poll()

    @precondition(lambda self: self.client.inbox)
    @rule(naming=st.booleans())
    def client_answers(self, naming: bool) -> None:
        self.answer(0, naming=naming)

    @rule(partial=st.booleans())
    def client_reconnects(self, partial: bool) -> None:
        self.client.session.close()
        self.client.connect()
        self.isolated.clear()
        if partial:
            self.view.state = "partial"
        self.subscribe()

    def check(self, response: Answer) -> None:
        if isinstance(self.client, DeltaClient):
            for name, text in response.texts.items():
                assert self.claims.get(name) != text, "the client had said that it holds this"
            if self.view.state == "partial":
                for name in [*response.texts, *response.removed]:
                    assert name not in self.claims, "a partial view must not touch what the client holds"

    def teardown(self) -> None:
        if not self.client.named:
            return
        self.finish()
        held = self.client.of(ADDRESS_TYPE).texts
        for name, text in self.view.texts.items():
            if is_bad(text):
                assert not is_bad(held.get(name, ""))
                assert self.client.session.rejected[ADDRESS_TYPE, name].version == self.view.content[name].version
            else:
                assert held.get(name) == text
                assert (ADDRESS_TYPE, name) not in self.client.session.rejected
        assert held.keys() <= self.view.texts.keys()
        good = {name for name, text in self.view.texts.items() if not is_bad(text)}
        assert self.client.session.held(ADDRESS_TYPE, self.view.content) == good
        assert self.client.session.acknowledged[ADDRESS_TYPE] == self.client.world.views[ADDRESS_TYPE].revision


class Names(Worlds):
    """Subscriptions by name, beside a wildcard that comes and goes."""

    @initialize(
        content=st.dictionaries(st.sampled_from(NAMES), st.sampled_from(TEXTS)), names=st.sets(st.sampled_from(NAMES))
    )
    def begin(self, content: dict[str, str], names: set[str]) -> None:
        self.view.change(content)
        self.wild = False
        self.names: set[str] = set()
        self.subscribe(names or {"*"})

    @rule(names=st.sets(st.sampled_from((*NAMES, "*")), min_size=1))
    def subscribe(self, names: set[str]) -> None:
        self.wild = self.wild or "*" in names
        self.names |= names - {"*"}
        if isinstance(self.client, DeltaClient):  # as if the client had forgotten what it asks for
            self.forget(lambda name: name not in names and "*" not in names)
        self.client.subscribe(ADDRESS_TYPE, *sorted(names))

    @rule(names=st.sets(st.sampled_from((*NAMES, "*")), min_size=1))
    def unsubscribe(self, names: set[str]) -> None:
        self.wild = self.wild and "*" not in names
        given_up = names & self.names
        self.names -= names
        if isinstance(self.client, DeltaClient):  # it does not know whether the wildcard still covers them
            self.forget(lambda name: (self.wild and name not in given_up) or name in self.names)
        else:
            self.forget(lambda name: self.wild or name in self.names)
        self.client.unsubscribe(ADDRESS_TYPE, *sorted(names))

    def forget(self, keep: Callable[[str], bool]) -> None:
        held = self.client.of(ADDRESS_TYPE)
        held.texts = {name: text for name, text in held.texts.items() if keep(name)}
        held.versions = {name: version for name, version in held.versions.items() if keep(name)}

    @rule(changes=st.dictionaries(st.sampled_from(NAMES), st.one_of(st.none(), st.sampled_from(TEXTS)), min_size=1))
    def content_changes(self, changes: dict[str, str | None]) -> None:
        changes = {name: text for name, text in changes.items() if text is not None or name in self.view.content}
        self.view.change(changes)
        self.client.poll()

    @precondition(lambda self: self.client.inbox)
    @rule(naming=st.booleans())
    def client_answers(self, naming: bool) -> None:
        self.answer(0, naming=naming)

    def teardown(self) -> None:
        if not self.client.named:
            return
        self.finish()
        held = self.client.of(ADDRESS_TYPE).texts
        said = self.client.session.held(ADDRESS_TYPE, self.view.content)
        for name in NAMES:
            text = self.view.texts.get(name)
            wanted = self.wild or name in self.names
            assert (name in said) == (wanted and text is not None and not is_bad(text))
            if not wanted:
                continue
            if text is not None and is_bad(text):
                assert not is_bad(held.get(name, ""))
            elif text is not None:
                assert held.get(name) == text
            elif self.wild or isinstance(self.client, DeltaClient):
                assert name not in held


class References(RuleBasedStateMachine):
    """A ztunnel's two types: addresses refer to policies, and every pass is consistent in itself.

    The client takes responses in the order they come, as clients do, and at any pace.
    """

    make_client: ClassVar[type[Client]]

    def __init__(self) -> None:
        super().__init__()
        self.views = {ADDRESS_TYPE: View(), AUTHORIZATION_TYPE: View()}
        self.client = self.make_client(World(self.views))

    @initialize(policies=POLICIES, addresses=REFERENCES)
    def begin(self, policies: dict[str, str], addresses: dict[str, str]) -> None:
        self.next_pass(policies, addresses)
        self.subscribe()

    def subscribe(self) -> None:
        self.client.subscribe(ADDRESS_TYPE)
        self.client.subscribe(AUTHORIZATION_TYPE)

    @rule(policies=POLICIES, addresses=REFERENCES)
    def next_pass(self, policies: dict[str, str], addresses: dict[str, str]) -> None:
        """The world becomes exactly this; no address refers to a policy that is not there."""
        texts = {name: reference for name, reference in addresses.items() if reference in policies}
        for type_url, wanted in ((AUTHORIZATION_TYPE, policies), (ADDRESS_TYPE, texts)):
            gone = {name: None for name in self.views[type_url].texts if name not in wanted}
            self.views[type_url].change({**wanted, **gone})

    @rule()
    def poll(self) -> None:
        self.client.poll()

    @precondition(lambda self: self.client.inbox)
    @rule()
    def client_answers(self) -> None:
        response = self.client.inbox[0]
        policies = self.client.of(AUTHORIZATION_TYPE).texts
        addresses = self.client.of(ADDRESS_TYPE).texts
        if response.type_url == ADDRESS_TYPE:
            assert set(response.texts.values()) <= policies.keys(), "a reference before its target"
        else:
            assert not set(response.removed) & set(addresses.values()), "a target removed while something refers to it"
        self.client.ack(response)

    @precondition(lambda self: isinstance(self.client, DeltaClient))
    @rule(partial=st.booleans())
    def client_reconnects(self, partial: bool) -> None:
        self.client.session.close()
        self.client.connect()
        for view in self.views.values():
            view.state = "partial" if partial else "settled"
        self.subscribe()

    @rule()
    def knowledge_is_complete(self) -> None:
        for view in self.views.values():
            view.state = "settled"
        self.client.poll()

    def teardown(self) -> None:
        if not self.client.named:
            return
        self.knowledge_is_complete()
        self.client.poll(advance=1.0)
        rounds = 0
        while self.client.inbox:
            self.client_answers()
            rounds += 1
            assert rounds < 100, "no end of responses"
        for type_url, view in self.views.items():
            assert self.client.of(type_url).texts == view.texts
            assert self.client.session.acknowledged[type_url] == view.revision


class DeltaWildcards(Wildcards):
    make_client: ClassVar[type[Client]] = DeltaClient


class SotwWildcards(Wildcards):
    make_client: ClassVar[type[Client]] = SotwClient


class DeltaNames(Names):
    make_client: ClassVar[type[Client]] = DeltaClient


class SotwNames(Names):
    make_client: ClassVar[type[Client]] = SotwClient


class DeltaReferences(References):
    make_client: ClassVar[type[Client]] = DeltaClient


class SotwReferences(References):
    make_client: ClassVar[type[Client]] = SotwClient


@pytest.mark.parametrize("worlds", [DeltaWildcards, SotwWildcards])
def test_a_wildcard_client_ends_with_the_content_but_for_what_it_rejects(worlds: type[Wildcards]) -> None:
    run_state_machine_as_test(worlds, settings=SOME)


@pytest.mark.parametrize("worlds", [DeltaNames, SotwNames])
def test_a_client_that_names_resources_ends_with_their_content(worlds: type[Names]) -> None:
    run_state_machine_as_test(worlds, settings=SOME)


@pytest.mark.parametrize("worlds", [DeltaReferences, SotwReferences])
def test_no_client_ever_holds_a_reference_without_its_target(worlds: type[References]) -> None:
    run_state_machine_as_test(worlds, settings=SOME)
