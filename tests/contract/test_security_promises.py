"""docs/security.md: each section of promises names the tests that keep it, and they exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NO_PROMISES = {"When something has leaked"}
SECTIONS = dict(section.split("\n", 1) for section in (ROOT / "docs" / "security.md").read_text().split("\n## ")[1:])


def named_in(text: str) -> list[Path]:
    """A name without a folder is in the folder of the one before it."""
    folder, found = Path(), []
    for name in re.findall(r"`((?:tests/[a-z0-9_/]*/)?test_\w+\.py)`", text):
        path = Path(name)
        folder = path.parent if path.parent != Path() else folder
        found.append(ROOT / folder / path.name)
    return found


@pytest.mark.parametrize("section", sorted(SECTIONS.keys() - NO_PROMISES))
def test_promises_have_tests(section: str) -> None:
    named = named_in(SECTIONS[section])
    assert named, "this section names no test"
    assert not [str(path) for path in named if not path.is_file()]
