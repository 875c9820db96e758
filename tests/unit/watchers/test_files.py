"""Which files of a directory are manifests, and how their bytes are read: links, limits, and what is refused."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from watchers import files
from watchers.files import UnreadableFile, list_manifests, read_file

AS_ROOT = os.geteuid() == 0


def put(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def names(root: Path) -> list[str]:
    return [file.name for file in list_manifests(root).files]


def refused(root: Path) -> dict[str, str]:
    return {name: error.cause for name, error in list_manifests(root).refused.items()}


def test_manifests_are_known_by_their_suffix(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", "c.json", "D.YAML", "README.md", "a.yaml~", "a.yaml.swp", "#a.yaml#", "yaml"):
        put(tmp_path / name)
    assert names(tmp_path) == ["D.YAML", "a.yml", "b.yaml", "c.json"]


def test_hidden_files_and_directories_are_passed_over(tmp_path: Path) -> None:
    for name in (".a.yaml", ".git/a.yaml", "..data/a.yaml", ".x.yaml.draft"):
        put(tmp_path / name)
    listing = list_manifests(tmp_path)
    assert (listing.files, listing.directories, listing.refused) == ([], frozenset([str(tmp_path)]), {})


def test_directories_below_count_too(tmp_path: Path) -> None:
    for name in ("b/a.yaml", "a.yaml", "b/c/a.yaml", "b.yaml"):
        put(tmp_path / name)
    listing = list_manifests(tmp_path)
    assert [file.name for file in listing.files] == ["a.yaml", "b.yaml", "b/a.yaml", "b/c/a.yaml"]
    assert listing.directories == {str(tmp_path), str(tmp_path / "b"), str(tmp_path / "b/c")}


def test_a_mounted_config_map_is_read_through_its_links(tmp_path: Path) -> None:
    put(tmp_path / "..2026_01/pods.yaml", "first")
    put(tmp_path / "..2026_01/sub/nodes.yaml")
    (tmp_path / "..data").symlink_to("..2026_01")
    (tmp_path / "pods.yaml").symlink_to("..data/pods.yaml")
    (tmp_path / "sub").symlink_to("..data/sub")
    listing = list_manifests(tmp_path)
    assert [(file.name, file.path) for file in listing.files] == [
        ("pods.yaml", str(tmp_path / "..2026_01/pods.yaml")),
        ("sub/nodes.yaml", str(tmp_path / "..2026_01/sub/nodes.yaml")),
    ]
    assert str(tmp_path / "..2026_01") in listing.directories
    assert listing.refused == {}


def test_the_directory_itself_may_be_a_link(tmp_path: Path) -> None:
    put(tmp_path / "real/a.yaml")
    (tmp_path / "west").symlink_to("real")
    assert names(tmp_path / "west") == ["a.yaml"]


def test_links_out_of_the_directory_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "outside/secret.yaml")
    root = tmp_path / "west"
    root.mkdir()
    (root / "a.yaml").symlink_to("../outside/secret.yaml")
    (root / "b").symlink_to("../outside")
    (root / "c").symlink_to("../outside/secret.yaml")
    assert names(root) == []
    assert refused(root) == {
        "a.yaml": "is a link out of the directory",
        "b": "is a link out of the directory",
    }


def test_a_directory_whose_name_begins_like_the_root_is_outside(tmp_path: Path) -> None:
    put(tmp_path / "west-2/a.yaml")
    root = tmp_path / "west"
    root.mkdir()
    (root / "a.yaml").symlink_to("../west-2/a.yaml")
    assert refused(root) == {"a.yaml": "is a link out of the directory"}


def test_links_in_circles_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "a.yaml")
    (tmp_path / "up").symlink_to(".")
    (tmp_path / "self.yaml").symlink_to("self.yaml")
    assert names(tmp_path) == ["a.yaml"]
    assert set(refused(tmp_path)) == {"up", "self.yaml"}


def test_a_link_to_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").symlink_to("missing.yaml")
    (tmp_path / "other").symlink_to("missing")
    assert refused(tmp_path) == {"a.yaml": "is a link to nothing"}


def test_names_that_are_not_utf_8_are_shown_with_escapes(tmp_path: Path) -> None:
    put(tmp_path / os.fsdecode(b"a\xff.yaml"))
    put(tmp_path / os.fsdecode(b"d\xff/a.yaml"))
    assert names(tmp_path) == ["a\\xff.yaml"]
    assert refused(tmp_path) == {"d\\xff": "has a name that is not UTF-8"}


def test_levels_are_bounded(tmp_path: Path) -> None:
    put(tmp_path.joinpath(*["d"] * files.MAX_LEVELS) / "a.yaml")
    assert names(tmp_path) == []
    assert list(refused(tmp_path).values()) == [f"is more than {files.MAX_LEVELS} levels deep"]


def test_the_number_of_files_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        put(tmp_path / f"{number}/a.yaml")
    monkeypatch.setattr(files, "MAX_ENTRIES", 5)
    with pytest.raises(UnreadableFile, match="holds more than 5 files"):
        list_manifests(tmp_path)


def test_links_cannot_multiply_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(10):
        (tmp_path / f".{number}").mkdir()
        for name in ("x", "y", "z"):
            (tmp_path / f".{number}/{name}").symlink_to(f"../.{number + 1}")
    put(tmp_path / ".10/a.yaml")
    (tmp_path / "start").symlink_to(".0")
    monkeypatch.setattr(files, "MAX_ENTRIES", 1_000)
    with pytest.raises(UnreadableFile, match="holds more than 1,000 files"):
        list_manifests(tmp_path)


@pytest.mark.skipif(AS_ROOT, reason="root may read everything")
def test_a_directory_that_may_not_be_listed_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "closed/a.yaml")
    (tmp_path / "closed").chmod(0)
    try:
        assert refused(tmp_path) == {"closed/": "cannot be listed: Permission denied"}
    finally:
        (tmp_path / "closed").chmod(0o700)


def test_another_directory_in_its_place_has_another_identity(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    first = list_manifests(tmp_path / "a").identity
    (tmp_path / "a").rename(tmp_path / "b")
    (tmp_path / "a").mkdir()
    assert list_manifests(tmp_path / "a").identity != first


def test_a_directory_replaced_while_it_is_listed_is_listed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "west"
    put(root / "a.yaml")
    put(tmp_path / "next/b.yaml")
    scan = os.scandir

    def replacing(path: str) -> object:
        monkeypatch.setattr(os, "scandir", scan)
        root.rename(tmp_path / "away")
        (tmp_path / "next").rename(root)
        return scan(tmp_path / "away")

    monkeypatch.setattr(os, "scandir", replacing)
    assert names(root) == ["b.yaml"]


def test_a_directory_replaced_again_and_again_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "west"
    put(root / "a.yaml")
    scan = os.scandir

    def replacing(path: str) -> object:
        entries = scan(path)
        shutil.move(root, tmp_path / f"away{len(list(tmp_path.iterdir()))}")
        root.mkdir()
        return entries

    monkeypatch.setattr(os, "scandir", replacing)
    with pytest.raises(UnreadableFile, match="is replaced again and again"):
        list_manifests(root)


# Reading


def test_a_file_is_read_with_its_signature(tmp_path: Path) -> None:
    path = put(tmp_path / "a.yaml", "text")
    data, signature = read_file(str(path))
    assert data == b"text"
    assert signature == list_manifests(tmp_path).files[0].signature


def test_a_pipe_does_not_hold_the_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.yaml")
    assert names(tmp_path) == ["a.yaml"]
    with pytest.raises(UnreadableFile, match="is no regular file"):
        read_file(str(tmp_path / "a.yaml"))


def test_a_link_that_took_the_files_place_is_not_followed(tmp_path: Path) -> None:
    put(tmp_path / "secret")
    (tmp_path / "a.yaml").symlink_to("secret")
    with pytest.raises(OSError, match="symbolic links"):
        read_file(str(tmp_path / "a.yaml"))


def test_large_files_are_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "a.yaml").open("wb") as file:
        file.truncate(files.MAX_BYTES + 1)
    with pytest.raises(UnreadableFile, match="is larger than 64 MiB; split it"):
        read_file(str(tmp_path / "a.yaml"))


def test_a_file_that_keeps_changing_is_not_read_by_halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path / "a.yaml", "x" * 100)
    status, reads = os.fstat, 0

    def growing(descriptor: int) -> os.stat_result:
        nonlocal reads
        reads += 1
        with path.open("a") as file:
            file.write("x")
        return status(descriptor)

    monkeypatch.setattr(os, "fstat", growing)
    with pytest.raises(UnreadableFile, match="is being written"):
        read_file(str(path))
    assert reads == 6


def test_a_file_that_changed_once_while_it_was_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path / "a.yaml", "old")
    status, reads = os.fstat, 0

    def changed(descriptor: int) -> os.stat_result:
        nonlocal reads
        reads += 1
        if reads == 2:
            path.write_text("newer")
        return status(descriptor)

    monkeypatch.setattr(os, "fstat", changed)
    assert read_file(str(path))[0] == b"newer"
