"""Python processes as forks of one that has loaded the platform, or torch: that is nine tenths of a start.

Of the platform, Django's settings are read anew after the fork (`loaded_platform.py`); nothing of the engine is loaded
before. How the product itself starts is what `launched.py` and `test_topology.py` see.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver
from pathlib import Path
from typing import IO

# Modules that a web process loads while it starts, or later.
PRELOADED = [
    "botocore.auth", "botocore.endpoint", "celery.app.amqp", "celery.apps.worker", "celery.backends.redis",
    "celery.beat", "celery.concurrency.thread", "celery.fixups.django", "celery.worker.autoscale",
    "celery.worker.components", "celery.worker.consumer", "celery.worker.control", "celery.worker.loops",
    "celery.worker.strategy", "channels.generic.websocket", "channels.layers", "channels_redis.core",
    "django.contrib.postgres.fields", "django.contrib.sessions.backends.base", "django.contrib.sessions.serializers",
    "django.core.cache.backends.locmem", "django.core.cache.backends.redis", "django.core.handlers.asgi",
    "django.core.mail", "django.core.management.base", "django.core.management.commands.migrate",
    "django.core.serializers.json", "django.db.backends.postgresql.base", "django.db.backends.sqlite3.base",
    "django.db.migrations.autodetector", "django.db.models", "django.forms", "django.middleware.clickjacking",
    "django.middleware.common", "django.middleware.security", "django.template.backends.django",
    "django.templatetags.cache", "django.templatetags.l10n", "django.templatetags.tz", "django.test.signals",
    "django.urls", "django.views.defaults", "django.views.generic", "google.protobuf.json_format", "grpc.aio", "httpx",
    "jinja2.sandbox", "joserfc.jwt", "kombu.transport.memory", "kombu.transport.redis", "numpy.typing", "obstore.store",
    "prometheus_client", "psycopg_pool", "pydantic_settings", "requests", "rest_framework.exceptions",
    "rest_framework.serializers", "uvicorn.lifespan.on", "uvicorn.loops.uvloop",
    "uvicorn.protocols.websockets.websockets_sansio_impl", "uvloop", "whitenoise.middleware", "yaml",
]  # fmt: skip
# Modules of others that an engine loads.
PRELOADED_BY_ENGINES = [
    "concurrent.futures.thread", "email.message", "google.protobuf.text_format", "grpc.aio", "jinja2.sandbox",
    "numpy.typing", "tokenizers", "torch", "torch.distributed", "torch.multiprocessing", "urllib.request",
]  # fmt: skip
PLATFORM = "lorikeet_testing.loaded_platform"
FROZEN = "lorikeet_testing.frozen"
_forks = multiprocessing.get_context("forkserver")
_servers: dict[bool, forkserver.ForkServer] = {}
_starting = threading.Lock()


def _server(*, engine: bool) -> forkserver.ForkServer:
    """Return the process that forks: of an engine, or of anything else. Its first use starts it."""
    if engine not in _servers:
        _servers[engine] = forkserver.ForkServer()
        _servers[engine].set_forkserver_preload([*(PRELOADED_BY_ENGINES if engine else [*PRELOADED, PLATFORM]), FROZEN])
        paths = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])
        try:
            _servers[engine].ensure_running()
        finally:
            del os.environ["PYTHONPATH"]
            if paths is not None:
                os.environ["PYTHONPATH"] = paths
    return _servers[engine]


@contextmanager
def forking(*, engine: bool = False) -> Iterator[None]:
    """Within this, processes of a context "forkserver" start as forks of the process that has loaded what they need."""
    with _starting:
        default = forkserver.connect_to_new_process
        forkserver.connect_to_new_process = _server(engine=engine).connect_to_new_process
        try:
            yield
        finally:
            forkserver.connect_to_new_process = default


class ForkedProcess:
    """`python -m MODULE ARGUMENT …` or `python -c CODE ARGUMENT …`, with what tests use of `subprocess.Popen`.

    The command begins with the name of the module, or with "-c". The process leads a session of its own.
    """

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str], folder: Path, log: IO[bytes],
        errors: IO[bytes] | None = None, engine: bool = False,
    ) -> None:  # fmt: skip
        arguments = ([*command], {**env}, folder, log.name, (errors or log).name)
        # As a daemon it goes with this process, and is not waited for if a test left it running.
        self._process = _forks.Process(target=_run, args=arguments, daemon=True)
        with forking(engine=engine):
            self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run_forked(
    command: Sequence[str], *, env: Mapping[str, str], folder: Path, timeout: float = 120, engine: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a command of `ForkedProcess` to its end."""
    with tempfile.NamedTemporaryFile() as log, tempfile.NamedTemporaryFile() as errors:
        process = ForkedProcess(command, env=env, folder=folder, log=log, errors=errors, engine=engine)
        status = process.wait(timeout)
        printed = [Path(file.name).read_text(errors="replace") for file in (log, errors)]
        return subprocess.CompletedProcess([*command], status, *printed)


def _run(command: list[str], env: dict[str, str], folder: Path, log: str, errors: str) -> None:
    os.setsid()
    # A daemon of multiprocessing may start no process of its own.
    multiprocessing.current_process()._config.pop("daemon", None)  # type: ignore[attr-defined]
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    if PLATFORM in sys.modules:
        importlib.import_module(PLATFORM).use_environment()
    # The paths by which a new interpreter would look for modules before it looks for others.
    sys.path[:0] = ["", *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
    for stream, file in ((sys.stdout, log), (sys.stderr, errors)):
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(descriptor, stream.fileno())
        os.close(descriptor)
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    if command[0] == "-c":
        sys.argv = ["-c", *command[2:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(command[1], "<string>", "exec"), main.__dict__)
    else:
        sys.argv = command
        runpy.run_module(command[0], run_name="__main__", alter_sys=True)
