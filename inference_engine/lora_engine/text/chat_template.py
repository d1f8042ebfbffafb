"""The model's own chat template, rendered as transformers renders it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from lora_engine.request import RequestError

from .model_files import TokenizerError, read_json, special_tokens

Message = dict[str, Any]


class ChatTemplate:
    """Messages in, prompt text in. Encode the result without adding special tokens: it holds them."""

    def __init__(self, source: str | None, special: dict[str, str]) -> None:
        self._special = special
        self._template = None if source is None else _compile(source)
        self.digest = "" if source is None else "sha256:" + hashlib.sha256(source.encode()).hexdigest()

    @classmethod
    def load(cls, folder: Path) -> ChatTemplate:
        """Read ``chat_template.jinja``, or the template in ``tokenizer_config.json``; a model may have neither.

        Raises ``TokenizerError`` if there is one that cannot be used.
        """
        return cls(_find_source(folder), special_tokens(folder))

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True, **extra: Any) -> str:
        """The prompt for ``messages`` (``role``, ``content``, …).

        Raises ``RequestError`` if the model has no template, or if the messages do not fit it.
        """
        if self._template is None:
            raise RequestError(
                "chat_template_missing",
                "This model has no chat template, so it cannot take messages.",
                "Send a prompt to /v1/completions, or add chat_template.jinja to the model's folder.",
                param="messages",
            )
        context = {"messages": list(messages), "add_generation_prompt": add_generation_prompt, "tools": None,
                   "documents": None}  # fmt: skip
        try:
            return self._template.render(**self._special, **context, **extra)
        except Exception as error:
            # Templates fail in any way Python can: on purpose, on missing keys, on wrong types.
            raise RequestError(
                "invalid_messages",
                f"The model's chat template refuses these messages: {str(error)[:500]}.",
                "Check the roles and their order; most models want an optional system message, then user and "
                "assistant messages in turn.",
                param="messages",
            ) from error


def _find_source(folder: Path) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    value = read_json(folder / "tokenizer_config.json").get("chat_template")
    if value is None or isinstance(value, str):
        return value
    try:
        named: dict[str, str] = {item["name"]: item["template"] for item in value}
        return named["default"] if "default" in named or len(named) != 1 else next(iter(named.values()))
    except (TypeError, KeyError):
        raise TokenizerError(
            f"chat_template in {folder / 'tokenizer_config.json'} has no template named default; write the one to "
            "use to chat_template.jinja."
        ) from None


def _compile(source: str) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _GenerationTag]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _strftime_now
    try:
        return environment.from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise TokenizerError(
            f"the model's chat template is not valid Jinja (line {error.lineno}: {error.message}); correct "
            "chat_template.jinja in the model's folder."
        ) from None


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own ``tojson`` escapes for HTML, which would put escapes into prompts."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


class _GenerationTag(Extension):
    """``{% generation %}`` marks assistant text for training; here its body is simply rendered."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
