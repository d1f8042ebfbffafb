"""Items of ``/v1/responses``: the parts of a conversation, as requests send them and as they are stored."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, field_validator, model_validator

from control_plane.gateway.openai.chat_request import MAX_PARTS
from control_plane.gateway.openai.tools import MAX_CALLS, CallArguments, CalledName, CallId
from control_plane.gateway.openai.unions import by_type, chosen, known_types, tag
from control_plane.gateway.responses.tools import custom_arguments, function_name

Json = dict[str, Any]
# Maximum number of characters of an item's id.
LONGEST_ID = 128
# Beginning of the content of compaction items that this API makes.
_COMPACTED = "lorikeet1."


def _plain_id(value: object) -> str | None:
    """Return an item's id; None for one that cannot be an id, which is replaced."""
    is_plain = isinstance(value, str) and value.isprintable() and 0 < len(value) <= LONGEST_ID
    return value if is_plain else None  # type: ignore[return-value]


ItemId = Annotated[str | None, BeforeValidator(_plain_id)]


class _Item(BaseModel):
    model_config = ConfigDict(strict=True)  # items of an answer that are sent back also have a status

    # Beginning of the ids of such items.
    prefix: ClassVar[str]

    id: ItemId = None

    def _listed(self, item_id: str, kind: str, **fields: Any) -> Json:
        return {"id": item_id, "type": kind, "status": "completed", **fields}

    def listed(self, item_id: str) -> Json:
        """Return the item with an id, as a list of items has it."""
        raise NotImplementedError


class TextPart(BaseModel):
    """A part with text; a part of an earlier answer also has annotations and log-probabilities, which are ignored."""

    model_config = ConfigDict(strict=True)

    type: Literal["input_text", "output_text", "text"]
    text: str


class RefusalPart(BaseModel):
    model_config = ConfigDict(strict=True)

    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


_TEXTS = ("input_text", "output_text", "text")
Parts = Annotated[
    list[Annotated[TextPart, known_types("parts", *_TEXTS)]],
    Field(min_length=1, max_length=MAX_PARTS, fail_fast=True),
]
MessagePart = Annotated[
    Annotated[TextPart, tag("text")] | Annotated[RefusalPart, tag("refusal")],
    by_type("refusal", default="text"),
    known_types("parts", *_TEXTS, "refusal"),
]
MessageParts = Annotated[list[MessagePart], Field(min_length=1, max_length=MAX_PARTS, fail_fast=True)]


class MessageItem(_Item):
    prefix = "msg"

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | MessageParts

    @model_validator(mode="after")
    def _only_the_assistant_refuses(self) -> Self:
        if self.role != "assistant" and any(isinstance(part, RefusalPart) for part in self.content):
            raise ValueError(f"refusal parts belong to role assistant, not to role {self.role}; send text parts")
        return self

    def listed(self, item_id: str) -> Json:
        parts = [self.content] if isinstance(self.content, str) else self.content
        return self._listed(item_id, "message", role=self.role, content=[self._part(part) for part in parts])

    def _part(self, part: str | TextPart | RefusalPart) -> Json:
        if isinstance(part, RefusalPart):
            return {"type": "refusal", "refusal": part.refusal}
        text = part if isinstance(part, str) else part.text
        if self.role != "assistant":
            return {"type": "input_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


class _CallItem(_Item):
    call_id: CallId
    name: CalledName
    namespace: str | None = None

    def _called(self, item_id: str, kind: str, **fields: Any) -> Json:
        namespace = {} if self.namespace is None else {"namespace": self.namespace}
        return self._listed(item_id, kind, call_id=self.call_id, name=self.name, **fields, **namespace)


class FunctionCallItem(_CallItem):
    prefix = "fc"

    type: Literal["function_call"]
    arguments: CallArguments

    def listed(self, item_id: str) -> Json:
        return self._called(item_id, self.type, arguments=self.arguments)


class CustomToolCallItem(_CallItem):
    prefix = "ctc"

    type: Literal["custom_tool_call"]
    input: str

    @property
    def arguments(self) -> str:
        return custom_arguments(self.input)

    def listed(self, item_id: str) -> Json:
        return self._called(item_id, self.type, input=self.input)


class FunctionCallOutputItem(_Item):
    prefix = "fco"

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: CallId
    output: str | Parts

    def listed(self, item_id: str) -> Json:
        parts = self.output
        output = parts if isinstance(parts, str) else [{"type": "input_text", "text": part.text} for part in parts]
        return self._listed(item_id, self.type, call_id=self.call_id, output=output)


class ReasoningText(BaseModel):
    model_config = ConfigDict(strict=True)

    type: Literal["reasoning_text"]
    text: str


class ReasoningItem(_Item):
    """Reasoning of an earlier answer that is sent back: it precedes the message or call that follows it."""

    prefix = "rs"

    type: Literal["reasoning"]
    content: list[ReasoningText] | None = None

    def listed(self, item_id: str) -> Json:
        content = [part.model_dump() for part in self.content or ()]
        return self._listed(item_id, self.type, summary=[], content=content)


class CompactionItem(_Item):
    """The summary of a conversation that ``/v1/responses/compact`` made. It is encoded, not encrypted."""

    prefix = "cmp"

    type: Literal["compaction"]
    encrypted_content: str

    @field_validator("encrypted_content")
    @classmethod
    def _made_here(cls, value: str) -> str:
        try:
            decoded(value)
        except ValueError:
            raise ValueError(
                "this server did not make it; send the item as /v1/responses/compact of this server returned it"
            ) from None
        return value

    @property
    def summary(self) -> str:
        return decoded(self.encrypted_content)

    def listed(self, item_id: str) -> Json:
        return {"id": item_id, "type": self.type, "encrypted_content": self.encrypted_content}


class ItemReference(BaseModel):
    """The id of an item of a stored response, in place of the item."""

    model_config = ConfigDict(strict=True)

    type: Literal["item_reference"] | None = None
    id: Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]


_ITEMS = (
    "message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output", "reasoning",
    "compaction", "item_reference",
)  # fmt: skip


def _kind(value: object) -> str:
    """Choose an item's model: without a type it is a message, or a reference if it has an id and no role."""
    fields = value if isinstance(value, Mapping) else vars(value) if isinstance(value, BaseModel) else {}
    kind = fields.get("type")
    if kind is None and "id" in fields and "role" not in fields:
        return "item_reference"
    return kind if isinstance(kind, str) and kind in _ITEMS else "message"


# An item without references.
Item = (
    MessageItem | FunctionCallItem | FunctionCallOutputItem | CustomToolCallItem | ReasoningItem | CompactionItem
)  # fmt: skip
InputItem = Annotated[
    Annotated[MessageItem, tag("message")]
    | Annotated[FunctionCallItem, tag("function_call")]
    | Annotated[FunctionCallOutputItem, tag("function_call_output")]
    | Annotated[CustomToolCallItem, tag("custom_tool_call")]
    | Annotated[FunctionCallOutputItem, tag("custom_tool_call_output")]
    | Annotated[ReasoningItem, tag("reasoning")]
    | Annotated[CompactionItem, tag("compaction")]
    | Annotated[ItemReference, tag("item_reference")],
    chosen(_kind),
    known_types("items", *_ITEMS),
]
_STORED: TypeAdapter[list[Any]] = TypeAdapter(list[InputItem])


def read_stored(items: Iterable[Json]) -> list[Item]:
    """Return stored items, or items of a stored answer."""
    return _STORED.validate_python(list(items))


def listed(items: Sequence[Item], response: str, known: Collection[str] = ()) -> list[Json]:
    """Return items as a list has them. An item keeps its id unless another one, or one of ``known``, has it.

    response: the random part of the response's id, which the ids of its input contain.
    """
    taken = set(known)
    rows = []
    for index, item in enumerate(items):
        made = f"{item.prefix}_{response}_i{index}"
        name = item.id if item.id is not None and item.id not in taken else made
        taken.add(name)
        rows.append(item.listed(name))
    return rows


def compaction_item(summary: str, item_id: str) -> Json:
    """Return the item that stands for the conversation that was summarised."""
    content = _COMPACTED + base64.urlsafe_b64encode(summary.encode()).decode()
    return {"id": item_id, "type": "compaction", "encrypted_content": content}


def decoded(content: str) -> str:
    """Return the summary in a compaction item. Raises ValueError if this API did not make it."""
    if not content.startswith(_COMPACTED):
        raise ValueError("another server made it")
    try:
        return base64.b64decode(content.removeprefix(_COMPACTED), altchars=b"-_", validate=True).decode()
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def _text(content: str | Sequence[TextPart | RefusalPart]) -> str:
    return content if isinstance(content, str) else "\n".join(part.text for part in content)


def messages_of(items: Sequence[Item]) -> list[Json]:
    """Return items as chat messages. Consecutive calls, and calls after an assistant's text, are merged into one
    message, as chat templates expect.
    """
    messages: list[Json] = []
    reasoning = ""
    for item in items:
        if isinstance(item, ReasoningItem):
            reasoning = "\n".join(part.text for part in item.content or ())
            continue
        if isinstance(item, MessageItem):
            message: Json = {"role": item.role, "content": _text(item.content)}
        elif isinstance(item, CompactionItem):
            message = {"role": "assistant", "content": item.summary}
        elif isinstance(item, FunctionCallOutputItem):
            message = {"role": "tool", "tool_call_id": item.call_id, "content": _text(item.output)}
        else:
            function = {"name": function_name(item.namespace, item.name), "arguments": item.arguments}
            call = {"id": item.call_id, "type": "function", "function": function}
            last = messages[-1] if messages and messages[-1]["role"] == "assistant" and not reasoning else None
            if last is not None and len(calls := last.setdefault("tool_calls", [])) < MAX_CALLS:
                calls.append(call)
                continue
            message = {"role": "assistant", "tool_calls": [call]}
        if reasoning and message["role"] == "assistant":
            message["reasoning_content"] = reasoning
        reasoning = ""
        messages.append(message)
    return messages
