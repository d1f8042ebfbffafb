"""How families of models write tool calls and reasoning, and which one a chat template is for."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class ToolFormat(StrEnum):
    """``NONE``: the model's calls cannot be read."""

    NONE = "none"
    HERMES = "hermes"
    LLAMA_JSON = "llama_json"
    LLAMA_PYTHONIC = "llama_pythonic"
    MISTRAL = "mistral"


@dataclass(frozen=True, slots=True)
class ReasoningTags:
    """What stands before and after a model's reasoning."""

    open: str
    close: str


AUTO = "auto"
TOOL_FORMATS = (AUTO, *ToolFormat)
REASONING_FORMATS = {
    "think": ReasoningTags("<think>", "</think>"),
    "mistral": ReasoningTags("[THINK]", "[/THINK]"),
}
REASONING_SETTINGS = (AUTO, "none", *REASONING_FORMATS)

# In this order: the first whose marks are in the template. Formats that only look alike come before.
_MARKS: tuple[tuple[ToolFormat, Callable[[str], object]], ...] = (
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
# Tokens that are special in some tokenisers, and part of what is read here.
MARKERS: dict[ToolFormat, tuple[str, ...]] = {
    ToolFormat.NONE: (),
    ToolFormat.HERMES: ("<tool_call>", "</tool_call>"),
    ToolFormat.LLAMA_JSON: ("<|python_tag|>",),
    ToolFormat.LLAMA_PYTHONIC: ("<|python_start|>",),
    ToolFormat.MISTRAL: ("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"),
}


def find_tool_format(template: str, setting: str = AUTO) -> ToolFormat:
    """The format of calls that ``template`` shows; a ``setting`` other than "auto" decides by itself."""
    if setting != AUTO:
        return ToolFormat(setting)
    return next((found for found, shows in _MARKS if shows(template)), ToolFormat.NONE)


def find_reasoning_tags(template: str, setting: str = AUTO) -> ReasoningTags | None:
    """None where the model does not reason apart from its answer."""
    if setting != AUTO:
        return REASONING_FORMATS.get(setting)
    return next((tags for tags in REASONING_FORMATS.values() if tags.close in template), None)
