"""Violations of WCAG 2.2 A and AA and of best practices on a page of the console, found by axe-core."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

AXE = Path(__file__).parents[3] / "frontend" / "node_modules" / "axe-core" / "axe.min.js"

# A change of theme or width is applied with the next frame, and what it fades begins then. Spinners turn for ever.
_REST = """async () => {
    for (let frame = 0; frame < 2; frame++) await new Promise(requestAnimationFrame);
    await Promise.allSettled(
        document.getAnimations()
            .filter(({ effect }) => effect?.getComputedTiming().endTime < Infinity)
            .map(({ finished }) => finished)
    );
}"""
# The one rule whose answer depends on the theme.
COLOURS = {"runOnly": ["color-contrast"]}


def broken_rules(page: Page, options: dict[str, Any] | None = None, within: str = "") -> list[str]:
    """Each with the elements at fault, once nothing fades or moves any more: colours half way are nobody's to read.

    `within` selects what is looked at, instead of the whole page.
    """
    page.evaluate(_REST)
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())  # not a script tag: the console's content security policy forbids inline ones
    # Of what is in order axe would describe each element, which takes longer than to look at it.
    violations: list[dict[str, Any]] = page.evaluate(
        "([within, options]) => axe.run(within || document, options).then(({ violations }) => violations)",
        [within, {"resultTypes": ["violations"], **(options or {})}],
    )
    return [
        f"{violation['id']}: {violation['help']}: {json.dumps([node['target'] for node in violation['nodes']])}"
        for violation in violations
    ]
