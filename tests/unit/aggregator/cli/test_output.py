from __future__ import annotations

import pytest

from aggregator.cli.output import age, ago, clock, colours_wanted, cut, printable, table
from tests.kit.clusters import NOW, after, before


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-1.0, "0.0s"),
        (0.2, "0.2s"),
        (9.94, "9.9s"),
        (9.96, "10s"),
        (94.0, "94s"),
        (119.4, "119s"),
        (119.6, "2m"),
        (3600.0, "60m"),
        (7200.0, "2h"),
        (86400.0, "24h"),
        (172800.0, "2d"),
        (27 * 86400.0, "27d"),
    ],
)
def test_an_age_has_one_unit(seconds: float, shown: str) -> None:
    assert age(seconds) == shown


def test_moments_are_told_by_their_distance() -> None:
    assert [ago(moment, NOW) for moment in (after(days=27), before(hours=2), NOW, None)] == [
        "in 27d",
        "2h ago",
        "0.0s ago",
        "-",
    ]


def test_a_moment_of_another_day_has_its_date() -> None:
    assert (clock(before(seconds=2), NOW), clock(before(days=1), NOW)) == ("09:14:02Z", "2026-11-01T09:14:04Z")


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("west", "west"),
        ("Zürich", "Zürich"),
        ("we\x1b[2Jst", "we\\x1b[2Jst"),
        ("west\nSynced", "west\\x0aSynced"),
        ("a\u202eb", "a\\u202eb"),
        ("a\u2028b", "a\\u2028b"),
        ("a\ud800b", "a\\ud800b"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_nothing_that_is_printed_says_anything_to_the_terminal(hostile: str, shown: str) -> None:
    assert printable(hostile) == shown


def test_columns_are_as_wide_as_their_widest_cell_and_lines_end_with_their_text() -> None:
    assert table([["NAME", "REASON"], ["a", "x"], ["abcdef", "-"]]) == ["NAME    REASON", "a       x", "abcdef  -"]


def test_nothing_makes_no_line() -> None:
    assert table([]) == []


def test_a_colour_covers_the_word_and_moves_no_column() -> None:
    plain, coloured = (table([["Stale", "Stale"]], 0, colours) for colours in (None, {"Stale": "red"}))
    assert plain == ["Stale  Stale"]
    assert coloured == ["\x1b[31mStale\x1b[0m  Stale"]


def test_what_is_cut_says_so() -> None:
    assert (cut("abcdef", 6), cut("abcdefg", 6)) == ("abcdef", "abc...")


@pytest.mark.parametrize(
    ("variables", "forbidden", "wanted"),
    [({}, False, True), ({"NO_COLOR": "1"}, False, False), ({"TERM": "dumb"}, False, False), ({}, True, False)],
)
def test_colours_are_for_terminals_unless_forbidden(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], forbidden: bool, wanted: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert colours_wanted(forbidden=forbidden) is wanted


def test_what_is_no_terminal_gets_no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: False, raising=False)
    assert not colours_wanted(forbidden=False)
