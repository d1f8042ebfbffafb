"""The packages of the control plane: each has a layer, is imported by its facade, and none import each other."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter

import grimp

from control_plane.core.config import REPOSITORY

Imports = dict[str, set[str]]
ROOTS = ("control_plane", "lora_engine", "lora_kernels")
FOLDER = REPOSITORY / "platform" / "control_plane"
# They put the packages together and see all of them.
COMPOSERS = frozenset({"apps", "asgi", "embedded", "management", "serve", "settings", "urls"})
ROW = re.compile(r"^\| `([\w.]+)` \| [^|]+ \| ([^|]*) ?\|$", re.MULTILINE)
NAME = re.compile(r"`([\w.]+)`")
# The modules of a package that others may import, by package; None where all are.
Facades = dict[str, frozenset[str] | None]


@cache
def imports() -> Imports:
    """Return what each module imports at run time, so without what stands under TYPE_CHECKING."""
    graph = grimp.build_graph(*ROOTS, exclude_type_checking_imports=True, cache_dir=None)
    return {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}


@cache
def facades() -> Facades:
    """Return the table of docs/architecture.md."""
    text = (REPOSITORY / "docs" / "architecture.md").read_text().partition("## Packages of the control plane")[2]
    rows = {package: modules.strip() for package, modules in ROW.findall(text)}
    return {
        package: None if modules == "all" else frozenset(NAME.findall(modules)) for package, modules in rows.items()
    }


def package_of(module: str) -> str | None:
    """Return the package of the table that a module of the control plane belongs to: the longest name that fits.

    A module that stands in `core` itself is a package of its own.
    """
    name = module.removeprefix("control_plane.")
    fits = [package for package in facades() if name == package or name.startswith(f"{package}.")]
    return max(fits, key=len, default=name if name.startswith("core.") else None)


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """Return the nodes of one circle, or nothing."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_circle_finds_one() -> None:
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == {"a", "b", "c"}


def test_no_modules_import_each_other() -> None:
    """Imports inside functions and under TYPE_CHECKING count: a reader follows them too."""
    graph = grimp.build_graph(*ROOTS, "lorikeet_cli", exclude_type_checking_imports=False, cache_dir=None)
    assert len(graph.modules) > 400
    assert not circle({module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules})


def test_no_packages_import_each_other() -> None:
    packages: Imports = {}
    for module, targets in imports().items():
        if source := package_of(module):
            packages.setdefault(source, set()).update({package_of(target) or source for target in targets} - {source})
    assert len(packages) > 30
    assert not circle(packages)


def test_no_packages_of_the_engine_import_each_other() -> None:
    packages: Imports = {}
    for module, targets in imports().items():
        source = ".".join(module.split(".")[:2])
        if module.startswith("lora_engine."):
            found = {".".join(target.split(".")[:2]) for target in targets if target.startswith("lora_engine.")}
            packages.setdefault(source, set()).update(found - {source})
    assert not circle(packages)


def test_packages_are_imported_by_their_facades() -> None:
    around: dict[str, set[str]] = {}
    for module, targets in imports().items():
        if not module.startswith("control_plane.") or module.split(".")[1] in COMPOSERS:
            continue
        for target in targets:
            package = package_of(target)
            facade = facades().get(package or "")
            inner = target.removeprefix(f"control_plane.{package}").strip(".")
            outside = package and inner and package != package_of(module) and inner.split(".")[-1] != "models"
            if outside and facade is not None and inner not in facade:
                around.setdefault(target, set()).add(module)
    assert not around, "Name it in docs/architecture.md if it is meant for others; else call what is."


def test_facades_name_modules_that_exist() -> None:
    for package, modules in facades().items():
        for module in modules or frozenset():
            assert (FOLDER / package.replace(".", "/") / f"{module.replace('.', '/')}.py").is_file(), (package, module)


def test_every_module_belongs_to_a_package() -> None:
    groups = {path.parent.name for path in FOLDER.glob("*/__init__.py")} - COMPOSERS
    rest = {module for module in imports() if module.startswith("control_plane.") and package_of(module) is None}
    assert not {module for module in rest if module.split(".")[1] in groups and module.count(".") > 1}


def test_every_package_has_a_layer() -> None:
    contracts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(c["layers"] for c in contracts if c.get("containers") == ["control_plane"])
    named = {f"control_plane.{name.strip()}" for line in layers for name in re.split("[:|]", line)}
    lacking = {
        module
        for module in imports()
        if module.startswith("control_plane.")
        and module not in {f"control_plane.{path.parent.name}" for path in FOLDER.glob("*/__init__.py")}
        and not any(module == name or module.startswith(f"{name}.") for name in named)
    }
    assert not lacking
