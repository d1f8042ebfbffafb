"""The checks of English in docstrings, docblocks and identifiers."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.prose import typescript_findings

PATH = Path("page.tsx")


def faults(source: str) -> list[tuple[int, str]]:
    return [(finding.line, finding.text) for finding in typescript_findings(PATH, source)]


def test_a_docblock_that_begins_with_a_fragment_is_found() -> None:
    source = "const a = 1;\n\n/** Of a key: the rest. */\nconst b = 2;\n"
    assert faults(source) == [(3, "a docblock begins with a fragment: 'Of a key: the rest.'")]


def test_the_first_sentence_of_a_docblock_over_several_lines_has_an_end() -> None:
    good = "  /**\n   * Returns the keys\n   * of a tenant.\n   *\n   * what follows is free\n   */\n"
    assert faults(good) == []
    assert faults("/**\n * Returns the keys\n * of a tenant\n */\n") == [
        (1, "a docblock's first sentence has no end: 'Returns the keys of a tenant'")
    ]


@pytest.mark.parametrize("declaration", ["const toldBy = 1;", "export function askedFor() {", "interface OwnKeys {"])
def test_a_name_with_a_word_that_describes_no_value_is_found(declaration: str) -> None:
    assert len(faults(declaration)) == 1


def test_turns_of_a_conversation_and_strings_are_no_faults() -> None:
    assert faults('export const turns = ["/** Of a string. */"];\nexport function NotFound() {') == []
