"""An engine that ended because an operator had it restarted is started at once, and not as one that failed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from lora_engine.server import process
from scripts.launch import supervisor
from scripts.launch.supervisor import LocalPlatform, Restarts


class Child:
    name, started_at, log = "engine", 0.0, "engine.log"

    def __init__(self, code: int) -> None:
        self.code: int | None = code
        self.starts = 0

    def exit_code(self) -> int | None:
        return self.code

    def reap(self) -> None:
        self.code = None

    def start(self) -> None:
        self.starts += 1

    def log_tail(self) -> str:
        return "the log's end"

    def exit_description(self) -> str:
        return f"ended with code {self.code}"


def looked_after(code: int) -> tuple[Child, list[str], Any]:
    said: list[str] = []
    child = Child(code)
    platform: Any = SimpleNamespace(_restarts={"engine": Restarts()}, _start_again_at={}, _report=said.append)
    for _ in range(2):
        LocalPlatform._restart_if_ended(platform, child)  # type: ignore[arg-type]
    return child, said, platform


def test_a_wanted_restart_is_at_once() -> None:
    assert supervisor.RESTART_STATUS == process.RESTART_STATUS
    child, said, platform = looked_after(supervisor.RESTART_STATUS)
    assert child.starts == 1
    assert said[0] == "The engine ended for a restart by an operator."
    assert platform._restarts["engine"].count == 0, "it counts as no failure"


def test_a_failure_is_told_with_its_log_and_paused_after() -> None:
    child, said, _ = looked_after(1)
    assert child.starts == 0
    assert "the log's end" in said[0]
