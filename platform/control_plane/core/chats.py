"""What a chat may hold, whoever takes one: requests, and prefixes that requests begin with."""

from __future__ import annotations

from typing import Literal, get_args

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
REASONING_EFFORTS: tuple[str, ...] = get_args(ReasoningEffort)
FUNCTION_NAME = "[a-zA-Z0-9_-]{1,64}"
MOST_TOOLS = 128
MOST_DEFINITION_CHARS = 1 << 18
"""Of all tools together, as JSON: a chat template works on all of them."""
MOST_TEMPLATE_KWARGS = 64
MOST_TEMPLATE_CHARS = 1 << 14
"""Of the template's variables as JSON."""
