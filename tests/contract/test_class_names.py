"""One word, one meaning: no class name twice in packages that meet."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from control_plane.core.config import REPOSITORY

# What the control plane is made of, and what it shares with the engine.
ROOTS = (
    REPOSITORY / "platform" / "control_plane",
    REPOSITORY / "inference_engine" / "lora_engine" / "peft_format",
    REPOSITORY / "inference_engine" / "lora_engine" / "wire",
)


def has_names_of_its_own(path: Path) -> bool:
    """Django asks every command's class to be called Command; protobuf writes its modules by itself."""
    return not {"commands", "migrations"} & set(path.parts) and "_pb2" not in path.name


def test_no_class_name_is_used_twice() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in filter(has_names_of_its_own, (path for root in ROOTS for path in sorted(root.rglob("*.py")))):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(REPOSITORY)))
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert not twice
