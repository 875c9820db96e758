"""docs/conformance.md lists every declared improvement, and no other."""

from __future__ import annotations

from pathlib import Path

from tests.kit import golden

DOCUMENT = Path(__file__).parents[2] / "docs" / "conformance.md"


def test_every_improvement_is_listed_with_its_reason_and_no_other() -> None:
    declared = set()
    for name in golden.names():
        for one in golden.load(name).improvements:
            path = f" `{one.path}`" if one.path else ""
            meant = [one.proxy] * (one.proxy != "ztunnel") + [one.section] * bool(one.section)
            where = f" ({', '.join(meant)})" if meant else ""
            declared.add(f"- `{one.resource}`{path}{where}: {' '.join(one.reason.split())}")
    section = DOCUMENT.read_text().split("### Improvements", 1)[1].split("\n### ", 1)[0]
    assert {line for line in section.splitlines() if line.startswith("- ")} == declared
