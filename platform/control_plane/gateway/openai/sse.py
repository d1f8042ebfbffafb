"""Streams a response to the client as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from django.http import StreamingHttpResponse

from control_plane.fleet.transport.coalescing import Chunk
from control_plane.fleet.transport.errors import HostError
from control_plane.gateway.dispatch import errors
from control_plane.gateway.dispatch.errors import ApiError
from control_plane.gateway.dispatch.generation import Generation
from control_plane.gateway.dispatch.idempotency import MAX_BYTES, Claim

CONTENT_TYPE = "text/event-stream; charset=utf-8"


class EventWriter(Protocol):
    """The format in which one endpoint writes the events of a stream."""

    def write(self, chunks: Sequence[Chunk]) -> bytes: ...

    def error(self, error: ApiError) -> bytes:
        """Return an error as an event: the status was sent when the stream began."""

    async def settle(self) -> None:
        """Do what must be done before the last events are sent."""

    def end(self) -> bytes: ...


class EventStream:
    """The events of one answer. Closing it, however early, aborts the generation."""

    def __init__(
        self, generation: Generation, batches: AsyncIterator[list[Chunk]], writer: EventWriter, first: list[Chunk]
    ) -> None:
        self._generation, self._batches, self._writer = generation, batches, writer
        self._first: list[Chunk] | None = first
        self._ended = False
        self._claim: Claim | None = None
        self._sent: list[bytes] = []
        self._sent_bytes = 0

    def __aiter__(self) -> EventStream:
        return self

    def keep_under(self, claim: Claim) -> None:
        """Keep what is sent under an idempotency key; only an answer that is complete is kept."""
        self._claim, self._sent = claim, []

    async def __anext__(self) -> bytes:
        if self._ended:
            raise StopAsyncIteration
        try:
            chunks = self._first if self._first is not None else await anext(self._batches, [])
        except HostError as failure:
            self._ended = True
            return self._writer.error(errors.from_failure(failure))
        self._first = None
        if not chunks:
            await self._writer.settle()
            return self._end()
        data = self._writer.write(chunks)
        if self._claim is not None:
            self._gather(data)
        return data

    def _gather(self, data: bytes) -> None:
        self._sent_bytes += len(data)
        if self._sent_bytes <= MAX_BYTES:
            self._sent.append(data)
        else:
            self._sent.clear()  # too large to keep; the claim is released at the end

    def _end(self) -> bytes:
        self._ended = True
        data = self._writer.end()
        if self._claim is not None:
            self._gather(data)
            if self._sent_bytes <= MAX_BYTES:
                self._claim.keep(CONTENT_TYPE, b"".join(self._sent))
        return data

    @property
    def headers(self) -> Mapping[str, str]:
        return self._generation.headers

    async def aclose(self) -> None:
        self._generation.close()
        if self._claim is not None:
            self._claim.release()


class EventStreamResponse(StreamingHttpResponse):
    """A response whose stream is passed to the server itself.

    The generators that Django would wrap around it cost time for every token, and do not pass a close on to it.
    """

    def __init__(self, events: EventStream) -> None:
        super().__init__(events, content_type=CONTENT_TYPE)
        self.events = events
        self["Cache-Control"] = "no-cache"
        self["X-Accel-Buffering"] = "no"
        for name, value in events.headers.items():
            self[name] = value

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.events
