"""What a directory says from load to load: last good content, claims of several files, and what is reported."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.kit import manifests
from tests.kit.manifests import write_manifests
from watchers.directory import Directory, Load
from watchers.facts import Cluster, Fact, ObjectKey, Pod, SourceFault
from watchers.manifests import read_manifests
from watchers.watching import SourceError


def west(path: Path) -> Directory:
    return Directory("west", path, home=True, system_namespace="istio-system", deadline=5.0, now=lambda: 7.0)


def items(load: Load) -> dict[ObjectKey, Fact]:
    assert load.items is not None, "nothing changed"
    return dict(load.items)


def addresses(load: Load) -> dict[str, tuple[str, ...]]:
    return {key[3]: fact.addresses for key, fact in items(load).items() if isinstance(fact, Pod)}


def faults(load: Load) -> dict[str, SourceFault]:
    return {key[3]: fact for key, fact in items(load).items() if isinstance(fact, SourceFault)}


def state(load: Load) -> Cluster:
    fact = items(load)["west", "Cluster", "", "west"]
    assert isinstance(fact, Cluster)
    return fact


def rewrite(path: Path, text: str) -> None:
    """Writes a file in place, as careless programs do."""
    path.write_text(text)


def test_a_load_gives_all_objects_and_the_state_of_the_cluster(tmp_path: Path) -> None:
    write_manifests(tmp_path, manifests.pod("shop/a", "10.0.0.1"), file="a.yaml")
    write_manifests(tmp_path, manifests.service("shop/a"), manifests.node("n"), file="b.json")
    load = west(tmp_path).load()
    assert set(items(load)) == {
        ("west", "Cluster", "", "west"),
        ("west", "Pod", "shop", "a"),
        ("west", "Service", "shop", "a"),
        ("west", "Node", "", "n"),
    }
    assert state(load) == Cluster("synced", home=True, deadline=5.0, reason="", since=7.0)
    assert load.read == 3


def test_an_empty_directory_is_an_empty_cluster(tmp_path: Path) -> None:
    load = west(tmp_path).load()
    assert list(items(load).values()) == [Cluster("synced", home=True, deadline=5.0, reason="", since=7.0)]


def test_a_load_without_a_change_is_none_and_reads_nothing(tmp_path: Path) -> None:
    write_manifests(tmp_path, manifests.pod("shop/a", "10.0.0.1"))
    directory = west(tmp_path)
    directory.load()
    assert (directory.load().items, directory.load().read) == (None, 0)


def test_a_file_written_anew_with_the_same_content_is_no_change(tmp_path: Path) -> None:
    path = write_manifests(tmp_path, manifests.pod("shop/a", "10.0.0.1"))
    directory = west(tmp_path)
    directory.load()
    rewrite(path, path.read_text())
    assert (directory.load().items, directory.load().read) == (None, 0)


def test_files_that_did_not_change_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_manifests(tmp_path, manifests.pod("shop/a", "10.0.0.1"))
    os.utime(path, (1, 1))
    monkeypatch.setattr("watchers.directory._YOUNG", -(10**18))
    directory = west(tmp_path)
    directory.load()
    monkeypatch.setattr("watchers.directory.read_file", lambda path: pytest.fail(f"{path} is read again"))
    assert directory.load().items is None


def test_a_change_within_a_tick_of_the_clock_is_seen(tmp_path: Path) -> None:
    path = write_manifests(tmp_path, manifests.pod("shop/a", "10.0.0.1"))
    status = path.stat()
    directory = west(tmp_path)
    directory.load()
    rewrite(path, path.read_text().replace("10.0.0.1", "10.0.0.2"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert addresses(directory.load()) == {"a": ("10.0.0.2",)}


def test_deleting_a_file_removes_its_objects(tmp_path: Path) -> None:
    write_manifests(tmp_path, manifests.pod("shop/a"), file="a.yaml")
    path = write_manifests(tmp_path, manifests.pod("shop/b"), file="b.yaml")
    directory = west(tmp_path)
    directory.load()
    path.unlink()
    assert set(addresses(directory.load())) == {"a"}


def test_moving_an_object_to_another_file_changes_nothing(tmp_path: Path) -> None:
    path = write_manifests(tmp_path, manifests.pod("shop/a"), file="a.yaml")
    directory = west(tmp_path)
    directory.load()
    path.rename(tmp_path / "z.yaml")
    assert directory.load().items is None


# Last good


def test_a_broken_file_keeps_its_last_good_content(tmp_path: Path) -> None:
    path = write_manifests(tmp_path, manifests.pod("shop/a", "10.0.0.1"), file="a.yaml")
    directory = west(tmp_path)
    directory.load()
    rewrite(path, "a: [\n")
    load = directory.load()
    assert addresses(load) == {"a": ("10.0.0.1",)}
    assert faults(load)["a.yaml"].cause == "did not find expected node content"
    assert state(load).state == "synced"


def test_a_broken_file_that_never_was_good_contributes_nothing(tmp_path: Path) -> None:
    write_manifests(tmp_path, manifests.pod("shop/a"), file="a.yaml")
    rewrite(tmp_path / "b.yaml", "a: [\n")
    load = west(tmp_path).load()
    assert (set(addresses(load)), set(faults(load))) == ({"a"}, {"b.yaml"})


def test_a_mended_file_is_used_and_its_fault_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    rewrite(path, "a: [\n")
    directory = west(tmp_path)
    directory.load()
    write_manifests(tmp_path, manifests.pod("shop/a", "10.0.0.1"), file="a.yaml")
    load = directory.load()
    assert (addresses(load), faults(load)) == ({"a": ("10.0.0.1",)}, {})


def test_an_invalid_object_keeps_its_last_good_version_while_its_neighbours_move_on(tmp_path: Path) -> None:
    write_manifests(tmp_path, manifests.pod("shop/a", "10.0.0.1"), manifests.pod("shop/b", "10.0.0.2"))
    directory = west(tmp_path)
    directory.load()
    bad = manifests.pod("shop/a", "10.0.0.9", labels={"x": True})
    write_manifests(tmp_path, bad, manifests.pod("shop/b", "10.0.0.3"))
    load = directory.load()
    assert addresses(load) == {"a": ("10.0.0.1",), "b": ("10.0.0.3",)}
    assert faults(load)["objects.yaml"] == SourceFault(
        "objects.yaml", 7, "Pod shop/a: metadata.labels.x is true, must be a string", 'put it in quotes: "true"'
    )


def test_an_invalid_object_keeps_its_last_good_version_through_further_changes(tmp_path: Path) -> None:
    write_manifests(tmp_path, manifests.pod("shop/a", "10.0.0.1"))
    directory = west(tmp_path)
    directory.load()
    for value in (True, 5):
        write_manifests(tmp_path, manifests.pod("shop/a", "10.0.0.9", labels={"x": value}))
        assert addresses(directory.load()) == {"a": ("10.0.0.1",)}


def test_an_invalid_object_that_never_was_good_is_left_out(tmp_path: Path) -> None:
    write_manifests(tmp_path, manifests.pod("shop/a", labels={"x": True}), manifests.pod("shop/b"))
    assert set(addresses(west(tmp_path).load())) == {"b"}


def test_an_object_that_a_good_file_no_longer_holds_is_gone(tmp_path: Path) -> None:
    write_manifests(tmp_path, manifests.pod("shop/a"), manifests.pod("shop/b"))
    directory = west(tmp_path)
    directory.load()
    write_manifests(tmp_path, manifests.pod("shop/b"))
    assert set(addresses(directory.load())) == {"b"}


def test_a_file_emptied_before_it_is_written_keeps_its_content(tmp_path: Path) -> None:
    path = write_manifests(tmp_path, manifests.pod("shop/a", "10.0.0.1"), file="a.yaml")
    directory = west(tmp_path)
    directory.load()
    rewrite(path, "")
    load = directory.load()
    assert addresses(load) == {"a": ("10.0.0.1",)}
    assert faults(load)["a.yaml"].cure == "delete it to delete its objects"


def test_a_file_of_comments_holds_no_objects_any_more(tmp_path: Path) -> None:
    path = write_manifests(tmp_path, manifests.pod("shop/a"), file="a.yaml")
    directory = west(tmp_path)
    directory.load()
    rewrite(path, "# moved\n")
    load = directory.load()
    assert (addresses(load), faults(load)) == ({}, {})


def test_a_file_that_became_a_link_out_of_the_directory_keeps_its_content(tmp_path: Path) -> None:
    root = tmp_path / "west"
    path = write_manifests(root, manifests.pod("shop/a", "10.0.0.1"), file="a.yaml")
    write_manifests(tmp_path, manifests.pod("shop/a", "10.0.0.2"), file="outside.yaml")
    directory = west(root)
    directory.load()
    path.unlink()
    path.symlink_to("../outside.yaml")
    load = directory.load()
    assert addresses(load) == {"a": ("10.0.0.1",)}
    assert faults(load)["a.yaml"].cause == "is a link out of the directory"


def test_files_below_a_directory_that_became_a_link_out_keep_their_content(tmp_path: Path) -> None:
    root = tmp_path / "west"
    write_manifests(root / "sub", manifests.pod("shop/a", "10.0.0.1"))
    (tmp_path / "outside").mkdir()
    directory = west(root)
    directory.load()
    (root / "sub").rename(tmp_path / "away")
    (root / "sub").symlink_to("../outside")
    load = directory.load()
    assert addresses(load) == {"a": ("10.0.0.1",)}
    assert set(faults(load)) == {"sub"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_keeps_its_content(tmp_path: Path) -> None:
    path = write_manifests(tmp_path, manifests.pod("shop/a", "10.0.0.1"), file="a.yaml")
    write_manifests(tmp_path / "sub", manifests.pod("shop/b", "10.0.0.2"))
    directory = west(tmp_path)
    directory.load()
    path.chmod(0)
    (tmp_path / "sub").chmod(0)
    try:
        load = directory.load()
    finally:
        (tmp_path / "sub").chmod(0o700)
    assert set(addresses(load)) == {"a", "b"}
    assert {name: fault.cause for name, fault in faults(load).items()} == {
        "a.yaml": "cannot be read: Permission denied",
        "sub/": "cannot be listed: Permission denied",
    }


def test_a_file_too_large_keeps_its_content(tmp_path: Path) -> None:
    path = write_manifests(tmp_path, manifests.pod("shop/a", "10.0.0.1"), file="a.yaml")
    directory = west(tmp_path)
    directory.load()
    with path.open("r+b") as file:
        file.truncate(100 * 1024 * 1024)
    load = directory.load()
    assert addresses(load) == {"a": ("10.0.0.1",)}
    assert faults(load)["a.yaml"].cause == "is larger than 64 MiB"


def test_a_failure_of_ours_over_one_file_is_reported_and_spares_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_manifests(tmp_path, manifests.pod("shop/a"), file="a.yaml")
    write_manifests(tmp_path, manifests.pod("shop/b"), file="b.yaml")

    def failing(name: str, *others: Any) -> Any:
        if name == "a.yaml":
            raise ZeroDivisionError("by zero")
        return read_manifests(name, *others)

    monkeypatch.setattr("watchers.directory.read_manifests", failing)
    load = west(tmp_path).load()
    assert set(addresses(load)) == {"b"}
    assert faults(load)["a.yaml"].cause == "makes this program fail: ZeroDivisionError: by zero"


# Claims


def test_of_two_files_that_claim_an_object_the_first_by_name_counts(tmp_path: Path) -> None:
    write_manifests(tmp_path, manifests.node("n"), manifests.pod("shop/a", "10.0.0.2"), file="b.yaml")
    write_manifests(tmp_path, manifests.pod("shop/a", "10.0.0.1"), file="a.yaml")
    load = west(tmp_path).load()
    assert addresses(load) == {"a": ("10.0.0.1",)}
    assert list(faults(load)) == ["b.yaml"]
    fault = faults(load)["b.yaml"]
    assert fault.cause == "Pod shop/a also stands in a.yaml, which counts"
    assert (tmp_path / "b.yaml").read_text().splitlines()[fault.line - 1] == "apiVersion: v1"
    assert fault.line > 1


def test_when_the_first_gives_up_a_claim_the_other_counts(tmp_path: Path) -> None:
    path = write_manifests(tmp_path, manifests.pod("shop/a", "10.0.0.1"), file="a.yaml")
    write_manifests(tmp_path, manifests.pod("shop/a", "10.0.0.2"), file="b.yaml")
    directory = west(tmp_path)
    directory.load()
    path.unlink()
    load = directory.load()
    assert (addresses(load), faults(load)) == ({"a": ("10.0.0.2",)}, {})


def test_several_flaws_of_a_file_are_one_fault_that_counts_them(tmp_path: Path) -> None:
    bad = [manifests.pod(f"shop/a{number}", labels={"x": 1}) for number in range(3)]
    write_manifests(tmp_path, manifests.pod("shop/b"), file="a.yaml")
    write_manifests(tmp_path, *bad, manifests.pod("shop/b"), file="b.yaml")
    cause = faults(west(tmp_path).load())["b.yaml"].cause
    assert cause == "Pod shop/a0: metadata.labels.x is 1, must be a string; 3 more of its objects cannot be used"


# The directory itself


def test_a_missing_directory_is_an_error_with_its_cure(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="/missing does not exist; create it, or correct the path"):
        west(tmp_path / "missing").load()


def test_a_file_instead_of_a_directory_is_an_error_with_its_cure(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("")
    with pytest.raises(SourceError, match="is no directory; name the directory that holds the manifests"):
        west(tmp_path / "a.yaml").load()


def test_too_many_files_are_an_error_with_its_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_manifests(tmp_path, manifests.pod("shop/a"))
    monkeypatch.setattr("watchers.files.MAX_ENTRIES", 0)
    with pytest.raises(SourceError, match="holds more than 0 files; keep only manifests in it"):
        west(tmp_path).load()


def test_an_impossible_id_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be the id of a cluster"):
        Directory("a/b", tmp_path, home=True, system_namespace="istio-system", deadline=0)


def test_a_directory_that_is_gone_keeps_everything_and_is_stale(tmp_path: Path) -> None:
    root = tmp_path / "west"
    write_manifests(root, manifests.pod("shop/a", "10.0.0.1"))
    directory = west(root)
    directory.load()
    root.rename(tmp_path / "away")
    load = directory.load()
    assert addresses(load) == {"a": ("10.0.0.1",)}
    assert state(load) == Cluster(
        "stale",
        home=True,
        deadline=5.0,
        reason=f"{root} cannot be read: No such file or directory",
        since=7.0,
        unconfirmed=7.0,
    )


def test_files_that_vanish_while_they_are_read_are_not_gone_before_they_are_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_manifests(tmp_path, manifests.pod("shop/a", "10.0.0.1"))
    directory = west(tmp_path)
    directory.load()

    def vanishing(name: str) -> Any:
        path.unlink()
        raise FileNotFoundError(name)

    monkeypatch.setattr("watchers.directory.read_file", vanishing)
    assert directory.load().items is None
    assert addresses(directory.load()) == {}


def test_a_directory_made_anew_stays_stale_until_there_is_something_in_it(tmp_path: Path) -> None:
    root = tmp_path / "west"
    write_manifests(root, manifests.pod("shop/a", "10.0.0.1"))
    directory = west(root)
    directory.load()
    root.rename(tmp_path / "away")
    root.mkdir()
    load = directory.load()
    assert (addresses(load), state(load).state) == ({"a": ("10.0.0.1",)}, "stale")
    write_manifests(root, manifests.pod("shop/b", "10.0.0.2"))
    load = directory.load()
    assert (addresses(load), state(load).state) == ({"b": ("10.0.0.2",)}, "synced")


def test_deleting_all_files_of_a_directory_that_stays_empties_the_cluster(tmp_path: Path) -> None:
    path = write_manifests(tmp_path, manifests.pod("shop/a"))
    directory = west(tmp_path)
    directory.load()
    path.unlink()
    load = directory.load()
    assert (addresses(load), state(load).state) == ({}, "synced")


def test_a_relative_path_means_the_same_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_manifests(tmp_path / "west", manifests.pod("shop/a"))
    monkeypatch.chdir(tmp_path)
    directory = west(Path("west"))
    monkeypatch.chdir("/")
    assert set(addresses(directory.load())) == {"a"}
