"""The production topology as processes of this machine: what docker-compose.yml starts.

Commands and settings are read out of the file; only host names, ports and folders are translated. PostgreSQL and
Redis are the throw-away ones of the run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

import httpx

from lorikeet_testing.compose import ROOT, load_compose
from lorikeet_testing.forked import ForkedProcess
from lorikeet_testing.web import free_port, new_installation

T = TypeVar("T")


@dataclass
class Topology:
    """The services of the compose file, translated to this machine."""

    folder: Path
    port: int
    settings: Mapping[str, str] = field(default_factory=dict)
    installation: Mapping[str, str] = field(default_factory=new_installation)
    processes: dict[str, subprocess.Popen[bytes] | ForkedProcess] = field(default_factory=dict)
    # Whether a process is a fork of one that has loaded what it needs: for tests that start many.
    forked: bool = False
    # The port with the metrics of each started process; web shows them on its own.
    metrics_ports: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.installation, "Run this through scripts.test_services, which starts PostgreSQL and Redis."
        self.services: dict[str, Any] = load_compose({"POSTGRES_PASSWORD": "unused", "LORIKEET_SECRET_KEY": "s" * 40})[
            "services"
        ]
        for name in ("data", "engine", "run", "log"):
            (self.folder / name).mkdir(parents=True)

    @property
    def database_url(self) -> str:
        return self.installation["LORIKEET_DATABASE_URL"]

    @property
    def redis_url(self) -> str:
        return self.installation["LORIKEET_REDIS_URL"]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def translate(self, text: str) -> str:
        for theirs, ours in (
            ("/var/lib/lorikeet-engine", str(self.folder / "engine")),
            ("/var/lib/lorikeet", str(self.folder / "data")),
            ("/run/lorikeet", str(self.folder / "run")),
            ("redis://redis:6379/0", self.redis_url),
            ("0.0.0.0", "127.0.0.1"),
        ):
            text = text.replace(theirs, ours)
        whole = {"/model": str(ROOT / "demo" / "model"), "8000": str(self.port), "python": sys.executable}
        return whole.get(text, text)

    def command(self, service: str) -> list[str]:
        return [self.translate(part) for part in self.services[service]["command"]]

    def environment(self, service: str) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("LORIKEET_")}
        settings = self.services[service].get("environment", {})
        # A name without a value takes over what the shell has, and is not set where the shell has nothing.
        variables = {name: self.translate(str(value)) for name, value in settings.items() if value is not None}
        if "LORIKEET_DATABASE_URL" in variables:
            variables["LORIKEET_DATABASE_URL"] = self.database_url
        return {**inherited, **variables, **self.settings, "PYTHONUNBUFFERED": "1"}

    def run(self, service: str, *command: str) -> str:
        """Run a service to its end, like the migrations; return what it printed."""
        done = subprocess.run(
            command or self.command(service), cwd=ROOT, env=self.environment(service), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, service: str, name: str = "", port: int = 0) -> None:
        """Start a service; `name` and `port` are for a further process of the same one."""
        name = name or service
        metrics_port = self.metrics_ports[name] = free_port()
        command = [str(port) if port and part == str(self.port) else part for part in self.command(service)]
        command = [str(metrics_port) if part == "9400" else part for part in command]
        environment = self.environment(service)
        if environment.get("LORIKEET_METRICS_PORT"):
            environment["LORIKEET_METRICS_PORT"] = str(metrics_port)
        if token := self.settings.get("LORIKEET_METRICS_TOKEN"):
            environment["LORA_ENGINE_METRICS_TOKEN"] = token
        with (self.folder / "log" / f"{name}.log").open("ab") as log:
            if self.forked:
                self.processes[name] = self._fork(command, environment, log)
                return
            self.processes[name] = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    @staticmethod
    def _fork(command: list[str], environment: Mapping[str, str], log: IO[bytes]) -> ForkedProcess:
        """Fork a service, whose command is `python -m MODULE …` or `python manage.py …`."""
        python, first, *rest = command
        assert python == sys.executable and first in ("-m", "manage.py"), command
        module = rest if first == "-m" else ["control_plane", *rest]
        return ForkedProcess(module, env=environment, folder=ROOT, log=log, engine=module[0] == "lora_engine")

    def kill(self, name: str) -> None:
        """Kill the process and its children by SIGKILL."""
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> dict[str, int]:
        """Stop all by SIGTERM, as Docker does; return exit codes by service."""
        for name in reversed(self.processes):
            self.processes[name].send_signal(signal.SIGTERM)
        codes = {}
        for name, process in self.processes.items():
            try:
                codes[name] = process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                codes[name] = process.wait()
        return codes

    def logs(self) -> str:
        files = sorted((self.folder / "log").iterdir())
        return "\n".join(f"── {path.stem}\n{path.read_text(errors='replace')[-3000:]}" for path in files)

    def eventually(self, what: str, condition: Callable[[], T], limit_s: float = 60) -> T:
        """Return the first true value of `condition`; fail with the logs when there is none."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            for name, process in self.processes.items():
                assert process.poll() is None, f"{name} ended with {process.returncode}\n{self.logs()}"
            try:
                if answer := condition():
                    return answer
            except httpx.TransportError:
                pass
            time.sleep(0.2)
        raise AssertionError(f"{what}: not within {limit_s} s\n{self.logs()}")
