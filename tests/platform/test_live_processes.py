"""Production's shape: two web processes, a worker and a watcher of their own, PostgreSQL and Redis between them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
from lorikeet_testing.browser import Signed, page_socket, receive
from lorikeet_testing.fake_engine import Behaviour, FakeEngineThread
from lorikeet_testing.forked import ForkedProcess
from lorikeet_testing.web import ROOT, WebProcess, eventually, new_installation
from openai import OpenAI

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def behaviour() -> Behaviour:
    return Behaviour(stage_seconds=0.2, known_digests_only=True)


@contextmanager
def beside(web: WebProcess, *command: str) -> Iterator[None]:
    """Another program of the same installation, for as long as the block runs."""
    with web.log.open("ab") as log:
        process = ForkedProcess(command, env=web.env, folder=ROOT, log=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture(scope="module")
def webs(engine_thread: FakeEngineThread, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[WebProcess]]:
    installation, env = new_installation(), {"LORIKEET_EMBEDDED": "0"}
    var = tmp_path_factory.mktemp("web")
    hosts = f"local={engine_thread.engine.address}"
    webs = [WebProcess(var / f"var{number}", hosts, env, installation=installation) for number in range(2)]
    worker = ("celery", "-A", "control_plane.celery", "worker", "--pool", "threads", "-c", "2", "-l", "WARNING")
    with ExitStack() as stack:
        webs[0].seed()
        webs[1].var.mkdir()
        webs[1].tenants = webs[0].tenants
        stack.enter_context(beside(webs[0], *worker))
        stack.enter_context(beside(webs[0], "control_plane", "watch_fleet"))
        for web in webs:
            web.start()
            stack.callback(web.stop)
        webs[0].wait_until_ready("support", "pirate", "fake-base")
        yield webs


def console(web: WebProcess) -> Any:
    access = web.tenants["acme"]
    return page_socket(web.url, "/ws/console", Signed(web.url, access.email, access.password).ticket("acme"))


async def test_every_console_hears_the_worker_with_the_same_numbers(webs: list[WebProcess]) -> None:
    first, second = await asyncio.to_thread(lambda: [console(web) for web in webs])
    async with first as one, second as two:
        start = max([(await receive(socket))["seq"] for socket in (one, two)])
        url = f"{webs[1].url}/api/tenants/acme/adapters/support/versions/1/restage"
        headers = webs[1].tenants["acme"].bearer
        answer = await asyncio.to_thread(lambda: httpx.post(url, headers=headers, trust_env=False, timeout=30))
        assert answer.status_code < 300
        heard: list[list[dict[str, Any]]] = [[], []]
        for frames, socket in zip(heard, (one, two), strict=True):
            while not frames or frames[-1].get("data", {}).get("placement", {}).get("phase") != "ready":
                frames.append(await receive(socket))
    numbers = [[frame["seq"] for frame in frames if frame["seq"] > start] for frames in heard]
    assert numbers[0] == numbers[1] == list(range(start + 1, numbers[0][-1] + 1))
    assert {frame["event"] for frame in heard[0]} >= {"adapter.staging"}


def test_both_processes_serve_and_one_ledger_counts(webs: list[WebProcess], engine_thread: FakeEngineThread) -> None:
    engine = engine_thread.engine
    for web in webs:
        with OpenAI(base_url=f"{web.url}/v1", api_key=web.tenants["acme"].key, max_retries=0) as client:
            answer = client.chat.completions.create(
                model="support", messages=[{"role": "user", "content": "say hi"}], stream=False
            )
            assert answer.choices[0].message.content == "hi"
    eventually(lambda: engine.acknowledged == engine.journal.keys(), 20, what="all usage acknowledged")
    rows = webs[0].query("SELECT request_id FROM usage_usageevent")
    assert {row["request_id"] for row in rows} == engine.journal.keys()


def test_a_killed_web_process_loses_no_usage(webs: list[WebProcess], engine_thread: FakeEngineThread) -> None:
    engine = engine_thread.engine
    web = webs[1]
    body = {"model": "support", "messages": [{"role": "user", "content": "words 5000"}], "stream": True}
    headers = web.tenants["acme"].bearer
    with httpx.stream(
        "POST", f"{web.url}/v1/chat/completions", json=body, headers=headers, trust_env=False, timeout=30
    ) as answer:
        next(answer.iter_lines())
        request_id = engine.submits[-1].request_id
        web.kill()
    eventually(lambda: request_id in engine.journal, 10, what="the engine's own abort")
    # The record is younger than what is collected on schedule: collect it now, as the worker would in a while.
    code = (
        "import django; django.setup()\n"
        "from control_plane.fleet.transport.endpoint import configured_endpoints\n"
        "from control_plane.billing.usage.recovery import recover_usage\n"
        "print(recover_usage(configured_endpoints()['local'], leave_to_web_s=0))"
    )
    assert web.run("-c", code).strip() == "1"
    rows = {row["request_id"]: row for row in webs[0].query("SELECT * FROM usage_usageevent")}
    row = rows[request_id]
    assert (row["completion_tokens"], row["outcome"]) == (engine.journal[request_id].completion_tokens, "aborted")
    assert row["api_key_id"] is not None
    web.start()
