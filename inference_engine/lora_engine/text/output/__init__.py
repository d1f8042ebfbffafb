"""A chat model's output is split into reasoning, text and tool calls as it arrives."""

from .formats import ReasoningTags, ToolFormat, find_reasoning_tags, find_tool_format
from .parser import CallDelta, ChatOutput, ChoiceParser, Parsed

__all__ = [
    "CallDelta",
    "ChatOutput",
    "ChoiceParser",
    "Parsed",
    "ReasoningTags",
    "ToolFormat",
    "find_reasoning_tags",
    "find_tool_format",
]
