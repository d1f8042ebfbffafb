"""Answers of ``/v1/responses``: the whole object, and the events of a stream."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from control_plane.billing.usage.request_ids import public_part
from control_plane.fleet.transport.coalescing import Chunk
from control_plane.gateway.dispatch.errors import ApiError
from control_plane.gateway.dispatch.generation import Generation
from control_plane.gateway.dispatch.json_encoding import encode
from control_plane.gateway.openai.response_writers import Choice, usage_json
from control_plane.gateway.responses.request import ResponsesRequest
from control_plane.gateway.responses.tools import AnyTool, CustomTool, HostedTool, ResponseTool, custom_input, offered
from lora_engine.wire import engine_pb2 as pb

Json = dict[str, Any]
_CALLS = ("function_call", "custom_tool_call")
# Stores a completed response, unless its request or its tenant excludes that.
Keep = Callable[[Json, Choice], Awaitable[None]]


def usage_of(generation: Generation) -> Json:
    """Return the engine's counts of a finished generation."""
    counts = usage_json(generation.usages)
    return {
        "input_tokens": counts["prompt_tokens"],
        "input_tokens_details": counts["prompt_tokens_details"],
        "output_tokens": counts["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": counts["total_tokens"],
    }


class ResponseWriter:
    """A writer of the object of one response, at any stage of its generation."""

    def __init__(self, params: ResponsesRequest, generation: Generation) -> None:
        self._params, self._generation = params, generation
        self._id = public_part(generation.request_id)
        self._tools = {tool.function: tool for tool in offered(params.tools)}

    @property
    def name(self) -> str:
        return f"resp_{self._id}"

    def body(self, status: str, output: Sequence[Json], *, error: ApiError | None = None) -> Json:
        params = self._params
        text: Json = {"format": {"type": "text"}}
        if params.text is not None:
            text |= params.text.model_dump(by_alias=True, exclude_none=True)
        cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            "id": self.name,
            "object": "response",
            "created_at": self._generation.created,
            "completed_at": int(time.time()) if status == "completed" else None,
            "status": status,
            "background": False,
            "error": None if error is None else {"code": "server_error", "message": error.message},
            "incomplete_details": cut,
            "instructions": params.instructions,
            "max_output_tokens": params.max_output_tokens,
            "model": self._generation.admission.model.display_name,
            "output": list(output),
            "parallel_tool_calls": params.parallel_tool_calls is not False,
            "previous_response_id": params.previous_response_id,
            "reasoning": {"effort": params.reasoning.effort if params.reasoning else None, "summary": None},
            "service_tier": "default",
            "store": params.store,
            "temperature": 1.0 if params.temperature is None else params.temperature,
            "text": text,
            "tool_choice": _choice_json(params),
            "tools": [_tool_json(tool) for tool in params.tools or () if not isinstance(tool, HostedTool)],
            "top_logprobs": params.top_logprobs or 0,
            "top_p": 1.0 if params.top_p is None else params.top_p,
            "truncation": params.truncation or "disabled",
            "usage": None if status == "in_progress" else usage_of(self._generation),
            "user": None,
            "metadata": params.metadata or {},
        }

    def reasoning(self, text: str, status: str) -> Json:
        content = [{"type": "reasoning_text", "text": text}] if text else []
        return {"id": f"rs_{self._id}", "type": "reasoning", "summary": [], "content": content, "status": status}

    def message(self, parts: Sequence[Json], status: str) -> Json:
        identity = {"id": f"msg_{self._id}", "type": "message"}
        return {**identity, "status": status, "role": "assistant", "content": list(parts)}

    def text(self, text: str, logprobs: Sequence[pb.TokenLogprob]) -> Json:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs_json(logprobs)}

    def is_custom(self, call: Json) -> bool:
        """Return whether a call is of a custom tool, whose input is text."""
        tool = self._tools.get(call["function"]["name"])
        return tool is not None and isinstance(tool.tool, CustomTool)

    def call(self, index: int, call: Json, status: str) -> Json:
        """Return the item of a call, by the name that the request has for its tool."""
        tool, name = self._tools.get(call["function"]["name"]), call["function"]["name"]
        arguments, is_custom = call["function"]["arguments"], self.is_custom(call)
        item = {
            "id": f"{'ctc' if is_custom else 'fc'}_{self._id}_{index}",
            "type": "custom_tool_call" if is_custom else "function_call",
            "status": status,
            "call_id": call["id"],
            "name": name if tool is None else tool.tool.name,
            **({"input": custom_input(arguments) if arguments else ""} if is_custom else {"arguments": arguments}),
        }
        return item if tool is None or tool.namespace is None else {**item, "namespace": tool.namespace.name}

    def output(self, choice: Choice) -> list[Json]:
        """Return the output items of a finished choice."""
        status = "incomplete" if choice.finish_reason == "length" else "completed"
        items = [self.reasoning(choice.reasoning, status)] if choice.reasoning else []
        if choice.text or not choice.tool_calls:
            items.append(self.message([self.text(choice.text, choice.logprobs)], status))
        return items + [self.call(index, call, status) for index, call in enumerate(choice.tool_calls)]

    def whole(self, choice: Choice) -> Json:
        body = self.body("incomplete" if choice.finish_reason == "length" else "completed", self.output(choice))
        return {**body, "schema_violations": choice.violations} if choice.violations else body


def _tool_json(tool: AnyTool) -> Json:
    return tool.model_dump(exclude_none=not isinstance(tool, ResponseTool))


def _choice_json(params: ResponsesRequest) -> Json | str:
    choice = params.tool_choice or "auto"
    return choice if isinstance(choice, str) else choice.model_dump(exclude_none=True)


def logprobs_json(entries: Sequence[pb.TokenLogprob]) -> list[Json]:
    return [{**_token(entry), "top_logprobs": [_token(top) for top in entry.top]} for entry in entries]


def _token(entry: pb.TokenLogprob | pb.TopLogprob) -> Json:
    return {"token": entry.token, "bytes": list(entry.token_bytes), "logprob": entry.logprob}


class ResponseEvents:
    """A writer of the events of one stream. An item is open until another kind of output begins."""

    def __init__(self, writer: ResponseWriter, keep: Keep) -> None:
        self._writer, self._keep = writer, keep
        self._choice = Choice()
        self._events: list[bytes] = []
        self._number = 0
        self._done: list[Json] = []  # completed items
        self._open = ""  # "", "reasoning", "message" or "call"
        self._began = False
        self._logprobs: list[pb.TokenLogprob] = []

    def write(self, chunks: Sequence[Chunk]) -> bytes:
        self._begin()
        for chunk in chunks:
            self._choice.add(chunk)
            if chunk.reasoning:
                self._add_reasoning(chunk.reasoning)
            if chunk.text or (chunk.logprobs and not chunk.reasoning and not chunk.tool_calls):
                self._add_text(chunk.text, chunk.logprobs)
            for delta in chunk.tool_calls:
                self._add_call(delta)
        return self._take()

    def error(self, error: ApiError) -> bytes:
        self._begin()
        self._event("response.failed", response=self._writer.body("failed", self._done, error=error))
        return self._take()

    async def settle(self) -> None:
        """Store the response before its last event is sent: the client may continue it at once."""
        await self._keep(self._writer.whole(self._choice), self._choice)

    def end(self) -> bytes:
        self._begin()
        if not self._done and not self._open:
            self._add_text("", [])
        self._close()
        body = self._writer.whole(self._choice)
        self._event(f"response.{body['status']}", response=body)
        return self._take()

    def _begin(self) -> None:
        if not self._began:
            self._began = True
            body = self._writer.body("in_progress", [])
            self._event("response.created", response=body)
            self._event("response.in_progress", response=body)

    def _add_reasoning(self, text: str) -> None:
        item = self._writer.reasoning("", "in_progress")
        if self._open != "reasoning":
            self._start("reasoning", item)
        self._item_event("response.reasoning_text.delta", item, content_index=0, delta=text)

    def _add_text(self, text: str, logprobs: Sequence[pb.TokenLogprob]) -> None:
        item = self._writer.message([], "in_progress")
        if self._open != "message":
            self._start("message", item)
            part = self._writer.text("", [])
            self._item_event("response.content_part.added", item, content_index=0, part=part)
        self._logprobs.extend(logprobs)
        if text or logprobs:
            content = logprobs_json(logprobs)
            self._item_event("response.output_text.delta", item, content_index=0, delta=text, logprobs=content)

    def _add_call(self, delta: pb.ToolCallDelta) -> None:
        if delta.id:
            call = {"id": delta.id, "function": {"name": delta.name, "arguments": ""}}
            self._start("call", self._writer.call(delta.index, call, "in_progress"))
        # The input of a custom tool is complete only with its arguments: it follows when the call ends.
        if delta.arguments and not self._writer.is_custom(self._choice.tool_calls[delta.index]):
            item = self._writer.call(delta.index, self._choice.tool_calls[delta.index], "in_progress")
            self._item_event("response.function_call_arguments.delta", item, delta=delta.arguments)

    def _start(self, kind: str, item: Json) -> None:
        self._close()
        self._open = kind
        self._event("response.output_item.added", output_index=len(self._done), item=item)

    def _close(self) -> None:
        if not self._open:
            return
        writer, choice = self._writer, self._choice
        status = "incomplete" if choice.finish_reason == "length" else "completed"
        if self._open == "reasoning":
            item = writer.reasoning(choice.reasoning, status)
            self._item_event("response.reasoning_text.done", item, content_index=0, text=choice.reasoning)
        elif self._open == "message":
            part = writer.text(choice.text, self._logprobs)
            item = writer.message([part], status)
            content = {"text": choice.text, "logprobs": part["logprobs"]}
            self._item_event("response.output_text.done", item, content_index=0, **content)
            self._item_event("response.content_part.done", item, content_index=0, part=part)
        else:
            index = sum(done["type"] in _CALLS for done in self._done)
            item = writer.call(index, choice.tool_calls[index], status)
            if item["type"] == "custom_tool_call":
                self._item_event("response.custom_tool_call_input.delta", item, delta=item["input"])
                self._item_event("response.custom_tool_call_input.done", item, input=item["input"])
            else:
                content = {"arguments": item["arguments"], "name": item["name"]}
                self._item_event("response.function_call_arguments.done", item, **content)
        self._event("response.output_item.done", output_index=len(self._done), item=item)
        self._done.append(item)
        self._open = ""

    def _item_event(self, kind: str, item: Json, **fields: Any) -> None:
        self._event(kind, item_id=item["id"], output_index=len(self._done), **fields)

    def _event(self, kind: str, **fields: Any) -> None:
        body = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        self._events.append(f"event: {kind}\ndata: {encode(body)}\n\n".encode())

    def _take(self) -> bytes:
        data = b"".join(self._events)
        self._events.clear()
        return data
