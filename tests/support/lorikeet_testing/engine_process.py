"""An engine process of a small model, as its supervisor starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import lora_engine
from lora_engine.peft_format import adapter_digest, folder_digests
from lora_engine.wire import engine_pb2 as pb
from lorikeet_testing.engine_client import EngineClient, connected
from lorikeet_testing.forked import ForkedProcess

SOURCES = Path(lora_engine.__file__).parents[1]
AS_A_MODULE = ("-m", "lora_engine")


class EngineProcess:
    """An engine. In tests it is a fork of a process that has loaded torch, unless it has other code."""

    def __init__(
        self,
        model: Path,
        folder: Path,
        *options: str,
        python: tuple[str, ...] = AS_A_MODULE,
        address: str = "",
        paths: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.address = address or f"unix:{folder}/engine.sock"
        self.log = folder / "engine.log"
        arguments = [
            "--model", str(model), "--listen", self.address, "--data-dir", str(folder / "data"), "--pool-mb", "16",
            "--host-arena-mb", "64", "--threads", "1", *options,
        ]  # fmt: skip
        path = os.pathsep.join([*paths, str(SOURCES), str(SOURCES.parent / "kernels")])
        settings = {**os.environ, "PYTHONPATH": path, **(env or {})}
        # A benchmark measures a process that shares nothing.
        forks = "PYTEST_VERSION" in os.environ and python == AS_A_MODULE
        self._process: subprocess.Popen[bytes] | ForkedProcess
        with self.log.open("ab") as log:
            if forks:
                command = ["lora_engine", *arguments]
                self._process = ForkedProcess(command, env=settings, folder=Path.cwd(), log=log, engine=True)
            else:
                self._process = subprocess.Popen([sys.executable, *python, *arguments], stderr=log, env=settings)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ranks(self) -> list[int]:
        """The process ids of the engine's ranks, in order; none if it has only one."""
        names = {Path(f"/proc/{pid}/comm").read_text().strip(): pid for pid in descendants(self.pid)}
        return [names[name] for name in sorted(names) if name.startswith("lora-rank-")]

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self, seconds: float = 30) -> int:
        return self._process.wait(seconds)

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


def descendants(pid: int) -> list[int]:
    """Return the process ids of the children of a process, and of theirs."""
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*children, *(further for child in children for further in descendants(child))]


@asynccontextmanager
async def running(
    model: Path, folder: Path, *options: str, **settings: Any
) -> AsyncIterator[tuple[EngineProcess, EngineClient]]:
    process = EngineProcess(model, folder, *options, **settings)
    try:
        async with connected(process.address) as client:
            await client.wait_ready()
            yield process, client
    except BaseException:
        sys.stderr.write(process.log.read_text())
        raise
    finally:
        process.end()


async def stage(client: EngineClient, folder: Path) -> str:
    digests = folder_digests(folder)
    digest = adapter_digest(digests)
    events = await client.stage(digest=digest, source_uri=f"file://{folder}", file_digests=digests)
    assert events[-1].phase == pb.StageEvent.READY, events[-1]
    return digest
