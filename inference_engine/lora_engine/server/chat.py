"""A chat on the wire: its prompt by the model's template, and how the answer to it is read."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lora_engine.constraints import Constraint, Kind
from lora_engine.request import RequestError
from lora_engine.text import ChatTemplate, Tokenizer
from lora_engine.text.output import (
    CallDelta,
    ChatOutput,
    Parsed,
    ReasoningTags,
    ToolFormat,
    find_reasoning_tags,
    find_tool_format,
)
from lora_engine.text.output.formats import MARKERS
from lora_engine.text.output.grammar import CallGrammar, GrammarTool, UnfitSchemaError, Vocabulary, json_rule
from lora_engine.wire import engine_pb2 as pb

Json = dict[str, Any]
_ENFORCED = (pb.ToolChoice.REQUIRED, pb.ToolChoice.NAMED)
_MISTRAL_ID = 9
MOST_OWN = 16
"""Templates of adapters that are kept, each with its process."""


class ChatFormat:
    """How this model is told of tools, and writes calls and reasoning. Chosen once, when the engine starts."""

    def __init__(
        self, template: ChatTemplate, tokenizer: Tokenizer, *, tool_format: str = "auto", reasoning_format: str = "auto"
    ) -> None:
        self.template = template
        self.tools = find_tool_format(template.source, tool_format)
        self.reasoning = find_reasoning_tags(template.source, reasoning_format)
        self._tool_ids = _special_ids(tokenizer, MARKERS[self.tools])
        tags = (self.reasoning.open, self.reasoning.close) if self.reasoning else ()
        self._reasoning_ids = _special_ids(tokenizer, tags)
        self._vocabulary = Vocabulary(tokenizer.special_id)
        self._tokenizer = tokenizer
        self._own: OrderedDict[bytes, ChatFormat] = OrderedDict()
        self._lock = threading.Lock()
        self.end_ids: tuple[int, ...] = ()
        """Tokens that answers end with beside the model's own ends."""

    def of(self, chat: pb.Chat) -> ChatFormat:
        """That of the adapter's own template, if the chat brings one. Raises ``RequestError``."""
        if not chat.HasField("own_template"):
            return self
        key = chat.own_template.SerializeToString(deterministic=True)
        with self._lock:
            known = self._own.get(key)
            if known is None or known.template.has_ended:
                known = self._own[key] = self._of_stranger(chat.own_template)
            self._own.move_to_end(key)
            while len(self._own) > MOST_OWN:
                self._own.popitem(last=False)
        return known

    def _of_stranger(self, own: pb.ChatTemplate) -> ChatFormat:
        special = {**self.template.special, **own.special_tokens}
        template = ChatTemplate.of_stranger(own.source, special, own.tool_source or None)
        made, eos = ChatFormat(template, self._tokenizer), self._tokenizer.token_id(special.get("eos_token"))
        made.end_ids = () if eos is None or eos in self._tokenizer.eos_token_ids else (eos,)
        return made

    def close(self) -> None:
        """End the processes of adapters' templates."""
        with self._lock:
            self._own.clear()

    def prompt(self, chat: pb.Chat) -> str:
        """Raises ``RequestError``."""
        offered = _offered(chat)
        if offered and self.tools is ToolFormat.NONE and self.template.takes_tools:
            raise RequestError(
                "tools_not_supported",
                "This model writes tool calls in a form that is not known here.",
                "Leave tools out, or ask the operator to set --tool-format on the engine.",
                param="tools",
            )
        messages = [self._message(message) for message in chat.messages]
        how: Json = {
            "tools": [_tool(tool) for tool in offered],
            "reasoning_effort": chat.reasoning_effort,
            "variables": json.loads(chat.template_kwargs) if chat.template_kwargs else {},
        }
        if chat.continue_final_message:
            return self.template.render_unfinished(messages, **how)
        return self.template.render(messages, add_generation_prompt=not chat.no_generation_prompt, **how)

    def constrains(self, chat: pb.Chat, *, has_constraint: bool) -> bool:
        """Whether a grammar is made of what the chat says of tools, or of its constraint and reasoning before it."""
        offered = _offered(chat)
        enforced = chat.tool_choice.mode in _ENFORCED or any(tool.strict for tool in offered)
        return (bool(offered) and enforced) or (has_constraint and bool(offered or self.reasoning))

    def constraint(self, chat: pb.Chat, output: ChatOutput, asked: Constraint | None) -> Constraint | None:
        """What the answer is held to: ``asked``, or calls, or either. Raises ``RequestError``."""
        if not self.constrains(chat, has_constraint=asked is not None):
            return asked
        mode, name = chat.tool_choice.mode, chat.tool_choice.name
        named = [tool for tool in _offered(chat) if mode != pb.ToolChoice.NAMED or tool.name == name]
        grammar = CallGrammar(
            output.format,
            [_grammar_tool(tool, free=mode not in _ENFORCED) for tool in named],
            required=mode in _ENFORCED,
            single=output.single or mode == pb.ToolChoice.NAMED,
            content="" if asked is None else _content_rule(asked),
            reasoning=output.reasoning,
            reasoning_opened=output.reasoning_opened,
        )
        try:
            return Constraint(Kind.GRAMMAR, grammar.lark(self._vocabulary))
        except UnfitSchemaError as error:
            raise RequestError(
                "invalid_constraint",
                f"The tools' schemas cannot be enforced with this model: {error}.",
                "Rename it, or leave strict out and let tool_choice be auto.",
                param="tools",
            ) from None

    def output(self, request_id: str, chat: pb.Chat, prompt: str, *, has_constraint: bool) -> ChatOutput:
        """How the answer to ``prompt`` is read."""
        opened = self.reasoning is not None and _opens_reasoning(self.reasoning, chat, prompt)
        return ChatOutput(
            request_id,
            self.tools,
            frozenset(tool.name for tool in _offered(chat)),
            certain=self.constrains(chat, has_constraint=has_constraint),
            single=chat.single_tool_call or self.template.takes_one_call_only,
            reasoning=self.reasoning,
            reasoning_opened=opened,
        )

    def shown_ids(self, output: ChatOutput) -> frozenset[int]:
        """Special tokens that must show in the text, for it to be read."""
        shown = self._tool_ids if output.tools else frozenset()
        return shown | self._reasoning_ids if output.reasoning else shown

    def _message(self, message: pb.ChatMessage) -> Json:
        made: Json = {"role": message.role, "content": message.content}
        if message.name:
            made["name"] = message.name
        if message.reasoning:
            # Templates know it by one of these names.
            made |= dict.fromkeys(("reasoning_content", "reasoning", "thinking"), message.reasoning)
        if message.tool_calls:
            made["tool_calls"] = [self._call(call) for call in message.tool_calls]
        if message.tool_call_id:
            made["tool_call_id"] = self._id(message.tool_call_id)
        return made

    def _call(self, call: pb.ToolCall) -> Json:
        """Templates want arguments as an object, not as its text."""
        function = {"name": call.name, "arguments": json.loads(call.arguments or "{}")}
        return {"id": self._id(call.id), "type": "function", "function": function}

    def _id(self, id: str) -> str:
        """Mistral's templates take ids of nine letters and digits only, and clients bring others' conversations."""
        if self.tools is not ToolFormat.MISTRAL or (len(id) == _MISTRAL_ID and id.isalnum()):
            return id
        return hashlib.sha256(id.encode()).hexdigest()[:_MISTRAL_ID]


@dataclass(slots=True)
class Prompt:
    """A prompt's tokens, what its answer is held to, and for a chat how the answer is read."""

    token_ids: list[int]
    constraint: Constraint | None = None
    output: ChatOutput | None = None
    shown_special_ids: frozenset[int] = frozenset()
    end_ids: tuple[int, ...] = ()


def read_into(message: pb.Delta, parsed: Parsed, *, has_calls: bool) -> None:
    """Put what was read of a delta's text in its place."""
    message.text = parsed.text
    message.reasoning = parsed.reasoning
    message.tool_calls.extend(_call_delta(call) for call in parsed.calls)
    if has_calls and message.finish_reason == "stop":
        message.finish_reason = "tool_calls"


def _call_delta(call: CallDelta) -> pb.ToolCallDelta:
    return pb.ToolCallDelta(index=call.index, id=call.id, name=call.name, arguments=call.arguments)


def _opens_reasoning(tags: ReasoningTags, chat: pb.Chat, prompt: str) -> bool:
    """Whether the answer begins inside of reasoning: the prompt ends with its tag, or the answer goes on with it."""
    if prompt.rstrip().endswith(tags.open):
        return True
    _, opened, thought = chat.messages[-1].content.rpartition(tags.open)
    return chat.continue_final_message and bool(opened) and tags.close not in thought


def chat_size(chat: pb.Chat) -> int:
    """Characters that a template has to work on."""
    return (
        sum(len(message.content) + len(message.reasoning) + _calls_size(message) for message in chat.messages)
        + sum(len(tool.name) + len(tool.description) + len(tool.parameters) for tool in chat.tools)
        + len(chat.template_kwargs)
    )


def _calls_size(message: pb.ChatMessage) -> int:
    return sum(len(call.name) + len(call.arguments) for call in message.tool_calls)


def _offered(chat: pb.Chat) -> list[pb.Tool]:
    """With tool_choice "none" the model is not told of tools. With a named one, of all: it may say why it calls it."""
    return [] if chat.tool_choice.mode == pb.ToolChoice.NONE else list(chat.tools)


def _tool(tool: pb.Tool) -> Json:
    function: Json = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    # Templates look into the schema, and those that list parameters fail without one.
    function["parameters"] = json.loads(tool.parameters) if tool.parameters else {"type": "object", "properties": {}}
    return {"type": "function", "function": function}


def _grammar_tool(tool: pb.Tool, *, free: bool) -> GrammarTool:
    """Where a call is the model's own choice, only strict tools' arguments are held to their schema."""
    schema = json.loads(tool.parameters) if tool.parameters and (tool.strict or not free) else None
    return GrammarTool(tool.name, schema, tool.strict)


def _content_rule(asked: Constraint) -> str:
    """A constraint of the answer's text as the body of a grammar's rule."""
    match asked.kind:
        case Kind.JSON_OBJECT:
            return json_rule({"type": "object"}, strict=True)
        case Kind.JSON_SCHEMA:
            schema = json.loads(asked.text)
            return json_rule(schema if isinstance(schema, dict) else {}, strict=not asked.best_effort)
        case Kind.CHOICE:
            return " | ".join(json.dumps(choice, ensure_ascii=False) for choice in json.loads(asked.text))
    raise RequestError(
        "invalid_constraint",
        "A regular expression or grammar is not served together with tools, or with a model that reasons first.",
        "Send a JSON schema or a list of choices, or leave the tools out.",
    )


def _special_ids(tokenizer: Tokenizer, names: Iterable[str]) -> frozenset[int]:
    return frozenset(id for name in names if (id := tokenizer.special_id(name)) is not None)
