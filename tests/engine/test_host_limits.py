"""The host's arena takes a share of what this process may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lora_engine.config import EngineConfig
from lora_engine.memory.host_limits import memory_bytes

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
GIB = 1 << 30


def tree(root: Path, group: str, **limits: str) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(f"0::{group}\n")
    for folder, text in limits.items():
        path = root / "sys/fs/cgroup" / folder.replace("_", "/").strip("/")
        path.mkdir(parents=True, exist_ok=True)
        (path / "memory.max").write_text(text + "\n")
    return root


def test_the_machines_without_groups(tmp_path: Path) -> None:
    assert memory_bytes(tmp_path) == MACHINE
    assert 0 < memory_bytes() <= MACHINE


@pytest.mark.parametrize(
    ("limits", "wanted"),
    [
        ({"a_b": "1000000", "a": "max"}, 1_000_000),
        ({"a_b": "max", "a": "2000000"}, 2_000_000),  # a pod's limit above its container's group
        ({"a_b": "max", "a": "max"}, MACHINE),
        ({"a_b": str(8 * MACHINE)}, MACHINE),
        ({"a_c": "5"}, MACHINE),  # another group's
    ],
)
def test_the_least_of_the_groups_above(tmp_path: Path, limits: dict[str, str], wanted: int) -> None:
    assert memory_bytes(tree(tmp_path, "/a/b", **limits)) == wanted


def test_a_container_sees_its_group_as_the_root(tmp_path: Path) -> None:
    assert memory_bytes(tree(tmp_path, "/", _="3000000")) == 3_000_000


def test_groups_of_the_first_version(tmp_path: Path) -> None:
    folder = tmp_path / "sys/fs/cgroup/memory"
    folder.mkdir(parents=True)
    (folder / "memory.limit_in_bytes").write_text("4000000\n")
    assert memory_bytes(tmp_path) == 4_000_000


def test_the_arena_takes_a_share_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lora_engine.memory.host_limits.memory_bytes", lambda: 64 * GIB)
    assert EngineConfig(model=Path("m"), device="cuda").host_arena_bytes == 16 * GIB
    assert EngineConfig(model=Path("m"), device="cpu").host_arena_bytes == GIB
    assert EngineConfig(model=Path("m"), device="cuda", host_arena_mb=100).host_arena_bytes == 100 << 20
    monkeypatch.setattr("lora_engine.memory.host_limits.memory_bytes", lambda: 2 * GIB)
    assert EngineConfig(model=Path("m"), device="cpu").host_arena_bytes == GIB // 2
