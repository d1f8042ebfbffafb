"""A constant of a module or class is assigned once. A rename can give two of them one name, which no linter reports."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from scripts.launch.paths import ROOT

SOURCES = ("platform", "inference_engine", "kernels", "scripts", "benchmarks", "demo", "tests")


def repeated(tree: ast.AST) -> Iterator[str]:
    """Yield the constants that the body of a module or class assigns more than once."""
    waiting = [tree]
    while waiting:
        node = waiting.pop(0)
        # Classes stand among statements only, and nine of ten nodes of a tree are in expressions.
        waiting += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)]
        if isinstance(node, ast.Module | ast.ClassDef):
            names: Counter[str] = Counter()
            for statement in node.body:
                targets = statement.targets if isinstance(statement, ast.Assign) else []
                targets += [statement.target] if isinstance(statement, ast.AnnAssign) else []
                for target in targets:
                    each = target.elts if isinstance(target, ast.Tuple) else [target]
                    names.update(name.id for name in each if isinstance(name, ast.Name) and name.id.isupper())
            yield from (name for name, count in names.items() if count > 1 and name != "_")


def test_a_repeated_constant_is_seen() -> None:
    assert list(repeated(ast.parse("_A = 1\nB, C = 2, 3\nclass D:\n    B = 4\nC: int = 5\n_A = 6"))) == ["_A", "C"]


def test_constants_are_assigned_once() -> None:
    files = [path for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py"))]
    assert files
    assert [f"{p.relative_to(ROOT)}: {name}" for p in files for name in repeated(ast.parse(p.read_text()))] == []
