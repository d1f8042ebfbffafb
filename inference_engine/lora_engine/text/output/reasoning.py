"""Reasoning is split from the answer while the text arrives."""

from __future__ import annotations

from .formats import ReasoningTags


def possible_start(text: str, marker: str) -> int:
    """Return the first position from which the rest of ``text`` begins ``marker``; the text's length if none does."""
    for at in range(max(0, len(text) - len(marker) + 1), len(text)):
        if marker.startswith(text[at:]):
            return at
    return len(text)


class ReasoningSplitter:
    """A splitter whose ``feed`` and ``finish`` return (reasoning, text). Reasoning counts only at the output's
    beginning.

    White space around the reasoning belongs to neither. With ``inside`` the prompt has opened it already.
    """

    def __init__(self, tags: ReasoningTags, *, inside: bool) -> None:
        self._tags = tags
        self._buffer = ""
        self._step = self._reasoning if inside else self._opening
        self._began = False

    def feed(self, text: str) -> tuple[str, str]:
        if self._step == self._text:
            return "", text
        self._buffer += text
        return self._step()

    def finish(self) -> tuple[str, str]:
        """Return the text kept back. An unfinished tag is reasoning inside reasoning, and text outside."""
        rest, self._buffer = self._buffer, ""
        if self._step == self._reasoning:
            return rest.rstrip() if self._began else rest.strip(), ""
        return "", rest

    def _opening(self) -> tuple[str, str]:
        start = self._buffer.lstrip()
        if start.startswith(self._tags.open):
            self._buffer = start.removeprefix(self._tags.open)
            self._step = self._reasoning
            return self._step()
        if self._tags.open.startswith(start):
            return "", ""
        self._step = self._text
        return self._step()

    def _reasoning(self) -> tuple[str, str]:
        body, closed, rest = self._buffer.partition(self._tags.close)
        if closed:
            self._buffer = rest
            self._step = self._gap
            reasoning = body.rstrip() if self._began else body.strip()
            return reasoning, self._step()[1]
        if not self._began:
            body = body.lstrip()
        certain = body[: possible_start(body, self._tags.close)].rstrip()
        self._buffer = body[len(certain) :]
        self._began = self._began or bool(certain)
        return certain, ""

    def _gap(self) -> tuple[str, str]:
        self._buffer = self._buffer.lstrip()
        if not self._buffer:
            return "", ""
        self._step = self._text
        return self._step()

    def _text(self) -> tuple[str, str]:
        text, self._buffer = self._buffer, ""
        return "", text
