"""docker-compose.yml read without Docker: variables filled in, anchors and merges resolved."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
COMPOSE = ROOT / "docker-compose.yml"
VARIABLE = re.compile(r"\$\$|\$\{(?P<name>[A-Z_]+)(?::(?P<kind>[-?])(?P<rest>[^}]*))?\}")


class MissingVariableError(KeyError):
    """A variable that the file requires (`${NAME:?why}`) is not set."""


def fill_in(text: str, variables: Mapping[str, str]) -> str:
    """Compose's substitution, as far as the file uses it: `${A}`, `${A:-default}`, `${A:?why}`, `$$`."""

    def value(match: re.Match[str]) -> str:
        if match.group(0) == "$$":
            return "$"
        name = match.group("name")
        if variables.get(name):
            return variables[name]
        if match.group("kind") == "?":
            raise MissingVariableError(match.group("rest"))
        return match.group("rest") or ""

    return VARIABLE.sub(value, text)


def variables_in(text: str) -> set[str]:
    return {match.group("name") for match in VARIABLE.finditer(text) if match.group("name")}


def workers() -> list[str]:
    """The services that run tasks."""
    anything = dict.fromkeys(variables_in(COMPOSE.read_text()), "x")
    return [name for name in load_compose(anything)["services"] if name.startswith("worker-")]


def load_compose(variables: Mapping[str, str]) -> dict[str, Any]:
    text = "\n".join(line for line in COMPOSE.read_text().splitlines() if not line.lstrip().startswith("#"))
    loaded: dict[str, Any] = yaml.safe_load(fill_in(text, variables))
    return loaded
