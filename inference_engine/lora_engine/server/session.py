"""One web process's stream: its requests, and what waits to be sent to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from lora_engine.wire import engine_pb2 as pb


class ClientSession:
    """An outbox that merges: a client that reads slowly gets fewer, larger messages.

    Lives on the event loop.
    """

    def __init__(self) -> None:
        self.client_id = ""
        self.requests: set[str] = set()
        self._welcome: pb.Welcome | None = None
        self._pending: pb.StepDeltas | None = None
        self._filled = asyncio.Event()
        self._ending = False

    def welcome(self, boot_id: str, base_digest: str) -> None:
        self._welcome = pb.Welcome(boot_id=boot_id, base_digest=base_digest, resumes=True)
        self._filled.set()

    def add_delta(self, step: int, delta: pb.Delta) -> None:
        self._outbox(step).deltas.append(delta)

    def add_finished(self, step: int, finished: pb.Finished) -> None:
        """The request's last message; a session that is ending ends with its last request."""
        self._outbox(step).finished.append(finished)
        self.requests.discard(finished.request_id)

    def end_when_idle(self) -> None:
        """The client will send no more: end once its requests have."""
        self._ending = True
        self._filled.set()

    async def messages(self) -> AsyncIterator[pb.EngineMessage]:
        """Everything to send, as it comes."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            if self._welcome is not None:
                message, self._welcome = pb.EngineMessage(welcome=self._welcome), None
                yield message
            if self._pending is not None:
                message, self._pending = pb.EngineMessage(step=self._pending), None
                yield message
            if self._ending and not self.requests and self._pending is None:
                return

    def _outbox(self, step: int) -> pb.StepDeltas:
        if self._pending is None:
            self._pending = pb.StepDeltas()
            self._filled.set()
        self._pending.step = max(step, self._pending.step)
        return self._pending
