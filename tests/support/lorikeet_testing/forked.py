"""Web processes as forks of one that has loaded Django and the rest already: that is two thirds of a start.

Nothing of ours is loaded before the fork, since it would read its settings from the environment then. How the product
itself starts is what `launched.py` and the tests end to end see.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

# Of what a web process loads, what needs no settings.
PRELOADED = [
    "celery.app.amqp", "celery.apps.worker", "celery.backends.redis", "celery.beat", "celery.fixups.django",
    "channels.layers", "channels_redis.core", "django.contrib.sessions.backends.base",
    "django.core.cache.backends.redis", "django.core.handlers.asgi", "django.core.mail",
    "django.core.management.base", "django.core.serializers.json", "django.db.backends.postgresql.base",
    "django.db.backends.sqlite3.base", "django.db.migrations.autodetector", "django.db.models", "django.forms",
    "django.template.backends.django", "django.test.signals", "django.urls", "django.views.generic",
    "google.protobuf.json_format", "grpc.aio", "httpx", "jinja2", "kombu.transport.memory", "kombu.transport.redis",
    "numpy.typing", "obstore.store", "prometheus_client", "psycopg_pool", "pydantic_settings", "requests",
    "rest_framework.exceptions", "uvicorn.protocols.websockets.websockets_sansio_impl", "uvloop",
    "whitenoise.middleware", "yaml",
]  # fmt: skip
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(PRELOADED)


class ForkedProcess:
    """`python -m MODULE ARGUMENT …`, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], folder: Path, log: IO[bytes]) -> None:
        # As a daemon it goes with this process, and is not waited for if a test left it running.
        self._process = _forks.Process(target=_run, args=([*command], {**env}, folder, log.name), daemon=True)
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


def _run(command: list[str], env: dict[str, str], folder: Path, log: str) -> None:
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(descriptor, stream.fileno())
    os.close(descriptor)
    sys.argv = command
    runpy.run_module(command[0], run_name="__main__", alter_sys=True)
