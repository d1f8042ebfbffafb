"""Check the English of docstrings, docblocks, comments of constants, help texts, and the words of identifiers.

It is a part of `make check`.


    python -m scripts.prose                 print every finding with its line
    python -m scripts.prose --count         print the number of findings by package
    python -m scripts.prose PATH [PATH …]   only these files and folders

The rules are in CONTRIBUTING.md, "English". A docstring's first line is a whole sentence that stands without the name
above it, and identifiers are nouns and verbs of the field. The script checks only what a program can see.
"""

from __future__ import annotations

import ast
import itertools
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("platform", "inference_engine", "kernels", "scripts", "benchmarks", "tests/support", "demo", "frontend/src")
GENERATED = ("_pb2.py", "_pb2_grpc.py", "/migrations/", "schema.d.ts")
SUFFIXES = (".py", ".ts", ".tsx")
# First words of a sentence that needs the name above it to be understood.
FRAGMENTS = frozenset(
    [
        "Also",
        "And",
        "As",
        "At",
        "Because",
        "Before",
        "Beside",
        "Besides",
        "But",
        "By",
        "For",
        "From",
        "How",
        "If",
        "In",
        "Into",
        "It",
        "Its",
        "Like",
        "Nor",
        "Not",
        "Of",
        "On",
        "One",
        "Only",
        "Or",
        "Out",
        "So",
        "Such",
        "Than",
        "That",
        "Their",
        "Then",
        "They",
        "This",
        "Those",
        "Though",
        "Until",
        "Up",
        "What",
        "Whatever",
        "When",
        "Whence",
        "Where",
        "Wherever",
        "Whether",
        "Which",
        "While",
        "Who",
        "Whoever",
        "Whose",
        "Why",
        "With",
        "Without",
    ]
)
# First words that help texts, which are often phrases, may have all the same, and those that they may not have either.
PHRASES = frozenset(["How", "If", "One", "Only", "Whether", "Why"])
HELP_FRAGMENTS = (FRAGMENTS - PHRASES) | {"Absent", "After", "Ignored", "Present", "Since"}
# Calls whose keyword `description` is a text of the API's schema, and the one whose keyword `help` is an option's text.
DESCRIBED = frozenset(["Field", "OpenApiParameter", "OpenApiResponse", "extend_schema"])
OPTIONS = frozenset(["add_argument"])
# Words that do not describe a value. The field has a noun for each.
WORDS = frozenset(
    ["asked", "found", "own", "told", "said", "given", "held", "turn", "turns", "look", "looks", "looked"]
)
# Names of other libraries and formats, and words with a meaning of their own in the field.
ALLOWED = frozenset(
    [
        "asked_at",
        "restart_asked_at",
        "not_found",
        "page_not_found",
        "model_not_found",
        "rows_found",
        "look_ahead",
        "lookup",
    ]
)
NAME = re.compile(r"[a-z0-9]+|[A-Z][a-z0-9]*")
# A turn of a conversation is the word of the field, as in the playground.
CONVERSATION = ("turn", "turns")
DOCBLOCK = re.compile(r"^[ \t]*/\*\*(\s.*?)\*/", re.MULTILINE | re.DOTALL)
DECLARED = re.compile(
    r"^\s*(?:export )?(?:default )?(?:async )?(?:const|let|function\*?|class|interface|type) (\w+)", re.M
)


@dataclass(frozen=True)
class Finding:
    """A line that breaks a rule."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.text}"


def source_files(chosen: list[str]) -> list[Path]:
    roots = [ROOT / name for name in (chosen or FOLDERS)]
    files = [path for root in roots for path in ([root] if root.is_file() else sorted(root.rglob("*")))]
    return [path for path in files if path.suffix in SUFFIXES and not any(part in str(path) for part in GENERATED)]


def sentence_fault(text: str, kind: str) -> str | None:
    """Return what is wrong with the first sentence of a docstring or a docblock."""
    first = " ".join(text.split("\n\n")[0].split())
    if re.split(r"[\s,.:;]", first)[0] in FRAGMENTS:
        return f"a {kind} begins with a fragment: {first[:70]!r}"
    if not first.endswith((".", "!", "?", ":", "`", "…", ")")):
        return f"a {kind}'s first sentence has no end: {first[:70]!r}"
    return None


def docstring_findings(path: Path, tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is None:
                continue
            if fault := sentence_fault(text, "docstring"):
                yield Finding(path, node.body[0].lineno, fault)
        body = getattr(node, "body", None)
        if isinstance(node, ast.Module | ast.ClassDef) and isinstance(body, list):
            for before, after in itertools.pairwise(body):
                if (
                    isinstance(before, ast.Assign | ast.AnnAssign)
                    and isinstance(after, ast.Expr)
                    and isinstance(after.value, ast.Constant)
                    and isinstance(after.value.value, str)
                ):
                    yield Finding(path, after.lineno, "a constant's comment stands below it: write it above, with #")


def constant_findings(path: Path, source: str, tree: ast.Module) -> Iterator[Finding]:
    """Yield comments above constants that begin with a fragment."""
    lines = source.splitlines()
    for node in ast.walk(tree):
        for each in node.body if isinstance(node, ast.Module | ast.ClassDef) else ():
            targets = each.targets if isinstance(each, ast.Assign) else [getattr(each, "target", None)]
            if not any(isinstance(target, ast.Name) and target.id.isupper() for target in targets):
                continue
            first = each.lineno - 1  # a count from 0: the line of the constant
            while first > 0 and lines[first - 1].lstrip().startswith("# "):
                first -= 1
            comment = lines[first].lstrip(" #")
            if first < each.lineno - 1 and re.split(r"[\s,.:;]", comment)[0] in FRAGMENTS:
                yield Finding(path, first + 1, f"a constant's comment begins with a fragment: {comment[:70]!r}")


def text_of(node: ast.expr) -> str | None:
    """Return the text of a string or an f-string, with `{…}` for its expressions; None for other expressions."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{…}" for part in node.values)
    return None


def help_text_findings(path: Path, tree: ast.Module) -> Iterator[Finding]:
    """Yield help texts of columns, fields and options that need the name beside them, or do not say what null means."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        name = ast.unparse(call.func).rpartition(".")[2]
        if is_nullable(call) and all(keyword.arg != "help_text" for keyword in call.keywords):
            yield Finding(path, call.lineno, "a nullable column or field has no help text, which says what null means")
        for keyword in call.keywords:
            described = keyword.arg == "description" and name in DESCRIBED
            option = keyword.arg == "help" and name in OPTIONS
            if keyword.arg != "help_text" and not described and not option:
                continue
            text, line = text_of(keyword.value), keyword.value.lineno
            if text is None:
                continue
            if re.split(r"[\s,.:;]", text)[0] in HELP_FRAGMENTS:
                yield Finding(path, line, f"a help text begins with a fragment: {text[:70]!r}")
            if is_nullable(call) and not re.search(r"\bnull\b", text, re.IGNORECASE):
                yield Finding(path, line, f"a help text does not say what null means: {text[:70]!r}")


def is_nullable(call: ast.Call) -> bool:
    """Return True for a column or a serializer's field that is declared as nullable."""
    return any(
        keyword.arg in ("null", "allow_null")
        and isinstance(keyword.value, ast.Constant)
        and keyword.value.value is True
        for keyword in call.keywords
    )


def api_fields(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the names of serializers' fields: the API's JSON has them, so they are not free to choose."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any("Serializer" in ast.unparse(base) for base in node.bases):
            yield from (target for each in node.body if isinstance(each, ast.Assign) for target in each.targets)


def identifiers(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of everything that a file names itself."""
    fields = set(api_fields(tree))
    for node in ast.walk(tree):
        if node in fields:
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def bad_words(name: str) -> str:
    """Return the forbidden words in an identifier, separated by commas."""
    if name.strip("_").lower() in ALLOWED:
        return ""
    return ", ".join(sorted({part.lower() for part in NAME.findall(name.replace("NotFound", ""))} & WORDS))


def word_findings(path: Path, tree: ast.Module) -> Iterator[Finding]:
    for line, name in identifiers(tree):
        if bad := bad_words(name):
            yield Finding(path, line, f"the name {name!r} contains {bad!r}")


def typescript_findings(path: Path, source: str) -> Iterator[Finding]:
    """Yield the faults of docblocks and of declared names. Fields of the API and destructured names are not checked."""

    def line_of(match: re.Match[str]) -> int:
        return source.count("\n", 0, match.start()) + 1

    for block in DOCBLOCK.finditer(source):
        if fault := sentence_fault(re.sub(r"\n\s*\* ?", "\n", block[1]).strip(), "docblock"):
            yield Finding(path, line_of(block), fault)
    for declared in DECLARED.finditer(source):
        if (bad := bad_words(declared[1])) and bad not in CONVERSATION:
            yield Finding(path, line_of(declared), f"the name {declared[1]!r} contains {bad!r}")


def findings(chosen: list[str]) -> Iterator[Finding]:
    for path in source_files(chosen):
        if path.suffix == ".py":
            tree = ast.parse(source := path.read_text())
            yield from docstring_findings(path, tree)
            yield from constant_findings(path, source, tree)
            yield from help_text_findings(path, tree)
            yield from word_findings(path, tree)
        else:
            yield from typescript_findings(path, path.read_text())


def main() -> int:
    chosen = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    rows = list(findings(chosen))
    if "--count" in sys.argv:
        by_package = Counter("/".join(row.path.relative_to(ROOT).parts[:4][:-1]) for row in rows)
        for package, number in sorted(by_package.items(), key=lambda row: -row[1]):
            print(f"{number:6d} {package}")
        print(f"{len(rows):6d} in all")
        return 0
    for row in rows:
        print(row)
    return 1 if rows else 0


if __name__ == "__main__":
    sys.exit(main())
