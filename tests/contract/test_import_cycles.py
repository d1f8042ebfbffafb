"""No circle of modules, and none of packages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter

import grimp

Imports = dict[str, set[str]]
ROOTS = ("control_plane", "lora_engine", "lora_kernels")


@cache
def imports() -> Imports:
    """Of every module at run time: what stands under TYPE_CHECKING is not imported."""
    graph = grimp.build_graph(*ROOTS, exclude_type_checking_imports=True, cache_dir=None)
    return {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}


def package_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


def package_imports() -> Imports:
    """Between packages."""
    found: Imports = {}
    for module, targets in imports().items():
        source = package_of(module)
        for target in map(package_of, targets):
            if source != target and target not in ROOTS:
                found.setdefault(source, set()).add(target)
    return found


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_a_circle_is_found() -> None:
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == {"a", "b", "c"}


def test_no_modules_import_each_other() -> None:
    assert len(imports()) > 400
    assert not circle(imports())


def test_no_packages_import_each_other() -> None:
    assert not circle(package_imports())
