"""The code blocks of the documentation's pages, with the marks that say how tests treat them.

Comments directly above a block, which no reader of the page sees:

    <!-- not run: REASON -->    tests only check the syntax, and that its commands and options exist
    <!-- prints: TEXT -->       its output contains the text
    <!-- file: NAME -->         it is saved as this file, as the page asks the reader to do
    <!-- output: exact -->      it is the whole output of the block before it

Other blocks of `bash` and `python` are run, except on the pages for operators and the incidents: those need an
installation of several processes, and tests only check their syntax, commands and options.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# A fence, indented where it belongs to a step of a list.
_FENCE = re.compile(r"((?:^ *<!-- [^\n]* -->\n)*)^( *)```([^\n]*)\n(.*?)^\2```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"^ *<!-- (not run|prints|file|output): (.+) -->$", re.MULTILINE)
_SPAN = re.compile(r"`(lorikeet [^`]+)`")
RUNNABLE = ("bash", "python")
# Folders of pages with code that needs more than the demo.
FOR_OPERATORS = ("docs/operations/", "docs/incidents/")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page. `line` is where its fence stands; `marks` are the values of its comments by name."""

    page: str
    line: int
    language: str
    text: str
    marks: dict[str, str] = field(default_factory=dict)

    @property
    def is_run(self) -> bool:
        is_kept = "not run" in self.marks or "file" in self.marks or self.page.startswith(FOR_OPERATORS)
        return self.language in RUNNABLE and not is_kept

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def guides() -> list[str]:
    """Return the pages whose every command is tested: the README, the tutorial and the how-tos."""
    return ["README.md", "docs/tutorial.md", *sorted(f"docs/how-to/{p.name}" for p in ROOT.glob("docs/how-to/*.md"))]


def pages() -> list[str]:
    """Return all pages with code for readers: the guides, and the reference pages that are written by hand."""
    patterns = ("docs/*.md", "docs/operations/*.md", "docs/incidents/*.md")
    others = [path.relative_to(ROOT).as_posix() for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    return [*guides(), *(page for page in others if page not in ("docs/tutorial.md", "docs/LOG.md"))]


def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text()
    return [
        Block(
            page,
            text.count("\n", 0, match.start(2)) + 1,
            match[3].strip(),
            textwrap.dedent(match[4]),
            dict(_MARK.findall(match[1])),
        )
        for match in _FENCE.finditer(text)
    ]


def mentioned_commands(page: str) -> Iterator[str]:
    """Yield the commands of `lorikeet` that stand between backquotes in the text of a page."""
    yield from _SPAN.findall(_FENCE.sub("", (ROOT / page).read_text()))
