"""Grammars that enforce well-formed tool calls in an answer, in llguidance's dialect of Lark.

If calls are optional, only they are constrained: the text before them is free. Reasoning comes first where the model
reasons, and is free too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lora_engine.constraints import schema_in_grammars

from . import harmony_markers as harmony
from .formats import ReasoningTags, ToolFormat

Json = dict[str, Any]
_WHITESPACE = r"(?: |\n[ \t]{0,24})"
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NO_ARGUMENTS: Json = {"type": "object", "properties": {}, "additionalProperties": False}


class UnfitSchemaError(Exception):
    """The arguments' schema cannot be written in the model's format of calls; the text completes "tool f: …"."""


@dataclass(frozen=True, slots=True)
class GrammarTool:
    """A tool of a grammar. ``schema`` None allows any arguments; unless ``strict``, unenforceable keywords
    are ignored.
    """

    name: str
    schema: Json | None
    strict: bool


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokenizer's special tokens, which decide whether a marker in a grammar is a token or text."""

    special_id: Callable[[str], int | None]

    def marker(self, text: str) -> str:
        token_id = self.special_id(text)
        return json.dumps(text) if token_id is None else f"<[{token_id}]>"

    def is_text(self, text: str) -> bool:
        return self.special_id(text) is None


@dataclass(frozen=True, slots=True)
class CallGrammar:
    """A grammar of an answer: calls only if ``required``, else calls or text, with free text before them.

    ``content`` is the body of a rule that replaces the text. Without ``tools`` there are no calls.
    """

    format: ToolFormat
    tools: Sequence[GrammarTool]
    required: bool
    single: bool
    content: str = ""
    reasoning: ReasoningTags | None = None
    reasoning_opened: bool = False
    opening: str = ""  # end of the prompt, which the answer's first message continues; with ``HARMONY``

    def lark(self, vocabulary: Vocabulary) -> str:
        """Return the grammar in Lark. Raises ``UnfitSchemaError``."""
        if self.format is ToolFormat.HARMONY:
            return _lines(_harmony(self, vocabulary))
        rules = _FORMATS[self.format](self, vocabulary) if self.tools else {}
        start = self._thinking(rules, vocabulary) + self._answer(rules, vocabulary)
        return _lines({"start": start, **rules})

    def _answer(self, rules: dict[str, str], vocabulary: Vocabulary) -> str:
        """Return the rule of the answer after reasoning.

        ``calls`` is an answer by itself. ``later_calls``, if present, follows the marker in ``_MARKERS``, which free
        text may precede.
        """
        later = rules.pop("later_calls", "")
        if self.required:
            return "calls"
        if self.content:
            rules["content"] = self.content
            return "(content | calls)" if self.tools else "content"
        rules["TEXT"] = "/(?s:.*)/" + self._no_call_or_reasoning()
        if not later:
            return "(TEXT | calls)"
        marker = _MARKERS[self.format]
        if not vocabulary.is_text(marker):
            return f"(TEXT | calls | TEXT {vocabulary.marker(marker)} {later})"
        # The text up to the marker is one lexeme with it: otherwise a greedy one would take the marker's beginning.
        end = _escaped(marker)
        rules["TEXT"] += rf" & ~/(?s:.*){end}(?s:.*)/"
        rules["LEAD"] = rf"/(?s:.*){end}/ & ~/(?s:.*){end}(?s:.+)/" + self._no_call_or_reasoning()
        if self.format is ToolFormat.HERMES or self.format is ToolFormat.MISTRAL:
            return f"(TEXT | LEAD {later})"  # an empty text before the marker matches too
        return f"(TEXT | calls | LEAD {later})"

    def _no_call_or_reasoning(self) -> str:
        """Return what free text must not begin with: a call that needs no marker, and reasoning."""
        beginning = {
            ToolFormat.LLAMA_JSON: r"\s*\{\s*\"name\"",
            ToolFormat.LLAMA_PYTHONIC: r"\s*\[(" + "|".join(re.escape(tool.name) for tool in self.tools) + r")\(",
        }.get(self.format)
        excluded = rf" & ~/{beginning}(?s:.*)/" if beginning else ""
        if self.reasoning is not None and not self.reasoning_opened:
            excluded += rf" & ~/{_escaped(self.reasoning.open)}(?s:.*)/"
        return excluded

    def _thinking(self, rules: dict[str, str], vocabulary: Vocabulary) -> str:
        if self.reasoning is None:
            return ""
        opening, closing = self.reasoning.open, self.reasoning.close
        if vocabulary.is_text(closing):
            # Includes the white space after it, which free text would take.
            end = _escaped(closing)
            rules["THOUGHT"] = rf"/(?s:.*){end}[ \n]{{0,3}}/ & ~/(?s:.*){end}(?s:.*)[^ \n](?s:.*)/"
            thought = "THOUGHT"
        else:
            rules["THOUGHT"] = "/(?s:.*)/"
            thought = f"THOUGHT {vocabulary.marker(closing)}"
            if self.required:
                rules["BLANK"] = r"/[ \n]{1,3}/"
                thought += " BLANK?"
        return f"{thought} " if self.reasoning_opened else f"({vocabulary.marker(opening)} {thought})? "


def _lines(rules: dict[str, str]) -> str:
    return "".join(f"{name}: {body}\n" for name, body in rules.items())


def _escaped(text: str) -> str:
    return re.escape(text).replace("/", r"\/")


def _hermes(grammar: CallGrammar, vocabulary: Vocabulary) -> dict[str, str]:
    begin, end = vocabulary.marker("<tool_call>"), vocabulary.marker("</tool_call>")
    later = "one" if grammar.single else f"one (BREAK? {begin} one)*"
    rules = {"calls": f"{begin} {later}", "later_calls": later, "one": f"BREAK? call BREAK? {end}", "BREAK": r"/\n/"}
    return rules | _objects(grammar, "arguments")


def _llama_json(grammar: CallGrammar, vocabulary: Vocabulary) -> dict[str, str]:
    later = "call" if grammar.single else "call (/; ?/ call)*"
    return {"calls": later, "later_calls": later} | _objects(grammar, "parameters")


def _mistral(grammar: CallGrammar, vocabulary: Vocabulary) -> dict[str, str]:
    begin = vocabulary.marker("[TOOL_CALLS]")
    if vocabulary.special_id("[ARGS]") is not None:
        parts = vocabulary.marker("[ARGS]")
        each = [f"{_quoted(tool.name)} {parts} arguments_{number}" for number, tool in enumerate(grammar.tools)]
        rules = {"call": " | ".join(each)} | _arguments(grammar.tools)
        later = "call" if grammar.single else f"call ({begin} call)*"
    else:
        rules = _objects(grammar, "arguments")
        later = '/ ?\\[/ call "]"' if grammar.single else '/ ?\\[/ call (/, ?/ call)* "]"'
    return {"calls": f"{begin} {later}", "later_calls": later} | rules


def _llama_pythonic(grammar: CallGrammar, vocabulary: Vocabulary) -> dict[str, str]:
    """Return the rules. The bracket and the first name are one lexeme: a bracket alone may begin free text too."""
    rules = {"calls": 'first_call "]"' if grammar.single else 'first_call (", " call)* "]"'}
    keywords = [_keywords(tool, number, rules) for number, tool in enumerate(grammar.tools)]
    names = [tool.name for tool in grammar.tools]
    for rule, before in (("first_call", "["), ("call", "")):
        each = [f'{_quoted(f"{before}{name}(")} {rest} ")"' for name, rest in zip(names, keywords, strict=True)]
        rules[rule] = " | ".join(each)
    if grammar.single:
        del rules["call"]
    return rules


def _keywords(tool: GrammarTool, number: int, rules: dict[str, str]) -> str:
    """Add rules for keyword arguments in the schema's order; each has one for first place and one for later places."""
    schema = tool.schema or _NO_ARGUMENTS
    properties, required = schema.get("properties") or {}, set(schema.get("required") or ())
    shared: Json = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
    following = {"first": '""', "next": '""'}
    for at, (name, value) in reversed(list(enumerate(properties.items()))):
        if not _IDENTIFIER.fullmatch(name):
            raise UnfitSchemaError(f'the argument "{name[:40]}" is no name that a call in Python\'s form can have')
        rules[f"value_{number}_{at}"] = json_rule({**shared, **_object(value)}, strict=tool.strict)
        place_rules = {}
        for place, before in (("first", ""), ("next", ", ")):
            body = f"{_quoted(f'{before}{name}=')} value_{number}_{at} {following['next']}"
            if name not in required:
                body += f" | {following[place]}"
            place_rules[place] = f"{place}_{number}_{at}"
            rules[place_rules[place]] = body
        following = place_rules
    return following["first"]


def _harmony(grammar: CallGrammar, vocabulary: Vocabulary) -> dict[str, str]:
    """Return the rules of an answer's messages: any of reasoning, then one call, or a text. Its end has no marker."""
    is_text = vocabulary.is_text(harmony.ENDS[0])
    channel, message, constrain, end, start = map(
        vocabulary.marker, (harmony.CHANNEL, harmony.MESSAGE, harmony.CONSTRAIN, harmony.ENDS[0], harmony.START)
    )
    thinking, again = "FREE" if is_text else f"FREE {end}", f'{start} "assistant"'
    rules = {"thought": f'{channel} "analysis" {message} {thinking}', "FREE": "/(?s:.*)/", "TEXT": "/(?s:.*)/"}
    if is_text:  # free text must not contain markers, and the end is one lexeme with the text before it
        mark, marks = _escaped(harmony.ENDS[0]), "|".join(map(_escaped, (harmony.START, *harmony.ENDS)))
        rules["FREE"] = rf"/(?s:.*){mark}/ & ~/(?s:.*){mark}(?s:.+)/"
        rules["TEXT"] += rf" & ~/(?s:.*)({marks})(?s:.*)/"
    rules["content"] = grammar.content or "TEXT"
    rules["final"] = f'{channel} "final" {message} content'
    if grammar.tools:
        recipients = [_quoted(f"commentary to={harmony.FUNCTIONS}{tool.name} ") for tool in grammar.tools]
        bodies = [f'{constrain} "json" {message} arguments_{number}' for number in range(len(recipients))]
        calls = " | ".join(f"{to} {body}" for to, body in zip(recipients, bodies, strict=True))
        rules |= {"call": f"{channel} ({calls})", **_arguments(grammar.tools)}
    last = "call" if grammar.required else "(final | call)" if grammar.tools else "final"
    answer = f"(thought {again})* {last}"
    header, continues, _ = grammar.opening.rpartition(harmony.MESSAGE)
    if continues and f"{harmony.CHANNEL}analysis" in header:
        answer = f"{thinking} {again} {answer}"
    elif continues:
        written = f"content {end}" if grammar.content else thinking
        answer = f"{written} {again} {answer}" if grammar.required else "content"
    return {"start": answer, **rules}


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _object(schema: object) -> Json:
    return schema if isinstance(schema, dict) else {}


def _objects(grammar: CallGrammar, arguments: str) -> dict[str, str]:
    """Return ``call``: a JSON object with name and arguments, in this order."""
    each = [
        f'{_quoted(_opening(tool.name, arguments))} arguments_{number} "}}"'
        for number, tool in enumerate(grammar.tools)
    ]
    return {"call": " | ".join(each)} | _arguments(grammar.tools)


def _opening(name: str, arguments: str) -> str:
    return f'{{"name": {json.dumps(name)}, "{arguments}": '


def _arguments(tools: Sequence[GrammarTool]) -> dict[str, str]:
    return {f"arguments_{number}": json_rule(_of_object(tool), strict=tool.strict) for number, tool in enumerate(tools)}


def _of_object(tool: GrammarTool) -> Json:
    """Return a schema of arguments, which are an object even if the schema leaves that open."""
    if tool.schema is None:
        return {"type": "object"}
    return tool.schema if "type" in tool.schema or "$ref" in tool.schema else {"type": "object", **tool.schema}


def json_rule(schema: Json, *, strict: bool) -> str:
    """Return a rule's body: JSON of that schema."""
    options: Json = {"whitespace_flexible": True, "whitespace_pattern": _WHITESPACE}
    if not strict:
        options |= {"lenient": True, "coerce_one_of": True}
    written = json.loads(schema_in_grammars(json.dumps(schema), best_effort=not strict))
    return "%json " + json.dumps({**written, "x-guidance": options})


_MARKERS = {
    ToolFormat.HERMES: "<tool_call>",
    ToolFormat.LLAMA_JSON: "<|python_tag|>",
    ToolFormat.MISTRAL: "[TOOL_CALLS]",
}
_FORMATS: dict[ToolFormat, Callable[[CallGrammar, Vocabulary], dict[str, str]]] = {
    ToolFormat.HERMES: _hermes,
    ToolFormat.LLAMA_JSON: _llama_json,
    ToolFormat.LLAMA_PYTHONIC: _llama_pythonic,
    ToolFormat.MISTRAL: _mistral,
}
