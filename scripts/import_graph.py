"""Which packages import which, for the pictures of docs/explanation/imports.md.

    python -m scripts.import_graph              the working tree, as JSON
    python -m scripts.import_graph --ref ee9d5ac --write    a commit, into docs/images/explanation/imports_REF.json

Imports are those at run time: what stands under TYPE_CHECKING is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDER = REPOSITORY / "docs" / "images" / "explanation"
SOURCE_ROOTS = ("platform", "inference_engine", "kernels")
ROOTS = ("control_plane", "lora_engine")
Edges = Mapping[str, Iterable[str]]


def strong_components(edges: Edges) -> list[list[str]]:
    """Tarjan's algorithm, for components of more than one node: whatever lies on a circle together."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in edges.get(node, ()):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            at = stack.index(node)
            component = stack[at:]
            del stack[at:]
            if len(component) > 1:
                found.append(sorted(component))

    for node in edges:
        if node not in index:
            visit(node)
    return sorted(found)


def package_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


def measure() -> dict[str, Any]:
    """The graph of the packages that this process imports from its path."""
    import grimp

    graph = grimp.build_graph(*ROOTS, exclude_type_checking_imports=True, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in sorted(graph.modules)}
    between: Counter[tuple[str, str]] = Counter()
    for module, targets in imports.items():
        for target in targets:
            pair = (package_of(module), package_of(target))
            if pair[0] != pair[1] and not {*pair} & {*ROOTS}:
                between[pair] += 1
    packages = sorted({name for module in imports if (name := package_of(module)) not in ROOTS})
    edges = {name: sorted(target for source, target in between if source == name) for name in packages}
    return {
        "modules": len(imports),
        "imports": sum(map(len, imports.values())),
        "module_circles": strong_components(imports),
        "package_circles": strong_components(edges),
        "packages": packages,
        "package_imports": [[source, target, count] for (source, target), count in sorted(between.items())],
    }


def measure_ref(ref: str) -> dict[str, Any]:
    """The same of a commit, in a process of its own that sees only that commit's source."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", ref, *SOURCE_ROOTS], cwd=REPOSITORY, check=True, capture_output=True
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        path = os.pathsep.join(str(Path(folder) / root) for root in SOURCE_ROOTS)
        command = [sys.executable, str(Path(__file__).resolve())]
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": path}, cwd=folder, check=True, capture_output=True
        )
    return {"ref": ref, **json.loads(done.stdout)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--ref", help="a commit instead of the working tree")
    parser.add_argument("--write", action="store_true", help="keep it beside the pictures")
    asked = parser.parse_args()
    found = measure_ref(asked.ref) if asked.ref else measure()
    text = json.dumps(found, indent=1) + "\n"
    if asked.write:
        (FOLDER / f"imports_{asked.ref or 'now'}.json").write_text(text)
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
