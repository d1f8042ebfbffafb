"""A host that is killed, stands still, or whose network is cut or slow costs its streams a pause and nothing else; and
so does one that is replaced by another version.

A real web process, two real engines on a processor, a TCP proxy in front of each. Greedy and seeded streams run while
it happens; each must have the text of an undisturbed run, and one row of the ledger with its tokens. Without a fault,
what waits at one host goes on at one that comes back (migration), also if one of both fails at that moment.

`make test-long` has four engines, each fault three times and more streams.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from lorikeet_testing.faulty_hosts import MODEL, PAUSE_S, FaultyFleet, Host, cut, delay, freeze, kill, running, silence
from lorikeet_testing.web import eventually

TOKENS, PROMPTS = 100, 12
SETTINGS = {"LORIKEET_MIGRATION": "ilp"}
LOST = ("engine_disconnected", "engine_silent")
# Streams on the host that fails, more than it runs at once, and their tokens: some still run when others have begun.
ON_FIRST, ON_FIRST_TOKENS = 6, 300
# Seconds in which web processes notice a drained host.
NOTICED_S = 0.4


class Stream(threading.Thread):
    """One streamed answer; what came of it, and the longest wait between two chunks."""

    def __init__(self, fleet: Fleet, number: int, tokens: int) -> None:
        super().__init__(daemon=True)
        self._fleet, self.number, self.tokens = fleet, number, tokens
        self.text, self.error, self.request_id = "", "", ""
        self.chunks, self.usage, self.longest_pause_s = 0, dict[str, int](), 0.0

    @property
    def body(self) -> dict[str, Any]:
        sampling: dict[str, Any] = {"temperature": 0} if self.number % 2 else {"temperature": 0.8, "seed": self.number}
        prompt = f"Tell me about river number {self.number} and"
        return {"model": MODEL, "prompt": prompt, "max_tokens": self.tokens, "ignore_eos": True, **sampling}

    def run(self) -> None:
        body = {**self.body, "stream": True, "stream_options": {"include_usage": True}}
        try:
            with self._fleet.http.stream("POST", "/v1/completions", json=body) as answer:
                self.request_id = answer.headers["x-request-id"]
                last = 0.0
                for line in answer.iter_lines():
                    if not line.startswith("data: {"):
                        continue
                    event, now = json.loads(line.removeprefix("data: ")), time.monotonic()
                    if "error" in event:
                        self.error = event["error"]["code"]
                        return
                    self.text += "".join(choice["text"] for choice in event["choices"])
                    self.usage = event.get("usage") or self.usage
                    self.longest_pause_s = max(self.longest_pause_s, now - last if last else 0.0)
                    self.chunks, last = self.chunks + 1, now
        except httpx.HTTPError as error:
            self.error = repr(error)


@dataclass
class Fleet(FaultyFleet):
    expected: dict[str, str] = field(default_factory=dict)

    def undisturbed(self, stream: Stream) -> str:
        asked = json.dumps(stream.body)
        if asked not in self.expected:
            answer = self.http.post("/v1/completions", json=stream.body)
            assert answer.status_code == 200, answer.text
            self.expected[asked] = answer.json()["choices"][0]["text"]
        return self.expected[asked]

    def begin(self, count: int, tokens: int = TOKENS, first: int = 0) -> list[Stream]:
        streams = [Stream(self, number % PROMPTS, tokens) for number in range(first, first + count)]
        for stream in streams:
            stream.start()
        return streams

    def check(self, streams: list[Stream]) -> None:
        """Every one came to its end, as if nothing had happened, and is billed once."""
        for stream in streams:
            stream.join(120)
        assert [stream.error for stream in streams] == [""] * len(streams)
        for number, stream in enumerate(streams):
            assert stream.text == self.undisturbed(stream), number
            assert stream.usage["completion_tokens"] == stream.tokens

        def billed() -> bool:
            return len(self.rows(stream.request_id for stream in streams)) == len(streams)

        eventually(billed, 30, what="their rows in the ledger")
        tokens = {stream.request_id: stream.tokens for stream in streams}
        for row in self.rows(tokens):
            assert (row["outcome"], row["completion_tokens"]) == ("finished", tokens[row["request_id"]]), row


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with running(Fleet, tmp_path_factory.mktemp("faults"), "ab", SETTINGS) as made:
        yield made


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with running(Fleet, tmp_path_factory.mktemp("four"), "abcd", SETTINGS) as made:
        yield made


FAULTS: dict[str, tuple[Callable[[Host], Callable[[], None]], bool]] = {
    # what is done, whether its streams go elsewhere
    "killed": (kill, True),
    "frozen": (freeze, True),
    "cut": (cut, True),
    "silent": (silence, True),
    "delayed": (delay, False),
}


def strike(fleet: Fleet, fault: str, count: int) -> None:
    inflict, leaves = FAULTS[fault]
    fleet.ready()
    before = fleet.went_on(*LOST)
    # The host that fails has streams, however quick they are and whatever the dispatcher remembers of earlier faults.
    for host in fleet.hosts[1:]:
        host.takes(requests=False)
    time.sleep(NOTICED_S)
    streams = fleet.begin(ON_FIRST, ON_FIRST_TOKENS)
    eventually(lambda: any(stream.chunks for stream in streams), 60, what="a beginning")
    for host in fleet.hosts[1:]:
        host.takes(requests=True)
    time.sleep(NOTICED_S)
    streams += fleet.begin(count - ON_FIRST, first=ON_FIRST)
    # While a part of them answers and more wait on every host.
    eventually(lambda: sum(stream.chunks > 2 for stream in streams) >= count // 4, 60, what="some beginnings")
    mend = inflict(fleet.hosts[0])
    try:
        fleet.check(streams)
    finally:
        mend()
    longest = max(stream.longest_pause_s for stream in streams)
    print(f"{fault}: {count} streams, longest pause {longest:.2f} s")
    assert longest < PAUSE_S
    assert (fleet.went_on(*LOST) > before) == leaves


@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=pytest.mark.long if name in ("frozen", "cut") else ()) for name in FAULTS]
)
def test_streams_go_on(fleet: Fleet, fault: str) -> None:
    strike(fleet, fault, 9)


@pytest.mark.long
def test_streams_go_on_where_they_were_when_their_engine_has_lost_a_rank(fleet: Fleet) -> None:
    """No other host takes them, so that they wait until the program has started all of its ranks again."""
    host, other = fleet.hosts
    host.process.end()
    host.start("--tensor-parallel", "2")
    try:
        fleet.ready()
        other.takes(requests=False)
        time.sleep(NOTICED_S)
        before, streams = fleet.went_on(*LOST), fleet.begin(4)
        eventually(lambda: all(stream.chunks > 2 for stream in streams), 60, what="beginnings of all")
        os.kill(host.process.ranks[1], signal.SIGKILL)
        fleet.check(streams)
    finally:
        other.takes(requests=True)
        host.process.signal(signal.SIGTERM)
        host.process.wait()
        host.start()
    assert {row["host"] for row in fleet.rows(stream.request_id for stream in streams)} == {host.name}
    assert fleet.went_on(*LOST) > before
    longest = max(stream.longest_pause_s for stream in streams)
    print(f"lost rank: longest pause {longest:.2f} s")
    assert longest < PAUSE_S


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_streams_of_four_hosts_go_on_again_and_again(four: Fleet, fault: str) -> None:
    for _ in range(3):
        strike(four, fault, 24)


@pytest.mark.long
def test_engines_are_replaced_one_after_the_other_under_load(fleet: Fleet) -> None:
    """As a StatefulSet does it (deploy/kubernetes/engines.yaml): SIGTERM, its end, a new one, ready, then the next."""
    fleet.ready()
    before = [host.process.pid for host in fleet.hosts]
    streams, stop = fleet.begin(9), threading.Event()

    def go_on() -> None:
        while not stop.wait(0.05):
            streams.extend(fleet.begin(9 - sum(stream.is_alive() for stream in streams)))

    load = threading.Thread(target=go_on)
    load.start()
    try:
        for host in fleet.hosts:
            eventually(lambda: sum(stream.chunks > 2 for stream in streams if stream.is_alive()) >= 2, 60, what="load")
            host.process.signal(signal.SIGTERM)
            assert host.process.wait(60) == 0, "drained, then ended by itself"
            host.start()
            fleet.ready()
    finally:
        stop.set()
        load.join()
    fleet.check(streams)
    assert not set(before) & {host.process.pid for host in fleet.hosts}
    print(f"replaced: {len(streams)} streams, longest pause {max(stream.longest_pause_s for stream in streams):.2f} s")


@pytest.mark.long
@pytest.mark.parametrize("service", ["cordoned", "drained"])
def test_a_host_that_is_taken_out_ends_what_it_has_and_gets_nothing_new(fleet: Fleet, service: str) -> None:
    fleet.ready()
    before = fleet.went_on(*LOST, "draining")
    streams = fleet.begin(9)
    eventually(lambda: sum(stream.chunks > 2 for stream in streams) >= 4, 60, what="some beginnings")
    fleet.set_service("a", service)
    time.sleep(1.5)  # it holds within a second
    later = fleet.begin(6)
    fleet.check([*streams, *later])
    assert {row["host"] for row in fleet.rows(stream.request_id for stream in streams)} == {"a", "b"}
    assert {row["host"] for row in fleet.rows(stream.request_id for stream in later)} == {"b"}
    assert fleet.went_on(*LOST, "draining") == before
    fleet.set_service("a", "serving")
    fleet.ready()


@pytest.mark.long
def test_what_waits_at_one_host_goes_on_at_one_that_comes(fleet: Fleet) -> None:
    fleet.check(moving(fleet, least=4))


@pytest.mark.long
@pytest.mark.parametrize("struck", [0, 1], ids=["source", "target"])
@pytest.mark.parametrize("fault", ["killed", "frozen", "cut", "silent"])
def test_what_moves_goes_on_when_one_of_both_hosts_fails(fleet: Fleet, fault: str, struck: int) -> None:
    streams = moving(fleet, least=1)
    mend = FAULTS[fault][0](fleet.hosts[struck])
    try:
        fleet.check(streams)
    finally:
        mend()
    longest = max(stream.longest_pause_s for stream in streams)
    print(f"{fault}: longest pause {longest:.2f} s, with ten times as many streams as a host has places")


@pytest.mark.long
@pytest.mark.parametrize("struck", [0, 1], ids=["source", "target"])
def test_what_moves_when_the_web_process_dies_with_a_host_is_billed_once(fleet: Fleet, struck: int) -> None:
    """Callers that send it again have the same text. Of what they lost there is one row at most, as finished only if it
    was."""
    streams = moving(fleet, least=1)
    fleet.web.kill()
    mend = kill(fleet.hosts[struck])
    for stream in streams:
        stream.join(30)
    fleet.web.start()
    mend()
    fleet.ready()
    lost = [stream for stream in streams if stream.error]
    assert len(lost) > len(streams) // 2
    again = [Stream(fleet, stream.number, stream.tokens) for stream in lost]
    for stream in again:
        stream.start()
    fleet.check(again)
    fleet.collect_usage()
    rows = fleet.rows(stream.request_id for stream in lost if stream.request_id)
    assert len({row["request_id"] for row in rows}) == len(rows)
    assert not [row for row in rows if row["outcome"] == "finished" and row["completion_tokens"] != lost[0].tokens]
    print(f"{len(lost)} of {len(streams)} were lost, of which {len(rows)} are in the ledger")


def moving(fleet: Fleet, *, least: int) -> list[Stream]:
    """Streams of which some have just moved: answers are so long that the queue is still there when the other host is
    connected and a plan is made."""
    fleet.ready()
    before = fleet.went_on("moved")
    fleet.hosts[1].proxy.cut()
    away = "select 1 from hosts_enginehost where state = 'offline'"
    eventually(lambda: fleet.web.query(away), 30, what="one host alone")
    streams = fleet.begin(48, tokens=4 * TOKENS)
    eventually(lambda: sum(stream.chunks > 0 for stream in streams) >= 4, 60, what="some answers")
    fleet.hosts[1].proxy.restore()
    eventually(lambda: fleet.went_on("moved") >= before + least, 60, what=f"moves: {fleet.web.output()}")
    return streams
