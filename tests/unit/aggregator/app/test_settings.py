from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aggregator.app.setting_values import Address, ClusterSource
from aggregator.app.settings import TABLE, Settings, SettingsError, describe
from aggregator.app.settings_sources import load, unknown_variables

if TYPE_CHECKING:
    from collections.abc import Mapping

LOCAL = {"local": "west=west"}


def failure(flags: Mapping[str, str | list[str] | None], environ: Mapping[str, str] | None = None) -> str:
    with pytest.raises(SettingsError) as refused:
        load(flags, environ or {})
    return str(refused.value)


def config(directory: Path, text: str) -> str:
    file = directory / "isthmus.yaml"
    file.write_text(text)
    return str(file)


def test_only_the_home_cluster_has_to_be_named() -> None:
    assert load(LOCAL, {}) == Settings(local=ClusterSource("west", Path("west")), origins={"local": "--local"})


def test_a_missing_home_cluster_is_told_with_an_example() -> None:
    assert "--local: is missing" in failure({})
    assert "--local west=./west" in failure({})


def test_every_default_is_read_back_from_its_text() -> None:
    for setting in TABLE:
        if setting.required or not setting.default:
            continue
        text = setting.text(setting.default)
        parsed = tuple(map(setting.parse, text.split(","))) if setting.many else setting.parse(text)
        assert parsed == setting.default, setting.flag


def test_flags_go_before_variables_before_the_file_before_defaults(tmp_path: Path) -> None:
    file = config(tmp_path, "drain: 1s\nhealth: 127.0.0.1:1\nadmin: 127.0.0.1:2\n")
    settings = load({**LOCAL, "drain": "3s", "config": file}, {"ISTHMUS_DRAIN": "2s", "ISTHMUS_HEALTH": "127.0.0.1:3"})
    assert (settings.drain, settings.health.port, settings.admin.port, settings.xds.port) == (3.0, 3, 2, 15012)


def test_describe_says_for_every_setting_what_it_is_and_where_it_came_from(tmp_path: Path) -> None:
    file = config(tmp_path, "# first line\nadmin: 127.0.0.1:2\n")
    settings = load({**LOCAL, "drain": "3s"}, {"ISTHMUS_CONFIG": file, "ISTHMUS_LOG_LEVEL": "debug"})
    told = {setting.name: (setting.text, setting.origin) for setting in describe(settings)}
    assert len(told) == len(TABLE)
    assert told["drain"] == ("3s", "--drain")
    assert told["log-level"] == ("debug", "ISTHMUS_LOG_LEVEL")
    assert told["admin"] == ("127.0.0.1:2", f"{file} line 2, key admin")
    assert told["health"] == ("0.0.0.0:8080", "default")
    assert told["identities"] == ("", "default")


def test_a_wrong_flag_is_named_with_what_is_wrong_and_the_cure() -> None:
    assert failure({**LOCAL, "drain": "5"}) == (
        "--drain: '5' is not a duration; write numbers with units, such as 500ms, 30s or 5m"
    )


def test_a_wrong_variable_is_named() -> None:
    assert failure(LOCAL, {"ISTHMUS_XDS": "x"}).startswith("ISTHMUS_XDS: 'x' has no port; ")


def test_a_wrong_value_in_the_file_is_named_by_line_and_key(tmp_path: Path) -> None:
    file = config(tmp_path, "log-level: debug\n\nxds: 15012\n")
    assert failure({**LOCAL, "config": file}).startswith(f"{file} line 3, key xds: '15012' has no port; ")


@pytest.mark.parametrize("key", ["remote-timout", "remoteTimeout", "remote_timeout"])
def test_an_unknown_key_is_named_with_its_line_and_the_nearest_known_one(tmp_path: Path, key: str) -> None:
    file = config(tmp_path, f"drain: 1s\n{key}: 5s\n")
    assert failure({**LOCAL, "config": file}) == (
        f"{file} line 2: key '{key}' is unknown; did you mean 'remote-timeout'?"
    )


def test_a_key_like_nothing_known_is_answered_with_all_that_are(tmp_path: Path) -> None:
    assert "known keys are local, cluster-id, remote, " in failure({**LOCAL, "config": config(tmp_path, "qqqqqq: 1")})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("drain: 1s\ndrain: 2s\n", "line 2: key 'drain' is given twice"),
        ("- drain\n", "line 1: is no mapping"),
        ("drain: [1s, 2s]\n", "line 1, key drain: the value has the wrong shape; write a single DURATION"),
        ("xds-names: {a: b}\n", "line 1, key xds-names: the value has the wrong shape; write a list of NAME"),
        ("remote: [[a=b]]\n", "line 1, key remote: the value has the wrong shape; write a list of NAME=SOURCE"),
        ("local: {a: b, c: d}\n", "line 1, key local: the value has the wrong shape; write a single NAME=SOURCE"),
        ("drain: 'x\n", "line 2: is not YAML"),
        ("config: other.yaml\n", "line 1: key 'config' is unknown"),
    ],
)
def test_a_file_of_the_wrong_form_is_told_by_line(tmp_path: Path, text: str, problem: str) -> None:
    file = config(tmp_path, text)
    assert failure({"config": file}).startswith(f"{file} {problem}")


def test_a_file_that_cannot_be_read_is_told_by_who_named_it(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.yaml")
    assert failure({**LOCAL, "config": missing}).startswith(f"--config: {missing} cannot be read: No such file")
    assert failure(LOCAL, {"ISTHMUS_CONFIG": missing}).startswith("ISTHMUS_CONFIG: ")


def test_a_file_that_is_no_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert "is not UTF-8 text" in failure({**LOCAL, "config": str(tmp_path / "binary")})


def test_an_empty_file_sets_nothing(tmp_path: Path) -> None:
    assert load({**LOCAL, "config": config(tmp_path, "# nothing\n")}, {}).drain == 5.0


def test_an_empty_key_sets_nothing(tmp_path: Path) -> None:
    assert load({**LOCAL, "config": config(tmp_path, "drain:\nremote: ~\n")}, {}).drain == 5.0


def test_values_in_the_file_are_read_as_they_are_written(tmp_path: Path) -> None:
    file = config(tmp_path, "local: west=west\nxds-names: [on, 1e3.example, 0x1f.example]\n")
    assert load({"config": file}, {}).xds_names == ("on", "1e3.example", "0x1f.example")


def test_clusters_in_the_file_may_be_a_mapping_of_names_to_sources(tmp_path: Path) -> None:
    settings = load({"config": config(tmp_path, "local: {west: w}\nremote:\n  east: e\n  north: /n\n")}, {})
    assert settings.local == ClusterSource("west", tmp_path / "w")
    assert settings.remote == (ClusterSource("east", tmp_path / "e"), ClusterSource("north", Path("/n")))


def test_relative_paths_of_the_file_start_at_its_directory_and_those_of_flags_do_not(tmp_path: Path) -> None:
    file = config(tmp_path, "identities: tokens.yaml\nlocal: west=w\n")
    settings = load({"config": file, "local": "west=elsewhere"}, {})
    assert settings.identities == tmp_path / "tokens.yaml"
    assert settings.local == ClusterSource("west", Path("elsewhere"))


def test_a_list_is_given_by_repeating_the_flag_or_by_commas() -> None:
    names = ["a.example", "b.example", "c.example"]
    assert load({**LOCAL, "xds_names": names}, {}).xds_names == tuple(names)
    assert load({**LOCAL, "xds_names": ["a.example, b.example", "c.example"]}, {}).xds_names == tuple(names)
    assert load(LOCAL, {"ISTHMUS_XDS_NAMES": ",".join(names)}).xds_names == tuple(names)


def test_a_list_from_one_source_replaces_that_of_another_whole() -> None:
    settings = load({**LOCAL, "remote": ["east=e"]}, {"ISTHMUS_REMOTE": "north=n"})
    assert [source.name for source in settings.remote] == ["east"]


def test_an_empty_variable_counts_as_unset() -> None:
    assert load(LOCAL, {"ISTHMUS_DRAIN": ""}).origins == {"local": "--local"}


def test_flags_that_were_not_given_are_none_or_an_empty_list() -> None:
    assert load({**LOCAL, "drain": None, "remote": []}, {}).origins == {"local": "--local"}


@pytest.mark.parametrize("remote", [["west=other"], ["east=a", "east=b"]])
def test_two_clusters_of_one_name_are_refused(remote: list[str]) -> None:
    assert "is given twice; give every cluster its own name" in failure({**LOCAL, "remote": remote})


def test_in_a_cluster_home_is_the_cluster_itself() -> None:
    inside = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert (load({}, inside).local, load({}, inside).home) == (None, "Kubernetes")
    assert load({"cluster_id": "west"}, inside).home == "west"
    assert load({"local": "east=e", "cluster_id": "west"}, inside).home == "east"


def test_a_remote_cannot_have_the_name_of_the_cluster_it_runs_in() -> None:
    told = failure({"cluster_id": "west", "remote": ["west=w"]}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert "cluster 'west' is given twice" in told


def test_two_listeners_on_one_address_are_refused() -> None:
    assert failure({**LOCAL, "admin": "0.0.0.0:8080"}) == (
        "--admin: 0.0.0.0:8080 is also the address of --health; give every listener its own port (0 picks a free one)"
    )


def test_any_number_of_listeners_may_ask_for_a_free_port() -> None:
    settings = load({**LOCAL, "admin": "127.0.0.1:0", "health": "127.0.0.1:0", "xds": "127.0.0.1:0"}, {})
    assert settings.admin == settings.health == Address("127.0.0.1", 0)


def test_plaintext_is_for_this_machine_only() -> None:
    assert failure({**LOCAL, "xds_plaintext": "0.0.0.0:15010"}).startswith("--xds-plaintext: '0.0.0.0:15010' can be ")


def test_no_variable_is_one_that_kubernetes_sets_for_a_service_called_isthmus() -> None:
    for setting in TABLE:
        assert not setting.variable.startswith(("ISTHMUS_SERVICE_", "ISTHMUS_PORT")), setting.variable


def test_a_misspelt_variable_is_found_with_the_nearest_known_one() -> None:
    environ = {"ISTHMUS_DRIAN": "5s", "ISTHMUS_DRAIN": "5s", "PATH": "/bin"}
    assert unknown_variables(environ) == [("ISTHMUS_DRIAN", "ISTHMUS_DRAIN")]


def test_variables_kubernetes_injects_are_not_taken_for_misspelt_settings() -> None:
    injected = {
        "ISTHMUS_PORT": "tcp://10.0.0.1:15012",
        "ISTHMUS_SERVICE_HOST": "10.0.0.1",
        "ISTHMUS_SERVICE_PORT_XDS": "15012",
        "ISTHMUS_PORT_15012_TCP_ADDR": "10.0.0.1",
        "ISTHMUS_ADMIN_PORT": "tcp://10.0.0.2:15014",
    }
    assert unknown_variables(injected) == []


def test_every_flag_has_a_help_text_that_is_a_sentence() -> None:
    for setting in TABLE:
        assert setting.help.endswith("."), setting.flag
        assert "|" not in setting.help, setting.flag
