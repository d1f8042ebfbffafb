"""The pictures of imports, and what the table of coverage is made of."""

from __future__ import annotations

import json

from scripts.coverage_by_package import by_package, table
from scripts.draw_pictures import BEFORE, levels
from scripts.import_graph import FOLDER, strong_components


def test_what_lies_on_a_circle_is_found_together() -> None:
    edges = {"a": ["b"], "b": ["c", "d"], "c": ["a"], "d": ["e"], "e": ["d"], "f": ["a"]}
    assert strong_components(edges) == [["a", "b", "c"], ["d", "e"]]
    assert strong_components({"a": ["b"], "b": []}) == []


def test_a_package_stands_above_what_it_imports() -> None:
    edges = {"views": ["actions"], "actions": ["models", "tasks"], "tasks": ["actions"], "models": []}
    assert levels(edges, edges, [["actions", "tasks"]]) == [["views"], ["actions", "tasks"], ["models"]]


def test_the_kept_graph_has_the_circles_that_the_page_names() -> None:
    before = json.loads((FOLDER / f"imports_{BEFORE}.json").read_text())
    assert len(before["module_circles"]) == 6
    assert [len(circle) for circle in before["package_circles"]] == [15, 2]


def test_branches_are_summed_by_package() -> None:
    def measured(taken: int, all_: int) -> dict[str, dict[str, int]]:
        return {"summary": {"covered_branches": taken, "num_branches": all_}}

    root = "/somewhere/platform/control_plane"
    files = {
        f"{root}/keys/auth.py": measured(3, 4),
        f"{root}/keys/deep/er.py": measured(1, 4),
        f"{root}/db.py": measured(1, 1),
        "/tree/inference_engine/lora_engine/memory/pool.py": measured(0, 0),
    }
    found = by_package(files)
    assert found == {"control_plane": (1, 1), "control_plane.identity.keys": (4, 8), "lora_engine.memory": (0, 0)}
    text = table(found, {"control_plane.identity.keys": (1, 4)})
    assert "| `control_plane.identity.keys` | 8 | 50.0 % | 25.0 % |" in text
    assert "| `lora_engine.memory` | 0 | – | – |" in text
    assert text.endswith("| all | 9 | 55.6 % | 25.0 % |\n")
