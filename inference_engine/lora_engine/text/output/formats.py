"""Formats in which families of models write tool calls and reasoning, and their detection from a chat template."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from . import harmony_markers


class ToolFormat(StrEnum):
    """The formats of tool calls. ``NONE``: the model's calls cannot be parsed."""

    NONE = "none"
    HERMES = "hermes"
    LLAMA_JSON = "llama_json"
    LLAMA_PYTHONIC = "llama_pythonic"
    MISTRAL = "mistral"
    HARMONY = "harmony"


@dataclass(frozen=True, slots=True)
class ReasoningTags:
    """The tags before and after a model's reasoning."""

    open: str
    close: str


AUTO = "auto"
TOOL_FORMATS = (AUTO, *ToolFormat)
REASONING_FORMATS = {
    "think": ReasoningTags("<think>", "</think>"),
    "mistral": ReasoningTags("[THINK]", "[/THINK]"),
}
REASONING_SETTINGS = (AUTO, "none", *REASONING_FORMATS)

# Marks of formats in a template; the first match counts. Similar formats that are not supported come first.
_MARKS: tuple[tuple[ToolFormat, Callable[[str], object]], ...] = (
    (ToolFormat.HARMONY, lambda template: harmony_markers.CHANNEL in template and harmony_markers.MESSAGE in template),
    (
        ToolFormat.NONE,
        re.compile(
            r"<function=|<arg_key>|<\|tool_call\|>|<\|START_ACTION\|>|<function_calls>|<tool_calls>|<invoke |>>>all"
        ).search,
    ),
    (ToolFormat.HERMES, re.compile(r"<tool_call>").search),
    (ToolFormat.MISTRAL, re.compile(r"\[TOOL_CALLS\]").search),
    (ToolFormat.LLAMA_PYTHONIC, re.compile(r"\[\w+\(\w+=").search),
    (ToolFormat.LLAMA_JSON, re.compile(r"<\|python_tag\|>|<\|start_header_id\|>|<\|header_start\|>").search),
)
# Tokens that are special in some tokenisers and part of the parsed text.
MARKERS: dict[ToolFormat, tuple[str, ...]] = {
    ToolFormat.NONE: (),
    ToolFormat.HERMES: ("<tool_call>", "</tool_call>"),
    ToolFormat.LLAMA_JSON: ("<|python_tag|>",),
    ToolFormat.LLAMA_PYTHONIC: ("<|python_start|>",),
    ToolFormat.MISTRAL: ("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"),
    ToolFormat.HARMONY: harmony_markers.MARKERS,
}


def find_tool_format(template: str, setting: str = AUTO) -> ToolFormat:
    """Return the format of calls in ``template``; a ``setting`` other than "auto" overrides it."""
    if setting != AUTO:
        return ToolFormat(setting)
    return next((format for format, is_in in _MARKS if is_in(template)), ToolFormat.NONE)


def find_reasoning_tags(template: str, setting: str = AUTO) -> ReasoningTags | None:
    """Return the tags of the model's reasoning, or None if it does not mark any."""
    if setting != AUTO:
        return REASONING_FORMATS.get(setting)
    return next((tags for tags in REASONING_FORMATS.values() if tags.close in template), None)
