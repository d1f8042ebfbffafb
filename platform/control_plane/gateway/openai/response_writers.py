"""Answers in OpenAI's shapes: whole bodies as objects, stream chunks as bytes.

Chunks are assembled from prepared text; only a token's text is encoded each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from control_plane.billing.usage.request_ids import public_part
from control_plane.fleet.transport.coalescing import Chunk
from control_plane.gateway.dispatch.errors import ApiError
from control_plane.gateway.dispatch.generation import Generation
from control_plane.gateway.dispatch.json_encoding import encode
from control_plane.gateway.openai.completion_request import CompletionRequest
from control_plane.gateway.openai.parameters import Parameters
from control_plane.gateway.openai.prompt_parts import PromptPart, PromptParts, token_name, top_by_name, utf8_decoder
from lora_engine.wire import engine_pb2 as pb

DONE = b"data: [DONE]\n\n"


def usage_json(records: Iterable[pb.UsageRecord]) -> dict[str, Any]:
    """Return the engine's counts, summed over prompts."""
    counts = list(records)
    prompt = sum(record.prompt_tokens for record in counts)
    completion = sum(record.completion_tokens for record in counts)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(record.cached_prompt_tokens for record in counts)},
    }


@dataclass(slots=True)
class Choice:
    """A choice of a whole answer, as it grows."""

    text: str = ""
    finish_reason: str | None = None
    logprobs: list[pb.TokenLogprob] = field(default_factory=list)
    reasoning: str = ""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    violations: list[Mapping[str, str]] = field(default_factory=list)

    def add(self, chunk: Chunk) -> None:
        self.text += chunk.text
        self.reasoning += chunk.reasoning
        for call in chunk.tool_calls:
            self._add_call(call)
        self.finish_reason = chunk.finish_reason or self.finish_reason
        self.logprobs.extend(chunk.logprobs)
        self.token_ids.extend(chunk.token_ids)
        self.violations.extend(chunk.violations)

    def _add_call(self, delta: pb.ToolCallDelta) -> None:
        if delta.index < len(self.tool_calls):
            self.tool_calls[delta.index]["function"]["arguments"] += delta.arguments
        else:
            function = {"name": delta.name, "arguments": delta.arguments}
            self.tool_calls.append({"id": delta.id, "type": "function", "function": function})


class Shape(Protocol):
    """The format in which one endpoint writes its answers."""

    prefix: str
    object: str
    chunk_object: str

    def opening(self, index: int) -> str:
        """Return the JSON of the choice that a stream begins with; "" for none."""

    def delta(self, index: int, chunk: Chunk) -> str: ...

    def closing(self, index: int, finish_reason: str) -> str: ...

    def choice(self, index: int, choice: Choice) -> dict[str, Any]: ...


class ChatShape:
    prefix, object, chunk_object = "chatcmpl-", "chat.completion", "chat.completion.chunk"

    def __init__(self, *, logprobs: bool, as_ids: bool) -> None:
        self._logprobs, self._as_ids = logprobs, as_ids

    def opening(self, index: int) -> str:
        return (
            f'{{"index":{index},"delta":{{"role":"assistant","content":"","refusal":null}},'
            '"logprobs":null,"finish_reason":null}'
        )

    def delta(self, index: int, chunk: Chunk) -> str:
        details = encode(self._details(chunk.logprobs)) if self._logprobs else "null"
        delta = f'{{"content":{encode(chunk.text)}}}'  # nearly every chunk; a dictionary takes longer to encode
        if chunk.reasoning or chunk.tool_calls:
            parts: dict[str, Any] = dict(_reasoning(chunk.reasoning)) if chunk.reasoning else {}
            if chunk.text:
                parts["content"] = chunk.text
            if chunk.tool_calls:
                parts["tool_calls"] = [tool_call_json(call) for call in chunk.tool_calls]
            delta = encode(parts)
        return f'{{"index":{index},"delta":{delta},"logprobs":{details},"finish_reason":null}}'

    def closing(self, index: int, finish_reason: str) -> str:
        return f'{{"index":{index},"delta":{{}},"logprobs":null,"finish_reason":"{finish_reason}"}}'

    def choice(self, index: int, choice: Choice) -> dict[str, Any]:
        return {
            "index": index,
            "message": self._message(choice),
            "logprobs": self._details(choice.logprobs) if self._logprobs else None,
            "finish_reason": choice.finish_reason,
        }

    @staticmethod
    def _message(choice: Choice) -> dict[str, Any]:
        # As OpenAI's answers, an answer with calls and no text has null content.
        content = None if choice.tool_calls and not choice.text else choice.text
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None, "annotations": []}
        if choice.reasoning:
            message |= _reasoning(choice.reasoning)
        if choice.tool_calls:
            message["tool_calls"] = choice.tool_calls
        return message

    def _details(self, logprobs: Sequence[pb.TokenLogprob]) -> dict[str, Any]:
        tokens = [{**self._token(entry), "top_logprobs": [*map(self._token, entry.top)]} for entry in logprobs]
        return {"content": tokens, "refusal": None}

    def _token(self, entry: pb.TokenLogprob | pb.TopLogprob) -> dict[str, Any]:
        token = token_name(entry.token_id, entry.token_bytes, as_ids=True) if self._as_ids else entry.token
        return {"token": token, "logprob": entry.logprob, "bytes": list(entry.token_bytes)}


class CompletionShape:
    prefix, object, chunk_object = "cmpl-", "text_completion", "text_completion"

    def __init__(self, params: CompletionRequest, prompts: PromptParts) -> None:
        self._logprobs = params.wants_logprobs
        self._params, self._prompts = params, prompts
        self._echoes = params.echoes()
        self._lengths = [0] * len(self._echoes)
        self._decoders = [utf8_decoder("replace") for _ in self._echoes]
        self._as_ids = bool(params.return_tokens_as_token_ids)

    def opening(self, index: int) -> str:
        echo, details = self.echo(index)
        if not echo and details is None:
            return ""
        return f'{{"index":{index},"text":{encode(echo)},"logprobs":{encode(details)},"finish_reason":null}}'

    def echo(self, index: int) -> tuple[str, dict[str, Any] | None]:
        """Return the echoed prompt and its log-probabilities, once the prompt is complete."""
        part, echo = self._prompts.of(index), self._echoes[index]
        text = part.text if echo is None else echo
        self._lengths[index] = len(text)
        top = self._params.echoed
        return text, None if top is None else part.openai(top, text, as_ids=self._as_ids)

    def delta(self, index: int, chunk: Chunk) -> str:
        details = encode(self._details(index, chunk.logprobs)) if self._logprobs else "null"
        return f'{{"index":{index},"text":{encode(chunk.text)},"logprobs":{details},"finish_reason":null}}'

    def closing(self, index: int, finish_reason: str) -> str:
        return f'{{"index":{index},"text":"","logprobs":null,"finish_reason":"{finish_reason}"}}'

    def choice(self, index: int, choice: Choice) -> dict[str, Any]:
        echo, of_echo = self.echo(index)
        logprobs = self._details(index, choice.logprobs) if self._logprobs else None
        if logprobs is not None and of_echo is not None:
            logprobs = {name: of_echo[name] + entries for name, entries in logprobs.items()}
        return {
            "index": index,
            "text": echo + choice.text,
            "logprobs": logprobs,
            "finish_reason": choice.finish_reason,
        }

    def _details(self, index: int, logprobs: Sequence[pb.TokenLogprob]) -> dict[str, Any]:
        """Return log-probabilities of a chunk; offsets continue from the choice's last chunk, and bytes of one
        character count once.
        """
        offsets = []
        for entry in logprobs:
            offsets.append(self._lengths[index])
            self._lengths[index] += len(self._decoders[index].decode(entry.token_bytes))
        return {
            "tokens": [token_name(entry.token_id, entry.token_bytes, as_ids=self._as_ids) for entry in logprobs],
            "token_logprobs": [entry.logprob for entry in logprobs],
            "top_logprobs": [
                top_by_name(_id_bytes_logprob(entry), map(_id_bytes_logprob, entry.top), as_ids=self._as_ids)
                for entry in logprobs
            ],
            "text_offset": offsets,
        }


def _id_bytes_logprob(entry: pb.TokenLogprob | pb.TopLogprob) -> tuple[int, bytes, float]:
    return entry.token_id, entry.token_bytes, entry.logprob


def _reasoning(text: str) -> dict[str, str]:
    """Return the reasoning under vLLM's name, and under the older name that some clients read."""
    return {"reasoning": text, "reasoning_content": text}


def logprobs_json(shape: ChatShape | CompletionShape, index: int, entries: Sequence[pb.TokenLogprob]) -> dict[str, Any]:
    """Return the log-probabilities of a choice's next tokens alone, for a websocket."""
    return shape._details(entries) if isinstance(shape, ChatShape) else shape._details(index, entries)


def tool_call_json(delta: pb.ToolCallDelta) -> dict[str, Any]:
    """Return a part of a tool call. The first part of a call has its id and name."""
    if delta.id:
        function = {"name": delta.name, "arguments": delta.arguments}
        return {"index": delta.index, "id": delta.id, "type": "function", "function": function}
    return {"index": delta.index, "function": {"arguments": delta.arguments}}


async def gathered(generation: Generation, choices: int, prompts: PromptParts | None = None) -> list[Choice]:
    """Return the choices of a generation once all have ended. Raises the ``HostError`` that ended the generation."""
    grown = [Choice() for _ in range(choices)]
    async for chunks in generation:
        for chunk in chunks if prompts is None else prompts.ready(chunks):
            grown[chunk.choice].add(chunk)
    return grown


async def whole(generation: Generation, shape: Shape, params: Parameters, prompts: PromptParts) -> dict[str, Any]:
    """Return the whole answer. Raises the ``HostError`` that ended the generation."""
    grown = await gathered(generation, params.total_choices, prompts)
    if params.scored is None:
        return _answer_of(generation, shape, params, prompts, grown)
    return await asyncio.to_thread(_answer_of, generation, shape, params, prompts, grown)


def _answer_of(
    generation: Generation, shape: Shape, params: Parameters, prompts: PromptParts, grown: Sequence[Choice]
) -> dict[str, Any]:
    choices = [shape.choice(index, choice) for index, choice in enumerate(grown)]
    if params.return_token_ids:
        for choice, tokens in zip(choices, grown, strict=True):
            choice["token_ids"] = tokens.token_ids
    for choice, answer in zip(choices, grown, strict=True):
        if answer.violations:
            choice["schema_violations"] = answer.violations
    # vLLM reports a chat's prompt once, and a completion's prompt with each choice.
    of_chat = {}
    if isinstance(shape, ChatShape):
        of_chat = of_prompt(params, prompts.of(0))
    else:
        for index, choice in enumerate(choices):
            choice.update(of_prompt(params, prompts.of(index)))
    return {
        "id": shape.prefix + public_part(generation.request_id),
        "object": shape.object,
        "created": generation.created,
        "model": generation.admission.model.display_name,
        "system_fingerprint": generation.admission.fingerprint,
        "choices": choices,
        "usage": usage_json(generation.usages),
        **of_chat,
    }


def of_prompt(params: Parameters, part: PromptPart) -> dict[str, Any]:
    """Return what the request asked to have reported about its prompt."""
    report: dict[str, Any] = {}
    if params.prompt_logprobs is not None:
        report["prompt_logprobs"] = part.vllm(params.prompt_logprobs)
    if params.return_token_ids:
        report["prompt_token_ids"] = list(part.token_ids)
    return report


def _with(event: str, more: dict[str, Any]) -> str:
    """Add members to a JSON object that is already encoded."""
    return event[:-1] + "," + encode(more)[1:]


class ChunkWriter:
    """A writer of the events of one stream, as bytes."""

    def __init__(self, generation: Generation, shape: Shape, params: Parameters, prompts: PromptParts) -> None:
        self._shape = shape
        self._params, self._prompts = params, prompts
        self._generation = generation
        self._include_usage = params.include_usage
        self._completion_tokens = 0
        self._opened: set[int] = set()
        head = {
            "id": shape.prefix + public_part(generation.request_id),
            "object": shape.chunk_object,
            "created": generation.created,
            "model": generation.admission.model.display_name,
            "system_fingerprint": generation.admission.fingerprint,
        }
        self._head = "data: " + encode(head)[:-1] + ',"choices":['
        self._tail = '],"usage":null}\n\n' if params.include_usage else "]}\n\n"

    def write(self, chunks: Sequence[Chunk]) -> bytes:
        parts: list[str] = []
        for chunk in self._prompts.ready(chunks):
            index, tokens = chunk.choice, chunk.token_ids
            self._completion_tokens += chunk.tokens
            if self._params.continuous_usage:
                self._tail = f'],"usage":{encode(self._usage_so_far())}}}\n\n'
            if index not in self._opened:
                self._opened.add(index)
                self._open(index, parts)
            events = []
            has_output = chunk.text or chunk.logprobs or chunk.reasoning or chunk.tool_calls
            if has_output or (tokens and not chunk.finish_reason):
                events.append(self._shape.delta(index, chunk))
            if chunk.finish_reason:
                closing = self._shape.closing(index, chunk.finish_reason)
                events.append(_with(closing, {"schema_violations": chunk.violations}) if chunk.violations else closing)
            if tokens and events:
                events[0] = _with(events[0], {"token_ids": tokens})
            for event in events:
                parts += (self._head, event, self._tail)
        return "".join(parts).encode()

    def _open(self, index: int, parts: list[str]) -> None:
        opening, tail = self._shape.opening(index), self._tail
        if self._params.return_token_ids:
            prompt_report = of_prompt(self._params, self._prompts.of(index))
            if isinstance(self._shape, ChatShape):
                tail = f"],{encode(prompt_report)[1:-1]}{tail[1:]}"
            else:
                opening = _with(opening or self._shape.delta(index, Chunk(index, "", 0)), prompt_report)
        if opening:
            parts += (self._head, opening, tail)

    def _usage_so_far(self) -> dict[str, int]:
        prompt, completion = self._prompts.num_tokens, self._completion_tokens
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}

    def error(self, error: ApiError) -> bytes:
        return b"data: " + encode(error.openai_body()).encode() + b"\n\n"

    async def settle(self) -> None:
        """Do nothing: an OpenAI answer needs no work after its end."""

    def end(self) -> bytes:
        """Return the usage, if it was requested, then the marker at which SDKs stop."""
        if not self._include_usage:
            return DONE
        usage = encode(usage_json(self._generation.usages))
        return f'{self._head}],"usage":{usage}}}\n\n'.encode() + DONE
