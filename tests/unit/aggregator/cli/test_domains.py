from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import jsonschema
import msgspec
import pytest
import yaml
from typer.testing import CliRunner

from aggregator.cli.main import app
from aggregator.operate.domain_list import Details, Domain, DomainList, Flaw, Path, Told, schema
from tests.kit.admin_replica import AdminReplica
from tests.kit.domains import domain

FORMATS = ("table", "wide", "json", "yaml", "name")
WELL = tuple(domain(f"{name}.example.org") for name in ("a", "b", "c", "d", "e"))
BAD = domain("bad.example.org", state="NoCertificate", reason="Secret shop/web: no good pair", certificate_expires=None)


class Replica(AdminReplica):
    """The admin port of a control plane that holds these domains, and tells `at_a_time` of them."""

    def __init__(self, *domains: Domain, at_a_time: int = 1000, name: str = "isthmus-0") -> None:
        super().__init__()
        self.domains = [msgspec.structs.replace(one, replica=name) for one in domains]
        self.at_a_time = at_a_time

    def page(self, target: str) -> tuple[int, bytes]:
        url = urlsplit(target)
        if url.path != "/domains":
            host = unquote(url.path.removeprefix("/domains/"))
            for one in self.domains:
                if one.host == host:
                    return 200, msgspec.json.encode(one)
            return 404, msgspec.json.encode({"error": "none", "domains": [one.host for one in self.domains[:2]]})
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        names = [name for name in query.get("name", "").split(",") if name]
        states = [state for state in query.get("state", "").split(",") if state]
        found = sorted(
            (
                one
                for one in self.domains
                if one.host > query.get("after", "")
                and (not names or one.host in names)
                and (not states or one.state in states)
            ),
            key=lambda one: one.host,
        )
        known = {one.host for one in self.domains}
        page = found[: self.at_a_time]
        content = DomainList(
            items=tuple(page),
            total=len(self.domains),
            unknown=tuple(name for name in names if name not in known),
            after=page[-1].host if len(found) > len(page) else "",
        )
        return 200, msgspec.json.encode(content)


@pytest.fixture
def replica() -> Iterator[Replica]:
    one = Replica(*WELL)
    yield one
    one.close()


@pytest.fixture
def other() -> Iterator[Replica]:
    one = Replica(*WELL, at_a_time=3, name="isthmus-1")
    yield one
    one.close()


def isthmus(*words: str, replicas: tuple[Replica, ...] = ()) -> Any:
    return CliRunner().invoke(app, ["domains", *(f"--admin={one.address}" for one in replicas), *words])


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("words", [(), ("get", "bad.example.org")])
def test_a_domain_that_needs_attention_ends_every_format_with_2(
    replica: Replica, form: str, words: tuple[str, ...]
) -> None:
    replica.domains.append(BAD)
    done = isthmus("-o", form, *words, replicas=(replica,))
    assert done.exit_code == 2
    who = "domain bad.example.org" if words else "1 of 6 domains"
    assert done.stderr == f"{who} needs attention (exit 2)\n"


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("words", [(), ("get", "a.example.org"), ("a.example.org",)])
def test_domains_that_are_well_end_every_format_with_0_and_no_note(
    replica: Replica, form: str, words: tuple[str, ...]
) -> None:
    done = isthmus(*words, "-o", form, replicas=(replica,))
    assert (done.exit_code, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("-o", "xml"), "--output"),
        (("a.example.org", "-o", "xml"), "--output"),
        (("--state", "Fine"), "--state: 'Fine' is no state; there are Served, "),
        (("--state", "Served", "--not-served"), "--not-served"),
        (("--not-served", "get", "a"), "go with the list"),
        (("--colour",), "No such option"),
        (("a", "--colour"), "No such option"),
        (("get",), "Missing argument"),
        (("get", "a", "b"), "unexpected extra argument"),
    ],
)
def test_wrong_usage_ends_with_64(words: tuple[str, ...], says: str) -> None:
    done = isthmus(*words)
    assert (done.exit_code, done.stdout) == (64, "")
    assert says in done.stderr


def test_a_control_plane_that_is_not_there_ends_with_69() -> None:
    done = isthmus("--admin", "127.0.0.1:1")
    assert (done.exit_code, done.stdout) == (69, "")
    assert done.stderr.startswith("isthmus: no control plane answers at 127.0.0.1:1")


@pytest.mark.parametrize("answer", [(200, b"<html>"), (200, b'{"kind":"Pod"}'), (500, b""), (404, b"{}")])
def test_whatever_does_not_tell_of_domains_ends_with_69(replica: Replica, answer: tuple[int, bytes]) -> None:
    replica.answer = answer
    done = isthmus(replicas=(replica,))
    assert (done.exit_code, done.stdout) == (69, "")
    assert done.stderr.startswith("isthmus: ")


def test_a_control_plane_that_repeats_its_pages_is_not_asked_for_ever(replica: Replica) -> None:
    page = DomainList(items=WELL[:1], total=1, after="a.example.org")
    replica.answer = (200, msgspec.json.encode(page))
    done = isthmus(replicas=(replica,))
    assert done.exit_code == 69
    assert len(replica.asked) == 2


def test_what_is_asked_for_is_picked_by_the_control_plane(replica: Replica) -> None:
    replica.domains.append(BAD)
    isthmus("--not-served", "a.example.org", "bad.example.org", replicas=(replica,))
    (asked,) = replica.asked
    query = parse_qs(urlsplit(asked).query)
    assert query["name"] == ["a.example.org,bad.example.org"]
    assert "Served" not in query["state"][0].split(",")
    assert "NoCertificate" in query["state"][0].split(",")


def test_options_stand_before_names_or_behind_them(replica: Replica) -> None:
    replica.domains.append(BAD)
    for words in (("-o", "name", "--not-served", "bad.example.org"), ("bad.example.org", "--not-served", "-o", "name")):
        assert isthmus(*words, replicas=(replica,)).stdout == "bad.example.org\n"


def test_pages_are_followed_to_the_end(replica: Replica) -> None:
    replica.at_a_time = 2
    done = isthmus("-o", "name", replicas=(replica,))
    assert done.stdout.splitlines() == [one.host for one in WELL]
    assert len(replica.asked) == 3


def test_pages_that_end_at_different_places_give_every_row_of_every_replica_once(
    replica: Replica, other: Replica
) -> None:
    replica.at_a_time = 2
    del other.domains[1]
    rows = isthmus("--no-headers", replicas=(replica, other)).stdout.splitlines()
    found = [(row.split()[0][0], row.split()[-2]) for row in rows]
    zero, one = "isthmus-0", "isthmus-1"
    assert found == [
        ("a", zero),
        ("a", one),
        ("b", zero),
        ("c", zero),
        ("c", one),
        ("d", zero),
        ("d", one),
        ("e", zero),
        ("e", one),
    ]


def test_a_host_that_no_ingress_names_is_told_beside_those_that_are_and_ends_with_64(
    replica: Replica, other: Replica
) -> None:
    done = isthmus("a.example.org", "x.example.org", "-o", "name", replicas=(replica,))
    assert (done.exit_code, done.stdout) == (64, "a.example.org\n")
    assert done.stderr == "isthmus: no Ingress names x.example.org\n"
    del other.domains[0]
    # One that another replica knows is known.
    assert isthmus("a.example.org", "-o", "name", replicas=(replica, other)).exit_code == 0
    done = isthmus("get", "x.example.org", replicas=(replica,))
    assert done.exit_code == 64
    assert done.stderr.endswith("no Ingress names x.example.org; there are: a.example.org, b.example.org\n")


def test_a_hundred_names_are_asked_for_in_parts(replica: Replica) -> None:
    names = [f"{'x' * 200}{number}.example.org" for number in range(100)]
    replica.domains += [domain(name) for name in names]
    done = isthmus(*names, "-o", "name", replicas=(replica,))
    assert sorted(done.stdout.splitlines()) == sorted(names)
    assert len(replica.asked) == 3
    assert max(map(len, replica.asked)) < 16 << 10


def test_a_replica_that_does_not_answer_is_told_once(replica: Replica) -> None:
    replica.at_a_time = 1
    done = isthmus("--admin=127.0.0.1:1", "--no-headers", replicas=(replica,))
    assert done.exit_code == 69
    assert len(done.stdout.splitlines()) == 5
    assert done.stderr.count("no control plane answers at 127.0.0.1:1") == 1


def test_json_and_yaml_say_the_same_and_keep_to_the_schema(replica: Replica) -> None:
    for words in ((), ("get", "a.example.org")):
        shown = json.loads(isthmus(*words, "-o", "json", replicas=(replica,)).stdout)
        assert yaml.safe_load(isthmus(*words, "-o", "yaml", replicas=(replica,)).stdout) == shown
        jsonschema.validate(shown, schema(), format_checker=jsonschema.FormatChecker())
        assert shown["kind"] == ("Domain" if words else "DomainList")


def test_a_wildcard_is_asked_for_by_its_name(replica: Replica) -> None:
    replica.domains.append(domain("*.example.org"))
    done = isthmus("get", "*.example.org", replicas=(replica,))
    assert done.exit_code == 0
    assert replica.asked == ["/domains/%2A.example.org"]


def test_what_clusters_and_proxies_say_is_one_cell_of_one_line(replica: Replica) -> None:
    hostile = domain(
        "x.example.org",
        state="Refused",
        reason="a\nb\x1b[31m",
        details=Details(
            paths=(Path("Prefix", "/\x1b[2J", "shop/web:80", found=True, ingress="shop/web"),),
            gateways=(Told("g\n1", acknowledged=False, refusal="no\r\n"),),
            findings=(Flaw("PathInvalid", "error", "Ingress shop/x", "spec", "\u202eevil", "Cure."),),
        ),
    )
    replica.domains = [hostile]
    for words in ((), ("get", "x.example.org"), ("-o", "wide"), ("-o", "name")):
        out = isthmus(*words, replicas=(replica,)).stdout
        assert all(line.isprintable() for line in out.splitlines()), words


def test_the_table_shows_state_certificate_activation_and_acknowledgements(replica: Replica) -> None:
    replica.domains = [
        domain("a.example.org", ingresses=("shop/a", "shop/b", "shop/c"), findings=3, acknowledged=1),
        domain("b.example.org", activation=None, changed=None, certificate_expires=None, gateways=0, acknowledged=0),
    ]
    lines = isthmus(replicas=(replica,)).stdout.splitlines()
    headers = "DOMAIN STATE INGRESS CERT-EXPIRES CHANGED ACTIVATION GATEWAYS FINDINGS REASON"
    assert " ".join(lines[0].split()) == headers
    one, other = (" ".join(line.split()) for line in lines[1:])
    assert one == "a.example.org Served shop/a +2 in 30d 2h ago 43ms 1/2 3 -"
    assert other == "b.example.org Served shop/web - - - 0/0 - -"
