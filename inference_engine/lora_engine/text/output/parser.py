"""The parser splits a model's text, as it arrives, into reasoning, text and tool calls."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field

from . import calls as readers
from .calls import END, Calls, NotACallError, Reader
from .formats import ReasoningTags, ToolFormat
from .harmony import HarmonySplitter
from .reasoning import ReasoningSplitter, possible_start


@dataclass(slots=True)
class CallDelta:
    """New parts of the call ``index``: its ``id`` and ``name`` once, then its arguments' JSON text in pieces."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(slots=True)
class Parsed:
    text: str = ""
    reasoning: str = ""
    calls: list[CallDelta] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ChatOutput:
    """The settings for parsing the output of one request.

    ``tools`` are the names that may be called; with none the text is not parsed for calls. Where calls are ``certain``,
    by a grammar, they are sent while they are written; otherwise each is kept back until it is complete, and becomes
    text if it is no call.
    """

    request_id: str
    format: ToolFormat = ToolFormat.NONE
    tools: frozenset[str] = frozenset()
    certain: bool = False
    single: bool = False
    reasoning: ReasoningTags | None = None
    reasoning_opened: bool = False
    opening: str = ""  # end of the prompt, which the answer's first message continues; with ``HARMONY``

    def choice(self, number: int) -> ChoiceParser:
        return ChoiceParser(self, number)

    @property
    def reads_something(self) -> bool:
        return bool(self.tools) or self.reasoning is not None or self.format is ToolFormat.HARMONY


def call_id(request_id: str, choice: int, index: int, format: ToolFormat) -> str:
    """Return a call's id, always the same for the same place. Mistral's templates want nine letters and digits."""
    digest = hashlib.sha256(f"{request_id} {choice} {index}".encode()).hexdigest()
    return digest[:9] if format is ToolFormat.MISTRAL else f"call_{digest[:24]}"


class ChoiceParser:
    """A parser of one choice. ``feed`` takes its text in any pieces; the joined output is the same."""

    def __init__(self, output: ChatOutput, number: int) -> None:
        self._reasoning: ReasoningSplitter | None = None
        self._calls: _CallFinder | None
        self._harmony: _Harmony | None
        if output.reasoning is not None:
            self._reasoning = ReasoningSplitter(output.reasoning, inside=output.reasoning_opened)
        self._calls = self._harmony = None
        if output.format is ToolFormat.HARMONY:
            self._harmony = _Harmony(output, number)
        elif output.tools:
            self._calls = _CallFinder(output, number)

    @property
    def has_calls(self) -> bool:
        finder = self._harmony or self._calls
        return finder is not None and finder.collected.count > 0

    def feed(self, text: str) -> Parsed:
        return self._read(text, end=False)

    def finish(self, text: str = "") -> Parsed:
        """Parse the last text, and return all that was kept back."""
        return self._read(text, end=True)

    def _read(self, text: str, *, end: bool) -> Parsed:
        if self._harmony is not None:
            return self._harmony.read(text, end=end)
        reasoning = ""
        if self._reasoning is not None:
            reasoning, text = self._reasoning.feed(text)
            if end:
                more, rest = self._reasoning.finish()
                reasoning, text = reasoning + more, text + rest
        if self._calls is None:
            return Parsed(text, reasoning)
        text, calls = self._calls.read(text, end=end)
        return Parsed(text, reasoning, calls)


class _Collected:
    """The calls that readers parsed; ``take`` returns those to send."""

    def __init__(self, output: ChatOutput, choice: int) -> None:
        self._output, self._choice = output, choice
        self._pending: list[CallDelta] = []
        self._index = -1
        self._name = ""
        self._written: list[str] = []
        self.count = 0  # sent, or about to be
        self.is_open = False  # True while the last of them is incomplete

    def name(self, name: str) -> None:
        if name not in self._output.tools or (self._output.single and self.count):
            raise NotACallError
        self._name, self._written = name, []
        if self._output.certain:
            self.is_open = True
            self._begin()

    def arguments(self, piece: str) -> None:
        if not self.is_open:
            self._written.append(piece)
        elif self._pending:
            self._pending[-1].arguments += piece
        else:
            self._pending.append(CallDelta(self.count - 1, arguments=piece))

    def end(self) -> None:
        if not self.is_open:
            arguments = "".join(self._written)
            if not is_object(arguments):
                raise NotACallError
            self._begin().arguments = arguments
        self.is_open = False

    def take(self) -> list[CallDelta]:
        taken, self._pending = self._pending, []
        return taken

    def _begin(self) -> CallDelta:
        id = call_id(self._output.request_id, self._choice, self.count, self._output.format)
        delta = CallDelta(self.count, id, self._name)
        self.count += 1
        self._pending.append(delta)
        return delta


def is_object(text: str) -> bool:
    """Return whether the text is a JSON object."""
    try:
        return isinstance(json.loads(text, parse_constant=_no_constant), dict)
    except (ValueError, RecursionError):
        return False


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


class _Harmony:
    """A reader of answers in the harmony format."""

    def __init__(self, output: ChatOutput, choice: int) -> None:
        self.collected = _Collected(output, choice)
        self._splitter = HarmonySplitter(
            self.collected, output.opening, has_calls=bool(output.tools), certain=output.certain
        )

    def read(self, text: str, *, end: bool) -> Parsed:
        reasoning, text = self._splitter.read(text, end=end)
        return Parsed(text, reasoning, self.collected.take())


@dataclass(frozen=True, slots=True)
class _Section:
    """The beginning of a format's calls: after ``marker`` anywhere, or with ``first`` as the answer's first character.

    ``first_counts``: that character is part of the call, so the reader gets it too.
    """

    reader: Callable[[Calls], Reader]
    marker: str
    first: str = ""
    first_counts: bool = False


_SECTIONS: dict[ToolFormat, _Section] = {
    ToolFormat.HERMES: _Section(readers.hermes, "<tool_call>"),
    ToolFormat.LLAMA_JSON: _Section(readers.llama_json, "<|python_tag|>", first="{", first_counts=True),
    ToolFormat.LLAMA_PYTHONIC: _Section(readers.llama_pythonic, "<|python_start|>[", first="["),
    ToolFormat.MISTRAL: _Section(readers.mistral, "[TOOL_CALLS]"),
}


class _CallFinder:
    """A finder of calls in the text. White space before, between and after calls belongs to no text."""

    def __init__(self, output: ChatOutput, choice: int) -> None:
        self.collected = _Collected(output, choice)
        self._section = _SECTIONS[output.format]
        self._buffer = ""  # text that may be a call's beginning, or white space before one
        self._has_text = False
        self._reader: Reader | None = None
        self._raw: list[str] = []  # characters that the reader got since the last complete call

    def read(self, text: str, *, end: bool) -> tuple[str, list[CallDelta]]:
        out: list[str] = []
        while text:
            text = self._seek(text, out) if self._reader is None else self._send(self._reader, text, out)
        if end:
            self._end(out)
        return "".join(out), self.collected.take()

    def _seek(self, text: str, out: list[str]) -> str:
        """Emit text that is certainly none of a call. Returns the text after a section's beginning."""
        buffered, self._buffer = self._buffer + text, ""
        begins, ends = self._beginning(buffered)
        if begins >= 0:
            self._pass_on(buffered[:begins].rstrip(), out)
            self._start(buffered[begins:ends])
            return buffered[ends:]
        certain = buffered[: possible_start(buffered, self._section.marker)].rstrip()
        self._pass_on(certain, out)
        self._buffer = buffered[len(certain) :]
        return ""

    def _beginning(self, buffered: str) -> tuple[int, int]:
        """Return where a section begins and where its calls begin; -1 if there is none."""
        section = self._section
        if section.first and not self._has_text and not self.collected.count:
            blank = len(buffered) - len(buffered.lstrip())
            if buffered.startswith(section.first, blank):
                return blank, blank + len(section.first)
        at = buffered.find(section.marker)
        return at, at + len(section.marker)

    def _start(self, beginning: str) -> None:
        self._raw = [beginning]
        self._reader = self._section.reader(self.collected)
        next(self._reader)
        if self._section.first_counts and beginning == self._section.first:
            self._reader.send(beginning)

    def _send(self, reader: Reader, text: str, out: list[str]) -> str:
        """Send text to the reader. Returns the text after the section."""
        for at, character in enumerate(text):
            self._raw.append(character)
            count = self.collected.count
            try:
                reader.send(character)
            except StopIteration:
                self._reader = None
                return text[at + 1 :]
            except NotACallError:
                return self._give_back(out) + text[at + 1 :]
            if self.collected.count != count:
                self._raw.clear()
        return ""

    def _give_back(self, out: list[str]) -> str:
        """Turn a failed call back into text; its last characters may begin another section."""
        raw, self._raw, self._reader = "".join(self._raw), [], None
        if self.collected.is_open:  # its beginning was sent already: this is its rest
            self.collected.is_open = False
            return ""
        text = raw[: 1 + possible_start(raw[1:], self._section.marker)]
        self._pass_on(text, out)
        return raw[len(text) :]

    def _end(self, out: list[str]) -> None:
        if self._reader is not None:
            try:
                self._reader.send(END)
                raise NotACallError  # it expects more
            except StopIteration:
                self._reader = None
            except NotACallError:
                self._buffer = self._give_back(out)
        if self._buffer.strip() or not self.collected.count:
            self._pass_on(self._buffer, out)
        self._buffer = ""

    def _pass_on(self, text: str, out: list[str]) -> None:
        if text:
            self._has_text = self._has_text or not text.isspace()
            out.append(text)
