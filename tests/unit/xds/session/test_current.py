"""Content that is made anew each time it is asked for: a client that holds a version that is still good keeps it."""

from __future__ import annotations

import pytest

from tests.unit.xds.session.model import Answer, DeltaClient, Reading, View, World, resource, version
from xds.session.on_demand import OnDemand
from xds.session.requests import DeltaRequest

TYPE = "type.googleapis.com/istio.workload.Workload"
MADE_BEFORE = version("own", "made before")


def ask(client: DeltaClient, *names: str, **held: str) -> list[Answer]:
    client.send(DeltaRequest(TYPE, names, initial_resource_versions=held))
    return client.poll()


def connected(view: View, *, wildcard: bool = False) -> DeltaClient:
    """A client that comes back with a version that is not the present one."""
    client = DeltaClient(World({TYPE: view}))
    ask(client, *(() if wildcard else ("own",)), own=MADE_BEFORE)
    return client


def told(client: DeltaClient) -> dict[str, str]:
    """What the client was sent of the name, by the last response."""
    client.ack_all()
    return client.of(TYPE).texts


def good(text: str = "made now") -> View:
    view = View({"own": text})
    view.good.add(("own", MADE_BEFORE))
    return view


@pytest.mark.parametrize("wildcard", [False, True])
def test_a_client_that_holds_a_good_version_is_not_sent_another(wildcard: bool) -> None:
    client = connected(good(), wildcard=wildcard)
    assert [response.texts for response in client.all] == ([{}] if wildcard else [])


@pytest.mark.parametrize("wildcard", [False, True])
def test_a_client_that_holds_one_that_is_not_is_sent_the_present_one(wildcard: bool) -> None:
    client = connected(View({"own": "made now"}), wildcard=wildcard)
    assert told(client) == {"own": "made now"}


def test_none_is_made_for_a_client_that_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(Reading, "get", lambda _, name: asked.append(name))
    connected(good())
    assert asked == []


def test_a_change_is_sent_when_it_comes() -> None:
    view = good()
    client = connected(view)
    view.good.clear()
    view.change(own="renewed")
    client.poll()
    assert told(client) == {"own": "renewed"}


def test_a_client_that_asks_again_is_sent_the_present_one() -> None:
    """It has lost what it held: why else would it ask."""
    client = connected(good())
    ask(client, "own")
    assert told(client) == {"own": "made now"}


def test_while_the_content_is_partial_a_good_version_stays_and_is_judged_again_when_it_is_settled() -> None:
    view = good()
    view.state = "partial"
    client = connected(view)
    assert client.all == []
    view.good.clear()
    view.state = "settled"
    client.poll()
    assert told(client) == {"own": "made now"}


def test_what_is_final_is_judged_once_though_the_content_is_partial() -> None:
    view = good()
    view.state = "partial"
    view.final.add("own")
    client = connected(view)
    view.good.clear()
    view.change(own="renewed")
    client.poll()
    assert told(client) == {"own": "renewed"}


def test_other_names_are_told_as_ever() -> None:
    view = good()
    view.content["other"] = resource("other", "text")
    held = {"own": MADE_BEFORE, "other": version("other", "old"), "gone": version("gone", "old")}
    (response,) = ask(DeltaClient(World({TYPE: view})), "own", "other", "gone", **held)
    assert response.texts == {"other": "text"}
    assert response.removed == ["gone"]


def test_a_good_version_of_a_name_on_demand_is_kept_and_its_changes_are_told() -> None:
    reading = Reading(good())
    on_demand = OnDemand(reading, frozenset[str]().__contains__)
    assert on_demand.current("own", MADE_BEFORE)
    renewed = resource("own", "renewed")
    reading.changed = {"own": renewed, "other": renewed}
    assert on_demand.take().changes == {"own": renewed}
