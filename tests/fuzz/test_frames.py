"""Websocket frames of every damaged kind, sent to the web process as it is started: each is answered or closed."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import socket
import struct
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from lorikeet_testing.fake_engine import Behaviour
from lorikeet_testing.fuzzing import changed, fuzz
from lorikeet_testing.web import WebProcess

ANSWERS_WITHIN_S = 0.04
"""What comes later is the rest of a frame that the case began and did not end."""
ENOUGH_OF_KNOWN, ENOUGH_OF_STRANGERS = 200, 3
"""Cases on one connection, so that its allowance does not slow the fuzzer down."""
PONG, PING = b'{"type":"pong"}', b'{"type":"ping"}'

TYPES: list[Any] = ["auth", "ping", "generate", "cancel", "resume", "replay", "dance", None, 1, [], {}]
FIELDS = ["type", "id", "request", "session", "after", "key", "ticket", "resume", "model", "messages", "n", "prompt"]
values: SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["support", "g"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=3),
    max_leaves=6,
)
messages = st.builds(
    lambda kind, more: json.dumps({**more, "type": kind}).encode(),
    st.sampled_from(TYPES),
    st.dictionaries(st.sampled_from(FIELDS), values, max_size=3),
)
payloads = messages | st.binary(max_size=150) | st.sampled_from([b"", b"[" * 9000, b'"\\ud800"', b"\xff\xfe", PING])


def frame(head: int, payload: bytes, mask: bytes = b"\1\2\3\4", claimed: int | None = None) -> bytes:
    """`head` is the first byte: FIN, three reserved bits, opcode. `claimed` is the length that it says."""
    size = len(payload) if claimed is None else claimed
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack("!H", size)
    masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
    return bytes([head]) + length + mask + masked


def flipped(data: bytes, at: float, bit: int) -> bytes:
    place = min(int(at * len(data)), len(data) - 1)
    return data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


sound = st.builds(frame, st.just(0x81), payloads)
odd = st.builds(
    frame,
    st.sampled_from([0x81, 0x82, 0x01, 0x00, 0x80, 0x88, 0x89, 0x8A, 0x09, 0xC1, 0x91, 0x83, 0x8F, 0xFF]),
    payloads.filter(lambda payload: len(payload) < 9000),
    st.binary(min_size=4, max_size=4),
    st.none() | st.integers(0, 65_535),
)
damaged = st.builds(flipped, sound | odd, st.floats(0, 1, exclude_max=True), st.integers(0, 7))
cases = st.tuples(st.booleans(), st.lists(st.one_of(sound, sound, odd, damaged), min_size=1, max_size=3))


def outcome_of(data: bytes) -> str:
    """By the server's frames: "closed", "answered" once the last message was, or ""."""
    at = 0
    while at + 2 <= len(data):
        size, head = data[at + 1], 2
        if size >= 126:
            head = 4 if size == 126 else 10
            size = int.from_bytes(data[at + 2 : at + head], "big")
        payload = data[at + head : at + head + size]
        if data[at] == 0x88:
            return "closed"
        if payload == PONG:
            return "answered"
        at += head + size
    return ""


class Peer:
    """A connection that is kept for as long as the server keeps it."""

    def __init__(self, port: int, key: str | None) -> None:
        self._port, self._key = port, key
        self._socket: socket.socket | None = None
        self._left = 0

    def send(self, data: bytes) -> str:
        """What becomes of the connection: "answered", "closed", or "waits" for the rest of a frame."""
        connection = self._connect()
        self._left -= 1
        try:
            connection.settimeout(10)
            connection.sendall(data + frame(0x81, PING))
            connection.settimeout(ANSWERS_WITHIN_S)
            answer = b""
            while not (outcome := outcome_of(answer)):
                piece = connection.recv(1 << 16)
                if not piece:
                    return self._drop("closed")
                answer += piece
            return self._drop(outcome) if outcome == "closed" else outcome
        except TimeoutError:
            return self._drop("waits")
        except ConnectionError:
            return self._drop("closed")

    def _connect(self) -> socket.socket:
        if self._left <= 0:
            self._drop("")
        if self._socket is None:
            self._socket, self._left = self._upgrade(), ENOUGH_OF_KNOWN if self._key else ENOUGH_OF_STRANGERS
        return self._socket

    def _upgrade(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=30)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        key = base64.b64encode(os.urandom(16)).decode()
        lines = ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}"]
        lines += [f"Authorization: Bearer {self._key}"] if self._key else []
        connection.sendall("\r\n".join(["GET /ws/inference HTTP/1.1", "Host: localhost", *lines, "", ""]).encode())
        head = b""
        until = b'"hello"' if self._key else b"\r\n\r\n"
        while until not in head:
            piece = connection.recv(4096)
            assert piece, head
            head += piece
        assert head.startswith(b"HTTP/1.1 101"), head
        return connection

    def _drop(self, outcome: str) -> str:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
        self._socket = None
        return outcome


@pytest.fixture(scope="module")
def behaviour() -> Behaviour:
    return Behaviour(steps_per_second=2000)


@pytest.fixture(scope="module")
def web_settings() -> dict[str, str]:
    return {"LORIKEET_STRANGER_REQUESTS_PER_S": "0"}  # a case is a handshake: hundreds a second


def vary(case: tuple[bool, list[bytes]], rnd: random.Random) -> tuple[bool, list[bytes]]:
    known, frames = case
    index = rnd.randrange(len(frames))
    return known, [*frames[:index], changed(frames[index], rnd), *frames[index + 1 :]]


def test_frames(web: WebProcess) -> None:
    assert web.process is not None
    peers = {True: Peer(web.port, web.tenants["acme"].key), False: Peer(web.port, None)}

    def run(case: tuple[bool, list[bytes]]) -> str:
        known, frames = case
        return f"{'known' if known else 'stranger'} {peers[known].send(b''.join(frames))}"

    found = fuzz("websocket frame", cases, run, vary=vary, processes=[web.process.pid])
    assert found.outcomes.keys() - {"known waits", "stranger waits"}, "nothing was answered at all"
    assert "Traceback" not in web.log.read_text(errors="replace")
    assert any(peers[True].send(b"") == "answered" for _ in range(50))
