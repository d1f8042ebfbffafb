"""The messages of GPT-OSS's answers (OpenAI's harmony format) are split into reasoning, text and tool calls.

An answer is a sequence of messages, each with a header: ``<|start|>assistant<|channel|>analysis<|message|>…<|end|>``.
The prompt ends within the first header, or within a message that is continued. A message of the channel ``analysis`` is
reasoning; one to a recipient (``commentary to=functions.get_weather``) is a tool call; all others are text.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from .calls import Calls, NotACallError
from .harmony_markers import CHANNEL, ENDS, FUNCTIONS, MESSAGE, START
from .reasoning import possible_start

# Characters of the longest header; a longer one is text.
_LONGEST_HEADER = 512
_CHANNEL_NAME = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
# Tokens with which a header begins, after white space.
_MARKED = (START, CHANNEL, MESSAGE)
_BEGINNINGS = (*_MARKED, "to=")


class _Kind(Enum):
    """The kinds of a message."""

    REASONING = auto()
    TEXT = auto()
    CALL = auto()


class HarmonySplitter:
    """A splitter whose ``read`` returns (reasoning, text) of the next piece; calls go to a receiver.

    ``has_calls`` is whether tools are offered. Where calls are ``certain``, their arguments are passed on while they
    are written; otherwise what turns out to be no call of an offered tool becomes text.
    """

    def __init__(self, calls: Calls, opening: str, *, has_calls: bool, certain: bool) -> None:
        """Create the splitter; ``opening`` is the end of the prompt, see ``opening_of``."""
        self._calls, self._has_calls, self._certain = calls, has_calls, certain
        self._buffer = ""
        self._kind: _Kind | None = None  # None: within a header
        self._arguments: list[str] = []  # of a call that may be none
        self._written = {_Kind.REASONING: False, _Kind.TEXT: False}
        self._begins = True  # nothing of the current message was passed on
        self._reasoning: list[str] = []
        self._text: list[str] = []
        if opening:
            self.read(opening)
            self._buffer = "" if self._kind else self._buffer
            self._begins = False  # a continued message goes on where the prompt ends
            self._written = dict.fromkeys(self._written, False)

    def read(self, piece: str, *, end: bool = False) -> tuple[str, str]:
        self._buffer += piece
        self._reasoning, self._text = [], []
        while self._step():
            pass
        if end:
            self._end()
        return "".join(self._reasoning), "".join(self._text)

    def _step(self) -> bool:
        """Read a header or a part of a message. Returns whether there may be more to read."""
        return self._header() if self._kind is None else self._body(self._kind)

    def _header(self) -> bool:
        start = self._buffer.lstrip()
        if not start:
            return False
        header, complete, rest = start.partition(MESSAGE)
        if start.startswith(ENDS):  # of no message
            self._buffer = start[start.index(">") + 1 :]
            return True
        is_header = start.startswith(_BEGINNINGS) and len(header) <= _LONGEST_HEADER
        if complete and is_header:
            self._open(header)
            self._buffer = rest
            return True
        if is_header or any(beginning.startswith(start) for beginning in (*_BEGINNINGS, *ENDS)):
            return False  # more of it may come
        self._kind, self._begins = _Kind.TEXT, True
        kept = len(self._buffer) - len(start) + 1  # what is too long for a header may begin with a marker
        self._pass_on(_Kind.TEXT, self._buffer[:kept])
        self._buffer = self._buffer[kept:]
        return True

    def _open(self, header: str) -> None:
        """Begin the message of a header."""
        channel, recipient = _CHANNEL_NAME.search(header), _RECIPIENT.search(header)
        self._begins, self._arguments = True, []
        self._kind = _Kind.REASONING if channel and channel[1] == "analysis" else _Kind.TEXT
        if recipient and self._has_calls:
            try:
                self._calls.name(recipient[1].removeprefix(FUNCTIONS))
            except NotACallError:
                return
            self._kind = _Kind.CALL

    def _body(self, kind: _Kind) -> bool:
        """Pass on what is certainly no end of the message, and the end if it is there."""
        ends = [(at, mark) for mark in (*ENDS, START) if (at := self._buffer.find(mark)) >= 0]
        if ends:
            at, mark = min(ends)
            self._pass_on(kind, self._buffer[:at])
            self._buffer = self._buffer[at + len(mark) :] if mark != START else self._buffer[at:]
            self._close(kind)
            return True
        certain = min(possible_start(self._buffer, mark) for mark in (*ENDS, START))
        self._pass_on(kind, self._buffer[:certain])
        self._buffer = self._buffer[certain:]
        return False

    def _pass_on(self, kind: _Kind, text: str) -> None:
        if not text:
            return
        if kind is _Kind.CALL:
            self._arguments.append(text)
            self._calls.arguments(text)
            return
        if self._begins and self._written[kind]:
            text = f"\n\n{text}"  # between two messages
        self._begins = False
        self._written[kind] = True
        (self._reasoning if kind is _Kind.REASONING else self._text).append(text)

    def _close(self, kind: _Kind) -> None:
        self._kind = None
        if kind is _Kind.CALL:
            try:
                self._calls.end()
            except NotACallError:
                if not self._certain:  # otherwise its beginning was sent already
                    self._begins = True
                    self._pass_on(_Kind.TEXT, "".join(self._arguments))

    def _end(self) -> None:
        """Pass on what was kept back. A header that was cut off is no text."""
        if self._kind is None:
            cut, self._buffer = self._buffer, ""
            if cut.strip() and not cut.lstrip().startswith(_MARKED):
                self._begins = True
                self._pass_on(_Kind.TEXT, cut)
            return
        kind, rest = self._kind, self._buffer
        self._buffer = ""
        self._pass_on(kind, rest)
        self._close(kind)


def opening_of(prompt: str) -> str:
    """Return the end of the prompt that the answer continues: a header, or a message that has not ended."""
    _, start, rest = prompt.rpartition(START)
    return "" if not start or any(mark in rest for mark in ENDS) else start + rest
