"""Two web processes behind one address, and a browser whose connections break in the middle of an answer."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator

import httpx
import pytest
from lorikeet_testing import script
from lorikeet_testing.fake_engine import Behaviour, FakeEngine, FakeEngineThread
from lorikeet_testing.processes import two_processes
from lorikeet_testing.seed import digest_of
from lorikeet_testing.web import WebProcess, eventually, free_port
from playwright.sync_api import Browser, expect

from control_plane.gateway.dispatch.idempotency import LEASE_S
from lora_engine.wire import engine_pb2 as pb

pytestmark = pytest.mark.services
PROMPT = "words 400"


class Balancer:
    """Passes bytes to one of several addresses, and breaks all connections on demand."""

    def __init__(self, targets: list[int]) -> None:
        self.port, self.target, self._targets = free_port(), 0, targets
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._run(asyncio.start_server(self._pass, "127.0.0.1", self.port))

    def break_all(self, then: int) -> None:
        """New connections go to target number ``then``."""
        self.target = then
        self._loop.call_soon_threadsafe(self._break)

    def _break(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    def close(self) -> None:
        self.break_all(self.target)
        self._loop.call_soon_threadsafe(self._loop.call_later, 0.2, self._loop.stop)

    def _run(self, work: object) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(5)  # type: ignore[arg-type]

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward_reader, onward = await asyncio.open_connection("127.0.0.1", self._targets[self.target])
        self._open |= {writer, onward}
        await asyncio.gather(self._copy(reader, onward), self._copy(onward_reader, writer))
        self._open -= {writer, onward}

    @staticmethod
    async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeEngine]:
    behaviour = Behaviour(steps_per_second=20)
    thread = FakeEngineThread(f"unix:{tmp_path_factory.mktemp('engine')}/e.sock", behaviour)
    yield thread.engine
    thread.close()


@pytest.fixture(scope="module")
def webs(engine: FakeEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[WebProcess]]:
    with two_processes(tmp_path_factory.mktemp("two"), f"local={engine.address}") as webs:
        yield webs


@pytest.fixture
def balancer(webs: list[WebProcess]) -> Iterator[Balancer]:
    balancer = Balancer([web.port for web in webs])
    yield balancer
    balancer.close()


@pytest.mark.long
def test_the_answer_goes_on_in_the_other_process(
    browser: Browser, webs: list[WebProcess], balancer: Balancer, engine: FakeEngine
) -> None:
    access = webs[0].tenants["acme"]
    context = browser.new_context(base_url=f"http://127.0.0.1:{balancer.port}")
    page = context.new_page()
    page.goto("/")
    page.get_by_test_id("login-email").fill(access.email)
    page.get_by_test_id("login-password").fill(access.password)
    page.get_by_test_id("login-submit").click()
    page.wait_for_url(re.compile("/t/acme"))
    page.goto("/t/acme/playground?model=support")
    page.get_by_test_id("playground-input").fill(PROMPT)
    page.get_by_test_id("playground-send").click()
    output = page.get_by_test_id("playground-output").last
    for then in (1, 0):
        before = len(output.inner_text())
        eventually(lambda: len(output.inner_text()) > before + 80, 20, what="more text")  # noqa: B023
        balancer.break_all(then)
    expect(output).to_have_attribute("data-status", "done", timeout=30_000)
    (submit,) = engine.submits[-1:]
    planned = script.plan(pb.Submit(adapter_digest=digest_of("acme", "support"), chat=submit.chat), 0).text
    assert submit.chat.messages[-1].content == PROMPT
    # The console asks for at most 256 tokens.
    assert output.inner_text().split() == planned.split()[: len(output.inner_text().split())]
    assert len(output.inner_text().split()) == 256
    assert len(engine.submits) == 1
    assert page.get_by_role("alert").count() == 0
    context.close()


def test_a_stream_over_rest_is_picked_up_at_the_other_process(webs: list[WebProcess], engine: FakeEngine) -> None:
    """Sent again with its key, soon after its process died: the same text, from the beginning."""
    request = {"model": "support", "prompt": "words 60", "max_tokens": 60, "temperature": 0, "stream": True}
    asked = {
        "headers": {**webs[0].tenants["acme"].bearer, "Idempotency-Key": "picked-up"},
        "json": request,
        "timeout": 30.0,
    }
    seen = ""
    with (
        httpx.Client(trust_env=False) as http,
        pytest.raises(httpx.TransportError),
        http.stream("POST", f"{webs[0].url}/v1/completions", **asked) as first,  # type: ignore[arg-type]
    ):
        for line in first.iter_lines():
            seen += text_of(line)
            if len(seen) > 30 and webs[0].process is not None:
                webs[0].kill()
    died = time.monotonic()
    with httpx.Client(trust_env=False) as http:

        def again() -> str:
            time.sleep(0.5)  # as Retry-After asks, or sooner
            answer = http.post(f"{webs[1].url}/v1/completions", **asked)  # type: ignore[arg-type]
            assert answer.status_code == 200 or answer.json()["error"]["code"] == "idempotency_in_progress"
            return "".join(map(text_of, answer.text.splitlines())) if answer.status_code == 200 else ""

        assert not again(), "its process may only be slow"
        whole = eventually(again, LEASE_S + 10, what="the answer")
    assert time.monotonic() - died < LEASE_S + 8
    assert whole.startswith(seen) and len(whole.split()) == 60
    eventually(lambda: len(engine.aborts) >= 1 or len(engine.journal) >= 2, 10, what="the end of the first")


def text_of(line: str) -> str:
    """What an event of a stream of completions adds."""
    if not line.startswith("data: {"):
        return ""
    return "".join(choice["text"] for choice in json.loads(line.removeprefix("data: "))["choices"])
