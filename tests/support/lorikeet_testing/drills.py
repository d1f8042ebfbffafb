"""Callers of a drill: streamed answers, whole answers and websockets without a pause, and the outcome of each request.

A drill ends with a row of `benchmarks/results/drills.jsonl`, if LORIKEET_DRILL_RESULTS names the file.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from benchmarks.rows import commit, machine
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from lorikeet_testing.web import WebProcess, eventually

RESULTS = "LORIKEET_DRILL_RESULTS"
WHOLE, STREAM, SOCKET = "whole", "stream", "socket"
ANSWER_S = 60.0  # for one answer, whatever happens meanwhile


@dataclass
class Answer:
    """A whole answer as its caller received it."""

    request_id: str
    prompt_tokens: int
    completion_tokens: int


class DrillError(Exception):
    """A request that failed; the text is its reason."""


@dataclass
class Load:
    """Callers that continue whatever happens. `body` makes the chat request of a number."""

    url: str
    key: str
    body: Callable[[int], dict[str, Any]]
    kinds: tuple[str, ...] = (WHOLE, STREAM, STREAM, SOCKET)
    tls: ssl.SSLContext | None = None
    answers: list[Answer] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    by_kind: Counter[str] = field(default_factory=Counter)
    longest_pause_s: float = 0.0  # between two pieces of an answer, and before the first
    moves: int = 0  # sockets that their server asked to connect again
    _stopped: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    @property
    def requests(self) -> int:
        return len(self.answers) + len(self.failures)

    def start(self) -> None:
        callers = {WHOLE: self._whole_answers, STREAM: self._streams, SOCKET: self._generations}
        for number, kind in enumerate(self.kinds):
            self._threads.append(threading.Thread(target=callers[kind], args=[number], daemon=True))
            self._threads[-1].start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(2 * ANSWER_S)
            assert not thread.is_alive(), "a caller still waits for an answer"

    @contextmanager
    def running(self) -> Iterator[None]:
        self.start()
        try:
            self.progress()
            yield
            self.progress()
        finally:
            self.stop()

    def progress(self) -> None:
        """Wait until each kind of caller has another answer."""
        before = self.by_kind.copy()
        eventually(
            lambda: self.failures or all(self.by_kind[kind] > before[kind] for kind in self.kinds),
            ANSWER_S,
            what=f"answers of every kind: {self.by_kind}, {self.failures}",
        )

    # -- callers -------------------------------------------------------------------

    def _numbers(self, caller: int) -> Iterator[int]:
        number = caller
        while not self._stopped.is_set():
            number += len(self.kinds)
            yield number

    def _note(self, kind: str, ask: Callable[[], Answer]) -> None:
        try:
            self.answers.append(ask())
            self.by_kind[kind] += 1
        except (DrillError, httpx.HTTPError, OSError) as error:
            reason = str(error) if isinstance(error, DrillError) else repr(error)
            self.failures.append(f"{kind}: {reason}")
            self._stopped.wait(0.1)

    def _client(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.key}"}
        verify = self.tls or False
        return httpx.Client(base_url=self.url, headers=headers, timeout=ANSWER_S, trust_env=False, verify=verify)

    def _whole_answers(self, caller: int) -> None:
        with self._client() as http:
            for number in self._numbers(caller):
                self._note(WHOLE, lambda number=number: self._whole(http, number))  # type: ignore[misc]

    def _whole(self, http: httpx.Client, number: int) -> Answer:
        answer = http.post("/v1/chat/completions", json=self.body(number))
        if answer.status_code != 200:
            raise DrillError(f"{answer.status_code} {answer.text[:300]}")
        usage = answer.json()["usage"]
        return Answer(answer.headers["x-request-id"], usage["prompt_tokens"], usage["completion_tokens"])

    def _streams(self, caller: int) -> None:
        with self._client() as http:
            for number in self._numbers(caller):
                self._note(STREAM, lambda number=number: self._stream(http, number))  # type: ignore[misc]

    def _stream(self, http: httpx.Client, number: int) -> Answer:
        body = {**self.body(number), "stream": True, "stream_options": {"include_usage": True}}
        usage, last, done = dict[str, int](), time.monotonic(), False
        with http.stream("POST", "/v1/chat/completions", json=body) as answer:
            if answer.status_code != 200:
                raise DrillError(f"{answer.status_code} {answer.read().decode()[:300]}")
            for line in answer.iter_lines():
                if not line.startswith("data: "):
                    continue
                last = self._piece(last)
                done = done or line == "data: [DONE]"
                event = json.loads(line.removeprefix("data: ")) if line.startswith("data: {") else {}
                if "error" in event:
                    raise DrillError(f"in the stream: {event['error']}")
                usage = event.get("usage") or usage
        if not done:
            raise DrillError("the stream ended early")
        return Answer(answer.headers["x-request-id"], usage["prompt_tokens"], usage["completion_tokens"])

    def _piece(self, last: float) -> float:
        now = time.monotonic()
        self.longest_pause_s = max(self.longest_pause_s, now - last)
        return now

    def _generations(self, caller: int) -> None:
        # On an event loop: OpenSSL's connections must not be read and written by two threads at once, as a blocking
        # client of websockets does.
        asyncio.run(self._generate_all(caller))

    async def _generate_all(self, caller: int) -> None:
        socket: ClientConnection | None = None
        for number in self._numbers(caller):
            try:
                async with asyncio.timeout(ANSWER_S):
                    answer = None
                    while answer is None:  # refused because the server stops: connect again, as it says
                        socket = socket or await self._connect()
                        answer, moves = await self._generate(socket, number)
                        if moves:
                            self.moves += 1
                            await socket.close()
                            socket = None
                self.answers.append(answer)
                self.by_kind[SOCKET] += 1
            except (DrillError, ConnectionClosed, InvalidHandshake, OSError) as error:  # a timeout is an OSError
                self.failures.append(f"{SOCKET}: {error if isinstance(error, DrillError) else repr(error)}")
                if socket is not None:
                    await socket.close()
                    socket = None
                await asyncio.sleep(0.1)
        if socket is not None:
            await socket.close()

    async def _connect(self) -> ClientConnection:
        socket = await connect(
            self.url.replace("http", "ws", 1) + "/ws/inference",
            ssl=self.tls,
            additional_headers={"Authorization": f"Bearer {self.key}"},
            proxy=None,
            open_timeout=ANSWER_S,
            close_timeout=2,
        )
        hello = json.loads(await socket.recv())
        if hello["type"] != "hello":
            raise DrillError(f"instead of hello: {hello}")
        return socket

    async def _generate(self, socket: ClientConnection, number: int) -> tuple[Answer | None, bool]:
        """Return the answer, or None if the server stops, and whether the socket should connect again."""
        await socket.send(json.dumps({"type": "generate", "id": str(number), "request": self.body(number)}))
        last, moves, request_id = time.monotonic(), False, ""
        while True:
            frame = json.loads(await socket.recv())
            last = self._piece(last)
            if frame["type"] == "move":
                moves = True
            elif frame["type"] == "accepted":
                request_id = frame["request_id"]
            elif frame["type"] == "error":
                if frame["error"]["code"] == "server_draining":
                    await asyncio.sleep(0.1)
                    return None, True
                raise DrillError(f"on the socket: {frame['error']}")
            elif frame["type"] == "done":
                usage = frame["usage"]
                return Answer(request_id, usage["prompt_tokens"], usage["completion_tokens"]), moves


def ledger_differs(web: WebProcess, answers: list[Answer]) -> list[str]:
    """Return the differences between answers and the ledger: each has one row, finished, with its tokens."""
    ids = ",".join(f"'{answer.request_id}'" for answer in answers)
    columns = "request_id, outcome, prompt_tokens, completion_tokens"
    rows = web.query(f"SELECT {columns} FROM usage_usageevent WHERE request_id IN ({ids})")
    by_id = {row["request_id"]: tuple(row.values())[1:] for row in rows}
    assert len(by_id) == len(rows), "a request has two rows"
    expected = {a.request_id: ("finished", a.prompt_tokens, a.completion_tokens) for a in answers}
    assert len(expected) == len(answers), "two answers have one request id"
    return [f"{name}: {values}, in the ledger {by_id.get(name)}" for name, values in expected.items()
            if by_id.get(name) != values]  # fmt: skip


def check_ledger(web: WebProcess, answers: list[Answer], seconds: float = 60) -> None:
    """Wait until the ledger has every answer, exactly."""
    differences: list[str] = []

    def exact() -> bool:
        differences[:] = ledger_differs(web, answers)
        return not differences

    try:
        eventually(exact, seconds, what="an exact ledger")
    except AssertionError as error:
        raise AssertionError(f"{error}: {len(differences)} of {len(answers)}, such as {differences[:3]}") from None


def report(drill: str, loads: Mapping[str, Load], what: str, **more: Any) -> dict[str, Any]:
    """Print a drill's figures, and add them to the file that LORIKEET_DRILL_RESULTS names."""
    figures = {
        "drill": drill,
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit(),
        "machine": machine(),
        "requests": sum(load.requests for load in loads.values()),
        "failed": sum(len(load.failures) for load in loads.values()),
        "longest_pause_s": round(max((load.longest_pause_s for load in loads.values()), default=0.0), 2),
        "what": what,
        **more,
    }
    if len(loads) > 1:
        figures["by_balancer"] = {
            name: {"requests": load.requests, "failed": len(load.failures), "pause_s": round(load.longest_pause_s, 2)}
            for name, load in loads.items()
        }
    print(json.dumps(figures))
    if path := os.environ.get(RESULTS):
        with Path(path).open("a") as file:
            file.write(json.dumps(figures) + "\n")
    return figures
