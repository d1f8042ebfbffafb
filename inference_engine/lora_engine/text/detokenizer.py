"""Detokenising yields text from tokens as they arrive: whole characters only, and never past a stop string."""

from __future__ import annotations

import codecs

from .tokenizer import Tokenizer

_utf8 = codecs.getincrementaldecoder("utf-8")


class IncrementalDetokenizer:
    """A converter of one choice's tokens into text that is safe to send immediately.

    It keeps back the bytes of an unfinished character, and the beginning of a possible stop string. The stop string
    that is completed first wins, regardless of the tokens' borders; of two that end together, the longer. Work per
    token depends on the token and the stop strings only, not on the length of the text before.

    Text of the first ``min_tokens`` tokens is never part of a stop string. With ``continues_text`` the leading space
    that SentencePiece decoders drop is kept, as a continuation of a prompt needs it. Special tokens are left out,
    except those in ``shown``.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: tuple[str, ...] = (),
        include_stop: bool = False,
        *,
        continues_text: bool = False,
        shown: frozenset[int] = frozenset(),
        min_tokens: int = 0,
    ) -> None:
        self._tokenizer = tokenizer
        self._stop = tuple(text for text in stop if text)
        self._longest = max(map(len, self._stop), default=0)
        self._include_stop = include_stop
        self._shown = shown
        self._decoder = _utf8("replace")
        self._strip = 0 if continues_text else tokenizer.rules.strip_left
        self._bare = tokenizer.rules.bare_first and not continues_text
        self._buffer = ""
        self._unstoppable = min_tokens
        self.stopped: str | None = None

    @property
    def may_stop(self) -> bool:
        """True if a token's text can complete a stop string."""
        return bool(self._stop)

    def append(self, token_id: int) -> str:
        """Return the new text that this token makes safe to send; "" once ``stopped``."""
        if self.stopped is not None:
            return ""
        hidden = self._tokenizer.is_special(token_id) and token_id not in self._shown
        text = "" if hidden else self._decoder.decode(self._bytes(token_id))
        released = self._release(text) if text else ""
        self._unstoppable -= self._unstoppable > 0
        return released

    def flush(self) -> str:
        """Return all text kept back, at the end of the generation. An unfinished character becomes U+FFFD."""
        if self.stopped is not None:
            return ""
        released = self._release(self._decoder.decode(b"", final=True))
        rest, self._buffer = self._buffer, ""
        return released + rest

    def _bytes(self, token_id: int) -> bytes:
        raw = self._tokenizer.token_bytes(token_id)
        if self._bare:
            self._bare = False
            return raw.replace(b" ", b"")
        return raw

    def _release(self, text: str) -> str:
        while self._strip and text:
            if not text.startswith(" "):
                self._strip = 0
                break
            text, self._strip = text[1:], self._strip - 1
        if not self._stop or self._unstoppable:
            return text
        text = self._buffer + text
        end = self._find_stop(text)
        if end is not None:
            self._buffer = ""
            return text[:end]
        keep = self._possible_stop(text)
        self._buffer = text[keep:]
        return text[:keep]

    def _find_stop(self, text: str) -> int | None:
        """Return where the text ends if a stop string is complete in it, else None."""
        hits = [(at + len(stop), at, stop) for stop in self._stop if (at := text.find(stop)) >= 0]
        if not hits:
            return None
        end, start, self.stopped = min(hits)
        return end if self._include_stop else start

    def _possible_stop(self, text: str) -> int:
        """Return the first position from which the rest of the text begins a stop string."""
        for at in range(max(0, len(text) - self._longest + 1), len(text)):
            tail = text[at:]
            if any(stop.startswith(tail) for stop in self._stop):
                return at
        return len(text)
