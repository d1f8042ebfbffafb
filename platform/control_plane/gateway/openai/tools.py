"""Tools in a request of ``/v1/chat/completions``: definitions, the choice among them, and calls in messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from control_plane.core.chats import FUNCTION_NAME, MAX_DEFINITION_CHARS
from control_plane.gateway.dispatch.json_encoding import encode
from control_plane.gateway.openai.call_arguments import complete_arguments
from control_plane.gateway.openai.unions import WORD_OR_OBJECT, tag
from lora_engine.wire import engine_pb2 as pb

# Tool calls that one message may have.
MAX_CALLS = 128
FunctionName = Annotated[str, Field(pattern=f"^{FUNCTION_NAME}$")]
CallId = Annotated[str, Field(min_length=1, max_length=256)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


def _of_an_object(value: dict[str, Any]) -> dict[str, Any]:
    if value.get("type", "object") != "object":
        raise ValueError('arguments are an object, but the schema has another type; set type to "object"')
    return value


ToolParameters = Annotated[
    dict[str, Any], AfterValidator(_of_an_object), Field(description="JSON Schema of the arguments.")
]


def functions_only(value: object, what: str = "tools") -> object:
    """Refuse tools of other types by their type, before their fields are validated."""
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind != "function":
        raise ValueError(f'{what} of type "{kind[:40]}" are not supported; send {what} of type "function"')
    return value


class FunctionDefinition(_Strict):
    name: FunctionName
    description: str | None = None
    parameters: ToolParameters | None = None
    strict: bool | None = Field(default=None, description="Whether calls must match the schema exactly.")


class FunctionTool(_Strict):
    type: Literal["function"]
    function: FunctionDefinition

    @model_validator(mode="before")
    @classmethod
    def _functions_only(cls, value: object) -> object:
        return functions_only(value)

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

    @model_validator(mode="before")
    @classmethod
    def _functions_only(cls, value: object) -> object:
        return functions_only(value, "choices")


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], tag("word")] | Annotated[NamedToolChoice, tag("object")],
    WORD_OR_OBJECT,
]


def _is_an_object(value: str) -> str:
    if complete_arguments(value) is None:
        raise ValueError(
            "it is not the text of a JSON object, nor the beginning of one; send the arguments of the answer unchanged"
        )
    return value


CalledName = Annotated[str, Field(min_length=1, max_length=256)]
CallArguments = Annotated[
    str,
    AfterValidator(_is_an_object),
    Field(description="Arguments of the call: a JSON object as text, which is incomplete if the answer was cut off."),
]


class CalledFunction(_Strict):
    name: CalledName
    arguments: CallArguments


class ToolCall(_Strict):
    """A call by the assistant, as an answer contained it. Streams add ``index``."""

    id: CallId
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = Field(default=None, ge=0, le=MAX_CALLS)

    def wire(self) -> pb.ToolCall:
        # Chat templates expect the complete object.
        arguments = complete_arguments(self.function.arguments) or "{}"
        return pb.ToolCall(id=self.id, name=self.function.name, arguments=arguments)


def check_tools(tools: Sequence[FunctionTool], choice: ToolChoice | None) -> None:
    """Check that tools and choice agree. Raises ``ValueError``."""
    names = [tool.function.name for tool in tools]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f'tools holds two functions named "{twice}"; give each a different name')
    size = sum(len(tool.function.description or "") + len(encode(tool.function.parameters or {})) for tool in tools)
    if size > MAX_DEFINITION_CHARS:
        raise ValueError(f"tools is {size} characters long; send at most {MAX_DEFINITION_CHARS}")
    if isinstance(choice, NamedToolChoice) and choice.function.name not in names:
        raise ValueError(
            f'tool_choice names the function "{choice.function.name}", which is not among tools; add it to tools'
        )
    if choice == "required" and not tools:
        raise ValueError('tool_choice "required" needs tools; add tools, or leave tool_choice out')


def choice_wire(choice: ToolChoice | None) -> pb.ToolChoice:
    if isinstance(choice, NamedToolChoice):
        return pb.ToolChoice(mode=pb.ToolChoice.NAMED, name=choice.function.name)
    modes = {"none": pb.ToolChoice.NONE, "required": pb.ToolChoice.REQUIRED}
    return pb.ToolChoice(mode=modes.get(choice or "auto", pb.ToolChoice.AUTO))
