"""docs/architecture.md walks through rooms that exist."""

from __future__ import annotations

import re

import pytest

from control_plane.core.config import REPOSITORY

ROOTS = (REPOSITORY / "platform" / "control_plane", REPOSITORY / "inference_engine" / "lora_engine")
TEXT = (REPOSITORY / "docs" / "architecture.md").read_text()
NAMES = sorted(set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)`", TEXT)))


def test_the_page_names_modules() -> None:
    assert len(NAMES) > 20


@pytest.mark.parametrize("name", NAMES)
def test_every_module_named_exists(name: str) -> None:
    assert any((root / name).is_file() for root in ROOTS) or any(path for root in ROOTS for path in root.rglob(name))
