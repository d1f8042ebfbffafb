"""Streams a response to the client as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from django.http.response import HttpResponseBase

from control_plane.fleet.transport.coalescing import Chunk
from control_plane.fleet.transport.errors import HostError
from control_plane.gateway.dispatch import errors
from control_plane.gateway.dispatch.errors import ApiError
from control_plane.gateway.dispatch.generation import Generation
from control_plane.gateway.dispatch.idempotency import MAX_BYTES, Claim

Send = Callable[[Mapping[str, Any]], Awaitable[None]]
CONTENT_TYPE = "text/event-stream; charset=utf-8"


class EventWriter(Protocol):
    """The format in which one endpoint writes the events of a stream."""

    def write(self, chunks: Sequence[Chunk]) -> bytes: ...

    def error(self, error: ApiError) -> bytes:
        """Return an error as an event: the status was sent when the stream began."""

    async def settle(self) -> None:
        """Do what must be done before the last events are sent."""

    def end(self) -> bytes: ...


class EventStreamResponse(HttpResponseBase):
    """A response with the events of one answer. Closing it, however early, aborts the generation.

    It sends itself: the generators that Django wraps around a stream cost time for every token, and do not pass a close
    on to it.
    """

    streaming = True

    def __init__(
        self, generation: Generation, batches: AsyncIterator[list[Chunk]], writer: EventWriter, first: list[Chunk]
    ) -> None:
        super().__init__(content_type=CONTENT_TYPE)
        self["Cache-Control"] = "no-cache"
        self["X-Accel-Buffering"] = "no"
        for name, value in generation.headers.items():
            self[name] = value
        self._generation, self._batches, self._writer, self._first = generation, batches, writer, first
        self._claim: Claim | None = None
        self._sent: list[bytes] = []
        self._sent_bytes = 0

    def keep_under(self, claim: Claim) -> None:
        """Keep what is sent under an idempotency key; only an answer that is complete is kept."""
        self._claim = claim

    async def send(self, send: Send) -> None:
        """Send everything up to the last event, which is an error if the generation fails."""
        headers = [(name.encode("ascii"), value.encode("latin-1")) for name, value in self.items()]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        chunks, self._first = self._first, []
        while chunks:
            data = self._writer.write(chunks)
            self._gather(data)
            await send({"type": "http.response.body", "body": data, "more_body": True})
            try:
                chunks = await anext(self._batches, [])
            except HostError as failure:
                data = self._writer.error(errors.from_failure(failure))
                break
        else:
            await self._writer.settle()
            data = self._writer.end()
            self._keep_answer(data)
        await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _gather(self, data: bytes) -> None:
        if self._claim is None:
            return
        self._sent_bytes += len(data)
        if self._sent_bytes <= MAX_BYTES:
            self._sent.append(data)
        else:
            self._sent.clear()  # too large to keep; the claim is released at the end

    def _keep_answer(self, end: bytes) -> None:
        self._gather(end)
        if self._claim is not None and self._sent_bytes <= MAX_BYTES:
            self._claim.keep(CONTENT_TYPE, b"".join(self._sent))

    async def aclose(self) -> None:
        self._generation.close()
        if self._claim is not None:
            self._claim.release()
