"""The settings table of docs/operations/settings.md is the settings class, neither more nor less."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic_core import PydanticUndefined

from control_plane.core.config import REPOSITORY, Settings

DOCUMENT = REPOSITORY / "docs" / "operations" / "settings.md"
ROW = re.compile(r"^\| `LORIKEET_([A-Z_]+)` \| (.*?) \|", re.MULTILINE)


def documented() -> dict[str, str]:
    return {name.lower(): default for name, default in ROW.findall(DOCUMENT.read_text())}


def shown(default: object) -> str:
    """A default as the table writes it."""
    if default in ("", None, PydanticUndefined):
        return "–"
    if isinstance(default, Path):
        return str(default.relative_to(REPOSITORY))
    return str(default).lower() if isinstance(default, bool) else str(default)


def test_every_setting_is_documented_with_its_default() -> None:
    fields = {name: shown(field.default) for name, field in Settings.model_fields.items()}
    assert documented() == fields
