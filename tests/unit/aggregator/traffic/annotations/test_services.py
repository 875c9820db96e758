"""Services that annotations name."""

from __future__ import annotations

import pytest

from aggregator.traffic.annotations.services import NONE, Named, Services, at_home, elsewhere
from tests.kit.annotations import asked, left


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("web", Named("web", "", 80)),
        ("web:90", Named("web", "", 90)),
        ("shop/web", Named("web", "shop", 80)),
        ("shop/web:1", Named("web", "shop", 1)),
    ],
)
def test_who_gets_copies(text: str, named: Named) -> None:
    assert asked(mirror_target_service=text).services == Services(named, 100)


@pytest.mark.parametrize(
    "text", ["", "/web", "shop/", "web:", "web:0", "web:99999", "a.b", "Web", "a/b/c", "a|b", "http://x"]
)
def test_what_is_no_service_gets_none(text: str) -> None:
    assert left(mirror_target_service=text).services == NONE


def test_a_share_of_requests_is_copied() -> None:
    assert asked(mirror_target_service="web", mirror_percentage="7").services.percent == 7
    assert left(mirror_target_service="web", mirror_percentage="101").services.percent == 100


def test_services_that_share_requests() -> None:
    found = asked(destination="80% a.shop.svc.cluster.local:90\n\n 20% b.shop.svc ").services
    assert found.destination == ((Named("a", "shop", 90), 80), (Named("b", "shop", 80), 20))
    assert asked(destination="a.shop.svc").services.destination == ((Named("a", "shop", 80), 100),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "50% a.shop.svc\n49% b.shop.svc",
        "a.shop.svc\nb.shop.svc",
        "100% a.shop.svc v1",
        "100%",
        "100% a.DEFAULT-GROUP.public.nacos",
        "-1% a\n101% b",
        "100% a.shop.pod",
        "100% a.shop.svc:x",
        "\n".join(f"{5 if number else 20}% s{number}.shop.svc" for number in range(17)),
    ],
)
def test_shares_that_are_none_are_not_taken(text: str) -> None:
    assert left(destination=text).services == NONE


def test_services_of_other_namespaces_are_left_out_and_told() -> None:
    annotations = (("higress.io/mirror-target-service", "crew/web"), ("higress.io/destination", "a.crew.svc"))
    named = asked(mirror_target_service="crew/web", destination="50% a.shop.svc\n50% b.crew.svc").services
    assert at_home(named, "shop") == Services()
    assert [problem.annotation for problem in elsewhere(named, "shop", annotations)] == [key for key, _ in annotations]
    mine = asked(mirror_target_service="crew/web", destination="b.crew.svc").services
    assert at_home(mine, "crew") == mine
    assert list(elsewhere(mine, "crew", annotations)) == []
