"""Limits of a chat, shared by requests and pinned prefixes."""

from __future__ import annotations

from typing import Literal, get_args

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
REASONING_EFFORTS: tuple[str, ...] = get_args(ReasoningEffort)
FUNCTION_NAME = "[a-zA-Z0-9_-]{1,64}"
# Maximum number of tools of a chat.
MAX_TOOLS = 128
# Maximum number of characters of all tool definitions together, as JSON: a chat template processes all of them.
MAX_DEFINITION_CHARS = 1 << 18
# Maximum number of variables of a chat template.
MAX_TEMPLATE_KWARGS = 64
# Maximum number of characters of a chat template's variables, as JSON.
MAX_TEMPLATE_CHARS = 1 << 14
