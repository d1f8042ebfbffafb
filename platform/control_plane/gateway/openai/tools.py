"""Tools in a request of ``/v1/chat/completions``: definitions, the choice among them, and calls in messages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from control_plane.chats import FUNCTION_NAME, MOST_DEFINITION_CHARS
from control_plane.gateway.json_encoding import encode
from lora_engine.wire import engine_pb2 as pb

MOST_CALLS = 128
FunctionName = Annotated[str, Field(pattern=f"^{FUNCTION_NAME}$")]
CallId = Annotated[str, Field(min_length=1, max_length=256)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class FunctionDefinition(_Strict):
    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = Field(default=None, description="A JSON Schema of the arguments.")
    strict: bool | None = Field(default=None, description="Calls follow the schema exactly.")

    @field_validator("parameters")
    @classmethod
    def _of_an_object(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value and value.get("type", "object") != "object":
            raise ValueError('arguments are an object: the schema\'s type must be "object"')
        return value


class FunctionTool(_Strict):
    type: Literal["function"]
    function: FunctionDefinition

    @model_validator(mode="before")
    @classmethod
    def _functions_only(cls, value: object) -> object:
        kind = value.get("type") if isinstance(value, dict) else None
        if isinstance(kind, str) and kind != "function":
            raise ValueError(f'tools of type "{kind[:40]}" are not supported; send tools of type "function"')
        return value

    def wire(self) -> pb.Tool:
        function = self.function
        return pb.Tool(
            name=function.name,
            description=function.description or "",
            parameters="" if function.parameters is None else encode(function.parameters),
            strict=bool(function.strict),
        )


class NamedFunction(_Strict):
    name: FunctionName


class NamedToolChoice(_Strict):
    type: Literal["function"]
    function: NamedFunction


ToolChoice = Literal["none", "auto", "required"] | NamedToolChoice


class CalledFunction(_Strict):
    name: Annotated[str, Field(min_length=1, max_length=256)]
    arguments: str = Field(description="A JSON object as text.")

    @field_validator("arguments")
    @classmethod
    def _is_an_object(cls, value: str) -> str:
        """Chat templates take the object itself. Some clients send no text for no arguments."""
        try:
            good = not value.strip() or isinstance(json.loads(value), dict)
        except (ValueError, RecursionError):
            good = False
        if not good:
            raise ValueError("it is not the text of a JSON object")
        return value


class ToolCall(_Strict):
    """A call that the assistant made, as an answer gave it. ``index`` is what streams add."""

    id: CallId
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = Field(default=None, ge=0, le=MOST_CALLS)

    def wire(self) -> pb.ToolCall:
        arguments = self.function.arguments.strip() or "{}"
        return pb.ToolCall(id=self.id, name=self.function.name, arguments=arguments)


def check_tools(tools: Sequence[FunctionTool], choice: ToolChoice | None) -> None:
    """Raises ``ValueError``: what is asked of the tools contradicts itself."""
    names = [tool.function.name for tool in tools]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f'tools holds two functions named "{twice}"; give each a name of its own')
    size = sum(len(tool.function.description or "") + len(encode(tool.function.parameters or {})) for tool in tools)
    if size > MOST_DEFINITION_CHARS:
        raise ValueError(f"tools is {size} characters long; {MOST_DEFINITION_CHARS} is the most")
    if isinstance(choice, NamedToolChoice) and choice.function.name not in names:
        raise ValueError(f'tool_choice names the function "{choice.function.name}", which is not among tools')
    if choice == "required" and not tools:
        raise ValueError('tool_choice "required" needs tools')


def choice_wire(choice: ToolChoice | None) -> pb.ToolChoice:
    if isinstance(choice, NamedToolChoice):
        return pb.ToolChoice(mode=pb.ToolChoice.NAMED, name=choice.function.name)
    modes = {"none": pb.ToolChoice.NONE, "required": pb.ToolChoice.REQUIRED}
    return pb.ToolChoice(mode=modes.get(choice or "auto", pb.ToolChoice.AUTO))
