"""What docs/security.md says holds a promise is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SECURITY = (ROOT / "docs" / "security.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", SECURITY)))


def test_the_document_names_tests() -> None:
    assert len(NAMED) > 20


@pytest.mark.parametrize(("file", "name"), NAMED, ids=[f"{file}::{name}" for file, name in NAMED])
def test_every_test_that_is_named_exists(file: str, name: str) -> None:
    text = (ROOT / file).read_text()
    assert not name or re.search(rf"^(?:async )?def {name}\(", text, re.MULTILINE)
