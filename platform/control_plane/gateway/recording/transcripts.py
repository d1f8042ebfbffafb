"""Writes the text of requests to the database, only for tenants that record transcripts.

Text is never logged: a database error is logged by its type, because its message may quote the row.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db import DatabaseError, InterfaceError
from prometheus_client import Counter

from control_plane.core.db import run_db
from control_plane.core.storable import storable
from control_plane.core.unavailable import is_database_away
from control_plane.fleet.transport.coalescing import Chunk
from control_plane.gateway.dispatch.json_encoding import encode
from control_plane.gateway.recording.flusher import Flusher
from control_plane.gateway.transcripts.actions import NewTranscript, store
from control_plane.identity.access.principal import Principal
from lora_engine.wire import engine_pb2 as pb

logger = logging.getLogger(__name__)

# Seconds for which entries are gathered, and the entries of one transaction.
GATHER_S = 0.5
LARGEST_BATCH = 64
# Maximum number of characters that are kept of a prompt, and of all its answers together.
MAX_KEPT = 32_768
# Characters that are kept of the settings, as JSON: a schema and definitions of tools may be long.
MAX_SETTINGS = 32_768
# Characters that wait for the database; further texts are dropped.
MAX_WAITING = 16 << 20
LOST = Counter("lorikeet_transcripts_lost", "Texts that were to be kept and could not be stored.")


class TranscriptBuffer:
    """The text of one request while it grows."""

    def __init__(self, principal: Principal, submit: pb.Submit, created_at: datetime) -> None:
        self.is_stored = False  # or about to be
        self._principal, self._request_id, self._created_at = principal, submit.request_id, created_at
        self._prompt, self._cut = bounded(prompt_of(submit))
        self._settings = _kept_settings(submit)
        self._answers: dict[int, str] = dict.fromkeys(range(max(1, submit.sampling.n)), "")
        self._room = MAX_KEPT

    def add(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            text = text_of(chunk)
            kept = text[: self._room]
            self._cut |= len(kept) < len(text)
            self._room -= len(kept)
            self._answers[chunk.choice] = self._answers.get(chunk.choice, "") + kept

    @property
    def size(self) -> int:
        prompt = sum(len(message["content"]) for message in self._prompt)
        return MAX_KEPT - self._room + prompt + len(self._settings)

    def transcript(self) -> NewTranscript:
        return NewTranscript(
            request_id=self._request_id,
            tenant_id=self._principal.tenant.pk,
            created_at=self._created_at,
            prompt=[{name: storable(text) for name, text in message.items()} for message in self._prompt],
            answers=[storable(text) for _, text in sorted(self._answers.items())],
            cut=self._cut,
            settings=json.loads(self._settings),
        )


class TranscriptWriter:
    """A writer that stores transcripts in the background, on one event loop."""

    def __init__(self) -> None:
        self._waiting: list[TranscriptBuffer] = []
        self._size = 0
        self._flusher = Flusher("transcript-writer", GATHER_S, self._write)

    def start(self) -> None:
        self._flusher.start()

    async def close(self) -> None:
        await self._flusher.close()

    def put(self, buffer: TranscriptBuffer) -> None:
        """Store the text of a request that has ended. Idempotent."""
        if buffer.is_stored:
            return
        buffer.is_stored = True
        if self._size + buffer.size > MAX_WAITING:
            LOST.inc()
            return
        self._waiting.append(buffer)
        self._size += buffer.size
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
            self._size -= sum(buffer.size for buffer in batch)
        return True


def _store(batch: list[TranscriptBuffer]) -> None:
    store([buffer.transcript() for buffer in batch])


def prompt_of(submit: pb.Submit) -> list[Mapping[str, str]]:
    """Return the prompt as messages; prompts without a role have the role "text", "token_ids" or "suffix"."""
    kind = submit.WhichOneof("prompt")
    if kind == "chat":
        return [{"role": message.role, "content": content_of(message)} for message in submit.chat.messages]
    suffix = [{"role": "suffix", "content": submit.suffix}] if submit.suffix else []
    return [_prompt(submit), *suffix, *map(_prompt, submit.more_prompts)]


def _prompt(prompt: pb.Submit | pb.Prompt) -> Mapping[str, str]:
    if prompt.WhichOneof("prompt") == "text":
        return {"role": "text", "content": prompt.text}
    return {"role": "token_ids", "content": " ".join(map(str, prompt.token_ids.ids))}


def _kept_settings(submit: pb.Submit) -> str:
    """Return the settings as JSON; "null" if they are too long or too deep."""
    try:
        settings = settings_of(submit)
        _require_finite(settings)
        text = encode(storable(settings))
    except (ValueError, RecursionError):
        return "null"
    return text if len(text) <= MAX_SETTINGS else "null"


def settings_of(submit: pb.Submit) -> dict[str, Any]:
    """Return the parameters of the answer by their names in the API, without those that have their default."""
    sampling, chat = submit.sampling, submit.chat
    values: dict[str, Any] = {
        "temperature": _short(sampling.temperature),
        "top_p": _short(sampling.top_p),
        "max_tokens": sampling.max_tokens,
        "seed": sampling.seed if sampling.HasField("seed") else None,
        **{name: _short(getattr(sampling, name)) for name in _OFF_AT_ZERO},
        "repetition_penalty": _short(sampling.repetition_penalty),
        "stop": list(sampling.stop),
        "n": sampling.n,
        "response_format": _response_format(submit.constraint) if submit.HasField("constraint") else None,
        "tools": [_tool(tool) for tool in chat.tools],
        "tool_choice": _tool_choice(chat.tool_choice),
        "reasoning_effort": chat.reasoning_effort,
    }
    always = ("temperature", "top_p")
    return {
        name: value for name, value in values.items() if name in always or value not in _DEFAULTS.get(name, _NOTHING)
    }


_OFF_AT_ZERO = ("top_k", "min_p", "presence_penalty", "frequency_penalty")
_NOTHING: tuple[Any, ...] = (None, 0, "", [])
_DEFAULTS: Mapping[str, tuple[Any, ...]] = {
    "temperature": (),
    "top_p": (),
    "repetition_penalty": (0, 1),
    "n": (0, 1),
    "seed": (None,),
}


def _short(number: float) -> float:
    """Round a number to the digits that the client wrote: on the wire it has 24 bits."""
    return float(f"{number:.6g}")


def _response_format(constraint: pb.Constraint) -> dict[str, Any]:
    """Return the constraint in OpenAI's form; for a kind that OpenAI lacks, its type and text."""
    if constraint.kind == pb.Constraint.JSON_OBJECT:
        return {"type": "json_object"}
    if constraint.kind == pb.Constraint.JSON_SCHEMA:
        return {"type": "json_schema", "json_schema": {"name": "answer", "schema": json.loads(constraint.text)}}
    return {"type": pb.Constraint.Kind.Name(constraint.kind).lower(), "text": constraint.text}


def _tool(tool: pb.Tool) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description else {}
    parameters = {"parameters": json.loads(tool.parameters)} if tool.parameters else {}
    strict = {"strict": True} if tool.strict else {}
    return {"type": "function", "function": {"name": tool.name, **described, **parameters, **strict}}


def _tool_choice(choice: pb.ToolChoice) -> str | None:
    if choice.mode == pb.ToolChoice.AUTO:
        return None
    return choice.name or pb.ToolChoice.Mode.Name(choice.mode).lower()


def content_of(message: pb.ChatMessage) -> str:
    calls = [f"{call.name}({call.arguments})" for call in message.tool_calls]
    return "\n".join(part for part in (message.content, *calls) if part)


def text_of(chunk: Chunk) -> str:
    """Return all that the model wrote, including reasoning and tool calls."""
    calls = "".join(f"\n{call.name} {call.arguments}" if call.id else call.arguments for call in chunk.tool_calls)
    return chunk.reasoning + chunk.text + calls


def bounded(messages: list[Mapping[str, str]]) -> tuple[list[dict[str, str]], bool]:
    """Return the end of a conversation, which holds the question, and whether anything was cut."""
    room = MAX_KEPT
    kept: list[dict[str, str]] = []
    for message in reversed(messages):
        if room <= 0:
            return kept[::-1], True
        content = message["content"]
        kept.append({"role": message["role"], "content": content[-room:]})
        room -= len(content)
    return kept[::-1], room < 0


def _require_finite(value: Any) -> None:
    """Raise ``ValueError`` for a number that JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("It holds a number that is not finite.")
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _require_finite(item)
