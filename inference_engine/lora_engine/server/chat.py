"""Chats from the wire: the prompt is written by the model's template, and the answer is parsed by its format."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from lora_engine.constraints import Constraint, Kind
from lora_engine.errors import RequestError
from lora_engine.text import ChatTemplate, Tokenizer
from lora_engine.text.output import (
    ChatOutput,
    Parsed,
    ReasoningTags,
    ToolFormat,
    find_reasoning_tags,
    find_tool_format,
)
from lora_engine.text.output.formats import MARKERS
from lora_engine.text.output.grammar import CallGrammar, GrammarTool, UnfitSchemaError, Vocabulary, json_rule
from lora_engine.text.output.harmony import opening_of
from lora_engine.wire import engine_pb2 as pb

Json = dict[str, Any]
_ENFORCED = (pb.ToolChoice.REQUIRED, pb.ToolChoice.NAMED)
_MISTRAL_ID = 9
# Maximum number of adapters' chat templates that are kept, each with its process.
MAX_ADAPTER_TEMPLATES = 16


class ChatFormat:
    """The format in which this model gets tools and writes calls and reasoning, chosen once, when the engine starts."""

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
        self._of_adapters: OrderedDict[bytes, ChatFormat] = OrderedDict()
        self._lock = threading.Lock()
        # Tokens that end answers in addition to the model's end tokens.
        self.end_ids: tuple[int, ...] = ()

    def of(self, chat: pb.Chat) -> ChatFormat:
        """Return this format, or that of the adapter's template if the chat has one. Raises ``RequestError``."""
        if not chat.HasField("own_template"):
            return self
        key = chat.own_template.SerializeToString(deterministic=True)
        with self._lock:
            known = self._of_adapters.get(key)
            if known is None or known.template.has_ended:
                known = self._of_adapters[key] = self._of_adapter(chat.own_template)
            self._of_adapters.move_to_end(key)
            while len(self._of_adapters) > MAX_ADAPTER_TEMPLATES:
                self._of_adapters.popitem(last=False)
        return known

    def _of_adapter(self, adapter_template: pb.ChatTemplate) -> ChatFormat:
        special = {**self.template.special, **adapter_template.special_tokens}
        template = ChatTemplate.of_adapter(adapter_template.source, special, adapter_template.tool_source or None)
        made, eos = ChatFormat(template, self._tokenizer), self._tokenizer.token_id(special.get("eos_token"))
        made.end_ids = () if eos is None or eos in self._tokenizer.eos_token_ids else (eos,)
        return made

    def close(self) -> None:
        """End the processes of adapters' templates."""
        with self._lock:
            self._of_adapters.clear()

    def render(self, chat: pb.Chat) -> str:
        """Return the text of the prompt. Raises ``RequestError``."""
        offered = _offered(chat)
        if offered and self.tools is ToolFormat.NONE and self.template.takes_tools:
            raise RequestError(
                "tools_not_supported",
                "This engine cannot parse the tool calls that this model writes.",
                "Leave tools out, or ask the operator to set --tool-format on the engine.",
                param="tools",
            )
        messages = [self._message(message) for message in chat.messages]
        if self.tools is ToolFormat.HARMONY:
            messages = list(_one_call_each(messages))
        options: Json = {
            "tools": [_tool(tool) for tool in offered],
            "reasoning_effort": chat.reasoning_effort,
            "template_kwargs": json.loads(chat.template_kwargs) if chat.template_kwargs else {},
        }
        if chat.continue_final_message:
            return self.template.render_unfinished(messages, **options)
        return self.template.render(messages, add_generation_prompt=not chat.no_generation_prompt, **options)

    def constrains(self, chat: pb.Chat, *, has_constraint: bool) -> bool:
        """Return whether a grammar enforces the chat's tool calls, or its constraint after tools or reasoning."""
        offered = _offered(chat)
        enforced = chat.tool_choice.mode in _ENFORCED or any(tool.strict for tool in offered)
        # With harmony an answer has a header at least, which no constraint of a text allows.
        reads_first = bool(offered or self.reasoning) or self.tools is ToolFormat.HARMONY
        return (bool(offered) and enforced) or (has_constraint and reads_first)

    def constraint(self, chat: pb.Chat, output: ChatOutput, constraint: Constraint | None) -> Constraint | None:
        """Return the constraint of the answer: the chat's ``constraint``, its tool calls, or either. Raises
        ``RequestError``.
        """
        if not self.constrains(chat, has_constraint=constraint is not None):
            return constraint
        mode, name = chat.tool_choice.mode, chat.tool_choice.name
        named = [tool for tool in _offered(chat) if mode != pb.ToolChoice.NAMED or tool.name == name]
        grammar = CallGrammar(
            output.format,
            [_grammar_tool(tool, free=mode not in _ENFORCED) for tool in named],
            required=mode in _ENFORCED,
            single=output.single or mode == pb.ToolChoice.NAMED,
            content="" if constraint is None else _content_rule(constraint),
            reasoning=output.reasoning,
            reasoning_opened=output.reasoning_opened,
            opening=output.opening,
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

    def output(self, request_id: str, chat: pb.Chat, text: str, *, has_constraint: bool) -> ChatOutput:
        """Return how to parse the answer to a prompt of this text."""
        opened = self.reasoning is not None and _opens_reasoning(self.reasoning, chat, text)
        return ChatOutput(
            request_id,
            self.tools,
            frozenset(tool.name for tool in _offered(chat)),
            certain=self.constrains(chat, has_constraint=has_constraint),
            single=chat.single_tool_call or self.template.takes_one_call_only or self.tools is ToolFormat.HARMONY,
            reasoning=self.reasoning,
            reasoning_opened=opened,
            opening=opening_of(text) if self.tools is ToolFormat.HARMONY else "",
        )

    def shown_ids(self, output: ChatOutput) -> frozenset[int]:
        """Return the special tokens that must stay in the text so that it can be parsed."""
        shown = self._tool_ids if output.tools or output.format is ToolFormat.HARMONY else frozenset()
        return shown | self._reasoning_ids if output.reasoning else shown

    def _message(self, message: pb.ChatMessage) -> Json:
        made: Json = {"role": message.role, "content": message.content}
        if message.name:
            made["name"] = message.name
        if message.reasoning:
            # Templates use one of these names.
            made |= dict.fromkeys(("reasoning_content", "reasoning", "thinking"), message.reasoning)
        if message.tool_calls:
            made["tool_calls"] = [self._call(call) for call in message.tool_calls]
        if self.tools is ToolFormat.HARMONY and message.tool_calls and message.reasoning and message.content:
            # Templates have one place for both before a call.
            made |= {"content": "", "thinking": f"{message.reasoning}\n\n{message.content}"}
        if message.tool_call_id:
            made["tool_call_id"] = self._id(message.tool_call_id)
        return made

    def _call(self, call: pb.ToolCall) -> Json:
        """Return a tool call with its arguments as an object: templates expect that, not JSON text."""
        function = {"name": call.name, "arguments": json.loads(call.arguments or "{}")}
        return {"id": self._id(call.id), "type": "function", "function": function}

    def _id(self, id: str) -> str:
        """Shorten an id for Mistral's templates, which take nine letters and digits only; clients also send others'
        chats.
        """
        if self.tools is not ToolFormat.MISTRAL or (len(id) == _MISTRAL_ID and id.isalnum()):
            return id
        return hashlib.sha256(id.encode()).hexdigest()[:_MISTRAL_ID]


@dataclass(slots=True)
class Prompt:
    """A prompt's tokens, the constraint of its answer, and for a chat how the answer is parsed."""

    token_ids: list[int]
    constraint: Constraint | None = None
    output: ChatOutput | None = None
    shown_special_ids: frozenset[int] = frozenset()
    end_ids: tuple[int, ...] = ()


def read_into(message: pb.Delta, parsed: Parsed, *, has_calls: bool) -> None:
    """Write the parsed text, reasoning and tool calls into a delta."""
    message.text = parsed.text
    message.reasoning = parsed.reasoning
    for call in parsed.calls:
        message.tool_calls.add(index=call.index, id=call.id, name=call.name, arguments=call.arguments)
    if has_calls and message.finish_reason == "stop":
        message.finish_reason = "tool_calls"


def _one_call_each(messages: list[Json]) -> Iterator[Json]:
    """Yield messages with one call each, followed by its results: of several calls, harmony's templates show the first.

    Results of no call stay behind the last one.
    """
    at = 0
    while at < len(messages):
        message, calls, at = messages[at], messages[at].get("tool_calls", []), at + 1
        if len(calls) < 2:
            yield message
            continue
        results = list(takewhile(lambda each: each["role"] == "tool", messages[at:]))
        at += len(results)
        for number, call in enumerate(calls):
            yield {**(message if number == 0 else {"role": message["role"], "content": ""}), "tool_calls": [call]}
            of_call = [each for each in results if each.get("tool_call_id") == call["id"]]
            results = [each for each in results if each not in of_call]
            yield from of_call
        yield from results


def _opens_reasoning(tags: ReasoningTags, chat: pb.Chat, text: str) -> bool:
    """Return whether the answer begins inside reasoning: the prompt ends with its tag, or the answer continues it."""
    if text.rstrip().endswith(tags.open):
        return True
    _, opened, thought = chat.messages[-1].content.rpartition(tags.open)
    return chat.continue_final_message and bool(opened) and tags.close not in thought


def chat_size(chat: pb.Chat) -> int:
    """Return the number of characters that a template has to process."""
    calls = [call for message in chat.messages for call in message.tool_calls]
    return (
        sum(len(message.content) + len(message.reasoning) for message in chat.messages)
        + sum(len(call.name) + len(call.arguments) for call in calls)
        + sum(len(tool.name) + len(tool.description) + len(tool.parameters) for tool in chat.tools)
        + len(chat.template_kwargs)
    )


def _offered(chat: pb.Chat) -> list[pb.Tool]:
    """Return the tools to show to the model: none with tool_choice "none", otherwise all, even with a named one."""
    return [] if chat.tool_choice.mode == pb.ToolChoice.NONE else list(chat.tools)


def _tool(tool: pb.Tool) -> Json:
    function: Json = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    # Templates read the schema, and those that list parameters fail without one.
    function["parameters"] = json.loads(tool.parameters) if tool.parameters else {"type": "object", "properties": {}}
    return {"type": "function", "function": function}


def _grammar_tool(tool: pb.Tool, *, free: bool) -> GrammarTool:
    """Return the tool for a grammar. Where calls are optional, only strict tools' arguments must match their schema."""
    schema = json.loads(tool.parameters) if tool.parameters and (tool.strict or not free) else None
    return GrammarTool(tool.name, schema, tool.strict)


def _content_rule(constraint: Constraint) -> str:
    """Return a constraint of the answer's text as the body of a grammar rule."""
    match constraint.kind:
        case Kind.JSON_OBJECT:
            return json_rule({"type": "object"}, strict=True)
        case Kind.JSON_SCHEMA:
            schema = json.loads(constraint.text)
            return json_rule(schema if isinstance(schema, dict) else {}, strict=not constraint.best_effort)
        case Kind.CHOICE:
            return " | ".join(json.dumps(choice, ensure_ascii=False) for choice in json.loads(constraint.text))
    raise RequestError(
        "invalid_constraint",
        "A regular expression or grammar is not served together with tools, or with a model that reasons first.",
        "Send a JSON schema or a list of choices, or leave the tools out.",
    )


def _special_ids(tokenizer: Tokenizer, names: Iterable[str]) -> frozenset[int]:
    return frozenset(id for name in names if (id := tokenizer.special_id(name)) is not None)
