"""Writes the text of requests to the database, for tenants that record transcripts only.

Text is never logged: an error of the database is named by its type, because its message may quote the row.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Protocol, Self

from django.db import DatabaseError, InterfaceError
from prometheus_client import Counter

from control_plane.access.principal import Principal
from control_plane.db import run_db
from control_plane.fleet.coalescing import Chunk
from control_plane.gateway.recording.flusher import Flusher
from control_plane.transcripts.actions import Taken, store
from control_plane.unavailable import is_database_away
from lora_engine.wire import engine_pb2 as pb

logger = logging.getLogger(__name__)

GATHER_S = 0.5
LARGEST_BATCH = 64
# Characters that are kept of a prompt, and of the answers to it.
MOST_KEPT = 32_768
# Characters that wait for the database; what comes beyond is not kept.
MOST_WAITING = 16 << 20
LOST = Counter("lorikeet_transcripts_lost", "Texts that were to be kept and could not be stored.")


class OutputStream(Protocol):
    """A running request, as the gateway reads it."""

    @property
    def usage(self) -> pb.UsageRecord | None: ...

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> list[Chunk]: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class RecordedStream:
    """A stream whose text is kept on its way through, however it ends."""

    def __init__(self, stream: OutputStream, taking: Taking, writer: TranscriptWriter) -> None:
        self._stream, self._taking, self._writer = stream, taking, writer

    @property
    def usage(self) -> pb.UsageRecord | None:
        return self._stream.usage

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Chunk]:
        chunks = await self._stream.__anext__()
        for chunk in chunks:
            self._taking.add(chunk.choice, text_of(chunk))
        return chunks

    def abort(self) -> None:
        self._stream.abort()

    def close(self) -> None:
        self._stream.close()
        if not self._taking.ended:
            self._taking.ended = True
            self._writer.put(self._taking)


class Taking:
    """One request's text while it grows."""

    def __init__(self, principal: Principal, submit: pb.Submit, created_at: datetime) -> None:
        self.ended = False
        self._principal, self._request_id, self._created_at = principal, submit.request_id, created_at
        self._prompt, self._cut = bounded(prompt_of(submit))
        self._answers: dict[int, str] = dict.fromkeys(range(max(1, submit.sampling.n)), "")
        self._room = MOST_KEPT

    def add(self, choice: int, text: str) -> None:
        kept = text[: self._room]
        self._cut |= len(kept) < len(text)
        self._room -= len(kept)
        self._answers[choice] = self._answers.get(choice, "") + kept

    @property
    def size(self) -> int:
        return MOST_KEPT - self._room + sum(len(message["content"]) for message in self._prompt)

    def taken(self) -> Taken:
        return Taken(
            request_id=self._request_id,
            tenant_id=self._principal.tenant.pk,
            created_at=self._created_at,
            prompt=[{name: storable(text) for name, text in message.items()} for message in self._prompt],
            answers=[storable(text) for _, text in sorted(self._answers.items())],
            cut=self._cut,
        )


class TranscriptWriter:
    """Of one event loop."""

    def __init__(self) -> None:
        self._waiting: list[Taking] = []
        self._size = 0
        self._flusher = Flusher("transcript-writer", GATHER_S, self._write)

    def start(self) -> None:
        self._flusher.start()

    async def close(self) -> None:
        await self._flusher.close()

    def record(self, stream: OutputStream, principal: Principal, submit: pb.Submit, at: datetime) -> RecordedStream:
        """The same stream, its text kept."""
        return RecordedStream(stream, Taking(principal, submit, at), self)

    def put(self, taking: Taking) -> None:
        if self._size + taking.size > MOST_WAITING:
            LOST.inc()
            return
        self._waiting.append(taking)
        self._size += taking.size
        self._flusher.wake()

    async def _write(self) -> bool:
        while batch := self._waiting[:LARGEST_BATCH]:
            try:
                await run_db(_store, batch)
            except (DatabaseError, InterfaceError) as error:
                if is_database_away(error):
                    logger.warning("%d texts could not be stored (%s); trying again.", len(batch), type(error).__name__)
                    return False
                logger.error("%d texts could not be stored and are lost (%s).", len(batch), type(error).__name__)
                LOST.inc(len(batch))
            del self._waiting[: len(batch)]
            self._size -= sum(taking.size for taking in batch)
        return True


def _store(batch: list[Taking]) -> None:
    store([taking.taken() for taking in batch])


def prompt_of(submit: pb.Submit) -> list[Mapping[str, str]]:
    """As messages; "text" and "token_ids" are the roles of prompts that have none."""
    kind = submit.WhichOneof("prompt")
    if kind == "chat":
        return [{"role": message.role, "content": content_of(message)} for message in submit.chat.messages]
    return [_prompt(submit), *map(_prompt, submit.more_prompts)]


def _prompt(prompt: pb.Submit | pb.Prompt) -> Mapping[str, str]:
    if prompt.WhichOneof("prompt") == "text":
        return {"role": "text", "content": prompt.text}
    return {"role": "token_ids", "content": " ".join(map(str, prompt.token_ids.ids))}


def content_of(message: pb.ChatMessage) -> str:
    calls = [f"{call.name}({call.arguments})" for call in message.tool_calls]
    return "\n".join(part for part in (message.content, *calls) if part)


def text_of(chunk: Chunk) -> str:
    """All that the model wrote: its reasoning and its calls are a part of it."""
    calls = "".join(f"\n{call.name} {call.arguments}" if call.id else call.arguments for call in chunk.tool_calls)
    return chunk.reasoning + chunk.text + calls


def bounded(messages: list[Mapping[str, str]]) -> tuple[list[dict[str, str]], bool]:
    """The end of a conversation, which is what was asked; and whether anything is missing."""
    room = MOST_KEPT
    kept: list[dict[str, str]] = []
    for message in reversed(messages):
        if room <= 0:
            return kept[::-1], True
        content = message["content"]
        kept.append({"role": message["role"], "content": content[-room:]})
        room -= len(content)
    return kept[::-1], room < 0


def storable(text: str) -> str:
    """Without what PostgreSQL cannot hold: NUL characters, and halves of surrogate pairs."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()
