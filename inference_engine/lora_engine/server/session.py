"""The stream of one web process: its requests, and the messages that wait to be sent to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from lora_engine.wire import engine_pb2 as pb


class ClientSession:
    """An outbox that merges messages: a client that reads slowly gets fewer, larger ones.

    It lives on the event loop.
    """

    def __init__(self) -> None:
        self.client_id = ""
        # Why the session ends before its greeting.
        self.refusal = ""
        self.requests: set[str] = set()
        self._welcome: pb.Welcome | None = None
        self._pending: pb.StepDeltas | None = None
        # The pending message's plain tokens, and the requests with a delta in it, whose later tokens must follow as
        # deltas.
        self._handles: list[int] = []
        self._texts: list[str] = []
        self._token_ids: list[int] = []
        self._with_delta: set[int] = set()
        self._filled = asyncio.Event()
        self._ending = False

    def welcome(self, boot_id: str, base_digest: str) -> None:
        self._welcome = pb.Welcome(boot_id=boot_id, base_digest=base_digest, resumes=True)
        self._filled.set()

    def add_delta(self, step: int, delta: pb.Delta, handle: int = 0) -> None:
        """Add a delta. ``handle`` is its request's, 0 if it has none."""
        self._outbox(step).deltas.append(delta)
        if not delta.choice:
            self._with_delta.add(handle)

    def add_plain(self, step: int, handle: int, text: str, token_id: int) -> bool:
        """Add a token of choice 0 that has only text; returns False if it must be a delta because it follows one."""
        if handle in self._with_delta:
            return False
        self._outbox(step)
        self._handles.append(handle)
        self._texts.append(text)
        self._token_ids.append(token_id)
        return True

    def add_finished(self, step: int, finished: pb.Finished) -> None:
        """Add a request's last message. A session that is ending ends with its last request."""
        self._outbox(step).finished.append(finished)
        self.requests.discard(finished.request_id)

    def refuse(self, reason: str) -> None:
        """End the session instead of greeting."""
        self.refusal = reason
        self.end_when_idle()

    def end_when_idle(self) -> None:
        """End once the open requests have ended: the client will send no more."""
        self._ending = True
        self._filled.set()

    async def send_all(self, write: Callable[[pb.EngineMessage], Awaitable[object]]) -> None:
        """Send messages as they become available, until the session ends."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            if self._welcome is not None:
                welcome, self._welcome = self._welcome, None
                await write(pb.EngineMessage(welcome=welcome))
            if self._pending is not None:
                step, self._pending = self._pending, None
                if self._handles:
                    step.plain.handles.extend(self._handles)
                    step.plain.texts.extend(self._texts)
                    step.plain.token_ids.extend(self._token_ids)
                    self._handles, self._texts, self._token_ids = [], [], []
                self._with_delta.clear()
                await write(pb.EngineMessage(step=step))
            if self._ending and not self.requests and self._pending is None:
                return

    def _outbox(self, step: int) -> pb.StepDeltas:
        if self._pending is None:
            self._pending = pb.StepDeltas()
            self._filled.set()
        self._pending.step = max(step, self._pending.step)
        return self._pending
