from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml
from typer.testing import CliRunner

from aggregator.cli.clusters import known_names
from aggregator.cli.main import app
from aggregator.operate.cluster_list import Cluster, ClusterList, schema
from tests.kit.admin_replica import AdminReplica
from tests.kit.clusters import cluster

FORMATS = ("table", "wide", "json", "yaml", "name")
WELL = (cluster("west", home=True), cluster("east"))
STALE = cluster("lab", state="Stale", reason="Pod: Connection refused")


class Replica(AdminReplica):
    """The admin port of a control plane that says what it is told to say."""

    def __init__(self, *clusters: Cluster) -> None:
        super().__init__()
        self.clusters = clusters

    def page(self, path: str) -> tuple[int, bytes]:
        if path == "/clusters":
            return 200, msgspec.json.encode(ClusterList(items=self.clusters))
        found = [one for one in self.clusters if path == f"/clusters/{one.cluster}"]
        if found:
            return 200, msgspec.json.encode(found[0])
        known = [one.cluster for one in self.clusters]
        return 404, msgspec.json.encode({"error": "no cluster", "clusters": known})


@pytest.fixture
def replica() -> Iterator[Replica]:
    one = Replica(*WELL)
    yield one
    one.close()


@pytest.fixture
def other() -> Iterator[Replica]:
    one = Replica(*(msgspec.structs.replace(each, replica="isthmus-1") for each in WELL))
    yield one
    one.close()


def isthmus(*words: str, **variables: str) -> Any:
    return CliRunner().invoke(app, ["clusters", *words], env=variables)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("words", [(), ("get", "lab")])
def test_a_cluster_that_needs_attention_ends_every_format_with_2(
    replica: Replica, form: str, words: tuple[str, ...]
) -> None:
    replica.clusters = (*WELL, STALE)
    done = isthmus(*words, "-o", form, "--admin", replica.address)
    assert done.exit_code == 2
    assert done.stderr == f"{'cluster lab' if words else '1 of 3 clusters'} needs attention (exit 2)\n"


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("words", [(), ("get", "east")])
def test_clusters_that_are_well_end_every_format_with_0_and_no_note(
    replica: Replica, form: str, words: tuple[str, ...]
) -> None:
    done = isthmus(*words, "-o", form, "--admin", replica.address)
    assert (done.exit_code, done.stderr) == (0, "")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("words", [(), ("get", "east")])
def test_a_control_plane_that_is_not_there_ends_every_format_with_69(form: str, words: tuple[str, ...]) -> None:
    done = isthmus(*words, "-o", form, "--admin", "127.0.0.1:1")
    assert (done.exit_code, done.stdout) == (69, "")
    assert done.stderr.startswith("isthmus: no control plane answers at 127.0.0.1:1: Connection refused; ")
    assert "--admin names another place" in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("-o", "xml"), "--output"),
        (("--admin", "nowhere"), "--admin: 'nowhere' has no port"),
        (("--timeout", "5"), "--timeout: '5' is not a duration"),
        (("--admin", "127.0.0.1:1", "--context", "home"), "leave out one of both"),
        (("--colour",), "No such option"),
        (("get",), "Missing argument"),
        (("get", "a", "b"), "unexpected extra argument"),
        (("get", "a", "--bad"), "No such option"),
        (("describe",), "No such command"),
        (("--watch", "get", "a"), "--watch: goes with the list alone"),
    ],
)
def test_wrong_usage_ends_with_64(words: tuple[str, ...], says: str) -> None:
    done = isthmus(*words)
    assert (done.exit_code, done.stdout) == (64, "")
    assert says in done.stderr


def test_a_name_there_is_not_ends_with_64_and_the_names_there_are(replica: Replica) -> None:
    done = isthmus("get", "wets", "--admin", replica.address)
    assert (done.exit_code, done.stdout) == (64, "")
    assert done.stderr == f"{replica.address}: no cluster wets; there are: west, east\n"


@pytest.mark.parametrize("answer", [(200, b"<html>"), (200, b'{"kind":"Pod"}'), (500, b""), (302, b"")])
def test_whatever_is_no_control_plane_ends_with_69(replica: Replica, answer: tuple[int, bytes]) -> None:
    replica.answer = answer
    done = isthmus("--admin", replica.address)
    assert (done.exit_code, done.stdout) == (69, "")
    assert replica.address in done.stderr


def test_json_and_yaml_say_the_same_and_keep_to_the_schema(replica: Replica) -> None:
    for words in ((), ("get", "east")):
        shown = json.loads(isthmus(*words, "-o", "json", "--admin", replica.address).stdout)
        assert yaml.safe_load(isthmus(*words, "-o", "yaml", "--admin", replica.address).stdout) == shown
        jsonschema.validate(shown, schema(), format_checker=jsonschema.FormatChecker())
        assert shown["kind"] == ("Cluster" if words else "ClusterList")


def test_names_alone_are_for_loops_in_shells(replica: Replica, other: Replica) -> None:
    done = isthmus("-o", "name", "--admin", replica.address, "--admin", other.address)
    assert done.stdout == "west\neast\n"


def test_several_replicas_have_a_row_each_and_are_compared(replica: Replica, other: Replica) -> None:
    other.clusters = (msgspec.structs.replace(other.clusters[0], endpoints=7), other.clusters[1])
    admins = ("--admin", replica.address, "--admin", other.address)
    rows = isthmus("--no-headers", *admins).stdout.splitlines()
    assert [(row.split()[0], row.split()[-2]) for row in rows] == [
        ("west", "isthmus-0"),
        ("west", "isthmus-1"),
        ("east", "isthmus-0"),
        ("east", "isthmus-1"),
    ]
    assert "they differ in endpoints" in isthmus("get", "west", *admins).stdout


def test_a_replica_that_does_not_answer_is_told_beside_what_the_others_say(replica: Replica) -> None:
    done = isthmus("--no-headers", "--admin", replica.address, "--admin", "127.0.0.1:1")
    assert done.exit_code == 69
    assert len(done.stdout.splitlines()) == 2
    assert "no control plane answers at 127.0.0.1:1" in done.stderr


def test_a_replica_that_does_not_know_a_cluster_is_told(replica: Replica, other: Replica) -> None:
    other.clusters = other.clusters[:1]
    done = isthmus("get", "east", "--admin", replica.address, "--admin", other.address)
    assert done.exit_code == 2
    assert done.stderr == f"{other.address}: no cluster east; there are: west\n"


def test_the_variable_names_replicas_and_the_option_goes_before_it(replica: Replica, other: Replica) -> None:
    several = f"{replica.address},{other.address}"
    assert len(isthmus("--no-headers", ISTHMUS_ADMIN=several).stdout.splitlines()) == 4
    shown = isthmus("--no-headers", "--admin", replica.address, ISTHMUS_ADMIN="127.0.0.1:1").stdout
    assert len(shown.splitlines()) == 2
    assert "ISTHMUS_ADMIN: 'x' has no port" in isthmus(ISTHMUS_ADMIN="x").stderr


def test_options_may_stand_before_get_and_behind_it(replica: Replica) -> None:
    before = isthmus("--admin", replica.address, "-o", "json", "get", "east")
    behind = isthmus("get", "east", "-o", "json", "--admin", replica.address)
    assert before.stdout == behind.stdout != ""


def test_completion_offers_the_names_there_are(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_ADMIN", replica.address)
    assert known_names("e") == ["east"]
    monkeypatch.setenv("ISTHMUS_ADMIN", "127.0.0.1:1")
    assert known_names("") == []


def test_watching_prints_only_what_changes(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = iter(
        [
            (cluster("west", home=True, lag=3.0), cluster("east")),
            (cluster("west", home=True), cluster("east", state="Stale", reason="Pod: gone")),
        ]
    )

    def wait(_seconds: float) -> None:
        found = next(rounds, None)
        if found is None:
            raise KeyboardInterrupt
        replica.clusters = found

    monkeypatch.setattr("aggregator.cli.clusters.time.sleep", wait)
    done = isthmus("--watch", "--admin", replica.address)
    assert [line.split()[:3] for line in done.stdout.splitlines()] == [
        ["CLUSTER", "NETWORK", "STATE"],
        ["west", "net-w", "Synced"],
        ["east", "net-e", "Synced"],
        ["east", "net-e", "Stale"],
    ]
    assert done.exit_code == 130


# Control planes elsewhere.


@pytest.mark.parametrize("words", [(), ("get", "west")])
def test_a_token_is_sent_from_the_file_it_is_in(replica: Replica, tmp_path: Path, words: tuple[str, ...]) -> None:
    file = tmp_path / "token"
    file.write_text("a.b.c\n")
    assert isthmus("--admin", replica.address, "--token-file", str(file), *words).exit_code == 0
    assert replica.authorizations == ["Bearer a.b.c"]


def test_without_a_file_no_token_is_sent(replica: Replica) -> None:
    isthmus("--admin", replica.address)
    assert replica.authorizations == [None]


@pytest.mark.parametrize(
    "content", [b"", b" \n", b"hush\nhush", b"hush hush", b"hush\r\nx: y", b"\xffhush", b"hush" * 5_000]
)
def test_what_is_no_token_is_sent_nowhere_and_not_shown(replica: Replica, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    done = isthmus("--admin", replica.address, "--token-file", str(file))
    assert (done.exit_code, replica.authorizations) == (65, [])
    assert done.stderr == f"isthmus: --token-file: {file} holds no token; write one into it, and nothing else\n"


def test_a_token_file_that_is_not_there_is_one_line(replica: Replica, tmp_path: Path) -> None:
    done = isthmus("--admin", replica.address, "--token-file", str(tmp_path / "none"))
    assert done.exit_code == 65
    assert done.stderr.endswith("none cannot be read: No such file or directory\n")


def test_a_token_goes_with_addresses_alone() -> None:
    done = isthmus("--token-file", "t", "-n", "istio-system")
    assert done.exit_code == 64
    assert "no token is needed" in done.stderr


@pytest.mark.parametrize(("status", "more"), [(401, "; --token-file sends a token"), (403, ""), (503, "")])
def test_a_control_plane_that_refuses_says_why(replica: Replica, status: int, more: str) -> None:
    replica.answer = status, msgspec.json.encode({"error": "this page is not open to everybody\x1b[31m"})
    done = isthmus("--admin", replica.address)
    assert done.exit_code == 69
    said = done.stderr.replace(replica.address, "it")
    assert said.startswith("isthmus: it: this page is not open to everybody") and said.endswith(f"{more}\n")
    assert "\x1b" not in said
