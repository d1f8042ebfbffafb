"""Splits reasoning from the answer while the text arrives."""

from __future__ import annotations

from .formats import ReasoningTags


def possible_start(text: str, marker: str) -> int:
    """The first position from which the rest of ``text`` is a beginning of ``marker``; its length if none is."""
    for at in range(max(0, len(text) - len(marker) + 1), len(text)):
        if marker.startswith(text[at:]):
            return at
    return len(text)


class ReasoningSplitter:
    """``feed`` and ``finish`` return (reasoning, text). Reasoning counts only at the output's beginning.

    White space around the reasoning belongs to neither. Where ``inside``, the prompt opened it already.
    """

    def __init__(self, tags: ReasoningTags, *, inside: bool) -> None:
        self._tags = tags
        self._held = ""
        self._step = self._reasoning if inside else self._opening
        self._began = False

    def feed(self, text: str) -> tuple[str, str]:
        if self._step == self._text:
            return "", text
        self._held += text
        return self._step()

    def finish(self) -> tuple[str, str]:
        """What was held back: an unfinished tag is what it looks like, reasoning within it and text outside."""
        held, self._held = self._held, ""
        if self._step == self._reasoning:
            return held.rstrip() if self._began else held.strip(), ""
        return "", held

    def _opening(self) -> tuple[str, str]:
        start = self._held.lstrip()
        if start.startswith(self._tags.open):
            self._held = start.removeprefix(self._tags.open)
            self._step = self._reasoning
            return self._step()
        if self._tags.open.startswith(start):
            return "", ""
        self._step = self._text
        return self._step()

    def _reasoning(self) -> tuple[str, str]:
        body, closed, rest = self._held.partition(self._tags.close)
        if closed:
            self._held = rest
            self._step = self._gap
            reasoning = body.rstrip() if self._began else body.strip()
            return reasoning, self._step()[1]
        if not self._began:
            body = body.lstrip()
        certain = body[: possible_start(body, self._tags.close)].rstrip()
        self._held = body[len(certain) :]
        self._began = self._began or bool(certain)
        return certain, ""

    def _gap(self) -> tuple[str, str]:
        self._held = self._held.lstrip()
        if not self._held:
            return "", ""
        self._step = self._text
        return self._step()

    def _text(self) -> tuple[str, str]:
        text, self._held = self._held, ""
        return "", text
