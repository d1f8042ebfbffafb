"""An upgrade from the previous version and back under load, in the order of docs/operations/upgrades.md.

The previous version is the newest tag. Until there is one, it is the commit that PREVIOUS names;
LORIKEET_PREVIOUS_VERSION names another one. It runs from an archive of that commit, with this environment's packages.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import httpx
import psycopg
import pytest
from lorikeet_testing.balancers import Balancer
from lorikeet_testing.drills import Load, check_ledger, report
from lorikeet_testing.fake_engine import Behaviour, FakeEngineThread
from lorikeet_testing.peft_files import adapter_files
from lorikeet_testing.web import (
    ROOT,
    SEED,
    SOURCE_ROOTS,
    START_S,
    TenantAccess,
    WebProcess,
    eventually,
    free_port,
    new_installation,
)

pytestmark = [pytest.mark.long, pytest.mark.services]
PREVIOUS = "813b24d5"
CELERY = ("-m", "celery", "-A", "control_plane.celery")
PROGRAMS = {
    "worker": (*CELERY, "worker", "--pool", "threads", "-c", "2", "-l", "WARNING"),
    "watcher": ("-m", "django", "watch_fleet"),
    "beat": (*CELERY, "beat", "-l", "WARNING", "-s", "/dev/null"),
}


def previous_version() -> str:
    """Return the commit of the version before this one."""
    if named := os.environ.get("LORIKEET_PREVIOUS_VERSION"):
        return named
    command = ["git", "describe", "--tags", "--abbrev=0"]
    tag = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    return tag or PREVIOUS


def unpacked(commit: str, folder: Path) -> Path:
    """Return a folder with the files of a commit."""
    folder.mkdir()
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=False)
    assert archive.returncode == 0, f"{archive.stderr.decode()} This drill needs the history of the repository."
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
    return folder


def body(number: int) -> dict[str, object]:
    words = (3, 20, 60)[number % 3]
    return {"model": "support", "messages": [{"role": "user", "content": f"words {words}"}], "max_tokens": words}


class Versioned:
    """A process of the installation, of one version or the other."""

    def __init__(self, command: tuple[str, ...], env: Mapping[str, str], log: Path) -> None:
        self._command, self._env, self._log = command, env, log
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, root: Path) -> None:
        """Replace the process, if it runs, by one of the version in `root`."""
        self.stop()
        paths = os.pathsep.join(str(root / each) for each in SOURCE_ROOTS)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *self._command],
                cwd=root,
                env={**self._env, "PYTHONPATH": paths},
                stdout=log,
                stderr=log,
            )

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
            self._process = None

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


class Installation:
    """Two web processes behind HAProxy, with worker, watcher and beat."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.versions = {"previous": unpacked(previous_version(), folder / "previous"), "this": ROOT}
        engine = FakeEngineThread(f"unix:{folder}/e.sock", Behaviour(steps_per_second=100))
        stack.callback(engine.close)
        settings = {
            "LORIKEET_EMBEDDED": "0",
            "LORIKEET_TRUST_PROXY": "1",
            "LORIKEET_LOG_LEVEL": "WARNING",
            "LORIKEET_DRAIN_NOTICE_S": "3",
            "LORIKEET_ARTIFACT_DIR": str(folder / "artifacts"),
        }
        self.web = WebProcess(folder / "var", f"local={engine.engine.address}", settings, installation=_empty())
        self.web.var.mkdir()
        env = {**self.web.env, **settings}
        self.ports = [self.web.port, free_port()]
        serve = ("-m", "control_plane.serve", "--graceful-s", "30", "--port")
        self.processes = {
            **{
                f"web{n}": Versioned((*serve, str(port)), env, folder / f"web{n}.log")
                for n, port in enumerate(self.ports)
            },
            **{name: Versioned(command, env, folder / f"{name}.log") for name, command in PROGRAMS.items()},
        }
        self._seed(self.versions["previous"], env)
        for process in self.processes.values():
            stack.callback(process.stop)
            process.run(self.versions["previous"])
        for port in self.ports:
            eventually(lambda port=port: _is_ready(port), START_S, what="the first web processes")
        self.balancer = Balancer("haproxy", folder / "haproxy", self.ports)
        stack.callback(self.balancer.stop)
        self.env = env

    def _seed(self, root: Path, env: Mapping[str, str]) -> None:
        paths = os.pathsep.join(str(root / each) for each in SOURCE_ROOTS)
        done = subprocess.run(
            [sys.executable, *SEED],
            cwd=root,
            env={**env, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        self.web.tenants = {slug: TenantAccess(**access) for slug, access in json.loads(done.stdout).items()}

    def migrate(self) -> None:
        """Run this version's migrations, while the previous one serves."""
        command = [sys.executable, "manage.py", "migrate", "--no-input", "--verbosity", "0"]
        done = subprocess.run(command, cwd=ROOT, env=self.env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def replace(self, name: str, version: str) -> None:
        """Replace a process, and wait until a web process is ready and HAProxy has noticed."""
        before = self._times_up(name)
        self.processes[name].run(self.versions[version])
        if name.startswith("web"):
            port = self.ports[int(name.removeprefix("web"))]
            eventually(lambda: _is_ready(port), START_S, what=f"{name} is ready: {self.processes[name].log()}")
            eventually(lambda: self._times_up(name) > before, 60, what=f"HAProxy sends requests to {name}")

    def _times_up(self, name: str) -> int:
        """Return how often HAProxy has found a web process to be up again; 0 for other processes."""
        if not name.startswith("web"):
            return 0
        return self.balancer.log().count(f"Server web/web{int(name.removeprefix('web')) + 1} is UP")

    def upload(self, seed: int) -> None:
        """Upload an adapter, and wait until a worker has accepted it."""
        files = [("files", (file, content)) for file, content in adapter_files(seed=seed).items()]
        headers = self.web.tenants["acme"].bearer
        verify = self.balancer.certificate.trusted()
        with httpx.Client(
            base_url=self.balancer.url, headers=headers, trust_env=False, timeout=60, verify=verify
        ) as http:
            answer = http.post("/api/tenants/acme/uploads", data={"name": f"a{seed}"}, files=files)
        assert answer.status_code == 202, answer.text
        state = f"SELECT state FROM uploads_upload WHERE id = '{answer.json()['id']}'"
        eventually(lambda: self.web.query(state)[0]["state"] == "accepted", 120, what="an upload")


def _empty() -> dict[str, str]:
    """Return the settings of an installation whose database is empty: the previous version migrates it."""
    made = new_installation()
    name = made["LORIKEET_DATABASE_URL"].rpartition("/")[2]
    with psycopg.connect(os.environ["LORIKEET_TEST_DATABASE_URL"], autocommit=True) as server:
        server.execute(f'DROP DATABASE "{name}"'.encode())
        server.execute(f'CREATE DATABASE "{name}"'.encode())
    return made


def _is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz/inference", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    with ExitStack() as stack:
        yield Installation(tmp_path, stack)


def test_an_upgrade_and_back(installation: Installation) -> None:
    """Web processes and workers are each older and newer than the others for a while."""
    web = installation.web
    listed = "select 1 from placements_placement where phase = 'ready'"
    eventually(lambda: web.query(listed), 120, what="an adapter on the host")
    load = Load(
        installation.balancer.url, web.tenants["acme"].key, body, tls=installation.balancer.certificate.trusted()
    )
    with load.running():
        installation.upload(1)
        installation.migrate()
        for number, (version, names) in enumerate(
            [
                ("this", ("web0", "web1")),  # workers are older
                ("this", ("worker", "watcher", "beat")),
                ("previous", ("web0", "web1")),  # workers are newer
                ("previous", ("worker", "watcher", "beat")),
            ]
        ):
            for name in names:
                installation.replace(name, version)
                load.progress()
            installation.upload(2 + number)
    report(
        "upgrade_and_back",
        {"": load},
        "migrations, then two web processes, then worker, watcher and beat; back in the same order",
        previous=previous_version(),
    )
    assert load.failures == []
    check_ledger(web, load.answers)
