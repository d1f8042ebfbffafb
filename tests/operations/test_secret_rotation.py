"""Every secret is rotated under load: web processes, a worker, the watcher and a host follow, and no request fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from lorikeet_testing.drills import SOCKET, STREAM, WHOLE, Load, check_ledger, report
from lorikeet_testing.fake_engine import Behaviour, FakeEngineThread
from lorikeet_testing.forked import ForkedProcess
from lorikeet_testing.web import ROOT, SECRETS, WebProcess, eventually, free_port, new_installation

from lora_engine.config import EngineConfig
from lora_engine.server import joining

pytestmark = pytest.mark.services
ROTATE_ALL = """
import sys
from concurrent.futures import ThreadPoolExecutor
import django
from django.core.management import call_command
django.setup()
names = sys.argv[1].split(",")
with ThreadPoolExecutor(len(names)) as pool:
    list(pool.map(lambda name: call_command("rotate_secret", name, *sys.argv[2:]), names))
"""
NAMES = ("secret-key", "key-pepper", "sealing-key", "authority-key", "webhook-key", "engine-token", "metrics-token")


def body(number: int) -> dict[str, Any]:
    words = (3, 20, 40)[number % 3]
    return {"model": "support", "messages": [{"role": "user", "content": f"words {words}"}], "max_tokens": words}


class Installation:
    """Two web processes, a worker and the watcher, with their secrets in one folder; two hosts, one of which joined."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder / "secrets"
        self.folder.mkdir()
        for name in NAMES:
            value = SECRETS.get(f"LORIKEET_{variable(name)}", f"{name}-of-this-test")
            (self.folder / name).write_text(f"{value}\n")
        env = {f"LORIKEET_{variable(name)}": f"@{self.folder}/{name}" for name in NAMES}
        env |= {"LORIKEET_EMBEDDED": "0", "LORIKEET_ARTIFACT_DIR": str(folder / "artifacts")}
        self.local = FakeEngineThread(f"unix:{folder}/e.sock", Behaviour(steps_per_second=40))
        stack.callback(self.local.close)
        made = new_installation()
        hosts = f"local={self.local.engine.address}"
        self.webs = [WebProcess(folder / f"web{n}", hosts, env, installation=made) for n in (1, 2)]
        self.webs[0].seed()
        self.webs[1].var.mkdir()
        self.webs[1].tenants = self.webs[0].tenants
        for number, command in enumerate((WORKER, WATCHER)):
            process = self.program(*command, log=f"program{number}.log")
            stack.callback(process.wait, 60)
            stack.callback(process.terminate)
        for web in self.webs:
            web.start()
            stack.callback(web.stop)
        self.webs[0].wait_until_ready("support")
        self.joined = self._join(folder / "gpu1")
        stack.callback(self.joined.close)

    def _join(self, folder: Path) -> FakeEngineThread:
        """Have a machine join, and wait until both web processes are connected to it."""
        code = (
            "from datetime import timedelta; from control_plane.fleet.joining.join_tokens import create_token; "
            "from control_plane.identity.access.actor import SYSTEM; "
            "print(create_token(actor=SYSTEM, host_name='gpu1', lifetime=timedelta(hours=1))[1])"
        )
        assert self.program("django", "shell", "-v0", "-c", code, log="token.log").wait(60) == 0
        token = (self.webs[0].var / "token.log").read_text().split()[-1]
        config = EngineConfig(
            model=folder, listen=f"127.0.0.1:{free_port()}", data_dir=folder, join=self.webs[0].url, join_token=token
        )
        identity = joining.joined(config)
        engine = FakeEngineThread(config.listen, Behaviour(steps_per_second=40), identity=identity)
        eventually(lambda: engine.engine.sessions == 2 and self.host("gpu1")["state"] == "online", what="the host gpu1")
        return engine

    def host(self, name: str) -> dict[str, Any]:
        rows = self.webs[0].query(f"SELECT state, authorities FROM hosts_enginehost WHERE name = '{name}'")
        return rows[0] if rows else {"state": ""}

    def program(self, *command: str, log: str) -> ForkedProcess:
        with (self.webs[0].var / log).open("ab") as file:
            return ForkedProcess(command, env=self.webs[0].env, folder=ROOT, log=file)

    def rotate(self, name: str, *arguments: str) -> str:
        """Run a step; return what it printed. Raises AssertionError if it was refused."""
        log = f"rotate-{name}-{'-'.join(arguments)}-{threading.get_ident()}.log"
        process = self.program("django", "rotate_secret", name, *arguments, log=log)
        status, printed = process.wait(60), (self.webs[0].var / log).read_text()
        assert status == 0, printed
        return printed

    def rotate_all(self, *arguments: str) -> None:
        """Run a step of all secrets at the same time, in one process: to start one takes longer than a step."""
        self.webs[0].run("-c", ROTATE_ALL, ",".join(NAMES), *arguments)

    def values(self, name: str) -> list[str]:
        return (self.folder / name).read_text().split()


WORKER = ("celery", "-A", "control_plane.celery", "worker", "--pool", "threads", "-c", "2", "-l", "WARNING")
WATCHER = ("django", "watch_fleet")


def variable(name: str) -> str:
    return name.replace("-", "_").upper()


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    with ExitStack() as stack:
        yield Installation(tmp_path_factory.mktemp("rotation"), stack)


class Polls:
    """Callers of pages that need another secret each; `failures` are answers other than 200."""

    def __init__(self, pages: dict[str, Callable[[httpx.Client], httpx.Response]]) -> None:
        self.failures: list[str] = []
        self.answers = 0
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=item, daemon=True) for item in pages.items()]

    def __enter__(self) -> Polls:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(30)

    def _run(self, name: str, call: Callable[[httpx.Client], httpx.Response]) -> None:
        with httpx.Client(trust_env=False, timeout=30) as http:
            while not self._stopped.wait(0.05):
                answer = call(http)
                self.answers += 1
                if answer.status_code != 200:
                    self.failures.append(f"{name}: {answer.status_code} {answer.text[:200]}")


def session_of(web: WebProcess) -> str:
    """Sign in; return the header of the cookies."""
    access = web.tenants["acme"]
    with httpx.Client(base_url=web.url, trust_env=False, timeout=30) as http:
        token = http.get("/api/session").json()["csrf_token"]
        answer = http.post(
            "/api/session", json={"email": access.email, "password": access.password}, headers={"X-CSRFToken": token}
        )
        assert answer.status_code == 200, answer.text
        return "; ".join(f"{name}={value}" for name, value in http.cookies.items())


@pytest.mark.long
def test_all_secrets_are_rotated_under_load(installation: Installation) -> None:
    first, second = installation.webs
    before = {name: installation.values(name) for name in NAMES}
    cookies = session_of(first)

    def console(http: httpx.Client) -> httpx.Response:
        return http.get(f"{second.url}/api/tenants/acme/adapters", headers={"Cookie": cookies})

    def metrics(http: httpx.Client) -> httpx.Response:  # a reader that follows the file, as Prometheus does
        token = installation.values("metrics-token")[0]
        return http.get(f"{first.url}/metrics", headers={"Authorization": f"Bearer {token}"})

    def old_reader(http: httpx.Client) -> httpx.Response:  # one whose token is changed between the steps
        return http.get(f"{second.url}/metrics", headers={"Authorization": f"Bearer {reader['token']}"})

    reader = {"token": before["metrics-token"][0]}
    key = first.tenants["acme"].key
    loads = {first.url: Load(first.url, key, body, (WHOLE, STREAM)), second.url: Load(second.url, key, body, (SOCKET,))}
    pages = {"console": console, "metrics": metrics, "old reader": old_reader}
    began = time.monotonic()
    with ExitStack() as stack:
        polls = stack.enter_context(Polls(pages))
        for load in loads.values():
            stack.enter_context(load.running())
        installation.rotate_all("begin")
        installation.rotate_all("switch")
        reader["token"] = installation.values("metrics-token")[0]
        for load in loads.values():
            load.progress()  # each key is used under the new pepper
        # The idle keys of the seed stay under the old one.
        installation.rotate_all("finish", "--discard")
        for load in loads.values():
            load.progress()
    failures = [*polls.failures, *(failure for load in loads.values() for failure in load.failures)]
    report(
        "rotation of secrets",
        loads,
        "all seven secrets in files, rotated at once; two web processes, a worker, the watcher",
        seconds=round(time.monotonic() - began, 1),
        pages=polls.answers,
        failed_pages=len(polls.failures),
    )
    assert not failures, failures[:5]
    for load in loads.values():
        check_ledger(first, load.answers)
    assert installation.joined.engine.sessions == 2, "a connection stays when certificates change"
    assert len(installation.host("gpu1")["authorities"].split()) == 1
    # Channels that began under the old authority, which the host refuses now, connect under the new one.
    installation.joined.stop()
    installation.joined.start()
    eventually(lambda: installation.joined.engine.sessions >= 4, what="new sessions")
    after = {name: installation.values(name) for name in NAMES}
    assert all(len(values) == 1 and values != before[name] for name, values in after.items())
    for web in installation.webs:
        assert httpx.get(f"{web.url}/readyz", trust_env=False).status_code == 200
        old = {"Authorization": f"Bearer {before['metrics-token'][0]}"}
        assert httpx.get(f"{web.url}/metrics", headers=old, trust_env=False).status_code == 404


def test_of_two_operators_at_once_one_begins(installation: Installation) -> None:
    def begin(_: int) -> bool:
        try:
            installation.rotate("webhook-key", "begin")
        except AssertionError as refused:
            assert "is under way" in str(refused)
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(begin, range(2))) == [False, True]
    assert len(installation.values("webhook-key")) == 2
    assert "idle" in installation.rotate("webhook-key", "abort")
