"""Tools of ``/v1/responses``: functions, custom tools with free text as input, and namespaces of both.

A chat request has functions only. A custom tool becomes a function with one text argument, and a tool of a namespace a
function whose name begins with the namespace. Hosted tools are left out.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from control_plane.core.chats import MAX_TOOLS
from control_plane.gateway.openai.call_arguments import complete_arguments
from control_plane.gateway.openai.tools import FunctionName, ToolParameters
from control_plane.gateway.openai.unions import by_type, known_types, tag

Json = dict[str, Any]
# The argument of a function that stands for a custom tool.
INPUT = "input"
_INPUT_SCHEMA: Json = {
    "type": "object",
    "properties": {INPUT: {"type": "string"}},
    "required": [INPUT],
    "additionalProperties": False,
}
# Maximum number of characters of a function's name, and number of those of the digest that keeps shortened names
# apart.
LONGEST_NAME, DIGEST = 64, 8


class _StrictTool(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class ResponseTool(_StrictTool):
    type: Literal["function"]
    name: FunctionName
    description: str | None = None
    parameters: ToolParameters | None = None
    strict: bool | None = None


class CustomToolFormat(_StrictTool):
    type: Literal["text", "grammar"]
    syntax: Literal["lark", "regex"] | None = None
    definition: str | None = None


class CustomTool(_StrictTool):
    """A tool whose input is text. A grammar of the text is shown to the model, and not enforced."""

    type: Literal["custom"]
    name: FunctionName
    description: str | None = None
    format: CustomToolFormat | None = None


_OfNamespace = Annotated[
    Annotated[ResponseTool, tag("function")] | Annotated[CustomTool, tag("custom")],
    by_type("custom", default="function"),
    known_types("tools", "function", "custom"),
]


class NamespaceTool(_StrictTool):
    type: Literal["namespace"]
    name: Annotated[str, Field(min_length=1, max_length=128)]
    description: str | None = None
    tools: Annotated[list[_OfNamespace], Field(max_length=MAX_TOOLS, fail_fast=True)]


class HostedTool(BaseModel):
    """A tool that another server runs: left out and named."""

    model_config = ConfigDict(strict=True)

    type: Annotated[str, Field(min_length=1, max_length=64)]


AnyTool = Annotated[
    Annotated[ResponseTool, tag("function")]
    | Annotated[CustomTool, tag("custom")]
    | Annotated[NamespaceTool, tag("namespace")]
    | Annotated[HostedTool, tag("hosted")],
    by_type("function", "custom", "namespace", default="hosted", absent="function"),
]


@dataclass(frozen=True)
class OfferedTool:
    """A tool that the model may call, with the name of the function that stands for it."""

    function: str
    tool: ResponseTool | CustomTool
    namespace: NamespaceTool | None = None
    # Whether its description includes the namespace's.
    is_first: bool = False

    def definition(self) -> Json:
        """Return the function of a chat request."""
        description = self.tool.description or ""
        if self.namespace is not None and self.is_first and self.namespace.description:
            description = f"{self.namespace.description}\n\n{description}".rstrip()
        if isinstance(self.tool, CustomTool):
            return {
                "name": self.function,
                "description": description + _grammar_text(self.tool.format),
                "parameters": _INPUT_SCHEMA,
            }
        made = {
            "name": self.function,
            "description": description or None,
            "parameters": self.tool.parameters,
            "strict": self.tool.strict,
        }
        return {name: value for name, value in made.items() if value is not None}


def offered(tools: Sequence[AnyTool] | None) -> list[OfferedTool]:
    """Return the tools that the model may call, those of namespaces included."""
    return list(_offered(tools or ()))


def _offered(tools: Sequence[AnyTool]) -> Iterator[OfferedTool]:
    for tool in tools:
        if isinstance(tool, NamespaceTool):
            for index, inner in enumerate(tool.tools):
                yield OfferedTool(function_name(tool.name, inner.name), inner, tool, index == 0)
        elif not isinstance(tool, HostedTool):
            yield OfferedTool(tool.name, tool)


def hosted(tools: Sequence[AnyTool] | None) -> list[str]:
    """Return the names of tools that are left out, for the header."""
    return [f"tools[{tool.type}]" for tool in tools or () if isinstance(tool, HostedTool)]


def function_name(namespace: str | None, name: str) -> str:
    """Return the name of the function that stands for a tool; a long name is shortened and stays unique."""
    if not namespace:
        return name
    separator = "" if namespace.endswith("_") else "__"
    joined = re.sub(r"[^a-zA-Z0-9_-]", "_", f"{namespace}{separator}{name}")
    if len(joined) <= LONGEST_NAME:
        return joined
    digest = hashlib.sha256(f"{namespace}\n{name}".encode()).hexdigest()[:DIGEST]
    return f"{joined[: LONGEST_NAME - DIGEST - 1]}_{digest}"


def custom_arguments(text: str) -> str:
    """Return the arguments of the function that stands for a custom tool."""
    return json.dumps({INPUT: text}, ensure_ascii=False)


def custom_input(arguments: str) -> str:
    """Return the input of a custom tool from its function's arguments; these themselves if they are something else."""
    value = json.loads(complete_arguments(arguments) or "{}").get(INPUT)
    return value if isinstance(value, str) else arguments


def _grammar_text(text_format: CustomToolFormat | None) -> str:
    if text_format is None or not text_format.definition:
        return ""
    return f"\n\nThe input must match this {text_format.syntax or 'lark'} grammar:\n{text_format.definition}"
