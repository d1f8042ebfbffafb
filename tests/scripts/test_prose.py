"""The checks of English in docstrings, docblocks, help texts and identifiers."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from scripts.prose import constant_findings, help_text_findings, typescript_findings

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


@pytest.mark.parametrize(
    ("text", "faults"), [("Of a key.", 1), ("Since then.", 1), ("Whether it runs.", 0), ("Days.", 0)]
)
def test_a_help_text_that_begins_with_a_fragment_is_found(text: str, faults: int) -> None:
    assert len(help_faults(f"models.TextField(help_text={text!r})")) == faults


@pytest.mark.parametrize(
    "source",
    [
        'models.TextField(help_text=f"Of {most} keys.")',
        'models.TextField(help_text=f"{text}" "; null: none.", null=True)',
        'Field(default=None, description="Absent without calls.")',
        'Annotated[str, Field(description="For role assistant.")]',
        'OpenApiParameter("days", int, description=f"Since {first}.")',
        'parser.add_argument("--key", help="Its name.")',
    ],
)
def test_descriptions_options_and_f_strings_are_read(source: str) -> None:
    assert len(help_faults(source)) == (0 if "null" in source else 1)


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("# How long files are kept.\nKEPT = 1\n", [1]),
        ("# Time for which files are kept.\nKEPT = 1\n", []),
        ("class A:\n    # Of a page,\n    # in bytes.\n    _SIZE: int = 1\n", [2]),
        ("# Of a page.\n\nSIZE = 1\n# Of a page.\nsize = 1\n", []),
    ],
)
def test_the_comment_of_a_constant_that_begins_with_a_fragment_is_found(source: str, lines: list[int]) -> None:
    assert [finding.line for finding in constant_findings(PATH, source, ast.parse(source))] == lines


def test_other_descriptions_are_no_help_texts() -> None:
    assert help_faults('create(description="Of a tenant.")') == []
    assert help_faults("Field(description=TEXT)") == []


@pytest.mark.parametrize(
    ("source", "faults"),
    [
        ("models.DateTimeField(null=True)", 1),
        ("models.DateTimeField()", 0),
        ('models.DateTimeField(null=True, help_text="Time of the last use.")', 1),
        ('models.DateTimeField(null=True, help_text="Time of the last use; null: never.")', 0),
        ('models.DateTimeField(null=True, help_text=f"{text} Null = no limit.")', 0),
        ('serializers.CharField(allow_null=True, help_text="Name, if any.")', 1),
        ('serializers.CharField(allow_null=False, help_text="Name.")', 0),
    ],
)
def test_the_help_text_of_a_nullable_field_says_what_null_means(source: str, faults: int) -> None:
    assert len(help_faults(source)) == faults


def help_faults(source: str) -> list[str]:
    return [finding.text for finding in help_text_findings(PATH, ast.parse(source))]
