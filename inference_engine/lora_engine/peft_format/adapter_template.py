"""The chat template in an adapter's folder is found and tried before requests depend on it.

Training programs save the tokenizer beside the adapter, and with it the template that wrote the chats in training. It
is an untrusted program: it is compiled and tried in a fork with hard limits, at upload, and rendered in the same way
for every request (``chat_templates``).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lora_engine.chat_templates import CompiledTemplate, TemplateSyntaxError, TooCostlyError, in_limited_fork

from .problems import FormatError, printable
from .strict_json import StrictJsonError, load_strict

JINJA_FILE, TOKENIZER_CONFIG_FILE, JSON_FILE = "chat_template.jinja", "tokenizer_config.json", "chat_template.json"
# Files that may have a template; the first that has one counts.
TEMPLATE_FILES = (JINJA_FILE, TOKENIZER_CONFIG_FILE, JSON_FILE)
# Maximum bytes of a file with a template: a tokenizer's config lists every added token.
MAX_TEMPLATE_FILE_BYTES = 8 << 20
# Characters that a chat template may have.
MAX_TEMPLATE_CHARS = 64 << 10
# Maximum number of characters of a special token.
_MAX_TOKEN_CHARS = 256
# Bytes that the fork may answer.
_MAX_ANSWER_BYTES = 4096
_WITHOUT = "or leave the file out: chats are then written by the served model's template."
# Special tokens for the trial where the folder has none. For a request the served model's are used.
_SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>", "unk_token": "<unk>"}
# The form of tokens that end a turn: <|im_end|>, <end_of_turn>, </s>, [/INST].
_END = re.compile(r"\s*(<\|[^|<>\s]{1,60}\|>|</?[\w|-]{1,60}>|\[/?[A-Z_]{1,60}\])", re.ASCII)
_QUESTION = "Which colour is the sky?"


@dataclass(frozen=True, slots=True)
class AdapterTemplate:
    """A template, another one for requests with tools (or ""), and the special tokens that they may use."""

    source: str
    tool_source: str
    special_tokens: dict[str, str]
    file: str

    def to_json(self) -> dict[str, Any]:
        return {"source": self.source, "tool_source": self.tool_source, "special_tokens": self.special_tokens}

    @property
    def digest(self) -> str:
        """Digest of everything that decides the template's output."""
        canonical = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return "sha256:" + hashlib.sha256(canonical.encode(errors="surrogatepass")).hexdigest()

    @property
    def source_digest(self) -> str:
        """Digest of its text alone, like the one that an engine reports for its model's template."""
        text = "\n".join(source for source in (self.source, self.tool_source) if source)
        return "sha256:" + hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def read_adapter_template(folder: Path) -> AdapterTemplate | None:
    """Return the template of the adapter in ``folder``; None if it has none. Raises ``FormatError``."""
    config = _object(folder / TOKENIZER_CONFIG_FILE)
    for name in TEMPLATE_FILES:
        sources = _sources(folder, name, config)
        if sources is not None:
            source, tool_source = sources
            if len(source) + len(tool_source) > MAX_TEMPLATE_CHARS:
                raise _refused(f"The template in {name} has more than {MAX_TEMPLATE_CHARS} characters", "Shorten it")
            if "\0" in source + tool_source or any("\ud800" <= letter <= "\udfff" for letter in source + tool_source):
                raise _refused(f"The template in {name} holds characters that no text has", "Correct it")
            return AdapterTemplate(source, tool_source, _special_tokens(config), name)
    return None


@dataclass(frozen=True, slots=True)
class TriedTemplate:
    """The kinds of chats that a template takes, in words, and the tokens that end answers."""

    takes: str
    ends: tuple[str, ...]


def try_template(template: AdapterTemplate) -> TriedTemplate:
    """Render a few chats with the template. Raises ``FormatError``."""
    try:
        result = json.loads(in_limited_fork(lambda: _tried(template), most_bytes=_MAX_ANSWER_BYTES))
    except TooCostlyError:
        raise FormatError(
            "chat_template_too_costly",
            f"{template.file} takes more than a second or 256 MiB, or fails without a word, for a chat of a few lines.",
            f"Correct it, {_WITHOUT}",
        ) from None
    if "syntax" in result:
        raise _refused(f"{template.file} is not valid Jinja ({result['syntax']})", "Correct it")
    if "question" in result:
        raise _refused(f"{template.file} does not write a user's message: {result['question']}", "Correct it")
    kinds = [name for name in ("system messages", "several turns", "tools") if result[name]]
    ends = [template.special_tokens.get("eos_token", ""), result["end"]]
    return TriedTemplate(
        ", ".join(kinds) or "a single message", tuple(dict.fromkeys(map(printable, filter(None, ends))))
    )


def _tried(template: AdapterTemplate) -> bytes:
    """Try the template in the fork and return the results as JSON."""
    try:
        plain = CompiledTemplate(template.source)
        with_tools = CompiledTemplate(template.tool_source) if template.tool_source else plain
    except TemplateSyntaxError as error:
        return json.dumps({"syntax": str(error)[:300]}).encode()
    question = _message("user", _QUESTION)
    fault = _fault(plain, template, [question])
    if fault:
        return json.dumps({"question": fault}).encode()
    messages = [question, _message("assistant", "Blue."), _message("user", "And at night?")]
    return json.dumps(
        {
            "system messages": not _fault(plain, template, [_message("system", "Be short."), question]),
            "several turns": not _fault(plain, template, messages),
            "tools": "tools" in with_tools.variables and not _fault(with_tools, template, [question], [_TOOL]),
            "end": _end(plain, template, messages),
        }
    ).encode()


def _end(compiled: CompiledTemplate, template: AdapterTemplate, messages: Sequence[dict[str, str]]) -> str:
    """Return the token that the template writes after an assistant's message; "" if none has the form of one."""
    try:
        text = compiled.render({**_SPECIAL_TOKENS, **template.special_tokens, **_context(messages, None)})
    except MemoryError:
        raise
    except Exception:  # it takes single messages only
        return ""
    match = _END.match(text.partition(messages[1]["content"])[2])
    written = [template.source, *template.special_tokens.values()]
    # otherwise it is one of the default tokens
    return match[1] if match and any(match[1] in source for source in written) else ""


_TOOL = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Search the web.",
        "parameters": {"type": "object", "properties": {}},
    },
}


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _context(messages: Sequence[dict[str, str]], tools: Sequence[dict[str, Any]] | None) -> dict[str, Any]:
    return {"messages": list(messages), "tools": tools, "documents": None, "add_generation_prompt": True}


def _fault(
    compiled: CompiledTemplate,
    template: AdapterTemplate,
    messages: Sequence[dict[str, str]],
    tools: Sequence[dict[str, Any]] | None = None,
) -> str:
    """Return why the template does not write these messages with their texts; "" if it does."""
    try:
        text = compiled.render({**_SPECIAL_TOKENS, **template.special_tokens, **_context(messages, tools)})
    except MemoryError:
        raise
    except Exception as error:
        return printable(str(error)[:300]) or type(error).__name__
    missing = [message["role"] for message in messages if message["content"] not in text]
    return f"its text leaves out the {missing[0]}'s" if missing else ""


def _sources(folder: Path, name: str, config: dict[str, Any]) -> tuple[str, str] | None:
    """Return ``(template, template for tools or "")`` of one of the files."""
    path = folder / name
    if not path.is_file():
        return None
    if name == JINJA_FILE:
        return _text(path), ""
    value = (config if name == TOKENIZER_CONFIG_FILE else _object(path)).get("chat_template")
    if value is None:
        return None
    if isinstance(value, str):
        return value, ""
    try:
        named = {item["name"]: item["template"] for item in value}
    except (TypeError, KeyError):
        named = {}
    source = named.get("default") if "default" in named or len(named) != 1 else next(iter(named.values()))
    tool_source = named.get("tool_use", "") if "default" in named else ""
    if not isinstance(source, str) or not isinstance(tool_source, str):
        raise _refused(f"chat_template in {name} is neither a text nor a list with one named default", "Correct it")
    return source, tool_source


def _special_tokens(config: dict[str, Any]) -> dict[str, str]:
    """Return ``"bos_token"``, ``"eos_token"``, … → text."""
    tokens: dict[str, str] = {}
    for name, value in config.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and len(name) < 32 and isinstance(text, str) and len(text) <= _MAX_TOKEN_CHARS:
            tokens[name] = text
    return tokens


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise _refused(f"{path.name} is no UTF-8 text", "Correct it") from None


def _object(path: Path) -> dict[str, Any]:
    """Read a JSON object, ``{}`` if there is no file."""
    if not path.is_file():
        return {}
    try:
        value = load_strict(path.read_bytes())
    except StrictJsonError as error:
        raise _refused(f"{path.name} is not valid JSON ({error})", "Save the tokenizer again") from None
    return value if isinstance(value, dict) else {}


def _refused(what: str, fix: str) -> FormatError:
    return FormatError("invalid_chat_template", f"{what}.", f"{fix}, {_WITHOUT}")
