"""The supervisor of the platform's processes: it starts them in order, watches them and stops them.

    engine   loads the model while the database is prepared; a second one has the second demo model
    web      ASGI: API, websockets, console, and the embedded worker

A process that dies is reported with the end of its log and started again, each time after a longer pause. All processes
end with this one, also if it is killed (see `Reaper`).
"""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import IO, Any

from scripts.launch.children import Child, Reaper
from scripts.launch.options import HYBRID_MODEL, HYBRID_NAME, Options
from scripts.launch.paths import ROOT, require_space, require_writable
from scripts.launch.ports import require_free
from scripts.launch.progress import Progress, Stop
from scripts.launch.setup import DATA_SPACE
from scripts.launch.stamps import Stamp, digest_of

# Seconds in which each process has to start.
ENGINE_START_S = 300.0
WEB_START_S = 60.0
# Seconds in which a process has to stop after SIGTERM, before it is killed; in them the engine drains.
STOP_S = 8.0
DRAIN_S = 5
# Seconds before each start after the process died; the first one again after so many seconds of life.
RESTART_PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
HEALTHY_AFTER_S = 60.0
# The exit code of an engine that an operator restarts (`lora_engine.server.process.RESTART_STATUS`).
RESTART_STATUS = 75
# Secrets as commands print them: a key after its public part, a password in JSON or in a sentence.
SECRETS = (re.compile(r"(lk_[a-z2-7]{4,16}_)[A-Za-z0-9_-]+"), re.compile(r"(\"password\": \"|Login \S+ / )[^\",]+"))


class Interrupted(Exception):
    """The end of the start by Ctrl-C or SIGTERM."""


@dataclass
class Restarts:
    """A counter of restarts in a row, which chooses the pause before the next one."""

    count: int = 0

    def next_pause(self, lifetime_s: float) -> float:
        self.count = 0 if lifetime_s >= HEALTHY_AFTER_S else self.count
        pause = RESTART_PAUSES_S[min(self.count, len(RESTART_PAUSES_S) - 1)]
        self.count += 1
        return pause


class LocalPlatform:
    """A whole Lorikeet on one machine, as child processes of this one."""

    def __init__(self, options: Options, progress: Progress) -> None:
        self.options = options
        self.progress = progress
        self.signals = 0
        self.logs = options.var / "log"
        self._lock: IO[str] | None = None
        self._reaper = Reaper()
        env = platform_environment(options)
        self.engine = Child("engine", engine_command(options), env, self.logs / "engine.log", self._reaper)
        self.web = Child("web", web_command(options), env, self.logs / "web.log", self._reaper)
        self.engines = [self.engine]
        if options.hybrid:
            log = self.logs / "hybrid-engine.log"
            self.engines.append(Child("hybrid engine", hybrid_engine_command(options), env, log, self._reaper))
        self._env = env
        self._restarts = {child.name: Restarts() for child in (*self.engines, self.web)}
        self._start_again_at: dict[str, float] = {}

    # Starting ---------------------------------------------------------------

    def start(self) -> dict[str, Any]:
        """Start all processes. Returns the demo tenant as `seed_demo` prints it. Raises Stop or Interrupted."""
        self._check_prerequisites()
        self._handle_signals()
        for engine in self.engines:
            engine.start()
        with self.progress.step("Database") as note:
            note.text = self._migrate()
        self.web.start()
        with self.progress.step("Engine") as note:
            for engine, path in zip(self.engines, self.options.engine_sockets.values(), strict=True):
                self._wait(engine, ENGINE_START_S, partial(unix_socket_answers, path))
            second = f", {HYBRID_NAME} on cpu" if self.options.hybrid else ""
            note.text = f"{self.options.model_name} on {self.options.device}{second}"
        with self.progress.step("Web") as note:
            self._wait(self.web, WEB_START_S, lambda: http_answers(self.options, "/livez"))
            note.text = self.options.url
        with self.progress.step("Demo tenant") as note:
            demo = self._seed()
            ready = sum(state == "ready" for state in demo["adapters"].values())
            note.text = f"{ready} of {len(demo['adapters'])} adapters ready"
        return demo

    def _check_prerequisites(self) -> None:
        options = self.options
        require_writable(options.var, "LORIKEET_VAR_DIR")
        require_space(options.var, DATA_SPACE, "Lorikeet's data")
        for folder in (self.logs, options.var / "run", options.engine_socket.parent):
            folder.mkdir(parents=True, exist_ok=True)
        if not (options.model / "config.json").is_file():
            raise Stop(f"There is no model in {options.model}.", "Name a Hugging Face model folder: make run MODEL=…")
        self._take_lock()
        require_free(options.host, options.port)

    def _take_lock(self) -> None:
        """Lock the data folder: two platforms on one would damage the database and the engine's disk tier."""
        path = self.options.var / "run" / "lock"
        self._lock = path.open("a+")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._lock.seek(0)
            holder = self._lock.read().strip() or "another process"
            raise Stop(
                f"Lorikeet already runs with the data in {self.options.var} ({holder}).",
                "Use that one, or stop it with Ctrl-C where it runs, or give this one its own data: "
                "make run PORT=8001 LORIKEET_VAR_DIR=/another/folder",
            ) from error
        self._lock.truncate(0)
        self._lock.write(f"process {os.getpid()}, {self.options.url}")
        self._lock.flush()

    def _handle_signals(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.signals += 1

    def _manage(self, log_name: str, *arguments: str) -> str:
        """Run a management command and return its output, which var/log has with masked secrets. Raises Stop."""
        with subprocess.Popen(
            [sys.executable, str(ROOT / "manage.py"), *arguments],
            env=self._env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ) as process:  # fmt: skip
            output, _ = process.communicate()
        # The log is replaced: an earlier version of this program wrote secrets to it.
        (self.logs / f"{log_name}.log").write_text(mask(output))
        self._raise_if_interrupted()
        if process.returncode != 0:
            tail = "\n".join(f"    {line}" for line in output.strip().splitlines()[-15:])
            raise Stop(
                f"`manage.py {arguments[0]}` failed:\n{tail}\n",
                f"If you do not need the data in {self.options.var}, move it away and run the command again.",
            )
        return output.strip()

    def _migrate(self) -> str:
        """Migrate the database unless a stamp shows that it is up to date: Django takes seconds to see that."""
        stamp = migrated_stamp(self.options.var, self._env.get("LORIKEET_DATABASE_URL", ""))
        if stamp.holds() and (self.options.var / "lorikeet.sqlite3").exists():
            return "up to date"
        self._manage("database", "migrate", "--no-input", "--verbosity", "1")
        stamp.write()
        return "migrated"

    def _seed(self) -> dict[str, Any]:
        printed = self._manage("demo", "seed_demo", "--json", "--url", self.options.url)
        answer: dict[str, Any] = json.loads(printed.splitlines()[-1])
        return answer

    def _wait(self, child: Child, limit_s: float, ready: Callable[[], bool]) -> None:
        end = time.monotonic() + limit_s
        while not ready():
            self._raise_if_interrupted()
            for each in (child, *self.engines):
                if each.exit_code() is not None:
                    raise Stop(
                        f"The {each.name} {each.exit_description()} before it was ready:\n{each.log_tail()}\n",
                        f"Its whole log is {each.log}.",
                    )
            if time.monotonic() > end:
                raise Stop(
                    f"The {child.name} was not ready after {limit_s:.0f} s:\n{child.log_tail()}\n",
                    f"Its whole log is {child.log}.",
                )
            time.sleep(0.05)

    def _raise_if_interrupted(self) -> None:
        if self.signals:
            raise Interrupted

    # Watching ---------------------------------------------------------------

    def watch(self) -> None:
        """Restart processes that end until a signal arrives."""
        while not self.signals:
            for child in (*self.engines, self.web):
                self._restart_if_ended(child)
            time.sleep(0.1)

    def _restart_if_ended(self, child: Child) -> None:
        due = self._start_again_at.get(child.name)
        if due is not None:
            if time.monotonic() >= due:
                del self._start_again_at[child.name]
                child.start()
                self._report(f"The {child.name} was started again.")
        elif child.exit_code() == RESTART_STATUS:
            self._report(f"The {child.name} ended for a restart by an operator.")
            child.reap()
            self._start_again_at[child.name] = time.monotonic()
        elif child.exit_code() is not None:
            pause = self._restarts[child.name].next_pause(time.monotonic() - child.started_at)
            self._report(
                f"The {child.name} {child.exit_description()}. The end of {child.log}:\n{child.log_tail()}\n"
                f"  It is started again in {pause:g} s."
            )
            child.reap()
            self._start_again_at[child.name] = time.monotonic() + pause

    def _report(self, text: str) -> None:
        self.progress.say(f"{datetime.now():%H:%M:%S} {text}")

    # Stopping ---------------------------------------------------------------

    def stop(self) -> None:
        """Stop the web process, which sends requests to the engines, and then these. A second signal kills."""
        for child in (self.web, *self.engines):
            signals = self.signals
            child.terminate()
            deadline = time.monotonic() + STOP_S
            while child.exit_code() is None and child.pid and time.monotonic() < deadline and self.signals <= signals:
                time.sleep(0.05)
            if not child.wait_or_kill(time.monotonic()):
                self._report(f"The {child.name} did not stop in {STOP_S:.0f} s and was ended.")
        self._reaper.close()
        if self._lock is not None:
            self._lock.close()


def migrated_stamp(var: Path, database_url: str) -> Stamp:
    """Return the stamp in the data folder `var` by which its database has all migrations."""
    migrations = sorted((ROOT / "platform").glob("**/migrations/*.py"))
    return Stamp(var / "run" / "migrated", digest_of([database_url, ROOT / "constraints.txt", *migrations]))


def engine_command(options: Options) -> list[str]:
    return [
        sys.executable, "-m", "lora_engine",
        "--model", str(options.model),
        "--model-name", options.model_name,
        "--listen", f"unix:{options.engine_socket}",
        "--data-dir", str(options.var / "engine"),
        "--host-arena-mb", str(options.host_arena_mb),
        "--pool-mb", str(options.pool_mb),
        "--device", options.device,
        "--dtype", options.dtype,
        "--quantization", options.quantization,
        "--kv-cache-dtype", options.kv_cache_dtype,
        "--adapter-dtype", options.adapter_dtype,
        "--speculation", options.speculation,
        *(("--draft-model", str(options.draft_model)) if options.speculation == "eagle3" else ()),
        "--deterministic" if options.deterministic else "--no-deterministic",
        "--tensor-parallel", str(options.tensor_parallel),
        "--threads", str(options.threads),
        "--drain-seconds", str(DRAIN_S),
    ]  # fmt: skip


def hybrid_engine_command(options: Options) -> list[str]:
    """Return the command of the second demo model's engine: small, on the CPU."""
    return [
        sys.executable, "-m", "lora_engine",
        "--model", str(HYBRID_MODEL),
        "--model-name", HYBRID_NAME,
        "--listen", f"unix:{options.hybrid_socket}",
        "--data-dir", str(options.var / "hybrid-engine"),
        "--host-arena-mb", "64",
        "--pool-mb", "64",
        "--device", "cpu",
        "--threads", "1",
        "--drain-seconds", str(DRAIN_S),
    ]  # fmt: skip


def web_command(options: Options) -> list[str]:
    return [
        sys.executable, "-m", "control_plane.serve",
        "--host", options.host,
        "--port", str(options.port),
        "--graceful-s", "4",
    ]  # fmt: skip


def platform_environment(options: Options, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of an embedded platform's processes. Other variables of the caller are kept."""
    hosts = f"localhost,127.0.0.1,[::1],{options.host},{socket.gethostname()}"
    return {
        **base,
        "LORIKEET_VAR_DIR": str(options.var),
        "LORIKEET_ENGINE_HOSTS": ",".join(f"{name}=unix:{path}" for name, path in options.engine_sockets.items()),
        "LORIKEET_DEMO": "1",
        "LORIKEET_ALLOWED_HOSTS": base.get("LORIKEET_ALLOWED_HOSTS", hosts),
        "LORIKEET_PUBLIC_URL": base.get("LORIKEET_PUBLIC_URL", options.url),
        "DJANGO_SETTINGS_MODULE": "control_plane.settings",
        "PYTHONUNBUFFERED": "1",
    }


def mask(text: str) -> str:
    """Return the text with API keys and passwords masked."""
    for pattern in SECRETS:
        text = pattern.sub(r"\1…", text)
    return text


def unix_socket_answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def http_answers(options: Options, path: str) -> bool:
    """Return whether a GET of `path` has status 200. Proxies of the environment are not used."""
    host = "127.0.0.1" if options.host == "0.0.0.0" else options.host
    with closing(http.client.HTTPConnection(host, options.port, timeout=2)) as connection:
        try:
            connection.request("GET", path)
            return connection.getresponse().status == 200
        except OSError:
            return False
