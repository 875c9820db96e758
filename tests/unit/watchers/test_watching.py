"""Which places are watched, and which changes there concern a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from watchers.watching import Places, places_of


def watched(places: Places) -> set[str]:
    return {path for path, _, _ in places.watched}


def above(path: Path) -> set[str]:
    return {str(place) for place in path.parents}


def test_the_directory_and_all_above_and_below_it_are_watched(tmp_path: Path) -> None:
    root = tmp_path / "west"
    (root / "sub").mkdir(parents=True)
    places = places_of(root, frozenset([str(root), str(root / "sub")]))
    assert watched(places) == above(root / "sub") | {str(root / "sub")}


def test_what_is_there_is_watched_while_the_directory_is_missing(tmp_path: Path) -> None:
    assert watched(places_of(tmp_path / "a/b/c", frozenset())) == above(tmp_path / "a")


def test_every_link_on_the_way_is_watched(tmp_path: Path) -> None:
    (tmp_path / "v1/clusters/west").mkdir(parents=True)
    (tmp_path / "links").mkdir()
    (tmp_path / "links/current").symlink_to("../v1")
    root = tmp_path / "links/current/clusters/west"
    places = places_of(root, frozenset([str(root.resolve())]))
    assert {str(tmp_path / "links"), str(tmp_path / "v1/clusters"), str(root.resolve())} <= watched(places)
    assert places.concerns(str(tmp_path / "links/current"))


def test_links_in_circles_come_to_an_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert watched(places_of(tmp_path / "a", frozenset())) == above(tmp_path / "a")


def test_another_directory_in_a_watched_place_is_another_place(tmp_path: Path) -> None:
    root = tmp_path / "west"
    root.mkdir()
    before = places_of(root, frozenset([str(root)]))
    root.rename(tmp_path / "away")
    root.mkdir()
    assert places_of(root, frozenset([str(root)])) != before


@pytest.mark.parametrize(
    ("path", "concerns"),
    [
        ("west", True),
        ("west/a.yaml", True),
        ("west/new", True),
        ("west/..data", True),
        ("west/.a.yaml.swp", False),
        ("west/a.yaml~", False),
        ("east", False),
        ("east/a.yaml", False),
        ("west/sub/a.yaml", False),
        (".", True),
    ],
)
def test_changes_that_concern_a_directory(tmp_path: Path, path: str, concerns: bool) -> None:
    root = tmp_path / "west"
    root.mkdir()
    places = places_of(root, frozenset([str(root)]))
    assert places.concerns(str(tmp_path / path)) is concerns
