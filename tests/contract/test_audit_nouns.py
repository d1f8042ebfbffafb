"""The console filters the audit log by every noun of an action in it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECORDED = re.compile(r'(?:audit\.record|_audit)\((?:(?!announce)[^"])*?f?"([a-z_-]+)\.[a-z_{]')
OPTION = re.compile(r'^  \["([a-z_-]+)", "', re.MULTILINE)
# Nouns that few rows have, and by which nobody searches.
WITHOUT_OPTION = {"response", "content", "authenticator-app", "passkey", "recovery-codes"}


def test_each_noun_is_an_option() -> None:
    sources = (path.read_text() for path in (ROOT / "platform" / "control_plane").rglob("*.py"))
    nouns = {noun for text in sources for noun in RECORDED.findall(text)}
    options = set(OPTION.findall((ROOT / "frontend" / "src" / "features" / "audit" / "audit-page.tsx").read_text()))
    assert {"key", "host", "export_schedule"} <= nouns, "the expression finds no actions"
    assert nouns - options == WITHOUT_OPTION
