"""The bounded buffer of one request between the engine's steps and its client.

Tokens go out as they come while the event loop has time (``pace.py``). While it is behind, a chunk goes out when the
last one is as old as the pace's delay, at most ``max_delay_s``, or ``max_tokens`` have gathered, whichever comes first.
A client that reads slowly gets longer chunks; a request whose client stops reading is aborted.
"""

import asyncio
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from control_plane.fleet.transport.errors import HostError
from control_plane.fleet.transport.pace import Pace
from lora_engine.wire import engine_pb2 as pb


@dataclass(frozen=True)
class Coalescing:
    """The limits at which a chunk leaves the buffer, and at which a slow reader's request is aborted."""

    max_delay_s: float = 0.030
    max_tokens: int = 4
    stall_tokens: int = 4096
    stall_bytes: int = 1 << 20
    stall_s: float = 30.0


# Limits for a reader that needs only the complete answer: it is woken by the first token and by the end.
WHOLE = Coalescing(max_delay_s=math.inf, max_tokens=1 << 31)


@dataclass(slots=True)
class Chunk:
    """New output of one choice; ``tokens`` is how many tokens it stands for."""

    choice: int
    text: str
    tokens: int
    finish_reason: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[pb.TokenLogprob] = field(default_factory=list)
    prompt: pb.PromptDescription | None = None
    prompt_logprobs: list[pb.PromptLogprobs] = field(default_factory=list)
    embedding: bytes = b""
    reasoning: str = ""
    tool_calls: list[pb.ToolCallDelta] = field(default_factory=list)
    # Violations of the answer's schema, at the chunk that ends it: path, keyword and message.
    violations: list[Mapping[str, str]] = field(default_factory=list)

    def add_tool_calls(self, deltas: Iterable[pb.ToolCallDelta]) -> None:
        """Append deltas of tool calls; a delta of the last call extends its arguments."""
        for delta in deltas:
            if self.tool_calls and self.tool_calls[-1].index == delta.index:
                self.tool_calls[-1].arguments += delta.arguments
            else:
                self.tool_calls.append(delta)


class RequestBuffer:
    """The output of one request that its reader has not taken yet. One reader; all calls on one event loop."""

    __slots__ = (
        "_bytes",
        "_coalescing",
        "_due",
        "_due_since",
        "_error",
        "_finished",
        "_interrupted",
        "_last_taken",
        "_max_bytes",
        "_pace",
        "_patient_until",
        "_pending",
        "_timer",
        "_tokens",
        "_total_bytes",
        "_waiter",
    )

    def __init__(self, coalescing: Coalescing, max_bytes: float = math.inf, pace: Pace | None = None) -> None:
        """``max_bytes`` bounds the plausible size of the whole answer. Without a ``pace`` tokens gather always."""
        self._coalescing = coalescing
        # A reader of only the complete answer has no use for parts of it.
        self._pace = pace if coalescing.max_delay_s < math.inf else None
        self._max_bytes, self._total_bytes = max_bytes, 0
        self._pending: dict[int, Chunk] = {}
        self._tokens = self._bytes = 0
        self._due = False
        self._due_since = 0.0
        self._last_taken = float("-inf")
        self._waiter: asyncio.Future[None] | None = None
        self._interrupted = False
        self._patient_until = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._finished = False
        self._error: HostError | None = None

    @property
    def finished(self) -> bool:
        return self._finished

    @property
    def tokens(self) -> int:
        """Number of tokens that the reader has not taken yet."""
        return self._tokens

    def push(self, delta: pb.Delta, now: float) -> bool:
        """Add a delta. Returns True if the caller must make the buffer due within ``max_delay_s``."""
        begins = not self._pending
        self._total_bytes += delta.ByteSize()
        chunk = self._pending.get(delta.choice)
        if chunk is None:
            self._pending[delta.choice] = chunk = Chunk(delta.choice, delta.text, delta.num_tokens)
        else:
            chunk.text += delta.text
            chunk.tokens += delta.num_tokens
        if delta.finish_reason:
            chunk.finish_reason = delta.finish_reason
        if delta.token_ids:
            chunk.token_ids.extend(delta.token_ids)
        if delta.logprobs:
            chunk.logprobs.extend(delta.logprobs)
            self._bytes += sum(entry.ByteSize() for entry in delta.logprobs)
        if delta.reasoning:
            chunk.reasoning += delta.reasoning
            self._bytes += len(delta.reasoning)
        if delta.tool_calls:
            chunk.add_tool_calls(delta.tool_calls)
            self._bytes += sum(call.ByteSize() for call in delta.tool_calls)
        if not delta.num_tokens:
            _add_prompt(chunk, delta)
        elif delta.HasField("prompt"):
            chunk.prompt = delta.prompt
        return self._pushed(delta.num_tokens, len(delta.text), now, begins=begins)

    def _pushed(self, tokens: int, size: int, now: float, *, begins: bool) -> bool:
        self._tokens += tokens
        self._bytes += size
        if self._due:
            return False
        delay_s = self._coalescing.max_delay_s if self._pace is None else self._pace.delay_s
        if self._tokens >= self._coalescing.max_tokens or now - self._last_taken >= delay_s:
            self.make_due(now)
            return False
        return begins and self._coalescing.max_delay_s < math.inf

    def push_plain(self, text: str, token_id: int, now: float) -> bool:
        """Add a token of choice 0 with its text and nothing else, like ``push``."""
        begins = not self._pending
        self._total_bytes += len(text)
        chunk = self._pending.get(0)
        if chunk is None:
            self._pending[0] = Chunk(0, text, 1, token_ids=[token_id])
        else:
            chunk.text += text
            chunk.tokens += 1
            chunk.token_ids.append(token_id)
        return self._pushed(1, len(text), now, begins=begins)

    @property
    def overflows(self) -> bool:
        """True if the host has sent more than any answer to the request has."""
        return self._total_bytes > self._max_bytes

    def stalled(self, now: float) -> bool:
        """Return whether the reader has left too much, or for too long, in the buffer."""
        if not self._due or self._waiter is not None:
            return False
        too_much = self._tokens > self._coalescing.stall_tokens or self._bytes > self._coalescing.stall_bytes
        return too_much or now - self._due_since > self._coalescing.stall_s

    def make_due(self, now: float) -> None:
        """Release the buffered output to the reader."""
        if self._pending and not self._due:
            self._due, self._due_since = True, now
            self._wake()

    def finish(self, error: HostError | None = None) -> None:
        """End the request. The reader still gets what is buffered, then the end or the error."""
        if not self._finished:
            self._finished, self._error = True, error
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._wake()

    def give_up(self, error: HostError) -> None:
        """Drop the buffered output and end with an error: the reader stalled, or the host sends too much."""
        self._pending, self._tokens, self._bytes = {}, 0, 0
        self.finish(error)

    async def take(self, patience_s: float | None = None) -> list[Chunk] | None:
        """Wait for due output and return it; empty at the end. Raises the ``HostError`` that ended the request.

        With ``patience_s`` it returns None if nothing is due in this time, or ``interrupt`` is called meanwhile.
        """
        loop = asyncio.get_running_loop()
        if patience_s is not None and not (self._due or self._finished):
            self._interrupted = patience_s <= 0
            self._be_patient(loop, loop.time() + patience_s)
        while not (self._due or self._finished):
            if patience_s is not None and self._interrupted:
                return None
            self._waiter = loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        chunks = list(self._pending.values())
        if not chunks and self._error is not None:
            raise self._error
        self._pending, self._tokens, self._bytes, self._due = {}, 0, 0, False
        self._last_taken = loop.time()
        return chunks

    def interrupt(self) -> None:
        """Wake a waiting reader without output."""
        self._interrupted = True
        self._wake()

    def _be_patient(self, loop: asyncio.AbstractEventLoop, until: float) -> None:
        # A timer that is set anew for each chunk would cost more than the rest of the buffer's work.
        self._patient_until = until
        if self._timer is not None and self._timer.when() > until:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = loop.call_at(until, self._check_patience, loop)

    def _check_patience(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._waiter is None or self._finished:
            return
        if loop.time() >= self._patient_until:
            self.interrupt()
        else:
            self._timer = loop.call_at(self._patient_until, self._check_patience, loop)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _add_prompt(chunk: Chunk, delta: pb.Delta) -> None:
    """Add the engine's report on the prompt. Its size is bounded by the request, so it does not count as buffered."""
    if delta.HasField("prompt"):
        chunk.prompt = delta.prompt
    if delta.HasField("prompt_logprobs"):
        chunk.prompt_logprobs.append(delta.prompt_logprobs)
    chunk.embedding = delta.embedding or chunk.embedding
