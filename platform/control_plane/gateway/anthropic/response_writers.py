"""Answers of ``/v1/messages`` and their errors: the whole object, and the events of a stream."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from control_plane.billing.usage.request_ids import public_part
from control_plane.core.http.request_id import current_request_id
from control_plane.fleet.transport.coalescing import Chunk
from control_plane.gateway.anthropic.request import in_anthropic_terms
from control_plane.gateway.dispatch.errors import ApiError
from control_plane.gateway.dispatch.generation import Generation
from control_plane.gateway.dispatch.json_encoding import encode
from control_plane.gateway.openai.call_arguments import complete_arguments
from control_plane.gateway.openai.response_writers import Choice
from lora_engine.wire import engine_pb2 as pb

Json = dict[str, Any]
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def error_body(error: ApiError) -> Json:
    """Return the body of an error in Anthropic's shape, with ``code``, ``param`` and ``fix`` added."""
    kind = _ERROR_TYPES.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
    shown = in_anthropic_terms(error)
    return {
        "type": "error",
        "error": {
            "type": kind,
            "message": f"{shown.message} {shown.fix}".strip(),
            "code": shown.code,
            "param": shown.param,
            "fix": shown.fix,
        },
        "request_id": current_request_id(),
    }


class MessageWriter:
    """A writer of the object of one answer, at any stage of its generation."""

    def __init__(self, generation: Generation, stops: Sequence[str]) -> None:
        self._generation, self.stops = generation, stops

    def body(self, content: Sequence[Json], reason: str | None, sequence: str | None, usage: Json) -> Json:
        return {
            "id": f"msg_{public_part(self._generation.request_id)}",
            "type": "message",
            "role": "assistant",
            "model": self._generation.admission.model.display_name,
            "content": list(content),
            "stop_reason": reason,
            "stop_sequence": sequence,
            "usage": usage,
        }

    def start(self) -> Json:
        """Return the empty message with which a stream begins. The engine reports its counts at the end."""
        return self.body([], None, None, usage_json([]))

    def usage(self) -> Json:
        return usage_json(self._generation.usages)

    def signature(self) -> str:
        """Return the signature of a thinking block. It is not checked when the block is sent back."""
        return f"sig_{public_part(self._generation.request_id)}"

    def stop(self, choice: Choice) -> tuple[str, str | None]:
        """Return the stop reason, and the stop sequence that ended the answer."""
        sequence = self.matched(choice)
        reason = "stop_sequence" if sequence else _STOP_REASONS.get(choice.finish_reason or "stop", "end_turn")
        return reason, sequence

    def matched(self, choice: Choice) -> str | None:
        """Return the stop sequence with which the text ends."""
        if choice.finish_reason != "stop":
            return None
        matches = [stop for stop in self.stops if choice.text.endswith(stop)]
        return max(matches, key=len, default=None)

    def whole(self, choice: Choice) -> Json:
        reason, sequence = self.stop(choice)
        content: list[Json] = []
        if choice.reasoning:
            content.append({"type": "thinking", "thinking": choice.reasoning, "signature": self.signature()})
        if text := choice.text.removesuffix(sequence or ""):
            content.append({"type": "text", "text": text})
        for call in choice.tool_calls:
            arguments = json.loads(complete_arguments(call["function"]["arguments"]) or "{}")
            content.append({"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": arguments})
        body = self.body(content, reason, sequence, self.usage())
        return {**body, "schema_violations": choice.violations} if choice.violations else body


def usage_json(records: Sequence[pb.UsageRecord]) -> Json:
    """Return the engine's counts; tokens of the prompt that were cached are not among ``input_tokens``."""
    cached = sum(record.cached_prompt_tokens for record in records)
    return {
        "input_tokens": sum(record.prompt_tokens for record in records) - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": sum(record.completion_tokens for record in records),
    }


class MessageEvents:
    """A writer of the events of one stream. A block is open until another kind of output begins."""

    def __init__(self, writer: MessageWriter) -> None:
        self._writer = writer
        self._choice = Choice()
        self._events: list[bytes] = []
        self._began = False
        self._open = ""  # "", "thinking", "text" or "tool_use"
        self._index = -1  # of the open block, or of the last one
        self._buffer = ""  # text that may be the beginning of a stop sequence

    def write(self, chunks: Sequence[Chunk]) -> bytes:
        self._begin()
        for chunk in chunks:
            self._choice.add(chunk)
            if chunk.reasoning:
                self._start("thinking", {"type": "thinking", "thinking": "", "signature": ""})
                self._delta({"type": "thinking_delta", "thinking": chunk.reasoning})
            if chunk.text:
                self._add_text(chunk.text)
            for call in chunk.tool_calls:
                self._add_call(call)
        return self._take()

    def error(self, error: ApiError) -> bytes:
        self._begin()
        self._event("error", {name: value for name, value in error_body(error).items() if name != "type"})
        return self._take()

    async def settle(self) -> None:
        """Do nothing: an answer in Anthropic's form needs no work after its end."""

    def end(self) -> bytes:
        self._begin()
        reason, sequence = self._writer.stop(self._choice)
        if rest := self._buffer.removesuffix(sequence or ""):
            self._buffer = ""
            self._write_text(rest)
        self._close()
        self._event(
            "message_delta",
            {
                "delta": {"stop_reason": reason, "stop_sequence": sequence},
                "usage": self._writer.usage(),
                **({"schema_violations": self._choice.violations} if self._choice.violations else {}),
            },
        )
        self._event("message_stop", {})
        return self._take()

    def _begin(self) -> None:
        if not self._began:
            self._began = True
            self._event("message_start", {"message": self._writer.start()})
            self._event("ping", {})

    def _add_text(self, text: str) -> None:
        pending = self._buffer + text
        keep = _possible_stop(pending, self._writer.stops)
        self._buffer = pending[len(pending) - keep :]
        if keep < len(pending):
            self._write_text(pending[: len(pending) - keep])

    def _write_text(self, text: str) -> None:
        self._start("text", {"type": "text", "text": ""})
        self._delta({"type": "text_delta", "text": text})

    def _add_call(self, delta: pb.ToolCallDelta) -> None:
        if delta.id:
            self._close()
            self._start("tool_use", {"type": "tool_use", "id": delta.id, "name": delta.name, "input": {}})
        if delta.arguments:
            self._delta({"type": "input_json_delta", "partial_json": delta.arguments})

    def _start(self, kind: str, block: Json) -> None:
        if self._open == kind:
            return
        if self._buffer and kind != "text":  # other output followed, so it was no stop sequence
            text, self._buffer = self._buffer, ""
            self._write_text(text)
        self._close()
        self._open, self._index = kind, self._index + 1
        self._event("content_block_start", {"index": self._index, "content_block": block})

    def _delta(self, delta: Json) -> None:
        self._event("content_block_delta", {"index": self._index, "delta": delta})

    def _close(self) -> None:
        if not self._open:
            return
        if self._open == "thinking":
            self._delta({"type": "signature_delta", "signature": self._writer.signature()})
        self._event("content_block_stop", {"index": self._index})
        self._open = ""

    def _event(self, kind: str, fields: Json) -> None:
        self._events.append(f"event: {kind}\ndata: {encode({'type': kind, **fields})}\n\n".encode())

    def _take(self) -> bytes:
        data = b"".join(self._events)
        self._events.clear()
        return data


def _possible_stop(text: str, stops: Sequence[str]) -> int:
    """Return the length of the longest end of ``text`` that is a stop sequence, or the beginning of one."""
    longest = max((len(stop) for stop in stops), default=0)
    for size in range(min(longest, len(text)), 0, -1):
        if any(stop.startswith(text[-size:]) for stop in stops):
            return size
    return 0
