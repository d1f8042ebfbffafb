"""Jinja is set up as transformers does for chat templates, in jinja's sandbox.

The sandbox keeps a template from Python's objects. It bounds neither time nor memory: untrusted templates are rendered
in a process with limits (``renderer.py``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import debug, meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

__all__ = ["CompiledTemplate", "TemplateSyntaxError", "debug"]  # debug: imported now, not at the first error


class TemplateSyntaxError(Exception):
    """The template is not valid Jinja; the message is the parser's, with the line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")


class CompiledTemplate:
    """A compiled template and the names that it reads. Raises ``TemplateSyntaxError``."""

    def __init__(self, source: str) -> None:
        compiled = _compile(source)
        # Raises anything: templates fail on purpose, on missing keys, on wrong types.
        self.render: Callable[[Mapping[str, Any]], str] = compiled.render
        self.variables = meta.find_undeclared_variables(compiled.environment.parse(source))


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
        raise TemplateSyntaxError(error.lineno, error.message or "it cannot be read") from None
    except RecursionError:
        raise TemplateSyntaxError(1, "it is nested too deeply") from None


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Serialise to JSON without HTML escapes, which Jinja's ``tojson`` would put into prompts."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


class _GenerationTag(Extension):
    """A tag for ``{% generation %}``, which marks assistant text for training; its body is simply rendered."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
