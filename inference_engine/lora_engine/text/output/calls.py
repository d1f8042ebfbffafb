"""Readers of tool calls, each format as a coroutine that is sent one character at a time.

A reader ends by returning, after the last character of its section. It raises ``NotACallError`` as soon as the
characters cannot be a call. At the output's end it is sent ``END``.
"""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Callable, Generator
from typing import Any, Protocol

END = ""
Reader = Generator[None, str, None]
Reading = Generator[None, str, str]
# Maximum number of levels of nesting in a call's arguments.
DEEPEST = 64
_SPACE = frozenset(" \t\r\n")
_NAME_KEYS = frozenset({"name"})
_ARGUMENT_KEYS = frozenset({"arguments", "parameters"})
# Members that some models add and that have no meaning here.
_OTHER_KEYS = frozenset({"id", "type"})


class NotACallError(Exception):
    """The text is no call of a tool that the request offers."""


class Calls(Protocol):
    """A receiver of the calls that a reader parses."""

    def name(self, name: str) -> None:
        """Begin a call. Raises ``NotACallError`` if there is no such tool."""

    def arguments(self, piece: str) -> None:
        """Add a piece of the arguments' JSON text."""

    def end(self) -> None:
        """Complete the call. Raises ``NotACallError`` if its arguments are no JSON object."""


def hermes(calls: Calls) -> Reader:
    """Read, after ``<tool_call>``, an object with name and arguments, then ``</tool_call>``."""
    yield from _object((yield from _after_space()), calls)
    yield from _closing("</tool_call>")
    calls.end()


def llama_json(calls: Calls) -> Reader:
    """Read objects separated by ``;`` or nothing. The first character may be the ``{`` that began the section."""
    character = yield from _after_space()
    while True:
        yield from _object(character, calls)
        calls.end()
        character = yield from _after_space()
        if character == END:
            return
        if character == ";":
            character = yield from _after_space()


def llama_pythonic(calls: Calls) -> Reader:
    """Read ``[name(key=value), …]``, after ``[``."""
    more = True
    while more:
        written = yield from _expression((yield from _after_space()))
        name, arguments = _python_call(written)
        calls.name(name)
        calls.arguments(json.dumps(arguments, ensure_ascii=False))
        calls.end()
        more = yield from _item_follows()


def mistral(calls: Calls) -> Reader:
    """Read, after ``[TOOL_CALLS]``, an array of objects, or ``name[ARGS]{…}`` (releases from 2024-11 on)."""
    character = yield from _after_space()
    if character == "[":
        yield from _array(calls)
    else:
        yield from _named(character, calls)


def _array(calls: Calls) -> Reader:
    more = True
    while more:
        yield from _object((yield from _after_space()), calls)
        calls.end()
        more = yield from _item_follows()


def _named(character: str, calls: Calls) -> Reader:
    head = ""
    while character != "{":
        if character == END or len(head) > 256:
            raise NotACallError
        head += character
        character = yield
    name = head.removesuffix("[ARGS]").partition("[CALL_ID]")[0].strip()
    calls.name(name)
    yield from _value(character, calls.arguments)
    calls.end()


# -- parts ------------------------------------------------------------------------


def _after_space() -> Reading:
    character = yield
    while character in _SPACE:
        character = yield
    return character


def _item_follows() -> Generator[None, str, bool]:
    """Read, behind an item of an array, whether a comma or the array's end follows."""
    following = yield from _after_space()
    if following not in ("]", ","):
        raise NotACallError
    return following == ","


def _closing(marker: str) -> Reader:
    """Read the marker after white space. A model may end its output without it."""
    character = yield from _after_space()
    for at, expected in enumerate(marker):
        if character == END and at == 0:
            return
        if character != expected:
            raise NotACallError
        if at + 1 < len(marker):
            character = yield


def _object(character: str, calls: Calls) -> Reader:
    """Read a JSON object with the members name and arguments, in either order; ``character`` is its first."""
    if character != "{":
        raise NotACallError
    named, arguments = False, ""
    has_arguments = False
    character = yield from _after_space()
    while character != "}":
        key = yield from _member_key(character)
        character = yield from _after_space()
        if key in _NAME_KEYS and not named:
            calls.name((yield from _text(character)))
            named = True
            calls.arguments(arguments)
        elif key in _ARGUMENT_KEYS and not has_arguments:
            has_arguments = True
            if named and character == "{":
                yield from _value(character, calls.arguments)
            else:
                arguments = yield from _whole_arguments(character)
                if named:
                    calls.arguments(arguments)
        elif key in _OTHER_KEYS:
            yield from _text(character)
        else:
            raise NotACallError
        character = yield from _after_space()
        if character == ",":
            character = yield from _after_space()
            if character != '"':
                raise NotACallError
        elif character != "}":
            raise NotACallError
    if not named:
        raise NotACallError
    if not has_arguments:
        calls.arguments("{}")


def _member_key(character: str) -> Reading:
    key = yield from _text(character)
    if (yield from _after_space()) != ":":
        raise NotACallError
    return key


def _text(character: str) -> Reading:
    """Read a JSON string and return its text."""
    if character != '"':
        raise NotACallError
    written: list[str] = []
    yield from _value(character, written.append)
    try:
        text: str = json.loads("".join(written))
    except ValueError:
        raise NotACallError from None
    return text


def _whole_arguments(character: str) -> Reading:
    """Read an object, or a string with one, as some models write it."""
    if character == '"':
        return (yield from _text(character))
    written: list[str] = []
    yield from _value(character, written.append)
    return "".join(written)


def _value(character: str, take: Callable[[str], None]) -> Reader:
    """Read an object, array or string from its first character to its last, and only detect where it ends."""
    if character not in ('"', "{", "["):
        raise NotACallError
    depth, quoted, escaped = 0, False, False
    while True:
        if character == END:
            raise NotACallError
        take(character)
        if escaped:
            escaped = False
        elif quoted:
            escaped = character == "\\"
            quoted = character != '"'
        elif character == '"':
            quoted = True
        elif character in "{[":
            depth += 1
            if depth > DEEPEST:
                raise NotACallError
        elif character in "}]":
            depth -= 1
        if not depth and not quoted:
            return
        character = yield


def _expression(character: str) -> Reading:
    """Read Python source from a call's name to its closing parenthesis."""
    written, depth, quote, escaped = "", 0, "", False
    while True:
        if character == END or (not depth and character in "{}[]'\"<"):
            raise NotACallError
        written += character
        if escaped:
            escaped = False
        elif quote:
            escaped = character == "\\"
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "([{":
            depth += 1
            if depth > DEEPEST:
                raise NotACallError
        elif character in ")]}":
            depth -= 1
            if not depth:
                return written
        elif not depth and not (character.isalnum() or character in "_.- \n\t"):
            raise NotACallError
        character = yield


def _python_call(source: str) -> tuple[str, dict[str, Any]]:
    name, _, rest = source.partition("(")
    try:
        # Names of tools may have dots and dashes, so they are not parsed as Python.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in the model's text
            call = ast.parse("f(" + rest, mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise NotACallError
        arguments = {_keyword(keyword): _literal(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise NotACallError from None
    return name.strip(), arguments


def _keyword(keyword: ast.keyword) -> str:
    if keyword.arg is None:
        raise NotACallError
    return keyword.arg


_WORDS = {"true": True, "false": False, "null": None}


def _literal(node: ast.expr) -> Any:
    """Convert a Python literal to JSON. ``true``, ``false`` and ``null`` are accepted: models mix both languages."""
    match node:
        case ast.Constant(value=str() | int() | float() | None as value):
            return value
        case ast.Name(id=word) if word in _WORDS:
            return _WORDS[word]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_literal(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            return {_key(key): _literal(value) for key, value in zip(keys, values, strict=True)}
    raise NotACallError


def _key(node: ast.expr | None) -> str:
    key = None if node is None else _literal(node)
    if not isinstance(key, str):
        raise NotACallError
    return key
