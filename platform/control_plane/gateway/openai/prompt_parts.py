"""What the engine tells of a request's prompts: their tokens and text, and log-probabilities of their tokens."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from control_plane.fleet.coalescing import Chunk
from lora_engine.wire import engine_pb2 as pb

# Log-probabilities that all choices of an answer may have of their prompts: about 10 MB, written on a thread. Those of
# a stream are written by the event loop.
MOST_PROMPT_LOGPROBS, MOST_STREAMED = 1 << 17, 1 << 14

_utf8 = codecs.getincrementaldecoder("utf-8")


@dataclass(frozen=True, slots=True)
class PromptToken:
    """``logprob`` is None and ``rank`` 0 for the first one. ``top`` has (id, bytes, log-probability)."""

    token_id: int
    token_bytes: bytes
    logprob: float | None
    rank: int
    top: Sequence[tuple[int, bytes, float]]

    @property
    def text(self) -> str:
        return text_of(self.token_bytes)


@dataclass(slots=True)
class PromptPart:
    """One prompt."""

    text: str = ""
    token_ids: Sequence[int] = ()
    scores: list[pb.PromptLogprobs] = field(default_factory=list)
    complete: bool = False
    held: list[Chunk] = field(default_factory=list)

    def take(self, chunk: Chunk) -> None:
        if chunk.prompt is not None:
            self.text, self.token_ids = chunk.prompt.text, chunk.prompt.token_ids
        self.scores += chunk.prompt_logprobs

    def tokens(self) -> Iterator[PromptToken]:
        for part in self.scores:
            at = 0
            for token_id, logprob, rank in zip(part.token_ids, part.logprobs, part.ranks, strict=True):
                size = part.num_top if rank else 0
                ids, logprobs = part.top_ids[at : at + size], part.top_logprobs[at : at + size]
                top = [(i, part.token_bytes[i], value) for i, value in zip(ids, logprobs, strict=True)]
                at += size
                yield PromptToken(token_id, part.token_bytes[token_id], logprob if rank else None, rank, top)

    def vllm(self, top: int) -> list[dict[str, Any] | None]:
        """vLLM's ``prompt_logprobs``: of each token, itself and the ``top`` most likely ones by id."""
        return [_vllm_token(token, top) if token.rank else None for token in self.tokens()]

    def openai(self, top: int, echo: str) -> dict[str, Any]:
        """OpenAI's ``logprobs`` of a completion, for its beginning ``echo``: null for what nothing predicts."""
        tokens = list(self.tokens())
        return {
            "tokens": [token.text for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [_openai_top(token, top) if token.rank else None for token in tokens],
            "text_offset": list(_offsets(tokens, echo)),
        }


def _vllm_token(token: PromptToken, top: int) -> dict[str, Any]:
    entries = {token.token_id: (token.logprob, token.rank, token.token_bytes)}
    for rank, (token_id, token_bytes, logprob) in enumerate(token.top[:top], start=1):
        entries.setdefault(token_id, (logprob, rank, token_bytes))
    return {
        str(token_id): {"logprob": logprob, "rank": rank, "decoded_token": text_of(token_bytes)}
        for token_id, (logprob, rank, token_bytes) in entries.items()
    }


def _openai_top(token: PromptToken, top: int) -> dict[str, float | None]:
    """Also the token itself. Of tokens that look the same, as parts of characters do, the most likely one."""
    found: dict[str, float | None] = {}
    for _, token_bytes, logprob in token.top[:top]:
        found.setdefault(text_of(token_bytes), logprob)
    found.setdefault(token.text, token.logprob)
    return found


def _offsets(tokens: Sequence[PromptToken], echo: str) -> Iterator[int]:
    """Where each token begins in ``echo``. Those that do not show there, as special ones, take no room."""
    decoder, offset = _utf8("replace"), 0
    for token in tokens:
        yield offset
        text = decoder.decode(token.token_bytes)
        for shown in (text, text.removeprefix(" ")):  # some tokenisers put a space before the first word
            if echo.startswith(shown, offset):
                offset += len(shown)
                break


def text_of(token_bytes: bytes) -> str:
    """A part of a character shows as U+FFFD."""
    return token_bytes.decode("utf-8", "replace")


class PromptParts:
    """Of all prompts of a request, each of which has ``choices`` answers.

    With ``scored``, no choice begins before the log-probabilities of its prompt are complete.
    """

    def __init__(self, prompts: int = 1, choices: int = 1, *, scored: bool = False) -> None:
        self._parts = [PromptPart() for _ in range(prompts)]
        self._choices, self._scored = choices, scored

    @property
    def num_tokens(self) -> int:
        """Of those that were described so far."""
        return sum(len(part.token_ids) for part in self._parts)

    def of(self, choice: int) -> PromptPart:
        return self._parts[choice // self._choices]

    def ready(self, chunks: Sequence[Chunk]) -> Sequence[Chunk]:
        """Take what ``chunks`` tell of prompts. What can be handed on now."""
        if not self._scored and all(chunk.prompt is None for chunk in chunks):
            return chunks
        return [ready for chunk in chunks for ready in self._ready(chunk)]

    def _ready(self, chunk: Chunk) -> Sequence[Chunk]:
        part = self.of(chunk.choice)
        part.take(chunk)
        if not (chunk.tokens or chunk.text or chunk.finish_reason):
            return ()
        if not self._scored or part.complete:
            return (chunk,)
        if chunk.choice % self._choices:
            part.held.append(chunk)
            return ()
        part.complete = True  # the prompt's log-probabilities come with the first choice, and before its first token
        held, part.held = part.held, []
        return (chunk, *held)
