"""A package of the control plane is imported by its facade, as docs/architecture.md names it."""

from __future__ import annotations

import re

import grimp

from control_plane.core.config import REPOSITORY

# They put the packages together and see all of them.
COMPOSERS = frozenset({"apps", "asgi", "demo", "embedded", "management", "serve", "settings", "urls"})
ROW = re.compile(r"^\| `(\w+)` \| [^|]+ \| ([^|]*) ?\|$", re.MULTILINE)
NAME = re.compile(r"`([\w.]+)`")
Facades = dict[str, frozenset[str] | None]
"""By package; None where everything may be imported."""


def named() -> Facades:
    text = (REPOSITORY / "docs" / "architecture.md").read_text().partition("## Packages of the control plane")[2]
    rows = {package: modules.strip() for package, modules in ROW.findall(text)}
    return {
        package: None if modules == "all" else frozenset(NAME.findall(modules)) | {"models"}
        for package, modules in rows.items()
    }


def imported() -> dict[str, dict[str, set[str]]]:
    """Package -> module of it -> who imports it from another package."""
    graph = grimp.build_graph("control_plane", exclude_type_checking_imports=True, cache_dir=None)
    found: dict[str, dict[str, set[str]]] = {}
    for module in graph.modules:
        for target in graph.find_modules_directly_imported_by(module):
            source, (_, package, *rest) = module.split(".")[1:2], [*target.split("."), ""]
            name = ".".join(rest).strip(".")
            if source and name and package != source[0] and source[0] not in COMPOSERS:
                found.setdefault(package, {}).setdefault(name, set()).add(module)
    return found


def test_only_facades_are_imported() -> None:
    facades = named()
    around = {
        f"control_plane.{package}.{module}": sorted(importers)
        for package, modules in imported().items()
        for module, importers in modules.items()
        if (facade := facades.get(package, frozenset())) is not None and module not in facade
    }
    assert not around, "Name it in docs/architecture.md if it is meant for others; else call what is."


def test_facades_name_what_there_is() -> None:
    folder = REPOSITORY / "platform" / "control_plane"
    for package, modules in named().items():
        for module in (modules or frozenset()) - {"models"}:
            assert (folder / package / f"{module.replace('.', '/')}.py").is_file(), f"{package}.{module}"


def test_every_package_is_named() -> None:
    folder = REPOSITORY / "platform" / "control_plane"
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    assert packages - COMPOSERS == set(named())
