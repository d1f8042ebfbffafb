"""The model's chat template is rendered as transformers renders it."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from lora_engine.chat_templates import CompiledTemplate, TemplateProcess, TemplateSyntaxError, TooCostlyError
from lora_engine.errors import RequestError

from .model_files import TokenizerError, read_json, special_tokens

Message = dict[str, Any]


# Variables that a template gets besides the request's further ones, which may be none of these.
RESERVED = frozenset(
    {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "raise_exception",
     "strftime_now", "reasoning_effort"}
)  # fmt: skip


# Unicode's private use area in the basic plane, and the length of a mark made of its characters: 100 bits.
_PRIVATE_USE, _PRIVATE_USE_SIZE = 0xE000, 6400
_MARK_LENGTH = 8


class Template(Protocol):
    """A template and the names of the variables that it reads."""

    @property
    def variables(self) -> AbstractSet[str]: ...

    def render(self, context: Mapping[str, Any], /) -> str: ...


class ChatTemplate:
    """A chat template that turns messages into prompt text. Encode the result without special tokens: it contains them.

    A model may have a second template for requests with tools; ``source`` is the text of both. ``compiled`` compiles
    the source of one.
    """

    def __init__(
        self,
        source: str | None,
        special: dict[str, str],
        *,
        tool_source: str | None = None,
        compiled: Callable[[str], Template] | None = None,
    ) -> None:
        compiled = compiled or _compiled
        self.special = special
        self._template = None if source is None else compiled(source)
        self._tool_template = self._template if tool_source is None else compiled(tool_source)
        self.source = "\n".join(text for text in (source, tool_source) if text is not None)
        self.digest = "sha256:" + hashlib.sha256(self.source.encode()).hexdigest() if self._template else ""

    @classmethod
    def load(cls, folder: Path) -> ChatTemplate:
        """Read ``chat_template.jinja``, or the templates in ``tokenizer_config.json``; a model may have none.

        Raises ``TokenizerError`` if there is one that cannot be used.
        """
        source, tool_source = _find_sources(folder)
        return cls(source, special_tokens(folder), tool_source=tool_source)

    @classmethod
    def of_adapter(cls, source: str, special: dict[str, str], tool_source: str | None) -> ChatTemplate:
        """Make an adapter's template, which is untrusted: a separate process with limits renders it. Raises
        ``RequestError``.
        """
        try:
            process = TemplateProcess(source, tool_source)
        except TooCostlyError:
            raise _too_costly() from None

        def isolated(text: str) -> Template:
            return process.template(tools=text is tool_source)

        adapter_template = cls(source, special, tool_source=tool_source, compiled=isolated)
        adapter_template._process = process
        return adapter_template

    _process: TemplateProcess | None = None

    @property
    def has_ended(self) -> bool:
        """True if its process was killed, so that the template has to be made again."""
        return self._process is not None and self._process.has_ended

    @property
    def takes_tools(self) -> bool:
        return self._tool_template is not None and "tools" in self._tool_template.variables

    @cached_property
    def takes_one_call_only(self) -> bool:
        """True if a message with several tool calls cannot be sent back (Llama 3's templates refuse it)."""
        return self.takes_tools and self._renders(_chat_with_calls(1)) and not self._renders(_chat_with_calls(2))

    def _renders(self, messages: Sequence[Message]) -> bool:
        try:
            self.render(messages, tools=[_TOOL])
        except RequestError:
            return False
        return True

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Message] | None = None,
        add_generation_prompt: bool = True,
        reasoning_effort: str = "",
        template_kwargs: Mapping[str, Any] = MappingProxyType({}),
    ) -> str:
        """Return the prompt for ``messages`` (``role``, ``content``, …) and ``tools``, as OpenAI's API writes both.

        ``template_kwargs`` are further variables of the template. Raises ``RequestError`` if the model has no template,
        or if it does not take these messages, tools or variables.
        """
        if self._template is None or self._tool_template is None:
            raise RequestError(
                "chat_template_missing",
                "This model has no chat template, so it cannot take messages.",
                "Send a prompt to /v1/completions, or add chat_template.jinja to the model's folder.",
                param="messages",
            )
        with_tools = bool(tools) or any(_is_about_tools(message) for message in messages)
        if with_tools and not self.takes_tools:
            raise RequestError(
                "tools_not_supported",
                "This model's chat template has no place for tools.",
                "Leave tools and tool messages out, or serve a model whose chat template takes tools.",
                param="tools" if tools else "messages",
            )
        template = self._tool_template if with_tools else self._template
        context: dict[str, Any] = {
            "messages": list(messages),
            "tools": list(tools) if tools else None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        context |= self._further(template, template_kwargs) | _effort(template, reasoning_effort, template_kwargs)
        try:
            return template.render({**self.special, **context})
        except TooCostlyError:
            raise _too_costly() from None
        except Exception as error:
            # Templates fail in any way Python can: on purpose, on missing keys, on wrong types.
            raise RequestError(
                "invalid_messages",
                f"The model's chat template refuses these messages: {str(error)[:500]}.",
                "Check the roles and their order; most models want an optional system message, then user and "
                "assistant messages in turn.",
                param="messages",
            ) from error

    def render_unfinished(self, messages: Sequence[Message], **options: Any) -> str:
        """Return the prompt that ends with the last message's text, for the model to continue.

        The prompt is rendered with a mark after that text, and cut at the mark: a search for the text itself would
        match in other messages and in the template's tokens. As in transformers, a space after the mark shows whether
        the template trims the message; if it does, the prompt does not end with white space either.

        Raises ``RequestError`` like ``render``, or if the template changes that text.
        """
        last, mark = str(messages[-1]["content"]), _make_mark()
        marked = [*messages[:-1], {**messages[-1], "content": f"{last}{mark} "}]
        before, separator, after = self.render(marked, add_generation_prompt=False, **options).rpartition(mark)
        if separator and before.rstrip().endswith(last.strip()):
            return before if after.startswith(" ") else before.rstrip()
        raise RequestError(
            "invalid_messages",
            "The last message cannot be continued: the model's chat template leaves it out, or changes its text.",
            "Leave continue_final_message out, or send the prompt itself to /v1/completions.",
            param="continue_final_message",
        )

    def _further(self, template: Template, template_kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Check and return the request's variables: only those that the template reads, and none that is
        set already.
        """
        for name in template_kwargs:
            if name in RESERVED or name in self.special:
                raise _invalid_variable(name, "is set by the request itself")
            if name not in template.variables:
                raise _invalid_variable(name, "is not read by this model's chat template")
        return dict(template_kwargs)


def _compiled(source: str) -> CompiledTemplate:
    try:
        return CompiledTemplate(source)
    except TemplateSyntaxError as error:
        raise TokenizerError(
            f"the model's chat template is not valid Jinja ({error}); correct chat_template.jinja in its folder."
        ) from None


_TOOL: Message = {
    "type": "function",
    "function": {"name": "f", "description": "f", "parameters": {"type": "object", "properties": {}}},
}


def _chat_with_calls(count: int) -> list[Message]:
    """Return a question, calls, and their results. Mistral's templates want ids of nine letters and digits."""
    ids = [f"abcdefgh{number}" for number in range(count)]
    calls = [{"id": id, "type": "function", "function": {"name": "f", "arguments": {}}} for id in ids]
    results = [{"role": "tool", "content": "1", "tool_call_id": id} for id in ids]
    return [{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls": calls}, *results]


def _make_mark() -> str:
    """Return random characters of a private use area, which no message has. They are no white space."""
    return "".join(chr(_PRIVATE_USE + secrets.randbelow(_PRIVATE_USE_SIZE)) for _ in range(_MARK_LENGTH))


def _is_about_tools(message: Message) -> bool:
    return isinstance(message, Mapping) and (message.get("role") == "tool" or bool(message.get("tool_calls")))


def _effort(template: Template, reasoning_effort: str, template_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables for the reasoning effort. Templates that only switch reasoning get on or off."""
    if not reasoning_effort:
        return {}
    if "reasoning_effort" in template.variables:
        return {"reasoning_effort": reasoning_effort}
    if "enable_thinking" in template.variables:
        return {} if "enable_thinking" in template_kwargs else {"enable_thinking": reasoning_effort != "none"}
    if reasoning_effort == "none":
        return {}
    raise RequestError(
        "unsupported_parameter",
        "Unsupported parameter: 'reasoning_effort' is not supported with this model: its chat template reads none.",
        "Leave 'reasoning_effort' out.",
        param="reasoning_effort",
    )


def _too_costly() -> RequestError:
    return RequestError(
        "chat_template_too_costly",
        "The adapter's chat template took too much time or memory, or wrote too much, with these messages.",
        "Send fewer or shorter messages, or a prompt to /v1/completions, or upload it again with a simpler template.",
        param="messages",
    )


def _invalid_variable(name: str, what: str) -> RequestError:
    return RequestError(
        "invalid_value",
        f"Invalid value for 'chat_template_kwargs': '{name[:80]}' {what}.",
        "Send only variables that the model's chat template reads besides messages and tools.",
        param=f"chat_template_kwargs.{name[:80]}" if name.isidentifier() else "chat_template_kwargs",
    )


def _find_sources(folder: Path) -> tuple[str | None, str | None]:
    """Return the template, and the one for requests with tools if that is another."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8"), None
    value = read_json(folder / "tokenizer_config.json").get("chat_template")
    if value is None or isinstance(value, str):
        return value, None
    try:
        named: dict[str, str] = {item["name"]: item["template"] for item in value}
        source = named["default"] if "default" in named or len(named) != 1 else next(iter(named.values()))
    except (TypeError, KeyError):
        raise TokenizerError(
            f"chat_template in {folder / 'tokenizer_config.json'} has no template named default; write the one to "
            "use to chat_template.jinja."
        ) from None
    return source, named.get("tool_use") if "default" in named else None
