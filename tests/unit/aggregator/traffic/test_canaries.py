"""Canaries: which rules they take part in, and what is said of those that take part in none."""

from __future__ import annotations

from typing import Any

from aggregator.traffic.rules import Rule
from tests.kit import manifests as m
from tests.kit.world import World

OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
SHOP = "shop.example"


def world_of(*manifests: m.Manifest) -> World:
    world = World()
    world.apply("alpha", m.service("a/web"), m.service("a/next"), m.service("b/next"), *manifests)
    world.step()
    return world


def main(name: str = "a/main", host: str = SHOP, **fields: Any) -> m.Manifest:
    return m.ingress(name, host, "web", **fields)


def canary(name: str = "a/canary", host: str = SHOP, service: str = "next", **fields: Any) -> m.Manifest:
    annotations = {"canary": "true", "canary-weight": "10", **fields.pop("annotations", {})}
    return m.ingress(name, host, service, annotations=annotations, **fields)


def rules(world: World, host: str = SHOP) -> dict[str, Rule]:
    """The rules of a host by their paths."""
    found = world.graph.values(world.pipeline.hosts.hosts)
    return {rule.path: rule for rule in found[host].rules} if host in found else {}


def taking(world: World, path: str = "/") -> str:
    """The backend of the canary that takes part in a rule."""
    found = rules(world)[path].canary
    return found.backend if found is not None else ""


def told(world: World) -> list[tuple[str, str, str]]:
    """(code, Ingress, field) of every finding."""
    return [(one.code, "/".join(one.object[2:]), one.field) for one in world.findings()]


FIELD = "spec.rules[0].http.paths[0]"


def test_a_canary_takes_part_in_the_rule_with_its_path_and_no_other() -> None:
    world = world_of(main(), main("a/more", path="/x"), canary(path="/x"))
    assert (taking(world), taking(world, "/x")) == ("", "ing|a|next|80")
    assert told(world) == []


def test_a_canary_takes_no_part_where_it_would_be_open_to_whom_it_keeps_out() -> None:
    inside = {"whitelist-source-range": "10.0.0.0/8"}
    world = world_of(main(), canary(annotations=inside))
    assert taking(world) == ""
    assert told(world) == [("ProtectionInvalid", "a/canary", FIELD)]
    others = {"denylist-source-range": "10.0.0.0/8"}
    for asked, backend in ((inside, "ing|a|next|80"), (others, "")):
        world.apply("alpha", main(annotations=asked))
        world.step()
        assert taking(world) == backend


def test_a_canary_without_a_protection_of_its_own_has_that_of_the_rule() -> None:
    assert taking(world_of(main(annotations={"denylist-source-range": "10.0.0.0/8"}), canary())) == "ing|a|next|80"


def test_a_canary_whose_protection_means_nothing_takes_no_part() -> None:
    wrong = {"whitelist-source-range": "x"}
    assert taking(world_of(main(annotations=wrong), canary(annotations=wrong))) == ""


def test_a_canary_has_no_rule_of_its_own_whatever_its_age() -> None:
    world = world_of(main(created=NEW), canary(created=OLD))
    assert rules(world)["/"].backend == "ing|a|web|80"
    assert taking(world) == "ing|a|next|80"
    assert told(world) == []


def test_a_canary_takes_nothing_from_rules_of_other_namespaces() -> None:
    world = world_of(main(), canary("b/canary"))
    assert taking(world) == ""
    assert told(world) == [("CanaryHasNoMain", "b/canary", FIELD)]
    world.apply("alpha", canary())
    world.step()
    assert taking(world) == "ing|a|next|80"


def test_a_canary_without_a_rule_takes_part_in_nothing_and_is_told_until_there_is_one() -> None:
    world = world_of(main(), canary(path="/x"))
    assert list(rules(world)) == ["/"]
    assert told(world) == [("CanaryHasNoMain", "a/canary", FIELD)]
    world.apply("alpha", main("a/more", path="/x"))
    world.step()
    assert (taking(world, "/x"), told(world)) == ("ing|a|next|80", [])


def test_a_canary_alone_makes_no_host() -> None:
    world = world_of(canary(secret="t", spec={"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}))
    assert rules(world) == {}
    assert told(world) == [("CanaryHasNoMain", "a/canary", FIELD)]


def test_a_path_of_another_kind_is_another_path() -> None:
    world = world_of(main(path="/x"), canary(path="/x", path_type="Exact"))
    assert taking(world, "/x") == ""
    assert told(world) == [("CanaryHasNoMain", "a/canary", FIELD)]


def test_of_two_canaries_the_first_in_order_takes_part_and_the_other_comes_forward() -> None:
    first, second = canary("a/one"), canary("a/two", service="web")
    for order in ((first, second), (second, first)):
        world = world_of(main(), *order)
        assert taking(world) == "ing|a|next|80"
        assert told(world) == [("CanaryClaimed", "a/two", FIELD)]
        world.delete("alpha", first)
        world.step()
        assert (taking(world), told(world)) == ("ing|a|web|80", [])


def test_a_canary_gives_the_host_no_certificate_and_disputes_none() -> None:
    world = world_of(main(secret="mine"), canary(secret="other"))
    found = world.graph.values(world.pipeline.hosts.hosts)[SHOP]
    assert found.tls == ("alpha", "TLSSecret", "a", "mine")
    assert [code for code, *_ in told(world)] == ["TlsSecretNotFound"]
    assert world_of(main(), canary(secret="other")).graph.values(world.pipeline.hosts.hosts)[SHOP].tls is None


def test_how_requests_are_treated_is_said_by_the_ingress_of_the_rule() -> None:
    own = {"timeout": "7", "backend-protocol": "GRPC"}
    world = world_of(main(annotations={"timeout": "5"}), canary(annotations=own))
    rule = rules(world)["/"]
    assert rule.settings.timeouts.whole == 5
    assert taking(world) == "ing|a|next|80|grpc"


def test_a_canary_whose_host_has_regular_expressions_is_compared_as_one() -> None:
    world = world_of(main(path="/x.*", path_type="ImplementationSpecific", annotations={"use-regex": "true"}))
    world.apply("alpha", canary(path="/x.*", path_type="ImplementationSpecific", annotations={"use-regex": "true"}))
    world.step()
    assert taking(world, "/x.*") == "ing|a|next|80"


def test_a_canary_whose_backend_is_missing_is_told_as_any_other() -> None:
    world = world_of(main(), canary(service="gone"))
    assert told(world) == [("BackendNotFound", "a/canary", FIELD)]


def test_a_canary_of_a_rule_with_conditions_has_the_same_conditions() -> None:
    annotations = {"match-method": "POST"}
    world = world_of(main(), main("a/post", annotations=annotations), canary(annotations=annotations))
    hosts = world.graph.values(world.pipeline.hosts.hosts)
    post, other = hosts[SHOP].rules
    assert (post.canary is not None, other.canary) == (True, None)


# Cost.


def test_a_canary_changes_its_host_alone() -> None:
    world = world_of(main(), *(main(f"a/i{number}", f"h{number}.example") for number in range(50)), canary())
    world.apply("alpha", canary(annotations={"canary-weight": "20"}))
    assert world.step().evaluated <= 8
