"""The table of branch coverage by package."""

from __future__ import annotations

from scripts.coverage_by_package import by_package, table


def test_branches_are_summed_by_package() -> None:
    def measured(taken: int, all_: int) -> dict[str, dict[str, int]]:
        return {"summary": {"covered_branches": taken, "num_branches": all_}}

    root = "/somewhere/platform/control_plane"
    files = {
        f"{root}/identity/keys/auth.py": measured(3, 4),
        f"{root}/identity/keys/deep/er.py": measured(1, 4),
        f"{root}/core/db.py": measured(1, 1),
        "/tree/inference_engine/lora_engine/memory/pool.py": measured(0, 0),
    }
    found = by_package(files)
    assert found == {"control_plane.core": (1, 1), "control_plane.identity.keys": (4, 8), "lora_engine.memory": (0, 0)}
    text = table(found, {"control_plane.identity.keys": (1, 4)})
    assert "| `control_plane.identity.keys` | 8 | 50.0 % | 25.0 % |" in text
    assert "| `lora_engine.memory` | 0 | – | – |" in text
    assert text.endswith("| all | 9 | 55.6 % | 25.0 % |\n")
